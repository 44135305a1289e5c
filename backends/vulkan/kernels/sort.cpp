// sort and topk along any axis (sort.comp): a merge sort of keys in the workspace.
#include <algorithm>
#include <utility>

#include "backends/vulkan/kernels/rows.hpp"
#include "backends/vulkan/kernels/scratch.hpp"

namespace bp::vulkan {
namespace {

enum SortStage : uint32_t { kEncode = 0, kMerge = 1, kWrite = 2 };

struct SortRecord {
  uint64_t x, y, indices;
  uint64_t keys, places, merged_keys, merged_places;
  int64_t x_step, y_step, index_step;
  uint32_t count, size, written, run;
  uint32_t extents[BP_MAX_RANK];
  int64_t x_strides[BP_MAX_RANK], y_strides[BP_MAX_RANK], index_strides[BP_MAX_RANK];
};

struct Sort {
  const bp_tensor &x, &y;
  const bp_tensor* indices;
  uint32_t axis;
  bool is_descending;
};

Sort sort_of(const bp_sort_args& args) {
  return {*args.x, *args.y, args.indices, static_cast<uint32_t>(args.axis),
          args.is_descending != 0};
}

Sort sort_of(const bp_topk_args& args) {
  return {*args.x, *args.y, args.indices, static_cast<uint32_t>(args.axis), args.is_largest != 0};
}

// Two copies of keys and places. A pass reads one copy and writes the other.
struct SortScratch {
  SortScratch(const bp_tensor& x, Scratch scratch) {
    const auto count = static_cast<uint64_t>(element_count(x));
    for (uint64_t& address : keys) address = scratch.take_bytes(count * sizeof(uint64_t));
    for (uint64_t& address : places) address = scratch.take_bytes(count * sizeof(uint32_t));
    size_bytes = scratch.size_bytes();
  }
  uint64_t keys[2], places[2];
  uint64_t size_bytes;
};

SortRecord record_of(Launch& launch, const Sort& s, const Walk& rows) {
  SortRecord record{};
  record.x = launch.device_address(s.x);
  record.y = launch.device_address(s.y);
  record.indices = address_of(launch, s.indices);
  record.x_step = axis_stride(s.x, s.axis) * dtype_size_bytes(s.x.dtype);
  record.y_step = axis_stride(s.y, s.axis) * dtype_size_bytes(s.y.dtype);
  if (s.indices != nullptr) {
    record.index_step = axis_stride(*s.indices, s.axis) * dtype_size_bytes(s.indices->dtype);
  }
  record.size = static_cast<uint32_t>(axis_extent(s.x, s.axis));
  record.written = static_cast<uint32_t>(axis_extent(s.y, s.axis));
  copy_extents(rows, record.extents);
  std::ranges::copy(rows.strides[0], record.x_strides);
  std::ranges::copy(rows.strides[1], record.y_strides);
  std::ranges::copy(rows.strides[2], record.index_strides);
  return record;
}

const Module& module_of(bp_dtype dtype) {
  if (is_f32_class(dtype)) return kSortF32Module;
  return dtype == BP_F64 ? kSortF64Module : kSortI64Module;
}

bp_status submit_sort(Launch& launch, const Sort& s) {
  if (element_count(s.y) == 0) return BP_OK;
  const Walk rows = make_row_walk({&s.x, &s.y, s.indices}, s.axis, 1);
  SortRecord record = record_of(launch, s, rows);
  const auto row_count = static_cast<uint32_t>(rows.count);
  const bp_dtype index_dtype = s.indices == nullptr ? bp_dtype{BP_I64} : s.indices->dtype;
  const auto submit_stage = [&](SortStage stage, const Ranges& reads, const Ranges& writes) {
    record.count = row_count * (stage == kWrite ? record.written : record.size);
    const std::array<uint32_t, 6> constants = {local_size(launch),
                                               stage,
                                               one_of(kNumberDtypes, s.x.dtype),
                                               std::max(rows.rank, 1u),
                                               s.is_descending ? 1u : 0u,
                                               one_of(kIndexDtypes, index_dtype)};
    return submit(launch, module_of(s.x.dtype), constants, record,
                  ceil_divide(record.count, local_size(launch)), {reads, writes});
  };
  const SortScratch scratch(s.x, Scratch(launch));
  Ranges kept(launch), read(launch, {&s.x});
  kept.add(launch.workspace());
  record.keys = scratch.keys[0];
  record.places = scratch.places[0];
  record.merged_keys = scratch.keys[1];
  record.merged_places = scratch.places[1];
  bp_status status = submit_stage(kEncode, read, kept);
  for (uint64_t run = 1; run < record.size && status == BP_OK; run *= 2) {
    record.run = static_cast<uint32_t>(run);
    status = submit_stage(kMerge, kept, kept);
    std::swap(record.keys, record.merged_keys);
    std::swap(record.places, record.merged_places);
  }
  if (status != BP_OK) return status;
  read.add(launch.workspace());
  return submit_stage(kWrite, read, Ranges(launch, {&s.y, s.indices}));
}

template <typename Args>
bp_status sort_launch(const Args& args, Launch& launch) {
  return submit_sort(launch, sort_of(args));
}

template <typename Args>
uint64_t sort_workspace(const Args& args, const Env&) {
  return SortScratch(*args.x, Scratch()).size_bytes;
}

template <typename Args>
bp_reason sort_supports(const Args& args) {
  const bool is_small = element_count(*args.x) < int64_t{1} << 31;
  return is_small ? nullptr : "x has 2^31 elements or more";
}

template <typename Args>
constexpr bp_kernel sort_kernel(const bp_kernel& row) {
  return make_kernel<Args, sort_launch<Args>, sort_supports<Args>, sort_workspace<Args>>(row);
}

constexpr auto kDtypes = with_indices(kNumberDtypes);

}  // namespace

constinit const bp_kernel kSort =
    sort_kernel<bp_sort_args>(kernel_row("sort", BP_OP_SORT, {kDtypes, 2}));
constinit const bp_kernel kTopk =
    sort_kernel<bp_topk_args>(kernel_row("topk", BP_OP_TOPK, {kDtypes, 2}));

}  // namespace bp::vulkan
