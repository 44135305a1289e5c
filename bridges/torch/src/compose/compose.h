// What the files of this folder share: operators that are composed of several calls, or whose
// shapes need work. Each function does one operator of ATen; registrar.h makes its other forms.
#pragma once

#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>

#include <tuple>
#include <vector>

#include "../call.h"
#include "../random.h"
#include "../registrar.h"
#include "../tensors.h"

namespace bpt {

using at::IntArrayRef;
using at::Scalar;
using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// A list of one number stands for `count` of them.
inline std::vector<int64_t> each(IntArrayRef list, int64_t count) {
  return list.size() == 1 ? std::vector<int64_t>(count, list[0]) : list.vec();
}

inline bool is_float(const Tensor& tensor) { return at::isFloatingType(tensor.scalar_type()); }

// A number as one that the dtype takes: a real one is cut for integers.
inline Scalar fitted(const Scalar& value, at::ScalarType type) {
  if (!value.isFloatingPoint() || at::isFloatingType(type) || at::isComplexType(type)) return value;
  return type == at::kBool ? Scalar(value.toDouble() != 0)
                           : Scalar(static_cast<int64_t>(value.toDouble()));
}

// Throws Unsupported with this reason.
inline void require(bool is_met, const char* reason) {
  if (!is_met) throw Unsupported{reason};
}

}  // namespace bpt
