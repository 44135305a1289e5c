// A first pass over a row computes its mean, a second one its variance about the mean, and a third
// one writes. A single pass for both would lose the variance if the mean is large. The same thread
// handles an element in every pass, so y may be x.
#include "backends/cuda/kernels/norm.cuh"

namespace bp::cuda {
namespace {

// Loads weights of a row from number i on.
template <int kCount, typename T>
__device__ __forceinline__ Vec<T, kCount> load_weights(const NormPlan& plan,
                                                       const RowTensor& weights, uint32_t row,
                                                       uint32_t i) {
  const T* const from = weights.row<T>(row);
  if (!plan.repeats_weights) return weights.load<kCount>(from, i);
  Vec<T, kCount> values;
  const T value = from[weights.elements.offset(i)];
  BP_UNROLL
  for (int k = 0; k < kCount; ++k) values.at[k] = value;
  return values;
}

template <class Group, typename T>
__device__ __forceinline__ void write_row(const NormPlan& plan, uint32_t row, uint32_t count,
                                          Compute<T> mean, Compute<T> rstd) {
  using C = Compute<T>;
  const T* const x = plan.x.row<T>(row);
  T* const y = plan.y.row<T>(row);
  walk_row<Group, T>(count, plan.has_vectors, [&](auto lanes, uint32_t i) {
    constexpr int kCount = lanes();
    auto values = plan.x.load<kCount>(x, i);
    Vec<T, kCount> factor, shift;
    if (plan.gamma.is_given) factor = load_weights<kCount, T>(plan, plan.gamma.tensor, row, i);
    if (plan.beta.is_given) shift = load_weights<kCount, T>(plan, plan.beta.tensor, row, i);
    BP_UNROLL
    for (int k = 0; k < kCount; ++k) {
      C value = (widen(values.at[k]) - mean) * rstd;
      if (plan.gamma.is_given) value *= widen(factor.at[k]);
      if (plan.beta.is_given) value += widen(shift.at[k]);
      values.at[k] = narrow<T>(value);
    }
    plan.y.store(y, i, values);
  });
}

template <class Group, typename T, bool kIsCentered>
__global__ void __launch_bounds__(kRowThreads) norm_kernel(NormPlan plan) {
  using C = Compute<T>;
  const uint32_t row = Group::row();
  const bool is_inside = row < plan.rows;
  const uint32_t count = is_inside ? plan.count : 0, at_row = is_inside ? row : 0;
  const T* const x = plan.x.row<T>(at_row);
  const C elements = static_cast<C>(plan.count);
  RowSteps<Group> steps(plan.cut, plan.rows);
  C mean = 0;
  if constexpr (kIsCentered) {
    mean = steps.reduce(Plus(), C{0}, [&] {
      LongSum<C> own;
      walk_row<Group, T>(count, plan.has_vectors, [&](auto lanes, uint32_t i) {
        const auto values = plan.x.load<lanes()>(x, i);
        BP_UNROLL
        for (int k = 0; k < lanes(); ++k) own.add(widen(values.at[k]));
      });
      return own.total();
    });
    if (steps.is_over()) return;
    mean /= elements;
  }
  const C squares = steps.reduce(Plus(), C{0}, [&] {
    LongSum<C> own;
    walk_row<Group, T>(count, plan.has_vectors, [&](auto lanes, uint32_t i) {
      const auto values = plan.x.load<lanes()>(x, i);
      BP_UNROLL
      for (int k = 0; k < lanes(); ++k) {
        const C centered = widen(values.at[k]) - mean;
        own.add(centered * centered);
      }
    });
    return own.total();
  });
  if (steps.is_over()) return;
  const C variance = squares / elements;
  const C rstd = C{1} / sqrt(variance + static_cast<C>(plan.eps));
  if (is_inside && Group::leads()) {
    if (plan.mean.is_given) *plan.mean.tensor.row<C>(row) = mean;
    if (plan.rstd.is_given) *plan.rstd.tensor.row<C>(row) = rstd;
    if (plan.variance.is_given) *plan.variance.tensor.row<C>(row) = variance;
  }
  write_row<Group, T>(plan, at_row, count, mean, rstd);
}

template <class Group, typename T>
__global__ void __launch_bounds__(kRowThreads) given_norm_kernel(NormPlan plan) {
  using C = Compute<T>;
  const uint32_t row = Group::row();
  if (row >= plan.rows) return;
  const C variance = *plan.variance.tensor.row<C>(row);
  const C rstd = C{1} / sqrt(variance + static_cast<C>(plan.eps));
  write_row<Group, T>(plan, row, plan.count, *plan.mean.tensor.row<C>(row), rstd);
}

// Computes grad_x = rstd * (h - m(h) - u * m(h * u)) with u = (x - mean) * rstd and h = grad_y *
// gamma.
template <class Group, typename T, bool kIsCentered>
__global__ void __launch_bounds__(kRowThreads) norm_backward_kernel(NormBackwardPlan plan) {
  using C = Compute<T>;
  const uint32_t row = Group::row();
  const bool is_inside = row < plan.rows;
  const uint32_t count = is_inside ? plan.count : 0, at_row = is_inside ? row : 0;
  const T *const grad_y = plan.grad_y.row<T>(at_row), *const x = plan.x.row<T>(at_row);
  const T* const gamma = plan.gamma.tensor.row<T>(0);
  const C rstd = *plan.rstd.row<C>(at_row);
  const C mean = kIsCentered ? *plan.mean.tensor.row<C>(at_row) : C{0};
  const auto load = [&](auto lanes, uint32_t i, auto&& each) {
    constexpr int kCount = lanes();
    const auto g = plan.grad_y.load<kCount>(grad_y, i);
    const auto values = plan.x.load<kCount>(x, i);
    Vec<T, kCount> factor;
    if (plan.gamma.is_given) factor = plan.gamma.tensor.load<kCount>(gamma, i);
    BP_UNROLL
    for (int k = 0; k < kCount; ++k) {
      const C h = plan.gamma.is_given ? widen(g.at[k]) * widen(factor.at[k]) : widen(g.at[k]);
      each(k, h, (widen(values.at[k]) - mean) * rstd);
    }
  };
  RowSteps<Group> steps(plan.cut, plan.rows);
  const auto sums = steps.reduce(Plus(), SumPair<C>{0, 0}, [&] {
    LongSum<C> sum_h, sum_hu;
    walk_row<Group, T>(count, plan.has_vectors, [&](auto lanes, uint32_t i) {
      load(lanes, i, [&](int, C h, C u) {
        if constexpr (kIsCentered) sum_h.add(h);
        sum_hu.add(h * u);
      });
    });
    return SumPair<C>{sum_h.total(), sum_hu.total()};
  });
  if (steps.is_over()) return;
  const C elements = static_cast<C>(plan.count);
  const C mean_h = kIsCentered ? sums.first / elements : C{0}, mean_hu = sums.second / elements;
  T* const grad_x = plan.grad_x.row<T>(at_row);
  walk_row<Group, T>(count, plan.has_vectors, [&](auto lanes, uint32_t i) {
    Vec<T, lanes()> result;
    load(lanes, i,
         [&](int k, C h, C u) { result.at[k] = narrow<T>(rstd * (h - mean_h - u * mean_hu)); });
    plan.grad_x.store(grad_x, i, result);
  });
}

}  // namespace

bp_status submit_norm(NormPlan plan, const RowExtents& extents, bp_dtype dtype, bool is_centered,
                      Launch& launch) {
  plan.cut.parts = launch.workspace();
  return with_float(dtype, [&]<typename T>(T) {
    return run_rows(
        plan.x, extents, norm_reductions(is_centered), plan,
        [&]<class Group>(Group, dim3 blocks, const NormPlan& step) {
          return is_centered
                     ? run<norm_kernel<Group, T, true>>(launch, blocks, kRowThreads, 0, step)
                     : run<norm_kernel<Group, T, false>>(launch, blocks, kRowThreads, 0, step);
        });
  });
}

bp_status submit_given_norm(NormPlan plan, const RowExtents& extents, bp_dtype dtype,
                            Launch& launch) {
  return with_float(dtype, [&]<typename T>(T) {
    return run_rows(plan.x, extents, 0, plan,
                    [&]<class Group>(Group, dim3 blocks, const NormPlan& step) {
                      return run<given_norm_kernel<Group, T>>(launch, blocks, kRowThreads, 0, step);
                    });
  });
}

bp_status submit_norm_backward(NormBackwardPlan plan, const RowExtents& extents, bp_dtype dtype,
                               bool is_centered, Launch& launch) {
  plan.cut.parts = launch.workspace();
  return with_float(dtype, [&]<typename T>(T) {
    return run_rows(plan.x, extents, kNormBackwardReductions, plan,
                    [&]<class Group>(Group, dim3 blocks, const NormBackwardPlan& step) {
                      return is_centered ? run<norm_backward_kernel<Group, T, true>>(
                                               launch, blocks, kRowThreads, 0, step)
                                         : run<norm_backward_kernel<Group, T, false>>(
                                               launch, blocks, kRowThreads, 0, step);
                    });
  });
}

}  // namespace bp::cuda
