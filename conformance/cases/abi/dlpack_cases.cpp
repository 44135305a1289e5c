// Cases for tensors that DLPack carries to a device and from it. They check addresses of the
// backend as other libraries use them.
#include <algorithm>
#include <string>

#include "backplane/dlpack.h"
#include "backplane/ops.h"
#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/fixtures.hpp"

namespace bp::conformance {
namespace {

struct ForeignEnd {
  void operator()(const bp_foreign_tensor* tensor) const {
    static_cast<void>(bp_foreign_tensor_release(tensor));
  }
};
using Foreign = std::unique_ptr<const bp_foreign_tensor, ForeignEnd>;

void end_of_use(void* count) { ++*static_cast<int64_t*>(count); }

// Ends the case as NotSupported for a device that DLPack does not know, or that has no addresses.
bp_dlpack_managed* export_of(Context& t, const bp_tensor& tensor, uint64_t flags,
                             int64_t* end_count) {
  const bp_dlpack_export_desc desc{.struct_size = sizeof(bp_dlpack_export_desc),
                                   .struct_type = BP_STRUCT_DLPACK_EXPORT_DESC,
                                   .next = nullptr,
                                   .tensor = &tensor,
                                   .flags = flags,
                                   .release = end_of_use,
                                   .user_data = end_count};
  bp_dlpack_managed* managed = nullptr;
  const bp_status status = bp_dlpack_export(&t.target(), &desc, &managed);
  if (status == BP_UNSUPPORTED) t.not_supported(bp_error_text());
  t.require_ok(status, "dlpack.export");
  return managed;
}

Foreign import(Context& t, bp_dlpack_managed* managed) {
  const bp_foreign_tensor* tensor = nullptr;
  const bp_status status = bp_dlpack_import(&t.target(), managed, &tensor);
  if (status != BP_OK) managed->deleter(managed);
  if (status == BP_UNSUPPORTED) t.not_supported(bp_error_text());
  t.require_ok(status, "dlpack.import");
  return Foreign(tensor);
}

// A (3, 5) tensor of i32 with gaps and permuted axes, behind `offset` bytes of a buffer.
struct Strided {
  static constexpr uint64_t kSize = 1024;

  Strided(Context& t, uint64_t offset) : buffer(make_buffer(t, kSize)) {
    tensor.buffer = buffer.get();
    tensor.byte_offset = offset;
  }
  // Returns the place of element (i, j) in bytes of the buffer.
  uint64_t place(int64_t i, int64_t j) const {
    return tensor.byte_offset + static_cast<uint64_t>(4 * (i * strides[0] + j * strides[1]));
  }

