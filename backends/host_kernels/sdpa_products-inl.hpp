// The two products of a tile of attention: q k^T, and the weights by v. PanelProducts computes them
// by vectors, for every dtype. AmxProducts computes those of bf16 by tile registers. On one thread
// of a Xeon with AMX, a causal attention of 8x1024x64 then takes 0.42 of the time, and one of 32
// heads over 8 x512x128 0.29.
//
// A block of rows calls load_queries(), then for each tile of keys load_tile(), and for each panel
// multiply_keys() and add_values().
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_SDPA_PRODUCTS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_SDPA_PRODUCTS_INL_HPP
#undef BACKPLANE_CPU_SDPA_PRODUCTS_INL_HPP
#else
#define BACKPLANE_CPU_SDPA_PRODUCTS_INL_HPP
#endif

#include <algorithm>

#include "backends/host_kernels/amx.hpp"
#include "backends/host_kernels/sdpa_tiles-inl.hpp"
#include "backends/host_kernels/transpose-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

template <typename T>
class PanelProducts {
 public:
  using Sum = Compute<T>;

  PanelProducts(const Attention& a, int64_t problem, const AttentionScratch& scratch, Sum* memory)
      : a_(a), problem_(problem), scratch_(scratch), memory_(memory) {}

  void load_queries(int64_t panels) { static_cast<void>(panels); }

  void load_tile(int64_t key, int64_t count) {
    keys_ = tile_of_keys<T>(a_, a_.k, problem_, key, count, a_.width, memory_ + scratch_.keys);
    values_ =
        tile_of_keys<T>(a_, a_.v, problem_, key, count, a_.value_width, memory_ + scratch_.values);
  }

  void multiply_keys(int64_t panel, int64_t count, Sum* scores) const {
    multiply_panel<Read::kAlong, false>(
        count, keys_.data, keys_.stride,
        memory_ + scratch_.q_panels + panel * kPanel<Sum> * a_.width, kPanel<Sum>, a_.width, scores,
        kPanel<Sum>);
  }
  void add_values(int64_t count, const Sum* p, Sum* y) const {
    multiply_panel<Read::kAcross, true>(a_.value_width, values_.data, values_.stride, p,
                                        kPanel<Sum>, count, y, kPanel<Sum>);
  }

  bool has_finite_values(int64_t count) const { return is_finite(values_, count, a_.value_width); }
  Sum value(int64_t j, int64_t c) const { return values_.data[j * values_.stride + c]; }

 private:
  const Attention& a_;
  const int64_t problem_;
  const AttentionScratch& scratch_;
  Sum* const memory_;
  TileRows<Sum> keys_{}, values_{};
};

#if HWY_TARGET == HWY_AVX3
constexpr bool kHasAmx = true;

// The memory of a block has these parts, behind AttentionScratch::amx:
//
//   q         (panels, padded width / 2, 32, 2)   bf16
//   p         (kKeyBlock / 2, 32, 2)              bf16: the weights of one panel
//   v         (padded value width, kKeyBlock)     bf16: transposed, with zeros behind the last key
//   k, rows   (kKeyBlock, padded width)           bf16: copies of keys and values, if needed
//   sums      (padded value width, 32)            f32
class AmxProducts {
 public:
  AmxProducts(const Attention& a, int64_t problem, const AttentionScratch& scratch, float* memory)
      : a_(a), problem_(problem), depth_(padded_width(a.width)) {
    q_panels_ = memory + scratch.q_panels;
    const int64_t value_width = padded_width(a.value_width);
    q_ = reinterpret_cast<uint32_t*>(memory + scratch.amx);
    p_ = q_ + kRowBlock * depth_ / 2;
    values_ = reinterpret_cast<uint16_t*>(p_ + kKeyBlock / 2 * kPanel<float>);
    key_copies_ = values_ + value_width * kKeyBlock;
    value_copies_ = key_copies_ + kKeyBlock * depth_;
    sums_ = reinterpret_cast<float*>(value_copies_ + (kKeyBlock + 1) * value_width);
    std::fill_n(value_copies_ + kKeyBlock * value_width, value_width, uint16_t{0});
  }

  void load_queries(int64_t panels) {
    for (int64_t panel = 0; panel < panels; ++panel) {
      pack_pairs(q_panels_ + panel * kPanel<float> * a_.width, a_.width, 0, depth_,
                 q_ + panel * kPanel<float> * depth_ / 2);
    }
  }

  void load_tile(int64_t key, int64_t count) {
    load_keys(key, count);
    load_values(key, count);
  }

  void multiply_keys(int64_t panel, int64_t count, float* scores) const {
    const int64_t rows = (count + kAmxRows - 1) / kAmxRows * kAmxRows;
    multiply_amx(keys_, key_stride_, q_ + panel * kPanel<float> * depth_ / 2, rows, depth_, scores);
  }
  void add_values(int64_t count, const float* p, float* y) const {
    const TileTag<float> d;
    constexpr uint32_t kHalfUnit = 0x8000;  // Rounds p, whose ties go up.
    const int64_t depth = (count + kAmxDepth - 1) / kAmxDepth * kAmxDepth;
    pack_pairs(p, count, kHalfUnit, depth, p_);
    const int64_t rows = (a_.value_width + kAmxRows - 1) / kAmxRows * kAmxRows;
    multiply_amx(values_, kKeyBlock, p_, rows, depth, sums_);
    for (int64_t i = 0; i < a_.value_width * kPanel<float>; i += kTileLanes<float>) {
      hn::StoreU(hn::Add(hn::LoadU(d, y + i), hn::LoadU(d, sums_ + i)), d, y + i);
    }
  }

