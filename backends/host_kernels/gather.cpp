// gather, index_select and embedding. All three are a loop over y (loop.hpp). Along the axis that
// the indices name, the stride of x is 0, and each index moves the address of x.
//
// If an index names a whole row of y, the loop runs over rows, and the next rows are prefetched
// while one is copied. If each element has its own index, indices are checked in blocks, so that
// the inner loop only moves elements.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/gather.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include <cstring>
#include <limits>

#include "backends/host_kernels/indices.hpp"
#include "backends/host_kernels/rows-inl.hpp"
#include "hwy/cache_control.h"

#ifndef BACKPLANE_CPU_GATHER_AXIS
#define BACKPLANE_CPU_GATHER_AXIS
namespace bp::kernels {
namespace {

// The axis of x that the indices name.
struct Axis {
  Bounds bounds;
  int64_t stride_bytes = 0;
};

// The context of the row functions below.
struct Gathering {
  Axis axis;
  bool is_streamed = false;
  int64_t row_length = 0, y_stride = 0, x_stride = 0;  // For a row of one index.
  int64_t x_step = 0;                                  // The distance of rows of x in bytes.
  WrongIndex* wrong = nullptr;
};

inline bool is_inside(int64_t index, const Gathering& g) { return g.axis.bounds.contains(index); }

// Reads an index, or the one that acts for it.
template <typename Index>
int64_t read_index(const std::byte* place, const Gathering& g) {
  return g.axis.bounds.acting(*reinterpret_cast<const Index*>(place));
}

// Row functions for the operands (y, x, indices), one along elements of y and one along its rows.
struct GatherFunctions {
  RowFunction *elements, *rows;
};

}  // namespace
}  // namespace bp::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

template <typename T>
void copy_row(const std::byte* from, int64_t from_stride, std::byte* to, int64_t to_stride,
              int64_t n, bool is_streamed) {
  if (from_stride == sizeof(T) && to_stride == sizeof(T)) {
    const auto size_bytes = n * static_cast<int64_t>(sizeof(T));
    if (is_streamed) return stream_bytes(from, to, size_bytes);
    std::memcpy(to, from, static_cast<size_t>(size_bytes));
    return;
  }
  for (int64_t i = 0; i < n; ++i, from += from_stride, to += to_stride) {
    *reinterpret_cast<T*>(to) = *reinterpret_cast<const T*>(from);
  }
}

// Returns whether none of n indices is out of range. An index is in range if it and its distance
// from the last index are not negative.
template <typename Index>
HWY_INLINE bool are_inside(const Index* indices, int64_t n, Index last) {
  using Bits = std::make_unsigned_t<Index>;
  Bits signs = 0;
  for (int64_t i = 0; i < n; ++i) {
    const auto index = static_cast<Bits>(indices[i]);
    signs |= index | (static_cast<Bits>(last) - index);
  }
  return static_cast<Index>(signs) >= 0;
}

// Moves elements with any strides and checks each index by itself. An element with a wrong index
// becomes 0.
template <typename T, typename Index>
HWY_NOINLINE void gather_checked(std::byte* y, const std::byte* x, const std::byte* indices,
                                 const int64_t* strides, int64_t n, const Gathering& g) {
  for (int64_t i = 0; i < n; ++i) {
    const std::byte* const place = indices + i * strides[2];
    const int64_t index = read_index<Index>(place, g);
    const bool is_right = is_inside(index, g);
    if (!is_right) g.wrong->set(place);
    *reinterpret_cast<T*>(y + i * strides[0]) =
        is_right ? *reinterpret_cast<const T*>(x + i * strides[1] + index * g.axis.stride_bytes)
                 : T{0};
  }
}

constexpr int64_t kStep = 16;           // Elements whose indices are checked together.
constexpr int64_t kIndicesAhead = 128;  // Indices that are prefetched.

