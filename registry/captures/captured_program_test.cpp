// Tests captures that write programs, on a device with kernels and a compiler.
#include <sys/wait.h>
#include <unistd.h>

#include "backplane/transfers.h"
#include "registry/tests/capture_fixture.hpp"

namespace bp {
namespace {

// A tensor of floats whose memory is a block, for memory that is taken in a capture.
struct Place {
  Place(const bp_block* block, std::vector<int64_t> its_shape, uint64_t first = 0)
      : shape(std::move(its_shape)), strides(shape.size(), 1) {
    for (size_t axis = shape.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * shape[axis];
    tensor = {.buffer = block->ref.buffer,
              .byte_offset = block->ref.byte_offset + first * sizeof(float),
              .shape = shape.data(),
              .strides = strides.data(),
              .ndim = static_cast<uint32_t>(shape.size()),
              .dtype = BP_F32};
  }
  Place(const Place&) = delete;

  std::vector<int64_t> shape, strides;
  bp_tensor tensor{};
};

class ProgramCaptureTest : public CaptureFixture {
 protected:
  void SetUp() override { load(BACKPLANE_TEST_PLUGIN); }

  bp_capture* begin_program(bp_stream* on = nullptr, const bp_capture_desc* desc = nullptr) {
    bp_capture* capture = nullptr;
    EXPECT_EQ(bp_capture_begin_program(target, on, desc, &capture), BP_OK) << bp_error_text();
    return capture;
  }

  bp_status add(const bp_tensor& x, const bp_tensor& y, const bp_tensor& sum,
                bp_launch_flags flags = 0) {
    bp_add_args args{.struct_size = sizeof(args), .a = &x, .y = &sum};
    args.b = &y;
    return bp_op_launch(target, nullptr, flags, BP_OP_ADD, &args);
  }
  bp_status neg(const bp_tensor& x, const bp_tensor& y) {
    const bp_neg_args args{.struct_size = sizeof(args), .x = &x, .y = &y};
    return bp_op_launch(target, nullptr, 0, BP_OP_NEG, &args);
  }

