// cummax, cummin and logcumsumexp along an axis, for tensors of every layout.
//
//   along    a block takes a line, in tiles of 1,024 elements: a thread has four of them
//   across   neighbouring lines: a thread takes a line, one element after the other
//
// A sum of exponentials is kept over the exponential of its largest element.
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/rows.cuh"
#include "backends/cuda/kernels/scan_block.cuh"

namespace bp::cuda {
namespace {

struct RunningPlan {
  RowTensor x, y, indices;  // A row is a line.
  bool has_indices = false, is_i64 = false, is_reverse = false;
  uint32_t lines = 0, count = 0;  // `count` elements of each line.
};

// The most extreme element so far, and its index. If the index is below 0, there is none.
template <typename C>
struct Place {
  C value;
  int64_t index;

  __device__ Place shuffled_up(unsigned distance) const {
    return {shuffle_up(value, distance), shuffle_up(index, distance)};
  }
};

template <typename T, bool kWantsLargest>
struct FindExtreme {
  using X = T;
  using State = Place<Compute<T>>;
  template <typename A>
  __device__ static A identity() {
    return {Compute<T>{0}, -1};
  }
  __device__ static State load(T x, int64_t index) { return {widen(x), index}; }
  // Of equal elements, the later one stays.
  __device__ static State combine(const State& a, const State& b) {
    if (a.index < 0) return b;
    if (b.index < 0) return a;
    const bool is_beyond =
        kWantsLargest ? is_larger(b.value, a.value) : is_smaller(b.value, a.value);
    return is_beyond ? a : b;
  }
  __device__ static T result(const State& state) { return narrow<T>(state.value); }
  __device__ static int64_t index(const State& state) { return state.index; }
};

// The sum of exp(x) over exp(largest).
template <typename C>
struct Exponentials {
  C largest, total;

  __device__ Exponentials shuffled_up(unsigned distance) const {
    return {shuffle_up(largest, distance), shuffle_up(total, distance)};
  }
};

template <typename T>
struct AddExponentials {
  using X = T;
  using C = Compute<T>;
  using State = Exponentials<C>;
  template <typename A>
  __device__ static A identity() {
    return {-infinity<C>(), C{0}};
  }
  __device__ static State load(T x, int64_t) { return {widen(x), C{1}}; }
  // Two largest elements that are equal may be infinite.
  __device__ static State combine(const State& a, const State& b) {
    if (a.largest == b.largest) return {a.largest, a.total + b.total};
    if (is_larger(a.largest, b.largest)) return sum(b, a);
    return sum(a, b);
  }
  __device__ static T result(const State& state) {
    return narrow<T>(state.largest + log(state.total));
  }
  __device__ static int64_t index(const State&) { return 0; }

 private:
  __device__ static State sum(const State& high, const State& low) {
    if (is_nan(high.largest)) return high;
    return {high.largest, high.total + low.total * exp(low.largest - high.largest)};
  }
};

// One line, whose elements are numbered in the order of the scan.
template <class Op>
class Line {
 public:
  using X = typename Op::X;
  using State = typename Op::State;

  __device__ Line(const RunningPlan& plan, uint32_t line)
      : plan_(plan),
        x_(plan.x.row<X>(line)),
        y_(plan.y.row<X>(line)),
        indices_(plan.indices.rows.offset(line)) {}

  __device__ __forceinline__ State load(uint32_t place) const {
    const int64_t i = index_of(place);
    return Op::load(x_[i * plan_.x.elements.strides[0][0]], i);
  }
  __device__ __forceinline__ void store(uint32_t place, const State& state) const {
    const int64_t i = index_of(place);
    y_[i * plan_.y.elements.strides[0][0]] = Op::result(state);
    if (!plan_.has_indices) return;
    store_index(plan_.indices.data, indices_ + i * plan_.indices.elements.strides[0][0],
                plan_.is_i64, Op::index(state));
  }

 private:
  __device__ __forceinline__ int64_t index_of(uint32_t place) const {
    return plan_.is_reverse ? plan_.count - 1 - place : place;
  }

