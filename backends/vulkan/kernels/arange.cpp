// arange of integers (arange.comp). That of floats is computed in f64 and rounded once: it is left
// to the host.
#include "backends/common/scalar.hpp"
#include "backends/vulkan/kernels/submit.hpp"

namespace bp::vulkan {
namespace {

struct ArangeRecord {
  uint64_t y;
  uint64_t start_address, step_address;
  int64_t start, step;
  int64_t stride;
  uint64_t count;
};

// The value of an argument in the call, as an integer that wraps as one of `dtype` would.
int64_t integer_of(const bp_tensor* tensor, const bp_scalar& scalar) {
  return tensor != nullptr ? 0 : static_cast<int64_t>(convert_scalar(scalar, BP_I64));
}

bp_status arange_launch(const bp_arange_args& args, Launch& launch) {
  const bp_tensor& y = *args.y;
  if (y.shape[0] == 0) return BP_OK;
  if (y.shape[0] > int64_t{1} << 31) {
    return launch.refuse(BP_UNSUPPORTED, "arange: y has more than 2^31 elements");
  }
  const ArangeRecord record{.y = launch.device_address(y),
                            .start_address = address_of(launch, args.start),
                            .step_address = address_of(launch, args.step),
                            .start = integer_of(args.start, args.start_scalar),
                            .step = integer_of(args.step, args.step_scalar),
                            .stride = y.strides[0] * dtype_size_bytes(y.dtype),
                            .count = static_cast<uint64_t>(y.shape[0])};
  const std::array<uint32_t, 2> constants = {local_size(launch), y.dtype};
  return submit(launch, kArangeModule, constants, record,
                ceil_divide(record.count, local_size(launch)),
                {Ranges(launch, {args.start, args.step}), Ranges(launch, {&y})});
}

constexpr bp_dtype kIntegers[] = {BP_I32, BP_I64};

}  // namespace

constinit const bp_kernel kArange = make_kernel<bp_arange_args, arange_launch>({
    .name = "arange",
    .op = BP_OP_ARANGE,
    .flags = BP_KERNEL_TAKES_SCALAR,
    .dtype_rows = kIntegers,
    .dtype_row_count = std::size(kIntegers),
    .dtype_count = 1,
});

}  // namespace bp::vulkan
