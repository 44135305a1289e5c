// Oracles of the reductions, and the bounds of those that a formula gives.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "conformance/numerics/bounded.hpp"
#include "conformance/reference/array.hpp"
#include "conformance/reference/primitives.hpp"

namespace bp::conformance::reference {

// Returns the shape of the result: with `keepdims`, the reduced axes have extent 1, else they are
// left out.
inline Shape reduced(const Shape& shape, const Shape& axes, bool keepdims) {
  Shape result;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    const bool is_reduced =
        std::find(axes.begin(), axes.end(), static_cast<int64_t>(axis)) != axes.end();
    if (!is_reduced) result.push_back(shape[axis]);
    if (is_reduced && keepdims) result.push_back(1);
  }
  return result;
}

// Calls visit(i, target) for each element i of `shape` in row-major order. `target` is the result
// element to which element i belongs.
template <typename Visit>
void for_each_reduced(const Shape& shape, const Shape& axes, Visit visit) {
  const Shape kept = reduced(shape, axes, true);
  Shape steps(shape.size()), place(shape.size());
  int64_t stride = 1, target = 0;
  for (size_t axis = shape.size(); axis-- > 0;) {
    const bool is_reduced =
        std::find(axes.begin(), axes.end(), static_cast<int64_t>(axis)) != axes.end();
    steps[axis] = is_reduced ? 0 : stride;
    stride *= kept[axis];
  }
  const int64_t count = element_count(shape);
  for (int64_t i = 0; i < count; ++i) {
    visit(i, target);
    for (size_t axis = shape.size(); axis-- > 0;) {
      target += steps[axis];
      if (++place[axis] < shape[axis]) break;
      target -= steps[axis] * shape[axis];
      place[axis] = 0;
    }
  }
}

// NaN is larger than every number.
template <typename N>
bool is_larger(N a, N b) {
  using std::isnan;
  if (isnan(b)) return false;
  return isnan(a) || b < a;
}

// Returns the index along `axis` of the first of the largest elements. Every line has one.
template <typename N>
Array<int64_t> argmax(const Array<N>& x, int64_t axis, bool keepdims) {
  Array<int64_t> result(reduced(x.shape, {axis}, keepdims));
  const AxisView view(x.shape, static_cast<size_t>(axis));
  for_each_line(view, [&](int64_t outer, int64_t inner) {
    int64_t best = 0;
    for (int64_t i = 1; i < view.extent; ++i) {
      if (is_larger(x[view.at(outer, i, inner)], x[view.at(outer, best, inner)])) best = i;
    }
    result[outer * view.inner_size + inner] = best;
  });
  return result;
}

// ---- Reductions by a formula ----------------------------------------------------------------- //
//
// A formula F is a struct of reductions.hpp, which emit_reductions.py writes: F::kRow lists its
// parts, and F::map() and F::finish() are its functions on a number type.

template <typename N>
N lowest() {
  if constexpr (std::is_same_v<N, Integer>) {
    return Integer(INT64_MIN);
  } else {
    return N(-HUGE_VAL);
  }
}

template <typename F, typename N>
N mapped(N x, N shift) {
  if constexpr (F::kRow.has_map) return F::map(x, shift);
  return x;
}
template <typename F, typename N>
N combined(N a, N b) {
  if constexpr (F::kRow.adds) return a + b;
  return is_larger(b, a) ? b : a;
}
template <typename F, typename N>
N finished(N total, double count, N shift) {
  if constexpr (F::kRow.has_finish) return F::finish(total, N(count), shift);
  return total;
}

// Returns the shift of each result: the largest element. It is 0 if that element is infinite or
// does not exist, or if the formula has no shift.
template <typename F, typename N>
Array<N> shifts(const Array<N>& x, const Shape& axes, bool keepdims) {
  Array<N> shift(reduced(x.shape, axes, keepdims));
  if constexpr (F::kRow.has_shift) {
    std::fill(shift.data.begin(), shift.data.end(), lowest<N>());
    for_each_reduced(x.shape, axes, [&](int64_t i, int64_t target) {
      if (is_larger(x[i], shift[target])) shift[target] = x[i];
    });
    for (N& value : shift.data) {
      if (value == -lowest<N>() || value == lowest<N>()) value = N(0);
    }
  }
  return shift;
}

// Returns how many elements each of `results` results has.
inline double count_of(int64_t elements, int64_t results) {
  const int64_t count = results == 0 ? 1 : elements / results;
  return static_cast<double>(count);
}

// Returns the results. A formula that copies one element keeps the sign of -0 if there are no axes;
// a sum would lose it.
template <typename F, typename N>
Array<N> reduced_by(const Array<N>& x, const Shape& axes, bool keepdims) {
  if (F::kRow.copies_one && axes.empty()) return x;
  const Array<N> shift = shifts<F>(x, axes, keepdims);
  Array<N> result(shift.shape);
  std::fill(result.data.begin(), result.data.end(), F::kRow.adds ? N(0) : lowest<N>());
  for_each_reduced(x.shape, axes, [&](int64_t i, int64_t target) {
    result[target] = combined<F>(result[target], mapped<F>(x[i], shift[target]));
  });
  const double count = count_of(x.size(), result.size());
  for (int64_t i = 0; i < result.size(); ++i) {
    result[i] = finished<F>(result[i], count, shift[i]);
  }
  return result;
}

// The bounds of a formula that adds.
struct AddedBounds {
  std::vector<double> bounds;     // B of each result.
  std::vector<double> magnitude;  // S of each result: it comes from the absolute values of the
                                  // terms.
};

// The sum has the bound of R1 and carries the errors of its terms. The step that finishes the
// result carries both, and adds its own error. `B` is the number type that carries the errors.
template <typename F, typename B, typename N>
AddedBounds added_bounds(const Array<N>& x, const Shape& axes, const Numerics& numerics) {
  const Array<N> shift = shifts<F>(x, axes, true);
  Array<B> total(shift.shape);
  std::vector<double> magnitude(total.data.size());
  for_each_reduced(x.shape, axes, [&](int64_t i, int64_t target) {
    const B element(primitive::nearest(x[i]));
    const B term = mapped<F>(element, B(primitive::nearest(shift[target])));
    B& sum = total[target];
    sum.value += term.value;
    magnitude[static_cast<size_t>(target)] += std::fabs(term.value);
    if (!std::isfinite(element.value)) return;  // An infinite number is never rounded.
    sum.error += term.error;
    sum.is_lost = sum.is_lost || term.may_overflow();
  });
  const double count = count_of(x.size(), total.size());
  AddedBounds found;
  for (int64_t i = 0; i < total.size(); ++i) {
    B& sum = total[i];
    const double own = magnitude[static_cast<size_t>(i)], nearest = primitive::nearest(shift[i]);
    sum.error += sum_bound(own + sum.error, count, numerics);
    // If finite elements let a step before the last one overflow, any result is right.
    const bool is_lost = F::kRow.has_map && F::kRow.has_finish && sum.may_overflow();
    found.bounds.push_back(
        is_lost && std::isfinite(sum.value) ? HUGE_VAL : finished<F>(sum, count, B(nearest)).error);
    found.magnitude.push_back(std::fabs(finished<F>(own, count, nearest)));
  }
  return found;
}

}  // namespace bp::conformance::reference
