// The mean and the variance of elements in memory, for norms whose statistics come from more than
// one row.
//
// A piece, which stays in the first-level cache, is read twice: for its mean, and for the sums of
// the differences from it and of their squares. The first of these sums corrects the rounded mean
// (Chan, Golub, LeVeque 1983, eq. 1.7). Pieces are joined in f64 (eq. 2.1 there). So memory is read
// once, and no sum loses digits if the mean is large.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_MOMENTS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_MOMENTS_INL_HPP
#undef BACKPLANE_CPU_MOMENTS_INL_HPP
#else
#define BACKPLANE_CPU_MOMENTS_INL_HPP
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "backends/host_kernels/rows-inl.hpp"
#include "backends/host_kernels/sums-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

struct Moments {
  double count = 0, sum = 0;
  // The sum of the differences from `center`, a number near the mean. The distance between two
  // means is computed from it: that of their quotients would lose digits if the means are large.
  double center = 0, rest = 0;
  double squares = 0;  // The sum of the squared differences from the mean.

  double mean() const { return sum / count; }
  double variance() const { return squares / count; }

  HWY_INLINE void join(const Moments& other) {
    if (other.count == 0) return;
    if (count == 0) {
      *this = other;
      return;
    }
    const double shift = other.center - center, all = count + other.count;
    const double distance = shift + (other.rest / other.count - rest / count);
    squares += other.squares + distance * distance * (count * other.count / all);
    rest += other.rest + other.count * shift;
    sum += other.sum;
    count = all;
  }
};

// Returns the moments of a piece. `rest` and `squares` are the sums of the differences from `mean`
// and of their squares. If the mean is infinite, `rest` is NaN and is not added to the sum.
HWY_INLINE Moments moments_around(double count, double mean, double rest, double squares) {
  const double corrected = squares - rest * rest / count;
  return {count, mean * count + (std::isfinite(rest) ? rest : 0), mean, rest,
          corrected < 0 ? 0 : corrected};
}

constexpr int64_t kPieceElements = 4096;

// Calls pair(v, w) for two vectors of a row at a time, and part(v, excluded) for the vectors that
// are left, where `excluded` are lanes that do not count. The last vector of a row begins before
// the one before it ends, so that it is loaded at once.
template <typename T, class At, class Pair, class Part>
HWY_INLINE void walk_vectors(int64_t rows, int64_t n, const At& at, const Pair& pair,
                             const Part& part) {
  const ComputeTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t rest = n % lanes, whole = n - rest;
  const bool is_short = n < lanes;
  const auto none = hn::FirstN(d, 0);
  const auto excluded = is_short ? hn::Not(hn::FirstN(d, static_cast<size_t>(rest)))
                                 : hn::FirstN(d, static_cast<size_t>(lanes - rest));
  for (int64_t i = 0; i < rows; ++i) {
    const T* const x = at(i);
    int64_t k = 0;
    for (; k + 2 * lanes <= whole; k += 2 * lanes) {
      pair(load_lanes(d, x + k), load_lanes(d, x + k + lanes));
    }
    if (k < whole) part(load_lanes(d, x + k), none);
    if (is_short) {
      part(load_lanes_n(d, x, static_cast<size_t>(rest)), excluded);
    } else if (rest != 0) {
      part(load_lanes(d, x + n - lanes), excluded);
    }
  }
}

