// The elements that ranks send in a check, and those that a rank must receive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "conformance/dist/check.hpp"

namespace bp::conformance::dist {

class Values {
 public:
  // `seed` decides random values.
  Values(const Check& check, uint32_t world_size, uint64_t seed);

  // Returns the first `count` elements that a rank sends.
  std::vector<std::byte> sent(uint32_t rank, uint64_t count) const;

  struct Wrong {
    uint64_t count = 0;  // How many elements are wrong.
    std::string first;   // "element 5 is 3, expected 4".
  };
  // Compares the elements that a rank has received with those of its shape.
  Wrong compare(const Shape& shape, const std::byte* received) const;

 private:
  // The elements repeat after a period, so a table of one period has all of them.
  const std::byte* element(uint32_t rank, uint64_t i) const;
  const std::byte* reduced_element(uint64_t i) const;
  void fill_exact(uint32_t world_size);
  void fill_noise(uint32_t world_size, uint64_t seed);
  std::string difference(const std::byte* got, const std::byte* want, uint64_t i) const;

  const Check check_;
  const uint64_t item_;
  uint64_t period_ = 0;
  std::vector<std::vector<std::byte>> given_;  // Of each rank.
  std::vector<std::byte> reduced_;             // The exact result.
  struct Range {
    double low, high;  // The numbers that are allowed.
  };
  std::vector<Range> allowed_;  // Of a result with a bound.
};

}  // namespace bp::conformance::dist
