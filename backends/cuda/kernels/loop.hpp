// Element-wise iteration over a few tensors of one shape and any strides, prepared on the host.
//
// Axes of extent 1 are removed. The others are ordered by the stride of the result, and neighbours
// that continue each other in every tensor are merged. So contiguous tensors become one axis.
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
  const std::byte* data = nullptr;   // If NULL, the value is in the call.
  const int64_t* strides = nullptr;  // In elements; not read if `data` is NULL.
  int64_t size_bytes = 0;            // The size of an element.
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

  // Returns whether `lanes` elements of the inner axis can be moved at once. They must be
  // neighbours in the result, and neighbours or one element in the other operands.
  bool has_vectors(int64_t lanes) const;

  // Returns the axes of kOperands operands, with `lanes` elements of the inner axis as one.
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

// Makes a loop over operands of one shape. The first one is the result.
Loop make_loop(uint32_t ndim, const int64_t* shape, std::initializer_list<Operand> operands);

// Cuts a loop into parts of at most `most` elements. A loop without elements has no parts.
std::vector<Loop> parts_of(const Loop& loop, int64_t most = kMaxLaunchElements);

}  // namespace bp::cuda
