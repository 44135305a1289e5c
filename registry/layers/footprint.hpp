// Which bytes of a buffer a range or a tensor is, and whether two of them share one.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>

#include "backplane/tensor.h"

namespace bp::layers {

// Rows of bytes at regular distances; a range is one row.
struct Footprint {
  bp_buffer* buffer = nullptr;
  uint64_t begin = 0, end = 0;  // Of all of it; equal if it is empty.

  // From `begin` on. Axes of extent 1 and stride 0 are left out.
  uint64_t row_bytes = 0;
  uint32_t axis_count = 0;  // 0: one row.
  std::array<uint64_t, BP_MAX_RANK> extents{}, strides_bytes{};

  bool is_empty() const { return begin == end; }
  auto operator<=>(const Footprint&) const = default;
};

Footprint footprint_of(const bp_buffer_ref& range);

// `tensor` has no defect.
Footprint footprint_of(const bp_tensor& tensor);

// False also where that would take too long to find out, which no answer is worth here: what it
// finds is reported as a mistake of the program. bp_op_check() asks ops_spec/overlap.hpp in
// its place, which is true also where nothing proves that they share no byte.
bool overlap(const Footprint& a, const Footprint& b);

// What is wrong with a tensor in a buffer of this size, behind the tag of its rule: "[TENSOR-5] it
// ends at byte 520 of a buffer of 512"; "" if nothing is.
std::string tensor_defect(const bp_tensor& tensor, uint64_t buffer_size_bytes);

}  // namespace bp::layers