// Moves elements that are neighbours. It also prefetches the next row of x, because the hardware
// cannot predict which row is next.
template <typename T, typename Index>
HWY_INLINE void gather_block(T* HWY_RESTRICT y, const std::byte* HWY_RESTRICT x,
                             const int64_t* strides, const Index* HWY_RESTRICT indices, int64_t n,
                             const std::byte* next_x, const Gathering& g) {
  const auto last = static_cast<Index>(
      std::min<int64_t>(g.axis.bounds.extent - 1, std::numeric_limits<Index>::max()));
  const int64_t x_stride = strides[1], axis_stride = g.axis.stride_bytes;
  const bool is_dense = x_stride == 0 && axis_stride == sizeof(T);
  const int64_t dense[] = {sizeof(T), x_stride, sizeof(Index)};
  for (int64_t i = 0, count = 0; i < n; i += count) {
    count = std::min(kStep, n - i);
    const Index* const at = indices + i;
    if (count < kStep || !are_inside(at, kStep, last)) {
      gather_checked<T, Index>(reinterpret_cast<std::byte*>(y + i), x + i * x_stride,
                               reinterpret_cast<const std::byte*>(at), dense, count, g);
      continue;
    }
    for (size_t line = 0; line < kStep * sizeof(Index); line += 64) {
      hwy::Prefetch(reinterpret_cast<const std::byte*>(at + kIndicesAhead) + line);
    }
    if (next_x != nullptr) hwy::Prefetch(next_x + i * static_cast<int64_t>(sizeof(T)));
    if (is_dense) {
      const T* const from = reinterpret_cast<const T*>(x);
      for (int64_t j = 0; j < kStep; ++j) y[i + j] = from[at[j]];
    } else {
      for (int64_t j = 0; j < kStep; ++j) {
        y[i + j] = *reinterpret_cast<const T*>(x + (i + j) * x_stride + at[j] * axis_stride);
      }
    }
  }
}

// data and strides are those of (y, x, indices).
template <typename T, typename Index>
void gather_elements(std::byte* const* data, const int64_t* strides, int64_t n,
                     const void* context) {
  const Gathering& g = *static_cast<const Gathering*>(context);
  if (strides[2] == 0) {
    const int64_t index = read_index<Index>(data[2], g);
    if (!is_inside(index, g)) return g.wrong->set(data[2]);
    return copy_row<T>(data[1] + index * g.axis.stride_bytes, strides[1], data[0], strides[0], n,
                       g.is_streamed);
  }
  if (strides[0] != sizeof(T) || strides[2] != sizeof(Index)) {
    return gather_checked<T, Index>(data[0], data[1], data[2], strides, n, g);
  }
  BlockBuffer<T> buffer;
  T* const y = reinterpret_cast<T*>(data[0]);
  const Index* const indices = reinterpret_cast<const Index*>(data[2]);
  const bool is_near =
      strides[1] == 0 && g.axis.stride_bytes == sizeof(T) && g.axis.bounds.extent <= 2 * n;
  const int64_t head = g.is_streamed ? count_to_line(y) : 0;
  for (int64_t i = 0, count = 0; i < n; i += count) {
    count = std::min(i < head ? head - i : kBlock, n - i);
    const std::byte* const next_x =
        is_near && i < g.axis.bounds.extent ? data[1] + g.x_step + i * strides[0] : nullptr;
    gather_block(g.is_streamed ? buffer.elements : y + i, data[1] + i * strides[1], strides,
                 indices + i, count, next_x, g);
    if (g.is_streamed) stream_block(buffer.elements, y + i, count);
  }
}

// Rows are prefetched, because the hardware cannot predict which row is next.
constexpr int64_t kAhead = 4;           // The number of rows.
constexpr int64_t kFetchedBytes = 256;  // The hardware prefetches the rest of a row.

// Moves rows.
template <typename T, typename Index>
void gather_rows(std::byte* const* data, const int64_t* strides, int64_t n, const void* context) {
  const Gathering& g = *static_cast<const Gathering*>(context);
  const int64_t fetched_bytes = std::min(kFetchedBytes, g.row_length * g.x_stride);
  const auto index_at = [&](int64_t i) -> int64_t {
    return read_index<Index>(data[2] + i * strides[2], g);
  };
  for (int64_t i = 0; i < n; ++i) {
    if (const int64_t next = i + kAhead; next < n && is_inside(index_at(next), g)) {
      const std::byte* const row =
          data[1] + next * strides[1] + index_at(next) * g.axis.stride_bytes;
      for (int64_t b = 0; b < fetched_bytes; b += 64) hwy::Prefetch(row + b);
    }
    const int64_t index = index_at(i);
    if (!is_inside(index, g)) {
      g.wrong->set(data[2] + i * strides[2]);
      continue;
    }
    copy_row<T>(data[1] + i * strides[1] + index * g.axis.stride_bytes, g.x_stride,
                data[0] + i * strides[0], g.y_stride, g.row_length, g.is_streamed);
  }
}

// Returns the functions for a dtype. Elements are moved as unsigned integers of their width, so
// that they keep their bits.
template <typename Index>
GatherFunctions functions_of(bp_dtype dtype) {
  return with_any(dtype, []<typename T>(T) -> GatherFunctions {
    using Bits = hwy::UnsignedFromSize<sizeof(T)>;
    return {gather_elements<Bits, Index>, gather_rows<Bits, Index>};
  });
}

