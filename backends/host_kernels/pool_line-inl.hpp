// Pools windows over rows of a plane in two steps. First the rows that a window covers are joined,
// column by column, into a line. Then each output joins its taps of the line. So the rows are read
// once, in whole vectors, and a window of r x c elements takes r + c steps.
//
//   row 0   a b c d e f g h        line   max(a, i) max(b, j) ...
//   row 1   i j k l m n o p   ->   outputs, stride 2: line 0 and 1, line 2 and 3, ...
//
// An Op has
//   identity<Value>()   what padding holds: it changes nothing
//   join(d, a, b)       of two vectors, where the elements of a are in front of those of b
//
// Long windows are joined from parts of kJoined rows or taps, because a long sum that adds element
// by element loses digits.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_POOL_LINE_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_POOL_LINE_INL_HPP
#undef BACKPLANE_CPU_POOL_LINE_INL_HPP
#else
#define BACKPLANE_CPU_POOL_LINE_INL_HPP
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "backends/host_kernels/lanes-inl.hpp"
#include "backends/host_kernels/pool.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

constexpr int64_t kJoined = 256;

// A part of an input row, and the index of its first element in the plane.
template <typename T>
struct Row {
  const T* at;
  int64_t index;
};

// Calls fn(c, whole) for the vectors of n elements. `whole` is true_type for whole vectors, and
// false_type for the last n - c elements if these are fewer.
template <class D, typename Fn>
HWY_INLINE void for_each_vector(D d, int64_t n, const Fn& fn) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  for (; c + lanes <= n; c += lanes) fn(c, std::true_type());
  if (c < n) fn(c, std::false_type());
}

template <bool kIsWhole, class D, typename T>
HWY_INLINE hn::Vec<D> load_part(D d, const T* from, int64_t count) {
  if constexpr (kIsWhole) return load_lanes(d, from);
  return load_lanes_n(d, from, static_cast<size_t>(count));
}

template <bool kIsWhole, class D, typename T>
HWY_INLINE void store_part(hn::Vec<D> v, D d, T* to, int64_t count) {
  if constexpr (kIsWhole) return store_lanes(v, d, to);
  store_lanes_n(v, d, to, static_cast<size_t>(count));
}

// Calls join(rows, count, is_first, column, n) for groups of the rows that the windows of a row of
// outputs cover, from the first column of the block on. The rows are dense, and n of their elements
// go to the columns from `column` on. Returns whether there is any row.
template <typename T, typename Join>
bool for_each_row_group(const Window& w, const Planes& x, const T* plane, const OutputRow& place,
                        const LineBlock& block, const Join& join) {
  constexpr int64_t kGroupRows = 16, kGatherElements = 64;
  const int64_t n = block.inputs.size();
  Row<T> rows[kGroupRows];
  int64_t count = 0;
  bool is_first = true;
  for_each_covered_row(w, x, place, [&](int64_t depth, int64_t row) {
    const T* const at =
        plane + depth * x.stride[0] + row * x.stride[1] + block.inputs.begin * x.stride[2];
    const int64_t index = (depth * x.extent[1] + row) * x.extent[2] + block.inputs.begin;
    if (x.stride[2] != 1) {
      for (int64_t begin = 0; begin < n; begin += kGatherElements) {
        T gathered[kGatherElements];
        const int64_t part = std::min(kGatherElements, n - begin);
        for (int64_t c = 0; c < part; ++c) gathered[c] = at[(begin + c) * x.stride[2]];
        rows[0] = {gathered, index + begin};
        join(rows, int64_t{1}, is_first, begin, part);
      }
      is_first = false;
      return;
    }
    rows[count++] = {at, index};
    if (count < kGroupRows) return;
    join(rows, count, is_first, int64_t{0}, n);
    is_first = false;
    count = 0;
  });
  if (count > 0) join(rows, count, is_first, int64_t{0}, n);
  return count > 0 || !is_first;
}

