// How oracles become what a case expects, for ops of more than one class.
#pragma once

#include <cmath>
#include <utility>
#include <vector>

#include "conformance/cases/engine/op_case.hpp"

namespace bp::conformance {

// Class P: `run` takes a number and gives the arrays of the outputs in its type; the run on Bounded
// gives the bounds.
template <typename Run>
std::vector<Expected> propagated(bp_dtype dtype, Run run) {
  return with_float(dtype, [&](auto number) {
    const auto exact = run(number);
    return with_bounded(dtype, [&](auto bounded_number) {
      const auto bounds = run(bounded_number);
      std::vector<Expected> expected;
      for (size_t i = 0; i < exact.size(); ++i) {
        expected.push_back(bounded_by(exact[i], bounds[i]));
      }
      return expected;
    });
  });
}

// Where an argument is infinite, a formula may give NaN in place of its limit.
inline void allow_nan_at_infinity(Expected& expected, const HostTensor& argument) {
  expected.also_right = [data = argument.data](int64_t element, DoubleDouble y) {
    return isnan(y) && std::isinf(data[static_cast<size_t>(element)].hi);
  };
}

// The row with tensors of one element in place of its inline scalars, as a replayed graph has them.
inline OpCase with_scalars_as_tensors(OpCase row) {
  row.detail += "_tensors";
  for (const Attribute& attribute : row.attributes) {
    const auto* scalar = std::get_if<bp_scalar>(&attribute.value);
    if (scalar == nullptr) continue;
    const double value = scalar_value(*scalar).hi;
    row.input(attribute.name, scalar->dtype, {}, {FillKind::kUniform, value, value});
  }
  std::erase_if(row.attributes, [](const Attribute& attribute) {
    return std::holds_alternative<bp_scalar>(attribute.value);
  });
  return row;
}

// Smoke rows are those of f32 and f64.
inline bool is_smoke_dtype(bp_dtype dtype) { return dtype == BP_F32 || dtype == BP_F64; }

constexpr bp_dtype kFloats[] = {BP_F32, BP_F64, BP_F16, BP_BF16};

}  // namespace bp::conformance
