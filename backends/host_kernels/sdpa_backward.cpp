// The gradients of attention. Each block of rows walks the keys that it sees, tile by tile, and
// computes their weights p again from the lse of the forward op.
//
//   grad_s   p * (grad_y v^T - sum(grad_y * y))    a tile
//   grad_q   scale * grad_s k                      complete when a block of rows has seen its keys
//   grad_k   scale * grad_s^T q                    sums over rows, with those of grad_v = p^T
//   grad_y
//
// If there is a soft cap, grad_s is multiplied by its slope, and if there is dropout, the p of
// grad_v and the products grad_y v^T by what it keeps. The product of a weight that dropout drops
// is 0, and the weight adds nothing to grad_v, whatever v and grad_y are. sdpa_sinks.cpp computes
// the gradient of the sinks.
//
// A row whose lse is -inf has no weights, and all its gradients are 0.
//
// The sums lie in the workspace. There is one pair of sums for each head of keys at work, or, if
// there are few heads, for each part of the rows of a head.

#include <cmath>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/sdpa.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/sdpa_backward.cpp"
// clang-format off: this header compiles the file once for each target, and comes first.
#include <hwy/foreach_target.h>
// clang-format on
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "backends/host_kernels/sdpa_terms-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels::HWY_NAMESPACE {
namespace {

// The sums of grad_k and grad_v over rows, each (keys, padded width). A sum that is not wanted is
// NULL.
template <typename Sum>
struct KeySums {
  KeySums(const AttentionBackward& a, Sum* memory)
      : key_stride(padded_width(a.width)), value_stride(padded_width(a.value_width)) {
    if (a.has_grad_k) keys = memory;
    if (a.has_grad_v) values = memory + (a.has_grad_k ? a.keys * key_stride : 0);
  }
  int64_t key_stride, value_stride;
  Sum *keys = nullptr, *values = nullptr;
};

// Computes one block of rows. `memory` is the thread's own.
template <typename T>
class BlockBackward {
 public:
  using Sum = Compute<T>;
  using Tag = TileTag<Sum>;

  BlockBackward(const AttentionBackward& a, int64_t problem, int64_t block, Sum* memory,
                const KeySums<Sum>& sums)
      : a_(a), block_(a, problem, block), scratch_(a, true), memory_(memory), sums_(sums) {}

  void run() {
    load_rows();
    std::fill_n(part(scratch_.y_panels), block_.panels * kPanel<Sum> * a_.width, Sum{0});
    const int64_t end = block_.key_limit;
    for (int64_t key = block_.first_tile(); key < end; key += kKeyBlock) {
      const int64_t count = std::min(kKeyBlock, end - key);
      keys_ = tile_of_keys<T>(a_, a_.k, block_.problem, key, count, a_.width, part(scratch_.keys));
      values_ = tile_of_keys<T>(a_, a_.v, block_.problem, key, count, a_.value_width,
                                part(scratch_.values));
      const bool may_hide = a_.has_mask || a_.has_band || a_.has_dropout();
      is_finite_ = !may_hide || (are_rows_finite_ && is_finite(keys_, count, a_.width));
      for (int64_t panel = 0; panel < block_.panels; ++panel) run_tile(panel, key, count);
      is_finite_ ? add_to_key_sums(key, count) : add_seen(key, count);
      const bool is_full = (key / kKeyBlock + 1) % kTilesOfSum == 0;
      if (is_full && a_.has_key_totals()) take_query_sums();
    }
    if (has_totals_) take_query_sums();
    Sum* const factors = part(scratch_.sums);
    std::fill_n(factors, kRowBlock, static_cast<Sum>(a_.scale));
    store_panels<T>(a_, block_, a_.grad_q, a_.width, factors, part(scratch_.line),
                    part(has_totals_ ? scratch_.y_totals : scratch_.y_panels));
  }

 private:
  Sum* part(int64_t offset) const { return memory_ + offset; }

  // Adds the sums of grad_q so far to the totals, which hold the result in the end.
  void take_query_sums() {
    const int64_t count = block_.panels * kPanel<Sum> * a_.width;
    if (!has_totals_) std::fill_n(part(scratch_.y_totals), count, Sum{0});
    has_totals_ = true;
    take_sums(count, part(scratch_.y_panels), part(scratch_.y_totals));
  }

  // Adds a tile to the sums of grad_k and grad_v.
  void add_to_key_sums(int64_t key, int64_t count) {
    if (sums_.keys != nullptr) {
      add_over_rows(part(scratch_.grad_scores), part(scratch_.q_rows), sums_.key_stride, count,
                    sums_.keys + key * sums_.key_stride);
    }
    if (sums_.values != nullptr) {
      add_over_rows(part(scratch_.scores), part(scratch_.grad_rows), sums_.value_stride, count,
                    sums_.values + key * sums_.value_stride);
    }
  }

