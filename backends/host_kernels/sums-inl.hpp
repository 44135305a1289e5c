// Sums over a row of elements of any dtype in memory.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_SUMS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_SUMS_INL_HPP
#undef BACKPLANE_CPU_SUMS_INL_HPP
#else
#define BACKPLANE_CPU_SUMS_INL_HPP
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "backends/host_kernels/lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

// Loads and stores as many elements of rows as there are lanes, at one column.
template <typename T>
struct FullLanes {
  int64_t at;
  template <typename From>
  HWY_INLINE auto load(const From* row) const {
    return load_lanes(ComputeTag<T>(), row + at);
  }
  template <typename To>
  HWY_INLINE void store(hn::Vec<ComputeTag<T>> v, To* row) const {
    store_lanes(v, ComputeTag<T>(), row + at);
  }
  HWY_INLINE auto clear_rest(hn::Vec<ComputeTag<T>> v) const { return v; }
  HWY_INLINE auto fill_rest(hn::Vec<ComputeTag<T>> v, hn::Vec<ComputeTag<T>>) const { return v; }
};

// Loads and stores the last elements of rows, which are fewer than the lanes.
template <typename T>
struct LastLanes {
  int64_t at;
  size_t count;
  template <typename From>
  HWY_INLINE auto load(const From* row) const {
    return load_lanes_n(ComputeTag<T>(), row + at, count);
  }
  template <typename To>
  HWY_INLINE void store(hn::Vec<ComputeTag<T>> v, To* row) const {
    store_lanes_n(v, ComputeTag<T>(), row + at, count);
  }
  HWY_INLINE auto clear_rest(hn::Vec<ComputeTag<T>> v) const {
    const ComputeTag<T> d;
    return hn::IfThenElseZero(hn::FirstN(d, count), v);
  }
  HWY_INLINE auto fill_rest(hn::Vec<ComputeTag<T>> v, hn::Vec<ComputeTag<T>> rest) const {
    const ComputeTag<T> d;
    return hn::IfThenElse(hn::FirstN(d, count), v, rest);
  }
};

// Calls fn(FullLanes or LastLanes) for a row of n elements.
template <typename T, typename Fn>
HWY_INLINE void for_each_lanes(int64_t n, const Fn& fn) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(ComputeTag<T>()));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) fn(FullLanes<T>{i});
  if (i < n) fn(LastLanes<T>{i, static_cast<size_t>(n - i)});
}

// A sum of n terms that are added one after the other may lose n / 2 units in its last place. Long
// sums are made of blocks of this many elements of a row, or of this many rows, and the sums of the
// blocks are added in f64. The loss then does not grow with n.
constexpr int64_t kSumBlock = 2048;
constexpr int64_t kSumRows = 256;

// Calls block(begin, n) for the blocks of a row, and adds the vectors of sums that it returns.
template <typename T, typename Block>
HWY_INLINE double sum_of_blocks(int64_t count, const Block& block) {
  const ComputeTag<T> d;
  double sum = 0;
  for (int64_t begin = 0; begin < count; begin += kSumBlock) {
    const auto sums = block(begin, std::min(kSumBlock, count - begin));
    sum += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sums)));
  }
  return sum;
}

// Sums of vectors, in blocks of kSumRows terms. The rounding error of the sum of blocks is kept
// beside it (Knuth's two-sum).
template <class D, class V = hn::Vec<D>>
class RowSums {
 public:
  explicit HWY_INLINE RowSums(D d) : block_(hn::Zero(d)), sum_(block_), lost_(block_) {}

  HWY_INLINE void add(V term) {
    block_ = hn::Add(block_, term);
    if (++terms_ % kSumRows == 0) end_block();
  }

  HWY_INLINE V total() {
    if (terms_ < kSumRows) return block_;
    end_block();
    // If the sum is infinite, the lost part is NaN and is not added.
    return hn::IfThenElse(hn::IsNaN(lost_), sum_, hn::Add(sum_, lost_));
  }

 private:
  HWY_INLINE void end_block() {
    const V next = hn::Add(sum_, block_), added = hn::Sub(next, sum_);
    const V lost_of_sum = hn::Sub(sum_, hn::Sub(next, added));
    lost_ = hn::Add(lost_, hn::Add(lost_of_sum, hn::Sub(block_, added)));
    sum_ = next;
    block_ = hn::Zero(D());
  }

  V block_, sum_, lost_;
  int64_t terms_ = 0;
};

// Returns the sum of term(lanes) over the elements [i, end) of a row. It uses four vectors, so that
// each lane adds a fraction of the elements and no addition waits for the one before.
template <typename T, typename Term>
HWY_INLINE hn::Vec<ComputeTag<T>> sums_of_terms(int64_t i, int64_t end, const Term& term) {
  const ComputeTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  for (; i + 4 * lanes <= end; i += 4 * lanes) {
    s0 = hn::Add(s0, term(FullLanes<T>{i}));
    s1 = hn::Add(s1, term(FullLanes<T>{i + lanes}));
    s2 = hn::Add(s2, term(FullLanes<T>{i + 2 * lanes}));
    s3 = hn::Add(s3, term(FullLanes<T>{i + 3 * lanes}));
  }
  for (; i + lanes <= end; i += lanes) s0 = hn::Add(s0, term(FullLanes<T>{i}));
  if (i < end) {
    const LastLanes<T> last{i, static_cast<size_t>(end - i)};
    s1 = hn::Add(s1, last.clear_rest(term(last)));
  }
  return hn::Add(hn::Add(s0, s1), hn::Add(s2, s3));
}

// Returns the sum of term(lanes) over a row of n elements, in blocks four times as long as for one
// vector.
template <typename T, typename Term>
HWY_INLINE Compute<T> sum_of_terms(int64_t n, const Term& term) {
  const ComputeTag<T> d;
  constexpr int64_t kBlockTerms = 4 * kSumBlock;
  if (HWY_LIKELY(n <= kBlockTerms)) {
    return hn::GetLane(hn::SumOfLanes(d, sums_of_terms<T>(0, n, term)));
  }
  double sum = 0;
  for (int64_t i = 0; i < n; i += kBlockTerms) {
    const auto sums = sums_of_terms<T>(i, std::min(n, i + kBlockTerms), term);
    sum += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sums)));
  }
  return static_cast<Compute<T>>(sum);
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_SUMS_INL_HPP
