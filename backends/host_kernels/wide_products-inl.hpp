// Products of elements in memory, or of a map of them: of floats in f64, and of integers in 64
// bits, which wrap. The reductions that multiply use them.
//
// A chain of multiplications waits for each of them, so that a row has four chains.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_WIDE_PRODUCTS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_WIDE_PRODUCTS_INL_HPP
#undef BACKPLANE_CPU_WIDE_PRODUCTS_INL_HPP
#else
#define BACKPLANE_CPU_WIDE_PRODUCTS_INL_HPP
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "backends/host_kernels/wide_sums-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

template <class D>
HWY_INLINE double product_of_lanes(D d, hn::Vec<D> v) {
  HWY_ALIGN double lanes[hn::MaxLanes(D())];
  hn::Store(v, d, lanes);
  double product = lanes[0];
  for (size_t i = 1; i < hn::Lanes(d); ++i) product *= lanes[i];
  return product;
}

template <typename T, class Map = Itself>
SumOf<T> product_of_row(const T* x, int64_t n, const Map& map = {}) {
  const auto at = [&](int64_t k)
                      HWY_ATTR { return static_cast<SumOf<T>>(map_one(map, widen(x[k]))); };
  int64_t i = 0;
  SumOf<T> product = 1;
  if constexpr (std::is_integral_v<T>) {
    SumOf<T> p1 = 1, p2 = 1, p3 = 1;
    for (; i + 4 <= n; i += 4) {
      product *= at(i);
      p1 *= at(i + 1);
      p2 *= at(i + 2);
      p3 *= at(i + 3);
    }
    product *= p1 * (p2 * p3);
  } else {
    const hn::ScalableTag<double> d;
    const RowOrder order(n, sizeof(T), static_cast<int64_t>(hn::Lanes(d)), 4);
    auto p0 = hn::Set(d, 1.0), p1 = p0, p2 = p0, p3 = p0;
    for (; i < order.end; i += order.step) {
      p0 = hn::Mul(p0, load_wide(d, x + i, map));
      p1 = hn::Mul(p1, load_wide(d, x + i + order.stride, map));
      p2 = hn::Mul(p2, load_wide(d, x + i + 2 * order.stride, map));
      p3 = hn::Mul(p3, load_wide(d, x + i + 3 * order.stride, map));
    }
    i = order.is_split ? 4 * order.end : order.end;
    product = product_of_lanes(d, hn::Mul(hn::Mul(p0, p1), hn::Mul(p2, p3)));
  }
  for (; i < n; ++i) product *= at(i);
  return product;
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_WIDE_PRODUCTS_INL_HPP
