#include "backplane/dlpack.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <string>
#include <vector>

#include "registry/tests/fake_backend.hpp"

namespace bp::core {
namespace {

// A backend whose handles are addresses, so that wrapping is a cast; it counts what is wrapped.
class Dlpack : public testing::Test {
 protected:
  Dlpack() {
    fake.devices[0].properties.dlpack_device_type = 2;
    fake.devices[0].properties.dlpack_device_id = 3;
    fake.allocator.address = [](void*, bp_buffer* buffer, uint64_t* out) -> bp_status {
      *out = reinterpret_cast<uintptr_t>(buffer);
      return BP_OK;
    };
    fake.allocator.wrap_address = [](void*, bp_device*, uint64_t address, uint64_t size_bytes,
                                     bp_buffer** out) -> bp_status {
      wrapped_size_bytes = size_bytes;
      ++wrapped_count;
      // NOLINTNEXTLINE(performance-no-int-to-ptr): the ABI has addresses as numbers.
      *out = reinterpret_cast<bp_buffer*>(address);
      return BP_OK;
    };
    fake.allocator.deallocate = [](void*, bp_buffer*, bp_stream*) -> bp_status {
      --wrapped_count;
      return BP_OK;
    };
    wrapped_count = 0;
    wrapped_size_bytes = 0;
  }

  void load() { ASSERT_EQ(fake.load(r.registry), BP_OK) << bp_error_text(); }

  // Returns a tensor of this library: f32 at `memory`, with two axes.
  bp_tensor tensor_of(const int64_t* shape, const int64_t* strides) {
    return {reinterpret_cast<bp_buffer*>(memory.data()), 0, shape, strides, 2, BP_F32, {}, 0, 0};
  }

  // Returns a tensor of another library: f32 at `memory`.
  bp_dlpack_managed managed(std::vector<int64_t>& shape, std::vector<int64_t>* strides) {
    bp_dlpack_managed m{};
    m.version_major = 1;
    m.version_minor = 7;  // The minor is newer than ours.
    m.manager_context = this;
    m.deleter = [](bp_dlpack_managed* self) {
      ++static_cast<Dlpack*>(self->manager_context)->deleted;
    };
    m.tensor = {.data = memory.data(),
                .device = {2, 3},
                .ndim = static_cast<int32_t>(shape.size()),
                .dtype = {BP_DLPACK_FLOAT, 32, 1},
                .shape = shape.data(),
                .strides = strides == nullptr ? nullptr : strides->data(),
                .byte_offset = 0};
    return m;
  }
  bp_status import(bp_dlpack_managed& m) { return bp_dlpack_import(r.target(), &m, &imported); }
  // Checks the refusal and its text, and that nothing was taken over.
  void expect_refused(bp_dlpack_managed m, bp_status want, const std::string& words) {
    imported = nullptr;
    EXPECT_EQ(import(m), want) << words;
    EXPECT_NE(std::string(bp_error_text()).find(words), std::string::npos) << bp_error_text();
    EXPECT_EQ(imported, nullptr);
    EXPECT_EQ(deleted, 0);
    EXPECT_EQ(wrapped_count, 0);
  }
  uint64_t offset_of_element_0() const {
    return reinterpret_cast<uintptr_t>(imported->tensor.buffer) + imported->tensor.byte_offset -
           reinterpret_cast<uintptr_t>(memory.data());
  }

