// argmax and argmin along an axis, for tensors of every layout. The result is the index of the
// first NaN, or else of the first of the most extreme elements.
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/reduce.cuh"

namespace bp::cuda {
namespace {

template <typename C>
struct Candidate {
  C value;
  int64_t index;  // If below 0, there is none.

  __device__ Candidate shuffled(int mask) const {
    return {shuffle_xor(value, mask), shuffle_xor(index, mask)};
  }
};

template <typename X, bool kWantsLargest>
struct FindIndex {
  using Acc = Candidate<Compute<X>>;
  __device__ static Acc identity() { return {Compute<X>{0}, -1}; }
  __device__ static Acc take(Acc best, X x, int64_t index) {
    return combine(best, Acc{widen(x), index});
  }
  __device__ static Acc combine(Acc a, Acc b) {
    if (a.index < 0) return b;
    if (b.index < 0) return a;
    if (is_beyond(a.value, b.value)) return b;
    if (is_beyond(b.value, a.value)) return a;
    return a.index < b.index ? a : b;
  }
  __device__ static void write(Acc best, const ReduceResult& result, int64_t at) {
    store_index(result.y, at, result.kind == BP_I64, best.index);
  }
  __device__ static bool is_beyond(Compute<X> best, Compute<X> x) {
    return kWantsLargest ? is_larger(best, x) : is_smaller(best, x);
  }
};

template <typename Args>
Reduction reduction_of(const Args& args) {
  return Reduction(*args.x, *args.y, 1u << args.axis, args.keepdims != 0);
}

// Returns the workspace for the largest size of a candidate.
template <typename Args>
uint64_t workspace(const Args& args, const Env&) {
  return reduction_of(args).parts_size_bytes(sizeof(Candidate<double>));
}

template <typename Args, bool kWantsLargest>
bp_status index_launch(const Args& args, Launch& launch) {
  const Reduction r = reduction_of(args);
  ReduceResult result;
  result.kind = one_of(kIndexDtypes, args.y->dtype);
  return with_number(args.x->dtype, [&]<typename X>(X) {
    return submit_reduce<FindIndex<X, kWantsLargest>, X>(launch, r, result);
  });
}

template <typename Args>
bp_reason supports(const Args& args) {
  return index_reason(args.y, axis_extent(*args.x, static_cast<size_t>(args.axis)));
}

constexpr auto kDtypes = with_indices(kNumberDtypes);

template <typename Args, bool kWantsLargest>
constexpr bp_kernel index_kernel(const char* name, uint32_t op) {
  return make_kernel<Args, index_launch<Args, kWantsLargest>, supports<Args>, workspace<Args>>(
      kernel_row(name, op, {kDtypes, 2}));
}

}  // namespace

constinit const bp_kernel kArgmax = index_kernel<bp_argmax_args, true>("argmax", BP_OP_ARGMAX);
constinit const bp_kernel kArgmin = index_kernel<bp_argmin_args, false>("argmin", BP_OP_ARGMIN);

}  // namespace bp::cuda
