// The elements of a tensor on the host, read and written through the tables of the good backend,
// for mutants that change numbers.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "conformance/mutants/mutant.hpp"

namespace bp::mutants {

// Returns the bits of `value` in `dtype`: f16, bf16 or f32. It rounds to nearest even, or truncates
// if `rounds` is false.
uint64_t to_bits(double value, bp_dtype dtype, bool rounds);

// Returns `value` as a number with `bits` bits of significand, rounded to nearest even.
double rounded(double value, int bits);

// Elements in row-major order, as doubles. Doubles hold every dtype but large i64 values exactly.
class Values {
 public:
  // Reads `tensor`, after the work that has written its elements. `tensor` outlives this object.
  Values(const Call& call, const bp_tensor& tensor);

  [[nodiscard]] bp_status status() const { return status_; }
  size_t size() const { return places_.size(); }
  double operator[](size_t i) const { return values_[i]; }
  void set(size_t i, double value) { values_[i] = value; }
  // Returns the bits of an element. Elements that were not set keep their bits.
  uint64_t bits(size_t i) const;
  void set_bits(size_t i, uint64_t bits);

  // Writes the elements that were set, rounded to nearest even or truncated.
  bp_status write(bool rounds = true);

 private:
  void find_places();

  const Call& call_;
  const bp_tensor& tensor_;
  size_t item_bytes_;
  bp_buffer_ref range_{};
  std::vector<size_t> places_;  // The place of each element in bytes_.
  std::vector<std::byte> bytes_;
  std::vector<double> values_, read_;
  bp_status status_ = BP_OK;
};

// Returns the first failure of these reads, or BP_OK.
bp_status first_failure(std::initializer_list<const Values*> reads);

}  // namespace bp::mutants
