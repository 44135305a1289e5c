// Transforms lines in tiles: reads them, runs the passes, and writes the results.
#include "backends/host_kernels/fourier.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/fourier_lines.cpp"
// clang-format off: this header compiles the file once for each target, and comes first.
#include <hwy/foreach_target.h>
// clang-format on
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/fourier_passes-inl.hpp"
#include "backends/host_kernels/fourier_tiles-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

// What all threads read: factors, and what a convolution multiplies with.
template <typename C>
struct FourierTables {
  FourierTables(const FourierPlan& plan, std::byte* memory) {
    C* at = reinterpret_cast<C*>(memory);
    const auto take = [&at](int64_t count) {
      const Parts<C> parts{at, at + FourierPlan::room(count, 1)};
      at += 2 * FourierPlan::room(count, 1);
      return parts;
    };
    roots = take(plan.passes.length);
    halves = take(plan.half_count());
    chirp = take(plan.chirp_count());
    response = take(plan.response_count());
  }

  Parts<C> roots;     // exp(-2 pi i k / n) of the passes.
  Parts<C> halves;    // exp(-2 pi i k / length) of real lines of an even length.
  Parts<C> chirp;     // exp(-pi i k^2 / points).
  Parts<C> response;  // The transform of its conjugate.
};

// The four arrays of a thread.
template <typename C>
Tiles<C> tiles_of(const FourierPlan& plan, std::byte* memory) {
  C* const at = reinterpret_cast<C*>(memory);
  const int64_t size = plan.tile_elements();
  return {{at, at + size}, {at + 2 * size, at + 3 * size}};
}

// ---- Tables ---------------------------------------------------------------------------------- //

// A convolution with the chirp multiplies transforms: Bluestein, A linear filtering approach to the
// computation of discrete Fourier transform, 1970. The response is divided by the number of points
// of the convolution, as its inverse transform wants it.
template <typename C>
void fill_response(const FourierPlan& plan, const FourierTables<C>& tables, Tiles<C> tiles) {
  const int64_t n = plan.points, size = plan.passes.length;
  const auto share = static_cast<C>(1.0 / static_cast<double>(size));
  std::fill_n(tiles.x.re, size, C{0});
  std::fill_n(tiles.x.im, size, C{0});
  for (int64_t k = 0; k < n; ++k) {
    for (const int64_t at : {k, (size - k) % size}) {
      tiles.x.re[at] = tables.chirp.re[k] * share;
      tiles.x.im[at] = -tables.chirp.im[k] * share;
    }
  }
  run_passes(plan.passes, tables.roots, 1, tiles);
  std::copy_n(tiles.x.re, size, tables.response.re);
  std::copy_n(tiles.x.im, size, tables.response.im);
}

template <typename C>
void fill_tables(const FourierPlan& plan, const FourierTables<C>& tables, const Tiles<C>& tiles) {
  fill_roots(plan.passes.length, plan.passes.length, tables.roots);
  if (plan.is_halved) fill_roots(plan.half_count(), plan.call.length, tables.halves);
  if (!plan.is_convolution) return;
  const int64_t n = plan.points;
  int64_t square = 0, k = 0;  // k^2 modulo 2 n.
  fill_circle(
      n, 2 * n,
      [&] {
        const auto t = static_cast<double>(square);
        square = (square + 2 * k + 1) % (2 * n);
        ++k;
        return t;
      },
      tables.chirp);
  fill_response(plan, tables, tiles);
}

// ---- Transforms ------------------------------------------------------------------------------ //

// Calls body(i, at) for the vectors of n rows of a tile, in order: row i, number `at` of the tile.
// A vector may spill into the row behind it, which comes later, so no body writes what it reads.
template <class D, class Body>
HWY_INLINE void for_each_vector_of_tile(D d, int64_t n, int64_t width, const Body& body) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t q = 0; q < width; q += lanes) body(i, i * width + q);
  }
}

