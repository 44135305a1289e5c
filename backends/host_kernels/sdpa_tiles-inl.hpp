// The tile functions of attention and its gradients. A panel is two vectors of rows, with rows
// along the lanes. Maxima and sums over keys are then computed lane by lane, and k and v are read
// in their own layout, one element at a time for all lanes.
//
//   a panel of q, y   (width, kPanel)   element (c, r) is column c of row r
//   a tile of scores  (keys, kPanel)    element (j, r) is the score of key j for row r
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_SDPA_TILES_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_SDPA_TILES_INL_HPP
#undef BACKPLANE_CPU_SDPA_TILES_INL_HPP
#else
#define BACKPLANE_CPU_SDPA_TILES_INL_HPP
#endif

#include <bit>
#include <limits>

#include "backends/host_kernels/lines-inl.hpp"
#include "backends/host_kernels/sdpa.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

template <typename Sum>
using TileTag = hn::CappedTag<Sum, 64 / sizeof(Sum)>;
template <typename Sum>
constexpr int64_t kTileLanes = static_cast<int64_t>(hn::MaxLanes(TileTag<Sum>()));
template <typename Sum>
constexpr int64_t kPanel = 2 * kTileLanes<Sum>;

template <typename Sum>
constexpr Sum kInfinity = std::numeric_limits<Sum>::infinity();

// The accumulators, two vectors of b and one vector of a fill the registers.
constexpr int kProductRows = HWY_TARGET <= HWY_AVX3 ? 12 : HWY_TARGET <= HWY_AVX2 ? 6 : 4;

// The way in which a product reads a. kAlong reads along the depth, a(r, i) = a[r * stride + i].
// kAcross reads across it, a(r, i) = a[r + i * stride].
enum class Read { kAlong, kAcross };

// Computes (kRows, kPanel) of a product: to(r) = or += the sum of a(r, i) * b(i) over i < depth.
// The sum begins at 0, because a long sum made of short sums loses fewer digits.
template <int kRows, Read kRead, bool kAccumulates, typename Sum>
HWY_NOINLINE void multiply_rows(const Sum* HWY_RESTRICT a, int64_t a_stride,
                                const Sum* HWY_RESTRICT b, int64_t b_stride, int64_t depth,
                                Sum* HWY_RESTRICT to, int64_t to_stride) {
  const TileTag<Sum> d;
  constexpr int64_t kLanes = kTileLanes<Sum>;
  if (depth == 0) {
    for (int r = 0; r < kRows && !kAccumulates; ++r)
      std::fill_n(to + r * to_stride, kPanel<Sum>, Sum{0});
    return;
  }
  hn::Vec<TileTag<Sum>> sums[kRows][2];
  for (int r = 0; r < kRows; ++r) {
    sums[r][0] = hn::Zero(d);
    sums[r][1] = hn::Zero(d);
  }
  do {  // With a loop that may run zero times, the sums would be in memory.
    const auto b0 = hn::LoadU(d, b), b1 = hn::LoadU(d, b + kLanes);
    for (int r = 0; r < kRows; ++r) {
      const auto value = hn::Set(d, kRead == Read::kAlong ? a[r * a_stride] : a[r]);
      sums[r][0] = hn::MulAdd(value, b0, sums[r][0]);
      sums[r][1] = hn::MulAdd(value, b1, sums[r][1]);
    }
    a += kRead == Read::kAlong ? 1 : a_stride;
    b += b_stride;
  } while (--depth > 0);
  for (int r = 0; r < kRows; ++r) {
    Sum* const row = to + r * to_stride;
    if constexpr (kAccumulates) {
      sums[r][0] = hn::Add(hn::LoadU(d, row), sums[r][0]);
      sums[r][1] = hn::Add(hn::LoadU(d, row + kLanes), sums[r][1]);
    }
    hn::StoreU(sums[r][0], d, row);
    hn::StoreU(sums[r][1], d, row + kLanes);
  }
}

// Computes totals += sums, and sums = 0.
template <typename Sum>
HWY_INLINE void take_sums(int64_t count, Sum* HWY_RESTRICT sums, Sum* HWY_RESTRICT totals) {
  for (int64_t i = 0; i < count; ++i) {
    totals[i] += sums[i];
    sums[i] = 0;
  }
}

// Computes the last rows, up to kRows of them.
template <int kRows, Read kRead, bool kAccumulates, typename Sum>
// NOLINTNEXTLINE(readability-function-size): the tensors of a product.
HWY_INLINE void multiply_last_rows(int64_t rows, const Sum* a, int64_t a_stride, const Sum* b,
                                   int64_t b_stride, int64_t depth, Sum* to, int64_t to_stride) {
  if constexpr (kRows > 0) {
    if (rows == kRows) {
      return multiply_rows<kRows, kRead, kAccumulates>(a, a_stride, b, b_stride, depth, to,
                                                       to_stride);
    }
    multiply_last_rows<kRows - 1, kRead, kAccumulates>(rows, a, a_stride, b, b_stride, depth, to,
                                                       to_stride);
  }
}

