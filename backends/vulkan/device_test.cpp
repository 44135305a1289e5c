#include <filesystem>

#include "backends/vulkan/vulkan_test.hpp"

namespace bp::vulkan {
namespace {

class VulkanDevice : public WithDevice {};
class VulkanOptions : public WithDevice {};

// Returns the error text of an instance that these options keep from loading.
std::string refusal_of(const Vulkan::Options& options) {
  try {
    const Vulkan v(options);
  } catch (const std::runtime_error& e) {
    return e.what();
  }
  return "";
}

TEST_F(VulkanOptions, ChooseOneDevice) {
  Vulkan v{{"devices", "0"}};
  EXPECT_EQ(v.b.all_devices.size(), 1u);
}

TEST_F(VulkanOptions, NameTheDevicesWhereOneIsOutOfRange) {
  const std::string text = refusal_of({{"devices", "99"}});
  EXPECT_NE(text.find("option devices: there is no device 99; there are 0: "), std::string::npos)
      << text;
}

TEST_F(VulkanOptions, AreRefusedWithWhatIsAllowed) {
  const std::pair<const char*, const char*> bad[] = {
      {"devices", "first"}, {"devices", "-1"}, {"validation", "maybe"}, {"barriers", "some"}};
  for (const auto& [key, value] : bad) {
    const std::string text = refusal_of({{key, value}});
    EXPECT_NE(text.find(std::string("option ") + key), std::string::npos) << key << "=" << value;
  }
}

TEST_F(VulkanDevice, SaysHowMuchWasAskedForWhereAHeapIsTooSmall) {
  Vulkan v;
  const bp_device_properties* properties = nullptr;
  ASSERT_EQ(v.b.devices->properties(v.b.devices->self, v.b.device, &properties), BP_OK);
  for (uint64_t heap = 0; heap < properties->heap_count; ++heap) {
    bp_buffer* buffer = nullptr;
    const uint64_t too_much = properties->heaps[heap].max_allocation_bytes + 1;
    EXPECT_EQ(v.allocate({.size_bytes = too_much, .heap_mask = uint64_t{1} << heap}, &buffer),
              BP_OUT_OF_MEMORY);
    EXPECT_NE(v.b.text.find(std::to_string(too_much)), std::string::npos) << v.b.text;
    EXPECT_EQ(buffer, nullptr);
  }
}

// Allocates as many buffers of this size as the heap has room for, up to 64.
std::vector<bp_buffer*> exhaust(Vulkan& v, uint64_t size_bytes) {
  std::vector<bp_buffer*> buffers;
  bp_buffer* buffer = nullptr;
  bp_status status = BP_OK;
  while (buffers.size() < 64) {
    status = v.allocate({.size_bytes = size_bytes}, &buffer);
    if (status != BP_OK) break;
    buffers.push_back(buffer);
  }
  EXPECT_EQ(status, BP_OUT_OF_MEMORY);
  return buffers;
}

// Drivers that give host memory do not enforce the size of their heap.
TEST_F(VulkanDevice, GivesNoMoreThanTheHeapHas) {
  Vulkan v;
  if (v.free_bytes() > uint64_t{8} << 30) GTEST_SKIP() << "the first heap is large";
  constexpr uint64_t kPart = uint64_t{256} << 20;
  const std::vector<bp_buffer*> buffers = exhaust(v, kPart);
  ASSERT_LT(buffers.size(), 64u) << "the heap has no end";
  EXPECT_NE(v.b.text.find("left"), std::string::npos) << v.b.text;
  EXPECT_LT(v.free_bytes(), kPart + (uint64_t{1} << 20));
  for (bp_buffer* buffer : buffers) EXPECT_EQ(v.free(buffer), BP_OK);
  bp_buffer* buffer = nullptr;
  EXPECT_EQ(v.allocate({.size_bytes = kPart}, &buffer), BP_OK) << "what was freed is free";
  v.free(buffer);
}

TEST_F(VulkanDevice, AlignsMemoryAsAskedFor) {
  Vulkan v;
  for (uint64_t alignment = 1; alignment <= 4096; alignment *= 2) {
    bp_buffer* buffer = nullptr;
    ASSERT_EQ(v.allocate({.size_bytes = 100, .alignment_bytes = alignment}, &buffer), BP_OK);
    uint64_t address = 1;
    EXPECT_EQ(v.b.allocator->address(v.b.allocator->self, buffer, &address), BP_OK);
    EXPECT_EQ(address % alignment, 0u);
    v.free(buffer);
  }
}

// Computes one sum, and returns the warnings of the instance.
std::string warnings_of_a_sum(const std::string& cache_folder) {
  Vulkan v{{"cache_path", cache_folder}};
  TestTensor a(v.b, BP_F32, {64}), y(v.b, BP_F32, {64});
  bp_add_args args{};
  args.a = &a;
  args.b = &a;
  args.y = &y;
  bp_stream* const stream = v.b.default_stream();
  EXPECT_EQ(v.fill(stream, (&a)->buffer, 256, 0x3f800000), BP_OK);
  EXPECT_EQ(v.b.launch(BP_OP_ADD, args), BP_OK) << v.b.text;
  EXPECT_EQ(v.read(stream, (&y)->buffer, 256)[63], 0x40000000u) << "1 + 1";
  return v.b.warnings;
}

TEST_F(VulkanDevice, KeepsPipelinesInAFile) {
  const std::string folder = testing::TempDir() + "backplane_vulkan_pipelines";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  EXPECT_EQ(warnings_of_a_sum(folder), "");
  const std::filesystem::directory_iterator files(folder);
  ASSERT_EQ(std::distance(begin(files), end(files)), 1);
  const std::filesystem::path file = std::filesystem::directory_iterator(folder)->path();
  EXPECT_EQ(warnings_of_a_sum(folder), "");
  std::filesystem::resize_file(file, 40);
  const std::string warnings = warnings_of_a_sum(folder);
  EXPECT_NE(warnings.find("is damaged"), std::string::npos) << warnings;
  EXPECT_EQ(warnings_of_a_sum(folder), "") << "it was written anew";
  std::filesystem::remove_all(folder);
  const std::string missing = warnings_of_a_sum(folder);
  EXPECT_NE(missing.find("cannot be written"), std::string::npos) << missing;
}

TEST_F(VulkanDevice, IsUsedAgainAfterLossAndReset) {
  Vulkan v;
  bp_stream* const before = v.b.make_stream();
  bp_stream* const lent = v.b.default_stream();
  ASSERT_EQ(v.faults().lose_device(v.faults().self, v.b.device), BP_OK);
  EXPECT_EQ(v.status(before), BP_DEVICE_LOST);
  ASSERT_EQ(v.b.devices->reset(v.b.devices->self, v.b.device), BP_OK) << v.b.text;
  EXPECT_EQ(v.status(before), BP_DEVICE_LOST) << "handles of before stay dead";
  bp_stream* const stream = v.b.make_stream();
  bp_buffer* const buffer = v.b.make_buffer(64);
  ASSERT_EQ(v.fill(stream, buffer, 64, 7), BP_OK) << v.b.text;
  EXPECT_EQ(v.read(stream, buffer, 64), std::vector<uint32_t>(16, 7));
  EXPECT_EQ(v.b.default_stream(), lent);
  EXPECT_EQ(v.status(lent), BP_OK) << v.b.text;
  ASSERT_EQ(v.fill(lent, buffer, 64, 8), BP_OK) << v.b.text;
  EXPECT_EQ(v.read(lent, buffer, 64), std::vector<uint32_t>(16, 8));
}

}  // namespace
}  // namespace bp::vulkan
