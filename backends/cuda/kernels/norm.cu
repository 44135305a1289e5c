// A first pass over a row computes its mean, a second one its variance about the mean, and a third
// one writes. A single pass for both would lose the variance if the mean is large. The same thread
// handles an element in every pass, so y may be x.
#include "backends/cuda/kernels/norm.cuh"

namespace bp::cuda {
namespace {

template <class Group, typename T, bool kIsCentered>
__global__ void __launch_bounds__(kRowThreads) norm_kernel(NormPlan plan) {
  using C = Compute<T>;
  const uint32_t row = Group::row();
  const bool is_inside = row < plan.rows;
  const uint32_t count = is_inside ? plan.count : 0, at_row = is_inside ? row : 0;
  const T* const x = plan.x.row<T>(at_row);
  const C elements = static_cast<C>(plan.count);
  C mean = 0;
  if constexpr (kIsCentered) {
    LongSum<C> own;
    walk_row<Group, T>(count, plan.has_vectors, [&](auto lanes, uint32_t i) {
      const auto values = plan.x.load<lanes()>(x, i);
      BP_UNROLL
      for (int k = 0; k < lanes(); ++k) own.add(widen(values.at[k]));
    });
    mean = Group::reduce(own.total(), Plus(), C{0}) / elements;
  }
  LongSum<C> own_squares;
  walk_row<Group, T>(count, plan.has_vectors, [&](auto lanes, uint32_t i) {
    const auto values = plan.x.load<lanes()>(x, i);
    BP_UNROLL
    for (int k = 0; k < lanes(); ++k) {
      const C centered = widen(values.at[k]) - mean;
      own_squares.add(centered * centered);
    }
  });
  const C squares = Group::reduce(own_squares.total(), Plus(), C{0});
  const C rstd = C{1} / sqrt(squares / elements + static_cast<C>(plan.eps));
  if (is_inside && Group::first() == 0) {
    if (plan.mean.is_given) *plan.mean.tensor.row<C>(row) = mean;
    if (plan.rstd.is_given) *plan.rstd.tensor.row<C>(row) = rstd;
  }
  const T* const gamma = plan.gamma.tensor.row<T>(0);
  const T* const beta = plan.beta.tensor.row<T>(0);
  T* const y = plan.y.row<T>(at_row);
  walk_row<Group, T>(count, plan.has_vectors, [&](auto lanes, uint32_t i) {
    constexpr int kCount = lanes();
    auto values = plan.x.load<kCount>(x, i);
    Vec<T, kCount> factor, shift;
    if (plan.gamma.is_given) factor = plan.gamma.tensor.load<kCount>(gamma, i);
    if (plan.beta.is_given) shift = plan.beta.tensor.load<kCount>(beta, i);
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
  LongSum<C> sum_h, sum_hu;
  walk_row<Group, T>(count, plan.has_vectors, [&](auto lanes, uint32_t i) {
    load(lanes, i, [&](int, C h, C u) {
      sum_h.add(h);
      sum_hu.add(h * u);
    });
  });
  const C elements = static_cast<C>(plan.count);
  const C mean_h = kIsCentered ? Group::reduce(sum_h.total(), Plus(), C{0}) / elements : C{0};
  const C mean_hu = Group::reduce(sum_hu.total(), Plus(), C{0}) / elements;
  T* const grad_x = plan.grad_x.row<T>(at_row);
  walk_row<Group, T>(count, plan.has_vectors, [&](auto lanes, uint32_t i) {
    Vec<T, lanes()> result;
    load(lanes, i,
         [&](int k, C h, C u) { result.at[k] = narrow<T>(rstd * (h - mean_h - u * mean_hu)); });
    plan.grad_x.store(grad_x, i, result);
  });
}

constexpr uint32_t kSumWarps = kRowThreads / kWarpSize;

// Computes the sums of one chunk of rows. A lane takes a column, and the warps share the rows.
template <typename T, bool kIsCentered>
__global__ void __launch_bounds__(kRowThreads) norm_sums_kernel(NormSumsPlan plan) {
  using C = Compute<T>;
  __shared__ C parts[2][kSumWarps][kWarpSize];
  const uint32_t lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  const uint32_t column = blockIdx.x * kWarpSize + lane;
  const uint32_t begin = blockIdx.y * plan.chunk;
  const uint32_t end = plan.rows - begin < plan.chunk ? plan.rows : begin + plan.chunk;
  LongSum<C> sum_gu, sum_g;
  if (column < plan.count) {
    const int64_t at_g = plan.grad_y.elements.offset(column);
    const int64_t at_x = plan.x.elements.offset(column);
    for (uint32_t row = begin + warp; row < end; row += kSumWarps) {
      const C g = widen(plan.grad_y.row<T>(row)[at_g]);
      const C rstd = *plan.rstd.row<C>(row);
      const C mean = kIsCentered ? *plan.mean.tensor.row<C>(row) : C{0};
      sum_gu.add(g * ((widen(plan.x.row<T>(row)[at_x]) - mean) * rstd));
      sum_g.add(g);
    }
  }
  parts[0][warp][lane] = sum_gu.total();
  parts[1][warp][lane] = sum_g.total();
  __syncthreads();
  if (warp >= 2 || column >= plan.count) return;
  C sum = parts[warp][0][lane];
  BP_UNROLL
  for (uint32_t i = 1; i < kSumWarps; ++i) sum += parts[warp][i][lane];
  const uint64_t at = (uint64_t{blockIdx.y} * 2 + warp) * plan.count + column;
  static_cast<C*>(plan.parts)[at] = sum;
}

// Adds the sums of the chunks in order, and rounds once.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads) norm_combine_kernel(NormSumsPlan plan) {
  using C = Compute<T>;
  const uint32_t column = blockIdx.x * kBlockThreads + threadIdx.x;
  if (column >= plan.count) return;
  const auto write = [&](const OptionalRows& to, uint32_t which) {
    if (!to.is_given) return;
    const C* const parts = static_cast<const C*>(plan.parts) + which * uint64_t{plan.count};
    C sum = parts[column];
    for (uint32_t i = 1; i < plan.chunks; ++i) {
      sum += parts[uint64_t{i} * 2 * plan.count + column];
    }
    to.tensor.row<T>(0)[to.tensor.elements.offset(column)] = narrow<T>(sum);
  };
  write(plan.grad_gamma, 0);
  write(plan.grad_beta, 1);
}

// Returns the number of chunks of rows. It depends on the extents alone, so equal input gives equal
// bits.
int64_t chunk_count(const RowExtents& extents) {
  constexpr int64_t kBlocks = 512, kLeastRows = 64;
  const int64_t columns = std::max<int64_t>(1, (extents.count + kWarpSize - 1) / kWarpSize);
  const int64_t wanted = std::max<int64_t>(1, kBlocks / columns);
  return std::clamp<int64_t>(extents.rows / kLeastRows, 1, wanted);
}

template <typename T, bool kIsCentered>
bp_status launch_sums(NormSumsPlan sums, const RowExtents& extents, Launch& launch) {
  const int64_t chunks = chunk_count(extents);
  sums.parts = launch.workspace();
  sums.chunk = static_cast<uint32_t>(std::max<int64_t>(1, (extents.rows + chunks - 1) / chunks));
  // Rounding up may leave fewer chunks.
  sums.chunks =
      static_cast<uint32_t>(std::max<int64_t>(1, (extents.rows + sums.chunk - 1) / sums.chunk));
  const bp_status status = run<norm_sums_kernel<T, kIsCentered>>(
      launch, dim3(blocks_for(extents.count, kWarpSize), sums.chunks), kRowThreads, 0, sums);
  if (status != BP_OK) return status;
  return run<norm_combine_kernel<T>>(launch, blocks_for(extents.count, kBlockThreads),
                                     kBlockThreads, 0, sums);
}

template <typename T, bool kIsCentered>
bp_status launch_backward(const NormBackwardPlan& plan, const NormSumsPlan& sums,
                          const RowExtents& extents, Launch& launch) {
  const bool has_sums = sums.grad_gamma.is_given || sums.grad_beta.is_given;
  if (has_sums) {  // The sums are first, since grad_x may be grad_y or x.
    const bp_status status = launch_sums<T, kIsCentered>(sums, extents, launch);
    if (status != BP_OK) return status;
  }
  return with_row_group(plan.x, extents, [&]<class Group>(Group, unsigned blocks) {
    return run<norm_backward_kernel<Group, T, kIsCentered>>(launch, blocks, kRowThreads, 0, plan);
  });
}

}  // namespace

bp_status submit_norm(const NormPlan& plan, const RowExtents& extents, bp_dtype dtype,
                      bool is_centered, Launch& launch) {
  return with_float(dtype, [&]<typename T>(T) {
    return with_row_group(plan.x, extents, [&]<class Group>(Group, unsigned blocks) {
      return is_centered ? run<norm_kernel<Group, T, true>>(launch, blocks, kRowThreads, 0, plan)
                         : run<norm_kernel<Group, T, false>>(launch, blocks, kRowThreads, 0, plan);
    });
  });
}

bp_status submit_norm_backward(const NormBackwardPlan& plan, NormSumsPlan sums,
                               const RowExtents& extents, bp_dtype dtype, bool is_centered,
                               Launch& launch) {
  return with_float(dtype, [&]<typename T>(T) {
    return is_centered ? launch_backward<T, true>(plan, sums, extents, launch)
                       : launch_backward<T, false>(plan, sums, extents, launch);
  });
}

uint64_t norm_sums_size_bytes(const RowExtents& extents, bp_dtype dtype) {
  const uint64_t size_bytes = dtype == BP_F64 ? sizeof(double) : sizeof(float);
  return static_cast<uint64_t>(chunk_count(extents) * 2 * extents.count) * size_bytes;
}

}  // namespace bp::cuda
