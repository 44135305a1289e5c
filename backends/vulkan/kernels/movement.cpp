// fill and copy, for tensors of every layout. cast.comp copies between kinds of numbers that are
// computed in different types. map.comp does the rest.
#include <algorithm>
#include <array>

#include "backends/vulkan/kernels/map.hpp"
#include "backends/vulkan/kernels/submit.hpp"
#include "backends/vulkan/kernels/walk.hpp"
#include "backplane/shell/scalar.hpp"

namespace bp::vulkan {
namespace {

struct CastOperand {
  uint64_t address;
  int64_t strides[BP_MAX_RANK];
};

struct CastRecord {
  uint64_t reserved;
  uint64_t count;
  uint32_t extents[BP_MAX_RANK];
  CastOperand operands[2];
};

// Returns the module that converts from one kind of number to another, or NULL if map.comp does it.
const Module* cast_module(bp_dtype from, bp_dtype to) {
  const bool from_f32 = is_f32_class(from), to_f32 = is_f32_class(to);
  if (from == to || to == BP_BOOL || (from_f32 && to_f32)) return nullptr;
  if (from == BP_BOOL && to != BP_F64) return nullptr;
  if (from == BP_F64) return to_f32 ? &kCastF64ToF32Module : &kCastF64ToI64Module;
  if (to == BP_F64) return from_f32 ? &kCastF32ToF64Module : &kCastI64ToF64Module;
  if (from_f32) return &kCastF32ToI64Module;
  return to_f32 ? &kCastI64ToF32Module : nullptr;
}

bp_status submit_cast(Launch& launch, const Module& module, const bp_copy_args& args) {
  const Walk walk = make_walk({args.y, args.x});
  if (walk.count == 0) return BP_OK;
  if (walk.count > int64_t{1} << 31) {
    return launch.refuse(BP_UNSUPPORTED, "copy: a conversion takes at most 2^31 elements");
  }
  CastRecord record{};
  record.count = static_cast<uint64_t>(walk.count);
  std::fill_n(record.extents, BP_MAX_RANK, 1u);
  std::transform(walk.extents.begin(), walk.extents.begin() + walk.rank, record.extents,
                 [](int64_t extent) { return static_cast<uint32_t>(extent); });
  const bp_tensor* const tensors[] = {args.y, args.x};
  for (size_t k = 0; k < 2; ++k) {
    record.operands[k].address = launch.device_address(*tensors[k]);
    std::copy_n(walk.strides[k].begin(), walk.rank, record.operands[k].strides);
  }
  const std::array<uint32_t, 4> constants = {local_size(launch), std::max(walk.rank, 1u),
                                             one_of(kAnyDtypes, args.y->dtype),
                                             one_of(kAnyDtypes, args.x->dtype)};
  return submit(launch, module, constants, record, ceil_divide(record.count, local_size(launch)),
                {Ranges(launch, {args.x}), Ranges(launch, {args.y})});
}

bp_status copy_launch(const bp_copy_args& args, Launch& launch) {
  if (const Module* module = cast_module(args.x->dtype, args.y->dtype)) {
    return submit_cast(launch, *module, args);
  }
  if (args.x->dtype == args.y->dtype) return submit_move(launch, kMapCopy, {args.y, args.x});
  return submit_map(launch, kMapCopy, {args.y, args.x});
}

bp_status fill_launch(const bp_fill_args& args, Launch& launch) {
  if (args.value == nullptr) {
    const uint64_t bits = convert_scalar(args.value_scalar, args.y->dtype);
    return submit_move(launch, kMapCopy, {args.y, nullptr}, bits);
  }
  const Repeated value(*args.value, *args.y);
  return submit_move(launch, kMapCopy, {args.y, value.tensor()});
}

// All pairs of dtypes.
constexpr auto kPairs = pairs_of(kAnyDtypes, kAnyDtypes);

}  // namespace

constinit const bp_kernel kFill = make_kernel<bp_fill_args, fill_launch>(
    kernel_row("fill", BP_OP_FILL, kAnyDtypes, BP_KERNEL_TAKES_SCALAR));

constinit const bp_kernel kCopy =
    make_kernel<bp_copy_args, copy_launch>(kernel_row("copy", BP_OP_COPY, {kPairs, 2}));

}  // namespace bp::vulkan