// Multiplies n rows with one factor for each, and with `scale`. The rows of one line are numbers,
// and their factors lie side by side too.
template <typename C>
void multiply_rows(Parts<C> factors, C scale, int64_t n, int64_t width, Tiles<C>& tiles) {
  const hn::ScalableTag<C> d;
  const auto by = hn::Set(d, scale);
  const auto store_product = [&](auto factor, int64_t at) HWY_ATTR {
    const auto product = mul(load_number(d, tiles.x + at), factor);
    store_number({hn::Mul(product.re, by), hn::Mul(product.im, by)}, d, tiles.other + at);
  };
  if (width == 1) {
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    for (int64_t i = 0; i < n; i += lanes) store_product(load_number(d, factors + i), i);
  } else {
    for_each_vector_of_tile(d, n, width, [&](int64_t i, int64_t at) HWY_ATTR {
      store_product(set_number(d, factors + i), at);
    });
  }
  tiles.swap();
}

// Transforms the `points` rows of a tile. What a convolution adds up on the way is up to the root
// of twice as many points larger than a result, so a power of 2 that is as large keeps it from
// overflow.
template <typename C>
void transform(const FourierPlan& plan, const FourierTables<C>& tables, int64_t width,
               Tiles<C>& tiles) {
  if (!plan.is_convolution) return run_passes(plan.passes, tables.roots, width, tiles);
  const int64_t n = plan.points, size = plan.passes.length;
  const int exponent = std::ilogb(std::sqrt(2 * static_cast<double>(n))) + 1;
  multiply_rows(tables.chirp, std::ldexp(C{1}, -exponent), n, width, tiles);
  std::fill_n(tiles.x.re + n * width, (size - n) * width, C{0});
  std::fill_n(tiles.x.im + n * width, (size - n) * width, C{0});
  run_passes(plan.passes, tables.roots, width, tiles);
  multiply_rows(tables.response, C{1}, size, width, tiles);
  Tiles<C> inverse = tiles.exchanged();
  run_passes(plan.passes, tables.roots, width, inverse);
  tiles = inverse.exchanged();
  multiply_rows(tables.chirp, std::ldexp(C{1}, exponent), n, width, tiles);
}

// Calls body(a, b, root, at) for the rows k of a tile, from 0 on, and the rows n - k opposite to
// them: vectors of both, exp(-2 pi i k / 2n), and where the result lies in the tile.
template <typename C, class Body>
HWY_INLINE void for_each_opposite(int64_t n, int64_t rows, int64_t width, Parts<C> roots,
                                  Parts<C> x, const Body& body) {
  const hn::ScalableTag<C> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t k = 0;
  if (width == 1) {
    for (; k + lanes <= std::min(rows, n + 1); k += lanes) {
      const auto b = load_number(d, x + (n - k - lanes + 1));
      body(load_number(d, x + k),
           Number<hn::Vec<decltype(d)>>{hn::Reverse(d, b.re), hn::Reverse(d, b.im)},
           load_number(d, roots + k), k);
    }
  }
  for (; k < rows; ++k) {
    for (int64_t q = 0; q < width; q += lanes) {
      body(load_number(d, x + (k * width + q)), load_number(d, x + ((n - k) * width + q)),
           set_number(d, roots + k), k * width + q);
    }
  }
}

// Makes twice the first half of the bins of a real line, of the transform of the complex line whose
// parts are its even and its odd elements.
template <typename C>
void split_bins(const FourierPlan& plan, const FourierTables<C>& tables, int64_t width,
                Tiles<C>& tiles) {
  const hn::ScalableTag<C> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t n = plan.points;
  std::copy_n(tiles.x.re, width, tiles.x.re + n * width);
  std::copy_n(tiles.x.im, width, tiles.x.im + n * width);
  const auto split = [&](Number<V> a, Number<V> b, Number<V> root, int64_t at) HWY_ATTR {
    const Number<V> even{hn::Add(a.re, b.re), hn::Sub(a.im, b.im)};
    const Number<V> odd{hn::Add(a.im, b.im), hn::Sub(b.re, a.re)};
    store_number(add(even, mul(odd, root)), d, tiles.other + at);
  };
  for_each_opposite(n, n + 1, width, tables.halves, tiles.x, split);
  tiles.swap();
}

