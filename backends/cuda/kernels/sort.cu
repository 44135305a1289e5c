// sort along an axis, stable, for tensors of every layout (radix_sort.cuh).
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/sort.cuh"

namespace bp::cuda {
namespace {

bp_status sort_launch(const bp_sort_args& args, Launch& launch) {
  const RowExtents extents = sort_extents(args);
  const SortTensors tensors = sort_tensors(args, args.is_descending != 0);
  return with_any(args.x->dtype, [&]<typename T>(T) {
    return sort_lines(launch, SortIo<T>{tensors}, extents.rows, extents.count, launch.workspace());
  });
}

uint64_t workspace(const bp_sort_args& args, const Env&) { return sort_size_bytes(args); }

constexpr auto kDtypes = with_indices(kAnyDtypes);

}  // namespace

constinit const bp_kernel kSort =
    make_kernel<bp_sort_args, sort_launch, sort_supports<bp_sort_args>, workspace>(
        kernel_row("sort", BP_OP_SORT, {kDtypes, 2}));

}  // namespace bp::cuda
