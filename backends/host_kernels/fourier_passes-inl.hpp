// The passes of a Fourier transform over a tile (fourier.hpp).
//
// A pass of radix r over n = r * m elements, with `step` transforms side by side, makes
//   y[step * (r * p + j) + q] = sum over k of x[step * (p + m * k) + q] * exp(-2 pi i j k / r),
//                               times exp(-2 pi i j p / n)
// for p < m, j < r and q < step. After the last pass the elements are in order. The last vector of
// a row is moved back to end with the row, or, if the row is shorter than a vector, spills into the
// row behind it, which is written later. So no vector is masked.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_FOURIER_PASSES_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_FOURIER_PASSES_INL_HPP
#undef BACKPLANE_CPU_FOURIER_PASSES_INL_HPP
#else
#define BACKPLANE_CPU_FOURIER_PASSES_INL_HPP
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "backends/host_kernels/fourier.hpp"
#include "backends/host_kernels/fourier_roots-inl.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// ---- Butterflies ----------------------------------------------------------------------------- //

// Returns a number in every lane, rounded to the type of the lanes.
template <class D>
HWY_INLINE hn::Vec<D> constant(D d, double value) {
  return hn::Set(d, static_cast<hn::TFromD<D>>(value));
}

template <int kRadix>
struct Butterfly;

template <>
struct Butterfly<2> {
  template <class D, class V>
  HWY_INLINE void operator()(D, Number<V>* a) const {
    const Number<V> sum = add(a[0], a[1]);
    a[1] = sub(a[0], a[1]);
    a[0] = sum;
  }
};

template <>
struct Butterfly<3> {
  template <class D, class V>
  HWY_INLINE void operator()(D d, Number<V>* a) const {
    const Number<V> sum = add(a[1], a[2]), apart = turned(sub(a[1], a[2]));
    const Number<V> middle = add_scaled(a[0], constant(d, -0.5), sum);
    const auto sine = constant(d, 0.866025403784438646763723170752936183);
    a[0] = add(a[0], sum);
    a[1] = add_scaled(middle, sine, apart);
    a[2] = add_scaled(middle, hn::Neg(sine), apart);
  }
};

template <>
struct Butterfly<4> {
  template <class D, class V>
  HWY_INLINE void operator()(D, Number<V>* a) const {
    const Number<V> even = add(a[0], a[2]), even_apart = sub(a[0], a[2]);
    const Number<V> odd = add(a[1], a[3]), odd_apart = turned(sub(a[1], a[3]));
    a[0] = add(even, odd);
    a[1] = add(even_apart, odd_apart);
    a[2] = sub(even, odd);
    a[3] = sub(even_apart, odd_apart);
  }
};

template <>
struct Butterfly<5> {
  template <class D, class V>
  HWY_INLINE void operator()(D d, Number<V>* a) const {
    const auto c1 = constant(d, 0.309016994374947424102293417182819059);
    const auto c2 = constant(d, -0.809016994374947424102293417182819059);
    const auto s1 = constant(d, 0.951056516295153572116439333379382143);
    const auto s2 = constant(d, 0.587785252292473129168705954639072769);
    const Number<V> near = add(a[1], a[4]), far = add(a[2], a[3]);
    const Number<V> near_apart = turned(sub(a[1], a[4])), far_apart = turned(sub(a[2], a[3]));
    const Number<V> first = add_scaled(add_scaled(a[0], c1, near), c2, far);
    const Number<V> second = add_scaled(add_scaled(a[0], c2, near), c1, far);
    const Number<V> zero{hn::Zero(d), hn::Zero(d)};
    const Number<V> first_apart = add_scaled(add_scaled(zero, s1, near_apart), s2, far_apart);
    const Number<V> second_apart =
        add_scaled(add_scaled(zero, s2, near_apart), hn::Neg(s1), far_apart);
    a[0] = add(a[0], add(near, far));
    a[1] = add(first, first_apart);
    a[2] = add(second, second_apart);
    a[3] = sub(second, second_apart);
    a[4] = sub(first, first_apart);
  }
};

