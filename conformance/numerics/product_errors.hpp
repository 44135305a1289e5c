// What a declaration of reduced products allows the products of an op that also computes factors
// itself, as attention does.
#pragma once

#include <cmath>
#include <utility>

#include "conformance/numerics/bounded.hpp"
#include "conformance/numerics/dtype.hpp"
#include "conformance/numerics/numerics.hpp"

namespace bp::conformance {

// Returns the relative error of a product of two numbers of `dtype`, as inputs are. It is 0 if the
// declared products hold all bits of the dtype: TF32 holds operands of 11 bits, and the others hold
// those of bf16.
inline double input_product(bp_dtype dtype, const Numerics& numerics) {
  constexpr double kTf32 = 0x1p-10;
  const int held_bits = numerics.product == kTf32 ? 11 : 8;
  return float_format(dtype)->precision <= held_bits ? 0 : numerics.product;
}

// While an object lives, products of matrices in f32 arithmetic on its thread have the errors that
// a kernel declares: those of two inputs, and those with a factor that the op has computed.
class ProductErrors {
 public:
  ProductErrors(double of_inputs, double of_results)
      : before_(std::exchange(current, Pair{of_inputs, of_results})) {}
  ~ProductErrors() { current = before_; }
  ProductErrors(const ProductErrors&) = delete;

  static double of_inputs() { return current.of_inputs; }
  static double of_results() { return current.of_results; }

 private:
  struct Pair {
    double of_inputs, of_results;
  };
  static inline thread_local Pair current{0, 0};
  const Pair before_;
};

// Return a product of a matrix product: of two inputs, or with a factor that the op has computed.
template <typename N>
N product_of_inputs(N product) {
  if constexpr (requires { N::kUnit; }) {
    if constexpr (!N::kWide) product.error += ProductErrors::of_inputs() * std::fabs(product.value);
  }
  return product;
}
template <typename N>
N product_of_results(N product) {
  if constexpr (requires { N::kUnit; }) {
    if constexpr (!N::kWide) {
      const double size = std::fabs(product.value) + product.error;
      product.error += ProductErrors::of_results() * size;
    }
  }
  return product;
}

}  // namespace bp::conformance
