#include "backends/cpu/kernels/loop.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace bp::kernels {
namespace {

// Elements along each side of a tile: a tile of f32 reads whole lines of 64 bytes.
constexpr int64_t kTile = 16;

struct Axis {
  int64_t extent;
  std::array<int64_t, kMaxOperands> strides;  // In bytes.
};

// Whether `outer` continues where `inner` ends, in every operand.
bool can_merge(const Axis& outer, const Axis& inner) {
  for (size_t k = 0; k < kMaxOperands; ++k) {
    if (outer.strides[k] != inner.strides[k] * inner.extent) return false;
  }
  return true;
}

// The outer axis of the two has the larger strides: in the result, else in the first operand where
// they differ.
bool is_outer(const Axis& a, const Axis& b) {
  for (size_t k = 0; k < kMaxOperands; ++k) {
    const int64_t left = std::abs(a.strides[k]), right = std::abs(b.strides[k]);
    if (left != right) return left > right;
  }
  return false;
}

// The usual case: everything is one row.
void make_row(Loop& loop, const bp_tensor& shaped,
              std::initializer_list<const bp_tensor*> tensors) {
  loop.count = element_count(shaped);
  loop.rank = 1;
  loop.extents[0] = loop.count;
  int k = 0;
  for (const bp_tensor* t : tensors) {
    loop.strides[k++][0] = t == nullptr ? 0 : dtype_size_bytes(t->dtype);
  }
}

// Makes an axis along which an operand is denser than along the inner one the neighbour of it.
void choose_tiles(Loop& loop) {
  const int inner = loop.rank - 1;
  int best = -1;
  int64_t best_stride = 0;
  for (int k = 0; k < loop.operand_count; ++k) {
    for (int axis = 0; axis < inner; ++axis) {
      const int64_t stride = std::abs(loop.strides[k][axis]);
      const bool is_dense = stride > 0 && stride * kTile <= std::abs(loop.strides[k][inner]);
      if (!is_dense || (best >= 0 && stride >= best_stride)) continue;
      best = axis;
      best_stride = stride;
    }
  }
  if (best < 0) return;
  loop.is_tiled = true;
  for (int axis = best; axis < inner - 1; ++axis) {
    std::swap(loop.extents[static_cast<size_t>(axis)], loop.extents[static_cast<size_t>(axis + 1)]);
    for (int k = 0; k < kMaxOperands; ++k) {
      std::swap(loop.strides[k][axis], loop.strides[k][axis + 1]);
    }
  }
}

}  // namespace

Loop make_loop(std::initializer_list<const bp_tensor*> tensors, uint64_t scalar) {
  Loop loop;
  loop.operand_count = static_cast<int>(tensors.size());
  loop.scalar = scalar;
  const bp_tensor& shaped = **tensors.begin();
  size_t k = 0;
  bool is_dense = true;
  for (const bp_tensor* t : tensors) {
    loop.data[k++] = t == nullptr ? nullptr : data<std::byte>(*t);
    is_dense = is_dense && (t == nullptr || is_contiguous(*t));
  }
  if (is_dense) {
    make_row(loop, shaped, tensors);
    return loop;
  }
  std::array<Axis, BP_MAX_RANK> axes;
  int rank = 0;
  for (uint32_t i = 0; i < shaped.ndim; ++i) {
    loop.count *= shaped.shape[i];
    if (shaped.shape[i] == 1) continue;
    Axis& axis = axes[static_cast<size_t>(rank++)];
    axis = {shaped.shape[i], {}};
    k = 0;
    for (const bp_tensor* t : tensors) {
      axis.strides[k++] = t == nullptr ? 0 : t->strides[i] * dtype_size_bytes(t->dtype);
    }
  }
  // An insertion sort keeps the order of equals and is fastest for the usual few axes.
  for (int i = 1; i < rank; ++i) {
    for (int j = i; j > 0; --j) {
      Axis &outer = axes[static_cast<size_t>(j - 1)], &inner = axes[static_cast<size_t>(j)];
      if (!is_outer(inner, outer)) break;
      std::swap(outer, inner);
    }
  }
  for (int i = rank; i-- > 0;) {
    const Axis& axis = axes[static_cast<size_t>(i)];
    // Built innermost first, reversed below.
    Axis* const last =
        loop.rank == 0 ? nullptr : &axes[static_cast<size_t>(BP_MAX_RANK - loop.rank)];
    if (last != nullptr && can_merge(axis, *last)) {
      last->extent *= axis.extent;
    } else {
      axes[static_cast<size_t>(BP_MAX_RANK - ++loop.rank)] = Axis(axis);
    }
  }
  for (int i = 0; i < loop.rank; ++i) {
    const Axis& axis = axes[static_cast<size_t>(BP_MAX_RANK - loop.rank + i)];
    loop.extents[static_cast<size_t>(i)] = axis.extent;
    for (size_t o = 0; o < kMaxOperands; ++o) loop.strides[o][i] = axis.strides[o];
  }
  if (loop.rank >= 2) choose_tiles(loop);
  return loop;
}

