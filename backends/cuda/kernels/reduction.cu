// sum, mean and amax over any axes, for tensors of every layout.
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/movement.hpp"
#include "backends/cuda/kernels/reduce.cuh"

namespace bp::cuda {
namespace {

// The dtypes of sums, which device code tells apart at run time: each of kNumberDtypes.
enum class SumKind : uint32_t { kF16, kBF16, kF32, kF64, kI32, kI64 };

uint32_t sum_kind(bp_dtype dtype) {
  const SumKind kind = DeviceElements::with_number(dtype, []<typename T>(T) {
    if constexpr (std::is_same_v<T, Float16>) return SumKind::kF16;
    if constexpr (std::is_same_v<T, BFloat16>) return SumKind::kBF16;
    if constexpr (std::is_same_v<T, float>) return SumKind::kF32;
    if constexpr (std::is_same_v<T, double>) return SumKind::kF64;
    if constexpr (std::is_same_v<T, int32_t>) return SumKind::kI32;
    if constexpr (std::is_same_v<T, int64_t>) return SumKind::kI64;
  });
  return static_cast<uint32_t>(kind);
}

// Stores a sum as the dtype of y; integers wrap.
template <typename Acc>
__device__ void store_as(Acc value, const ReduceResult& result, int64_t at) {
  const auto store = [&]<typename T>(T) { reinterpret_cast<T*>(result.y)[at] = narrow<T>(value); };
  switch (static_cast<SumKind>(result.kind)) {
    case SumKind::kF16:
      return store(Float16{});
    case SumKind::kBF16:
      return store(BFloat16{});
    case SumKind::kF32:
      return store(float{});
    case SumKind::kF64:
      return store(double{});
    case SumKind::kI32:
      return store(int32_t{});
    case SumKind::kI64:
      return store(int64_t{});
  }
  __builtin_unreachable();  // sum_kind() makes no other.
}

// Integers are added without a sign: then they wrap.
template <typename A>
struct Sum {
  using Acc = A;
  __device__ static Acc identity() { return Acc{0}; }
  template <typename X>
  __device__ static Acc take(Acc acc, X x, int64_t) {
    return acc + static_cast<Acc>(widen(x));
  }
  __device__ static Acc combine(Acc a, Acc b) { return a + b; }
  __device__ static void write(Acc acc, const ReduceResult& result, int64_t at) {
    if constexpr (std::is_integral_v<Acc>) {
      store_as(static_cast<int64_t>(acc), result, at);
    } else {
      store_as(acc / static_cast<Acc>(result.divisor), result, at);
    }
  }
};

template <typename X>
struct Largest {
  using Acc = Compute<X>;
  __device__ static Acc identity() {
    if constexpr (std::is_integral_v<X>) {
      return std::numeric_limits<X>::min();
    } else {
      return -infinity<Acc>();
    }
  }
  __device__ static Acc take(Acc acc, X x, int64_t) { return combine(acc, widen(x)); }
  __device__ static Acc combine(Acc a, Acc b) { return is_larger(a, b) ? b : a; }
  __device__ static void write(Acc acc, const ReduceResult& result, int64_t at) {
    reinterpret_cast<X*>(result.y)[at] = narrow<X>(acc);
  }
};

template <typename Args>
Reduction reduction_of(const Args& args) {
  return Reduction(*args.x, *args.y, axis_bits(args.axes_count, args.axes), args.keepdims != 0);
}

// No accumulator is larger.
template <typename Args>
uint64_t workspace(const Args& args, const Env&) {
  return reduction_of(args).parts_size_bytes(sizeof(double));
}

// A sum that is stored as f64 is one of f64.
template <typename X>
bp_status submit_sum(Launch& launch, const Reduction& r, bp_dtype dtype) {
  ReduceResult result;
  result.kind = sum_kind(dtype);
  if constexpr (std::is_integral_v<X>) {
    return submit_reduce<Sum<uint64_t>, X>(launch, r, result);
  } else if constexpr (std::is_same_v<X, double>) {
    return submit_reduce<Sum<double>, X>(launch, r, result);
  } else {
    return dtype == BP_F64 ? submit_reduce<Sum<double>, X>(launch, r, result)
                           : submit_reduce<Sum<float>, X>(launch, r, result);
  }
}

// Over no axes a reduction is x itself: a sum would begin with a zero, and -0 lose its sign.
template <typename Args>
bp_status submit_itself(const Args& args, Launch& launch) {
  const bp_tensor &x = *args.x, &y = *args.y;
  const Loop loop = make_loop(x.ndim, x.shape, {operand(&y), operand(&x)});
  return x.dtype == y.dtype ? submit_copy(launch, loop, dtype_size_bytes(x.dtype))
                            : submit_cast(launch, loop, x.dtype, y.dtype);
}

bp_status sum_launch(const bp_sum_args& args, Launch& launch) {
  if (args.axes_count == 0) return submit_itself(args, launch);
  const Reduction r = reduction_of(args);
  if (args.x->dtype == BP_BOOL) return submit_sum<uint8_t>(launch, r, args.y->dtype);
  return with_number(args.x->dtype,
                     [&]<typename X>(X) { return submit_sum<X>(launch, r, args.y->dtype); });
}

bp_status mean_launch(const bp_mean_args& args, Launch& launch) {
  if (args.axes_count == 0) return submit_itself(args, launch);
  const Reduction r = reduction_of(args);
  ReduceResult result;
  result.kind = sum_kind(args.y->dtype);
  result.divisor = static_cast<double>(r.count());
  return with_float(args.x->dtype, [&]<typename X>(X) {
    return submit_reduce<Sum<Compute<X>>, X>(launch, r, result);
  });
}

bp_status amax_launch(const bp_amax_args& args, Launch& launch) {
  if (args.axes_count == 0) return submit_itself(args, launch);
  const Reduction r = reduction_of(args);
  return with_number(args.x->dtype, [&]<typename X>(X) {
    return submit_reduce<Largest<X>, X>(launch, r, ReduceResult());
  });
}

constexpr bp_dtype kSummed[] = {BP_F16, BP_BF16, BP_F32, BP_F64, BP_I32, BP_I64, BP_BOOL};

// Each of kSummed to each number.
constexpr auto kSumRows = pairs_of(kSummed, kNumberDtypes);

}  // namespace

constinit const bp_kernel kSum =
    make_kernel<bp_sum_args, sum_launch, nullptr, workspace<bp_sum_args>>(
        kernel_row("sum", BP_OP_SUM, {kSumRows, 2}));
constinit const bp_kernel kMean =
    make_kernel<bp_mean_args, mean_launch, nullptr, workspace<bp_mean_args>>(
        kernel_row("mean", BP_OP_MEAN, kFloatDtypes));
constinit const bp_kernel kAmax =
    make_kernel<bp_amax_args, amax_launch, nullptr, workspace<bp_amax_args>>(
        kernel_row("amax", BP_OP_AMAX, kNumberDtypes));

}  // namespace bp::cuda