// Returns the moments of `rows` rows of n elements; at(i) gives the address of row i.
template <typename T, class At>
HWY_INLINE Moments moments_of_piece(int64_t rows, int64_t n, const At& at) {
  using C = Compute<T>;
  const ComputeTag<T> d;
  const auto total = [&](auto a, auto b)
                         HWY_ATTR { return hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b))); };
  auto sums = hn::Zero(d), other_sums = sums;
  walk_vectors<T>(
      rows, n, at,
      [&](auto v, auto w) HWY_ATTR {
        sums = hn::Add(sums, v);
        other_sums = hn::Add(other_sums, w);
      },
      [&](auto v, auto excluded)
          HWY_ATTR { sums = hn::Add(sums, hn::IfThenZeroElse(excluded, v)); });
  const C mean = total(sums, other_sums) / static_cast<C>(rows * n);
  const auto center = hn::Set(d, mean);
  auto rest = hn::Zero(d), squares = rest, other_rest = rest, other_squares = rest;
  walk_vectors<T>(
      rows, n, at,
      [&](auto v, auto w) HWY_ATTR {
        const auto a = hn::Sub(v, center), b = hn::Sub(w, center);
        rest = hn::Add(rest, a);
        other_rest = hn::Add(other_rest, b);
        squares = hn::MulAdd(a, a, squares);
        other_squares = hn::MulAdd(b, b, other_squares);
      },
      [&](auto v, auto excluded) HWY_ATTR {
        const auto a = hn::IfThenZeroElse(excluded, hn::Sub(v, center));
        rest = hn::Add(rest, a);
        squares = hn::MulAdd(a, a, squares);
      });
  return moments_around(static_cast<double>(rows * n), static_cast<double>(mean),
                        static_cast<double>(total(rest, other_rest)),
                        static_cast<double>(total(squares, other_squares)));
}

// Returns the moments of any number of rows. Short rows share a piece, and long ones are cut.
template <typename T, class At>
Moments moments_of_rows(int64_t rows, int64_t n, const At& at) {
  Moments all;
  if (rows * n == 0) return all;
  if (rows * n <= kPieceElements) return moments_of_piece<T>(rows, n, at);
  const int64_t length = std::min(n, kPieceElements), together = kPieceElements / length;
  for (int64_t i = 0; i < rows; i += together) {
    for (int64_t begin = 0; begin < n; begin += length) {
      all.join(moments_of_piece<T>(std::min(together, rows - i), std::min(length, n - begin),
                                   [&](int64_t row) { return at(i + row) + begin; }));
    }
  }
  return all;
}

// The most columns of one call below.
constexpr int64_t kMomentColumns = 512;

// Sets moments[i] to those of column i of `rows` rows of n columns; at(i) gives the address of row
// i. A piece has few rows, so that it stays in the second-level cache.
template <typename T, class At>
void moments_of_columns(int64_t rows, int64_t n, const At& at, Moments* moments) {
  using C = Compute<T>;
  constexpr int64_t kPieceRows = 32;
  HWY_ALIGN C mean[kMomentColumns], rest[kMomentColumns], squares[kMomentColumns];
  std::fill_n(moments, n, Moments());
  for (int64_t first = 0; first < rows; first += kPieceRows) {
    const int64_t count = std::min(kPieceRows, rows - first);
    for (C* sums : {mean, rest, squares}) std::fill_n(sums, n, C{0});
    for (int64_t row = 0; row < count; ++row) {
      for_each_lanes<T>(n, [&, x = at(first + row)](auto lanes) HWY_ATTR {
        lanes.store(hn::Add(lanes.load(mean), lanes.load(x)), mean);
      });
    }
    for (int64_t i = 0; i < n; ++i) mean[i] /= static_cast<C>(count);
    for (int64_t row = 0; row < count; ++row) {
      for_each_lanes<T>(n, [&, x = at(first + row)](auto lanes) HWY_ATTR {
        const auto v = hn::Sub(lanes.load(x), lanes.load(mean));
        lanes.store(hn::Add(lanes.load(rest), v), rest);
        lanes.store(hn::MulAdd(v, v, lanes.load(squares)), squares);
      });
    }
    for (int64_t i = 0; i < n; ++i) {
      moments[i].join(moments_around(static_cast<double>(count), static_cast<double>(mean[i]),
                                     static_cast<double>(rest[i]),
                                     static_cast<double>(squares[i])));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_MOMENTS_INL_HPP
