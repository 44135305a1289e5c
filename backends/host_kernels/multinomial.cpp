// multinomial. Shares and their sums are whole numbers below 2^53, so f64 holds all of them
// exactly, and the order of additions does not matter.
//
// Only the sums up to the end of each block of kShareBlock classes are kept, in the workspace. A
// draw finds its block by bisection, and computes the shares of this block again. That is less work
// than storing a sum for each class. Threads share the rows.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/multinomial.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/indices.hpp"
#include "backends/host_kernels/random.hpp"
#include "backends/host_kernels/strided.hpp"
#include "backends/host_kernels/wide_sums-inl.hpp"

#ifndef BACKPLANE_CPU_MULTINOMIAL_DRAW
#define BACKPLANE_CPU_MULTINOMIAL_DRAW
namespace bp::kernels {
namespace {

constexpr int64_t kShareBlock = 32;  // A multiple of every vector of f64.

struct Drawing {
  View weights, y;
  bool is_i64 = true;  // The dtype of y.
  uint64_t seed = 0, offset = 0;

  int64_t rows() const { return weights.shape[0]; }
  int64_t classes() const { return weights.shape[1]; }
  int64_t count() const { return y.shape[1]; }
  int64_t blocks() const { return (classes() + kShareBlock - 1) / kShareBlock; }
};

// Draws for the rows [begin, end). `ends` has room for the sums of the blocks of a row.
using DrawRows = void(const Drawing& drawing, int64_t begin, int64_t end, double* ends);

}  // namespace
}  // namespace bp::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

// The weights of one row.
template <typename T>
struct Weights {
  const T* first;
  int64_t stride, classes;

  // Calls take(i, v) for the vectors of a block, whose lanes are the weights that count, or 0.
  template <class Take>
  HWY_INLINE void for_each(int64_t block, const Take& take) const {
    const hn::ScalableTag<double> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const int64_t begin = block * kShareBlock, n = std::min(kShareBlock, classes - begin);
    const T* from = first + begin * stride;
    T gathered[kShareBlock] = {};
    if (stride != 1 || n < kShareBlock) {
      for (int64_t i = 0; i < n; ++i) gathered[i] = from[i * stride];
      from = gathered;
    }
    const auto infinity = hn::Set(d, std::numeric_limits<double>::infinity());
    for (int64_t i = 0; i < kShareBlock; i += lanes) {
      const auto v = load_wide(d, from + i, Itself());
      const auto counts = hn::And(hn::Gt(v, hn::Zero(d)), hn::Lt(v, infinity));
      take(i, hn::IfThenElseZero(counts, v));
    }
  }

  double peak(int64_t blocks) const {
    const hn::ScalableTag<double> d;
    auto largest = hn::Zero(d);
    for (int64_t block = 0; block < blocks; ++block) {
      for_each(block, [&](int64_t, auto v) HWY_ATTR { largest = hn::Max(largest, v); });
    }
    return hn::GetLane(hn::MaxOfLanes(d, largest));
  }
};

// Returns floor(v / peak * 2^32).
template <class D>
HWY_INLINE hn::Vec<D> shares_of(D d, hn::Vec<D> v, double peak) {
  return hn::Floor(hn::Mul(hn::Div(v, hn::Set(d, peak)), hn::Set(d, 0x1p32)));
}

// Sets ends[b] to the sum of the shares up to the end of block b.
template <typename T>
void add_shares(const Weights<T>& weights, double peak, int64_t blocks, double* ends) {
  const hn::ScalableTag<double> d;
  double total = 0;
  for (int64_t block = 0; block < blocks; ++block) {
    auto sum = hn::Zero(d);
    weights.for_each(block,
                     [&](int64_t, auto v) HWY_ATTR { sum = hn::Add(sum, shares_of(d, v, peak)); });
    total += hn::GetLane(hn::SumOfLanes(d, sum));
    ends[block] = total;
  }
}

// Returns the first class whose shares up to and with its own sum to more than `place`, or the last
// class.
template <typename T>
int64_t class_at(const Weights<T>& weights, double peak, int64_t blocks, const double* ends,
                 double place) {
  const int64_t block = std::upper_bound(ends, ends + blocks, place) - ends;
  if (block == blocks) return weights.classes - 1;
  const hn::ScalableTag<double> d;
  alignas(64) double shares[kShareBlock];
  weights.for_each(
      block, [&](int64_t i, auto v) HWY_ATTR { hn::StoreU(shares_of(d, v, peak), d, shares + i); });
  double end = (block == 0 ? 0 : ends[block - 1]) + shares[0];
  int64_t i = 0;
  while (end <= place) end += shares[++i];  // The end of the block is above the place.
  return block * kShareBlock + i;
}

