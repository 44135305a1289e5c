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

// NaN is larger than every number, and smaller too.
template <typename N>
bool is_larger(N a, N b) {
  using std::isnan;
  if (isnan(b)) return false;
  return isnan(a) || b < a;
}

template <typename N>
bool is_smaller(N a, N b) {
  using std::isnan;
  if (isnan(b)) return false;
  return isnan(a) || a < b;
}

// Returns the index along `axis` of the first of the most extreme elements. Every line has one.
template <typename N, typename IsBeyond>
Array<int64_t> index_of_extreme(const Array<N>& x, int64_t axis, bool keepdims,
                                IsBeyond is_beyond) {
  Array<int64_t> result(reduced(x.shape, {axis}, keepdims));
  const AxisView view(x.shape, static_cast<size_t>(axis));
  for_each_line(view, [&](int64_t outer, int64_t inner) {
    int64_t best = 0;
    for (int64_t i = 1; i < view.extent; ++i) {
      if (is_beyond(x[view.at(outer, i, inner)], x[view.at(outer, best, inner)])) best = i;
    }
    result[outer * view.inner_size + inner] = best;
  });
  return result;
}

template <typename N>
Array<int64_t> argmax(const Array<N>& x, int64_t axis, bool keepdims) {
  return index_of_extreme(x, axis, keepdims, is_larger<N>);
}