  std::vector<float> content(const bp_block* block, size_t count) {
    std::vector<float> values(count);
    const bp_buffer_ref ref{block->ref.buffer, block->ref.byte_offset, count * sizeof(float)};
    EXPECT_EQ(
        target->allocator->copy_to_host(target->allocator->self, target->default_stream,
                                        values.data(), &ref, BP_BORROW_DURING_CALL, UINT64_MAX),
        BP_OK)
        << bp_error_text();
    return values;
  }
  std::string end_text(bp_capture* capture, bp_status status) {
    bp_captured_graph* graph = nullptr;
    EXPECT_EQ(bp_capture_end(capture, &graph), status);
    EXPECT_EQ(graph, nullptr);
    return bp_error_text();
  }
};

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

using Values = std::vector<float>;

TEST_F(ProgramCaptureTest, RunsItsLaunchesOnWhateverTheInputsHoldNow) {
  Floats x(*target, {4});
  bp_capture* const capture = begin_program();
  bp_block *const between = take(16), *const held = take(16);
  const Place t(between, {4}), y(held, {4});
  ASSERT_EQ(neg(*x.get(), t.tensor), BP_OK) << bp_error_text();
  ASSERT_EQ(add(t.tensor, *x.get(), y.tensor), BP_OK) << bp_error_text();
  ASSERT_EQ(add(y.tensor, t.tensor, y.tensor), BP_OK) << bp_error_text();
  bp_block_free(between);
  bp_captured_graph* const graph = end(capture);
  EXPECT_EQ(info(graph).node_count, 3u);
  EXPECT_EQ(info(graph).block_count, 1u);
  EXPECT_EQ(info(graph).graph, nullptr);
  for (const Values& values : {Values{1, 2, 3, 4}, Values{5, -6, 7, 0}}) {
    x.set(values);
    replay(graph);
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(content(held, 4)[i], -values[i]);
  }
  bp_block_free(held);
  destroy(graph);
}

TEST_F(ProgramCaptureTest, TellsBlocksApartThatHadTheSameMemory) {
  Floats x(*target, {4});
  bp_capture* const capture = begin_program();
  bp_block* const first = take(16);
  const Place a(first, {4});
  ASSERT_EQ(neg(*x.get(), a.tensor), BP_OK);
  bp_block* const held = take(16);
  const Place y(held, {4});
  ASSERT_EQ(add(a.tensor, a.tensor, y.tensor), BP_OK);
  bp_block_free(first);
  bp_block* const second = take(16);
  const Place b(second, {2, 2});
  EXPECT_EQ(b.tensor.byte_offset, a.tensor.byte_offset) << "the test needs the memory of before";
  const Place x2(held, {2, 2});
  ASSERT_EQ(neg(x2.tensor, b.tensor), BP_OK);
  ASSERT_EQ(neg(b.tensor, x2.tensor), BP_OK);
  bp_block_free(second);
  bp_captured_graph* const graph = end(capture);
  x.set({1, 2, 3, 4});
  replay(graph);
  EXPECT_EQ(content(held, 4), (Values{-2, -4, -6, -8}));
  bp_block_free(held);
  destroy(graph);
}

TEST_F(ProgramCaptureTest, ChangesMemoryFromBeforeInPlaceAtEachReplay) {
  Floats weight(*target, {4}), step(*target, {4});
  weight.set({1, 2, 3, 4});
  step.set({1, 1, 2, 2});
  bp_capture* const capture = begin_program();
  ASSERT_EQ(add(*weight.get(), *step.get(), *weight.get()), BP_OK);
  bp_captured_graph* const graph = end(capture);
  EXPECT_EQ(weight.elements(), (Values{1, 2, 3, 4}));
  replay(graph);
  EXPECT_EQ(weight.elements(), (Values{2, 3, 5, 6}));
  replay(graph);
  EXPECT_EQ(weight.elements(), (Values{3, 4, 7, 8}));
  destroy(graph);
}

TEST_F(ProgramCaptureTest, KeepsWhatNoLaunchWritesOfMemoryFromBefore) {
  Floats x(*target, {2}), y(*target, {2}, {2}, 1, 4);  // Elements 1 and 3 of four.
  x.set({5, 6});
  y.write({1, 2, 3, 4});
  bp_capture* const capture = begin_program();
  ASSERT_EQ(neg(*x.get(), *y.get()), BP_OK);
  bp_captured_graph* const graph = end(capture);
  replay(graph);
  EXPECT_EQ(y.read(), (Values{1, -5, 3, -6}));
  destroy(graph);
}

TEST_F(ProgramCaptureTest, CopiesWithinTheDeviceAndTakesInlineScalars) {
  Floats x(*target, {4}), y(*target, {4});
  bp_capture* const capture = begin_program();
  bp_tensor_copy_desc copy{};
  copy.struct_size = sizeof(copy);
  copy.struct_type = BP_STRUCT_TENSOR_COPY_DESC;
  copy.dst_target = copy.src_target = target;
  copy.dst = y.get();
  copy.src = x.get();
  ASSERT_EQ(bp_copy_tensor(&copy), BP_OK) << bp_error_text();
  bp_add_args args{.struct_size = sizeof(args), .a = y.get(), .y = y.get()};
  args.b_scalar = {BP_F64, 0, 0x4004000000000000};  // 2.5
  ASSERT_EQ(bp_op_launch(target, nullptr, 0, BP_OP_ADD, &args), BP_OK) << bp_error_text();
  bp_captured_graph* const graph = end(capture);
  x.set({1, 2, 3, 4});
  replay(graph);
  EXPECT_EQ(y.elements(), (Values{3.5, 4.5, 5.5, 6.5}));
  EXPECT_EQ(x.elements(), (Values{1, 2, 3, 4}));
  destroy(graph);
}

TEST_F(ProgramCaptureTest, RecordsCopiesAndFillsOfTheTable) {
  Floats x(*target, {4}), y(*target, {4}), z(*target, {4});
  const bp_allocator_ops& memory = *target->allocator;
  const bp_buffer_ref from{x.get()->buffer, x.get()->byte_offset, 16};
  const bp_buffer_ref to{y.get()->buffer, y.get()->byte_offset, 16};
  const bp_buffer_ref last{z.get()->buffer, z.get()->byte_offset + 12, 4};
  const float one = 1;
  const unsigned char pattern[3] = {};
  float value = 0;
  bp_capture* const capture = begin_program();
  bp_block* const block = take(16);
  const Place t(block, {4});
  ASSERT_EQ(memory.fill(memory.self, target->default_stream, &block->ref, &one, 4), BP_OK)
      << bp_error_text();
  ASSERT_EQ(memory.copy(memory.self, target->default_stream, &to, &from), BP_OK) << bp_error_text();
  ASSERT_EQ(add(*y.get(), t.tensor, *y.get()), BP_OK) << bp_error_text();
  ASSERT_EQ(memory.fill(memory.self, target->default_stream, &last, &one, 2), BP_OK);
  EXPECT_EQ(memory.fill(memory.self, target->default_stream, &block->ref, pattern, 3),
            BP_INVALID_ARGUMENT);
  EXPECT_EQ(memory.copy_from_host(memory.self, target->default_stream, &last, &one,
                                  BP_BORROW_DURING_CALL),
            BP_INVALID_ARGUMENT);
  expect_part(bp_error_text(), "allocator.copy_from_host: the stream captures a program");
  EXPECT_EQ(memory.copy_to_host(memory.self, target->default_stream, &value, &last,
                                BP_BORROW_DURING_CALL, UINT64_MAX),
            BP_INVALID_ARGUMENT);
  bp_block_free(block);
  bp_captured_graph* const graph = end(capture);
  EXPECT_EQ(z.elements(), Values(4, 77)) << "nothing ran";
  x.set({1, 2, 3, 4});
  replay(graph);
  EXPECT_EQ(y.elements(), (Values{2, 3, 4, 5}));
  const Values ended = z.elements();
  EXPECT_EQ((Values{ended[0], ended[1], ended[2]}), Values(3, 77));
  EXPECT_EQ(ended[3], 0) << "two times the low half of 1.0f";
  destroy(graph);
}

TEST_F(ProgramCaptureTest, BindsOtherMemoryToItsSlots) {
  Floats x(*target, {4}), y(*target, {4}), other(*target, {4});
  const bp_buffer_ref slots[] = {{x.get()->buffer, x.get()->byte_offset, 16},
                                 {y.get()->buffer, y.get()->byte_offset, 16}};
  const bp_capture_desc desc{.struct_size = sizeof(desc),
                             .struct_type = BP_STRUCT_CAPTURE_DESC,
                             .slots = slots,
                             .slot_count = 2};
  bp_capture* const capture = begin_program(nullptr, &desc);
  ASSERT_EQ(neg(*x.get(), *y.get()), BP_OK);
  bp_captured_graph* const graph = end(capture);
  EXPECT_EQ(info(graph).slot_count, 2u);
  x.set({1, 2, 3, 4});
  const bp_buffer_ref range{other.get()->buffer, other.get()->byte_offset, 16};
  ASSERT_EQ(bp_captured_graph_bind(graph, 1, &range), BP_OK) << bp_error_text();
  replay(graph);
  EXPECT_EQ(other.elements(), (Values{-1, -2, -3, -4}));
  EXPECT_EQ(y.elements(), Values(4, 77));
  EXPECT_EQ(bp_captured_graph_bind(graph, 2, &range), BP_INVALID_ARGUMENT);
  expect_part(bp_error_text(), "slot is 2, and the graph has 2");
  const bp_buffer_ref little{range.buffer, range.byte_offset, 12};
  EXPECT_EQ(bp_captured_graph_bind(graph, 0, &little), BP_INVALID_ARGUMENT);
  expect_part(bp_error_text(), "slot 0 has 16 bytes, and the range 12");
  destroy(graph);
}

TEST_F(ProgramCaptureTest, RefusesATensorThatIsPartlyInASlotOrABlock) {
  Floats x(*target, {4}), y(*target, {4});
  const bp_buffer_ref slot{x.get()->buffer, x.get()->byte_offset, 8};
  const bp_capture_desc desc{.struct_size = sizeof(desc),
                             .struct_type = BP_STRUCT_CAPTURE_DESC,
                             .slots = &slot,
                             .slot_count = 1};
  bp_capture* const capture = begin_program(nullptr, &desc);
  bp_block* const block = take(16);
  const Place within(block, {4}), beyond(block, {1 << 20});
  ASSERT_EQ(neg(*x.get(), within.tensor), BP_OK) << bp_error_text();
  EXPECT_EQ(neg(beyond.tensor, beyond.tensor), BP_INVALID_ARGUMENT);
  expect_part(bp_error_text(), "neg: the stream captures a program, and a tensor leaves the block");
  bp_block_free(block);
  expect_part(end_text(capture, BP_INVALID_ARGUMENT), "partly inside of slot 0");
}

TEST_F(ProgramCaptureTest, RunsItsReplaysOnSeveralStreamsInOrder) {
  Floats sum(*target, {1 << 16}), one(*target, {1 << 16});
  sum.set(Values(1 << 16, 0));
  one.set(Values(1 << 16, 1));
  bp_capture* const capture = begin_program();
  ASSERT_EQ(add(*sum.get(), *one.get(), *sum.get()), BP_OK);
  bp_captured_graph* const graph = end(capture);
  synchronize();
  const StreamHandle a = make_stream(), b = make_stream();
  for (int i = 0; i < 50; ++i) replay(graph, i % 2 == 0 ? a.get() : b.get());
  synchronize();
  EXPECT_EQ(sum.elements(), Values(1 << 16, 50));
  destroy(graph);
}

TEST_F(ProgramCaptureTest, RefusesToReadWhatNothingHasWritten) {
  Floats y(*target, {4});
  bp_capture* const capture = begin_program();
  bp_block* const block = take(16);
  const Place t(block, {4});
  ASSERT_EQ(neg(t.tensor, *y.get()), BP_OK);
  bp_block_free(block);
  expect_part(end_text(capture, BP_INVALID_ARGUMENT),
              "a launch reads memory that was allocated in the capture, and no launch before it "
              "writes it");
}

TEST_F(ProgramCaptureTest, RefusesWhatIsNoLaunchOfAnOpAndStaysValid) {
  Floats x(*target, {4}), y(*target, {4});
  x.set({1, 2, 3, 4});
  bp_block* const block = take(16);
  const bp_neg_args args{.struct_size = sizeof(args), .x = x.get(), .y = y.get()};
  bp_kernel_choice choice{};
  ASSERT_EQ(bp_kernel_find(target, 0, 0, BP_OP_NEG, &args, &choice), BP_OK);
  bp_capture* const capture = begin_program();
  const auto expect_refused = [&](bp_status status, const std::string& what) {
    EXPECT_EQ(status, BP_INVALID_ARGUMENT) << what;
    expect_part(bp_error_text(), what + ": the stream captures a program");
  };
  Values bytes(4);
  expect_refused(bp_block_upload(block, 0, bytes.data(), 16, nullptr, nullptr, nullptr),
                 "block.upload");
  expect_refused(bp_block_download(block, 0, bytes.data(), 16, nullptr, nullptr, nullptr),
                 "block.download");
  expect_refused(bp_kernel_launch(target, nullptr, 0, choice.kernel, &args), choice.kernel->name);
  ASSERT_EQ(neg(*x.get(), *y.get()), BP_OK);
  EXPECT_EQ(add(*x.get(), *y.get(), *y.get(), BP_LAUNCH_STRICT_F32), BP_UNSUPPORTED);
  expect_part(bp_error_text(), "whose launches have one set of flags");
  bp_capture* more = nullptr;
  EXPECT_EQ(bp_capture_begin_program(target, nullptr, nullptr, &more), BP_INVALID_ARGUMENT);
  expect_part(bp_error_text(), "the stream captures already");
  bp_captured_graph* const graph = end(capture);
  replay(graph);
  EXPECT_EQ(y.elements(), (Values{-1, -2, -3, -4}));
  bp_block_free(block);
  destroy(graph);
}

TEST_F(ProgramCaptureTest, TakesTensorsWithoutElements) {
  Floats x(*target, {4}), y(*target, {4});
  bp_block* const empty = take(0);
  const Place none(empty, {0});
  bp_capture* const capture = begin_program();
  ASSERT_EQ(neg(none.tensor, none.tensor), BP_OK) << bp_error_text();
  const bp_tensor* const parts[] = {&none.tensor, x.get()};
  const bp_cat_args cat{
      .struct_size = sizeof(cat), .flags = 0, .xs_count = 2, .xs = parts, .y = y.get(), .axis = 0};
  ASSERT_EQ(bp_op_launch(target, nullptr, 0, BP_OP_CAT, &cat), BP_OK) << bp_error_text();
  bp_captured_graph* const graph = end(capture);
  EXPECT_EQ(info(graph).node_count, 1u) << "there is nothing to compute in the first launch";
  x.set({1, 2, 3, 4});
  replay(graph);
  EXPECT_EQ(y.elements(), (Values{1, 2, 3, 4}));
  bp_block_free(empty);
  destroy(graph);
}

TEST_F(ProgramCaptureTest, WritesSmallIntegersAsTheHostComputesThem) {
  bp_block *const from = take(16), *const to = take(16);
  Place a(from, {8}), y(to, {8});
  a.tensor.dtype = y.tensor.dtype = BP_I16;
  bp_kernel_choice choice{};
  bp_add_args args{.struct_size = sizeof(args), .a = &a.tensor, .y = &y.tensor};
  args.b = &a.tensor;
  ASSERT_EQ(bp_kernel_find(target, 0, 0, BP_OP_ADD, &args, &choice), BP_OK) << bp_error_text();
  ASSERT_EQ(choice.source, BP_KERNEL_DECOMPOSED) << "the test needs an op that the host computes";
  fill(from, 0x81);
  bp_capture* const capture = begin_program();
  ASSERT_EQ(bp_op_launch(target, nullptr, 0, BP_OP_ADD, &args), BP_OK) << bp_error_text();
  bp_captured_graph* const graph = end(capture);
  replay(graph);
  EXPECT_EQ(first_byte(to), 2) << "2 x 0x8181 is 0x0302";
  bp_block_free(from);
  bp_block_free(to);
  destroy(graph);
}

TEST_F(ProgramCaptureTest, EndsWithoutAGraphWhenItIsAbandonedOrEmpty) {
  Floats x(*target, {4}), y(*target, {4});
  bp_capture* const abandoned = begin_program();
  ASSERT_EQ(neg(*x.get(), *y.get()), BP_OK);
  EXPECT_EQ(bp_capture_end(abandoned, nullptr), BP_OK) << bp_error_text();
  x.set({1, 2, 3, 4});
  ASSERT_EQ(neg(*x.get(), *y.get()), BP_OK);
  EXPECT_EQ(y.elements(), (Values{-1, -2, -3, -4})) << "launches run again";
  bp_captured_graph* const empty = end(begin_program());
  EXPECT_EQ(info(empty).node_count, 0u);
  replay(empty);
  destroy(empty);
}

// The executable of the parent is not the child's to release.
TEST_F(ProgramCaptureTest, IsLostInAChildOfFork) {
  Floats x(*target, {4}), y(*target, {4});
  bp_capture* const capture = begin_program();
  ASSERT_EQ(neg(*x.get(), *y.get()), BP_OK);
  bp_captured_graph* const graph = end(capture);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    const bool is_lost = bp_captured_graph_launch(graph, nullptr) == BP_DEVICE_LOST;
    const bool ends = bp_captured_graph_destroy(graph) == BP_OK;
    _exit(is_lost && ends ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  x.set({1, 2, 3, 4});
  replay(graph);
  EXPECT_EQ(y.elements(), (Values{-1, -2, -3, -4}));
  destroy(graph);
}

TEST_F(ProgramCaptureTest, IsRefusedByADeviceWithoutACompiler) {
  Registry others;
  const bp_plugin* template_plugin = nullptr;
  ASSERT_TRUE(others.load(BACKPLANE_TEST_DEVICE_PLUGIN, {}, &template_plugin).ok());
  bp_capture* capture = nullptr;
  EXPECT_EQ(
      bp_capture_begin_program(bp_registry_target(others.get(), 0), nullptr, nullptr, &capture),
      BP_UNSUPPORTED);
  expect_part(bp_error_text(), "has no compiler; submit the work each time");
}

TEST_F(ProgramCaptureTest, SaysWhichLaunchItsCompilerDoesNotTakeAndStaysValid) {
  load(BACKPLANE_TEST_COMPILER_PLUGIN);
  Floats x(*target, {4}), y(*target, {4});
  bp_capture* const capture = begin_program();
  EXPECT_EQ(neg(*x.get(), *y.get()), BP_UNSUPPORTED);
  expect_part(bp_error_text(),
              "neg: the stream captures a program, and the compiler of acme.async");
  expect_part(bp_error_text(), "node 0, neg, is not taken: ");
  ASSERT_EQ(add(*x.get(), *x.get(), *y.get()), BP_OK) << bp_error_text();
  bp_captured_graph* const graph = end(capture);
  x.set({1, 2, 3, 4});
  replay(graph);
  EXPECT_EQ(y.elements(), (Values{2, 4, 6, 8}));
  destroy(graph);
}

}  // namespace
}  // namespace bp