// ---- Passes ---------------------------------------------------------------------------------- //

// One pass over a tile. The table has exp(-2 pi i k / root_count), where root_count is a multiple
// of radix * groups.
template <typename C>
struct Pass {
  Parts<C> x, y, roots;
  int64_t root_count = 1;
  int64_t radix = 1;
  int64_t groups = 1;  // m
  int64_t row = 1;     // The step times the width of the tile.

  Parts<C> root(int64_t j, int64_t p) const {
    return roots + j * p * (root_count / (radix * groups));
  }
};

// Calls body(q) for the vectors of a row.
template <class D, class Body>
HWY_INLINE void for_each_vector_of_row(D d, int64_t row, const Body& body) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t q = 0;
  for (; q + lanes < row; q += lanes) body(q);
  body(std::max<int64_t>(0, row - lanes));
}

template <int kRadix, bool kHasFactors, typename C>
HWY_INLINE void run_group(const Pass<C>& pass, int64_t p) {
  const hn::ScalableTag<C> d;
  using V = hn::Vec<decltype(d)>;
  Number<V> factors[kRadix];
  if constexpr (kHasFactors) {
    for (int j = 1; j < kRadix; ++j) factors[j] = set_number(d, pass.root(j, p));
  }
  const Parts<C> x = pass.x + p * pass.row, y = pass.y + kRadix * p * pass.row;
  const int64_t apart = pass.groups * pass.row;
  for_each_vector_of_row(d, pass.row, [&](int64_t q) HWY_ATTR {
    Number<V> a[kRadix];
    for (int k = 0; k < kRadix; ++k) a[k] = load_number(d, x + k * apart + q);
    Butterfly<kRadix>()(d, a);
    store_number(a[0], d, y + q);
    for (int j = 1; j < kRadix; ++j) {
      if constexpr (kHasFactors) a[j] = mul(a[j], factors[j]);
      store_number(a[j], d, y + j * pass.row + q);
    }
  });
}

#if HWY_TARGET != HWY_SCALAR
// The first pass over one line: neighbouring groups fill the vectors. Returns how many groups are
// done; the others are fewer than a vector has lanes.
template <typename C>
int64_t run_first_groups(const Pass<C>& pass) {
  const hn::ScalableTag<C> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t step = pass.root_count / (4 * pass.groups);
  HWY_ALIGN C block[3][2][hn::MaxLanes(decltype(d)())];
  int64_t p = 0;
  for (; p + lanes <= pass.groups; p += lanes) {
    Number<hn::Vec<decltype(d)>> a[4];
    for (int k = 0; k < 4; ++k) a[k] = load_number(d, pass.x + (p + k * pass.groups));
    Butterfly<4>()(d, a);
    for (int j = 1; j < 4; ++j) {
      Parts<C> factors{block[j - 1][0], block[j - 1][1]};
      for (int64_t lane = 0; lane < lanes; ++lane) {
        factors.re[lane] = pass.roots.re[j * (p + lane) * step];
        factors.im[lane] = pass.roots.im[j * (p + lane) * step];
      }
      a[j] = mul(a[j], load_number(d, factors));
    }
    hn::StoreInterleaved4(a[0].re, a[1].re, a[2].re, a[3].re, d, pass.y.re + 4 * p);
    hn::StoreInterleaved4(a[0].im, a[1].im, a[2].im, a[3].im, d, pass.y.im + 4 * p);
  }
  return p;
}
#endif

template <int kRadix, typename C>
void run_pass_of(const Pass<C>& pass) {
  int64_t done = 0;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (kRadix == 4) {
    if (pass.row == 1) done = run_first_groups(pass);
  }
#endif
  if (done == 0) run_group<kRadix, false>(pass, 0);
  for (int64_t p = std::max<int64_t>(1, done); p < pass.groups; ++p) {
    run_group<kRadix, true>(pass, p);
  }
}