template <typename N>
Array<int64_t> argmin(const Array<N>& x, int64_t axis, bool keepdims) {
  return index_of_extreme(x, axis, keepdims, is_smaller<N>);
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
template <typename N>
N highest() {
  if constexpr (std::is_same_v<N, Integer>) {
    return Integer(INT64_MAX);
  } else {
    return N(HUGE_VAL);
  }
}

// Returns the result of no elements, unless the formula counts.
template <typename F, typename N>
N identity() {
  if (F::kRow.adds) return N(0);
  if (F::kRow.multiplies) return N(1);
  return F::kRow.is_smallest ? highest<N>() : lowest<N>();
}

template <typename F, typename N>
N mapped(N x, N shift) {
  if constexpr (F::kRow.has_map) return F::map(x, shift);
  return x;
}
template <typename F, typename N>
N combined(N a, N b) {
  if constexpr (F::kRow.adds) return a + b;
  if constexpr (F::kRow.multiplies) return a * b;
  return (F::kRow.is_smallest ? is_smaller(b, a) : is_larger(b, a)) ? b : a;
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

// Returns the results of a formula whose map is a condition: a count, or 1 or 0.
template <typename F, typename N>
Array<N> counted_by(const Array<N>& x, const Shape& axes, bool keepdims) {
  Array<int64_t> counts(reduced(x.shape, axes, keepdims));
  for_each_reduced(x.shape, axes, [&](int64_t i, int64_t target) {
    if (F::map(x[i], N(0))) ++counts[target];
  });
  Array<N> result(counts.shape);
  const int64_t all = result.size() == 0 ? 0 : x.size() / result.size();
  for (int64_t i = 0; i < result.size(); ++i) {
    const int64_t count = counts[i];
    const int64_t given = F::kRow.is_any ? count != 0 : F::kRow.is_all ? count == all : count;
    if constexpr (std::is_same_v<N, Integer>) {
      result[i] = Integer(given);
    } else {
      result[i] = N(static_cast<double>(given));
    }
  }
  return result;
}

// A product with an exponent of its own, so that no step overflows or vanishes.
template <typename N>
class WideProduct {
 public:
  void take(N factor) {
    normalize(factor);
    product_ = product_ * factor;
    normalize(product_);
  }
  N value() const {
    constexpr int64_t kBeyond = 5000;  // Every exponent beyond overflows or vanishes.
    return scaled(product_, std::clamp(exponent_, -kBeyond, kBeyond));
  }

 private:
  static N scaled(N x, int64_t exponent) {
    const int by = static_cast<int>(exponent);
    if constexpr (std::is_same_v<N, DoubleDouble>) {
      return {std::ldexp(x.hi, by), std::ldexp(x.lo, by)};
    } else {
      return std::ldexp(x, by);
    }
  }
  // Takes the exponent of x out of it.
  void normalize(N& x) {
    const double nearest = primitive::nearest(x);
    if (nearest == 0 || !std::isfinite(nearest)) return;
    int exponent = 0;
    std::frexp(nearest, &exponent);
    x = scaled(x, -exponent);
    exponent_ += exponent;
  }

  N product_ = N(1);
  int64_t exponent_ = 0;
};

// Returns the products of mapped elements.
template <typename F, typename N>
Array<N> products(const Array<N>& x, const Array<N>& shift, const Shape& axes) {
  Array<N> result(shift.shape);
  std::vector<WideProduct<N>> made(result.data.size());
  for_each_reduced(x.shape, axes, [&](int64_t i, int64_t target) {
    made[static_cast<size_t>(target)].take(mapped<F>(x[i], shift[target]));
  });
  for (size_t i = 0; i < made.size(); ++i) result.data[i] = made[i].value();
  return result;
}

// Returns the results. A formula that copies one element keeps the sign of -0 if there are no axes;
// a sum would lose it.
template <typename F, typename N>
Array<N> reduced_by(const Array<N>& x, const Shape& axes, bool keepdims) {
  if constexpr (F::kRow.counts) return counted_by<F>(x, axes, keepdims);
  if (F::kRow.copies_one && axes.empty()) return x;
  const Array<N> shift = shifts<F>(x, axes, keepdims);
  Array<N> result(shift.shape);
  if constexpr (F::kRow.multiplies && !std::is_same_v<N, Integer>) {
    result = products<F>(x, shift, axes);
  } else if constexpr (!F::kRow.counts) {
    std::fill(result.data.begin(), result.data.end(), identity<F, N>());
    for_each_reduced(x.shape, axes, [&](int64_t i, int64_t target) {
      result[target] = combined<F>(result[target], mapped<F>(x[i], shift[target]));
    });
  }
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

// The bounds of products.
struct ProductBounds {
  std::vector<double> bounds;     // B of each result.
  std::vector<double> magnitude;  // What the error of a right result is about as large as, in units
                                  // of u_acc.
  std::vector<bool> is_lost;      // In some order, a finite result is infinite or NaN.
};

// The bound of one product.
struct ProductBound {
  double bound, magnitude;
  bool is_lost;
};

// The factors of one product. Each product of some of them is at most as large as `above`, and at
// least as large as `below`, unless a factor is 0.
struct Factors {
  void take(double factor) {
    const double size = std::fabs(factor);
    has_zero = has_zero || size == 0;
    has_infinity = has_infinity || std::isinf(size);
    if (size > 1 && std::isfinite(size)) above.take(size);
    if (size < 1 && size > 0) below.take(size), has_below = true;
  }

  // Returns whether the order decides if a product is infinite or NaN: a part of it may overflow,
  // and a factor that follows is below 1, or a part may vanish and meet an infinite factor.
  bool is_lost(double count, const Numerics& numerics) const {
    const double most = above.value(), least = below.value();
    const double rounded = most + product_bound(most, count, numerics);
    if (rounded > numerics.largest && count > 1 && (has_zero || has_below)) return true;
    return has_infinity && has_below && count > 2 && least < numerics.underflow;
  }

  WideProduct<double> above, below;
  bool has_zero = false, has_infinity = false, has_below = false;
};

// Returns the bound of R2 of the product `r` of `count` factors. A part that underflows loses eta
// at most, and the factors that follow make this larger. A product with a factor of 0 is 0.
inline ProductBound bound_of(const Factors& own, double r, double count, const Numerics& numerics) {
  const double most = own.above.value();
  const double least = own.below.value() - product_bound(own.below.value(), count, numerics);
  const bool may_underflow = own.has_below && least < numerics.smallest_normal;
  if (own.is_lost(count, numerics)) return {HUGE_VAL, HUGE_VAL, true};
  double bound = product_bound(std::fabs(r), count, numerics);
  if (may_underflow && count > 1 && !own.has_zero) {
    bound += count * numerics.underflow * (most + product_bound(most, count, numerics));
  }
  return {bound, std::sqrt(count) * std::fabs(r), false};
}

// The factors are exact, and so is the step that finishes the result.
template <typename F, typename N>
ProductBounds product_bounds(const Array<N>& x, const Shape& axes, const Numerics& numerics) {
  const Array<N> shift = shifts<F>(x, axes, true), exact = reduced_by<F>(x, axes, true);
  std::vector<Factors> factors(shift.data.size());
  for_each_reduced(x.shape, axes, [&](int64_t i, int64_t target) {
    factors[static_cast<size_t>(target)].take(primitive::nearest(mapped<F>(x[i], shift[target])));
  });
  const double count = count_of(x.size(), shift.size());
  ProductBounds found;
  for (size_t i = 0; i < factors.size(); ++i) {
    const ProductBound own =
        bound_of(factors[i], primitive::nearest(exact.data[i]), count, numerics);
    found.bounds.push_back(own.bound);
    found.magnitude.push_back(own.magnitude);
    found.is_lost.push_back(own.is_lost);
  }
  return found;
}

}  // namespace bp::conformance::reference
