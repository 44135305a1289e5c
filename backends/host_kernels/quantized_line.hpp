// Lines of elements: floats on one side, and their codes on the other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/host_kernels/quantized.hpp"

namespace bp::kernels {

struct QuantizedLine {
  std::byte* floats;
  bp_dtype float_dtype;  // f32, f16 or bf16.
  int64_t float_stride;  // In elements.
  std::byte* codes;
  int64_t bit, bit_stride;  // The place of the first code, and the way to the next one.
  int64_t count;
  float scale, zero;
  // Where blocks are short, each element has its scale and its zero here, and not above. They are
  // read up to kLineSlack elements behind the line.
  const float *scales = nullptr, *zeros = nullptr;
};

constexpr int64_t kLineSlack = 64;

// Sets the codes from the floats, as quantize says.
void quantize_line(const QuantizedLine& line, const CodeFormat& format);

// Sets the floats from the codes, as dequantize says.
void dequantize_line(const QuantizedLine& line, const CodeFormat& format);

}  // namespace bp::kernels
