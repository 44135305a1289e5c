// The gradients of norms. u is (x - mean) * rstd, and h is grad_y * gamma. A first pass over each
// row computes the means of h and h * u, and adds to the sums of grad_gamma and grad_beta. A second
// pass writes grad_x = rstd * (h - mean(h) - u * mean(h * u)). A row may consist of runs of
// neighbours, such as the planes of one channel.
#include <algorithm>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/norm.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/norm_backward.cpp"
// clang-format off: this header compiles the file once for each target, and comes first.
#include <hwy/foreach_target.h>
// clang-format on
#include <hwy/highway.h>

#include "backends/host_kernels/sums-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels::HWY_NAMESPACE {
namespace {

constexpr int64_t kGrainElements = 8192;

template <typename T, bool kIsCentered, bool kHasGamma>
struct RowGradient {
  using Sum = Compute<T>;
  using Tag = ComputeTag<T>;
  using Vector = hn::Vec<Tag>;

  template <class Lanes>
  HWY_INLINE Vector normalized(Lanes lanes, const T* x) const {
    auto v = lanes.load(x);
    if constexpr (kIsCentered) v = hn::Sub(v, hn::Set(Tag(), mean));
    return hn::Mul(v, hn::Set(Tag(), rstd));
  }

  // lanes.at counts from column i on.
  template <class Lanes>
  HWY_INLINE Vector scaled(Lanes lanes, Vector g, int64_t i) const {
    if constexpr (kHasGamma) return hn::Mul(g, lanes.load(gamma + i));
    return g;
  }

  // Calls block(i, n, run, at) for blocks of at most `most` neighbours: column i of the row is
  // number `at` of its run.
  template <typename Block>
  HWY_INLINE void for_each_block(int64_t most, const Block& block) const {
    for (int64_t i = 0, run = 0; i < cols; i += runs.length, ++run) {
      for (int64_t at = 0; at < runs.length; at += most) {
        block(i + at, std::min(most, runs.length - at), run, at);
      }
    }
  }

  // Computes one row. grad_x may be grad_y or x. The terms of grad_gamma and grad_beta are added to
  // sums (2, cols).
  template <bool kHasSums>
  void run(const T* grad_y, const T* x, T* grad_x, Sum* HWY_RESTRICT sums) const {
    const Tag d;
    double h_sum = 0, hu_sum = 0;
    for_each_block(kSumBlock, [&](int64_t i, int64_t n, int64_t run, int64_t at) HWY_ATTR {
      auto h_block = hn::Zero(d), hu_block = h_block;
      const T *const g_run = grad_y + run * runs.grad_y_step + at, *const x_run =
                                                                       x + run * runs.x_step + at;
      for_each_lanes<T>(n, [&](auto lanes) HWY_ATTR {
        const auto g = lanes.load(g_run), u = normalized(lanes, x_run);
        const auto h = scaled(lanes, g, i);
        if constexpr (kIsCentered) h_block = hn::Add(h_block, lanes.clear_rest(h));
        hu_block = hn::Add(hu_block, lanes.clear_rest(hn::Mul(h, u)));
        if constexpr (kHasSums) {
          Sum *const of_gamma = sums + i, *const of_beta = of_gamma + cols;
          lanes.store(hn::Add(lanes.load(of_gamma), hn::Mul(g, u)), of_gamma);
          lanes.store(hn::Add(lanes.load(of_beta), g), of_beta);
        }
      });
      h_sum += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, h_block)));
      hu_sum += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, hu_block)));
    });
    const auto count = static_cast<double>(cols);
    const auto h_mean = hn::Set(d, static_cast<Sum>(h_sum / count));
    const auto hu_mean = hn::Set(d, static_cast<Sum>(hu_sum / count));
    for_each_block(runs.length, [&](int64_t i, int64_t n, int64_t run, int64_t) HWY_ATTR {
      const T *const g_run = grad_y + run * runs.grad_y_step, *const x_run = x + run * runs.x_step;
      T* const to = grad_x + run * runs.grad_x_step;
      for_each_lanes<T>(n, [&](auto lanes) HWY_ATTR {
        const auto u = normalized(lanes, x_run);
        auto h = scaled(lanes, lanes.load(g_run), i);
        if constexpr (kIsCentered) h = hn::Sub(h, h_mean);
        lanes.store(hn::Mul(hn::Set(d, rstd), hn::Sub(h, hn::Mul(u, hu_mean))), to);
      });
    });
  }

  int64_t cols;
  NormRuns runs;
  const T* gamma;
  Sum mean, rstd;
};

