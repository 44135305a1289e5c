// grad_norm over a list of tensors, for every layout.
//
// A block adds the squares of kSquaresBlock elements of a tensor in f64 and leaves their sum in the
// workspace. One block then adds all sums. Both orders depend on the extents alone, so equal input
// gives equal bits. The limit is memory: each element is read once.
#include "backends/cuda/kernels/elementwise.cuh"
#include "backends/cuda/kernels/list.hpp"

namespace bp::cuda {
namespace {

constexpr uint32_t kSquaresBlock = 4096;

struct SquaresPlan {
  const std::byte* x = nullptr;
  Axes<1> axes;
  uint32_t count = 0;
  double* sums = nullptr;  // One for each block.
};

// Returns the sum of the values of all threads in thread 0.
__device__ double sum_of_block(double own) {
  __shared__ double sums[kBlockThreads];
  sums[threadIdx.x] = own;
  for (unsigned half = kBlockThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  __syncthreads();
  return sums[0];
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads) squares_kernel(SquaresPlan plan) {
  const uint32_t begin = blockIdx.x * kSquaresBlock;
  const uint32_t end = plan.count - begin < kSquaresBlock ? plan.count : begin + kSquaresBlock;
  double own = 0;
  for (uint32_t i = begin + threadIdx.x; i < end; i += kBlockThreads) {
    int64_t offset[1];
    plan.axes.locate(i, offset);
    const auto wide = static_cast<double>(widen(reinterpret_cast<const T*>(plan.x)[offset[0]]));
    own += wide * wide;
  }
  const double sum = sum_of_block(own);
  if (threadIdx.x == 0) plan.sums[blockIdx.x] = sum;
}

template <typename Y>
__global__ void __launch_bounds__(kBlockThreads)
    root_kernel(const double* sums, int64_t count, Y* y) {
  double own = 0;
  for (int64_t i = threadIdx.x; i < count; i += kBlockThreads) own += sums[i];
  const double sum = sum_of_block(own);
  if (threadIdx.x == 0) *y = static_cast<Y>(sqrt(sum));
}

int64_t squares_blocks(int64_t count) { return (count + kSquaresBlock - 1) / kSquaresBlock; }

bp_status submit_squares(const bp_tensor& x, double*& sums, Launch& launch) {
  for (const Loop& part : parts_of(make_loop(x.ndim, x.shape, {operand(&x)}))) {
    SquaresPlan plan;
    plan.x = part.data[0];
    plan.axes = part.axes<1>();
    plan.count = static_cast<uint32_t>(part.count);
    plan.sums = sums;
    const bp_status status = with_float(x.dtype, [&]<typename T>(T) {
      return run<squares_kernel<T>>(launch, blocks_for(part.count, kSquaresBlock), kBlockThreads, 0,
                                    plan);
    });
    if (status != BP_OK) return status;
    sums += squares_blocks(part.count);
  }
  return BP_OK;
}

bp_status norm_launch(const bp_grad_norm_args& args, Launch& launch) {
  auto* const first = reinterpret_cast<double*>(launch.workspace());
  double* next = first;
  for (uint64_t i = 0; i < args.xs_count; ++i) {
    const bp_status status = submit_squares(*args.xs[i], next, launch);
    if (status != BP_OK) return status;
  }
  const int64_t count = next - first;
  if (args.y->dtype == BP_F64) {
    return run<root_kernel<double>>(launch, 1u, kBlockThreads, 0, first, count,
                                    data<double>(*args.y));
  }
  return run<root_kernel<float>>(launch, 1u, kBlockThreads, 0, first, count, data<float>(*args.y));
}

uint64_t norm_workspace(const bp_grad_norm_args& args, const Env&) {
  int64_t blocks = 0;
  for (uint64_t i = 0; i < args.xs_count; ++i) {
    for (const Loop& part :
         parts_of(make_loop(args.xs[i]->ndim, args.xs[i]->shape, {operand(args.xs[i])}))) {
      blocks += squares_blocks(part.count);
    }
  }
  return static_cast<uint64_t>(blocks) * sizeof(double);
}

constexpr bp_dtype kNormDtypes[] = {BP_F32, BP_F64};
constexpr auto kNormPairs = pairs_of(kFloatDtypes, kNormDtypes);

}  // namespace

constinit const bp_kernel kGradNorm =
    make_kernel<bp_grad_norm_args, norm_launch, nullptr, norm_workspace>(
        kernel_row("grad_norm", BP_OP_GRAD_NORM, {kNormPairs, 2}));

}  // namespace bp::cuda