// The real factors of a pass of an odd radix r: cos and sin of 2 pi k / r.
template <typename C>
struct OddFactors {
  explicit OddFactors(const Pass<C>& pass) {
    for (int64_t k = 0; k < pass.radix; ++k) {
      const Parts<C> root = pass.roots + k * (pass.root_count / pass.radix);
      cosines[k] = *root.re;
      sines[k] = -*root.im;
    }
  }

  C cosines[FourierPasses::kMostRadix], sines[FourierPasses::kMostRadix];
};

// Sums and differences of the elements that lie opposite each other have real factors. The
// elements are at x, and the results at y, a row or a plane apart.
template <class D, typename C>
HWY_INLINE void run_odd_butterfly(D d, const Pass<C>& pass, const OddFactors<C>& factors, int64_t p,
                                  Parts<C> x, Parts<C> y) {
  using V = hn::Vec<D>;
  constexpr int64_t kMost = FourierPasses::kMostRadix;
  Number<V> sums[kMost / 2 + 1], differences[kMost / 2 + 1], results[kMost];
  const int64_t r = pass.radix, half = r / 2, apart = pass.groups * pass.row;
  const Number<V> first = load_number(d, x);
  results[0] = first;
  for (int64_t k = 1; k <= half; ++k) {
    const Number<V> a = load_number(d, x + k * apart), b = load_number(d, x + (r - k) * apart);
    sums[k] = add(a, b);
    differences[k] = turned(sub(a, b));
    results[0] = add(results[0], sums[k]);
  }
  for (int64_t j = 1; j <= half; ++j) {
    Number<V> even = first, odd{hn::Zero(d), hn::Zero(d)};
    for (int64_t k = 1, at = j; k <= half; ++k) {
      even = add_scaled(even, hn::Set(d, factors.cosines[at]), sums[k]);
      odd = add_scaled(odd, hn::Set(d, factors.sines[at]), differences[k]);
      at += at + j < r ? j : j - r;
    }
    results[j] = add(even, odd);
    results[r - j] = sub(even, odd);
  }
  store_number(results[0], d, y);
  for (int64_t j = 1; j < r; ++j) {
    store_number(mul(results[j], set_number(d, pass.root(j, p))), d, y + j * pass.row);
  }
}

template <typename C>
void run_odd_pass(const Pass<C>& pass) {
  const hn::ScalableTag<C> d;
  const OddFactors<C> factors(pass);
  for (int64_t p = 0; p < pass.groups; ++p) {
    const Parts<C> x = pass.x + p * pass.row, y = pass.y + pass.radix * p * pass.row;
    for_each_vector_of_row(d, pass.row, [&](int64_t q) HWY_ATTR {
      run_odd_butterfly(d, pass, factors, p, x + q, y + q);
    });
  }
}

template <typename C>
void run_pass(const Pass<C>& pass) {
  switch (pass.radix) {
    case 2:
      return run_pass_of<2>(pass);
    case 3:
      return run_pass_of<3>(pass);
    case 4:
      return run_pass_of<4>(pass);
    case 5:
      return run_pass_of<5>(pass);
    default:
      return run_odd_pass(pass);
  }
}

// A tile, and memory for another one.
template <typename C>
struct Tiles {
  Parts<C> x, other;

  // The same tiles, in which each number has the parts of the other side: a transform of these is
  // the inverse transform, with its parts exchanged.
  Tiles exchanged() const { return {x.exchanged(), other.exchanged()}; }
  void swap() { std::swap(x, other); }
};

// Transforms the `width` lines of a tile. The table has exp(-2 pi i k / passes.length).
template <typename C>
void run_passes(const FourierPasses& passes, Parts<C> roots, int64_t width, Tiles<C>& tiles) {
  int64_t step = 1, rest = passes.length;
  for (int i = 0; i < passes.count; ++i) {
    const int64_t radix = passes.radices[static_cast<size_t>(i)];
    rest /= radix;
    run_pass(Pass<C>{tiles.x, tiles.other, roots, passes.length, radix, rest, step * width});
    step *= radix;
    tiles.swap();
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_FOURIER_PASSES_INL_HPP
