// cumsum and cumprod along an axis, for tensors of every layout.
//
//   along    a block takes a part of a line, in tiles of 1,024 elements: a thread has four of them
//   across   neighbouring lines: a thread takes a part of a line, one element after the other
//
// Long lines are cut into parts. The kernel is then launched three times: for the total of each
// part, for the totals of the parts before each, and for the results. The cut depends on the
// extents alone, so equal input gives equal bits.
#include "backends/cuda/kernels/elementwise.cuh"
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/reduce.cuh"
#include "backends/cuda/kernels/rows.cuh"
#include "backends/cuda/kernels/scan_block.cuh"

namespace bp::cuda {
namespace {

struct ScanPlan {
  RowTensor x, y;  // A row is a line.
  uint32_t y_dtype = 0;
  uint32_t lines = 0, count = 0;  // `count` elements of each line,
  uint32_t part_size = 0;         // this many of them for each part.
  bool is_exclusive = false, is_reverse = false;
  bool writes = true;  // Else the totals of parts are wanted.
  void* totals =
      nullptr;  // (lines, parts); if the kernel writes, totals before each part, or NULL.
};

struct Addition {
  template <typename A>
  __device__ static A identity() {
    return A{0};
  }
  template <typename A>
  __device__ static A combine(A a, A b) {
    return primitive::add(a, b);
  }
};

struct Multiplication {
  template <typename A>
  __device__ static A identity() {
    return A{1};
  }
  template <typename A>
  __device__ static A combine(A a, A b) {
    return primitive::mul(a, b);
  }
};

// One part of a line, whose elements are numbered in the order of the scan.
template <typename X>
class Part {
 public:
  __device__ Part(const ScanPlan& plan, uint32_t line, uint32_t part)
      : begin(part * plan.part_size),
        end(plan.count - begin < plan.part_size ? plan.count : begin + plan.part_size),
        plan_(plan),
        x_(plan.x.row<X>(line)),
        y_(plan.y.rows.offset(line)),
        total_(int64_t{line} * gridDim.y + part) {}

  template <typename A>
  __device__ __forceinline__ A load(uint32_t place) const {
    return static_cast<A>(widen(x_[index_of(place) * plan_.x.elements.strides[0][0]]));
  }
  template <typename A>
  __device__ __forceinline__ void store(uint32_t place, A value) const {
    const int64_t at = y_ + index_of(place) * plan_.y.elements.strides[0][0];
    store_number(plan_.y.data, plan_.y_dtype, at, value);
  }
  template <class Op, typename A>
  __device__ A total_before() const {
    const bool is_known = plan_.writes && plan_.totals != nullptr;
    return is_known ? static_cast<const A*>(plan_.totals)[total_] : Op::template identity<A>();
  }
  template <typename A>
  __device__ void store_total(A total) const {
    static_cast<A*>(plan_.totals)[total_] = total;
  }

  const uint32_t begin, end;

 private:
  __device__ __forceinline__ int64_t index_of(uint32_t place) const {
    return plan_.is_reverse ? plan_.count - 1 - place : place;
  }

  const ScanPlan& plan_;
  const X* const x_;
  const int64_t y_, total_;
};

constexpr uint32_t kItems = 4, kScanTile = kScanThreads * kItems;

template <class Op, typename X, typename A>
__global__ void __launch_bounds__(kScanThreads) scan_along_kernel(ScanPlan plan) {
  const Part<X> part(plan, blockIdx.x, blockIdx.y);
  A total = part.template total_before<Op, A>();
  for (uint32_t first = part.begin; first < part.end; first += kScanTile) {
    const uint32_t own = first + threadIdx.x * kItems;
    A values[kItems + 1];  // Before each element of the thread, and behind the last one.
    values[0] = Op::template identity<A>();
    BP_UNROLL
    for (uint32_t k = 0; k < kItems; ++k) {
      values[k + 1] = values[k];
      if (own + k < part.end)
        values[k + 1] = Op::combine(values[k], part.template load<A>(own + k));
    }
    const BlockTotals<A> block = scan_block<Op>(values[kItems]);
    const A before = Op::combine(total, block.before);
    BP_UNROLL
    for (uint32_t k = 0; k < kItems; ++k) {
      if (!plan.writes || own + k >= part.end) continue;
      part.store(own + k, Op::combine(before, plan.is_exclusive ? values[k] : values[k + 1]));
    }
    total = Op::combine(total, block.all);
  }
  if (!plan.writes && threadIdx.x == 0) part.store_total(total);
}

// A thread adds blocks of 64 elements, so that the error grows with the square root of their
// number.
template <class Op, typename X, typename A>
__global__ void __launch_bounds__(kScanThreads) scan_across_kernel(ScanPlan plan) {
  constexpr uint32_t kBlock = 64;
  const uint32_t line = blockIdx.x * kScanThreads + threadIdx.x;
  if (line >= plan.lines) return;
  const Part<X> part(plan, line, blockIdx.y);
  A total = part.template total_before<Op, A>();
  for (uint32_t i = part.begin; i < part.end;) {
    A block = Op::template identity<A>();
    for (uint32_t k = 0; k < kBlock && i < part.end; ++k, ++i) {
      const A before = block;
      block = Op::combine(block, part.template load<A>(i));
      if (plan.writes) part.store(i, Op::combine(total, plan.is_exclusive ? before : block));
    }
    total = Op::combine(total, block);
  }
  if (!plan.writes) part.store_total(total);
}

// ---- On the host --------------------------------------------------------------------------------

// How the lines are cut.
struct ScanCut {
  explicit ScanCut(const bp_tensor& x, uint32_t axis) : extents(row_extents(x, axis)) {
    constexpr int64_t kBlocks = 1024, kLeastPart = 8192, kLeastPartAcross = 256;
    if (extents.rows == 0 || extents.count == 0) return;
    is_across = are_rows_across(row_tensor(x, axis), extents);
    const int64_t blocks = is_across ? blocks_for(extents.rows, kScanThreads) : extents.rows;
    const int64_t most = extents.count / (is_across ? kLeastPartAcross : kLeastPart);
    const int64_t wanted = std::clamp<int64_t>(kBlocks / blocks, 1, std::max<int64_t>(1, most));
    part_size = (extents.count + wanted - 1) / wanted;
    parts = (extents.count + part_size - 1) / part_size;
  }