  const OwnedBuffer buffer;
  const int64_t shape[2] = {3, 5}, strides[2] = {2, 8};
  bp_tensor tensor{.shape = shape, .strides = strides, .ndim = 2, .dtype = BP_I32};
};

uint64_t some_offset(Context& t) {
  return std::max<uint64_t>(8, t.target().properties->heaps->tensor_offset_alignment_bytes);
}

void tensor_comes_back_without_a_copy(Context& t) {
  const OwnedStream stream = make_stream(t);
  if (some_offset(t) > 256) t.not_supported("offsets of the heap are coarser than the buffer");
  const Strided ours(t, some_offset(t));
  std::vector<uint8_t> bytes = random_bytes(t, Strided::kSize);
  write(t, stream.get(), range(ours.buffer, 0, Strided::kSize), bytes);
  int64_t end_count = 0;
  bp_dlpack_managed* const managed = export_of(t, ours.tensor, BP_DLPACK_READ_ONLY, &end_count);
  const bp_device_properties& p = *t.target().properties;
  t.expect_eq(managed->tensor.device.type, p.dlpack_device_type, "device type");
  t.expect_eq(managed->tensor.device.id, p.dlpack_device_id, "device id");
  {
    const Foreign theirs = import(t, managed);
    const bp_tensor& tensor = theirs->tensor;
    t.expect_eq(theirs->flags, uint64_t{BP_DLPACK_READ_ONLY}, "flags");
    t.expect_eq(tensor.dtype, bp_dtype{BP_I32}, "dtype");
    t.require(tensor.ndim == 2 && std::equal(tensor.shape, tensor.shape + 2, ours.shape) &&
                  std::equal(tensor.strides, tensor.strides + 2, ours.strides),
              "shape and strides");
    // The device and the other library each read what the other one writes.
    const bp_buffer_ref theirs_1_2{
        tensor.buffer, tensor.byte_offset + ours.place(1, 2) - ours.tensor.byte_offset, 4};
    t.expect(
        read(t, stream.get(), theirs_1_2) ==
            std::vector<uint8_t>(bytes.begin() + static_cast<std::ptrdiff_t>(ours.place(1, 2)),
                                 bytes.begin() + static_cast<std::ptrdiff_t>(ours.place(1, 2) + 4)),
        "element (1, 2) as the taker sees it");
    write(t, stream.get(), theirs_1_2, {1, 2, 3, 4});
    std::ranges::copy(std::vector<uint8_t>{1, 2, 3, 4},
                      bytes.begin() + static_cast<std::ptrdiff_t>(ours.place(1, 2)));
    t.expect_eq(end_count, int64_t{0}, "releases while the taker has it");
  }
  t.expect_eq(end_count, int64_t{1}, "releases when the taker has ended it");
  t.expect(read(t, stream.get(), range(ours.buffer, 0, Strided::kSize)) == bytes,
           "the bytes of the buffer after the importer's write");
}

void every_dtype_comes_back(Context& t) {
  const OwnedBuffer buffer = make_buffer(t, 64);
  const int64_t extent = 2, stride = 1;
  const bp_device_properties& p = *t.target().properties;
  for (uint64_t i = 0; i < p.dtype_count; ++i) {
    const bp_dtype dtype = p.dtypes[i];
    // Such elements are packed, and the suite does not use DLPack for them.
    if (bp_dtype_bits(dtype) < 8) continue;
    const bp_tensor tensor{
        .buffer = buffer.get(), .shape = &extent, .strides = &stride, .ndim = 1, .dtype = dtype};
    int64_t end_count = 0;
    const Foreign theirs = import(t, export_of(t, tensor, 0, &end_count));
    t.expect_eq(theirs->tensor.dtype, dtype, bp_dtype_name(dtype));
  }
}

// The memory does not come from an allocator of the device, as for numpy's arrays. The axis is
// reversed, and the address is aligned only to the element.
void kernel_works_on_foreign_memory(Context& t) {
  const bp_device_properties& p = *t.target().properties;
  constexpr int32_t kHost = 1;
  if (p.dlpack_device_type != kHost) {
    t.not_supported("memory of the host is not that of this device");
  }
  constexpr int64_t kCount = 5;
  alignas(64) float values[16] = {0, 0, 0, 1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 0, 0, 0};
  const float expected[16] = {0, 0, 0, 1, 2, 3, 4, 5, 0, 5, 4, 3, 2, 1, 0, 0};
  int64_t shape = kCount, forward = 1, backward = -1;
  static int64_t end_count;
  end_count = 0;
  bp_dlpack_managed from{};
  from.version_major = 1;
  from.deleter = [](bp_dlpack_managed*) { ++end_count; };
  from.tensor = {.data = values,
                 .device = {kHost, p.dlpack_device_id},
                 .ndim = 1,
                 .dtype = {BP_DLPACK_FLOAT, 32, 1},
                 .shape = &shape,
                 .strides = &backward,
                 .byte_offset = 7 * sizeof(float)};
  bp_dlpack_managed to = from;
  to.tensor.strides = &forward;
  to.tensor.byte_offset = 9 * sizeof(float);
  {
    const Foreign x = import(t, &from), y = import(t, &to);
    const bp_copy_args args{
        .struct_size = sizeof(args), .flags = 0, .x = &x->tensor, .y = &y->tensor};
    const bp_status status = bp_op_launch(&t.target(), nullptr, 0, BP_OP_COPY, &args);
    if (status == BP_UNSUPPORTED) t.not_supported("the backend has no kernel for this copy");
    t.require_ok(status, "launch of copy");
    finish(t, t.target().default_stream);
  }
  t.expect(std::equal(values, values + 16, expected), "the memory that others own");
  t.expect_eq(end_count, int64_t{2}, "deleters called");
}

void other_devices_are_refused(Context& t) {
  const OwnedBuffer buffer = make_buffer(t, 64);
  const bp_tensor tensor{.buffer = buffer.get(), .ndim = 0, .dtype = BP_U8};
  int64_t end_count = 0;
  bp_dlpack_managed* const managed = export_of(t, tensor, 0, &end_count);
  const bp_foreign_tensor* const nobody = t.sentinel<const bp_foreign_tensor>();
  const bp_foreign_tensor* out = nobody;
  const auto refused = [&](bp_status want, const char* what) {
    const bp_status status = bp_dlpack_import(&t.target(), managed, &out);
    t.expect_refused(status, want, what);
    t.expect_eq(out, nobody, "out_tensor after a failure");
    t.expect_eq(end_count, int64_t{0}, "deleters called by a failure");
  };
  managed->tensor.device.id += 1;
  refused(BP_INVALID_ARGUMENT, "a tensor of the next device");
  managed->tensor.device.id -= 1;
  managed->tensor.device.type += 1;
  refused(BP_INVALID_ARGUMENT, "a tensor of another kind of device");
  managed->tensor.device.type -= 1;
  managed->version_major = 2;
  refused(BP_INCOMPATIBLE, "a tensor of DLPack 2");
  managed->version_major = 1;
  const bp_target* found = nullptr;
  t.require_ok(bp_dlpack_find_target(t.registry(), managed->tensor.device, &found),
               "dlpack.find_target");
  t.expect_eq(found, &t.target(), "the device of that type and id");
  managed->deleter(managed);
  t.expect_eq(end_count, int64_t{1}, "releases after the deleter");
}

}  // namespace

void add_dlpack_cases(std::vector<Case>& cases) {
  add_api_cases(cases, "dlpack",
                {
                    {"tensor_comes_back_without_a_copy",
                     {"MEMORY-12", "MEMORY-14", "TENSOR-1"},
                     tensor_comes_back_without_a_copy},
                    {"every_dtype_comes_back", {"MEMORY-12"}, every_dtype_comes_back},
                    {"kernel_works_on_foreign_memory",
                     {"MEMORY-12", "TENSOR-1"},
                     kernel_works_on_foreign_memory},
                    {"other_devices_are_refused", {"ERROR-2"}, other_devices_are_refused},
                });
}

}  // namespace bp::conformance
