// sort and topk along an axis, stable, for tensors of every layout (records.cuh).
#include <utility>

#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/records.cuh"
#include "backends/cuda/kernels/rows.cuh"

namespace bp::cuda {
namespace {

struct SortRows {
  RowTensor x, y, indices;
  bool has_indices = false, is_i64 = false, is_descending = false;
  int64_t lines = 0, count = 0, kept = 0;  // `kept` elements of each line are written.
  void* records = nullptr;
};

template <typename T>
__global__ void __launch_bounds__(kBlockThreads) make_records_kernel(SortRows plan) {
  using Record = RecordOf<T>;
  const int64_t at = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x;
  if (at >= plan.lines * plan.count) return;
  const auto line = static_cast<uint32_t>(at / plan.count),
             i = static_cast<uint32_t>(at % plan.count);
  const uint64_t key = key_of(plan.x.row<T>(line)[plan.x.elements.offset(i)]);
  static_cast<Record*>(plan.records)[at] =
      Record(plan.is_descending ? ~key & key_mask<T>() : key, i);
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads) write_sorted_kernel(SortRows plan) {
  using Record = RecordOf<T>;
  const int64_t at = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x;
  if (at >= plan.lines * plan.kept) return;
  const auto line = static_cast<uint32_t>(at / plan.kept),
             i = static_cast<uint32_t>(at % plan.kept);
  const auto index = static_cast<uint32_t>(
      static_cast<const Record*>(plan.records)[line * plan.count + i].index());
  plan.y.row<T>(line)[plan.y.elements.offset(i)] =
      plan.x.row<T>(line)[plan.x.elements.offset(index)];
  if (plan.has_indices) {
    const int64_t to = plan.indices.elements.offset(i);
    if (plan.is_i64) {
      plan.indices.row<int64_t>(line)[to] = index;
    } else {
      plan.indices.row<int32_t>(line)[to] = static_cast<int32_t>(index);
    }
  }
}

template <typename T>
bp_status sort_rows(SortRows plan, Launch& launch) {
  using Record = RecordOf<T>;
  auto* const records = reinterpret_cast<Record*>(launch.workspace());
  plan.records = records;
  bp_status status = run<make_records_kernel<T>>(
      launch, blocks_for(plan.lines * plan.count, kBlockThreads), kBlockThreads, 0, plan);
  if (status != BP_OK) return status;
  const Record* sorted = nullptr;
  status = sort_records(launch, records, plan.lines, plan.count, &sorted);
  if (status != BP_OK) return status;
  plan.records = const_cast<Record*>(sorted);
  return run<write_sorted_kernel<T>>(launch, blocks_for(plan.lines * plan.kept, kBlockThreads),
                                     kBlockThreads, 0, plan);
}

template <typename Args>
bp_status submit(const Args& args, bool is_descending, Launch& launch) {
  const uint32_t axes = 1u << args.axis;
  SortRows plan;
  plan.x = row_tensor(*args.x, axes);
  plan.y = row_tensor(*args.y, axes);
  plan.has_indices = args.indices != nullptr;
  if (plan.has_indices) {
    plan.indices = row_tensor(*args.indices, axes);
    plan.is_i64 = is_i64_index(args.indices->dtype);
  }
  plan.is_descending = is_descending;
  const RowExtents extents = row_extents(*args.x, axes);
  plan.lines = extents.rows;
  plan.count = extents.count;
  plan.kept = axis_extent(*args.y, static_cast<size_t>(args.axis));
  if (plan.lines == 0 || plan.kept == 0) return BP_OK;
  return with_number(args.x->dtype, [&]<typename T>(T) { return sort_rows<T>(plan, launch); });
}

bp_status sort_launch(const bp_sort_args& args, Launch& launch) {
  return submit(args, args.is_descending != 0, launch);
}
bp_status topk_launch(const bp_topk_args& args, Launch& launch) {
  return submit(args, args.is_largest != 0, launch);
}

template <typename Args>
uint64_t workspace(const Args& args, const Env&) {
  const RowExtents extents = row_extents(*args.x, 1u << args.axis);
  return dtype_size_bytes(args.x->dtype) == 8
             ? records_size_bytes<Wide>(extents.rows, extents.count)
             : records_size_bytes<Packed>(extents.rows, extents.count);
}

template <typename Args>
bp_reason supports(const Args& args) {
  const bp_reason reason =
      index_reason(args.indices, axis_extent(*args.x, static_cast<size_t>(args.axis)));
  return reason != nullptr ? reason : too_many_rows(*args.x, 1u << args.axis);
}

constexpr auto kDtypes = with_indices(kNumberDtypes);

}  // namespace

constinit const bp_kernel kSort =
    make_kernel<bp_sort_args, sort_launch, supports<bp_sort_args>, workspace<bp_sort_args>>(
        kernel_row("sort", BP_OP_SORT, {kDtypes, 2}));
constinit const bp_kernel kTopk =
    make_kernel<bp_topk_args, topk_launch, supports<bp_topk_args>, workspace<bp_topk_args>>(
        kernel_row("topk", BP_OP_TOPK, {kDtypes, 2}));

}  // namespace bp::cuda
