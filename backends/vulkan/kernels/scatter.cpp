// scatter and scatter_reduce, and the scatters of other ops (scatter.comp).
#include "backends/vulkan/kernels/scatter.hpp"

#include <algorithm>

#include "backends/vulkan/kernels/map.hpp"
#include "backends/vulkan/kernels/scratch.hpp"
#include "backends/vulkan/kernels/walk.hpp"

namespace bp::vulkan {
namespace {

constexpr bp_dtype kSummed[] = {BP_F32, BP_F16, BP_BF16, BP_I32, BP_I64};

struct ScatterRecord {
  uint64_t y, src, indices, failure;
  uint64_t lost;
  uint64_t line_count;
  uint32_t walk_begin, walk_end;
  int64_t place_count;
  uint32_t line_extents[BP_MAX_RANK];
  int64_t line_y[BP_MAX_RANK], line_src[BP_MAX_RANK], line_indices[BP_MAX_RANK];
  uint32_t walk_extents[BP_MAX_RANK];
  int64_t walk_src[BP_MAX_RANK], walk_indices[BP_MAX_RANK];
  uint32_t place_extents[BP_MAX_RANK];
  int64_t place_y[BP_MAX_RANK];
};

// The most steps of one dispatch.
constexpr int64_t kMostTrips = 32768;

// Writes a walk to a record. Returns its rank, at least 1.
uint32_t put(const Walk& walk, uint32_t* extents, std::initializer_list<int64_t*> strides) {
  std::fill_n(extents, BP_MAX_RANK, 1u);
  for (size_t i = 0; i < walk.rank; ++i) {
    extents[i] = static_cast<uint32_t>(walk.extents[i]);
    size_t k = 0;
    for (int64_t* to : strides) to[i] = walk.strides[k++][i];
  }
  return std::max(walk.rank, 1u);
}

}  // namespace

bp_status submit_scatter(Launch& launch, const Scatter& s) {
  const int64_t y_item = dtype_size_bytes(s.y.tensor->dtype);
  const int64_t src_item = dtype_size_bytes(s.src.tensor->dtype);
  const int64_t index_item = dtype_size_bytes(s.indices.tensor->dtype);
  const WalkOperand lines[] = {{s.y.line.data(), y_item},
                               {s.src.line.data(), src_item},
                               {s.indices.line.data(), index_item}};
  const WalkOperand walked[] = {{s.src.walk.data(), src_item}, {s.indices.walk.data(), index_item}};
  const WalkOperand placed[] = {{s.place.data(), y_item}};
  const Walk line = make_walk(s.line_ndim, s.line_shape.data(), lines);
  // The walk is in row-major order, which decides which of equal indices is the last, and where an
  // element lies.
  const Walk walk = make_walk(s.walk_ndim, s.walk_shape.data(), walked, true);
  const Walk place = make_walk(s.place_ndim, s.place_shape.data(), placed, true);
  if (line.count == 0 || walk.count == 0) return BP_OK;

  ScatterRecord record{};
  record.y = address_of(launch, s.y.tensor);
  record.src = launch.device_address(*s.src.tensor);
  record.indices = launch.device_address(*s.indices.tensor);
  record.failure = launch.failure_address(
      wrong_index(s.op, "indices", *s.indices.tensor, record.indices, place.count));
  record.lost = s.lost;
  record.line_count = static_cast<uint64_t>(line.count);
  record.place_count = place.count;
  const bp_dtype of_y = s.y.tensor->dtype,
                 dtype = s.adds ? one_of(kSummed, of_y) : moved_dtype(of_y);
  const std::array<uint32_t, 10> constants = {
      local_size(launch),
      s.adds ? 1u : 0u,
      dtype,
      s.adds ? one_of(kSummed, s.src.tensor->dtype) : dtype,
      one_of(kIndexDtypes, s.indices.tensor->dtype),
      put(line, record.line_extents, {record.line_y, record.line_src, record.line_indices}),
      put(walk, record.walk_extents, {record.walk_src, record.walk_indices}),
      put(place, record.place_extents, {record.place_y}),
      s.skips_minus_one ? 1u : 0u,
      clamps(s.bounds)};
  const Module& module = is_f32_class(dtype) ? kScatterF32Module : kScatterI64Module;
  const uint64_t groups = ceil_divide(record.line_count, local_size(launch));
  for (int64_t begin = 0; begin < walk.count; begin += kMostTrips) {
    record.walk_begin = static_cast<uint32_t>(begin);
    record.walk_end = static_cast<uint32_t>(std::min(begin + kMostTrips, walk.count));
    Ranges writes(launch, {s.y.tensor});
    if (s.lost != 0) writes.add(launch.workspace());
    const bp_status status = submit(launch, module, constants, record, groups,
                                    {Ranges(launch, {s.src.tensor, s.indices.tensor}), writes});
    if (status != BP_OK) return status;
  }
  return BP_OK;
}

namespace {

// The sums of a scatter. Sums of floats are f32 without gaps, which is y itself if y is so. Their
// rounding errors lie in a second tensor. Integers are added in y.
struct SumScratch {
  SumScratch(const bp_tensor& y, Scratch scratch)
      : is_exact(!is_f32_class(y.dtype)),
        is_y(is_exact || (y.dtype == BP_F32 && is_contiguous(y))),
        own(is_y ? ScratchTensor() : scratch.take(BP_F32, y.shape, y.ndim)),
        lost(is_exact ? ScratchTensor() : scratch.take(BP_F32, y.shape, y.ndim)),
        size_bytes(scratch.size_bytes()) {}