// Computes the product for any number of rows.
template <Read kRead, bool kAccumulates, typename Sum>
// NOLINTNEXTLINE(readability-function-size): the tensors of a product.
HWY_INLINE void multiply_panel(int64_t rows, const Sum* a, int64_t a_stride, const Sum* b,
                               int64_t b_stride, int64_t depth, Sum* to, int64_t to_stride) {
  const int64_t step = kRead == Read::kAlong ? a_stride : 1;
  int64_t r = 0;
  for (; r + kProductRows <= rows; r += kProductRows) {
    multiply_rows<kProductRows, kRead, kAccumulates>(a + r * step, a_stride, b, b_stride, depth,
                                                     to + r * to_stride, to_stride);
  }
  multiply_last_rows<kProductRows - 1, kRead, kAccumulates>(
      rows - r, a + r * step, a_stride, b, b_stride, depth, to + r * to_stride, to_stride);
}

// Returns the score of a key that is not seen. It is a special NaN, because -inf is a valid score.
template <typename Sum>
HWY_INLINE Sum hidden_score() {
  if constexpr (sizeof(Sum) == 8) {
    return std::bit_cast<double>(uint64_t{0x7ffc5a5a5a5a5a5a});
  } else {
    return std::bit_cast<float>(uint32_t{0x7fe5a5a5});
  }
}
template <class D>
HWY_INLINE hn::Mask<D> is_hidden(D d, hn::Vec<D> scores) {
  const hn::RebindToUnsigned<D> bits_d;
  const auto hidden = hn::Set(d, hidden_score<hn::TFromD<D>>());
  return hn::RebindMask(d, hn::Eq(hn::BitCast(bits_d, scores), hn::BitCast(bits_d, hidden)));
}

// The rows of a tile in memory.
template <typename T>
struct TileRows {
  const T* data;
  int64_t stride;
};

// Returns whether no element is NaN or infinite. 0 times such an element would be NaN.
template <typename T, typename Sum = Compute<T>>
bool is_finite(const TileRows<T>& rows, int64_t count, int64_t width) {
  const TileTag<Sum> d;
  constexpr int64_t kLanes = kTileLanes<Sum>;
  for (int64_t j = 0; j < count; ++j) {
    const T* const row = rows.data + j * rows.stride;
    auto zeros = hn::Zero(d);
    int64_t c = 0;
    for (; c + kLanes <= width; c += kLanes) {
      zeros = hn::MulAdd(load_lanes(d, row + c), hn::Zero(d), zeros);
    }
    Sum zero = hn::GetLane(hn::SumOfLanes(d, zeros));
    for (; c < width; ++c) zero += widen(row[c]) * Sum{0};
    if (zero != 0) return false;
  }
  return true;
}

// Returns the keys or values [key, key + count) in the computing type, without a copy if possible.
template <typename T, typename Sum = Compute<T>>
TileRows<Sum> tile_of_keys(const Attention& a, const View& view, int64_t problem, int64_t key,
                           int64_t count, int64_t width, Sum* buffer) {
  const int64_t stride = a.key_stride(view);
  if constexpr (std::is_same_v<T, Sum>) {
    const bool is_dense = view.strides[3] == 1 || width == 1;
    if (is_dense && a.keys_in_line(key) >= count) {
      return {a.key_of<const T>(view, problem, key), stride};
    }
  }
  for (int64_t j = 0, end = 0; j < count; j = end) {
    const T* from = a.key_of<const T>(view, problem, key + j);
    end = std::min(count, j + a.keys_in_line(key + j));
    for (int64_t i = j; i < end; ++i, from += stride) {
      load_line(from, view.strides[3], width, buffer + i * width);
    }
  }
  return {buffer, width};
}

// A block of rows, and the keys that they see.
template <typename Sum>
struct RowBlock {
  RowBlock(const Attention& a, int64_t its_problem, int64_t block)
      : problem(its_problem),
        begin(block * kRowBlock),
        count(std::min(kRowBlock, a.rows() - begin)),
        panels((count + kPanel<Sum> - 1) / kPanel<Sum>) {
    for (int64_t r = 0; r < count; ++r) {
      firsts[r] = a.first_key(begin + r);
      limits[r] = a.key_limit(begin + r);
      first_key = r == 0 ? firsts[r] : std::min(first_key, firsts[r]);
      key_limit = std::max(key_limit, limits[r]);
    }
    for (int64_t r = count; r < kRowBlock; ++r) firsts[r] = limits[r] = first_key;
  }

  // Returns the place behind the last key of [key, key + key_count) that a row of the panel sees,
  // counted from `key`, or 0 if no row sees one.
  int64_t seen_end(int64_t panel, int64_t key, int64_t key_count) const {
    const int64_t* const first = firsts + panel * kPanel<Sum>;
    const int64_t* const limit = limits + panel * kPanel<Sum>;
    if (*std::min_element(first, first + kPanel<Sum>) >= key + key_count) return 0;
    return std::clamp<int64_t>(*std::max_element(limit, limit + kPanel<Sum>) - key, 0, key_count);
  }
  // Returns whether each row of the panel sees each of the keys [key, key + key_count).
  bool sees_all(int64_t panel, int64_t key, int64_t key_count) const {
    const int64_t* const first = firsts + panel * kPanel<Sum>;
    const int64_t* const limit = limits + panel * kPanel<Sum>;
    return *std::max_element(first, first + kPanel<Sum>) <= key &&
           *std::min_element(limit, limit + kPanel<Sum>) >= key + key_count;
  }
  // Returns the first key of the first tile that a row sees. Tiles begin at multiples of kKeyBlock.
  int64_t first_tile() const { return first_key / kKeyBlock * kKeyBlock; }

