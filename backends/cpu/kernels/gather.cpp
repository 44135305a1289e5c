// gather, index_select and embedding. All three are a loop over y (loop.hpp) in which x stands
// still along the axis that the indices name, and is moved along it by each index.
#include <cstring>

#include "backends/cpu/kernels/indices.hpp"
#include "backends/cpu/kernels/loop.hpp"

namespace bp::kernels {
namespace {

// The axis of x that the indices name.
struct Axis {
  int64_t extent = 0, stride_bytes = 0;
  WrongIndex* wrong = nullptr;
};

template <typename T>
void copy_row(const std::byte* from, int64_t from_stride, std::byte* to, int64_t to_stride,
              int64_t n) {
  if (from_stride == sizeof(T) && to_stride == sizeof(T)) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
    return;
  }
  for (int64_t i = 0; i < n; ++i, from += from_stride, to += to_stride) {
    *reinterpret_cast<T*>(to) = *reinterpret_cast<const T*>(from);
  }
}

// data and strides are those of (y, x, indices).
template <typename T, typename Index>
void gather_row(std::byte* const* data, const int64_t* strides, int64_t n, const void* context) {
  const Axis& axis = *static_cast<const Axis*>(context);
  const std::byte *x = data[1], *indices = data[2];
  const int64_t run = strides[2] == 0 ? n : 1;  // Elements of one index.
  std::byte* y = data[0];
  for (int64_t i = 0; i < n; i += run) {
    const int64_t index = *reinterpret_cast<const Index*>(indices);
    if (index < 0 || index >= axis.extent) {
      axis.wrong->set(index);
    } else if (run == 1) {
      *reinterpret_cast<T*>(y) = *reinterpret_cast<const T*>(x + index * axis.stride_bytes);
    } else {
      copy_row<T>(x + index * axis.stride_bytes, strides[1], y, strides[0], n);
    }
    y += strides[0];
    x += strides[1];
    indices += strides[2];
  }
}

template <typename Index>
RowFunction* row_of_width(int64_t size_bytes) {
  switch (size_bytes) {
    case 1:
      return gather_row<uint8_t, Index>;
    case 2:
      return gather_row<uint16_t, Index>;
    case 4:
      return gather_row<uint32_t, Index>;
    default:
      return gather_row<uint64_t, Index>;
  }
}

// x and indices are in the shape of y.
bp_status submit_gather(const char* op, const bp_tensor& y, const Reshaped& x,
                        const Reshaped& indices, Axis axis, const Launch& launch) {
  const int64_t size_bytes = dtype_size_bytes(y.dtype);
  axis.stride_bytes *= size_bytes;
  RowFunction* const row = (&indices)->dtype == BP_I64 ? row_of_width<int64_t>(size_bytes)
                                                       : row_of_width<int32_t>(size_bytes);
  const Loop loop = make_loop({&y, &x, &indices});
  return launch.submit([=, threads = launch.thread_count()] {
    WrongIndex wrong;
    Axis shared = axis;
    shared.wrong = &wrong;
    run_loop(loop, row, threads, kGrain, &shared);
    wrong.check(op, axis.extent);
  });
}

bp_status gather_launch(const bp_gather_args& args, Launch& launch) {
  const auto axis = static_cast<size_t>(args.axis);
  Reshaped x(*args.x, *args.y);
  x.set_stride(axis, 0);
  return submit_gather("gather", *args.y, x, Reshaped(*args.indices, *args.y),
                       {args.x->shape[axis], args.x->strides[axis]}, launch);
}

bp_status index_select_launch(const bp_index_select_args& args, Launch& launch) {
  const auto axis = static_cast<size_t>(args.axis);
  Reshaped x(*args.x, *args.y), indices(*args.indices, *args.y);
  x.set_stride(axis, 0);
  for (uint32_t i = 0; i < args.y->ndim; ++i) indices.set_stride(i, 0);
  indices.set_stride(axis, args.indices->strides[0]);
  return submit_gather("index_select", *args.y, x, indices,
                       {args.x->shape[axis], args.x->strides[axis]}, launch);
}

bp_status embedding_launch(const bp_embedding_args& args, Launch& launch) {
  const bp_tensor& weight = *args.weight;
  Reshaped x(weight, *args.y), indices(*args.indices, *args.y);
  for (uint32_t i = 0; i < args.indices->ndim; ++i) {
    x.set_stride(i, 0);
    indices.set_stride(i, args.indices->strides[i]);
  }
  x.set_stride(args.indices->ndim, weight.strides[1]);
  return submit_gather("embedding", *args.y, x, indices, {weight.shape[0], weight.strides[0]},
                       launch);
}

constexpr auto kDtypes = with_indices(kMovable);

constexpr bp_kernel gather_kernel_row(const char* name, uint32_t op) {
  return {
      .name = name,
      .op = op,
      .flags = BP_KERNEL_DETERMINISTIC,
      .dtype_rows = kDtypes.data(),
      .dtype_row_count = kDtypes.size() / 2,
      .dtype_count = 2,
      .layouts = BP_LAYOUT_ANY,
  };
}

}  // namespace

constinit const bp_kernel kGather =
    make_kernel<bp_gather_args, gather_launch>(gather_kernel_row("gather", BP_OP_GATHER));
constinit const bp_kernel kIndexSelect = make_kernel<bp_index_select_args, index_select_launch>(
    gather_kernel_row("index_select", BP_OP_INDEX_SELECT));
constinit const bp_kernel kEmbedding = make_kernel<bp_embedding_args, embedding_launch>(
    gather_kernel_row("embedding", BP_OP_EMBEDDING));

}  // namespace bp::kernels
