// moe_permute and moe_unpermute. The pairs of a token and one of its experts are sorted by expert
// (radix_sort.cuh), which keeps the order of tokens. A place in the sorted list is a row.
#include "backends/cuda/kernels/groups.cuh"
#include "backends/cuda/kernels/indices.cuh"
#include "backends/cuda/kernels/list.hpp"

namespace bp::cuda {
namespace {

// ---- moe_permute --------------------------------------------------------------------------------

struct PermutePlan {
  RowTensor x, y;  // Of tokens, and of pairs.
  IndexView experts;
  int64_t* offsets = nullptr;
  int64_t* places = nullptr;
  int64_t offset_stride = 0, place_strides[2] = {};
  SortedIndices sorted;
  uint32_t pairs = 0, k = 0, width = 0, expert_count = 0;
};

// Reads and writes experts, as radix_sort.cuh asks for it. An expert out of range comes last.
struct ExpertIo {
  using Key = uint32_t;

  struct Line {
    __device__ __forceinline__ Key key(uint32_t pair) const {
      const int64_t expert = plan.experts.at(pair / plan.k, pair % plan.k);
      const bool has_row = expert >= 0 && expert < plan.expert_count;
      return has_row ? static_cast<Key>(expert) : kLastKey<Key>;
    }
    __device__ __forceinline__ void put(uint32_t rank, Key expert, uint32_t pair) const {
      plan.sorted.keys[rank] = expert;
      plan.sorted.positions[rank] = pair;
    }

    const PermutePlan& plan;
  };
  __device__ Line line(uint32_t) const { return {plan}; }

