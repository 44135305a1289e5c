// The reductions with a formula (ops_spec/emit_reductions.py), such as sum and amax, over any axes,
// for tensors of every layout.
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/movement.hpp"
#include "backends/cuda/kernels/reduce.cuh"
#include "reductions.cuh"

namespace bp::cuda {
namespace {

// The element type of a y whose dtype the kernel knows only at run time, from ReduceResult.
struct AnyNumber {};

template <typename Y, typename Acc>
__device__ void store_as(Acc value, const ReduceResult& result, int64_t at) {
  if constexpr (std::is_same_v<Y, AnyNumber>) {
    store_number(result.y, result.kind, at, value);
  } else {
    reinterpret_cast<Y*>(result.y)[at] = narrow<Y>(value);
  }
}

// Returns the shift of an output, if the formula has one.
template <bool kHasShift, typename A>
struct ShiftOf {
  __device__ A shift() const { return value; }

  A value = 0;
};

template <typename A>
struct ShiftOf<false, A> {
  __device__ static A shift() { return 0; }
};

// A reduction by its formula.
template <class Formula, typename X, typename A, typename Y>
struct Formed : ShiftOf<Formula::kHasShift, A> {
  using Acc = A;
  using ShiftOf<Formula::kHasShift, A>::shift;

  __device__ static Formed for_output(const ReduceResult& result, int64_t number) {
    Formed op;
    op.value = static_cast<const Acc*>(result.shifts)[number];
    return op;
  }
  __device__ static Acc identity() {
    if constexpr (Formula::kAdds || Formula::kMultiplies) {
      return Acc{Formula::kAdds ? 0 : 1};
    } else if constexpr (std::is_integral_v<Acc>) {
      using Limits = std::numeric_limits<Acc>;
      return Formula::kIsSmallest ? Limits::max() : Limits::min();
    } else {
      return Formula::kIsSmallest ? infinity<Acc>() : -infinity<Acc>();
    }
  }
  __device__ Acc take(Acc acc, X x, int64_t) const {
    auto term = static_cast<Acc>(widen(x));
    if constexpr (Formula::kHasMap) term = Formula::map(term, shift());
    return combine(acc, term);
  }
  __device__ static Acc combine(Acc a, Acc b) {
    if constexpr (Formula::kAdds) {
      return primitive::add(a, b);
    } else if constexpr (Formula::kMultiplies) {
      return primitive::mul(a, b);
    } else {
      return Formula::kIsSmallest ? primitive::min(a, b) : primitive::max(a, b);
    }
  }
  __device__ void write(Acc acc, const ReduceResult& result, int64_t at) const {
    if constexpr (Formula::kHasFinish) {
      acc = Formula::finish(acc, static_cast<Acc>(result.count), shift());
    }
    store_as<Y>(acc, result, at);
  }
};

// A reduction whose map is a condition: it counts the elements for which the condition holds.
template <class Formula, typename X>
struct Counted {
  using Acc = int64_t;
  __device__ static Acc identity() { return 0; }
  __device__ static Acc take(Acc count, X x, int64_t) {
    return count + (Formula::map(widen(x), Compute<X>{0}) ? 1 : 0);
  }
  __device__ static Acc combine(Acc a, Acc b) { return a + b; }
  __device__ static void write(Acc count, const ReduceResult& result, int64_t at) {
    if constexpr (Formula::kIsAny || Formula::kIsAll) {
      const bool is_true = Formula::kIsAny ? count != 0 : count == result.count;
      reinterpret_cast<uint8_t*>(result.y)[at] = is_true ? 1 : 0;
    } else {
      reinterpret_cast<int64_t*>(result.y)[at] = count;
    }
  }
};

// Finds the shift of each output, which is its largest element, or 0 if that is infinite or there
// is no element.
template <typename X, typename A>
struct FindShift {
  using Acc = A;
  __device__ static FindShift for_output(const ReduceResult&, int64_t number) { return {number}; }
  __device__ static Acc identity() { return -infinity<Acc>(); }
  __device__ static Acc take(Acc acc, X x, int64_t) {
    return combine(acc, static_cast<Acc>(widen(x)));
  }
  __device__ static Acc combine(Acc a, Acc b) { return primitive::max(a, b); }
  __device__ void write(Acc acc, const ReduceResult& result, int64_t) const {
    static_cast<Acc*>(result.shifts)[number] = fabs(acc) == infinity<Acc>() ? Acc{0} : acc;
  }

