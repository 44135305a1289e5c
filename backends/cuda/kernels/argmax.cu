// argmax along an axis, for tensors of every layout. The result is the index of the first NaN, or
// else of the first of the largest elements.
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

template <typename X>
struct Argmax {
  using Acc = Candidate<Compute<X>>;
  __device__ static Acc identity() { return {Compute<X>{0}, -1}; }
  __device__ static Acc take(Acc best, X x, int64_t index) {
    return combine(best, Acc{widen(x), index});
  }
  __device__ static Acc combine(Acc a, Acc b) {
    if (a.index < 0) return b;
    if (b.index < 0) return a;
    if (is_larger(a.value, b.value)) return b;
    if (is_larger(b.value, a.value)) return a;
    return a.index < b.index ? a : b;
  }
  __device__ static void write(Acc best, const ReduceResult& result, int64_t at) {
    store_index(result.y, at, result.kind == BP_I64, best.index);
  }
};

Reduction reduction_of(const bp_argmax_args& args) {
  return Reduction(*args.x, *args.y, 1u << args.axis, args.keepdims != 0);
}

// Returns the workspace for the largest size of a candidate.
uint64_t workspace(const bp_argmax_args& args, const Env&) {
  return reduction_of(args).parts_size_bytes(sizeof(Candidate<double>));
}

bp_status argmax_launch(const bp_argmax_args& args, Launch& launch) {
  const Reduction r = reduction_of(args);
  ReduceResult result;
  result.kind = one_of(kIndexDtypes, args.y->dtype);
  return with_number(args.x->dtype,
                     [&]<typename X>(X) { return submit_reduce<Argmax<X>, X>(launch, r, result); });
}

bp_reason supports(const bp_argmax_args& args) {
  return index_reason(args.y, axis_extent(*args.x, static_cast<size_t>(args.axis)));
}

constexpr auto kDtypes = with_indices(kNumberDtypes);

}  // namespace

constinit const bp_kernel kArgmax = make_kernel<bp_argmax_args, argmax_launch, supports, workspace>(
    kernel_row("argmax", BP_OP_ARGMAX, {kDtypes, 2}));

}  // namespace bp::cuda
