// The number type of oracles for integers: 64 bits, two's complement, wrapping. The low 32 bits of
// its sums, differences and products equal the results of 32-bit arithmetic.
#pragma once

#include <cstdint>

namespace bp::conformance {

struct Integer {
  int64_t value = 0;

  constexpr Integer() = default;
  constexpr Integer(int64_t v) : value(v) {}  // NOLINT: a 64-bit integer is one of these.

  constexpr uint64_t bits() const { return static_cast<uint64_t>(value); }
  static constexpr Integer wrap(uint64_t bits) { return {static_cast<int64_t>(bits)}; }
};

constexpr Integer operator-(Integer a) { return Integer::wrap(0 - a.bits()); }
constexpr Integer operator+(Integer a, Integer b) { return Integer::wrap(a.bits() + b.bits()); }
constexpr Integer operator-(Integer a, Integer b) { return Integer::wrap(a.bits() - b.bits()); }
constexpr Integer operator*(Integer a, Integer b) { return Integer::wrap(a.bits() * b.bits()); }
constexpr bool operator<(Integer a, Integer b) { return a.value < b.value; }
constexpr bool operator==(Integer a, Integer b) { return a.value == b.value; }
constexpr Integer abs(Integer a) { return a.value < 0 ? -a : a; }
constexpr bool isnan(Integer) { return false; }

}  // namespace bp::conformance
