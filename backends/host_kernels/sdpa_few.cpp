// The forward op of attention for problems of a few rows, as in decoding. The time goes into
// reading the keys and values, so each problem reads them once for all of its rows, in their own
// dtype, with vectors along the width. The panels of sdpa_forward.cpp would be almost empty: one
// row took as long as 32.
//
// The keys of a problem are divided into parts, so that threads have work if there are few heads.
// Each part has the largest score, the sum of the exponentials and the sum of values of each row.
// They are merged in the order of the parts. The parts depend on the number of keys alone, so equal
// input gives equal bits for any number of threads.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <span>
#include <vector>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/sdpa.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/sdpa_few.cpp"
// clang-format off: this header compiles the file once for each target, and comes first.
#include <hwy/foreach_target.h>
// clang-format on
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "backends/host_kernels/sdpa_few-inl.hpp"
#include "backends/host_kernels/sdpa_terms-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels::HWY_NAMESPACE {
namespace {

// What the keys of a part add up to, for each row: `y` has rows of padded_width(value_width).
template <typename Sum>
struct RowSums {
  RowSums(const Attention& a, Sum* memory)
      : peaks(memory), sums(memory + kMostFewRows), y(memory + 2 * kMostFewRows) {
    stride = padded_width(a.value_width);
  }
  Sum *peaks, *sums, *y;
  int64_t stride;
};

template <typename T>
class PartForward {
 public:
  using Sum = Compute<T>;
  using Tag = TileTag<Sum>;

  PartForward(const AttentionForward& a, int64_t problem, Sum* memory, const RowSums<Sum>& sums)
      : a_(a),
        problem_(problem),
        rows_(a.rows()),
        q_stride_(padded_width(a.width)),
        q_(memory),
        scores_(q_ + rows_ * q_stride_),
        line_(scores_ + rows_ * kKeyBlock),
        state_(sums) {}

  // Computes the keys [begin, end).
  void run(int64_t begin, int64_t end) {
    for (int64_t r = 0; r < rows_; ++r) {
      Sum* const to = q_ + r * q_stride_;
      load_line(a_.template row_of<const T>(a_.q, problem_, r), a_.q.strides[3], a_.width, to);
      std::fill(to + a_.width, to + q_stride_, Sum{0});
    }
    std::fill_n(state_.peaks, rows_, -kInfinity<Sum>);
    std::fill_n(state_.sums, rows_, Sum{0});
    std::fill_n(state_.y, rows_ * state_.stride, Sum{0});
    int64_t first = end, limit = begin;
    for (int64_t r = 0; r < rows_; ++r) {
      first = std::min(first, a_.first_key(r));
      limit = std::max(limit, a_.key_limit(r));
    }
    limit = std::min(limit, end);
    for (int64_t key = std::max(first, begin); key < limit; key += kKeyBlock) {
      run_tile(key, std::min(kKeyBlock, limit - key));
    }
  }

 private:
  // Calls fn(first, count, address) for the runs of keys of a tile that lie at equal distances.
  template <typename Fn>
  void for_each_run(const View& view, int64_t key, int64_t count, const Fn& fn) const {
    for (int64_t j = 0, n = 0; j < count; j += n) {
      n = std::min(count - j, a_.keys_in_line(key + j));
      fn(j, n, a_.template key_of<const T>(view, problem_, key + j));
    }
  }

  void run_tile(int64_t key, int64_t count) {
    const int64_t k_stride = a_.key_stride(a_.k), v_stride = a_.key_stride(a_.v);
    for_each_run(a_.k, key, count, [&](int64_t j, int64_t n, const T* k) {
      for_few_rows(rows_, [&]<int kRows>(int64_t r) {
        dot_keys<kRows>(q_ + r * q_stride_, q_stride_, k, k_stride, n, a_.width,
                        scores_ + r * kKeyBlock + j);
      });
    });
    bool may_hide = a_.has_mask;
    for (int64_t r = 0; r < rows_; ++r) {
      may_hide |= a_.first_key(r) > key || a_.key_limit(r) < key + count;
      exponentiate(r, key, count);
    }
    for_each_run(a_.v, key, count, [&](int64_t j, int64_t n, const T* v) {
      const bool is_plain = !may_hide || is_finite(TileRows<T>{v, v_stride}, n, a_.value_width);
      if (!is_plain) return add_seen_values(j, n, v, v_stride);
      for_few_rows(rows_, [&]<int kRows>(int64_t r) {
        add_values<kRows>(scores_ + r * kKeyBlock + j, v, v_stride, n, a_.value_width,
                          state_.y + r * state_.stride, state_.stride);
      });
    });
  }