  // Loads q and grad_y as panels and as rows, lse, and sum(grad_y * y).
  void load_rows() {
    load_panels<T>(a_, block_, a_.q, a_.width, part(scratch_.line), part(scratch_.q_panels));
    load_panels<T>(a_, block_, a_.grad_y, a_.value_width, part(scratch_.line),
                   part(scratch_.grad_panels));
    load_padded(a_.q, a_.width, part(scratch_.q_rows));
    load_padded(a_.grad_y, a_.value_width, part(scratch_.grad_rows));
    are_rows_finite_ =
        is_finite<Sum>({part(scratch_.q_rows), padded_width(a_.width)}, block_.count, a_.width) &&
        is_finite<Sum>({part(scratch_.grad_rows), padded_width(a_.value_width)}, block_.count,
                       a_.value_width);
    Sum *const line = part(scratch_.line), *const lse = part(scratch_.peaks);
    Sum* const deltas = part(scratch_.sums);
    std::fill_n(lse, kRowBlock, Sum{0});
    std::fill_n(deltas, kRowBlock, Sum{0});
    for (int64_t r = 0; r < block_.count; ++r) {
      const int64_t row = block_.begin + r;
      lse[r] = *a_.template row_of<const Sum>(a_.lse, block_.problem, row);
      const Sum* const grad = part(scratch_.grad_rows) + r * padded_width(a_.value_width);
      load_line(a_.template row_of<const T>(a_.y, block_.problem, row), a_.y.strides[3],
                a_.value_width, line);
      for (int64_t c = 0; c < a_.value_width; ++c) deltas[r] += grad[c] * line[c];
    }
  }

  // Loads rows one after the other, and pads them with 0.
  void load_padded(const View& view, int64_t width, Sum* to) {
    const int64_t stride = padded_width(width);
    std::fill_n(to, kRowBlock * stride, Sum{0});
    for (int64_t r = 0; r < block_.count; ++r) {
      load_line(a_.template row_of<const T>(view, block_.problem, block_.begin + r),
                view.strides[3], width, to + r * stride);
    }
  }

  // Computes the keys [key, key + count) for one panel. Here a tile of scores has rows for all
  // panels.
  void run_tile(int64_t panel, int64_t key, int64_t count) {
    const int64_t first = panel * kPanel<Sum>;
    const int64_t seen = block_.seen_end(panel, key, count);
    Sum *const p = part(scratch_.scores) + first, *const grad = part(scratch_.grad_scores) + first;
    for (int64_t j = seen; j < count; ++j) {
      std::fill_n(p + j * kRowBlock, kPanel<Sum>, Sum{-0.0});
      std::fill_n(grad + j * kRowBlock, kPanel<Sum>, Sum{-0.0});
    }
    if (seen == 0) return;
    multiply_panel<Read::kAlong, false>(seen, keys_.data, keys_.stride,
                                        part(scratch_.q_panels) + first * a_.width, kPanel<Sum>,
                                        a_.width, p, kRowBlock);
    multiply_panel<Read::kAlong, false>(seen, values_.data, values_.stride,
                                        part(scratch_.grad_panels) + first * a_.value_width,
                                        kPanel<Sum>, a_.value_width, grad, kRowBlock);
    Sum* const slopes = has_factors() ? part(scratch_.slopes) + first : nullptr;
    const Sum scale =
        finish_scores<T>(a_, block_, panel, key, seen, part(scratch_.line), p, kRowBlock, slopes);
    if (has_factors()) write_factors(panel, key, seen);
    const LaneLimits<Sum> limits(block_, panel, key);
    for (int half = 0; half < 2; ++half) {
      has_factors() ? differentiate<true>(panel, half, seen, scale, limits)
                    : differentiate<false>(panel, half, seen, scale, limits);
    }
    if (!is_finite_) return;
    multiply_panel<Read::kAcross, true>(a_.width, keys_.data, keys_.stride, grad, kRowBlock, seen,
                                        part(scratch_.y_panels) + first * a_.width, kPanel<Sum>);
  }

  // Returns whether slopes and kept are used, which are 1 where there is no soft cap or no dropout.
  bool has_factors() const { return a_.has_softcap() || a_.has_dropout(); }

  void write_factors(int64_t panel, int64_t key, int64_t count) {
    const int64_t first = panel * kPanel<Sum>;
    Sum *const slopes = part(scratch_.slopes) + first, *const kept = part(scratch_.kept) + first;
    for (int64_t j = 0; j < count && !a_.has_softcap(); ++j) {
      std::fill_n(slopes + j * kRowBlock, kPanel<Sum>, Sum{1});
    }
    if (a_.has_dropout()) return write_kept(a_, block_, panel, key, count, kept, kRowBlock);
    for (int64_t j = 0; j < count; ++j) std::fill_n(kept + j * kRowBlock, kPanel<Sum>, Sum{1});
  }