namespace {

using Addresses = std::array<std::byte*, kMaxOperands>;

// Where the operands begin; `scalar` stands in for the one that has no address.
Addresses first_addresses(const Loop& loop, uint64_t& scalar) {
  Addresses at{};
  for (size_t k = 0; k < static_cast<size_t>(loop.operand_count); ++k) {
    at[k] = loop.data[k] == nullptr ? reinterpret_cast<std::byte*>(&scalar) : loop.data[k];
  }
  return at;
}

// Moves `at` by `steps` along `axis`.
void advance(const Loop& loop, Addresses& at, int axis, int64_t steps) {
  for (int k = 0; k < loop.operand_count; ++k) {
    at[static_cast<size_t>(k)] += steps * loop.strides[k][axis];
  }
}

// Moves `at` from the origin to number `index` of the outermost `axis_count` axes.
void seek(const Loop& loop, Addresses& at, int axis_count, int64_t index) {
  for (int axis = axis_count; axis-- > 0;) {
    const int64_t extent = loop.extents[static_cast<size_t>(axis)];
    advance(loop, at, axis, index % extent);
    index /= extent;
  }
}

std::array<int64_t, kMaxOperands> row_strides(const Loop& loop) {
  std::array<int64_t, kMaxOperands> strides{};
  for (int k = 0; k < loop.operand_count && loop.rank > 0; ++k) {
    strides[static_cast<size_t>(k)] = loop.strides[k][loop.rank - 1];
  }
  return strides;
}

// Moves `at` to the next index of the outermost `axis_count` axes.
void step(const Loop& loop, Addresses& at, int axis_count,
          std::array<int64_t, BP_MAX_RANK>& index) {
  for (int axis = axis_count; axis-- > 0;) {
    const auto a = static_cast<size_t>(axis);
    advance(loop, at, axis, 1);
    if (++index[a] < loop.extents[a]) return;
    advance(loop, at, axis, -loop.extents[a]);
    index[a] = 0;
  }
}

// The elements [begin, end) of the loop, in its own order.
void run_part(const Loop& loop, RowFunction* row, const void* context, int64_t begin, int64_t end) {
  uint64_t scalar = loop.scalar;
  Addresses at = first_addresses(loop, scalar);
  const auto strides = row_strides(loop);
  const int inner = loop.rank - 1;
  if (inner < 0) return row(at.data(), strides.data(), 1, context);
  const int64_t length = loop.extents[static_cast<size_t>(inner)];
  std::array<int64_t, BP_MAX_RANK> index{};
  int64_t number = begin / length;
  for (int axis = inner; axis-- > 0;) {
    const int64_t extent = loop.extents[static_cast<size_t>(axis)];
    index[static_cast<size_t>(axis)] = number % extent;
    advance(loop, at, axis, number % extent);
    number /= extent;
  }
  int64_t column = begin % length;
  advance(loop, at, inner, column);
  for (int64_t done = begin; done < end;) {
    const int64_t n = std::min(length - column, end - done);
    row(at.data(), strides.data(), n, context);
    done += n;
    advance(loop, at, inner, -column);
    column = 0;
    step(loop, at, inner, index);
  }
}

// The strips [begin, end): a strip is kTile indices of the axis next to the inner one, with all of
// the inner one.
void run_strips(const Loop& loop, RowFunction* row, const void* context, int64_t begin,
                int64_t end) {
  uint64_t scalar = loop.scalar;
  const Addresses origin = first_addresses(loop, scalar);
  const auto strides = row_strides(loop);
  const int inner = loop.rank - 1;
  const int64_t length = loop.extents[static_cast<size_t>(inner)];
  const int64_t width = loop.extents[static_cast<size_t>(inner - 1)];
  const int64_t strips_per_plane = (width + kTile - 1) / kTile;
  for (int64_t strip = begin; strip < end; ++strip) {
    const int64_t first = strip % strips_per_plane * kTile;
    const int64_t rows = std::min(kTile, width - first);
    Addresses plane = origin;
    seek(loop, plane, inner - 1, strip / strips_per_plane);
    advance(loop, plane, inner - 1, first);
    for (int64_t column = 0; column < length; column += kTile) {
      Addresses at = plane;
      advance(loop, at, inner, column);
      for (int64_t r = 0; r < rows; ++r) {
        row(at.data(), strides.data(), std::min(kTile, length - column), context);
        advance(loop, at, inner - 1, 1);
      }
    }
  }
}

// Where a copy that is not streamed begins to wait for the lines of its result: 3/4 of a last-level
// cache of 32 MiB. Below, what is written stays there for who reads it next.
constexpr int64_t kStreamBytes = 24 << 20;
// Shorter rows have too many lines that are written in parts.
constexpr int64_t kStreamRowBytes = 1024;

}  // namespace

RowOptions choose_row_options(const Loop& loop) {
  if (loop.rank == 0 || loop.is_tiled) return {};
  const int inner = loop.rank - 1;
  int64_t bytes_per_element = 0;
  for (int k = 0; k < loop.operand_count; ++k) {
    bytes_per_element += std::abs(loop.strides[k][inner]);
    const bool is_overwritten = k > 0 && loop.data[static_cast<size_t>(k)] == loop.data[0];
    if (is_overwritten) return {};
  }
  const int64_t row_bytes = loop.extents[static_cast<size_t>(inner)] * loop.strides[0][inner];
  return {.is_streamed =
              row_bytes >= kStreamRowBytes && loop.count * bytes_per_element >= kStreamBytes};
}

void run_loop(const Loop& loop, RowFunction* row, int threads, int64_t grain, const void* context) {
  if (loop.count == 0) return;
  if (!loop.is_tiled) {
    parallel_for(threads, loop.count, grain,
                 [&](int64_t begin, int64_t end) { run_part(loop, row, context, begin, end); });
    return;
  }
  const int64_t length = loop.extents[static_cast<size_t>(loop.rank - 1)];
  const int64_t width = loop.extents[static_cast<size_t>(loop.rank - 2)];
  const int64_t strips = loop.count / (length * width) * ((width + kTile - 1) / kTile);
  const int64_t strip_grain = std::max<int64_t>(1, grain / (length * kTile));
  parallel_for(threads, strips, strip_grain,
               [&](int64_t begin, int64_t end) { run_strips(loop, row, context, begin, end); });
}

}  // namespace bp::kernels
