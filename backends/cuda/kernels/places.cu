// tril, triu and one_hot, whose elements depend on where they lie. Each element has a number, which
// grows by a constant along each axis: the distance from the diagonal, or the class.
//
// If the inner axis is dense, a thread writes 16 bytes at once, and reads x only if it keeps a
// part.
#include <algorithm>
#include <array>

#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/map.cuh"

namespace bp::cuda {
namespace {

// The operands of the axes are y, what is read, and the number.
struct PlacePlan {
  std::byte* y = nullptr;
  const std::byte* x = nullptr;
  Axes<3> axes;
  int64_t first = 0;  // The number of the first element.
  int64_t step = 0;   // The step of the number along the inner axis.
  uint32_t units = 0;
};

// Elements of x where the number is at most `limit`, or at least `limit`. The others are 0, whose
// bits are the same in all dtypes.
template <typename T, bool kIsLower>
struct Kept {
  using Read = T;
  static constexpr int64_t kReadStride = 1;

  template <int kVector>
  __device__ Vec<T, kVector> write(const T* x, int64_t number, int64_t step) const {
    Vec<T, kVector> values{};
    if (!keeps(number) && !keeps(number + (kVector - 1) * step)) return values;
    values = *reinterpret_cast<const Vec<T, kVector>*>(x);
    BP_UNROLL
    for (int i = 0; i < kVector; ++i) {
      if (!keeps(number + i * step)) values.at[i] = T{0};
    }
    return values;
  }
  __device__ bool keeps(int64_t number) const {
    return kIsLower ? number <= limit : number >= limit;
  }

  int64_t limit = 0;
};

// `one` where the number is the index.
template <typename T, typename Index>
struct OneHot {
  using Read = Index;
  static constexpr int64_t kReadStride = 0;

  template <int kVector>
  __device__ Vec<T, kVector> write(const Index* index, int64_t number, int64_t step) const {
    Vec<T, kVector> values;
    const int64_t named = *index;
    BP_UNROLL
    for (int i = 0; i < kVector; ++i) values.at[i] = named == number + i * step ? one : T{0};
    return values;
  }

  T one = 0;
};

template <typename T, int kVector, class Rule>
__global__ void __launch_bounds__(kBlockThreads) place_kernel(PlacePlan plan, Rule rule) {
  const uint32_t unit = blockIdx.x * kBlockThreads + threadIdx.x;
  if (unit >= plan.units) return;
  int64_t at[3];
  plan.axes.locate(unit, at);
  const auto* const x = reinterpret_cast<const typename Rule::Read*>(plan.x) + at[1];
  *reinterpret_cast<Vec<T, kVector>*>(reinterpret_cast<T*>(plan.y) + at[0]) =
      rule.template write<kVector>(x, plan.first + at[2], plan.step);
}

template <typename T, int kVector, class Rule>
bp_status launch_part(Launch& launch, const Loop& part, int64_t first, const Rule& rule) {
  PlacePlan plan;
  plan.y = const_cast<std::byte*>(part.data[0]);
  plan.x = part.data[1];
  plan.axes = part.axes<3>(kVector);
  plan.first = first;
  plan.step = part.rank == 0 ? 0 : part.strides[2][part.rank - 1];
  plan.units = static_cast<uint32_t>(part.count / kVector);
  return run<place_kernel<T, kVector, Rule>>(launch, blocks_for(plan.units, kBlockThreads),
                                             kBlockThreads, 0, plan, rule);
}

// Submits a loop over y, what is read, and the number.
template <typename T, class Rule>
bp_status submit_places(Launch& launch, Loop loop, const Rule& rule) {
  constexpr int kVector = kLanes<T>;
  loop.operand_count = 2;  // The number needs no vectors.
  for (const Loop& part : parts_of(loop)) {
    const auto inner = static_cast<size_t>(std::max(part.rank - 1, 0));
    const bool has_units = part.has_vectors(kVector) && part.extents[inner] % kVector == 0 &&
                           part.strides[1][inner] == Rule::kReadStride;
    const int64_t first = part.data[2] - loop.data[2];
    const bp_status status = has_units ? launch_part<T, kVector>(launch, part, first, rule)
                                       : launch_part<T, 1>(launch, part, first, rule);
    if (status != BP_OK) return status;
  }
  return BP_OK;
}

using Strides = std::array<int64_t, kMaxRank>;

// Makes a loop whose third operand is the number. Its address counts from that of y.
Loop loop_of(const bp_tensor& y, const Operand& x, const Strides& number) {
  return make_loop(y.ndim, y.shape, {operand(&y), x, {data<std::byte>(y), number.data(), 1}});
}

template <typename Args, bool kIsLower>
bp_status triangle_launch(const Args& args, Launch& launch) {
  const bp_tensor& y = *args.y;
  Strides distance{};
  distance[y.ndim - 2] = -1;
  distance[y.ndim - 1] = 1;
  const Loop loop = loop_of(y, operand(args.x), distance);
  return with_width(dtype_size_bytes(y.dtype), [&]<typename T>(T) {
    return submit_places<T>(launch, loop, Kept<T, kIsLower>{args.diagonal});
  });
}

bp_status one_hot_launch(const bp_one_hot_args& args, Launch& launch) {
  const bp_tensor &y = *args.y, &indices = *args.indices;
  Strides named{}, classes{};
  std::copy_n(indices.strides, indices.ndim, named.begin());
  classes[indices.ndim] = 1;
  const Operand index = {data<const std::byte>(indices), named.data(),
                         dtype_size_bytes(indices.dtype)};
  const Loop loop = loop_of(y, index, classes);
  const uint64_t one = convert_scalar({BP_I64, 0, 1, 0}, y.dtype);
  const bool is_i64 = is_i64_index(indices.dtype);
  return with_width(dtype_size_bytes(y.dtype), [&]<typename T>(T) {
    const T bits = static_cast<T>(one);
    return is_i64 ? submit_places<T>(launch, loop, OneHot<T, int64_t>{bits})
                  : submit_places<T>(launch, loop, OneHot<T, int32_t>{bits});
  });
}

constexpr auto kOneHotDtypes = pairs_of(kIndexDtypes, kAnyDtypes);

}  // namespace

constinit const bp_kernel kTril = make_kernel<bp_tril_args, triangle_launch<bp_tril_args, true>>(
    kernel_row("tril", BP_OP_TRIL, kAnyDtypes, BP_KERNEL_IN_PLACE));
constinit const bp_kernel kTriu = make_kernel<bp_triu_args, triangle_launch<bp_triu_args, false>>(
    kernel_row("triu", BP_OP_TRIU, kAnyDtypes, BP_KERNEL_IN_PLACE));
constinit const bp_kernel kOneHot = make_kernel<bp_one_hot_args, one_hot_launch>(
    kernel_row("one_hot", BP_OP_ONE_HOT, {kOneHotDtypes, 2}));

}  // namespace bp::cuda