  RowExtents extents;
  bool is_across = false;
  int64_t part_size = 0, parts = 1;
};

// Returns the totals of parts as lines.
RowTensor totals_of(void* totals, const ScanCut& cut) {
  RowTensor tensor;
  tensor.data = static_cast<std::byte*>(totals);
  tensor.rows.rank = tensor.elements.rank = 1;
  tensor.rows.extents[0] = Divider(static_cast<uint32_t>(cut.extents.rows));
  tensor.rows.strides[0][0] = cut.parts;
  tensor.elements.strides[0][0] = 1;
  return tensor;
}

template <class Op, typename X, typename A>
bp_status launch_stage(Launch& launch, const ScanCut& cut, const ScanPlan& plan) {
  const auto parts = static_cast<unsigned>(cut.parts);
  if (cut.is_across) {
    return run<scan_across_kernel<Op, X, A>>(
        launch, dim3(blocks_for(plan.lines, kScanThreads), parts), kScanThreads, 0, plan);
  }
  return run<scan_along_kernel<Op, X, A>>(launch, dim3(plan.lines, parts), kScanThreads, 0, plan);
}

template <class Op, typename X, typename A>
bp_status submit_scan(Launch& launch, const ScanCut& cut, ScanPlan plan) {
  if (cut.parts > 1) {
    plan.totals = launch.workspace();
    plan.writes = false;
    bp_status status = launch_stage<Op, X, A>(launch, cut, plan);
    if (status != BP_OK) return status;

    ScanPlan totals;
    totals.x = totals.y = totals_of(plan.totals, cut);
    totals.y_dtype = std::is_integral_v<A> ? BP_I64 : sizeof(A) == 8 ? BP_F64 : BP_F32;
    totals.lines = plan.lines;
    totals.count = totals.part_size = static_cast<uint32_t>(cut.parts);
    totals.is_exclusive = true;
    status = run<scan_along_kernel<Op, A, A>>(launch, plan.lines, kScanThreads, 0, totals);
    if (status != BP_OK) return status;
    plan.writes = true;
  }
  return launch_stage<Op, X, A>(launch, cut, plan);
}

// Totals of integers have 64 bits. Totals of f64, and of results that are stored as f64, are f64.
template <class Op, typename X>
bp_status submit_elements(Launch& launch, const ScanCut& cut, const ScanPlan& plan) {
  if constexpr (std::is_integral_v<X>) {
    return submit_scan<Op, X, int64_t>(launch, cut, plan);
  } else {
    if (plan.y_dtype == BP_F64) return submit_scan<Op, X, double>(launch, cut, plan);
    return submit_scan<Op, X, Compute<X>>(launch, cut, plan);
  }
}

template <typename Args, class Op>
bp_status scan_launch(const Args& args, Launch& launch) {
  const uint32_t axis = 1u << args.axis;
  const ScanCut cut(*args.x, axis);
  if (cut.part_size == 0) return BP_OK;
  ScanPlan plan;
  plan.x = row_tensor(*args.x, axis);
  plan.y = row_tensor(*args.y, axis);
  plan.y_dtype = one_of(kNumberDtypes, args.y->dtype);
  plan.lines = static_cast<uint32_t>(cut.extents.rows);
  plan.count = static_cast<uint32_t>(cut.extents.count);
  plan.part_size = static_cast<uint32_t>(cut.part_size);
  plan.is_exclusive = args.is_exclusive != 0;
  plan.is_reverse = args.is_reverse != 0;
  if (args.x->dtype == BP_BOOL) return submit_elements<Op, uint8_t>(launch, cut, plan);
  return with_number(args.x->dtype,
                     [&]<typename X>(X) { return submit_elements<Op, X>(launch, cut, plan); });
}

template <typename Args>
uint64_t workspace(const Args& args, const Env&) {
  const ScanCut cut(*args.x, 1u << args.axis);
  return cut.parts == 1 ? 0 : static_cast<uint64_t>(cut.extents.rows * cut.parts) * sizeof(double);
}

template <typename Args>
bp_reason supports(const Args& args) {
  return too_many_rows(*args.x, 1u << args.axis);
}

template <typename Args, class Op>
constexpr bp_kernel scan_kernel(const char* name, uint32_t op) {
  return make_kernel<Args, scan_launch<Args, Op>, supports<Args>, workspace<Args>>(
      kernel_row(name, op, kSumPairs));
}

}  // namespace

constinit const bp_kernel kCumsum = scan_kernel<bp_cumsum_args, Addition>("cumsum", BP_OP_CUMSUM);
constinit const bp_kernel kCumprod =
    scan_kernel<bp_cumprod_args, Multiplication>("cumprod", BP_OP_CUMPROD);

}  // namespace bp::cuda
