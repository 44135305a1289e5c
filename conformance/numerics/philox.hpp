// Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011): four random words from a key and a counter.
//
// The key of test data is their case and the counter is the element, so that every element can be
// made again alone. The oracles of the random ops use the same function.
#pragma once

#include <array>
#include <cstdint>

namespace bp::conformance {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

PhiloxCounter philox(PhiloxCounter counter, PhiloxKey key);

// Returns 64 random bits for element `index` of tensor number `tensor`; `key` is the seed of the
// case.
uint64_t element_bits(uint64_t key, uint32_t tensor, uint64_t index);

}  // namespace bp::conformance
