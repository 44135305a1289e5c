#include "backends/cuda/kernels/groups.cuh"

namespace bp::cuda {
namespace {

// The grid has one block, whose threads have equally many groups.
__global__ void __launch_bounds__(kBlockThreads) plan_tiles_kernel(Groups groups) {
  __shared__ uint32_t counts[kBlockThreads];
  const uint32_t share = (groups.count + kBlockThreads - 1) / kBlockThreads;
  const uint32_t first = threadIdx.x * share, behind = first + share;
  const uint32_t end = behind < groups.count ? behind : groups.count;
  uint32_t own = 0;
  for (uint32_t g = first; g < end; ++g) own += groups.tiles(g);
  counts[threadIdx.x] = own;
  __syncthreads();
  uint32_t start = 0;
  for (uint32_t i = 0; i < threadIdx.x; ++i) start += counts[i];
  for (uint32_t g = first; g < end; ++g) {
    groups.tile_starts[g] = start;
    start += groups.tiles(g);
  }
  if (threadIdx.x == kBlockThreads - 1) groups.tile_starts[groups.count] = start;
}

}  // namespace

bp_status plan_tiles(const Groups& groups, Launch& launch) {
  return run<plan_tiles_kernel>(launch, dim3(1), kBlockThreads, 0, groups);
}

}  // namespace bp::cuda