// Joins two lines of n elements. The result may be one of them.
template <class Op, typename Value>
void join_lines(const Value* first, const Value* second, int64_t n, Value* to) {
  const hn::ScalableTag<Value> d;
  for_each_vector(d, n, [&](int64_t c, auto whole) HWY_ATTR {
    store_part<whole>(
        Op::join(d, load_part<whole>(d, first + c, n - c), load_part<whole>(d, second + c, n - c)),
        d, to + c, n - c);
  });
}

// Makes the line of a block in a row of outputs. The padding of the line is already written.
// `earlier` has room for another line, and is used if there may be more than kJoined rows. look(v)
// is called for each vector of elements.
template <class Op, typename T, typename Look>
void join_rows(const Window& w, const Planes& x, const T* plane, const OutputRow& place,
               const LineBlock& block, Compute<T>* line, Compute<T>* earlier, const Look& look) {
  const ComputeTag<T> d;
  Compute<T>* const inputs = line + block.offset;
  int64_t joined = 0;
  bool has_earlier = false, is_new = true;
  const bool has_rows = for_each_row_group(
      w, x, plane, place, block,
      [&](const Row<T>* rows, int64_t count, bool is_first, int64_t column, int64_t n) {
        if (column == 0) {
          is_new = is_first || joined >= kJoined;
          if (is_new && !is_first && !has_earlier) {
            std::copy_n(inputs, block.inputs.size(), earlier);
          } else if (is_new && !is_first) {
            join_lines<Op>(earlier, inputs, block.inputs.size(), earlier);
          }
          has_earlier = has_earlier || (is_new && !is_first);
          joined = is_new ? count : joined + count;
        }
        for_each_vector(d, n, [&](int64_t c, auto whole) HWY_ATTR {
          Compute<T>* const to = inputs + column + c;
          auto v =
              is_new ? load_part<whole>(d, rows[0].at + c, n - c) : load_part<whole>(d, to, n - c);
          look(v);
          for (int64_t r = is_new ? 1 : 0; r < count; ++r) {
            const auto row = load_part<whole>(d, rows[r].at + c, n - c);
            look(row);
            v = Op::join(d, v, row);
          }
          store_part<whole>(v, d, to, n - c);
        });
      });
  if (!has_rows) std::fill_n(inputs, block.inputs.size(), Op::template identity<Compute<T>>());
  if (has_earlier) join_lines<Op>(earlier, inputs, block.inputs.size(), inputs);
}

// Loads `count` elements, `stride` elements apart, from `from` on. With a stride of 1 or 2 whole
// vectors are read.
template <class D, typename Value>
HWY_INLINE hn::Vec<D> load_every(D d, const Value* from, int64_t stride, int64_t count) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  if (stride == 1) return hn::LoadU(d, from);
#if HWY_TARGET != HWY_SCALAR
  if (stride == 2) return hn::ConcatEven(d, hn::LoadU(d, from + lanes), hn::LoadU(d, from));
#endif
  HWY_ALIGN Value gathered[hn::MaxLanes(D())] = {};
  for (int64_t i = 0; i < std::min(count, lanes); ++i) gathered[i] = from[i * stride];
  return hn::Load(d, gathered);
}

// Joins the taps [begin, end) of the windows of outputs. The first taps of the windows are `stride`
// elements apart, from `line` on.
template <class Op, class D, typename Value>
HWY_INLINE hn::Vec<D> join_taps(D d, const Window& w, const Value* line, int64_t count,
                                int64_t begin, int64_t end) {
  auto v = load_every(d, line + begin * w.dilation[2], w.stride[2], count);
  for (int64_t tap = begin + 1; tap < end; ++tap) {
    v = Op::join(d, v, load_every(d, line + tap * w.dilation[2], w.stride[2], count));
  }
  return v;
}

// Joins all taps.
template <class Op, class D, typename Value>
HWY_INLINE hn::Vec<D> join_taps(D d, const Window& w, const Value* line, int64_t count) {
  auto v = join_taps<Op>(d, w, line, count, 0, std::min(kJoined, w.kernel[2]));
  for (int64_t tap = kJoined; tap < w.kernel[2]; tap += kJoined) {
    const int64_t end = std::min(tap + kJoined, w.kernel[2]);
    v = Op::join(d, v, join_taps<Op>(d, w, line, count, tap, end));
  }
  return v;
}

