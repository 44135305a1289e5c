// Finds which bytes of a buffer a range or a tensor covers, whether two of them share a byte, and
// how large a requested buffer is.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>

#include "backplane/layout.h"
#include "backplane/memory.h"

namespace bp::layers {

// Rows of bytes at regular distances; a range is one row.
struct Footprint {
  bp_buffer* buffer = nullptr;
  uint64_t begin = 0, end = 0;  // The limits of all rows; equal if there are none.

  // Each row covers `row_bytes` from its beginning on. Axes of extent 1 and stride 0 are left out.
  uint64_t row_bytes = 0;
  uint32_t axis_count = 0;  // 0 stands for one row.
  std::array<uint64_t, BP_MAX_RANK> extents{}, strides_bytes{};

  bool is_empty() const { return begin == end; }
  auto operator<=>(const Footprint&) const = default;
};

// Returns the size of the buffer that a request asks for.
inline uint64_t requested_bytes(const bp_allocate_desc& desc) {
  return desc.layout == nullptr ? desc.size_bytes : desc.layout->physical_size_bytes;
}

Footprint footprint_of(const bp_buffer_ref& range);

// Returns the footprint of `tensor`, which has no defect.
Footprint footprint_of(const bp_tensor& tensor);

// Returns whether the two share a byte. It also returns false if the search would take too long:
// what it finds is reported as a mistake of the program, so no answer is better than a wrong one.
// bp_op_check() uses ops_spec/overlap.hpp instead, which returns true unless it can prove that no
// byte is shared.
bool overlap(const Footprint& a, const Footprint& b);

// Returns what is wrong with a tensor in a buffer of this size, after the tag of its rule:
// "[TENSOR-5] it ends at byte 520 of a buffer of 512". Returns "" if nothing is wrong.
std::string tensor_defect(const bp_tensor& tensor, uint64_t buffer_size_bytes);

}  // namespace bp::layers
