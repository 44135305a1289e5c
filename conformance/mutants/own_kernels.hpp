// Kernels of the mutants' own, for ops that the good backend leaves to their decompositions. They
// read their inputs on the host, and compute by the oracles of the suite. Wrong kernels give an
// oracle other inputs, another rule, or another order.
#pragma once

#include <cstdint>
#include <span>

#include "conformance/mutants/mistakes.hpp"
#include "conformance/reference/array.hpp"

namespace bp::mutants {

// Reads the tensors of a frame.
class Inputs {
 public:
  explicit Inputs(const Call& call) : call_(call) {}

  // Returns the first failure of a read, or BP_OK.
  [[nodiscard]] bp_status status() const { return status_; }

  template <typename N>
  conformance::Array<N> array(const bp_tensor& tensor) {
    const Values values(call_, tensor);
    if (status_ == BP_OK) status_ = values.status();
    conformance::Array<N> array(conformance::Shape(tensor.shape, tensor.shape + tensor.ndim));
    for (size_t i = 0; i < values.size(); ++i) array.data[i] = static_cast<N>(values[i]);
    return array;
  }

  // Returns a number of 64 bits, which the frame has inline or as a tensor of one element.
  uint64_t word(const bp_tensor* tensor, const bp_scalar& scalar);

 private:
  const Call& call_;
  bp_status status_ = BP_OK;
};

// Writes the elements of a result.
template <typename N>
bp_status write(const Call& call, const bp_tensor& to, const conformance::Array<N>& result) {
  Values values(call, to);
  if (const bp_status status = values.status(); status != BP_OK) return status;
  for (size_t i = 0; i < values.size(); ++i) values.set(i, static_cast<double>(result.data[i]));
  return values.write();
}

// What computes each op: as the spec says, and with mistakes.
std::span<const Mistake> right_moves();
std::span<const Mistake> wrong_moves();
std::span<const Mistake> right_cells();
std::span<const Mistake> wrong_cells();
std::span<const Mistake> right_draws();
std::span<const Mistake> wrong_draws();

}  // namespace bp::mutants
