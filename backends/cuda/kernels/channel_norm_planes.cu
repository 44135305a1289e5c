// Every sum is added in an order that depends on the extents alone. grad_x may be grad_y or x,
// because the thread that writes an element has read it.
//
// The limit is memory: x and grad_y are read twice, and grad_x is written once. (32, 256, 56, 56)
// of f32 are 514 MB, which take 120 us at the 4.3 TB/s of an H200's copies. Four launches should
// take 140 us, 77 % of its peak of 4.8 TB/s. Planes of fewer than 16 places, of a group norm, are
// slower, because each has one thread.
#include "backends/cuda/kernels/channel_norm_planes.cuh"

namespace bp::cuda {
namespace {

// A thread has a row.
struct ThreadRow : WholeRow {
  static constexpr uint32_t kRows = kRowThreads;
  static constexpr bool kHasVectors = false;
  __device__ static uint32_t row() { return blockIdx.x * kRows + threadIdx.x; }
  __device__ static uint32_t first() { return 0; }
  __device__ static uint32_t step() { return 1; }
  __device__ static bool leads() { return true; }
  template <typename A, class Op>
  __device__ static A reduce(A value, Op, A) {
    return value;
  }
};

// The mean and rstd of a plane.
template <typename C>
struct Statistics {
  __device__ Statistics(const PlanesPlan& plan, uint32_t row)
      : mean(*plan.mean.row<C>(row)), rstd(*plan.spread.row<C>(row)) {
    if (!plan.has_rstd) rstd = C{1} / sqrt(rstd + static_cast<C>(plan.eps));
  }
  C mean, rstd;
};

template <typename T>
__device__ __forceinline__ Compute<T> gamma_of(const PlanesPlan& plan, uint32_t row) {
  return plan.gamma.is_given ? widen(*plan.gamma.tensor.row<T>(row)) : Compute<T>{1};
}

// Calls fn(Lanes<n>, i, g, u) with the n values of grad_y and u from element i on.
template <class Group, typename T, typename Fn>
__device__ __forceinline__ void walk_plane(const PlanesPlan& plan, uint32_t row, uint32_t count,
                                           const Statistics<Compute<T>>& its, const Fn& fn) {
  using C = Compute<T>;
  const T *const grad_y = plan.grad_y.row<T>(row), *const x = plan.x.row<T>(row);
  walk_row<Group, T>(count, plan.has_vectors, [&](auto lanes, uint32_t i) {
    constexpr int kCount = lanes();
    const auto gradients = plan.grad_y.load<kCount>(grad_y, i);
    const auto values = plan.x.load<kCount>(x, i);
    C g[kCount], u[kCount];
    BP_UNROLL
    for (int k = 0; k < kCount; ++k) {
      g[k] = widen(gradients.at[k]);
      u[k] = (widen(values.at[k]) - its.mean) * its.rstd;
    }
    fn(lanes, i, g, u);
  });
}

// Returns what this thread adds to the sums of weight * grad_y and weight * grad_y * u.
template <class Group, typename T>
__device__ __forceinline__ SumPair<Compute<T>> own_sums(const PlanesPlan& plan, uint32_t row,
                                                        uint32_t count,
                                                        const Statistics<Compute<T>>& its,
                                                        Compute<T> weight) {
  using C = Compute<T>;
  LongSum<C> sum_g, sum_gu;
  walk_plane<Group, T>(plan, row, count, its, [&](auto lanes, uint32_t, auto& g, auto& u) {
    C part_g = 0, part_gu = 0;
    BP_UNROLL
    for (int k = 0; k < lanes(); ++k) {
      const C weighted = g[k] * weight;
      part_g += weighted;
      part_gu += weighted * u[k];
    }
    sum_g.add(part_g);
    sum_gu.add(part_gu);
  });
  return {sum_g.total(), sum_gu.total()};
}

template <class Group, typename T>
__global__ void __launch_bounds__(kRowThreads) plane_sums_kernel(PlanesPlan plan) {
  using C = Compute<T>;
  const uint32_t row = Group::row();
  const bool is_inside = row < plan.rows;
  const uint32_t count = is_inside ? plan.count : 0, at_row = is_inside ? row : 0;
  const Statistics<C> its(plan, at_row);
  const C gamma = gamma_of<T>(plan, at_row);
  RowSteps<Group> steps(plan.cut, plan.rows);
  const auto of_g = steps.reduce(
      Plus(), SumPair<C>{0, 0}, [&] { return own_sums<Group, T>(plan, at_row, count, its, C{1}); });
  if (steps.is_over()) return;
  // The product of an infinite gamma and a sum is not the sum of products.
  const bool is_finite = isfinite(gamma);
  auto of_h = steps.reduce(Plus(), SumPair<C>{0, 0}, [&] {
    return own_sums<Group, T>(plan, at_row, is_finite ? 0 : count, its, gamma);
  });
  if (steps.is_over() || !is_inside || !Group::leads()) return;
  if (is_finite) of_h = {gamma * of_g.first, gamma * of_g.second};
  auto* const sums = static_cast<SumPair<C>*>(plan.sums) + uint64_t{row} * 2;
  sums[0] = of_g;
  sums[1] = of_h;
}

template <class Group, typename T>
__global__ void __launch_bounds__(kRowThreads) join_kernel(JoinPlan plan) {
  using C = Compute<T>;
  const uint32_t row = Group::row(), count = row < plan.rows ? plan.count : 0;
  const auto* const sums = static_cast<const SumPair<C>*>(plan.sums);
  LongSum<C> sum_g, sum_gu;
  for (uint32_t i = Group::first(); i < count; i += Group::step()) {
    const uint64_t plane = row * plan.row_step + i * plan.plane_step;
    const SumPair<C> pair = sums[plane * 2 + (plan.takes_h ? 1 : 0)];
    sum_g.add(pair.first);
    sum_gu.add(pair.second);
  }
  const auto total =
      Group::reduce(SumPair<C>{sum_g.total(), sum_gu.total()}, Plus(), SumPair<C>{0, 0});
  if (row >= plan.rows || !Group::leads()) return;
  if (plan.means != nullptr) {
    const auto divisor = static_cast<C>(plan.divisor);
    static_cast<SumPair<C>*>(plan.means)[row] = {total.first / divisor, total.second / divisor};
    return;
  }
  if (plan.grad_beta.is_given) *plan.grad_beta.tensor.row<T>(row) = narrow<T>(total.first);
  if (plan.grad_gamma.is_given) *plan.grad_gamma.tensor.row<T>(row) = narrow<T>(total.second);
}

template <class Group, typename T>
__global__ void __launch_bounds__(kRowThreads) plane_write_kernel(PlanesPlan plan) {
  using C = Compute<T>;
  const uint32_t row = Group::row();
  if (row >= plan.rows) return;
  const Statistics<C> its(plan, row);
  const auto means = *plan.means.row<SumPair<C>>(row);
  const C gamma = gamma_of<T>(plan, row);
  T* const grad_x = plan.grad_x.row<T>(row);
  walk_plane<Group, T>(plan, row, plan.count, its, [&](auto lanes, uint32_t i, auto& g, auto& u) {
    Vec<T, lanes()> result;
    BP_UNROLL
    for (int k = 0; k < lanes(); ++k) {
      result.at[k] = narrow<T>(its.rstd * (g[k] * gamma - means.first - u[k] * means.second));
    }
    plan.grad_x.store(grad_x, i, result);
  });
}

// Calls fn(Group(), blocks, plan) as run_rows() does.
template <typename Fn>
bp_status run_planes(const PlanesPlan& plan, const RowExtents& extents, uint32_t reductions,
                     const Fn& fn) {
  if (extents.rows == 0) return BP_OK;
  if (extents.count >= kLeastPlaces) return run_rows(plan.x, extents, reductions, plan, fn);
  return fn(ThreadRow(), dim3(blocks_for(extents.rows, ThreadRow::kRows)), plan);
}

}  // namespace

bp_status submit_plane_sums(const PlanesPlan& plan, const RowExtents& extents, bp_dtype dtype,
                            Launch& launch) {
  return with_float(dtype, [&]<typename T>(T) {
    return run_planes(plan, extents, kPlaneReductions,
                      [&]<class Group>(Group, dim3 blocks, const PlanesPlan& step) {
                        return run<plane_sums_kernel<Group, T>>(launch, blocks, kRowThreads, 0,
                                                                step);
                      });
  });
}

bp_status submit_join(const JoinPlan& plan, bp_dtype dtype, Launch& launch) {
  constexpr uint32_t kBlockRow = 256;  // From this many planes on, a block has a row.
  if (plan.rows == 0) return BP_OK;
  return with_float(dtype, [&]<typename T>(T) {
    if (plan.count >= kBlockRow) {
      return run<join_kernel<BlockRow, T>>(launch, dim3(plan.rows), kRowThreads, 0, plan);
    }
    return run<join_kernel<WarpRow, T>>(launch, dim3(blocks_for(plan.rows, WarpRow::kRows)),
                                        kRowThreads, 0, plan);
  });
}

bp_status submit_plane_write(const PlanesPlan& plan, const RowExtents& extents, bp_dtype dtype,
                             Launch& launch) {
  return with_float(dtype, [&]<typename T>(T) {
    return run_planes(
        plan, extents, 0, [&]<class Group>(Group, dim3 blocks, const PlanesPlan& step) {
          return run<plane_write_kernel<Group, T>>(launch, blocks, kRowThreads, 0, step);
        });
  });
}

}  // namespace bp::cuda
