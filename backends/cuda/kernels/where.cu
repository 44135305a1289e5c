// where, for tensors of every layout. Elements keep their bits, so the method depends only on their
// width.
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

}  // namespace

constinit const bp_kernel kWhere = make_kernel<bp_where_args, where_launch>(
    kernel_row("where", BP_OP_WHERE, kAnyDtypes, BP_KERNEL_IN_PLACE | BP_KERNEL_TAKES_SCALAR));

}  // namespace bp::cuda
