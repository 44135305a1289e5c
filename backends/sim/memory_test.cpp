#include <algorithm>
#include <array>

#include "backends/sim/sim_test.hpp"
#include "backplane/ops.h"

namespace bp::sim {
namespace {

// The size is a page and one byte of the next page.
constexpr uint64_t kOdd = 4097;

TEST(SimMemoryDeathTest, FaultsWhereTheHostTouchesIt) {
  Sim s;
  bp_stream* stream = s.make_stream();
  bp_buffer* buffer = s.make_buffer(64);
  ASSERT_EQ(s.fill(stream, buffer, 1), BP_OK);
  ASSERT_EQ(s.synchronize(stream), BP_OK);
  volatile uint8_t* const bytes = s.address(buffer);
  EXPECT_DEATH({ [[maybe_unused]] const uint8_t byte = bytes[0]; }, "");
  EXPECT_DEATH({ bytes[0] = 2; }, "");
  EXPECT_EQ(s.free(buffer), BP_OK);
}

TEST(SimMemoryDeathTest, HasAPageThatNobodyReachesOnBothSides) {
  Sim s{{"protect", "no"}};
  bp_buffer* buffer = s.make_buffer(kOdd);
  volatile uint8_t* const bytes = s.address(buffer);
  bytes[kOdd - 1] = 1;
  EXPECT_DEATH({ bytes[8192] = 1; }, "");
  EXPECT_DEATH({ *(bytes - 1) = 1; }, "");
  EXPECT_EQ(s.free(buffer), BP_OK);
}

TEST(SimMemory, IsOpenWithOptionProtectNo) {
  Sim s{{"protect", "no"}};
  bp_buffer* buffer = s.make_buffer(16);
  ASSERT_EQ(s.fill(s.b.default_stream(), buffer, 9), BP_OK);
  ASSERT_EQ(s.synchronize(s.b.default_stream()), BP_OK);
  EXPECT_EQ(s.address(buffer)[15], 9);
  EXPECT_EQ(s.free(buffer), BP_OK);
}

TEST(SimMemory, FindsWhatWasWrittenBehindTheEnd) {
  Sim s{{"protect", "no"}};
  bp_stream* stream = s.make_stream();
  bp_buffer* buffer = s.make_buffer(100);
  s.address(buffer)[100] = 1;
  s.address(buffer)[107] = 1;
  EXPECT_EQ(s.free(buffer, stream), BP_OK);
  EXPECT_EQ(s.synchronize(stream), BP_INTERNAL);
  EXPECT_NE(s.b.errors.find("2 bytes behind the end of a buffer of 100 were overwritten, "
                            "the first at 100"),
            std::string::npos)
      << s.b.errors;
  s.b.errors.clear();
  buffer = s.make_buffer(1);
  s.address(buffer)[4095] = 1;
  EXPECT_EQ(s.free(buffer), BP_OK);
  EXPECT_NE(s.b.errors.find("the first at 4095"), std::string::npos) << s.b.errors;
  s.b.errors.clear();
  EXPECT_EQ(s.free(s.make_buffer(1)), BP_OK);
  EXPECT_EQ(s.b.errors, "");
}

TEST(SimMemory, EndsWithItsCapacity) {
  Sim s{{"capacity_bytes", "65536"}};
  bp_buffer* whole = s.make_buffer(65536);
  EXPECT_EQ(s.free_bytes(), 0u);
  bp_buffer* more = nullptr;
  EXPECT_EQ(s.allocate({.size_bytes = 1}, &more), BP_OUT_OF_MEMORY);
  EXPECT_NE(s.b.text.find("1 bytes were asked for"), std::string::npos) << s.b.text;
  EXPECT_NE(s.b.text.find("65536"), std::string::npos) << s.b.text;
  EXPECT_EQ(more, nullptr);
  EXPECT_EQ(s.allocate({.size_bytes = 1}, &more, 1), BP_OK) << "the other device has its own";
  EXPECT_EQ(s.free(more), BP_OK);
  EXPECT_EQ(s.free(whole), BP_OK);
  EXPECT_EQ(s.free_bytes(), 65536u);
  EXPECT_EQ(s.allocate({.size_bytes = 65537}, &more), BP_OUT_OF_MEMORY);
  EXPECT_EQ(s.allocate({.size_bytes = UINT64_MAX}, &more), BP_OUT_OF_MEMORY);
}

TEST(SimMemory, OfALaunchIsRefusedInWords) {
  Sim s;
  TestTensor x(s.b, BP_F32, {4}), y(s.b, BP_F32, {4});
  bp_tensor none = *(&x);
  none.buffer = reinterpret_cast<bp_buffer*>(s.b.default_stream());
  EXPECT_EQ(s.b.launch(BP_OP_NEG, bp_neg_args{.x = &none, .y = &y}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(s.b.text, "launch: argument x: buffer is NULL or not one of this backend");
  bp_buffer* const buffer = s.make_buffer(4096);
  const auto refusal = [&](uint64_t byte_offset) {
    const bp_kernel* const neg = s.b.kernel(BP_OP_NEG);
    const bp_neg_args args{.struct_size = sizeof(args), .x = &x, .y = &y};
    const bp_launch launch{.device = s.b.device,
                           .stream = s.b.default_stream(),
                           .workspace = {buffer, byte_offset, 64}};
    EXPECT_EQ(neg->launch(neg, &launch, &args), BP_INVALID_ARGUMENT);
    return s.b.text;
  };
  EXPECT_EQ(refusal(4090), "launch: workspace: 64 bytes at 4090 leave the buffer of 4096");
  EXPECT_EQ(refusal(128), "launch: workspace: byte_offset is 128, no multiple of 256");
  EXPECT_EQ(s.free(buffer), BP_OK);
}

TEST(SimMemory, ReturnsItsRoomInStreamOrder) {
  Sim s;
  bp_stream* stream = s.make_stream();
  bp_buffer* buffer = s.make_buffer(4096);
  const uint64_t before = s.free_bytes();
  bp_event* gate = s.make_event(BP_EVENT_HOST_SIGNAL);
  ASSERT_EQ(s.wait(stream, gate), BP_OK);
  ASSERT_EQ(s.fill(stream, buffer, 1), BP_OK);
  ASSERT_EQ(s.free(buffer, stream), BP_OK);
  EXPECT_EQ(s.free_bytes(), before);
  ASSERT_EQ(s.signal(gate), BP_OK);
  ASSERT_EQ(s.synchronize(stream), BP_OK);
  EXPECT_EQ(s.free_bytes(), before + 4096);
}

TEST(SimMemory, OrderedByAStreamBeginsThere) {
  Sim s;
  bp_stream* stream = s.make_stream();
  bp_stream* other = s.make_stream();
  bp_event* gate = s.make_event(BP_EVENT_HOST_SIGNAL);
  ASSERT_EQ(s.wait(stream, gate), BP_OK);
  bp_buffer* buffer = nullptr;
  ASSERT_EQ(
      s.allocate({.size_bytes = 16, .stream = stream, .usage = BP_MEMORY_STREAM_ORDERED}, &buffer),
      BP_OK)
      << s.b.text;
  // Nothing orders the other stream behind the allocation.
  ASSERT_EQ(s.fill(other, buffer, 1), BP_OK);
  EXPECT_EQ(s.synchronize(other), BP_INVALID_ARGUMENT);
  EXPECT_NE(s.b.text.find("before its allocation"), std::string::npos) << s.b.text;
  ASSERT_EQ(s.fill(stream, buffer, 2), BP_OK);
  ASSERT_EQ(s.signal(gate), BP_OK);
  EXPECT_EQ(s.read(stream, buffer), bytes_of(2));
  EXPECT_EQ(s.free(buffer, stream), BP_OK);
  EXPECT_EQ(s.allocate({.size_bytes = 16, .usage = BP_MEMORY_STREAM_ORDERED}, &buffer),
            BP_INVALID_ARGUMENT);
}

TEST(SimMemory, OpensForKernelsAndClosesBehindThem) {
  Sim s;
  bp_stream* stream = s.make_stream();
  const std::array<float, 4> x{1, 2, 3, 4};
  const int64_t shape = 4, stride = 1;
  bp_buffer* a = s.make_buffer(16);
  bp_buffer* y = s.make_buffer(16);
  s.write(stream, a, x.data(), 16);
  const auto tensor = [&](bp_buffer* buffer, uint64_t offset = 0) {
    return bp_tensor{.buffer = buffer,
                     .byte_offset = offset,
                     .shape = &shape,
                     .strides = &stride,
                     .ndim = 1,
                     .dtype = BP_F32};
  };
  const bp_tensor in = tensor(a), out = tensor(y), outside = tensor(y, 4);
  bp_add_args args{.a = &in, .b = &in, .y = &out};
  ASSERT_EQ(s.b.launch(BP_OP_ADD, args, stream), BP_OK) << s.b.text;
  std::array<float, 4> sums{};
  const std::vector<uint8_t> bytes = s.read(stream, y);
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<uint8_t*>(sums.data()));
  EXPECT_EQ(sums, (std::array<float, 4>{2, 4, 6, 8}));
  args.y = &outside;
  EXPECT_EQ(s.b.launch(BP_OP_ADD, args, stream), BP_INVALID_ARGUMENT);
  EXPECT_NE(s.b.text.find("argument y"), std::string::npos) << s.b.text;
  bp_buffer* far = s.make_buffer(16, 1);
  const bp_tensor on_the_other_device = tensor(far);
  args.y = &on_the_other_device;
  EXPECT_EQ(s.b.launch(BP_OP_ADD, args, stream), BP_INVALID_ARGUMENT);
  EXPECT_NE(s.b.text.find("two devices"), std::string::npos) << s.b.text;
  for (bp_buffer* buffer : {a, y, far}) EXPECT_EQ(s.free(buffer), BP_OK);
}

TEST(SimMemory, MapsWhatTheHostMaySee) {
  Sim s;
  void* pointer = nullptr;
  bp_buffer* hidden = s.make_buffer(16);
  const bp_buffer_ref whole{hidden, 0, 16};
  EXPECT_EQ(s.b.allocator->map(s.b.allocator->self, &whole, &pointer), BP_UNSUPPORTED);
  EXPECT_EQ(s.free(hidden), BP_OK);
  bp_buffer* shown = s.make_buffer(16, 0, BP_HEAP_HOST_VISIBLE);
  const bp_buffer_ref part{shown, 4, 8};
  ASSERT_EQ(s.b.allocator->map(s.b.allocator->self, &part, &pointer), BP_OK) << s.b.text;
  std::fill_n(static_cast<uint8_t*>(pointer), 8, uint8_t{7});
  void* second = nullptr;
  ASSERT_EQ(s.b.allocator->map(s.b.allocator->self, &part, &second), BP_OK) << s.b.text;
  ASSERT_EQ(s.b.allocator->unmap(s.b.allocator->self, shown, pointer), BP_OK);
  EXPECT_EQ(static_cast<uint8_t*>(second)[7], 7) << "the memory stays open for the other map";
  ASSERT_EQ(s.b.allocator->unmap(s.b.allocator->self, shown, second), BP_OK);
  EXPECT_EQ(s.b.allocator->unmap(s.b.allocator->self, shown, second), BP_INVALID_ARGUMENT);
  EXPECT_EQ(s.read(s.b.default_stream(), shown)[11], 7);
  EXPECT_EQ(s.free(shown), BP_OK);
}

TEST(SimMemory, CopiesBetweenDevices) {
  Sim s;
  bp_stream* stream = s.make_stream(1);
  bp_buffer* near = s.make_buffer(16, 0);
  bp_buffer* far = s.make_buffer(16, 1);
  bp_stream* source = s.make_stream(0);
  ASSERT_EQ(s.fill(source, near, 5), BP_OK);
  ASSERT_EQ(s.synchronize(source), BP_OK);
  bp_peer_info info{.struct_size = sizeof(info)};
  ASSERT_EQ(
      s.b.allocator->peer_info(s.b.allocator->self, s.b.all_devices[0], s.b.all_devices[1], &info),
      BP_OK);
  EXPECT_EQ(info.is_direct, 1u);
  ASSERT_EQ(s.copy_peer(stream, far, near), BP_OK) << s.b.text;
  EXPECT_EQ(s.read(stream, far), bytes_of(5));
  EXPECT_EQ(s.copy(stream, far, near), BP_INVALID_ARGUMENT) << "copy() is of one device";
  for (bp_buffer* buffer : {near, far}) EXPECT_EQ(s.free(buffer), BP_OK);
}

}  // namespace
}  // namespace bp::sim