  int64_t problem, begin, count, panels;
  int64_t first_key = 0, key_limit = 0;  // The keys that some row sees.
  int64_t firsts[kRowBlock];
  int64_t limits[kRowBlock];
};

// Reads the rows of the block into panels; lanes without a row are 0.
template <typename T, typename Sum>
void load_panels(const Attention& a, const RowBlock<Sum>& block, const View& view, int64_t width,
                 Sum* line, Sum* panels) {
  std::fill_n(panels, block.panels * kPanel<Sum> * width, Sum{0});
  for (int64_t r = 0; r < block.count; ++r) {
    load_line(a.row_of<const T>(view, block.problem, block.begin + r), view.strides[3], width,
              line);
    Sum* const to = panels + r / kPanel<Sum> * kPanel<Sum> * width + r % kPanel<Sum>;
    for (int64_t c = 0; c < width; ++c) to[c * kPanel<Sum>] = line[c];
  }
}

// Writes panels to the rows of the block, each row times its factor.
template <typename T, typename Sum>
void store_panels(const Attention& a, const RowBlock<Sum>& block, const View& view, int64_t width,
                  const Sum* factors, Sum* line, const Sum* panels) {
  for (int64_t r = 0; r < block.count; ++r) {
    const Sum* const from = panels + r / kPanel<Sum> * kPanel<Sum> * width + r % kPanel<Sum>;
    for (int64_t c = 0; c < width; ++c) line[c] = from[c * kPanel<Sum>] * factors[r];
    store_line(line, width, a.row_of<T>(view, block.problem, block.begin + r), view.strides[3]);
  }
}

// The keys of a tile, which begins at `key`, that each lane of a panel sees. The numbers are exact
// in Sum, because they are small.
template <typename Sum>
struct LaneLimits {
  LaneLimits(const RowBlock<Sum>& block, int64_t panel, int64_t key) {
    for (int64_t lane = 0; lane < kPanel<Sum>; ++lane) {
      const int64_t row = panel * kPanel<Sum> + lane;
      firsts[lane] = in_tile(block.firsts[row] - key);
      values[lane] = in_tile(block.limits[row] - key);
    }
  }
  // Returns the mask of the lanes of vector `half` that see key j of the tile.
  HWY_INLINE auto sees(int half, int64_t j) const {
    const TileTag<Sum> d;
    const auto number = hn::Set(d, static_cast<Sum>(j));
    return hn::And(hn::Ge(number, hn::LoadU(d, firsts + half * kTileLanes<Sum>)),
                   hn::Lt(number, hn::LoadU(d, values + half * kTileLanes<Sum>)));
  }
  static Sum in_tile(int64_t key) {
    return static_cast<Sum>(std::clamp<int64_t>(key, 0, kKeyBlock));
  }
  Sum firsts[kPanel<Sum>], values[kPanel<Sum>];
};

// Returns exp(x) for x of at most about 0, and NaN for NaN. The f32 function has an error of at
// most 1.4 * 2^-24, and is 0 if the result is below the smallest normal number. It computes 2^n *
// e^r with |r| <= log(2) / 2, and uses the minimax polynomial for (e^r - 1 - r) / r^2 there.
template <class D, typename Sum = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> exp_of_score(D d, hn::Vec<D> x) {
  if constexpr (sizeof(Sum) == 8) {
    return hn::IfThenElse(hn::Eq(x, x), hn::Exp(d, x), x);
  } else {
    const hn::RebindToSigned<D> int_d;
    const auto n = hn::Round(hn::Mul(x, hn::Set(d, 1.44269504f)));
    auto r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);  // log(2) is split so that n times
    r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);    // its first part is exact.
    auto p = hn::MulAdd(hn::Set(d, 1.979029803e-04f), r, hn::Set(d, 1.394470357e-03f));
    p = hn::MulAdd(p, r, hn::Set(d, 8.333497341e-03f));
    p = hn::MulAdd(p, r, hn::Set(d, 4.166629436e-02f));
    p = hn::MulAdd(p, r, hn::Set(d, 1.666666587e-01f));
    p = hn::MulAdd(p, r, hn::Set(d, 5.000000068e-01f));
    p = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(d, 1.0f));
    const auto bits = hn::Add(hn::ConvertTo(int_d, n), hn::Set(int_d, 127));
    const auto power = hn::Mul(p, hn::BitCast(d, hn::ShiftLeft<23>(bits)));
    return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.3f)), power);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_SDPA_TILES_INL_HPP
