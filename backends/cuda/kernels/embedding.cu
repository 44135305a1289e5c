// embedding_backward sorts positions by the row that they name, and a block adds those of its row
// in order (indices.cuh). Sums of 16-bit floats are f32, and are rounded once. The op embedding is
// in gather.cu.
#include "backends/cuda/kernels/indices.cuh"
#include "backends/cuda/kernels/list.hpp"

namespace bp::cuda {
namespace {

struct AddPlan {
  RowTensor grad_y, grad_weight;
  const Packed* sorted = nullptr;
  int64_t positions = 0;
  uint32_t count = 0;  // The elements of a row.
};

template <typename T>
__global__ void __launch_bounds__(kRowThreads) add_rows_kernel(AddPlan plan) {
  const uint32_t row = blockIdx.x;
  const int64_t begin = count_before(plan.sorted, plan.positions, Packed(row, 0));
  T* const grad_weight = plan.grad_weight.row<T>(row);
  for (uint32_t i = threadIdx.x; i < plan.count; i += kRowThreads) {
    const int64_t at = plan.grad_y.elements.offset(i);
    LongSum<Compute<T>> sum;
    for (int64_t k = begin; k < plan.positions && plan.sorted[k].key() == row; ++k) {
      sum.add(widen(plan.grad_y.row<T>(static_cast<uint32_t>(plan.sorted[k].index()))[at]));
    }
    grad_weight[plan.grad_weight.elements.offset(i)] = narrow<T>(sum.total());
  }
}

bp_status embedding_backward_launch(const bp_embedding_backward_args& args, Launch& launch) {
  IndexPlan indices;
  indices.indices = elements_only(*args.indices);
  indices.lines = 1;
  indices.count = element_count(*args.indices);
  indices.extent = args.num_embeddings;
  indices.records = launch.workspace<Packed>();
  indices.reporter = launch.reporter(*args.indices, "indices", indices.extent);
  AddPlan plan;
  const bp_status status =
      sort_indices(launch, indices, is_i64_index(args.indices->dtype), &plan.sorted);
  if (status != BP_OK) return status;
  plan.grad_y = row_tensor(*args.grad_y, last_axes(args.grad_y->ndim, 1));
  plan.grad_weight = row_tensor(*args.grad_weight, last_axes(2, 1));
  plan.positions = indices.count;
  plan.count = static_cast<uint32_t>(args.grad_weight->shape[1]);
  const auto rows = static_cast<unsigned>(args.grad_weight->shape[0]);
  return with_float(args.grad_y->dtype, [&]<typename T>(T) {
    return run<add_rows_kernel<T>>(launch, rows, kRowThreads, 0, plan);
  });
}

uint64_t workspace(const bp_embedding_backward_args& args, const Env&) {
  return records_size_bytes<Packed>(1, element_count(*args.indices));
}

bp_reason supports(const bp_embedding_backward_args& args) {
  if (const bp_reason reason = too_many_rows(*args.grad_weight, last_axes(2, 1))) return reason;
  return too_many_rows(*args.grad_y, last_axes(args.grad_y->ndim, 1));
}

constexpr auto kDtypes = with_indices(kFloatDtypes);

}  // namespace

constinit const bp_kernel kEmbeddingBackward =
    make_kernel<bp_embedding_backward_args, embedding_backward_launch, supports, workspace>(
        kernel_row("embedding_backward", BP_OP_EMBEDDING_BACKWARD, {kDtypes, 2}));

}  // namespace bp::cuda
