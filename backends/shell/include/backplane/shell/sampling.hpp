// What interpolate and adaptive_avg_pool read along an axis, in integers, so that every backend
// reads the same elements. Device code may call the functions of the structs.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backplane/kernel.h"
#include "backplane/ops.h"

namespace bp {

// Output i of an interpolated axis is at the position (i * step + offset) / unit of its input. For
// the mode nearest, this is moved so that it rounds down to the element that is chosen.
struct Positions {
  int64_t inputs = 1, outputs = 1, step = 0, offset = 0, unit = 1;
  bool is_linear = false;

  // The element below a position, or at it. The element above it has the weight rest / unit.
  struct Place {
    int64_t below, rest;
  };
  constexpr Place place(int64_t output) const {
    const int64_t at = output * step + offset;
    if (at <= 0) return {0, 0};
    if (at >= (inputs - 1) * unit) return {inputs - 1, 0};
    return {at / unit, is_linear ? at % unit : 0};
  }

  // Returns part / unit.
  template <typename Value>
  constexpr Value share(int64_t part) const {
    return part == unit ? Value{1} : static_cast<Value>(part) / static_cast<Value>(unit);
  }
  // Returns the weight of an element in an output that reads it.
  template <typename Value>
  constexpr Value weight(int64_t input, int64_t output) const {
    const Place at = place(output);
    return share<Value>(at.below == input ? unit - at.rest : at.rest);
  }

  // Returns the number of outputs whose element below is in front of `input`.
  constexpr int64_t outputs_before(int64_t input) const {
    if (input <= 0) return 0;
    return input >= inputs ? outputs : outputs_below(input * unit);
  }
  // The outputs that read an element are those from first_output() on, up to outputs_before() the
  // next element.
  constexpr int64_t first_output(int64_t input) const {
    const bool is_above = is_linear && input > 0;  // It is read from positions in front of it too.
    return is_above ? outputs_below((input - 1) * unit + 1) : outputs_before(input);
  }

 private:
  // Returns the number of outputs whose position is below number / unit.
  constexpr int64_t outputs_below(int64_t number) const {
    const int64_t way = number - offset;
    if (way <= 0) return 0;
    if (step == 0) return outputs;
    const int64_t count = (way + step - 1) / step;
    return count < outputs ? count : outputs;
  }
};

// Returns the positions of an axis. Args is the frame of interpolate or of its gradient, which
// number the values of their enumerations alike.
template <typename Args>
constexpr Positions positions_of(const Args& args, int64_t inputs, int64_t outputs) {
  Positions p{.inputs = inputs, .outputs = outputs};
  const bool is_half_pixel = args.coordinates == BP_INTERPOLATE_COORDINATES_HALF_PIXEL;
  if (outputs == 0 || (outputs == 1 && !is_half_pixel)) {
    p.step = 0;
  } else if (args.coordinates == BP_INTERPOLATE_COORDINATES_ASYMMETRIC) {
    p.step = inputs, p.unit = outputs;
  } else if (args.coordinates == BP_INTERPOLATE_COORDINATES_ALIGN_CORNERS) {
    p.step = inputs - 1, p.unit = outputs - 1;
  } else {
    p.step = 2 * inputs, p.offset = inputs - outputs, p.unit = 2 * outputs;
  }
  p.is_linear = args.mode == BP_INTERPOLATE_MODE_LINEAR;
  if (p.is_linear || args.rounding == BP_INTERPOLATE_ROUNDING_FLOOR) return p;
  if (args.rounding == BP_INTERPOLATE_ROUNDING_CEIL) {
    p.offset += p.unit - 1;
    return p;
  }
  const bool is_up = args.rounding == BP_INTERPOLATE_ROUNDING_HALF_UP;
  p.offset = 2 * p.offset + p.unit - (is_up ? 0 : 1);
  p.step *= 2, p.unit *= 2;
  return p;
}

// The windows of adaptive_avg_pool over an axis of `inputs` elements. The windows that an element
// lies in are found in the same way, with the numbers exchanged.
struct Bins {
  int64_t inputs = 1, outputs = 1;

  constexpr int64_t begin(int64_t output) const { return output * inputs / outputs; }
  constexpr int64_t end(int64_t output) const {
    return ((output + 1) * inputs + outputs - 1) / outputs;
  }
  constexpr int64_t size(int64_t output) const { return end(output) - begin(output); }
};

// Returns why the numbers of an axis do not fit into 64 bits, or NULL if they do.
inline bp_reason sampling_reason(const bp_tensor& x, const bp_tensor& y) {
  constexpr int64_t kMost = int64_t{1} << 28;  // Products stay below 2^60.
  for (uint32_t i = 2; i < x.ndim; ++i) {
    if (std::max(x.shape[i], y.shape[i]) > kMost) {
      return "a spatial axis has more than 2^28 elements";
    }
  }
  return nullptr;
}

}  // namespace bp
