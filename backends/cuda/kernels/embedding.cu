// embedding_backward sorts positions by the row that they name (indices.cuh), and adds up each run
// of them (runs.cuh), so that a row that very many positions name, such as that of the padding, is
// added up by many blocks. Sums of 16-bit floats are f32, and are rounded once. The op embedding is
// in gather.cu.
//
// The limit is memory: the gradient of y is read once, and that of the table is written twice,
// because rows without positions are set to 0 first.
#include "backends/cuda/kernels/indices.cuh"
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/runs.cuh"

namespace bp::cuda {
namespace {

struct AddPlan {
  RowTensor grad_y, grad_weight;
  const uint32_t* positions = nullptr;
  Runs runs;                     // The keys are rows.
  std::byte* parts = nullptr;    // kPartsOfChunk rows of `count` sums for each chunk.
  uint32_t rows = 0, count = 0;  // Of the table.
};

// One column of the table.
template <typename T>
struct Column {
  using Sum = Compute<T>;

  __device__ Sum term(int64_t k) const {
    return widen(plan.grad_y.row<T>(plan.positions[k])[plan.grad_y.elements.offset(number)]);
  }
  __device__ void finish(uint32_t row, Sum total) const {
    plan.grad_weight.row<T>(row)[plan.grad_weight.elements.offset(number)] =
        narrow<T>(Sum(0) + total);  // No gradient is -0.
  }
  __device__ Sum* part(int64_t at) const {
    return reinterpret_cast<Sum*>(plan.parts) + at * plan.count + number;
  }

  const AddPlan& plan;
  uint32_t number;
};

template <typename T>
__global__ void __launch_bounds__(kRowThreads) clear_rows_kernel(AddPlan plan) {
  T* const row = plan.grad_weight.row<T>(blockIdx.x);
  for (uint32_t i = threadIdx.x; i < plan.count; i += kRowThreads) {
    row[plan.grad_weight.elements.offset(i)] = T(0);
  }
}

// Adds up chunks, or joins the parts that they left.
template <typename T, bool kJoinsParts>
__global__ void __launch_bounds__(kRowThreads) add_runs_kernel(AddPlan plan) {
  const Column<T> column{plan, blockIdx.y * kRowThreads + threadIdx.x};
  if (column.number >= plan.count) return;
  const auto finish = [&](uint32_t row, auto total) { column.finish(row, total); };
  const auto part = [&](int64_t at) { return column.part(at); };
  if constexpr (kJoinsParts) {
    add_parts<Compute<T>>(plan.runs, blockIdx.x, finish, part);
  } else {
    const auto term = [&](int64_t k) { return column.term(k); };
    add_chunk<Compute<T>>(plan.runs, blockIdx.x, term, finish, part);
  }
}

template <typename T>
bp_status add_rows(const AddPlan& plan, Launch& launch) {
  if (plan.rows == 0 || plan.count == 0) return BP_OK;
  bp_status status = run<clear_rows_kernel<T>>(launch, plan.rows, kRowThreads, 0, plan);
  if (status != BP_OK || plan.runs.count == 0) return status;
  const dim3 blocks(static_cast<unsigned>(plan.runs.chunk_count()),
                    (plan.count + kRowThreads - 1) / kRowThreads);
  status = run<add_runs_kernel<T, false>>(launch, blocks, kRowThreads, 0, plan);
  if (status != BP_OK || plan.runs.chunk_count() == 1) return status;
  return run<add_runs_kernel<T, true>>(launch, blocks, kRowThreads, 0, plan);
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
  plan.positions = indices.sorted.positions;
  plan.runs.keys = indices.sorted.keys;
  plan.runs.count = indices.count;
  plan.runs.chunk = chunk_of(indices.count);
  plan.grad_y = row_tensor(*args.grad_y, last_axes(args.grad_y->ndim, 1));
  plan.grad_weight = row_tensor(*args.grad_weight, last_axes(2, 1));
  plan.parts = launch.workspace() + sorting_bytes(args);
  plan.rows = plan.runs.extent = static_cast<uint32_t>(args.grad_weight->shape[0]);
  plan.count = static_cast<uint32_t>(args.grad_weight->shape[1]);
  return with_float(args.grad_y->dtype, [&]<typename T>(T) { return add_rows<T>(plan, launch); });
}

uint64_t workspace(const bp_embedding_backward_args& args, const Env&) {
  const int64_t positions = element_count(*args.indices), chunk = chunk_of(positions);
  const int64_t chunks = (positions + chunk - 1) / chunk;
  const int64_t sums = kPartsOfChunk * chunks * args.grad_weight->shape[1];
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
