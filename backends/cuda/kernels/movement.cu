// fill, copy within one dtype, and arange, for tensors of every layout. Elements that are only
// moved keep their bits, so the method depends only on their width. copy between dtypes is in
// cast.cu.
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/map.cuh"
#include "backends/cuda/kernels/movement.hpp"
#include "backends/cuda/kernels/transpose.hpp"

namespace bp::cuda {
namespace {

struct Same {
  template <typename T>
  __host__ __device__ T operator()(T x) const {
    return x;
  }
};

constexpr int64_t kNoStrides[kMaxRank] = {};

bp_status fill_launch(const bp_fill_args& args, Launch& launch) {
  const bp_dtype dtype = args.y->dtype;
  const ScalarArgument value(args.value, args.value_scalar, dtype);
  const int64_t size_bytes = dtype_size_bytes(dtype);
  const Loop loop = make_loop(args.y->ndim, args.y->shape,
                              {operand(args.y), {value.address, kNoStrides, size_bytes}});
  return submit_copy(launch, loop, size_bytes, value.bits);
}

bp_status copy_launch(const bp_copy_args& args, Launch& launch) {
  const Loop loop = loop_over(*args.y, args.x);
  if (args.x->dtype != args.y->dtype) {
    return submit_cast(launch, loop, args.x->dtype, args.y->dtype);
  }
  return submit_copy(launch, loop, dtype_size_bytes(args.y->dtype));
}

// Computes in W, as the op specifies, and rounds once. Integers wrap. The product is rounded before
// it is added.
template <typename T, typename W>
__global__ void __launch_bounds__(kBlockThreads)
    arange_kernel(T* y, int64_t stride, int64_t first, uint32_t count, ScalarArgument start,
                  ScalarArgument step) {
  const uint32_t i = blockIdx.x * kBlockThreads + threadIdx.x;
  if (i >= count) return;
  const W from = static_cast<W>(widen(start.get<T>())), by = static_cast<W>(widen(step.get<T>()));
  W product = static_cast<W>(first + i);
  if constexpr (std::is_same_v<W, double>) {
    product = product_of(product, by);
  } else {
    product = product * by;
  }
  y[(first + i) * stride] = narrow<T>(from + product);
}

template <typename T, typename W>
bp_status submit_arange(const bp_arange_args& args, Launch& launch) {
  const bp_dtype dtype = args.y->dtype;
  const ScalarArgument start(args.start, args.start_scalar, dtype);
  const ScalarArgument step(args.step, args.step_scalar, dtype);
  const int64_t count = args.y->shape[0];
  for (int64_t first = 0; first < count; first += kMaxLaunchElements) {
    const int64_t part = std::min(kMaxLaunchElements, count - first);
    const bp_status status = run<arange_kernel<T, W>>(
        launch, blocks_for(part, kBlockThreads), kBlockThreads, 0, data<T>(*args.y),
        args.y->strides[0], first, static_cast<uint32_t>(part), start, step);
    if (status != BP_OK) return status;
  }
  return BP_OK;
}

bp_status arange_launch(const bp_arange_args& args, Launch& launch) {
  if (args.y->dtype == BP_I32) return submit_arange<int32_t, uint64_t>(args, launch);
  if (args.y->dtype == BP_I64) return submit_arange<int64_t, uint64_t>(args, launch);
  return with_float(args.y->dtype,
                    [&]<typename T>(T) { return submit_arange<T, double>(args, launch); });
}

// All pairs of dtypes.
constexpr auto kPairs = pairs_of(kAnyDtypes, kAnyDtypes);

}  // namespace

bp_status submit_copy(Launch& launch, const Loop& loop, int64_t size_bytes, uint64_t scalar) {
  for (const Loop& part : parts_of(loop)) {
    const TileAxes axes = tile_axes(part);
    const bp_status status = axes.to >= 0 ? submit_transpose(launch, part, axes, size_bytes)
                                          : with_width(size_bytes, [&]<typename T>(T) {
                                              return submit_map<Same, T, T>(launch, Same(), part, scalar);
                                            });
    if (status != BP_OK) return status;
  }
  return BP_OK;
}

constinit const bp_kernel kFill = make_kernel<bp_fill_args, fill_launch>(
    kernel_row("fill", BP_OP_FILL, kAnyDtypes, BP_KERNEL_TAKES_SCALAR));
constinit const bp_kernel kCopy =
    make_kernel<bp_copy_args, copy_launch>(kernel_row("copy", BP_OP_COPY, {kPairs, 2}));
constinit const bp_kernel kArange = make_kernel<bp_arange_args, arange_launch>(
    kernel_row("arange", BP_OP_ARANGE, kNumberDtypes, BP_KERNEL_TAKES_SCALAR));

}  // namespace bp::cuda
