// searchsorted, for tensors of every layout (searchsorted.comp).
#include <algorithm>
#include <array>

#include "backends/vulkan/kernels/rows.hpp"
#include "backends/vulkan/kernels/submit.hpp"
#include "backends/vulkan/kernels/walk.hpp"

namespace bp::vulkan {
namespace {

struct SearchRecord {
  uint64_t values, y, sorted;
  uint64_t count, size;
  int64_t step;
  uint32_t extents[BP_MAX_RANK];
  int64_t value_strides[BP_MAX_RANK], y_strides[BP_MAX_RANK], row_strides[BP_MAX_RANK];
};

const Module& module_of(bp_dtype dtype) {
  if (is_f32_class(dtype)) return kSearchsortedF32Module;
  return dtype == BP_F64 ? kSearchsortedF64Module : kSearchsortedI64Module;
}

// Returns a walk over the values and y, and over the first elements of the rows of `sorted`.
Walk walk_of(const bp_searchsorted_args& args) {
  const bp_tensor &values = *args.values, &sorted = *args.sorted;
  std::array<int64_t, BP_MAX_RANK> rows{};
  if (sorted.ndim > 1) std::copy_n(sorted.strides, sorted.ndim - 1, rows.begin());
  const std::array<WalkOperand, 3> operands = {
      WalkOperand{values.strides, dtype_size_bytes(values.dtype)},
      WalkOperand{args.y->strides, dtype_size_bytes(args.y->dtype)},
      WalkOperand{rows.data(), dtype_size_bytes(sorted.dtype)}};
  return make_walk(values.ndim, values.shape, operands);
}

bp_status search_launch(const bp_searchsorted_args& args, Launch& launch) {
  const bp_tensor& sorted = *args.sorted;
  const Walk walk = walk_of(args);
  if (walk.count == 0) return BP_OK;
  SearchRecord record{};
  record.values = launch.device_address(*args.values);
  record.y = launch.device_address(*args.y);
  record.sorted = address_of(launch, &sorted);
  record.count = static_cast<uint64_t>(walk.count);
  record.size = static_cast<uint64_t>(sorted.shape[sorted.ndim - 1]);
  record.step = sorted.strides[sorted.ndim - 1] * dtype_size_bytes(sorted.dtype);
  copy_extents(walk, record.extents);
  std::ranges::copy(walk.strides[0], record.value_strides);
  std::ranges::copy(walk.strides[1], record.y_strides);
  std::ranges::copy(walk.strides[2], record.row_strides);
  const std::array<uint32_t, 5> constants = {
      local_size(launch), one_of(kNumberDtypes, sorted.dtype), std::max(walk.rank, 1u),
      args.side == BP_SEARCHSORTED_SIDE_RIGHT ? 1u : 0u, one_of(kIndexDtypes, args.y->dtype)};
  return submit(launch, module_of(sorted.dtype), constants, record,
                ceil_divide(record.count, local_size(launch)),
                {Ranges(launch, {args.values, &sorted}), Ranges(launch, {args.y})});
}

bp_reason search_supports(const bp_searchsorted_args& args) {
  // A place may also be behind the last element.
  const int64_t length = args.sorted->shape[args.sorted->ndim - 1];
  if (const bp_reason reason = index_reason(args.y, length + 1)) return reason;
  const bool is_counted = element_count(*args.values) < int64_t{1} << 31;
  return is_counted ? nullptr : "there are 2^31 values or more";
}

constexpr auto kDtypes = with_indices(kNumberDtypes);

}  // namespace

constinit const bp_kernel kSearchsorted =
    make_kernel<bp_searchsorted_args, search_launch, search_supports>(
        kernel_row("searchsorted", BP_OP_SEARCHSORTED, {kDtypes, 2}));

}  // namespace bp::vulkan
