// arange of integers and floats (arange.comp). Floats are computed in f64, which some devices lack.
#include "backends/vulkan/kernels/submit.hpp"
#include "backplane/shell/scalar.hpp"

namespace bp::vulkan {
namespace {

struct ArangeRecord {
  uint64_t y;
  uint64_t start_address, step_address;
  uint64_t start, step;
  int64_t stride;
  uint64_t count;
};

bool is_integer(bp_dtype dtype) { return dtype == BP_I32 || dtype == BP_I64; }

uint64_t value_of(const bp_tensor* tensor, const bp_scalar& scalar, bp_dtype dtype) {
  return tensor != nullptr ? 0 : convert_scalar(scalar, dtype);
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
                            .start = value_of(args.start, args.start_scalar, y.dtype),
                            .step = value_of(args.step, args.step_scalar, y.dtype),
                            .stride = y.strides[0] * dtype_size_bytes(y.dtype),
                            .count = static_cast<uint64_t>(y.shape[0])};
  const std::array<uint32_t, 2> constants = {local_size(launch), one_of(kNumberDtypes, y.dtype)};
  return submit(launch, is_integer(y.dtype) ? kArangeI64Module : kArangeF64Module, constants,
                record, ceil_divide(record.count, local_size(launch)),
                {Ranges(launch, {args.start, args.step}), Ranges(launch, {&y})});
}

bp_reason arange_supports(const bp_arange_args& args, const Env& env) {
  if (is_integer(args.y->dtype) || env.limits().has_f64) return nullptr;
  return "the device has no f64, in which a float is computed";
}

}  // namespace

constinit const bp_kernel kArange = make_kernel<bp_arange_args, arange_launch, arange_supports>(
    kernel_row("arange", BP_OP_ARANGE, kNumberDtypes, BP_KERNEL_TAKES_SCALAR));

}  // namespace bp::vulkan
