// embedding_backward adds rows. Each thread owns some rows of grad_weight and reads all indices, so
// that the sums have the same order for any number of threads. Sums of 16-bit floats are kept in
// f32, in the workspace, and rounded once. The op embedding is in gather.cpp.
//
// The first gradient of a row is stored and the others are added, so a row is cleared only if no
// index names it. A byte for each row, also in the workspace, counts its gradients. When a sum has
// so many gradients that it would lose digits, it is added to a row of sums in f64, and begins
// again.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/embedding.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/indices.hpp"
#include "backends/host_kernels/row_addition-inl.hpp"
#include "backends/host_kernels/strided.hpp"
#include "hwy/cache_control.h"

#ifndef BACKPLANE_CPU_EMBEDDING_ROWS
#define BACKPLANE_CPU_EMBEDDING_ROWS
namespace bp::kernels {
namespace {

// One row of grad_y and of the sums; strides are in elements.
struct RowPair {
  const std::byte* from;
  std::byte* to;
  int64_t from_stride, to_stride, count;
};

using RowOperation = void(const RowPair& row);

// The functions that begin sums with `from`, add `from` to sums, or round the sums in `from` to
// `to`. Rows with many gradients have sums in f64, which begin with the sums in `from`, add them,
// and are rounded to `to`.
struct RowOperations {
  RowOperation *begin, *add, *round;
  RowOperation *begin_wide, *add_wide, *round_wide;
  int64_t sum_size_bytes;  // If 0, the sums are in grad_weight.
};

}  // namespace
}  // namespace bp::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

template <typename T, bool kIsFirst>
void add_row(const RowPair& row) {
  add_elements<Compute<T>, T, kIsFirst>(reinterpret_cast<const T*>(row.from), row.from_stride,
                                        reinterpret_cast<Compute<T>*>(row.to), row.to_stride,
                                        row.count);
}

template <typename T>
void round_row(const RowPair& row) {
  const auto* const from = reinterpret_cast<const Compute<T>*>(row.from);
  auto* const to = reinterpret_cast<T*>(row.to);
  int64_t i = 0;
  if (row.to_stride == 1) {
    const ComputeTag<T> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    for (; i + lanes <= row.count; i += lanes) store_lanes(hn::LoadU(d, from + i), d, to + i);
  }
  for (; i < row.count; ++i) to[i * row.to_stride] = narrow<T>(from[i]);
}

template <typename T, bool kIsFirst>
void add_wide_row(const RowPair& row) {
  add_elements<double, Compute<T>, kIsFirst>(reinterpret_cast<const Compute<T>*>(row.from),
                                             row.from_stride, reinterpret_cast<double*>(row.to), 1,
                                             row.count);
}

template <typename T>
void round_wide_row(const RowPair& row) {
  const auto* const from = reinterpret_cast<const double*>(row.from);
  auto* const to = reinterpret_cast<T*>(row.to);
  for (int64_t i = 0; i < row.count; ++i) to[i * row.to_stride] = narrow<T>(from[i]);
}

template <typename T>
constexpr RowOperations operations_of(int64_t sum_size_bytes) {
  return {add_row<T, true>,       add_row<T, false>, round_row<T>,  add_wide_row<T, true>,
          add_wide_row<T, false>, round_wide_row<T>, sum_size_bytes};
}

