// What a tile of attention scores has beside its product: the soft cap, bias and mask, and the
// factors of the dropout.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_SDPA_TERMS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_SDPA_TERMS_INL_HPP
#undef BACKPLANE_CPU_SDPA_TERMS_INL_HPP
#else
#define BACKPLANE_CPU_SDPA_TERMS_INL_HPP
#endif

#include <cmath>
#include <limits>

#include "backends/host_kernels/math-inl.hpp"
#include "backends/host_kernels/philox-inl.hpp"
#include "backends/host_kernels/sdpa_tiles-inl.hpp"
#include "backends/host_kernels/transpose-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

// Computes scores = cap * tanh(scale / cap * scores) for `count` lines of `lanes`, and, where
// `slopes` is not NULL, the derivatives 1 - tanh^2.
template <typename Sum>
HWY_NOINLINE void cap_scores(const Attention& a, int64_t count, int64_t stride, Sum* scores,
                             Sum* slopes, int64_t lanes = kPanel<Sum>) {
  const TileTag<Sum> d;
  constexpr double kMost = std::numeric_limits<Sum>::max();  // Of a cap below the range of Sum.
  const auto cap = hn::Set(d, static_cast<Sum>(a.softcap)), one = hn::Set(d, Sum{1});
  const auto factor = hn::Set(d, static_cast<Sum>(std::clamp(a.scale / a.softcap, -kMost, kMost)));
  for (int64_t j = 0; j < count; ++j) {
    for (int64_t lane = 0; lane < lanes; lane += kTileLanes<Sum>) {
      Sum* const at = scores + j * stride + lane;
      const auto bent = tanh(d, hn::Mul(hn::LoadU(d, at), factor));
      hn::StoreU(hn::Mul(cap, bent), d, at);
      if (slopes == nullptr) continue;
      hn::StoreU(hn::NegMulAdd(bent, bent, one), d, slopes + j * stride + lane);
    }
  }
}

// Adds the sink of a row: makes exp(peak) * total the denominator, and `sum` what y is divided by.
// A row without a weight keeps the sum 0.
template <typename Sum>
void add_sink(const Attention& a, int64_t problem, int64_t row, Sum& peak, Sum& total, Sum& sum) {
  const Sum sink = a.template sink_of<Sum>(problem, row);
  const Sum larger = sum != 0 && peak > sink ? peak : sink;
  if (larger == -kInfinity<Sum>) return;
  if (sum != 0) sum += std::exp(sink - peak);
  total = total * std::exp(peak - larger) + std::exp(sink - larger);
  peak = larger;
}

// scores = scale * scores + bias, for a tile of `count` keys from `key` on.
template <typename T, typename Sum>
// NOLINTNEXTLINE(readability-function-size): the place of a tile, and its lines.
void apply_bias(const Attention& a, const RowBlock<Sum>& block, int64_t panel, int64_t key,
                int64_t count, Sum scale, Sum* HWY_RESTRICT line, Sum* HWY_RESTRICT scores,
                int64_t scores_stride) {
  const int64_t lanes = std::min(kPanel<Sum>, block.count - panel * kPanel<Sum>);
  for (int64_t lane = 0; lane < lanes; ++lane) {
    const int64_t row = block.begin + panel * kPanel<Sum> + lane;
    const int64_t stride = a.bias.strides[3];
    load_line(a.row_of<const T>(a.bias, block.problem, row) + key * stride, stride, count, line);
    for (int64_t j = 0; j < count; ++j) {
      Sum& score = scores[j * scores_stride + lane];
      score = scale * score + line[j];
    }
  }
}

// Writes the mask of a tile as (keys, kPanel) bytes, from lines of `count` bytes `stride` apart.
template <int64_t kLines>
void transpose_mask(const uint8_t* const (&lines)[kLines], int64_t stride, int64_t count,
                    uint8_t* HWY_RESTRICT to) {
  int64_t j = 0;
#if HWY_TARGET != HWY_SCALAR && !HWY_HAVE_SCALABLE
  if constexpr (kLines % 16 == 0) {
    for (; stride == 1 && j + 16 <= count; j += 16) {
      transpose_lines<kLines / 16>(lines, j, to + j * kLines, kLines);
    }
  }
#endif
  for (; j < count; ++j) {
    for (int64_t lane = 0; lane < kLines; ++lane) to[j * kLines + lane] = lines[lane][j * stride];
  }
}

