// The kernel that cases about streams launch: an addition in i32 or f32 of numbers that both dtypes
// hold exactly.
#pragma once

#include <cstdint>
#include <vector>

#include "conformance/case.hpp"

namespace bp::conformance {

struct Addition {
  bp_dtype dtype = BP_I32;

  // The bytes of an element, in both dtypes.
  static constexpr uint64_t kElementBytes = 4;

  // Returns the bytes of `count` numbers: (i % 7 + 1) * factor.
  std::vector<uint8_t> numbers(uint64_t count, int32_t factor) const;

  // Submits y = a + b over ranges of one size. submit() returns the status, and launch() ends the
  // case on failure.
  bp_status submit(const bp_target& target, bp_stream* stream, const bp_buffer_ref& y,
                   const bp_buffer_ref& a, const bp_buffer_ref& b) const;
  void launch(Context& t, bp_stream* stream, const bp_buffer_ref& y, const bp_buffer_ref& a,
              const bp_buffer_ref& b) const;
};

// Returns whether the backend has its own kernel for the addition.
bool has_addition(const bp_target& target, bp_dtype dtype);

// Returns the addition in a dtype of the backend. Ends the case as NotSupported if the backend has
// no kernel for it.
Addition find_addition(Context& t);

}  // namespace bp::conformance