  PermutePlan plan;
};

// Writes offsets and places.
__global__ void __launch_bounds__(kBlockThreads) places_kernel(PermutePlan plan) {
  const uint32_t at = blockIdx.x * kBlockThreads + threadIdx.x;
  if (at < plan.pairs && plan.places != nullptr) {
    const uint32_t pair = plan.sorted.positions[at];
    const bool has_row = plan.sorted.keys[at] != kLastKey<uint32_t>;
    plan.places[pair / plan.k * plan.place_strides[0] + pair % plan.k * plan.place_strides[1]] =
        has_row ? int64_t{at} : -1;
  }
  if (at <= plan.expert_count && plan.offsets != nullptr) {
    plan.offsets[at * plan.offset_stride] = count_below(plan.sorted.keys, plan.pairs, at);
  }
}

template <typename T, int kVector>
__global__ void __launch_bounds__(kBlockThreads) permute_kernel(PermutePlan plan) {
  const uint32_t units = plan.width / kVector;
  const uint32_t at = blockIdx.x * kBlockThreads + threadIdx.x;
  if (at >= plan.pairs * units) return;
  const uint32_t row = at / units, i = at % units * kVector;
  Vec<T, kVector> values{};
  if (plan.sorted.keys[row] != kLastKey<uint32_t>) {
    const uint32_t token = plan.sorted.positions[row] / plan.k;
    values = plan.x.load<kVector>(plan.x.row<T>(token), i);
  }
  plan.y.store(plan.y.row<T>(row), i, values);
}

PermutePlan plan_of(const bp_moe_permute_args& args) {
  PermutePlan plan;
  plan.x = row_tensor(*args.x, last_axes(2, 1));
  plan.y = row_tensor(*args.y, last_axes(2, 1));
  plan.experts = index_view(*args.experts);
  if (args.offsets != nullptr) {
    plan.offsets = data<int64_t>(*args.offsets);
    plan.offset_stride = args.offsets->strides[0];
  }
  if (args.places != nullptr) {
    plan.places = data<int64_t>(*args.places);
    std::copy_n(args.places->strides, 2, plan.place_strides);
  }
  plan.pairs = static_cast<uint32_t>(element_count(*args.experts));
  plan.k = static_cast<uint32_t>(args.experts->shape[1]);
  plan.width = static_cast<uint32_t>(args.x->shape[1]);
  plan.expert_count = static_cast<uint32_t>(args.num_experts);
  return plan;
}

bp_status permute_launch(const bp_moe_permute_args& args, Launch& launch) {
  PermutePlan plan = plan_of(args);
  std::byte* const workspace = launch.workspace();
  plan.sorted.keys = reinterpret_cast<uint32_t*>(workspace);
  plan.sorted.positions = plan.sorted.keys + plan.pairs;
  bp_status status =
      sort_lines(launch, ExpertIo{plan}, 1, plan.pairs, workspace + sorted_bytes(1, plan.pairs));
  if (status != BP_OK) return status;
  const int64_t count = std::max<int64_t>(plan.pairs, args.num_experts + 1);
  status = run<places_kernel>(launch, blocks_for(count, kBlockThreads), kBlockThreads, 0, plan);
  if (status != BP_OK) return status;
  return with_width(dtype_size_bytes(args.x->dtype), [&]<typename T>(T) {
    constexpr int kVector = kLanes<T>;
    const bool has_vectors = plan.x.has_vectors && plan.y.has_vectors && plan.width % kVector == 0;
    const int64_t units = int64_t{plan.pairs} * (plan.width / (has_vectors ? kVector : 1));
    const unsigned blocks = blocks_for(units, kBlockThreads);
    return has_vectors ? run<permute_kernel<T, kVector>>(launch, blocks, kBlockThreads, 0, plan)
                       : run<permute_kernel<T, 1>>(launch, blocks, kBlockThreads, 0, plan);
  });
}

uint64_t permute_workspace(const bp_moe_permute_args& args, const Env&) {
  return sort_indices_bytes(1, element_count(*args.experts));
}

bp_reason permute_supports(const bp_moe_permute_args& args) {
  const bool is_small = element_count(*args.y) <= kMaxLaunchElements &&
                        element_count(*args.experts) <= kMaxLaunchElements &&
                        args.x->shape[1] <= kMaxLaunchElements;
  return is_small ? nullptr : "y has more than 2^30 elements";
}

// ---- moe_unpermute ------------------------------------------------------------------------------

struct UnpermutePlan {
  RowTensor x, y;
  IndexView places;
  const std::byte* weights = nullptr;
  int64_t weight_strides[2] = {};
  int64_t rows = 0;  // Of x.
  uint32_t tokens = 0, k = 0, width = 0;
};

template <typename T, int kVector>
__global__ void __launch_bounds__(kBlockThreads) unpermute_kernel(UnpermutePlan plan) {
  using C = Compute<T>;
  const uint32_t units = plan.width / kVector;
  const uint32_t at = blockIdx.x * kBlockThreads + threadIdx.x;
  if (at >= plan.tokens * units) return;
  const uint32_t token = at / units, i = at % units * kVector;
  LongSum<C> sums[kVector];
  for (uint32_t j = 0; j < plan.k; ++j) {
    const int64_t place = plan.places.at(token, j);
    if (place < 0 || place >= plan.rows) continue;
    const int64_t offset = token * plan.weight_strides[0] + j * plan.weight_strides[1];
    const C weight =
        plan.weights == nullptr ? C{1} : reinterpret_cast<const C*>(plan.weights)[offset];
    const auto values = plan.x.load<kVector>(plan.x.row<T>(static_cast<uint32_t>(place)), i);
    BP_UNROLL
    for (int v = 0; v < kVector; ++v) sums[v].add(weight * widen(values.at[v]));
  }
  Vec<T, kVector> result;
  BP_UNROLL
  for (int v = 0; v < kVector; ++v) result.at[v] = narrow<T>(sums[v].total());
  plan.y.store(plan.y.row<T>(token), i, result);
}

bp_status unpermute_launch(const bp_moe_unpermute_args& args, Launch& launch) {
  UnpermutePlan plan;
  plan.x = row_tensor(*args.x, last_axes(2, 1));
  plan.y = row_tensor(*args.y, last_axes(2, 1));
  plan.places = index_view(*args.places);
  if (args.weights != nullptr) {
    plan.weights = data<std::byte>(*args.weights);
    std::copy_n(args.weights->strides, 2, plan.weight_strides);
  }
  plan.rows = args.x->shape[0];
  plan.tokens = static_cast<uint32_t>(args.places->shape[0]);
  plan.k = static_cast<uint32_t>(args.places->shape[1]);
  plan.width = static_cast<uint32_t>(args.x->shape[1]);
  return with_float(args.x->dtype, [&]<typename T>(T) {
    constexpr int kVector = kLanes<T>;
    const bool has_vectors = plan.x.has_vectors && plan.y.has_vectors && plan.width % kVector == 0;
    const int64_t units = int64_t{plan.tokens} * (plan.width / (has_vectors ? kVector : 1));
    const unsigned blocks = blocks_for(units, kBlockThreads);
    return has_vectors ? run<unpermute_kernel<T, kVector>>(launch, blocks, kBlockThreads, 0, plan)
                       : run<unpermute_kernel<T, 1>>(launch, blocks, kBlockThreads, 0, plan);
  });
}

bp_reason unpermute_supports(const bp_moe_unpermute_args& args) {
  const bool is_small = element_count(*args.x) <= kMaxLaunchElements &&
                        element_count(*args.y) <= kMaxLaunchElements &&
                        element_count(*args.places) <= kMaxLaunchElements;
  return is_small ? nullptr : "a tensor has more than 2^30 elements";
}

constexpr auto kMoved = with_indices(kAnyDtypes);
constexpr auto kSummed = with_indices(kFloatDtypes);

}  // namespace

constinit const bp_kernel kMoePermute =
    make_kernel<bp_moe_permute_args, permute_launch, permute_supports, permute_workspace>(
        kernel_row("moe_permute", BP_OP_MOE_PERMUTE, {kMoved, 2}));
constinit const bp_kernel kMoeUnpermute =
    make_kernel<bp_moe_unpermute_args, unpermute_launch, unpermute_supports>(
        kernel_row("moe_unpermute", BP_OP_MOE_UNPERMUTE, {kSummed, 2}));

}  // namespace bp::cuda