  static inline int wrapped_count = 0;
  static inline uint64_t wrapped_size_bytes = 0;
  TestRegistry r;
  FakeBackend fake;
  alignas(64) std::array<float, 64> memory{};
  const bp_foreign_tensor* imported = nullptr;
  int deleted = 0;
};

TEST_F(Dlpack, TakesOverATensorUntilItsRelease) {
  load();
  std::vector<int64_t> shape{2, 3};
  bp_dlpack_managed m = managed(shape, nullptr);
  m.flags = BP_DLPACK_READ_ONLY;
  ASSERT_EQ(import(m), BP_OK) << bp_error_text();
  const bp_tensor& t = imported->tensor;
  EXPECT_EQ(t.ndim, 2);
  EXPECT_EQ(t.dtype, BP_F32);
  EXPECT_NE(t.shape, shape.data()) << "a copy";
  EXPECT_EQ(std::vector(t.shape, t.shape + 2), shape);
  EXPECT_EQ(std::vector(t.strides, t.strides + 2), (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(imported->flags, BP_DLPACK_READ_ONLY);
  EXPECT_EQ(offset_of_element_0(), 0);
  EXPECT_EQ(wrapped_size_bytes, 24);
  EXPECT_EQ(deleted, 0);
  EXPECT_EQ(bp_foreign_tensor_release(imported), BP_OK);
  EXPECT_EQ(deleted, 1);
  EXPECT_EQ(wrapped_count, 0);
  EXPECT_EQ(bp_foreign_tensor_release(nullptr), BP_OK);
}

TEST_F(Dlpack, FindsWhereTheElementsLie) {
  load();
  struct {
    std::vector<int64_t> shape, strides;
    uint64_t byte_offset;
    uint64_t wrapped_bytes, first_offset;  // What is wrapped, and the place of element 0 in it.
  } rows[] = {
      {{4}, {1}, 8, 16, 0},          {{4}, {5}, 0, 64, 0},      {{4}, {-1}, 12, 16, 12},
      {{2, 3}, {-6, 2}, 40, 44, 24}, {{5, 2}, {0, 1}, 4, 8, 0}, {{}, {}, 20, 4, 0},
      {{1, 2}, {1000, 1}, 0, 8, 0},
  };
  for (auto& row : rows) {
    bp_dlpack_managed m = managed(row.shape, &row.strides);
    m.tensor.byte_offset = row.byte_offset;
    ASSERT_EQ(import(m), BP_OK) << bp_error_text();
    EXPECT_EQ(wrapped_size_bytes, row.wrapped_bytes);
    EXPECT_EQ(imported->tensor.byte_offset, row.first_offset);
    EXPECT_EQ(offset_of_element_0(), row.byte_offset);
    EXPECT_EQ(bp_foreign_tensor_release(imported), BP_OK);
  }
}

TEST_F(Dlpack, NeedsNoMemoryForATensorWithoutElements) {
  load();
  std::vector<int64_t> shape{3, 0};
  bp_dlpack_managed m = managed(shape, nullptr);
  m.tensor.data = nullptr;
  m.deleter = nullptr;
  ASSERT_EQ(import(m), BP_OK) << bp_error_text();
  EXPECT_EQ(imported->tensor.buffer, nullptr);
  EXPECT_EQ(wrapped_count, 0);
  EXPECT_EQ(bp_foreign_tensor_release(imported), BP_OK);
}

TEST_F(Dlpack, UsesTheBufferThatTheElementsLieIn) {
  static bp_address_info found;
  found = {.device = fake.device(0),
           .buffer = reinterpret_cast<bp_buffer*>(0x5000),
           .byte_offset = 4096,
           .size_bytes = 4096 + 24};
  fake.allocator.address_info = [](void*, uint64_t, bp_address_info* out) -> bp_status {
    out->device = found.device;
    out->buffer = found.buffer;
    out->byte_offset = found.byte_offset;
    out->size_bytes = found.size_bytes;
    return BP_OK;
  };
  load();
  std::vector<int64_t> shape{2, 3};
  bp_dlpack_managed m = managed(shape, nullptr);
  ASSERT_EQ(import(m), BP_OK) << bp_error_text();
  EXPECT_EQ(imported->tensor.buffer, found.buffer);
  EXPECT_EQ(imported->tensor.byte_offset, 4096);
  EXPECT_EQ(wrapped_count, 0);
  EXPECT_EQ(bp_foreign_tensor_release(imported), BP_OK);
  // A buffer that ends before the elements do cannot be the buffer of the elements.
  found.size_bytes -= 1;
  ASSERT_EQ(import(m), BP_OK) << bp_error_text();
  EXPECT_EQ(wrapped_count, 1);
  EXPECT_EQ(bp_foreign_tensor_release(imported), BP_OK);
}

TEST_F(Dlpack, RefusesWhatItCannotTakeAndLeavesItToTheCaller) {
  load();
  std::vector<int64_t> shape{2, 3}, strides{3, 1};
  const bp_dlpack_managed good = managed(shape, &strides);
  bp_dlpack_managed m = good;
  m.version_major = 2;
  expect_refused(m, BP_INCOMPATIBLE, "2.7");
  m = good;
  m.tensor.device = {1, 0};
  expect_refused(m, BP_INVALID_ARGUMENT, "type 1, id 0");
  m = good;
  m.flags = 1u << 9;
  expect_refused(m, BP_UNSUPPORTED, "512");
  m = good;
  m.tensor.dtype = {BP_DLPACK_FLOAT, 32, 4};
  expect_refused(m, BP_UNSUPPORTED, "4 lanes");
  m.tensor.dtype = {BP_DLPACK_F4E2M1, 4, 1};
  expect_refused(m, BP_UNSUPPORTED, "code 17");
  m.tensor.dtype = {3, 64, 1};
  expect_refused(m, BP_UNSUPPORTED, "code 3");
  m = good;
  m.tensor.ndim = 9;
  expect_refused(m, BP_INVALID_ARGUMENT, "ndim is 9");
  m.tensor.ndim = -1;
  expect_refused(m, BP_INVALID_ARGUMENT, "ndim is -1");
  m = good;
  m.tensor.shape = nullptr;
  expect_refused(m, BP_INVALID_ARGUMENT, "shape is NULL");
  m = good;
  m.tensor.data = nullptr;
  expect_refused(m, BP_INVALID_ARGUMENT, "data");
  m = good;
  m.tensor.byte_offset = 2;
  expect_refused(m, BP_INVALID_ARGUMENT, "the size of f32");
}

TEST_F(Dlpack, RefusesShapesAndStridesThatNoMemoryHas) {
  load();
  std::vector<int64_t> shape{2, -3}, strides{3, 1};
  const bp_dlpack_managed good = managed(shape, &strides);
  expect_refused(good, BP_INVALID_ARGUMENT, "shape[1] is -3; allowed: 0 and above");
  shape = {int64_t{1} << 40, int64_t{1} << 40};
  expect_refused(good, BP_INVALID_ARGUMENT, "64 bits");
  shape = {2, 3};
  strides = {int64_t{1} << 62, 1};
  expect_refused(good, BP_INVALID_ARGUMENT, "address space");
  strides = {-(int64_t{1} << 62), 1};
  expect_refused(good, BP_INVALID_ARGUMENT, "address space");
  strides = {0, int64_t{1} << 60};
  expect_refused(good, BP_INVALID_ARGUMENT, "address space");
}

TEST_F(Dlpack, RefusesAFirstElementThatTheDeviceCannotBeginAt) {
  fake.heap.tensor_offset_alignment_bytes = 16;
  load();
  std::vector<int64_t> shape{2, 3}, strides{3, -1};
  bp_dlpack_managed m = managed(shape, &strides);
  m.tensor.byte_offset = 8;
  expect_refused(m, BP_UNSUPPORTED, "multiples of 16");
}

TEST_F(Dlpack, SaysWhereADeviceTakesNoAddresses) {
  fake.allocator.wrap_address = nullptr;
  fake.allocator.address = nullptr;
  load();
  std::vector<int64_t> shape{2, 3};
  expect_refused(managed(shape, nullptr), BP_UNSUPPORTED, "wrap_address");
  bp_tensor t{.buffer = reinterpret_cast<bp_buffer*>(memory.data()), .dtype = BP_F32};
  bp_dlpack_export_desc desc{
      .struct_size = sizeof(desc), .struct_type = BP_STRUCT_DLPACK_EXPORT_DESC, .tensor = &t};
  bp_dlpack_managed* out = nullptr;
  EXPECT_EQ(bp_dlpack_export(r.target(), &desc, &out), BP_UNSUPPORTED);
  fake.devices[0].properties.dlpack_device_type = 0;
}

TEST_F(Dlpack, HandsOverATensorThatEndsOnce) {
  load();
  const int64_t shape[] = {2, 3}, strides[] = {1, -2};
  const bp_tensor t{.buffer = reinterpret_cast<bp_buffer*>(memory.data()),
                    .byte_offset = 16,
                    .shape = shape,
                    .strides = strides,
                    .ndim = 2,
                    .dtype = BP_BF16};
  int ended = 0;
  const bp_dlpack_export_desc desc{.struct_size = sizeof(desc),
                                   .struct_type = BP_STRUCT_DLPACK_EXPORT_DESC,
                                   .tensor = &t,
                                   .flags = BP_DLPACK_READ_ONLY,
                                   .release = [](void* count) { ++*static_cast<int*>(count); },
                                   .user_data = &ended};
  bp_dlpack_managed* out = nullptr;
  ASSERT_EQ(bp_dlpack_export(r.target(), &desc, &out), BP_OK) << bp_error_text();
  EXPECT_EQ(out->version_major, 1);
  EXPECT_EQ(out->flags, BP_DLPACK_READ_ONLY);
  EXPECT_EQ(reinterpret_cast<char*>(out->tensor.data), reinterpret_cast<char*>(&memory) + 16);
  EXPECT_EQ(out->tensor.byte_offset, 0);
  EXPECT_EQ(out->tensor.device.type, 2);
  EXPECT_EQ(out->tensor.device.id, 3);
  EXPECT_EQ(out->tensor.dtype.code, BP_DLPACK_BFLOAT);
  EXPECT_EQ(out->tensor.dtype.bits, 16);
  EXPECT_EQ(out->tensor.dtype.lanes, 1);
  EXPECT_EQ(std::vector(out->tensor.shape, out->tensor.shape + 2), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(std::vector(out->tensor.strides, out->tensor.strides + 2),
            (std::vector<int64_t>{1, -2}));
  EXPECT_NE(out->tensor.shape, shape);
  EXPECT_EQ(ended, 0);
  out->deleter(out);
  EXPECT_EQ(ended, 1);
  bp_dlpack_unversioned* old = nullptr;
  EXPECT_EQ(bp_dlpack_export_unversioned(r.target(), &desc, &old), BP_INVALID_ARGUMENT);
  EXPECT_EQ(old, nullptr);
}

TEST_F(Dlpack, KeepsEveryDtypeBothWays) {
  load();
  int taken = 0;
  for (bp_dtype dtype = BP_BOOL; dtype <= BP_U2; ++dtype) {
    const int64_t shape = 1, stride = 1;
    const bp_tensor t{.buffer = reinterpret_cast<bp_buffer*>(memory.data()),
                      .shape = &shape,
                      .strides = &stride,
                      .ndim = 1,
                      .dtype = dtype};
    const bp_dlpack_export_desc desc{
        .struct_size = sizeof(desc), .struct_type = BP_STRUCT_DLPACK_EXPORT_DESC, .tensor = &t};
    bp_dlpack_unversioned* out = nullptr;
    const bp_status status = bp_dlpack_export_unversioned(r.target(), &desc, &out);
    if (bp_dtype_bits(dtype) < 8) {
      EXPECT_EQ(status, BP_UNSUPPORTED) << bp_dtype_name(dtype);
      continue;
    }
    ASSERT_EQ(status, BP_OK) << bp_error_text();
    EXPECT_EQ(out->tensor.dtype.bits, bp_dtype_bits(dtype));
    ASSERT_EQ(bp_dlpack_import_unversioned(r.target(), out, &imported), BP_OK) << bp_error_text();
    EXPECT_EQ(imported->tensor.dtype, dtype) << bp_dtype_name(dtype);
    EXPECT_EQ(bp_foreign_tensor_release(imported), BP_OK);
    ++taken;
  }
  EXPECT_EQ(taken, 20);
}

TEST_F(Dlpack, FindsTheDeviceByItsName) {
  load();
  const bp_target* found = nullptr;
  EXPECT_EQ(bp_dlpack_find_target(r.registry, {2, 3}, &found), BP_OK) << bp_error_text();
  EXPECT_EQ(found, r.target());
  found = nullptr;
  EXPECT_EQ(bp_dlpack_find_target(r.registry, {2, 0}, &found), BP_NOT_FOUND);
  EXPECT_EQ(bp_dlpack_find_target(r.registry, {0, 0}, &found), BP_NOT_FOUND);
  EXPECT_EQ(found, nullptr);
}

// Returns the text of the failure to export `tensor`, or "" if the export succeeds.
std::string export_words(const bp_target* target, const bp_tensor& tensor) {
  const bp_dlpack_export_desc desc{.struct_size = sizeof(desc),
                                   .struct_type = BP_STRUCT_DLPACK_EXPORT_DESC,
                                   .next = nullptr,
                                   .tensor = &tensor,
                                   .flags = 0,
                                   .release = nullptr,
                                   .user_data = nullptr};
  bp_dlpack_managed* managed = nullptr;
  const bp_status status = bp_dlpack_export(target, &desc, &managed);
  if (status != BP_OK) return std::string(bp_status_name(status)) + ": " + bp_error_text();
  managed->deleter(managed);
  return "";
}

TEST_F(Dlpack, RefusesToHandOutWhatIsNoTensor) {
  load();
  int64_t shape[2] = {2, 3}, strides[2] = {3, 1};
  const bp_tensor good = tensor_of(shape, strides);
  EXPECT_EQ(export_words(r.target(), good), "");
  bp_tensor bad = good;
  bad.flags = 1;
  EXPECT_EQ(export_words(r.target(), bad),
            "invalid argument: dlpack.export: flags of the tensor are 1; 0 is allowed");
  bad = good;
  shape[1] = -5;
  EXPECT_EQ(export_words(r.target(), bad),
            "invalid argument: dlpack.export: shape[1] is -5; allowed: 0 and above");
  shape[1] = 3;
  bad.buffer = nullptr;
  EXPECT_EQ(export_words(r.target(), bad),
            "invalid argument: dlpack.export: buffer of a tensor with elements is NULL");
  shape[0] = 0;  // Without elements it needs none.
  EXPECT_EQ(export_words(r.target(), bad), "");
}

TEST_F(Dlpack, RefusesToHandOutATensorThatLeavesItsBuffer) {
  load();
  int64_t shape[2] = {2, 3}, strides[2] = {3, 1};
  bp_tensor bad = tensor_of(shape, strides);
  bad.byte_offset = uint64_t{1} << 40;
  EXPECT_EQ(export_words(r.target(), bad),
            "invalid argument: dlpack.export: the elements take bytes 1099511627776 to "
            "1099511627800 of a buffer that is smaller");
  bad.byte_offset = 2;
  EXPECT_EQ(export_words(r.target(), bad),
            "invalid argument: dlpack.export: byte_offset is 2; multiples of 4, the size of f32, "
            "are allowed");
  bad.byte_offset = 0;
  strides[0] = -3;
  EXPECT_EQ(export_words(r.target(), bad),
            "invalid argument: dlpack.export: the elements begin 12 bytes before their buffer");
  strides[0] = INT64_MAX;
  EXPECT_EQ(export_words(r.target(), bad),
            "invalid argument: dlpack.export: byte_offset, shape and strides reach beyond the "
            "address space; correct them");
}

TEST_F(Dlpack, SaysWhatIsWrongWithForeignAddresses) {
  load();
  std::vector<int64_t> shape{2, 3}, strides{3, 1};
  bp_dlpack_managed m = managed(shape, &strides);
  m.tensor.byte_offset = UINT64_MAX - 3;
  expect_refused(m, BP_INVALID_ARGUMENT, "byte_offset is 18446744073709551612");
  m.tensor.byte_offset = 0;
  m.tensor.data = nullptr;
  expect_refused(m, BP_INVALID_ARGUMENT, "data of a tensor with elements is NULL");
  m.tensor.byte_offset = 1 << 20;
  expect_refused(m, BP_INVALID_ARGUMENT, "data of a tensor with elements is NULL");
}

}  // namespace
}  // namespace bp::core
