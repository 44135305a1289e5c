// argmax, argmin, and the reductions with a formula (ops_spec/emit_reductions.py), such as sum and
// amax, for tensors of every layout (reduce.comp).
#include "backends/vulkan/kernels/map.hpp"
#include "backends/vulkan/kernels/reduce.hpp"
#include "reductions.hpp"

namespace bp::vulkan {
namespace {

template <typename Args>
uint32_t axes_of(const Args& args) {
  uint32_t axes = 0;
  for (uint64_t i = 0; i < args.axes_count; ++i) axes |= 1u << args.axes[i];
  return axes;
}

template <typename Args, uint32_t kOp>
uint64_t workspace_of(const Args& args, const Env&) {
  return reduction_workspace(make_reduction(kOp, *args.x, *args.y, axes_of(args)));
}

bp_status submit_tensors(Launch& launch, Reduction reduction, const bp_tensor& x,
                         const bp_tensor& y) {
  reduction.from_address = address_of(launch, &x);
  reduction.from_tensor = &x;
  reduction.to_address = address_of(launch, &y);
  return submit_reduction(launch, reduction, Ranges(launch, {&x}), Ranges(launch, {&y}),
                          launch.workspace_address());
}

template <typename Args, uint32_t kOp>
bp_status reduction_launch(const Args& args, Launch& launch) {
  // A sum would begin with 0, and -0 would lose its sign.
  if (copies_one(kOp) && args.axes_count == 0) {
    return args.x->dtype == args.y->dtype ? submit_move(launch, kMapCopy, {args.y, args.x})
                                          : submit_map(launch, kMapCopy, {args.y, args.x});
  }
  return submit_tensors(launch, make_reduction(kOp, *args.x, *args.y, axes_of(args)), *args.x,
                        *args.y);
}

template <typename Args, uint32_t kOp>
bp_status index_launch(const Args& args, Launch& launch) {
  return submit_tensors(launch, make_reduction(kOp, *args.x, *args.y, 1u << args.axis), *args.x,
                        *args.y);
}

template <typename Args>
bp_reason index_supports(const Args& args) {
  const bool is_short = axis_extent(*args.x, static_cast<size_t>(args.axis)) <= int64_t{1} << 21;
  return is_short ? nullptr : "the axis has more than 2^21 elements";
}

constexpr auto kIndexRows = with_indices(kNumberDtypes);

template <typename Args, uint32_t kOp>
constexpr bp_kernel reduction_kernel(const bp_kernel& row) {
  return make_kernel<Args, reduction_launch<Args, kOp>, nullptr, workspace_of<Args, kOp>>(row);
}

template <typename Args, uint32_t kOp>
constexpr bp_kernel index_kernel(const char* name) {
  return make_kernel<Args, index_launch<Args, kOp>, index_supports<Args>>(
      kernel_row(name, kOp, {kIndexRows, 2}));
}

}  // namespace

#define BP_REDUCTION(name, Name, id, dtypes)   \
  constinit const bp_kernel kReduction##Name = \
      reduction_kernel<bp_##name##_args, id>(kernel_row(#name, id, dtypes));
#include "reductions.def"

constinit const bp_kernel kArgmax = index_kernel<bp_argmax_args, BP_OP_ARGMAX>("argmax");
constinit const bp_kernel kArgmin = index_kernel<bp_argmin_args, BP_OP_ARGMIN>("argmin");

}  // namespace bp::vulkan