#if HWY_TARGET != HWY_SCALAR
// Does the same for a stride of 2 and neighbouring taps, of which two at a time share their
// vectors.
template <class Op, class D, typename Value>
HWY_INLINE hn::Vec<D> join_pairs_of_taps(D d, int64_t taps, const Value* line) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto joined = hn::Zero(d);
  int64_t tap = 0;
  for (; tap + 2 <= taps; tap += 2) {
    const auto low = hn::LoadU(d, line + tap), high = hn::LoadU(d, line + tap + lanes);
    const auto even = hn::ConcatEven(d, high, low), odd = hn::ConcatOdd(d, high, low);
    joined = Op::join(d, tap == 0 ? even : Op::join(d, joined, even), odd);
  }
  if (tap == taps) return joined;
  const auto last = hn::ConcatEven(d, hn::LoadU(d, line + tap + lanes), hn::LoadU(d, line + tap));
  return tap == 0 ? last : Op::join(d, joined, last);
}
#endif

// Computes one output whose window is the whole line, as for the mean of a plane.
template <class Op, typename Value>
HWY_INLINE Value join_line(const Value* line, int64_t size) {
  const hn::ScalableTag<Value> d;
  const hn::CappedTag<Value, 1> one;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto join_vectors = [&](int64_t c, int64_t end) HWY_ATTR {
    auto v = hn::LoadU(d, line + c);  // Padding follows the end.
    while ((c += lanes) < end) v = Op::join(d, v, hn::LoadU(d, line + c));
    return v;
  };
  const int64_t step = kJoined * lanes;
  auto v = join_vectors(0, std::min(step, size));
  for (int64_t c = step; c < size; c += step) {
    v = Op::join(d, v, join_vectors(c, std::min(c + step, size)));
  }
  HWY_ALIGN Value parts[hn::MaxLanes(hn::ScalableTag<Value>())];
  hn::Store(v, d, parts);
  auto joined = hn::Load(one, parts);
  for (int64_t i = 1; i < lanes; ++i) joined = Op::join(one, joined, hn::LoadU(one, parts + i));
  return hn::GetLane(joined);
}

// Adds map(v) of each vector of a row to the n sums at `to`, which have a vector of room behind
// them. The elements of the row lie `stride` apart.
template <typename T, typename Map>
void add_row(const T* row, int64_t stride, int64_t n, Compute<T>* HWY_RESTRICT to, const Map& map) {
  constexpr int64_t kGatherElements = 64;
  const ComputeTag<T> d;
  T gathered[kGatherElements];
  const int64_t step = stride == 1 ? n : kGatherElements;
  for (int64_t begin = 0; begin < n; begin += step) {
    const int64_t part = std::min(step, n - begin);
    const T* from = row + begin * stride;
    if (stride != 1) {
      for (int64_t k = 0; k < part; ++k) gathered[k] = from[k * stride];
      from = gathered;
    }
    for_each_vector(d, part, [&](int64_t k, auto whole) HWY_ATTR {
      Compute<T>* const sums = to + begin + k;
      const auto v = map(load_part<whole>(d, from + k, part - k));
      hn::StoreU(hn::Add(hn::LoadU(d, sums), v), d, sums);
    });
  }
}

// The sums of n columns. Parts of kJoined terms are summed, and added to the sum of earlier parts.
template <typename Value>
class PartSums {
 public:
  PartSums(Value* sums, Value* earlier, int64_t n) : sums_(sums), earlier_(earlier), n_(n) {
    std::fill_n(sums, n, Value{0});
  }
  // Counts a term that was added to the sums.
  void count_term() {
    if (++terms_ % kJoined != 0) return;
    for (int64_t i = 0; i < n_; ++i) {
      earlier_[i] = (terms_ == kJoined ? Value{0} : earlier_[i]) + sums_[i];
      sums_[i] = 0;
    }
  }
  void finish() {
    for (int64_t i = 0; i < n_ && terms_ >= kJoined; ++i) sums_[i] += earlier_[i];
  }

