// Element-wise iteration over a few tensors of one shape and any strides, prepared on the host.
//
// Axes of extent 1 vanish, the others are ordered by the stride of the result, and neighbours that
// lie behind each other in every tensor are merged: contiguous tensors become one axis.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "backends/cuda/kernels/strides.cuh"
#include "backplane/tensor.h"

namespace bp::cuda {

constexpr int kMaxOperands = 4;

struct Operand {
  const std::byte* data = nullptr;   // NULL: the value is in the call.
  const int64_t* strides = nullptr;  // In elements; not read without data.
  int64_t size_bytes = 0;            // Of an element.
};

// The innermost axis is the last one, as in the tensors.
struct Loop {
  int operand_count = 0;
  int rank = 0;
  int64_t count = 1;
  std::array<int64_t, kMaxRank> extents{};
  int64_t strides[kMaxOperands][kMaxRank] = {};  // In elements.
  std::array<const std::byte*, kMaxOperands> data{};
  std::array<int64_t, kMaxOperands> size_bytes{};

  // Whether every operand lies so that `lanes` elements of the inner axis can be moved at once:
  // they are neighbours in the result, and neighbours or one in the others.
  bool has_vectors(int64_t lanes) const;

  // The axes of kOperands operands, with `lanes` elements of the inner axis as one.
  template <int kOperands>
  Axes<kOperands> axes(int64_t lanes = 1) const {
    Axes<kOperands> axes;
    axes.rank = rank == 0 ? 1 : rank;
    for (int i = 0; i < rank; ++i) {
      const auto from = static_cast<size_t>(rank - 1 - i);
      const int64_t step = i == 0 ? lanes : 1;
      axes.extents[i] = Divider(static_cast<uint32_t>(std::max<int64_t>(1, extents[from] / step)));
      for (int k = 0; k < kOperands; ++k) axes.strides[k][i] = strides[k][from] * step;
    }
    return axes;
  }
};

// A loop over operands of one shape, the result first.
Loop make_loop(uint32_t ndim, const int64_t* shape, std::initializer_list<Operand> operands);

// The parts of a loop that have at most `most` elements each. Without elements there is none.
std::vector<Loop> parts_of(const Loop& loop, int64_t most = kMaxLaunchElements);

}  // namespace bp::cuda
