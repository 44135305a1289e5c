// gather, index_select and embedding (index.comp). All three walk over y; x and the indices move
// along some axes only.
#include <algorithm>

#include "backends/vulkan/kernels/indices.hpp"
#include "backends/vulkan/kernels/submit.hpp"
#include "backends/vulkan/kernels/walk.hpp"

namespace bp::vulkan {
namespace {

struct IndexRecord {
  uint64_t y, x, indices, failure;
  uint64_t count;
  int64_t axis_stride, axis_extent;
  uint32_t extents[BP_MAX_RANK];
  int64_t y_strides[BP_MAX_RANK], x_strides[BP_MAX_RANK], index_strides[BP_MAX_RANK];
};

// The strides of x and of the indices along the axes of y, and the axis of x that the indices name.
struct Selection {
  const char* op;
  const bp_tensor &y, &x, &indices;
  Strides x_strides{}, index_strides{};
  uint32_t axis;
  uint32_t bounds;
};

bp_status submit_selection(Launch& launch, const Selection& s) {
  const int64_t item = dtype_size_bytes(one_of(kAnyDtypes, s.y.dtype));
  const WalkOperand operands[] = {{s.y.strides, item},
                                  {s.x_strides.data(), item},
                                  {s.index_strides.data(), dtype_size_bytes(s.indices.dtype)}};
  const Walk walk = make_walk(s.y.ndim, s.y.shape, operands);
  if (walk.count == 0) return BP_OK;
  if (walk.count > int64_t{1} << 31) {
    return launch.refuse(BP_UNSUPPORTED, std::string(s.op) + ": y has more than 2^31 elements");
  }
  IndexRecord record{};
  record.y = launch.device_address(s.y);
  record.x = address_of(launch, &s.x);
  record.indices = launch.device_address(s.indices);
  record.failure = launch.failure_address(
      wrong_index(s.op, "indices", s.indices, record.indices, axis_extent(s.x, s.axis)));
  record.count = static_cast<uint64_t>(walk.count);
  record.axis_stride = axis_stride(s.x, s.axis) * item;
  record.axis_extent = axis_extent(s.x, s.axis);
  std::fill_n(record.extents, BP_MAX_RANK, 1u);
  for (size_t i = 0; i < walk.rank; ++i) {
    record.extents[i] = static_cast<uint32_t>(walk.extents[i]);
    record.y_strides[i] = walk.strides[0][i];
    record.x_strides[i] = walk.strides[1][i];
    record.index_strides[i] = walk.strides[2][i];
  }
  const std::array<uint32_t, 5> constants = {local_size(launch), static_cast<uint32_t>(item),
                                             one_of(kIndexDtypes, s.indices.dtype),
                                             std::max(walk.rank, 1u), clamps(s.bounds)};
  return submit(launch, kIndexModule, constants, record,
                ceil_divide(record.count, local_size(launch)),
                {Ranges(launch, {&s.x, &s.indices}), Ranges(launch, {&s.y})});
}

bp_status gather_launch(const bp_gather_args& args, Launch& launch) {
  const auto axis = static_cast<uint32_t>(args.axis);
  Selection s{.op = "gather",
              .y = *args.y,
              .x = *args.x,
              .indices = *args.indices,
              .axis = axis,
              .bounds = args.bounds};
  std::copy_n(args.x->strides, args.x->ndim, s.x_strides.begin());
  std::copy_n(args.indices->strides, args.indices->ndim, s.index_strides.begin());
  s.x_strides[axis] = 0;
  return submit_selection(launch, s);
}

bp_status index_select_launch(const bp_index_select_args& args, Launch& launch) {
  const auto axis = static_cast<uint32_t>(args.axis);
  Selection s{.op = "index_select",
              .y = *args.y,
              .x = *args.x,
              .indices = *args.indices,
              .axis = axis,
              .bounds = args.bounds};
  std::copy_n(args.x->strides, args.x->ndim, s.x_strides.begin());
  s.x_strides[axis] = 0;
  s.index_strides[axis] = args.indices->strides[0];
  return submit_selection(launch, s);
}

bp_status embedding_launch(const bp_embedding_args& args, Launch& launch) {
  Selection s{.op = "embedding",
              .y = *args.y,
              .x = *args.weight,
              .indices = *args.indices,
              .axis = 0,
              .bounds = args.bounds};
  std::copy_n(args.indices->strides, args.indices->ndim, s.index_strides.begin());
  s.x_strides[args.indices->ndim] = args.weight->strides[1];
  return submit_selection(launch, s);
}

constexpr auto kDtypes = with_indices(kAnyDtypes);

}  // namespace

constinit const bp_kernel kGather =
    make_kernel<bp_gather_args, gather_launch>(kernel_row("gather", BP_OP_GATHER, {kDtypes, 2}));
constinit const bp_kernel kIndexSelect = make_kernel<bp_index_select_args, index_select_launch>(
    kernel_row("index_select", BP_OP_INDEX_SELECT, {kDtypes, 2}));
constinit const bp_kernel kEmbedding = make_kernel<bp_embedding_args, embedding_launch>(
    kernel_row("embedding", BP_OP_EMBEDDING, {kDtypes, 2}));

}  // namespace bp::vulkan
