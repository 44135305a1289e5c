#include <algorithm>
#include <cstdlib>
#include <utility>

#include "backends/cuda/kernels/loop.hpp"

namespace bp::cuda {
namespace {

struct Axis {
  int64_t extent = 1;
  std::array<int64_t, kMaxOperands> strides{};
};

// Returns whether a is the outer axis. The outer axis has the larger stride in the result, or else
// in the first operand in which the strides differ.
bool is_outer(const Axis& a, const Axis& b) {
  for (size_t k = 0; k < kMaxOperands; ++k) {
    const int64_t left = std::abs(a.strides[k]), right = std::abs(b.strides[k]);
    if (left != right) return left > right;
  }
  return false;
}

// Returns whether `outer` continues where `inner` ends, in every operand.
bool can_merge(const Axis& outer, const Axis& inner) {
  for (size_t k = 0; k < kMaxOperands; ++k) {
    if (outer.strides[k] != inner.strides[k] * inner.extent) return false;
  }
  return true;
}

bool is_aligned(const std::byte* address, int64_t size_bytes) {
  return reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(size_bytes) == 0;
}

}  // namespace

bool Loop::has_vectors(int64_t lanes) const {
  if (rank == 0) return false;
  const auto inner = static_cast<size_t>(rank - 1);
  if (rank > 1 && extents[inner] % lanes != 0) return false;
  for (int k = 0; k < operand_count; ++k) {
    const auto at = static_cast<size_t>(k);
    if (data[at] == nullptr) continue;
    const int64_t stride = strides[k][inner];
    if (stride == 0 && k > 0) continue;
    if (stride != 1 || !is_aligned(data[at], size_bytes[at] * lanes)) return false;
    for (size_t axis = 0; axis < inner; ++axis) {
      if (strides[k][axis] % lanes != 0) return false;
    }
  }
  return true;
}

Loop make_loop(uint32_t ndim, const int64_t* shape, std::initializer_list<Operand> operands) {
  Loop loop;
  loop.operand_count = static_cast<int>(operands.size());
  std::array<Axis, kMaxRank> axes;
  size_t count = 0;
  for (uint32_t i = 0; i < ndim; ++i) {
    loop.count *= shape[i];
    if (shape[i] == 1) continue;
    Axis& axis = axes[count++];
    axis.extent = shape[i];
    size_t k = 0;
    for (const Operand& o : operands) axis.strides[k++] = o.data == nullptr ? 0 : o.strides[i];
  }
  size_t k = 0;
  for (const Operand& o : operands) {
    loop.data[k] = o.data;
    loop.size_bytes[k++] = o.size_bytes;
  }
  std::stable_sort(axes.begin(), axes.begin() + static_cast<std::ptrdiff_t>(count), is_outer);
  for (size_t i = 0; i < count; ++i) {
    const bool is_merged = i > 0 && can_merge(axes[i - 1], axes[i]);
    const auto place = static_cast<size_t>(is_merged ? loop.rank - 1 : loop.rank++);
    loop.extents[place] = is_merged ? loop.extents[place] * axes[i].extent : axes[i].extent;
    for (k = 0; k < kMaxOperands; ++k) loop.strides[k][place] = axes[i].strides[k];
  }
  return loop;
}

std::vector<Loop> parts_of(const Loop& loop, int64_t most) {
  std::vector<Loop> parts;
  if (loop.count == 0) return parts;
  std::vector<Loop> rest = {loop};
  while (!rest.empty()) {
    Loop part = rest.back();
    rest.pop_back();
    if (part.count <= most) {
      parts.push_back(part);
      continue;
    }
    const auto longest = std::max_element(part.extents.begin(), part.extents.begin() + part.rank);
    const auto axis = static_cast<size_t>(longest - part.extents.begin());
    // It is a power of two, so that parts keep the alignment.
    int64_t first = 1;
    while (first * 2 < *longest) first *= 2;
    const int64_t others = part.count / *longest, left = *longest - first;
    Loop second = part;
    part.extents[axis] = first;
    part.count = others * first;
    second.extents[axis] = left;
    second.count = others * left;
    for (size_t k = 0; k < kMaxOperands; ++k) {
      if (second.data[k] == nullptr) continue;
      second.data[k] += first * second.strides[k][axis] * second.size_bytes[k];
    }
    rest.push_back(second);
    rest.push_back(part);
  }
  return parts;
}

}  // namespace bp::cuda