  const RunningPlan& plan_;
  const X* const x_;
  X* const y_;
  const int64_t indices_;
};

constexpr uint32_t kItems = 4, kScanTile = kScanThreads * kItems;

template <class Op>
__global__ void __launch_bounds__(kScanThreads) running_along_kernel(RunningPlan plan) {
  using State = typename Op::State;
  const Line<Op> line(plan, blockIdx.x);
  State total = Op::template identity<State>();
  for (uint32_t first = 0; first < plan.count; first += kScanTile) {
    const uint32_t own = first + threadIdx.x * kItems;
    State values[kItems];
    State last = Op::template identity<State>();
    BP_UNROLL
    for (uint32_t k = 0; k < kItems; ++k) {
      if (own + k < plan.count) last = Op::combine(last, line.load(own + k));
      values[k] = last;
    }
    const BlockTotals<State> block = scan_block<Op>(last);
    const State before = Op::combine(total, block.before);
    BP_UNROLL
    for (uint32_t k = 0; k < kItems; ++k) {
      if (own + k < plan.count) line.store(own + k, Op::combine(before, values[k]));
    }
    total = Op::combine(total, block.all);
  }
}

template <class Op>
__global__ void __launch_bounds__(kScanThreads) running_across_kernel(RunningPlan plan) {
  const uint32_t number = blockIdx.x * kScanThreads + threadIdx.x;
  if (number >= plan.lines) return;
  const Line<Op> line(plan, number);
  auto total = Op::template identity<typename Op::State>();
  for (uint32_t i = 0; i < plan.count; ++i) {
    total = Op::combine(total, line.load(i));
    line.store(i, total);
  }
}

// ---- On the host --------------------------------------------------------------------------------

template <typename Args>
RunningPlan plan_of(const Args& args) {
  const uint32_t axis = 1u << args.axis;
  const RowExtents extents = row_extents(*args.x, axis);
  RunningPlan plan;
  plan.x = row_tensor(*args.x, axis);
  plan.y = row_tensor(*args.y, axis);
  plan.lines = static_cast<uint32_t>(extents.rows);
  plan.count = static_cast<uint32_t>(extents.count);
  return plan;
}

template <class Op>
bp_status submit_running(Launch& launch, const RunningPlan& plan) {
  if (plan.lines == 0 || plan.count == 0) return BP_OK;
  if (are_rows_across(plan.x, RowExtents{plan.lines, plan.count})) {
    return run<running_across_kernel<Op>>(launch, blocks_for(plan.lines, kScanThreads),
                                          kScanThreads, 0, plan);
  }
  return run<running_along_kernel<Op>>(launch, plan.lines, kScanThreads, 0, plan);
}

template <typename Args, bool kWantsLargest>
bp_status extreme_launch(const Args& args, Launch& launch) {
  RunningPlan plan = plan_of(args);
  plan.has_indices = args.indices != nullptr;
  if (plan.has_indices) {
    plan.indices = row_tensor(*args.indices, 1u << args.axis);
    plan.is_i64 = is_i64_index(args.indices->dtype);
  }
  return with_number(args.x->dtype, [&]<typename X>(X) {
    return submit_running<FindExtreme<X, kWantsLargest>>(launch, plan);
  });
}

bp_status logcumsumexp_launch(const bp_logcumsumexp_args& args, Launch& launch) {
  RunningPlan plan = plan_of(args);
  plan.is_reverse = args.is_reverse != 0;
  return with_float(args.x->dtype, [&]<typename X>(X) {
    return submit_running<AddExponentials<X>>(launch, plan);
  });
}

template <typename Args>
bp_reason extreme_supports(const Args& args) {
  const bp_reason reason =
      index_reason(args.indices, axis_extent(*args.x, static_cast<size_t>(args.axis)));
  return reason != nullptr ? reason : too_many_rows(*args.x, 1u << args.axis);
}

bp_reason logcumsumexp_supports(const bp_logcumsumexp_args& args) {
  return too_many_rows(*args.x, 1u << args.axis);
}

constexpr auto kDtypes = with_indices(kNumberDtypes);

template <typename Args, bool kWantsLargest>
constexpr bp_kernel extreme_kernel(const char* name, uint32_t op) {
  return make_kernel<Args, extreme_launch<Args, kWantsLargest>, extreme_supports<Args>>(
      kernel_row(name, op, {kDtypes, 2}));
}

}  // namespace

constinit const bp_kernel kCummax = extreme_kernel<bp_cummax_args, true>("cummax", BP_OP_CUMMAX);
constinit const bp_kernel kCummin = extreme_kernel<bp_cummin_args, false>("cummin", BP_OP_CUMMIN);
constinit const bp_kernel kLogcumsumexp =
    make_kernel<bp_logcumsumexp_args, logcumsumexp_launch, logcumsumexp_supports>(
        kernel_row("logcumsumexp", BP_OP_LOGCUMSUMEXP, kFloatDtypes));

}  // namespace bp::cuda