RowOperations row_operations(bp_dtype dtype) {
  return with_float(
      dtype, []<typename T>(T) { return operations_of<T>(kIsNarrow<T> ? sizeof(float) : 0); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(row_operations);

// Returns the offset of row `row` of a tensor. Its last `inner` axes are the row.
int64_t row_offset(const View& view, uint32_t inner, int64_t row) {
  int64_t offset = 0;
  for (uint32_t i = view.ndim - inner; i-- > 0; row /= view.shape[i]) {
    offset += row % view.shape[i] * view.strides[i];
  }
  return offset;
}

constexpr int64_t kGrainElements = 16384;  // A team needs twice this to pay.
constexpr int64_t kAhead = 4;              // Positions whose rows are prefetched.
constexpr uint8_t kMostGradients = 127;    // The most gradients of one sum.
constexpr uint8_t kHasWideSum = 128;

struct Addition {
  View grad_y, indices, grad_weight;
  IndexTensor checked;  // The indices too.
  Bounds bounds;        // Of the rows of grad_weight.
  bool has_dense_indices = false;
  int64_t positions = 0;
  int64_t item_size_bytes = 0;
  std::byte* sums = nullptr;     // Their place in the workspace.
  uint8_t* counts = nullptr;     // Gradients in each sum, and kHasWideSum.
  int64_t* wide_rows = nullptr;  // The f64 sums of each row that has them.
  double* wide_sums = nullptr;
  RowOperations operations{};

  const std::byte* place(int64_t position) const {
    const int64_t offset = has_dense_indices ? position : row_offset(indices, 0, position);
    return checked.first + offset * (checked.is_i64 ? 8 : 4);
  }
  int64_t index(int64_t position) const {
    const std::byte* const from = place(position);
    return bounds.acting(checked.is_i64 ? *reinterpret_cast<const int64_t*>(from)
                                        : *reinterpret_cast<const int32_t*>(from));
  }
  int64_t rows() const { return grad_weight.shape[0]; }
  int64_t cols() const { return grad_weight.shape[1]; }
  std::byte* weight_row(int64_t row) const {
    return grad_weight.address + row * grad_weight.strides[0] * item_size_bytes;
  }
  std::byte* sum_row(int64_t row) const {
    return sums == nullptr ? weight_row(row) : sums + row * cols() * operations.sum_size_bytes;
  }
  int64_t sum_stride() const { return sums == nullptr ? grad_weight.strides[1] : 1; }
  std::byte* wide_row(int64_t row) const {
    return reinterpret_cast<std::byte*>(wide_sums + wide_rows[row] * cols());
  }
};

void clear_weight_row(const Addition& a, int64_t row) {
  std::byte* const to = a.weight_row(row);
  if (a.grad_weight.strides[1] == 1) {
    std::memset(to, 0, static_cast<size_t>(a.cols() * a.item_size_bytes));
    return;
  }
  const int64_t step = a.grad_weight.strides[1] * a.item_size_bytes;
  for (int64_t i = 0; i < a.cols(); ++i) {
    std::fill_n(to + i * step, a.item_size_bytes, std::byte{0});
  }
}

// Prefetches a row, because rows lie in any order and the hardware cannot predict the next one.
void fetch_row(const Addition& a, int64_t position, int64_t begin, int64_t end) {
  const int64_t index = a.index(position);
  if (index >= begin && index < end) hwy::Prefetch(a.sum_row(index));
}

// Adds the sum of a row to its f64 sum, so that the sum can begin again.
void widen_sum(const Addition& a, int64_t row, std::atomic<int64_t>& wide_count) {
  const bool is_first = (a.counts[row] & kHasWideSum) == 0;
  if (is_first) a.wide_rows[row] = wide_count.fetch_add(1, std::memory_order_relaxed);
  (is_first ? a.operations.begin_wide : a.operations.add_wide)(
      {a.sum_row(row), a.wide_row(row), a.sum_stride(), 1, a.cols()});
  a.counts[row] = kHasWideSum;
}

// Writes the final sum of a row.
void finish_row(const Addition& a, int64_t row, std::atomic<int64_t>& wide_count) {
  const int64_t weight_stride = a.grad_weight.strides[1];
  if (a.counts[row] == 0) return clear_weight_row(a, row);
  if (a.counts[row] > kHasWideSum) widen_sum(a, row, wide_count);
  if (a.counts[row] == kHasWideSum) {
    a.operations.round_wide({a.wide_row(row), a.weight_row(row), 1, weight_stride, a.cols()});
  } else if (a.sums != nullptr) {
    a.operations.round({a.sum_row(row), a.weight_row(row), 1, weight_stride, a.cols()});
  }
}

// Computes the rows [begin, end) of grad_weight.
void add_to_rows(const Addition& a, int64_t begin, int64_t end, WrongIndex& wrong,
                 std::atomic<int64_t>& wide_count) {
  const int64_t from_stride = a.grad_y.strides[a.grad_y.ndim - 1], to_stride = a.sum_stride();
  std::fill(a.counts + begin, a.counts + end, uint8_t{0});
  for (int64_t position = 0; position < a.positions; ++position) {
    if (position + kAhead < a.positions) fetch_row(a, position + kAhead, begin, end);
    const int64_t index = a.index(position);
    if (!a.bounds.contains(index)) wrong.set(a.place(position));
    if (index < begin || index >= end || a.cols() == 0) continue;
    uint8_t& count = a.counts[index];
    if ((count & kMostGradients) == kMostGradients) widen_sum(a, index, wide_count);
    const bool is_first = (count++ & kMostGradients) == 0;
    const int64_t offset = row_offset(a.grad_y, 1, position);
    (is_first ? a.operations.begin
              : a.operations.add)({a.grad_y.address + offset * a.item_size_bytes, a.sum_row(index),
                                   from_stride, to_stride, a.cols()});
  }
  for (int64_t row = begin; row < end; ++row) finish_row(a, row, wide_count);
}

void add_rows(const Addition& a, int thread_count) {
  const int64_t count = a.rows();
  WrongIndex wrong;
  std::atomic<int64_t> wide_count = 0;
  // A thread that owns only a few rows would mostly read indices.
  const int64_t work = a.positions * (a.cols() + 1) + count * a.cols();
  const int threads = work < 2 * kGrainElements ? 1 : thread_count;
  parallel_for(threads, count, 1,
               [&](int64_t begin, int64_t end) { add_to_rows(a, begin, end, wrong, wide_count); });
  if (count == 0 && a.positions != 0) wrong.set(a.place(0));
  wrong.check("embedding_backward", a.checked, count);
}

// The places in the workspace.
struct Places {
  explicit Places(const bp_embedding_backward_args& args) {
    const RowOperations operations = HWY_DYNAMIC_DISPATCH(row_operations)(args.grad_y->dtype);
    const auto reserve = [&](int64_t count, size_t element_size_bytes) {
      return reserve_bytes(static_cast<uint64_t>(count) * element_size_bytes, size_bytes);
    };
    const int64_t rows = args.grad_weight->shape[0], cols = args.grad_weight->shape[1];
    const int64_t wide_count = element_count(*args.indices) / kMostGradients;
    sums = reserve(rows * cols, static_cast<size_t>(operations.sum_size_bytes));
    wide_rows = reserve(wide_count == 0 ? 0 : rows, sizeof(int64_t));
    wide_sums = reserve(std::min(wide_count, rows) * cols, sizeof(double));
    counts = reserve(rows, sizeof(uint8_t));
  }
  uint64_t size_bytes = 0, sums, wide_rows, wide_sums, counts;
};

uint64_t embedding_backward_workspace(const bp_embedding_backward_args& args, const Env&) {
  return Places(args).size_bytes;
}

bp_status embedding_backward_launch(const bp_embedding_backward_args& args, Launch& launch) {
  Addition addition;
  addition.grad_y = view_of(*args.grad_y);
  addition.indices = view_of(*args.indices);
  addition.grad_weight = view_of(*args.grad_weight);
  addition.checked = IndexTensor(*args.indices);
  addition.bounds = Bounds(args.num_embeddings, args.bounds);
  addition.has_dense_indices = is_contiguous(*args.indices);
  addition.positions = element_count(*args.indices);
  addition.item_size_bytes = dtype_size_bytes(args.grad_y->dtype);
  addition.operations = HWY_DYNAMIC_DISPATCH(row_operations)(args.grad_y->dtype);
  const Places places(args);
  std::byte* const workspace = launch.workspace();
  if (addition.operations.sum_size_bytes != 0) addition.sums = workspace + places.sums;
  addition.wide_rows = reinterpret_cast<int64_t*>(workspace + places.wide_rows);
  addition.wide_sums = reinterpret_cast<double*>(workspace + places.wide_sums);
  addition.counts = reinterpret_cast<uint8_t*>(workspace + places.counts);
  return launch.submit(
      [addition, threads = launch.thread_count()] { add_rows(addition, threads); });
}

constexpr auto kDtypes = with_indices(kFloatDtypes);

}  // namespace

extern constinit const bp_kernel kEmbeddingBackward =
    make_kernel<bp_embedding_backward_args, embedding_backward_launch, nullptr,
                embedding_backward_workspace>(
        kernel_row("embedding_backward", BP_OP_EMBEDDING_BACKWARD, {kDtypes, 2}));

}  // namespace bp::kernels
#endif  // HWY_ONCE