  int64_t number;
};

// The dtypes that an op takes: floats, all numbers, small integers and bools as well, or pairs of a
// dtype of x with each number as the dtype of y.
enum class Domain { kFloats, kNumbers, kAny, kPairs };

constexpr bool has_dtype(const DtypeRows& rows, bp_dtype dtype) {
  for (uint32_t i = 0; i < rows.count; ++i) {
    if (rows.rows[i] == dtype) return true;
  }
  return false;
}

constexpr Domain domain_of(const DtypeRows& rows) {
  if (rows.width == 2) return Domain::kPairs;
  if (has_dtype(rows, BP_U8)) return Domain::kAny;
  return has_dtype(rows, BP_I32) ? Domain::kNumbers : Domain::kFloats;
}

template <Domain kDomain, typename Fn>
bp_status with_element(bp_dtype dtype, const Fn& fn) {
  if constexpr (kDomain == Domain::kFloats) {
    return with_float(dtype, fn);
  } else if constexpr (kDomain == Domain::kAny) {
    return with_any(dtype, fn);
  } else {
    if constexpr (kDomain == Domain::kPairs) {
      if (dtype == BP_BOOL) return fn(uint8_t{});
    }
    return with_number(dtype, fn);
  }
}

template <typename Args>
Reduction reduction_of(const Args& args) {
  return Reduction(*args.x, *args.y, axis_bits(args.axes_count, args.axes), args.keepdims != 0);
}

// Returns the workspace: the parts, and behind them the shifts. No accumulator is larger than a
// double.
template <typename Args, class Formula>
uint64_t workspace(const Args& args, const Env&) {
  const Reduction r = reduction_of(args);
  const auto outputs = static_cast<uint64_t>(Formula::kHasShift ? r.outputs() : 0);
  return r.parts_size_bytes(sizeof(double)) + outputs * sizeof(double);
}

template <class Formula, typename X, typename Acc, typename Y>
bp_status submit_formula(Launch& launch, const Reduction& r, bp_dtype dtype) {
  ReduceResult result;
  result.kind = dtype;
  result.count = r.count();
  if constexpr (Formula::kHasShift) {
    result.shifts = launch.workspace() + r.parts_size_bytes(sizeof(Acc));
    const bp_status status = submit_reduce<FindShift<X, Acc>, X>(launch, r, result);
    if (status != BP_OK) return status;
  }
  return submit_reduce<Formed<Formula, X, Acc, Y>, X>(launch, r, result);
}

// The type of accumulators. Integers are added and multiplied in i64. Results that are stored as
// f64 are accumulated in f64.
template <class Formula, typename X>
bp_status submit_pair(Launch& launch, const Reduction& r, bp_dtype dtype) {
  if constexpr (std::is_integral_v<X>) {
    return submit_formula<Formula, X, int64_t, AnyNumber>(launch, r, dtype);
  } else {
    if (dtype == BP_F64) {
      return submit_formula<Formula, X, double, AnyNumber>(launch, r, dtype);
    }
    return submit_formula<Formula, X, Compute<X>, AnyNumber>(launch, r, dtype);
  }
}

// Copies the element if each result has one element. A sum would begin with 0, and -0 would lose
// its sign.
template <typename Args>
bp_status submit_itself(const Args& args, Launch& launch) {
  const bp_tensor &x = *args.x, &y = *args.y;
  const Loop loop = make_loop(x.ndim, x.shape, {operand(&y), operand(&x)});
  return x.dtype == y.dtype ? submit_copy(launch, loop, dtype_size_bytes(x.dtype))
                            : submit_cast(launch, loop, x.dtype, y.dtype);
}

template <typename Args, class Formula, Domain kDomain>
bp_status reduction_launch(const Args& args, Launch& launch) {
  if (Formula::kCopiesOne && args.axes_count == 0) return submit_itself(args, launch);
  const Reduction r = reduction_of(args);
  return with_element<kDomain>(args.x->dtype, [&]<typename X>(X) {
    if constexpr (Formula::kCounts) {
      ReduceResult result;
      result.count = r.count();
      return submit_reduce<Counted<Formula, X>, X>(launch, r, result);
    } else if constexpr (kDomain == Domain::kPairs) {
      // with_number() throws if store_as() has no code for the dtype.
      return with_number(args.y->dtype,
                         [&](auto) { return submit_pair<Formula, X>(launch, r, args.y->dtype); });
    } else {
      using Acc = std::conditional_t<std::is_integral_v<X> && Formula::kAdds, int64_t, Compute<X>>;
      return submit_formula<Formula, X, Acc, X>(launch, r, args.y->dtype);
    }
  });
}

template <typename Args, class Formula, Domain kDomain>
constexpr bp_kernel reduction_kernel(const bp_kernel& row) {
  return make_kernel<Args, reduction_launch<Args, Formula, kDomain>, nullptr,
                     workspace<Args, Formula>>(row);
}

}  // namespace

#define BP_REDUCTION(name, Name, id, dtypes)                                \
  constinit const bp_kernel kReduction##Name =                              \
      reduction_kernel<bp_##name##_args, Name##Formula, domain_of(dtypes)>( \
          kernel_row(#name, id, dtypes));
#include "reductions.def"

}  // namespace bp::cuda
