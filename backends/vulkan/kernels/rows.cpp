#include "backends/vulkan/kernels/rows.hpp"

#include <algorithm>
#include <array>

namespace bp::vulkan {

Walk make_row_walk(std::initializer_list<const bp_tensor*> tensors, uint32_t first,
                   uint32_t count) {
  const bp_tensor& shaped = **tensors.begin();
  std::array<std::array<int64_t, BP_MAX_RANK>, kMaxOperands> strides{};
  std::array<int64_t, BP_MAX_RANK> shape{};
  std::array<WalkOperand, kMaxOperands> operands{};
  uint32_t ndim = 0;
  for (uint32_t i = 0; i < shaped.ndim; ++i) {
    if (i >= first && i < first + count) continue;
    shape[ndim] = shaped.shape[i];
    size_t k = 0;
    for (const bp_tensor* t : tensors) strides[k++][ndim] = t == nullptr ? 0 : t->strides[i];
    ++ndim;
  }
  size_t k = 0;
  for (const bp_tensor* t : tensors) {
    operands[k] = {strides[k].data(), t == nullptr ? 0 : dtype_size_bytes(t->dtype)};
    ++k;
  }
  return make_walk(ndim, shape.data(), {operands.data(), k});
}

uint32_t lanes_of_row(const Env& env, int64_t row_count, int64_t row_size, int64_t most) {
  const bool is_processor = env.is_processor();
  const uint32_t least = is_processor ? 8 : 32;
  // On a processor, a whole row per invocation costs no more than a part of a row.
  const bool is_many = row_count >= (is_processor ? 64 : 65536);
  const bool shares = is_processor ? !is_many : row_size / 4 >= least || !is_many;
  uint32_t lanes = shares && row_size >= least ? least : 1;
  while (row_size > most * lanes) {
    if (lanes >= kMostLanes) return 0;
    lanes = std::max(lanes * 2, least);
  }
  return lanes;
}

uint32_t row_group_size(const Env& env, uint32_t lanes) {
  return std::max(env.is_processor() ? 8 : local_size(env), lanes);
}

bool can_bind_all(const Launch& launch, const BoundTensors& tensors) {
  // All tensors are asked together, as prepare() requires of a dispatch.
  return std::ranges::all_of(tensors, [&](const bp_tensor* t) {
    return t == nullptr || (launch.is_aligned(*t) && launch.can_bind(*t));
  });
}

std::array<Range, 4> bound_ranges(const Launch& launch, const BoundTensors& tensors) {
  const auto first = std::ranges::find_if(tensors, [](const bp_tensor* t) { return t != nullptr; });
  std::array<Range, 4> ranges;
  for (size_t k = 0; k < tensors.size(); ++k) {
    ranges[k] = launch.range(tensors[k] == nullptr ? **first : *tensors[k]);
  }
  return ranges;
}

void copy_extents(const Walk& walk, uint32_t (&out_extents)[BP_MAX_RANK]) {
  std::fill_n(out_extents, BP_MAX_RANK, 1u);
  for (size_t i = 0; i < walk.rank; ++i) out_extents[i] = static_cast<uint32_t>(walk.extents[i]);
}

}  // namespace bp::vulkan
