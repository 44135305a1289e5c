// Oracles of Fourier transforms along an axis, and their bounds. A complex tensor has a last axis
// of the real and the imaginary part.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "conformance/numerics/bounds.hpp"
#include "conformance/reference/array.hpp"
#include "conformance/reference/functions.hpp"
#include "conformance/reference/primitives.hpp"

namespace bp::conformance::reference {

template <typename N>
struct Complex {
  N re = N(0), im = N(0);
};

template <typename N>
Complex<N> operator+(const Complex<N>& a, const Complex<N>& b) {
  return {a.re + b.re, a.im + b.im};
}
template <typename N>
Complex<N> operator*(const Complex<N>& a, const Complex<N>& b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

// The transform of lines of `length` elements: y[k] is the sum over j of x[j] * exp(-2 pi i j k /
// length), or of exp(2 pi i j k / length) if `is_inverse` is true.
template <typename N>
class LineTransform {
 public:
  using Line = std::vector<Complex<N>>;

  LineTransform(int64_t length, bool is_inverse) : length_(length) {
    for (int64_t k = 0; k < length; ++k) {
      const auto part = DoubleDouble::from_int64(k) / DoubleDouble::from_int64(length);
      const SineAndCosine at = sine_and_cosine(part);
      roots_.push_back({number_of(at.cosine), number_of(is_inverse ? at.sine : -at.sine)});
    }
  }

  Line operator()(const Line& x) const { return part(x, 0, 1); }

 private:
  static N number_of(DoubleDouble value) {
    if constexpr (std::is_same_v<N, DoubleDouble>) {
      return value;
    } else {
      return N(value.hi);
    }
  }

  // Transforms x[first], x[first + step] and so on. If the number of these elements has a factor p,
  // the transforms of every p-th of them are put together (Cooley and Tukey 1965); a prime number
  // of elements is summed as the definition says.
  Line part(const Line& x, int64_t first, int64_t step) const {
    const int64_t n = length_ / step;
    if (n == 1) return {x[static_cast<size_t>(first)]};
    int64_t factor = 2;
    while (n % factor != 0) ++factor;
    Line y(static_cast<size_t>(n));
    for (int64_t q = 0; q < factor; ++q) {
      const Line own = part(x, first + q * step, step * factor);
      for (int64_t k = 0; k < n; ++k) {
        Complex<N>& sum = y[static_cast<size_t>(k)];
        sum = sum + own[static_cast<size_t>(k % (n / factor))] *
                        roots_[static_cast<size_t>(q * k % n * step)];
      }
    }
    return y;
  }

  int64_t length_;
  std::vector<Complex<N>> roots_;
};

// What divides a sum.
enum class Divisor { kNone, kRoot, kLength };

struct Fourier {
  size_t axis = 0;
  int64_t length = 1;  // The elements of a line of the complex transform.
  bool is_inverse = false;
  bool has_real_x = false;  // y has length // 2 + 1 elements along the axis.
  bool has_real_y = false;  // x has length // 2 + 1 elements, of which the others follow.
  Divisor divisor = Divisor::kNone;
};

template <typename N>
struct Transformed {
  Array<N> y;
  // For each element of y, what the magnitudes of all parts of its line add up to, undivided.
  std::vector<double> magnitudes;
  std::vector<bool> is_zero;  // The imaginary part of a bin that is its own conjugate.
};

// Returns line (outer, inner) of x, with the elements that follow from conjugates.
template <typename N>
std::vector<Complex<N>> line_of(const Array<N>& x, const AxisView& view, int64_t outer,
                                int64_t inner, const Fourier& f) {
  const auto n = static_cast<size_t>(f.length);
  std::vector<Complex<N>> line(n);
  for (int64_t i = 0; i < view.extent; ++i) {
    const int64_t at = view.at(outer, i, inner);
    Complex<N>& z = line[static_cast<size_t>(i)];
    z = f.has_real_x ? Complex<N>{x[at], N(0)} : Complex<N>{x[2 * at], x[2 * at + 1]};
    if (!f.has_real_y) continue;
    const bool is_own_conjugate = 2 * i % f.length == 0;
    if (is_own_conjugate) z.im = z.im * N(0);  // NaN and infinity stay NaN.
    if (!is_own_conjugate) line[n - static_cast<size_t>(i)] = {z.re, -z.im};
  }
  return line;
}

template <typename N>
Transformed<N> fourier(const Array<N>& x, const Shape& y_shape, const Fourier& f) {
  const LineTransform<N> transform(f.length, f.is_inverse);
  const auto lines_of = [&](const Shape& shape, bool is_real) {
    return AxisView(std::span(shape).first(shape.size() - (is_real ? 0 : 1)), f.axis);
  };
  const AxisView from = lines_of(x.shape, f.has_real_x), to = lines_of(y_shape, f.has_real_y);
  Transformed<N> result{Array<N>(y_shape), {}, {}};
  result.magnitudes.resize(result.y.data.size());
  result.is_zero.resize(result.y.data.size());
  const N whole = N(static_cast<double>(f.length));
  const auto divided = [&](const N& sum) {
    if (f.divisor == Divisor::kNone) return sum;
    return sum / (f.divisor == Divisor::kLength ? whole : primitive::sqrt(whole));
  };
  for_each_line(from, [&](int64_t outer, int64_t inner) {
    const auto line = line_of(x, from, outer, inner, f);
    double magnitude = 0;
    for (const Complex<N>& z : line) {
      magnitude += std::fabs(primitive::nearest(z.re)) + std::fabs(primitive::nearest(z.im));
    }
    const auto sums = transform(line);
    const auto put = [&](int64_t at, const N& sum) {
      result.y[at] = divided(sum);
      result.magnitudes[static_cast<size_t>(at)] = magnitude;
    };
    for (int64_t k = 0; k < to.extent; ++k) {
      const int64_t at = to.at(outer, k, inner);
      const Complex<N>& sum = sums[static_cast<size_t>(k)];
      put(f.has_real_y ? at : 2 * at, sum.re);
      if (f.has_real_y) continue;
      put(2 * at + 1, sum.im);
      result.is_zero[static_cast<size_t>(2 * at + 1)] = f.has_real_x && 2 * k % f.length == 0;
    }
  });
  return result;
}

// Returns the bound of a result whose line has this magnitude: that of a sum of the parts, in which
// each factor has an error of its own, and then of a division. Relaxed math has a part in the angle
// of a factor, the root, and the division.
inline double fourier_bound(double magnitude, const Fourier& f, const Numerics& numerics) {
  constexpr double kFactorError = 8, kDivisionError = 2, kRelaxedError = 16;
  const double terms = static_cast<double>(f.length) * (f.has_real_x ? 1 : 2);
  const double more = kFactorError + kDivisionError + (numerics.relaxed ? kRelaxedError : 0);
  const double whole = static_cast<double>(f.length);
  const double divisor = f.divisor == Divisor::kNone     ? 1
                         : f.divisor == Divisor::kLength ? whole
                                                         : std::sqrt(whole);
  const double of_sum = sum_bound(magnitude, terms, numerics) + more * numerics.unit * magnitude;
  return of_sum / divisor + numerics.underflow;
}

}  // namespace bp::conformance::reference
