// Copies go tile by tile over the two axes whose neighbours are closest, in `to` and in `from`: a
// transposition then reads and writes whole cache lines.
#include "backends/cpu/kernels/strided.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "kernel_env.hpp"

namespace bp::kernels {
namespace {

constexpr int64_t kTile = 32;
constexpr int64_t kGrainElements = 32768;  // Below twice this, a team of threads costs more.

struct Axis {
  int64_t extent, from, to;
};

// The axes that matter, merged where both layouts allow it, sorted so that `to` is dense at the
// end.
uint32_t simplify(const View& from, const View& to, Axis* axes) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < from.ndim; ++i) {
    if (from.shape[i] == 1) continue;
    axes[count++] = {from.shape[i], from.strides[i], to.strides[i]};
  }
  std::stable_sort(axes, axes + count,
                   [](const Axis& a, const Axis& b) { return std::abs(a.to) > std::abs(b.to); });
  uint32_t merged = 0;
  for (uint32_t i = 0; i < count; ++i) {
    if (merged > 0 && axes[merged - 1].from == axes[i].from * axes[i].extent &&
        axes[merged - 1].to == axes[i].to * axes[i].extent) {
      axes[merged - 1] = {axes[merged - 1].extent * axes[i].extent, axes[i].from, axes[i].to};
    } else {
      axes[merged++] = axes[i];
    }
  }
  return merged;
}

template <typename T>
void copy_tile(const T* from, T* to, const Axis& rows, const Axis& cols) {
  for (int64_t r = 0; r < rows.extent; r += kTile) {
    const int64_t r_end = std::min(rows.extent, r + kTile);
    for (int64_t c = 0; c < cols.extent; c += kTile) {
      const int64_t c_end = std::min(cols.extent, c + kTile);
      for (int64_t i = r; i < r_end; ++i) {
        for (int64_t j = c; j < c_end; ++j) {
          to[i * rows.to + j * cols.to] = from[i * rows.from + j * cols.from];
        }
      }
    }
  }
}

// Copies `cols` of each index of `rows`; one loop where both are dense.
template <typename T>
void copy_plane(const T* from, T* to, const Axis& rows, const Axis& cols) {
  if (cols.from != 1 || cols.to != 1) return copy_tile(from, to, rows, cols);
  for (int64_t i = 0; i < rows.extent; ++i) {
    std::copy_n(from + i * rows.from, cols.extent, to + i * rows.to);
  }
}

template <typename T>
void copy_typed(const View& from, const View& to, int thread_count) {
  Axis axes[BP_MAX_RANK + 2] = {};
  uint32_t count = simplify(from, to, axes);
  for (; count < 2; ++count) {
    axes[1] = count == 0 ? Axis{1, 1, 1} : axes[0];
    axes[0] = {1, 0, 0};
  }

  // The last axis is the densest of `to`; beside it goes the densest of `from`.
  Axis cols = axes[--count];
  uint32_t best = count - 1;
  for (uint32_t i = 0; i < count; ++i) {
    if (std::abs(axes[i].from) < std::abs(axes[best].from)) best = i;
  }
  Axis rows = axes[best];
  std::move(axes + best + 1, axes + count, axes + best);
  --count;
  // Threads share what is largest: planes, or the rows of the only one.
  int64_t planes = 1;
  for (uint32_t i = 0; i < count; ++i) planes *= axes[i].extent;
  const int64_t row_parts = planes >= thread_count ? 1 : (rows.extent + kTile - 1) / kTile;
  const int64_t part_rows = (rows.extent + row_parts - 1) / row_parts;
  const int64_t part_elements = std::max<int64_t>(1, part_rows * cols.extent);
  parallel_for(thread_count, planes * row_parts,
               std::max<int64_t>(1, kGrainElements / part_elements),
               [&](int64_t begin, int64_t end) {
                 for (int64_t part = begin; part < end; ++part) {
                   const T* source = reinterpret_cast<const T*>(from.address);
                   T* target = reinterpret_cast<T*>(to.address);
                   int64_t rest = part / row_parts;
                   for (uint32_t i = count; i-- > 0; rest /= axes[i].extent) {
                     source += rest % axes[i].extent * axes[i].from;
                     target += rest % axes[i].extent * axes[i].to;
                   }
                   const int64_t row = part % row_parts * part_rows;
                   const int64_t row_count = std::min(part_rows, rows.extent - row);
                   if (row_count <= 0) continue;
                   copy_plane(source + row * rows.from, target + row * rows.to,
                              {row_count, rows.from, rows.to}, cols);
                 }
               });
}

}  // namespace

View view_of(const bp_tensor& tensor) {
  View view;
  view.address = data<std::byte>(tensor);
  view.ndim = tensor.ndim;
  std::copy_n(tensor.shape, tensor.ndim, view.shape);
  std::copy_n(tensor.strides, tensor.ndim, view.strides);
  return view;
}

View dense_view(const View& like, std::byte* address) {
  View view = like;
  view.address = address;
  int64_t stride = 1;
  for (uint32_t i = view.ndim; i-- > 0; stride *= view.shape[i]) view.strides[i] = stride;
  return view;
}

int64_t element_count(const View& view) {
  int64_t count = 1;
  for (uint32_t i = 0; i < view.ndim; ++i) count *= view.shape[i];
  return count;
}

void copy_elements(const View& from, const View& to, int64_t element_size_bytes, int thread_count) {
  if (element_count(from) == 0) return;
  switch (element_size_bytes) {
    case 1:
      return copy_typed<uint8_t>(from, to, thread_count);
    case 2:
      return copy_typed<uint16_t>(from, to, thread_count);
    case 4:
      return copy_typed<uint32_t>(from, to, thread_count);
    default:
      return copy_typed<uint64_t>(from, to, thread_count);
  }
}

bool is_contiguous(const View& view) {
  int64_t expected = 1;
  for (uint32_t i = view.ndim; i-- > 0; expected *= view.shape[i]) {
    if (view.shape[i] != 1 && view.strides[i] != expected) return false;
  }
  return true;
}

DenseCopy::DenseCopy(const View& its_view, int64_t its_element_size_bytes)
    : is_needed(true),
      element_size_bytes(its_element_size_bytes),
      view(its_view),
      dense(dense_view(its_view, nullptr)) {}

uint64_t DenseCopy::size_bytes() const {
  return is_needed ? static_cast<uint64_t>(element_count(view) * element_size_bytes) : 0;
}

uint64_t reserve_bytes(uint64_t size_bytes, uint64_t& end) {
  constexpr uint64_t kAlignmentBytes = 64;  // A cache line, and the widest vector.
  const uint64_t begin = end;
  end += (size_bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
  return begin;
}

}  // namespace bp::kernels
