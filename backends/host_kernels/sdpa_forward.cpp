// The forward op of attention. Each block of rows walks the keys that it sees, tile by tile, and
// keeps for each row the largest score, the sum of the exponentials and the sum of values so far. A
// larger score scales the two sums down. Only one tile of scores is in memory at a time. A row
// whose scores are all -inf counts as a row that sees no key. A sink joins the sum of
// its rows in the end.

#include <cmath>
#include <limits>
#include <vector>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/sdpa.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/sdpa_forward.cpp"
// clang-format off: this header compiles the file once for each target, and comes first.
#include <hwy/foreach_target.h>
// clang-format on
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "backends/host_kernels/sdpa_products-inl.hpp"
#include "backends/host_kernels/sdpa_terms-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels::HWY_NAMESPACE {
namespace {

// Computes one block of rows. `memory` is the thread's own.
template <typename T, class Products>
class BlockForward {
 public:
  using Sum = Compute<T>;
  using Tag = TileTag<Sum>;
  using Vector = hn::Vec<Tag>;

  BlockForward(const AttentionForward& a, int64_t problem, int64_t block, Sum* memory)
      : a_(a),
        block_(a, problem, block),
        scratch_(a, false),
        memory_(memory),
        products_(a, problem, scratch_, memory) {}

  void run() {
    load_panels<T>(a_, block_, a_.q, a_.width, part(scratch_.line), part(scratch_.q_panels));
    products_.load_queries(block_.panels);
    std::fill_n(part(scratch_.y_panels), y_elements(), Sum{0});
    std::fill_n(part(scratch_.peaks), kRowBlock, -kInfinity<Sum>);
    std::fill_n(part(scratch_.sums), kRowBlock, Sum{0});
    const int64_t end = block_.key_limit;
    for (int64_t key = block_.first_tile(); key < end; key += kKeyBlock) {
      const int64_t count = std::min(kKeyBlock, end - key);
      products_.load_tile(key, count);
      for (int64_t panel = 0; panel < block_.panels; ++panel) run_tile(panel, key, count);
      const bool is_full = (key / kKeyBlock + 1) % kTilesOfSum == 0;
      if (is_full && a_.has_key_totals()) take_all_sums();
    }
    if (has_totals_) take_all_sums();
    finish();
  }

 private:
  Sum* part(int64_t offset) const { return memory_ + offset; }

  int64_t y_elements() const { return block_.panels * kPanel<Sum> * a_.value_width; }

  // Adds the sums so far to the totals, which hold the result in the end.
  void take_all_sums() {
    if (!has_totals_) {
      std::fill_n(part(scratch_.y_totals), y_elements(), Sum{0});
      std::fill_n(part(scratch_.sum_totals), kRowBlock, Sum{0});
    }
    has_totals_ = true;
    take_sums(y_elements(), part(scratch_.y_panels), part(scratch_.y_totals));
    take_sums(kRowBlock, part(scratch_.sums), part(scratch_.sum_totals));
  }
  // Returns the place of the final sums.
  Sum* result_of(int64_t sums, int64_t totals) const { return part(has_totals_ ? totals : sums); }

  // Computes the keys [key, key + count) for one panel.
  void run_tile(int64_t panel, int64_t key, int64_t all) {
    const int64_t count = block_.seen_end(panel, key, all);
    if (count == 0) return;
    Sum* const scores = part(scratch_.scores);
    products_.multiply_keys(panel, count, scores);
    const Sum scale = finish_scores<T>(a_, block_, panel, key, count, part(scratch_.line), scores,
                                       kPanel<Sum>, static_cast<Sum*>(nullptr));
    const bool may_hide = a_.has_mask || a_.has_dropout() || !block_.sees_all(panel, key, all);
    may_hide ? add_tile<true>(panel, key, count, scale) : add_tile<false>(panel, key, count, scale);
  }

  template <bool kMayHide>
  void add_tile(int64_t panel, int64_t key, int64_t count, Sum scale) {
    Sum* const y = part(scratch_.y_panels) + panel * kPanel<Sum> * a_.value_width;
    const LaneLimits<Sum> limits(block_, panel, key);
    for (int half = 0; half < 2; ++half) {
      exponentiate<kMayHide>(panel, half, count, scale, limits, y);
    }
    if (a_.has_dropout()) drop(panel, key, count);
    const Sum* const p = part(scratch_.scores);
    if (kMayHide && !products_.has_finite_values(count)) return add_seen_values(count, y);
    products_.add_values(count, p, y);
  }

