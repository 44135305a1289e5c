// embedding, gather and index_select: one item for each element of the result.
#include <string>

#include "kernels/kernels.hpp"

namespace acme_opencl {
namespace {

// The tensors of the grid are y, x and the indices. x has a stride of 0 along the axis that the
// index replaces; `stride` and `extent` are those of that axis.
constexpr const char* kSource = R"(
kernel void take(Grid grid, long stride, long extent, int bounds, global Y_T* y,
                 global const Y_T* x, global const I_T* indices, global int* failure, int number) {
  const long i = get_global_id(0);
  if (i >= grid.count) return;
  const long at = place(&grid, i, 2);
  long index = I_LOAD(indices, at);
  if (index < 0 || index >= extent) {
    if (bounds == 0) {
      report(failure, number, at - grid.offset[2], index);
      return;
    }
    index = index < 0 ? 0 : extent - 1;
  }
  y[place(&grid, i, 0)] = x[place(&grid, i, 1) + index * stride];
}
)";

struct Taken {
  const bp_tensor &y, &x, &indices;
  int64_t stride, extent;
  uint32_t bounds;
  const char* op;
};

// Moves the bits of elements as integers of their size.
bp_dtype moved(bp_dtype dtype) {
  switch (bp::dtype_size_bytes(dtype)) {
    case 1:
      return BP_I8;
    case 2:
      return BP_I16;
    case 4:
      return BP_I32;
    default:
      return BP_I64;
  }
}

bp_status submit(const Taken& t, const Grid& grid, Launch& launch) {
  Call call(prelude({{"Y", moved(t.y.dtype)}, {"I", t.indices.dtype}}) + kSource, "take");
  call.value(grid).value(t.stride).value(t.extent).value(t.bounds);
  call.buffer(Launch::place(t.y)).buffer(Launch::place(t.x)).buffer(Launch::place(t.indices));
  call.checked([op = t.op, extent = t.extent](int64_t position, int64_t index) {
    return bp::bad_index_text(op, "indices", position, index, extent);
  });
  return launch.submit([call = call.over(grid.count)](CommandQueue& queue) { queue.run(call); });
}

bp_status embedding(const bp_embedding_args& args, Launch& launch) {
  const bp_tensor &y = *args.y, &x = *args.weight, &indices = *args.indices;
  Grid grid = grid_at({&y, &x, &indices});
  for (uint32_t axis = 0; axis + 1 < y.ndim; ++axis) {
    add_axis(grid, y.shape[axis], {y.strides[axis], 0, indices.strides[axis], 0});
  }
  add_axis(grid, y.shape[y.ndim - 1], {y.strides[y.ndim - 1], x.strides[1], 0, 0});
  return submit({y, x, indices, x.strides[0], x.shape[0], args.bounds, "embedding"}, grid, launch);
}

bp_status gather(const bp_gather_args& args, Launch& launch) {
  const bp_tensor &y = *args.y, &x = *args.x, &indices = *args.indices;
  const auto taken = static_cast<uint32_t>(args.axis);
  Grid grid = grid_at({&y, &x, &indices});
  for (uint32_t axis = 0; axis < y.ndim; ++axis) {
    add_axis(grid, y.shape[axis],
             {y.strides[axis], axis == taken ? 0 : x.strides[axis], indices.strides[axis], 0});
  }
  return submit(
      {y, x, indices, bp::axis_stride(x, taken), bp::axis_extent(x, taken), args.bounds, "gather"},
      grid, launch);
}

bp_status index_select(const bp_index_select_args& args, Launch& launch) {
  const bp_tensor &y = *args.y, &x = *args.x, &indices = *args.indices;
  const auto taken = static_cast<uint32_t>(args.axis);
  Grid grid = grid_at({&y, &x, &indices});
  for (uint32_t axis = 0; axis < y.ndim; ++axis) {
    const bool is_taken = axis == taken;
    add_axis(
        grid, y.shape[axis],
        {y.strides[axis], is_taken ? 0 : x.strides[axis], is_taken ? indices.strides[0] : 0, 0});
  }
  return submit({y, x, indices, x.strides[taken], x.shape[taken], args.bounds, "index_select"},
                grid, launch);
}

constexpr auto kRows = bp::with_indices(bp::kAnyDtypes);

}  // namespace

constinit const bp_kernel kEmbedding = make_kernel<bp_embedding_args, embedding>(
    bp::kernel_row("embedding", BP_OP_EMBEDDING, {kRows, 2}));
constinit const bp_kernel kGather =
    make_kernel<bp_gather_args, gather>(bp::kernel_row("gather", BP_OP_GATHER, {kRows, 2}));
constinit const bp_kernel kIndexSelect = make_kernel<bp_index_select_args, index_select>(
    bp::kernel_row("index_select", BP_OP_INDEX_SELECT, {kRows, 2}));

}  // namespace acme_opencl
