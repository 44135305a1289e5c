// Products of f32 matrices that are computed on the host, for mutants and for benign variants.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "backplane/ops.h"
#include "conformance/mutants/values.hpp"

namespace bp::mutants {

inline bool are_f32(std::initializer_list<const bp_tensor*> tensors) {
  return std::ranges::all_of(tensors,
                             [](const bp_tensor* t) { return t == nullptr || t->dtype == BP_F32; });
}

// The terms of one element of a product, in the order of K.
struct Terms {
  const Values &a, &b;
  size_t first_a, first_b, step_b, count;

  float left(size_t i) const { return static_cast<float>(a[first_a + i]); }
  float right(size_t i) const { return static_cast<float>(b[first_b + i * step_b]); }
};

// Computes each element of a plain product of f32 matrices as `sum` does. The good kernel serves
// every other call.
template <typename Sum>
bp_status multiply(const Call& call, const void* args, Sum sum) {
  const auto& frame = *static_cast<const bp_matmul_args*>(args);
  const bool is_strict = (call.launch->flags & BP_LAUNCH_STRICT_F32) != 0;
  const bool is_plain = frame.addend == nullptr && frame.alpha == 0 && frame.beta == 0;
  if (is_strict || !is_plain || !are_f32({frame.a, frame.b, frame.y})) return call.run(args);
  const Values a(call, *frame.a), b(call, *frame.b);
  Values y(call, *frame.y);
  const bp_status read = first_failure({&a, &b, &y});
  if (read != BP_OK) return read;
  const uint32_t rank = frame.a->ndim;
  const auto m = static_cast<size_t>(frame.a->shape[rank - 2]);
  const auto k = static_cast<size_t>(frame.a->shape[rank - 1]);
  const auto n = static_cast<size_t>(frame.b->shape[rank - 1]);
  for (size_t at = 0; at < y.size(); ++at) {
    const size_t batch = at / (m * n), row = at / n % m, column = at % n;
    y.set(at, sum(Terms{a, b, (batch * m + row) * k, batch * k * n + column, n, k}));
  }
  return y.write();
}

// Returns the sum of the terms, which is kept in `bits` bits. Operands keep all of theirs.
inline double sum_in_bits(const Terms& terms, int bits) {
  double sum = 0;
  for (size_t i = 0; i < terms.count; ++i) {
    sum = rounded(sum + static_cast<double>(terms.left(i)) * terms.right(i), bits);
  }
  return sum;
}

// Returns the sum of the products of operands that are rounded to `bits` bits.
inline double sum_of_short(const Terms& terms, int bits) {
  float sum = 0;
  for (size_t i = 0; i < terms.count; ++i) {
    sum += static_cast<float>(rounded(terms.left(i), bits) * rounded(terms.right(i), bits));
  }
  return sum;
}

}  // namespace bp::mutants