  // The product also reads the values behind `count`, up to a whole tile.
  bool has_finite_values(int64_t count) const {
    static_cast<void>(count);
    for (int64_t j = 0; j < kKeyBlock; ++j) {
      const TileRows<BFloat16> row{reinterpret_cast<const BFloat16*>(value_rows_[j]), 0};
      if (!is_finite(row, 1, a_.value_width)) return false;
    }
    return true;
  }
  float value(int64_t j, int64_t c) const { return widen(BFloat16{value_rows_[j][c]}); }

 private:
  // Rounds rows of a panel of f32, and lays pairs of them side by side. Rows from `count` to
  // `padded` are 0.
  static void pack_pairs(const float* from, int64_t count, uint32_t half_unit, int64_t padded,
                         uint32_t* to) {
    const TileTag<float> d;
    const hn::RebindToUnsigned<TileTag<float>> bits_d;
    const auto half = hn::Set(bits_d, half_unit), upper = hn::Set(bits_d, 0xffff0000u);
    for (int64_t row = 0; row < padded; row += 2, from += 2 * kPanel<float>) {
      for (int64_t i = 0; i < kPanel<float>; i += kTileLanes<float>, to += kTileLanes<float>) {
        auto pair = hn::Zero(bits_d);
        if (row < count) {
          pair = hn::ShiftRight<16>(hn::Add(hn::BitCast(bits_d, hn::LoadU(d, from + i)), half));
        }
        if (row + 1 < count) {
          const auto odd = hn::BitCast(bits_d, hn::LoadU(d, from + kPanel<float> + i));
          pair = hn::Or(pair, hn::And(hn::Add(odd, half), upper));
        }
        hn::StoreU(pair, bits_d, to);
      }
    }
  }

  // Copies the rows [key, key + count), and pads them with zeros.
  void copy_rows(const View& view, int64_t key, int64_t count, int64_t width, uint16_t* to) const {
    const int64_t pitch = padded_width(width);
    for (int64_t j = 0; j < count; ++j, to += pitch) {
      const auto* const from = a_.template key_of<const uint16_t>(view, problem_, key + j);
      for (int64_t c = 0; c < width; ++c) to[c] = from[c * view.strides[3]];
      std::fill(to + width, to + pitch, uint16_t{0});
    }
  }

  void load_keys(int64_t key, int64_t count) {
    const bool is_whole = a_.k.strides[3] == 1 && a_.width == depth_ && count % kAmxRows == 0 &&
                          a_.keys_in_line(key) >= count;
    if (is_whole) {
      keys_ = a_.template key_of<const uint16_t>(a_.k, problem_, key);
      key_stride_ = a_.key_stride(a_.k);
      return;
    }
    copy_rows(a_.k, key, count, a_.width, key_copies_);
    std::fill(key_copies_ + count * depth_, key_copies_ + kKeyBlock * depth_, uint16_t{0});
    keys_ = key_copies_;
    key_stride_ = depth_;
  }

  void load_values(int64_t key, int64_t count) {
    constexpr int64_t kSide = 8, kLines = 16;
    const int64_t width = a_.value_width, pitch = padded_width(width);
    const bool is_whole = a_.v.strides[3] == 1 && width % kSide == 0;
    if (!is_whole) copy_rows(a_.v, key, count, width, value_copies_);
    for (int64_t j = 0; j < kKeyBlock; ++j) {
      value_rows_[j] = value_copies_ + (j < count ? j : kKeyBlock) * pitch;
      if (!is_whole || j >= count) continue;
      value_rows_[j] = a_.template key_of<const uint16_t>(a_.v, problem_, key + j);
    }
    for (int64_t c = 0; c < width; c += kSide) {
      for (int64_t j = 0; j < kKeyBlock; j += kLines) {
        transpose_lines<2>(value_rows_ + j, c, values_ + c * kKeyBlock + j, kKeyBlock);
      }
    }
    const int64_t end = (width + kSide - 1) / kSide * kSide;
    std::fill(values_ + end * kKeyBlock, values_ + pitch * kKeyBlock, uint16_t{0});
  }

  const Attention& a_;
  const int64_t problem_, depth_;
  const AmxScope scope_;
  const float* q_panels_;
  uint32_t *q_, *p_;
  uint16_t *values_, *key_copies_, *value_copies_;
  float* sums_;
  const uint16_t* keys_ = nullptr;
  int64_t key_stride_ = 0;
  const uint16_t* value_rows_[kKeyBlock];
};
#else
constexpr bool kHasAmx = false;
class AmxProducts;
#endif

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_SDPA_PRODUCTS_INL_HPP