// Computes the rows [begin, end), and the sums of the block.
template <typename T, bool kIsCentered, bool kHasGamma>
void run_block(const NormBackwardRows& norm, int64_t begin, int64_t end, Compute<T>* sums) {
  using Sum = Compute<T>;
  RowGradient<T, kIsCentered, kHasGamma> gradient = {
      norm.shape.cols, norm.runs, reinterpret_cast<const T*>(norm.gamma), Sum{}, Sum{}};
  for (int64_t row = begin; row < end; ++row) {
    if constexpr (kIsCentered) gradient.mean = *norm.mean.at<const Sum>(row);
    gradient.rstd = *norm.rstd.at<const Sum>(row);
    const T *const grad_y = norm.grad_y.at<const T>(row), *const x = norm.x.at<const T>(row);
    T* const grad_x = norm.grad_x.at<T>(row);
    sums != nullptr ? gradient.template run<true>(grad_y, x, grad_x, sums)
                    : gradient.template run<false>(grad_y, x, grad_x, nullptr);
  }
}

// Adds the sums of the blocks in order, and rounds once.
template <typename T>
void add_blocks(const Compute<T>* sums, int64_t blocks, int64_t cols, int64_t begin, int64_t end,
                T* to) {
  const ComputeTag<T> d;
  for_each_lanes<T>(end - begin, [&](auto lanes) HWY_ATTR {
    RowSums<ComputeTag<T>> total(d);
    for (int64_t block = 0; block < blocks; ++block) {
      total.add(lanes.load(sums + block * 2 * cols + begin));
    }
    lanes.store(total.total(), to + begin);
  });
}

template <typename T, bool kIsCentered, bool kHasGamma>
void run_rows(const NormBackwardRows& norm, int thread_count) {
  using Sum = Compute<T>;
  const int64_t rows = norm.shape.rows, cols = norm.shape.cols;
  const int64_t blocks = norm_block_count(norm.shape);
  const int64_t block_cost = std::max<int64_t>(1, rows / blocks * cols);
  const int64_t grain = std::max<int64_t>(1, kGrainElements / block_cost);
  Sum* const all_sums = reinterpret_cast<Sum*>(norm.sums);
  parallel_for(thread_count, blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      Sum* const sums = all_sums == nullptr ? nullptr : all_sums + block * 2 * cols;
      if (sums != nullptr) std::fill_n(sums, 2 * cols, Sum{0});
      run_block<T, kIsCentered, kHasGamma>(norm, rows * block / blocks, rows * (block + 1) / blocks,
                                           sums);
    }
  });
  if (all_sums == nullptr) return;
  parallel_for(thread_count, cols, std::max<int64_t>(64, kGrainElements / blocks),
               [&](int64_t begin, int64_t end) {
                 if (norm.grad_gamma != nullptr) {
                   add_blocks(all_sums, blocks, cols, begin, end,
                              reinterpret_cast<T*>(norm.grad_gamma));
                 }
                 if (norm.grad_beta != nullptr) {
                   add_blocks(all_sums + cols, blocks, cols, begin, end,
                              reinterpret_cast<T*>(norm.grad_beta));
                 }
               });
}

void run_any(const NormBackwardRows& norm, int thread_count) {
  const auto run = [&]<typename T>(T) {
    if (norm.shape.is_centered) {
      norm.gamma != nullptr ? run_rows<T, true, true>(norm, thread_count)
                            : run_rows<T, true, false>(norm, thread_count);
    } else {
      norm.gamma != nullptr ? run_rows<T, false, true>(norm, thread_count)
                            : run_rows<T, false, false>(norm, thread_count);
    }
  };
  with_float(norm.shape.dtype, run);
}

}  // namespace
}  // namespace bp::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(run_any);

}  // namespace

void run_norm_backward(const NormBackwardRows& norm, int thread_count) {
  HWY_DYNAMIC_DISPATCH(run_any)(norm, thread_count);
}

}  // namespace bp::kernels
#endif