  // Turns the scores of one vector of rows into p, and the gradients of p into those of the scores.
  // Both are -0 for a key that is not seen, and p also for a weight that is dropped.
  template <bool kHasFactors>
  HWY_NOINLINE void differentiate(int64_t panel, int half, int64_t count, Sum scale,
                                  const LaneLimits<Sum>& limits) {
    const Tag d;
    const int64_t first = panel * kPanel<Sum> + half * kTileLanes<Sum>;
    Sum *const p_at = part(scratch_.scores) + first, *const to = part(scratch_.grad_scores) + first;
    const auto lse = hn::LoadU(d, part(scratch_.peaks) + first);
    const auto delta = hn::LoadU(d, part(scratch_.sums) + first);
    const auto has_nothing = hn::Eq(lse, hn::Set(d, -kInfinity<Sum>));  // It is false for a NaN.
    for (int64_t j = 0; j < count; ++j) {
      const auto raw = hn::LoadU(d, p_at + j * kRowBlock);
      const auto s = hn::Mul(raw, hn::Set(d, scale));
      const auto is_seen =
          hn::AndNot(has_nothing, hn::AndNot(is_hidden(d, raw), limits.sees(half, j)));
      const auto x = hn::Sub(s, lse);  // Even the smallest weights matter.
      auto p = hn::IfThenElse(hn::Eq(x, x), hn::Exp(d, x), x);
      p = hn::IfThenElse(is_seen, p, hn::Set(d, Sum{-0.0}));
      auto product = hn::LoadU(d, to + j * kRowBlock), of_score = p;
      if constexpr (kHasFactors) {
        const auto kept = hn::LoadU(d, part(scratch_.kept) + first + j * kRowBlock);
        of_score = hn::Mul(p, hn::LoadU(d, part(scratch_.slopes) + first + j * kRowBlock));
        const auto is_dropped = hn::Eq(kept, hn::Zero(d));
        product = hn::IfThenZeroElse(is_dropped, hn::Mul(product, kept));
        p = hn::IfThenElse(is_dropped, hn::Set(d, Sum{-0.0}), hn::Mul(p, kept));
      }
      // A sum with 0 is never -0.
      const auto gradient = hn::Add(hn::Mul(of_score, hn::Sub(product, delta)), hn::Zero(d));
      hn::StoreU(p, d, p_at + j * kRowBlock);
      hn::StoreU(hn::IfThenElse(is_seen, gradient, hn::Set(d, Sum{-0.0})), d, to + j * kRowBlock);
    }
  }

  // Adds a tile to grad_q and to the sums, and skips keys that are not seen and weights that are
  // dropped, because 0 times a value that is not finite is NaN.
  void add_seen(int64_t key, int64_t count) {
    for (int64_t i = 0; i < count * kRowBlock; ++i) {
      const int64_t j = i / kRowBlock, r = i % kRowBlock;
      const Sum p = part(scratch_.scores)[i], grad = part(scratch_.grad_scores)[i];
      if (r >= block_.count || (grad == 0 && std::signbit(grad))) continue;
      Sum* const grad_q =
          part(scratch_.y_panels) + r / kPanel<Sum> * kPanel<Sum> * a_.width + r % kPanel<Sum>;
      const Sum* const q = part(scratch_.q_rows) + r * padded_width(a_.width);
      const Sum* const grad_y = part(scratch_.grad_rows) + r * padded_width(a_.value_width);
      for (int64_t c = 0; c < a_.width; ++c) {
        grad_q[c * kPanel<Sum>] += grad * keys_.data[j * keys_.stride + c];
        if (sums_.keys != nullptr) sums_.keys[(key + j) * sums_.key_stride + c] += grad * q[c];
      }
      if (sums_.values == nullptr || (p == 0 && std::signbit(p))) continue;
      for (int64_t c = 0; c < a_.value_width; ++c) {
        sums_.values[(key + j) * sums_.value_stride + c] += p * grad_y[c];
      }
    }
  }

  // Computes to (count, stride) += tile (count, rows) by rows (rows, stride).
  void add_over_rows(const Sum* tile, const Sum* rows, int64_t stride, int64_t count, Sum* to) {
    const int64_t depth = block_.panels * kPanel<Sum>;
    for (int64_t c = 0; c < stride; c += kPanel<Sum>) {
      multiply_panel<Read::kAlong, true>(count, tile, kRowBlock, rows + c, stride, depth, to + c,
                                         stride);
    }
  }