  // Turns the scores of one vector of rows into exp(score - peak), or -0 for a key that is not
  // seen, and updates the state of the rows.
  template <bool kMayHide>
  HWY_NOINLINE void exponentiate(int64_t panel, int half, int64_t count, Sum scale,
                                 const LaneLimits<Sum>& limits, Sum* y) {
    const Tag d;
    const int64_t first = panel * kPanel<Sum> + half * kTileLanes<Sum>;
    Sum* const scores = part(scratch_.scores) + half * kTileLanes<Sum>;
    const auto lowest = hn::Set(d, -kInfinity<Sum>);
    const auto old_peak = hn::LoadU(d, part(scratch_.peaks) + first);
    auto peak = old_peak;
    for (int64_t j = 0; j < count; ++j) {
      const auto raw = hn::LoadU(d, scores + j * kPanel<Sum>);
      auto s = hn::Mul(raw, hn::Set(d, scale));
      if constexpr (kMayHide) {
        const auto is_seen = hn::AndNot(is_hidden(d, raw), limits.sees(half, j));
        peak = hn::Max(peak, hn::IfThenElse(is_seen, s, lowest));
        s = hn::IfThenElse(is_seen, s, hn::Set(d, hidden_score<Sum>()));
      } else {
        peak = hn::Max(peak, s);
      }
      hn::StoreU(s, d, scores + j * kPanel<Sum>);
    }
    hn::StoreU(peak, d, part(scratch_.peaks) + first);
    // If there is no score so far, the peak is not a number that can be subtracted.
    const auto shift = hn::IfThenZeroElse(hn::Eq(peak, lowest), peak);
    auto sum = hn::Zero(d);
    for (int64_t j = 0; j < count; ++j) {
      const auto s = hn::LoadU(d, scores + j * kPanel<Sum>);
      auto p = exp_of_score(d, hn::Sub(s, shift));
      if constexpr (kMayHide) p = hn::IfThenElse(is_hidden(d, s), hn::Set(d, Sum{-0.0}), p);
      hn::StoreU(p, d, scores + j * kPanel<Sum>);
      sum = hn::Add(sum, p);
    }
    Sum* const sums = part(scratch_.sums) + first;
    const auto factor = exp_of_score(d, hn::Sub(old_peak, shift));
    hn::StoreU(hn::MulAdd(hn::LoadU(d, sums), factor, sum), d, sums);
    if (hn::AllTrue(d, hn::Eq(factor, hn::Set(d, Sum{1})))) return;
    const auto scale_down = [&](Sum* at)
                                HWY_ATTR { hn::StoreU(hn::Mul(hn::LoadU(d, at), factor), d, at); };
    const int64_t y_offset = y - part(scratch_.y_panels) + half * kTileLanes<Sum>;
    for (int64_t c = 0; c < a_.value_width; ++c) {
      scale_down(part(scratch_.y_panels) + y_offset + c * kPanel<Sum>);
    }
    if (!has_totals_) return;
    scale_down(part(scratch_.sum_totals) + first);
    for (int64_t c = 0; c < a_.value_width; ++c) {
      scale_down(part(scratch_.y_totals) + y_offset + c * kPanel<Sum>);
    }
  }

  // Multiplies the weights by 1 / (1 - dropout_p), or makes them -0, so that they add nothing.
  void drop(int64_t panel, int64_t key, int64_t count) {
    Sum* const HWY_RESTRICT p = part(scratch_.scores);
    Sum* const HWY_RESTRICT kept = part(scratch_.kept);
    write_kept(a_, block_, panel, key, count, kept, kPanel<Sum>);
    for (int64_t i = 0; i < count * kPanel<Sum>; ++i)
      p[i] = kept[i] == 0 ? Sum{-0.0} : p[i] * kept[i];
  }

  // Computes y += p v, and skips keys that are not seen, because 0 times a value that is not finite
  // is NaN.
  void add_seen_values(int64_t count, Sum* y) const {
    const Sum* p = part(scratch_.scores);
    for (int64_t j = 0; j < count; ++j, p += kPanel<Sum>) {
      for (int64_t c = 0; c < a_.value_width; ++c) {
        const Sum value = products_.value(j, c);
        for (int64_t lane = 0; lane < kPanel<Sum>; ++lane) {
          if (p[lane] == 0 && std::signbit(p[lane])) continue;
          y[c * kPanel<Sum> + lane] += p[lane] * value;
        }
      }
    }
  }