  // Turns the products of a row into scores, and returns the factor that they still lack. A key
  // that the mask hides gets hidden_score().
  Sum finish_scores(int64_t r, int64_t key, int64_t count, Sum* scores) {
    auto scale = static_cast<Sum>(a_.scale);
    if (a_.has_softcap()) {
      cap_scores(a_, 1, kKeyBlock, scores, static_cast<Sum*>(nullptr), kKeyBlock);
      scale = Sum{1};
    }
    if (a_.has_bias) {
      const int64_t stride = a_.bias.strides[3];
      load_line(a_.template row_of<const T>(a_.bias, problem_, r) + key * stride, stride, count,
                line_);
      for (int64_t j = 0; j < count; ++j) scores[j] = scale * scores[j] + line_[j];
      scale = Sum{1};
    }
    if (!a_.has_mask) return scale;
    const int64_t stride = a_.mask.strides[3];
    const auto* const mask = a_.template row_of<const uint8_t>(a_.mask, problem_, r) + key * stride;
    for (int64_t j = 0; j < count; ++j) {
      if (mask[j * stride] == 0) scores[j] = hidden_score<Sum>();
    }
    return scale;
  }

  // Turns the scores of a row into exp(score - peak), or -0 for a key that is not seen, and updates
  // the sums of the row.
  void exponentiate(int64_t r, int64_t key, int64_t count) {
    const Tag d;
    Sum* const scores = scores_ + r * kKeyBlock;
    std::fill(scores + count, scores + kKeyBlock, Sum{0});
    const auto scale = hn::Set(d, finish_scores(r, key, count, scores));
    const auto first = hn::Set(d, in_tile(a_.first_key(r) - key, count));
    const auto limit = hn::Set(d, in_tile(a_.key_limit(r) - key, count));
    const auto lowest = hn::Set(d, -kInfinity<Sum>), hidden = hn::Set(d, hidden_score<Sum>());
    auto peaks = hn::Set(d, state_.peaks[r]);
    for (int64_t j = 0; j < kKeyBlock; j += kTileLanes<Sum>) {
      const auto raw = hn::LoadU(d, scores + j), number = hn::Iota(d, static_cast<Sum>(j));
      const auto is_seen =
          hn::AndNot(is_hidden(d, raw), hn::And(hn::Ge(number, first), hn::Lt(number, limit)));
      const auto s = hn::Mul(raw, scale);
      peaks = hn::Max(peaks, hn::IfThenElse(is_seen, s, lowest));
      hn::StoreU(hn::IfThenElse(is_seen, s, hidden), d, scores + j);
    }
    const auto peak = hn::MaxOfLanes(d, peaks);
    // If there is no score so far, the peak is not a number that can be subtracted.
    const auto shift = hn::IfThenZeroElse(hn::Eq(peak, lowest), peak);
    auto sums = hn::Zero(d);
    for (int64_t j = 0; j < kKeyBlock; j += kTileLanes<Sum>) {
      const auto s = hn::LoadU(d, scores + j);
      const auto p = hn::IfThenElse(is_hidden(d, s), hn::Set(d, Sum{-0.0}),
                                    exp_of_score(d, hn::Sub(s, shift)));
      hn::StoreU(p, d, scores + j);
      sums = hn::Add(sums, p);
    }
    const Sum factor = hn::GetLane(exp_of_score(d, hn::Sub(hn::Set(d, state_.peaks[r]), shift)));
    state_.peaks[r] = hn::GetLane(peak);
    state_.sums[r] = state_.sums[r] * factor + hn::GetLane(hn::SumOfLanes(d, sums));
    if (factor != 1) scale_line(factor, state_.stride, state_.y + r * state_.stride);
  }

  static Sum in_tile(int64_t key, int64_t count) {
    return static_cast<Sum>(std::clamp<int64_t>(key, 0, count));
  }

  // Computes y += p v, and skips keys that are not seen, because 0 times a value that is not finite
  // is NaN.
  void add_seen_values(int64_t first, int64_t count, const T* v, int64_t stride) const {
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t j = 0; j < count; ++j) {
        const Sum p = scores_[r * kKeyBlock + first + j];
        if (p == 0 && std::signbit(p)) continue;
        for (int64_t c = 0; c < a_.value_width; ++c) {
          state_.y[r * state_.stride + c] += p * widen(v[j * stride + c]);
        }
      }
    }
  }

  const AttentionForward& a_;
  const int64_t problem_, rows_, q_stride_;
  Sum *const q_, *const scores_, *const line_;
  const RowSums<Sum> state_;
};

// Adds the sums of later keys to those of earlier ones.
template <typename Sum>
void merge(int64_t rows, const RowSums<Sum>& to, const RowSums<Sum>& later) {
  for (int64_t r = 0; r < rows; ++r) {
    const Sum peak = std::max(to.peaks[r], later.peaks[r]);
    const Sum shift = peak == -kInfinity<Sum> ? 0 : peak;
    const Sum factor = std::exp(to.peaks[r] - shift), other = std::exp(later.peaks[r] - shift);
    to.peaks[r] = peak;
    to.sums[r] = to.sums[r] * factor + later.sums[r] * other;
    Sum* const y = to.y + r * to.stride;
    const Sum* const more = later.y + r * later.stride;
    for (int64_t c = 0; c < to.stride; ++c) y[c] = y[c] * factor + more[c] * other;
  }
}