  const AttentionBackward& a_;
  const RowBlock<Sum> block_;
  const AttentionScratch scratch_;
  Sum* const memory_;
  const KeySums<Sum> sums_;
  TileRows<Sum> keys_{}, values_{};
  bool are_rows_finite_ = true, is_finite_ = true;  // Of q and grad_y; of the tile's keys.
  bool has_totals_ = false;                         // For grad_q.
};

// Runs the blocks of rows of one split, and leaves their sums at the beginning of `sums`.
template <typename T, typename Sum>
void run_split(const AttentionBackward& a, int64_t problem, int64_t split, Sum* memory, Sum* sums) {
  const int64_t blocks = a.row_blocks(), splits = a.splits(), size = a.sum_elements();
  const int64_t begin = blocks * split / splits, end = blocks * (split + 1) / splits;
  Sum* const totals = sums + size;
  std::fill_n(sums, a.sum_stride(), Sum{0});
  for (int64_t b = begin; b < end; ++b) {
    BlockBackward<T>(a, problem, b, memory, KeySums<Sum>(a, sums)).run();
    const bool is_full = (b - begin + 1) % kTilesOfSum == 0;
    if (is_full && a.has_row_totals()) take_sums(size, sums, totals);
  }
  if (a.has_row_totals()) take_sums(size, totals, sums);
}

// Writes grad_k and grad_v of the keys [begin, end) from the sums of all splits, in order.
template <typename T, typename Sum>
void store_key_sums(const AttentionBackward& a, int64_t problem, int64_t begin, int64_t end,
                    Sum* memory, int64_t splits) {
  const int64_t split_stride = a.sum_stride();
  const auto store = [&](const View& view, Sum* HWY_RESTRICT sums, int64_t width, Sum scale) {
    const int64_t stride = padded_width(width);
    for (int64_t key = begin; key < end; ++key) {
      Sum* const row = sums + key * stride;
      for (int64_t split = 1; split < splits; ++split) {
        const Sum* const HWY_RESTRICT later = row + split * split_stride;
        for (int64_t c = 0; c < width; ++c) row[c] += later[c];
      }
      for (int64_t c = 0; c < width; ++c) row[c] *= scale;
      store_line(row, width, a.key_of<T>(view, problem, key), view.strides[3]);
    }
  };
  const KeySums<Sum> sums(a, memory);
  if (sums.keys != nullptr) store(a.grad_k, sums.keys, a.width, static_cast<Sum>(a.scale));
  if (sums.values != nullptr) store(a.grad_v, sums.values, a.value_width, Sum{1});
}

// Below this many products a team of threads costs more than it saves.
constexpr int64_t kParallelProducts = 1 << 16;

template <typename T>
void run_blocks(const AttentionBackward& a, std::byte* workspace, int thread_count) {
  using Sum = Compute<T>;
  const int64_t splits = a.splits(), size = AttentionScratch(a, true).size();
  const int64_t row_cost = std::max<int64_t>(1, a.keys * (a.width + a.value_width));
  const bool is_small = a.problems() * a.rows() <= kParallelProducts / row_cost;
  Sum* const scratch = reinterpret_cast<Sum*>(workspace);
  Sum* const all_sums = scratch + size * thread_count;
#pragma omp parallel num_threads(thread_count) if (!is_small)
  {
    const int thread = thread_number();
#pragma omp for schedule(dynamic, 1)
    for (int64_t unit = 0; unit < a.problems() * splits; ++unit) {
      const int64_t problem = unit / splits, split = unit % splits;
      Sum* const memory = all_sums + (splits > 1 ? unit : thread) * a.sum_stride();
      run_split<T>(a, problem, split, scratch + thread * size, memory);
      if (splits == 1) store_key_sums<T>(a, problem, 0, a.keys, memory, 1);
    }
    if (splits > 1) {
      const int64_t key_blocks = (a.keys + kKeyBlock - 1) / kKeyBlock;
#pragma omp for schedule(static)
      for (int64_t i = 0; i < a.problems() * key_blocks; ++i) {
        const int64_t problem = i / key_blocks, key = i % key_blocks * kKeyBlock;
        store_key_sums<T>(a, problem, key, std::min(a.keys, key + kKeyBlock),
                          all_sums + problem * splits * a.sum_stride(), splits);
      }
    }
  }
}

void run_backward(const AttentionBackward& a, std::byte* workspace, int thread_count) {
  with_float(a.dtype, [&]<typename T>(T) { run_blocks<T>(a, workspace, thread_count); });
}

}  // namespace
}  // namespace bp::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(run_backward);

}  // namespace

void run_attention(const AttentionBackward& attention, std::byte* workspace, int thread_count) {
  HWY_DYNAMIC_DISPATCH(run_backward)(attention, workspace, thread_count);
}

}  // namespace bp::kernels
#endif
