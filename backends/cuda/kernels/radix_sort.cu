#include <utility>

#include "backends/cuda/kernels/radix_sort.cuh"

namespace bp::cuda {
namespace {

// Finds where each digit of a line begins, and what each pass does for the line. A thread has a
// digit.
__global__ void __launch_bounds__(kDigits) plan_passes_kernel(RadixPlan plan) {
  __shared__ uint32_t begins[kDigits];
  __shared__ uint32_t needed[kMostPasses];  // Whether the keys of the line have several digits.
  const uint32_t line = blockIdx.x, digit = threadIdx.x;
  if (digit < kMostPasses) needed[digit] = 1;
  for (uint32_t pass = 0; pass < plan.passes; ++pass) {
    uint32_t* const place = plan.digits + (uint64_t{line} * plan.passes + pass) * kDigits + digit;
    const uint32_t total = *place;
    begins[digit] = total;
    __syncthreads();
    if (total == plan.count) needed[pass] = 0;
    add_digits_before(begins);
    __syncthreads();
    *place = begins[digit];
    __syncthreads();
  }
  if (digit != 0) return;
  uint32_t last = 0, ran = 0;  // If no pass is needed, the first one copies.
  for (uint32_t pass = 0; pass < plan.passes; ++pass) {
    if (needed[pass] != 0) last = pass;
  }
  for (uint32_t pass = 0; pass < plan.passes; ++pass) {
    uint32_t role = 0;
    if (needed[pass] != 0 || pass == last) {
      role = kPassRuns | (ran == 0 ? kPassReadsInput : 0) | (pass == last ? kPassWritesOutput : 0) |
             (ran % 2 == 0 ? kPassReadsSecond : 0);
      ++ran;
    }
    plan.roles[uint64_t{line} * plan.passes + pass] = static_cast<uint8_t>(role);
  }
}

// Hands out parts of a workspace.
class Parts {
 public:
  explicit Parts(std::byte* memory) : memory_(memory) {}

  template <typename T>
  T* take(uint64_t count) {
    auto* const part = reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(memory_) + size_bytes_);
    size_bytes_ += (count * sizeof(T) + 15) / 16 * 16;
    return part;
  }
  uint64_t size_bytes() const { return size_bytes_; }

 private:
  std::byte* memory_;
  uint64_t size_bytes_ = 0;
};

}  // namespace

RadixWorkspace radix_workspace(int64_t lines, int64_t count, uint32_t key_bytes,
                               std::byte* workspace) {
  constexpr int64_t kCounters = 512;
  RadixWorkspace result;
  RadixPlan& plan = result.plan;
  plan.lines = static_cast<uint32_t>(lines);
  plan.count = static_cast<uint32_t>(count);
  plan.tiles = blocks_for(count, tile_keys(key_bytes));
  plan.counters = static_cast<uint32_t>(
      std::clamp<int64_t>(kCounters / lines, 1, blocks_for(count, kCountThreads * kCountLoads)));
  plan.passes = key_bytes;
  const uint64_t rows = uint64_t{plan.lines} * plan.passes, total = rows / plan.passes * plan.count;
  Parts parts(workspace);
  plan.taken = parts.take<uint32_t>(kMostPasses);
  plan.digits = parts.take<uint32_t>(rows * kDigits);
  plan.reports = parts.take<uint32_t>(rows * plan.tiles * kDigits);
  result.cleared_bytes = parts.size_bytes();
  plan.roles = parts.take<uint8_t>(rows);
  for (uint32_t i = 0; i < std::min(plan.passes - 1, 2u); ++i) {
    plan.keys[i] = parts.take<std::byte>(total * key_bytes);
    plan.places[i] = parts.take<uint32_t>(total);
  }
  result.size_bytes = parts.size_bytes();
  return result;
}

bp_status clear_counts(Launch& launch, const RadixWorkspace& workspace) {
  return launch.fill(workspace.plan.taken, 0, workspace.cleared_bytes);
}

bp_status plan_passes(Launch& launch, const RadixPlan& plan) {
  return run<plan_passes_kernel>(launch, plan.lines, kDigits, 0, plan);
}

}  // namespace bp::cuda
