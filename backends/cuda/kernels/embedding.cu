// embedding_backward sorts positions by the row that they name (indices.cuh), and adds up those of
// each row in order. The sorted list is cut into chunks, so that a row that very many positions
// name, such as that of the padding, is added up by many blocks: a run of positions that lies in
// one chunk is finished there, and the parts of a longer run are added up in order afterwards. Sums
// of 16-bit floats are f32, and are rounded once. The op embedding is in gather.cu.
//
// The limit is memory: the gradient of y is read once, and that of the table is written twice,
// because rows without positions are set to 0 first.
#include <algorithm>

#include "backends/cuda/kernels/indices.cuh"
#include "backends/cuda/kernels/list.hpp"

namespace bp::cuda {
namespace {

constexpr int64_t kLeastChunk = 32, kMostChunks = 2048;

struct AddPlan {
  RowTensor grad_y, grad_weight;
  SortedIndices sorted;
  void* parts = nullptr;  // Sums of each chunk: two rows of `count`, see slot_of().
  int64_t positions = 0, chunk = 0;
  uint32_t rows = 0, count = 0;  // Of the table.

  __host__ __device__ int64_t chunk_count() const { return (positions + chunk - 1) / chunk; }
  __host__ __device__ int64_t end_of(int64_t number) const {
    const int64_t end = (number + 1) * chunk;
    return end < positions ? end : positions;
  }
  // Returns whether the run of position k goes on behind it.
  __device__ bool goes_on(int64_t k) const {
    return k + 1 < positions && sorted.keys[k + 1] == sorted.keys[k];
  }
  // Returns the part of a chunk for a run that began in an earlier chunk, or in this one.
  template <typename Sum>
  __device__ Sum* part(int64_t number, bool is_begun) const {
    return static_cast<Sum*>(parts) + (2 * number + (is_begun ? 0 : 1)) * count;
  }
};

int64_t chunk_of(int64_t positions) {
  return std::max(kLeastChunk, (positions + kMostChunks - 1) / kMostChunks);
}

template <typename T>
__global__ void __launch_bounds__(kRowThreads) clear_rows_kernel(AddPlan plan) {
  T* const row = plan.grad_weight.row<T>(blockIdx.x);
  for (uint32_t i = threadIdx.x; i < plan.count; i += kRowThreads) {
    row[plan.grad_weight.elements.offset(i)] = T(0);
  }
}

// Adds up the runs of one chunk, for kRowThreads columns.
template <typename T>
__global__ void __launch_bounds__(kRowThreads) add_chunk_kernel(AddPlan plan) {
  using Sum = Compute<T>;
  const uint32_t column = blockIdx.y * kRowThreads + threadIdx.x;
  if (column >= plan.count) return;
  const int64_t chunk = blockIdx.x, first = chunk * plan.chunk, end = plan.end_of(chunk);
  const int64_t at = plan.grad_y.elements.offset(column);
  bool is_begun = first > 0 && plan.goes_on(first - 1);
  LongSum<Sum> sum;
  for (int64_t k = first; k < end; ++k) {
    const uint32_t key = plan.sorted.keys[k];
    if (key >= plan.rows) return;  // The index was out of range, and so are all behind it.
    sum.add(widen(plan.grad_y.row<T>(plan.sorted.positions[k])[at]));
    const bool goes_on = plan.goes_on(k);
    if (goes_on && k + 1 < end) continue;
    if (goes_on || is_begun) {
      plan.part<Sum>(chunk, is_begun)[column] = sum.total();
    } else {
      T* const row = plan.grad_weight.row<T>(key);
      row[plan.grad_weight.elements.offset(column)] = narrow<T>(sum.total());
    }
    is_begun = false;
    sum = LongSum<Sum>();
  }
}

// Adds up the parts of the run that begins in a chunk and ends in a later one, if there is one.
template <typename T>
__global__ void __launch_bounds__(kRowThreads) add_parts_kernel(AddPlan plan) {
  using Sum = Compute<T>;
  const uint32_t column = blockIdx.y * kRowThreads + threadIdx.x;
  const int64_t chunk = blockIdx.x, first = chunk * plan.chunk, last = plan.end_of(chunk) - 1;
  const uint32_t key = plan.sorted.keys[last];
  const bool began_before = first > 0 && plan.sorted.keys[first] == key && plan.goes_on(first - 1);
  if (column >= plan.count || key >= plan.rows || began_before || !plan.goes_on(last)) return;
  LongSum<Sum> sum(plan.part<Sum>(chunk, false)[column]);
  for (int64_t next = chunk + 1;
       next < plan.chunk_count() && plan.sorted.keys[next * plan.chunk] == key; ++next) {
    sum.add(plan.part<Sum>(next, true)[column]);
  }
  T* const row = plan.grad_weight.row<T>(key);
  row[plan.grad_weight.elements.offset(column)] = narrow<T>(sum.total());
}

template <typename T>
bp_status add_rows(const AddPlan& plan, Launch& launch) {
  if (plan.rows == 0 || plan.count == 0) return BP_OK;
  bp_status status = run<clear_rows_kernel<T>>(launch, plan.rows, kRowThreads, 0, plan);
  if (status != BP_OK || plan.positions == 0) return status;
  const dim3 blocks(static_cast<unsigned>(plan.chunk_count()),
                    (plan.count + kRowThreads - 1) / kRowThreads);
  status = run<add_chunk_kernel<T>>(launch, blocks, kRowThreads, 0, plan);
  return status == BP_OK ? run<add_parts_kernel<T>>(launch, blocks, kRowThreads, 0, plan) : status;
}

uint64_t sorting_bytes(const bp_embedding_backward_args& args) {
  return sort_indices_bytes(1, element_count(*args.indices));
}

bp_status embedding_backward_launch(const bp_embedding_backward_args& args, Launch& launch) {
  IndexPlan indices;
  indices.indices = elements_only(*args.indices);
  indices.lines = 1;
  indices.count = element_count(*args.indices);
  indices.bounds = {args.num_embeddings, args.bounds};
  indices.reporter = launch.reporter(*args.indices, "indices", indices.bounds.extent);
  const bp_status status =
      sort_indices(launch, indices, is_i64_index(args.indices->dtype), launch.workspace());
  if (status != BP_OK) return status;
  AddPlan plan;
  plan.sorted = indices.sorted;
  plan.grad_y = row_tensor(*args.grad_y, last_axes(args.grad_y->ndim, 1));
  plan.grad_weight = row_tensor(*args.grad_weight, last_axes(2, 1));
  plan.parts = launch.workspace() + sorting_bytes(args);
  plan.positions = indices.count;
  plan.chunk = chunk_of(indices.count);
  plan.rows = static_cast<uint32_t>(args.grad_weight->shape[0]);
  plan.count = static_cast<uint32_t>(args.grad_weight->shape[1]);
  return with_float(args.grad_y->dtype, [&]<typename T>(T) { return add_rows<T>(plan, launch); });
}

uint64_t workspace(const bp_embedding_backward_args& args, const Env&) {
  const int64_t positions = element_count(*args.indices), chunk = chunk_of(positions);
  const int64_t sums = 2 * ((positions + chunk - 1) / chunk) * args.grad_weight->shape[1];
  const uint64_t sum_bytes = args.grad_y->dtype == BP_F64 ? sizeof(double) : sizeof(float);
  return sorting_bytes(args) + static_cast<uint64_t>(sums) * sum_bytes;
}

bp_reason supports(const bp_embedding_backward_args& args) {
  constexpr int64_t kMostColumns = 65535 * int64_t{kRowThreads};
  if (args.grad_weight->shape[1] > kMostColumns) return "a row has too many elements";
  if (const bp_reason reason = too_many_rows(*args.grad_weight, last_axes(2, 1))) return reason;
  return too_many_rows(*args.grad_y, last_axes(args.grad_y->ndim, 1));
}

constexpr auto kDtypes = with_indices(kFloatDtypes);

}  // namespace

constinit const bp_kernel kEmbeddingBackward =
    make_kernel<bp_embedding_backward_args, embedding_backward_launch, supports, workspace>(
        kernel_row("embedding_backward", BP_OP_EMBEDDING_BACKWARD, {kDtypes, 2}));

}  // namespace bp::cuda