 private:
  Value *sums_, *earlier_;
  int64_t n_, terms_ = 0;
};

constexpr int64_t kSummedPart = 64;

// Returns the sum of n numbers, made of the sums of parts of kSummedPart numbers.
template <typename Value>
Value sum_of(const Value* numbers, int64_t n) {
  Value total = 0;
  for (int64_t begin = 0; begin < n; begin += kSummedPart) {
    Value sum = numbers[begin];
    for (int64_t i = begin + 1; i < std::min(begin + kSummedPart, n); ++i) sum += numbers[i];
    total = begin == 0 ? sum : total + sum;
  }
  return total;
}

// Returns the sums of the parts of a line that belong to columns: element i is that of [first[i],
// end[i]). Up to kSummedPart numbers are added in order, as sum_of() does.
template <class D, typename Value, typename Index>
HWY_INLINE hn::Vec<D> sums_of_parts(D d, const Value* line, const Index* first, const Index* end,
                                    Index most) {
  const hn::RebindToSigned<D> index_d;
  auto at = hn::LoadU(index_d, first);
  const auto behind = hn::LoadU(index_d, end);
  auto sums = hn::Zero(d);
  for (Index i = 0; i < most; ++i, at = hn::Add(at, hn::Set(index_d, Index{1}))) {
    const auto is_part = hn::Lt(at, behind);
    const auto v = hn::GatherIndex(d, line, hn::IfThenElseZero(is_part, at));
    const auto added = i == 0 ? v : hn::Add(sums, v);
    sums = hn::IfThenElse(hn::RebindMask(d, is_part), added, sums);
  }
  return sums;
}

// Calls fn(vector, first, count, whole) for the outputs of a block. `first` counts from the first
// output of the block.
template <class Op, typename Value, typename Fn>
HWY_INLINE void for_each_output(const Window& w, const LineBlock& block, const Value* line,
                                const Fn& fn) {
  const hn::ScalableTag<Value> d;
  const int64_t n = block.outputs.size();
  if (n == 1 && w.dilation[2] == 1) {
    return fn(hn::Set(d, join_line<Op>(line, block.size)), int64_t{0}, n, std::false_type());
  }
#if HWY_TARGET != HWY_SCALAR
  if (w.stride[2] == 2 && w.dilation[2] == 1 && w.kernel[2] <= kJoined) {
    const int64_t taps = w.kernel[2];
    return for_each_vector(d, n, [&](int64_t k, auto whole) HWY_ATTR {
      fn(join_pairs_of_taps<Op>(d, taps, line + 2 * k), k, n - k, whole);
    });
  }
#endif
  for_each_vector(d, n, [&](int64_t k, auto whole) HWY_ATTR {
    fn(join_taps<Op>(d, w, line + k * w.stride[2], n - k), k, n - k, whole);
  });
}

// Stores a vector of outputs `stride` apart.
template <bool kIsWhole, class D, typename T>
HWY_INLINE void store_outputs(hn::Vec<D> v, D d, T* to, int64_t stride, int64_t count) {
  if (stride == 1) return store_part<kIsWhole>(v, d, to, count);
  HWY_ALIGN T stored[hn::MaxLanes(D())];
  store_lanes(v, d, stored);
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < std::min(count, lanes); ++i) to[i * stride] = stored[i];
}

// Calls body(block) for the blocks of a row of outputs, with padding in the memory of their line.
template <class Op, typename Value, typename Body>
void for_each_block(const Window& w, const Planes& x, const Planes& y, Value* line,
                    const Body& body) {
  const int64_t step = block_outputs(w, y.extent[2]);
  const int64_t elements = line_elements(w, y.extent[2]);
  for (int64_t k = 0; k < y.extent[2]; k += step) {
    const LineBlock block(w, x.extent[2], {k, std::min(y.extent[2], k + step)});
    const int64_t end = block.offset + block.inputs.size();
    std::fill_n(line, block.offset, Op::template identity<Value>());
    std::fill_n(line + end, elements - end, Op::template identity<Value>());
    body(block);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_POOL_LINE_INL_HPP