// Makes scores hidden_score() where the mask hides the key, for a tile of `count` keys from `key`.
template <typename Sum>
void hide_masked(const Attention& a, const RowBlock<Sum>& block, int64_t panel, int64_t key,
                 int64_t count, Sum* HWY_RESTRICT scores, int64_t scores_stride) {
  const TileTag<Sum> d;
  const hn::RebindToUnsigned<TileTag<Sum>> bits_d;
  const hn::Rebind<uint32_t, TileTag<Sum>> words_d;
  const hn::Rebind<uint8_t, TileTag<Sum>> bytes_d;
  const int64_t stride = a.mask.strides[3], last = block.count - panel * kPanel<Sum> - 1;
  const uint8_t* lines[kPanel<Sum>];
  for (int64_t lane = 0; lane < kPanel<Sum>; ++lane) {  // Lanes without a row take the last one.
    const int64_t row = block.begin + panel * kPanel<Sum> + std::min(lane, last);
    lines[lane] = a.row_of<const uint8_t>(a.mask, block.problem, row) + key * stride;
  }
  alignas(64) uint8_t seen[kKeyBlock * kPanel<Sum>];
  transpose_mask(lines, stride, count, seen);
  const auto hidden = hn::Set(d, hidden_score<Sum>());
  for (int64_t j = 0; j < count; ++j) {
    for (int64_t lane = 0; lane < kPanel<Sum>; lane += kTileLanes<Sum>) {
      const auto bytes = hn::LoadU(bytes_d, seen + j * kPanel<Sum> + lane);
      const auto words = hn::PromoteTo(words_d, bytes);
      hn::Mask<TileTag<Sum>> is_masked;
      if constexpr (sizeof(Sum) == 8) {
        is_masked = hn::RebindMask(d, hn::Eq(hn::PromoteTo(bits_d, words), hn::Zero(bits_d)));
      } else {
        is_masked = hn::RebindMask(d, hn::Eq(words, hn::Zero(bits_d)));
      }
      Sum* const at = scores + j * scores_stride + lane;
      hn::StoreU(hn::IfThenElse(is_masked, hidden, hn::LoadU(d, at)), d, at);
    }
  }
}

// Turns the products of a panel into scores, and returns the factor that they still lack. `slopes`
// is NULL, or the place for the derivatives of the soft cap.
template <typename T, typename Sum>
// NOLINTNEXTLINE(readability-function-size): the place of a tile, and its lines.
Sum finish_scores(const Attention& a, const RowBlock<Sum>& block, int64_t panel, int64_t key,
                  int64_t count, Sum* line, Sum* scores, int64_t stride, Sum* slopes) {
  auto scale = static_cast<Sum>(a.scale);
  if (a.has_softcap()) {
    cap_scores(a, count, stride, scores, slopes);
    scale = Sum{1};
  }
  if (a.has_bias) {
    apply_bias<T>(a, block, panel, key, count, scale, line, scores, stride);
    scale = Sum{1};
  }
  if (a.has_mask) hide_masked(a, block, panel, key, count, scores, stride);
  return scale;
}

// Writes what dropout multiplies the weights of a panel by: 0, or 1 / (1 - p).
template <typename Sum>
void write_kept(const Attention& a, const RowBlock<Sum>& block, int64_t panel, int64_t key,
                int64_t count, Sum* kept, int64_t stride) {
  constexpr size_t kBlocks = kKeyBlock / 4 + 1;  // The keys may begin within a block.
  const auto seed = a.dropout.seed.template get<uint64_t>();
  const auto offset = a.dropout.offset.template get<uint64_t>();
  const double p = a.dropout.p;
  const auto factor = static_cast<Sum>(1 / (1 - p));
  uint32_t words[4 * kBlocks];
  for (int64_t lane = 0; lane < kPanel<Sum>; ++lane) {
    const int64_t r = panel * kPanel<Sum> + lane;
    if (r >= block.count) {
      for (int64_t j = 0; j < count; ++j) kept[j * stride + lane] = 0;
      continue;
    }
    const uint64_t first =
        a.weight_number(block.problem, block.begin + r) + static_cast<uint64_t>(key);
    random_blocks<kBlocks>(seed, offset, first / 4, words);
    for (int64_t j = 0; j < count; ++j) {
      const uint32_t word = words[first % 4 + static_cast<uint64_t>(j)];
      const bool is_kept = static_cast<double>(uniform_f32(word)) >= p;
      kept[j * stride + lane] = is_kept ? factor : Sum{0};
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_SDPA_TERMS_INL_HPP
