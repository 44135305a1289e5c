// The geometry that convolutions and pools share: windows over one to three spatial axes.
#pragma once

#include <optional>

#include "conformance/reference/array.hpp"

namespace bp::conformance::reference {

struct Window {
  Shape kernel_size;
  Shape stride;
  Shape padding;  // The padding before each axis, then after each axis.
  Shape dilation;

  // Returns how many windows fit along each spatial axis of `input`.
  Shape output(std::span<const int64_t> input) const {
    Shape result(input.size());
    for (size_t i = 0; i < input.size(); ++i) {
      const int64_t reach = dilation[i] * (kernel_size[i] - 1) + 1;
      const int64_t padded = input[i] + padding[i] + padding[i + input.size()];
      result[i] = padded < reach ? 0 : (padded - reach) / stride[i] + 1;
    }
    return result;
  }

  // Returns the element of `input` under tap `tap` of window `window`, flat over the spatial axes.
  // Returns nothing if that element is padding.
  std::optional<int64_t> input_of(const Shape& window, const Shape& tap,
                                  std::span<const int64_t> input) const {
    int64_t index = 0;
    for (size_t i = 0; i < input.size(); ++i) {
      const int64_t place = window[i] * stride[i] - padding[i] + tap[i] * dilation[i];
      if (place < 0 || place >= input[i]) return std::nullopt;
      index = index * input[i] + place;
    }
    return index;
  }
};

}  // namespace bp::conformance::reference
