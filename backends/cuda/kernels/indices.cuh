// Sums of elements that indices name. Records of (index, position) are sorted, and each result adds
// its records in the order of their positions, so equal input gives equal bits.
#pragma once

#include "backends/cuda/kernels/records.cuh"
#include "backends/cuda/kernels/rows.cuh"

namespace bp::cuda {

// There are `lines` lines of `count` indices.
struct IndexPlan {
  RowTensor indices;
  int64_t lines = 0, count = 0;
  Bounds bounds;
  Packed* records = nullptr;
  Reporter reporter{};
};

// Makes the records of all indices. An index out of range is reported, and names no result.
template <typename Index>
__global__ void __launch_bounds__(kBlockThreads) index_records_kernel(IndexPlan plan) {
  const int64_t at = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x;
  if (at >= plan.lines * plan.count) return;
  const auto line = static_cast<uint32_t>(at / plan.count);
  const auto i = static_cast<uint32_t>(at % plan.count);
  const Index* const place = plan.indices.row<Index>(line) + plan.indices.elements.offset(i);
  const int64_t index = plan.bounds.acting(*place);
  const bool is_inside = plan.bounds.contains(index);
  if (!is_inside) report(plan.reporter, index, place);
  plan.records[at] = Packed(is_inside ? static_cast<uint64_t>(index) : 0xFFFFFFFFu, i);
}

// Makes and sorts the records, in memory of records_size_bytes<Packed>().
inline bp_status sort_indices(Launch& launch, const IndexPlan& plan, bool is_i64,
                              const Packed** out_sorted) {
  const unsigned blocks = blocks_for(plan.lines * plan.count, kBlockThreads);
  const bp_status status =
      is_i64 ? run<index_records_kernel<int64_t>>(launch, blocks, kBlockThreads, 0, plan)
             : run<index_records_kernel<int32_t>>(launch, blocks, kBlockThreads, 0, plan);
  if (status != BP_OK) return status;
  return sort_records(launch, plan.records, plan.lines, plan.count, out_sorted);
}

}  // namespace bp::cuda