// Divides by the sums, and writes y and lse. A row without a weight gets 0, whatever the values
// are, and -inf or its sink.
template <typename T, typename Sum = Compute<T>>
void finish_rows(const AttentionForward& a, int64_t problem, const RowSums<Sum>& state) {
  for (int64_t r = 0; r < a.rows(); ++r) {
    Sum peak = state.peaks[r], total = state.sums[r], sum = total;
    if (a.has_sinks) add_sink(a, problem, r, peak, total, sum);
    if (a.has_lse) *a.template row_of<Sum>(a.lse, problem, r) = peak + std::log(total);
    Sum* const y = state.y + r * state.stride;
    for (int64_t c = 0; c < a.value_width; ++c) y[c] = sum == 0 ? 0 : y[c] / sum;
    store_line(y, a.value_width, a.template row_of<T>(a.y, problem, r), a.y.strides[3]);
  }
}

// An attention of a list, and where its tasks, problems and sums begin among those of all.
struct ListedAttention {
  const AttentionForward* attention;
  int64_t first_task, first_problem;  // A task is a part of the keys of a problem.
  int64_t first_sums;                 // In elements.
};

class FewList {
 public:
  explicit FewList(std::span<const AttentionForward* const> list) {
    for (const AttentionForward* const a : list) {
      entries_.push_back({a, tasks_, problems_, sums_});
      problems_ += a->problems();
      tasks_ += a->problems() * few_parts(a->keys);
      sums_ += a->problems() * few_parts(a->keys) * few_sums_size(*a);
      scratch_ = std::max(scratch_, few_scratch_size(*a));
      products_ += a->problems() * a->rows() * a->keys * (a->width + a->value_width);
    }
  }

  int64_t tasks() const { return tasks_; }
  int64_t problems() const { return problems_; }
  bool is_small() const { return products_ < kParallelProducts; }

  // The sums of all tasks begin the workspace, and the memory of the threads follows.
  template <typename T, typename Sum = Compute<T>>
  void run_task(int64_t task, Sum* workspace) const {
    const ListedAttention& entry = entry_of(task, &ListedAttention::first_task);
    const AttentionForward& a = *entry.attention;
    const int64_t local = task - entry.first_task, parts = few_parts(a.keys);
    const int64_t size = few_keys_of_part(a.keys), begin = local % parts * size;
    const RowSums<Sum> state(a, workspace + entry.first_sums + local * few_sums_size(a));
    PartForward<T>(a, local / parts, workspace + sums_ + thread_number() * scratch_, state)
        .run(begin, std::min(a.keys, begin + size));
  }

  template <typename T, typename Sum = Compute<T>>
  void finish_problem(int64_t problem, Sum* workspace) const {
    const ListedAttention& entry = entry_of(problem, &ListedAttention::first_problem);
    const AttentionForward& a = *entry.attention;
    const int64_t local = problem - entry.first_problem, parts = few_parts(a.keys);
    const int64_t size = few_sums_size(a);
    Sum* const first = workspace + entry.first_sums + local * parts * size;
    const RowSums<Sum> state(a, first);
    for (int64_t part = 1; part < parts; ++part) {
      merge(a.rows(), state, RowSums<Sum>(a, first + part * size));
    }
    finish_rows<T>(a, local, state);
  }

 private:
  // Returns the last entry that begins at or before `index`.
  const ListedAttention& entry_of(int64_t index, int64_t ListedAttention::*begin) const {
    const auto behind = std::upper_bound(
        entries_.begin(), entries_.end(), index,
        [begin](int64_t i, const ListedAttention& entry) { return i < entry.*begin; });
    return *std::prev(behind);
  }

  std::vector<ListedAttention> entries_;
  int64_t tasks_ = 0, problems_ = 0, sums_ = 0, scratch_ = 0, products_ = 0;
};

template <typename T>
void run_list(std::span<const AttentionForward* const> attentions, std::byte* workspace,
              [[maybe_unused]] int thread_count) {
  const FewList list(attentions);
  auto* const memory = reinterpret_cast<Compute<T>*>(workspace);
  [[maybe_unused]] const bool is_small = list.is_small();
#pragma omp parallel for num_threads(thread_count) if (!is_small) schedule(dynamic, 1)
  for (int64_t task = 0; task < list.tasks(); ++task) list.run_task<T>(task, memory);
#pragma omp parallel for num_threads(thread_count) if (!is_small) schedule(static)
  for (int64_t problem = 0; problem < list.problems(); ++problem) {
    list.finish_problem<T>(problem, memory);
  }
}

void run_few(std::span<const AttentionForward* const> list, std::byte* workspace,
             int thread_count) {
  with_float(list[0]->dtype, [&]<typename T>(T) { run_list<T>(list, workspace, thread_count); });
}

}  // namespace
}  // namespace bp::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(run_few);

}  // namespace

void run_few_rows(std::span<const AttentionForward* const> attentions, std::byte* workspace,
                  int thread_count) {
  HWY_DYNAMIC_DISPATCH(run_few)(attentions, workspace, thread_count);
}

}  // namespace bp::kernels
#endif