// Does the reverse: makes the bins of the complex line of those of the real one.
template <typename C>
void join_bins(const FourierPlan& plan, const FourierTables<C>& tables, int64_t width,
               Tiles<C>& tiles) {
  const hn::ScalableTag<C> d;
  using V = hn::Vec<decltype(d)>;
  const auto join = [&](Number<V> a, Number<V> b, Number<V> root, int64_t at) HWY_ATTR {
    const Number<V> even{hn::Add(a.re, b.re), hn::Sub(a.im, b.im)};
    const Number<V> apart{hn::Sub(a.re, b.re), hn::Add(a.im, b.im)};
    const Number<V> odd = mul(apart, {root.re, hn::Neg(root.im)});
    store_number({hn::Sub(even.re, odd.im), hn::Add(even.im, odd.re)}, d, tiles.other + at);
  };
  for_each_opposite(plan.points, plan.points, width, tables.halves, tiles.x, join);
  tiles.swap();
}

// Completes the bins of a real line of an odd length by their conjugates.
template <typename C>
void add_conjugates(int64_t length, int64_t width, Parts<C> bins) {
  for (int64_t k = 1; k <= length / 2; ++k) {
    const Parts<C> from = bins + k * width, to = bins + (length - k) * width;
    for (int64_t q = 0; q < width; ++q) {
      to.re[q] = from.re[q];
      to.im[q] = -from.im[q];
    }
  }
}

// ---- Calls ----------------------------------------------------------------------------------- //

// Transforms lines first to first + n.
template <typename T>
void run_tile(const FourierWork& work, const FourierTables<Compute<T>>& tables, int64_t first,
              int64_t n, Tiles<Compute<T>> tiles) {
  using C = Compute<T>;
  const FourierPlan& plan = work.plan;
  const int64_t bins = plan.call.length / 2 + 1;
  const TileLines<T> x(work.x, work.space, first, n), y(work.y, work.space, first, n);
  read_tile(x, plan.call.has_real_y ? bins : plan.points, tiles.x);
  if (plan.call.has_real_y) {  // The imaginary parts that are their own conjugates do not count.
    std::fill_n(tiles.x.im, n, C{0});
    if (plan.is_halved) std::fill_n(tiles.x.im + plan.points * n, n, C{0});
    plan.is_halved ? join_bins(plan, tables, n, tiles)
                   : add_conjugates(plan.call.length, n, tiles.x);
  }
  if (plan.call.is_inverse) tiles = tiles.exchanged();
  transform(plan, tables, n, tiles);
  if (plan.call.is_inverse) tiles = tiles.exchanged();
  double scale = plan.call.scale;
  if (plan.call.has_real_x && plan.is_halved) {
    split_bins(plan, tables, n, tiles);
    scale /= 2;
  } else if (plan.call.has_real_x) {  // The first bin has no imaginary part.
    std::fill_n(tiles.x.im, n, C{0});
  }
  write_tile(tiles.x, plan.call.has_real_x ? bins : plan.points, static_cast<C>(scale), y);
}

constexpr int64_t kFourierGrain = 4096;  // The elements that are worth a thread.

template <typename T>
void run_lines(const FourierWork& work) {
  using C = Compute<T>;
  const FourierPlan& plan = work.plan;
  const FourierTables<C> tables(plan, work.memory);
  std::byte* const of_threads = work.memory + plan.table_bytes();
  fill_tables(plan, tables, tiles_of<C>(plan, of_threads));
  const int64_t count = work.space.count, tile_count = (count + plan.width - 1) / plan.width;
  const int64_t grain = std::max<int64_t>(1, kFourierGrain / (plan.passes.length * plan.width));
  parallel_for(work.threads, tile_count, grain, [&](int64_t begin, int64_t end) {
    const auto thread = static_cast<uint64_t>(thread_number());
    const Tiles<C> tiles = tiles_of<C>(plan, of_threads + thread * plan.thread_bytes());
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t first = tile * plan.width;
      run_tile<T>(work, tables, first, std::min(plan.width, count - first), tiles);
    }
  });
}

// HWY_EXPORT needs functions that are not templates.
void run_any(const FourierWork& work) {
  with_float(work.dtype, [&]<typename T>(T) { run_lines<T>(work); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(run_any);

}  // namespace

void run_fourier(const FourierWork& work) { HWY_DYNAMIC_DISPATCH(run_any)(work); }

}  // namespace bp::kernels
#endif  // HWY_ONCE