template <typename T>
void draw_rows(const Drawing& drawing, int64_t begin, int64_t end, double* ends) {
  constexpr int64_t kDraws = 256;
  alignas(64) double draws[kDraws];
  const int64_t blocks = drawing.blocks(), count = drawing.count();
  RandomRun run;
  run.kind = RandomKind::kFraction;
  run.dtype = BP_F64;
  run.seed = drawing.seed;
  run.offset = drawing.offset;
  run.y = reinterpret_cast<std::byte*>(draws);
  run.y_stride = sizeof(double);
  for (int64_t row = begin; row < end; ++row) {
    const Weights<T> weights{
        reinterpret_cast<const T*>(drawing.weights.address) + row * drawing.weights.strides[0],
        drawing.weights.strides[1], drawing.classes()};
    const double largest = weights.peak(blocks), peak = largest > 0 ? largest : 1;
    add_shares(weights, peak, blocks, ends);
    for (int64_t first = 0; first < count; first += kDraws) {
      run.first = row * count + first;
      run.count = std::min(kDraws, count - first);
      run_random(run);
      for (int64_t i = 0; i < run.count; ++i) {
        const double place = std::floor(draws[i] * ends[blocks - 1]);
        const int64_t at = row * drawing.y.strides[0] + (first + i) * drawing.y.strides[1];
        store_index(drawing.y.address + at * (drawing.is_i64 ? 8 : 4), drawing.is_i64,
                    class_at(weights, peak, blocks, ends, place));
      }
    }
  }
}

DrawRows* find_draw_rows(bp_dtype dtype) {
  return with_float(dtype, []<typename T>(T) -> DrawRows* { return draw_rows<T>; });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(find_draw_rows);

constexpr int64_t kDrawGrain = 8192;  // With fewer classes a team costs more.

// Returns the sums of blocks that a thread has room for. Threads do not share lines of a cache.
int64_t ends_per_thread(int64_t classes) {
  constexpr int64_t kLine = 8;
  const int64_t blocks = (classes + kShareBlock - 1) / kShareBlock;
  return (blocks + kLine - 1) / kLine * kLine;
}

uint64_t multinomial_workspace(const bp_multinomial_args& args, const Env& env) {
  const int64_t ends = env.thread_count() * ends_per_thread(args.weights->shape[1]);
  return static_cast<uint64_t>(ends) * sizeof(double);
}

bp_status multinomial_launch(const bp_multinomial_args& args, Launch& launch) {
  Drawing drawing;
  drawing.weights = view_of(*args.weights);
  drawing.y = view_of(*args.y);
  drawing.is_i64 = args.y->dtype == BP_I64;
  const ScalarArgument seed(args.seed, args.seed_scalar, BP_U64);
  const ScalarArgument offset(args.offset, args.offset_scalar, BP_U64);
  DrawRows* const draw = HWY_DYNAMIC_DISPATCH(find_draw_rows)(args.weights->dtype);
  return launch.submit([=, threads = launch.thread_count(), ends = launch.workspace<double>()] {
    if (drawing.count() == 0) return;
    Drawing seeded = drawing;
    seeded.seed = seed.get<uint64_t>();
    seeded.offset = offset.get<uint64_t>();
    const int64_t grain = std::max<int64_t>(1, kDrawGrain / seeded.classes());
    const int64_t room = ends_per_thread(seeded.classes());
    parallel_for(threads, seeded.rows(), grain, [&](int64_t begin, int64_t end) {
      draw(seeded, begin, end, ends + thread_number() * room);
    });
  });
}

constexpr auto kDtypes = with_indices(kFloatDtypes);

}  // namespace

extern constinit const bp_kernel kMultinomial =
    make_kernel<bp_multinomial_args, multinomial_launch, nullptr, multinomial_workspace>(
        kernel_row("multinomial", BP_OP_MULTINOMIAL, {kDtypes, 2}, BP_KERNEL_TAKES_SCALAR));

}  // namespace bp::kernels
#endif  // HWY_ONCE