GatherFunctions find_gather(bp_dtype dtype, bool is_i64) {
  return is_i64 ? functions_of<int64_t>(dtype) : functions_of<int32_t>(dtype);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(find_gather);

// Returns whether each row of the loop has one index, and there are enough rows for the threads.
bool has_rows(const Loop& loop) {
  if (loop.rank == 0 || loop.is_tiled) return false;
  const auto inner = static_cast<size_t>(loop.rank - 1);
  return loop.strides[2][inner] == 0 && loop.extents[inner] <= kGrain;
}

// Runs a loop that has rows, row by row.
void run_row_loop(Loop loop, RowFunction* rows, int threads, Gathering& g) {
  const auto inner = static_cast<size_t>(--loop.rank);
  g.row_length = loop.extents[inner];
  g.y_stride = loop.strides[0][inner];
  g.x_stride = loop.strides[1][inner];
  if (loop.count == 0) return;
  loop.count /= g.row_length;
  run_loop(loop, rows, threads, std::max<int64_t>(1, kGrain / g.row_length), &g);
}

// x and indices are in the shape of y.
bp_status submit_gather(const char* op, const bp_tensor& y, const Reshaped& x,
                        const Reshaped& indices, Axis axis, const Launch& launch) {
  const IndexTensor checked(*(&indices));
  axis.stride_bytes *= dtype_size_bytes(y.dtype);
  const GatherFunctions functions =
      HWY_DYNAMIC_DISPATCH(find_gather)(y.dtype, (&indices)->dtype == BP_I64);
  const Loop loop = make_loop({&y, &x, &indices});
  const bool is_streamed = choose_row_options(loop).is_streamed;
  return launch.submit([=, threads = launch.thread_count()] {
    WrongIndex wrong;
    Gathering g;
    g.axis = axis;
    g.is_streamed = is_streamed;
    g.wrong = &wrong;
    if (has_rows(loop)) {
      run_row_loop(loop, functions.rows, threads, g);
    } else {
      if (loop.rank > 1) g.x_step = loop.strides[1][loop.rank - 2];
      run_loop(loop, functions.elements, threads, kGrain, &g);
    }
    wrong.check(op, checked, axis.bounds.extent);
  });
}

bp_status gather_launch(const bp_gather_args& args, Launch& launch) {
  const auto axis = static_cast<size_t>(args.axis);
  Reshaped x(*args.x, *args.y);
  x.set_stride(axis, 0);
  return submit_gather("gather", *args.y, x, Reshaped(*args.indices, *args.y),
                       {{axis_extent(*args.x, axis), args.bounds}, axis_stride(*args.x, axis)},
                       launch);
}

bp_status index_select_launch(const bp_index_select_args& args, Launch& launch) {
  const auto axis = static_cast<size_t>(args.axis);
  Reshaped x(*args.x, *args.y), indices(*args.indices, *args.y);
  x.set_stride(axis, 0);
  for (uint32_t i = 0; i < args.y->ndim; ++i) indices.set_stride(i, 0);
  indices.set_stride(axis, args.indices->strides[0]);
  return submit_gather("index_select", *args.y, x, indices,
                       {{args.x->shape[axis], args.bounds}, args.x->strides[axis]}, launch);
}

bp_status embedding_launch(const bp_embedding_args& args, Launch& launch) {
  const bp_tensor& weight = *args.weight;
  Reshaped x(weight, *args.y), indices(*args.indices, *args.y);
  for (uint32_t i = 0; i < args.indices->ndim; ++i) {
    x.set_stride(i, 0);
    indices.set_stride(i, args.indices->strides[i]);
  }
  x.set_stride(args.indices->ndim, weight.strides[1]);
  return submit_gather("embedding", *args.y, x, indices,
                       {{weight.shape[0], args.bounds}, weight.strides[0]}, launch);
}

constexpr auto kDtypes = with_indices(kAnyDtypes);

}  // namespace

extern constinit const bp_kernel kGather =
    make_kernel<bp_gather_args, gather_launch>(kernel_row("gather", BP_OP_GATHER, {kDtypes, 2}));
extern constinit const bp_kernel kIndexSelect =
    make_kernel<bp_index_select_args, index_select_launch>(
        kernel_row("index_select", BP_OP_INDEX_SELECT, {kDtypes, 2}));
extern constinit const bp_kernel kEmbedding = make_kernel<bp_embedding_args, embedding_launch>(
    kernel_row("embedding", BP_OP_EMBEDDING, {kDtypes, 2}));

}  // namespace bp::kernels
#endif  // HWY_ONCE