  const bool is_exact, is_y;
  const ScratchTensor own, lost;
  const uint64_t size_bytes;
};

constexpr uint64_t kMinusZero = 0x80000000u;  // Adding -0 changes no sum.

}  // namespace

uint64_t sum_workspace(const bp_tensor& y) { return SumScratch(y, Scratch()).size_bytes; }

bp_status submit_scatter_sum(Launch& launch, const bp_tensor& y, const bp_tensor* base,
                             const std::function<Scatter(const bp_tensor& y)>& scatter_to) {
  if (element_count(y) == 0) return submit_scatter(launch, scatter_to(y));
  const SumScratch scratch(y, Scratch(launch));
  const bp_tensor& sums = scratch.is_y ? y : scratch.own.tensor();
  bp_status status = submit_map(launch, kMapCopy, {&sums, base});
  if (status != BP_OK) return status;
  Scatter scatter = scatter_to(sums);
  if (scratch.is_exact) return submit_scatter(launch, scatter);
  const bp_tensor& lost = scratch.lost.tensor();
  status = submit_map(launch, kMapCopy, {&lost, nullptr}, kMinusZero);
  scatter.lost = launch.device_address(lost) - launch.device_address(sums);
  if (status == BP_OK) status = submit_scatter(launch, scatter);
  return status == BP_OK ? submit_map(launch, kMapAdd, {&y, &sums, &lost}) : status;
}

namespace {

// Makes the scatter. The indices name places of y along `axis`; all other axes are lines.
template <typename Args>
Scatter scatter_along(const Args& args, const char* op, const bp_tensor& y) {
  const auto axis = static_cast<uint32_t>(args.axis);
  Scatter s{.op = op,
            .bounds = args.bounds,
            .walk_ndim = 1,
            .place_ndim = 1,
            .y = {&y},
            .src = {args.src}};
  s.indices.tensor = args.indices;
  for (uint32_t i = 0; i < y.ndim; ++i) {
    if (i == axis) continue;
    s.line_shape[s.line_ndim] = y.shape[i];
    s.y.line[s.line_ndim] = y.strides[i];
    s.src.line[s.line_ndim] = args.src->strides[i];
    s.indices.line[s.line_ndim++] = args.indices->strides[i];
  }
  s.walk_shape[0] = axis_extent(*args.indices, axis);
  s.src.walk[0] = axis_stride(*args.src, axis);
  s.indices.walk[0] = axis_stride(*args.indices, axis);
  s.place_shape[0] = axis_extent(y, axis);
  s.place[0] = axis_stride(y, axis);
  return s;
}

bp_status scatter_launch(const bp_scatter_args& args, Launch& launch) {
  const bp_status status = submit_move(launch, kMapCopy, {args.y, args.x});
  if (status != BP_OK) return status;
  return submit_scatter(launch, scatter_along(args, "scatter", *args.y));
}

bp_reason scatter_reduce_supports(const bp_scatter_reduce_args& args) {
  return args.reduction == BP_SCATTER_REDUCE_REDUCTION_SUM ? nullptr : "the reduction is not known";
}

uint64_t scatter_reduce_workspace(const bp_scatter_reduce_args& args, const Env&) {
  return sum_workspace(*args.y);
}

bp_status scatter_reduce_launch(const bp_scatter_reduce_args& args, Launch& launch) {
  return submit_scatter_sum(launch, *args.y, args.x, [&](const bp_tensor& y) {
    Scatter s = scatter_along(args, "scatter_reduce", y);
    s.adds = true;
    return s;
  });
}

constexpr auto kMovedRows = with_indices(kAnyDtypes);
constexpr auto kSummedRows = with_indices(kSummed);

}  // namespace

constinit const bp_kernel kScatter = make_kernel<bp_scatter_args, scatter_launch>(
    kernel_row("scatter", BP_OP_SCATTER, {kMovedRows, 2}, BP_KERNEL_IN_PLACE));

constinit const bp_kernel kScatterReduce =
    make_kernel<bp_scatter_reduce_args, scatter_reduce_launch, scatter_reduce_supports,
                scatter_reduce_workspace>(
        kernel_row("scatter_reduce", BP_OP_SCATTER_REDUCE, {kSummedRows, 2}, BP_KERNEL_IN_PLACE));

}  // namespace bp::vulkan