  // Divides by the sums, and writes y and lse. A row without a weight gets 0, whatever the values
  // are, and -inf or its sink.
  void finish() {
    const Tag d;
    Sum* const sums = result_of(scratch_.sums, scratch_.sum_totals);
    for (int64_t r = 0; r < block_.count; ++r) {
      const int64_t row = block_.begin + r;
      Sum peak = part(scratch_.peaks)[r], total = sums[r];
      if (a_.has_sinks) add_sink(a_, block_.problem, row, peak, total, sums[r]);
      if (a_.has_lse)
        *a_.template row_of<Sum>(a_.lse, block_.problem, row) = peak + std::log(total);
    }
    Sum* const first = result_of(scratch_.y_panels, scratch_.y_totals);
    Sum* y = first;
    for (int64_t panel = 0; panel < block_.panels; ++panel) {
      const Sum* const of_panel = sums + panel * kPanel<Sum>;
      const auto s0 = hn::LoadU(d, of_panel), s1 = hn::LoadU(d, of_panel + kTileLanes<Sum>);
      const auto divide = [&](Sum* at, Vector sum) HWY_ATTR {
        const auto mean = hn::Div(hn::LoadU(d, at), sum);
        hn::StoreU(hn::IfThenZeroElse(hn::Eq(sum, hn::Zero(d)), mean), d, at);
      };
      for (int64_t c = 0; c < a_.value_width; ++c, y += kPanel<Sum>) {
        divide(y, s0);
        divide(y + kTileLanes<Sum>, s1);
      }
    }
    Sum* const factors = part(scratch_.peaks);  // The peaks are not needed any more.
    std::fill_n(factors, kRowBlock, Sum{1});
    store_panels<T>(a_, block_, a_.y, a_.value_width, factors, part(scratch_.line), first);
  }

  const AttentionForward& a_;
  const RowBlock<Sum> block_;
  const AttentionScratch scratch_;
  Sum* const memory_;
  Products products_;
  bool has_totals_ = false;
};

// Which tasks the attentions of a list have: one for each problem and block of rows.
class TaskList {
 public:
  explicit TaskList(std::span<const AttentionForward* const> list) : list_(list) {
    for (const AttentionForward* const its : list) {
      const AttentionForward& a = *its;
      ends_.push_back(count() + a.problems() * a.row_blocks());
      scratch_ = std::max(scratch_, AttentionScratch(a, false).size());
      const int64_t row_cost = std::max<int64_t>(1, a.keys * (a.width + a.value_width));
      const int64_t rows = a.problems() * a.rows(), most = kParallelProducts / row_cost;
      room_ -= std::min(rows, most + 1) * row_cost;
    }
  }

  int64_t count() const { return ends_.empty() ? 0 : ends_.back(); }
  int64_t scratch() const { return scratch_; }
  bool is_small() const { return room_ >= 0; }

  // The last rows of a causal problem see the most keys, so they are computed first.
  template <typename T>
  void run(int64_t task, Compute<T>* memory) const {
    const auto at =
        static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), task) - ends_.begin());
    const AttentionForward& a = *list_[at];
    const int64_t blocks = a.row_blocks(), local = task - (at == 0 ? 0 : ends_[at - 1]);
    const int64_t problem = local / blocks, block = blocks - 1 - local % blocks;
    if constexpr (kHasAmx && std::is_same_v<T, BFloat16>) {
      if (a.uses_amx) return BlockForward<T, AmxProducts>(a, problem, block, memory).run();
    }
    BlockForward<T, PanelProducts<T>>(a, problem, block, memory).run();
  }

 private:
  std::span<const AttentionForward* const> list_;
  std::vector<int64_t> ends_;
  int64_t scratch_ = 0;
  int64_t room_ = kParallelProducts;  // What a single thread may still do; negative: too much.
};

template <typename T>
void run_blocks(std::span<const AttentionForward* const> list, std::byte* workspace,
                int thread_count) {
  const TaskList tasks(list);
  auto* const memory = reinterpret_cast<Compute<T>*>(workspace);
  const bool is_small = tasks.is_small();
#pragma omp parallel for num_threads(thread_count) if (!is_small) schedule(dynamic, 1)
  for (int64_t task = 0; task < tasks.count(); ++task) {
    tasks.run<T>(task, memory + thread_number() * tasks.scratch());
  }
}

void run_forward(std::span<const AttentionForward* const> list, std::byte* workspace,
                 int thread_count) {
  with_float(list[0]->dtype, [&]<typename T>(T) { run_blocks<T>(list, workspace, thread_count); });
}

bool has_amx_target() { return kHasAmx; }

}  // namespace
}  // namespace bp::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(run_forward);
HWY_EXPORT(has_amx_target);

}  // namespace

bp_reason attention_amx_refusal() {
  if (!HWY_DYNAMIC_DISPATCH(has_amx_target)()) return "the loops are not compiled for AVX-512";
  return has_amx_bf16() ? nullptr : "the processor has no AMX for bf16";
}

void run_attentions(std::span<const AttentionForward> attentions, std::byte* workspace,
                    int thread_count) {
  std::vector<const AttentionForward*> few, many;
  for (const AttentionForward& a : attentions) (has_few_rows(a) ? few : many).push_back(&a);
  if (!few.empty()) run_few_rows(few, workspace, thread_count);
  if (!many.empty()) HWY_DYNAMIC_DISPATCH(run_forward)(many, workspace, thread_count);
}

}  // namespace bp::kernels
#endif
