// where and masked_fill, for tensors of every layout. Elements keep their bits, so the method
// depends only on their width.
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/map.cuh"

namespace bp::cuda {
namespace {

struct Select {
  template <typename T>
  __host__ __device__ T operator()(uint8_t condition, T a, T b) const {
    return condition != 0 ? a : b;
  }
};

bp_status where_launch(const bp_where_args& args, Launch& launch) {
  const bp_dtype dtype = args.a->dtype;
  const uint64_t scalar = args.b == nullptr ? convert_moved_operand(args.b_scalar, dtype) : 0;
  return with_width(dtype_size_bytes(dtype), [&]<typename T>(T) {
    return submit_map<Select, T, uint8_t, T, T>(
        launch, Select(), loop_over(*args.y, args.condition, args.a, args.b), scalar);
  });
}

// masked_fill selects the value of the call or an element of x.
bp_status masked_fill_launch(const bp_masked_fill_args& args, Launch& launch) {
  constexpr int64_t kNoStrides[kMaxRank] = {};
  const bp_tensor& y = *args.y;
  const ScalarArgument value(args.value, args.value_scalar, y.dtype);
  const int64_t size_bytes = dtype_size_bytes(y.dtype);
  const Loop loop = make_loop(
      y.ndim, y.shape,
      {operand(&y), operand(args.mask), {value.address, kNoStrides, size_bytes}, operand(args.x)});
  return with_width(size_bytes, [&]<typename T>(T) {
    return submit_map<Select, T, uint8_t, T, T>(launch, Select(), loop, value.bits);
  });
}

}  // namespace

constinit const bp_kernel kWhere = make_kernel<bp_where_args, where_launch>(
    kernel_row("where", BP_OP_WHERE, kAnyDtypes, BP_KERNEL_IN_PLACE | BP_KERNEL_TAKES_SCALAR));
constinit const bp_kernel kMaskedFill =
    make_kernel<bp_masked_fill_args, masked_fill_launch>(kernel_row(
        "masked_fill", BP_OP_MASKED_FILL, kAnyDtypes, BP_KERNEL_IN_PLACE | BP_KERNEL_TAKES_SCALAR));

}  // namespace bp::cuda
