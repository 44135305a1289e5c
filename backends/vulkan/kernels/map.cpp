#include "backends/vulkan/kernels/map.hpp"

#include <algorithm>
#include <array>

#include "backends/vulkan/kernels/submit.hpp"
#include "backends/vulkan/kernels/walk.hpp"

namespace bp::vulkan {
namespace {

// The elements of an invocation, dense and strided, as in the shaders.
constexpr uint64_t kGroup = 8, kPerInvocation = 4;

struct MapOperand {
  uint64_t address;
  int64_t strides[BP_MAX_RANK];
};

struct MapRecord {
  uint64_t scalar;
  uint64_t count;
  uint32_t extents[BP_MAX_RANK];
  MapOperand operands[kMaxOperands];
};

struct MapCall {
  MapOp op;
  size_t operand_count;
  std::array<const bp_tensor*, kMaxOperands> tensors{};
  std::array<bp_dtype, kMaxOperands> dtypes{};
  std::array<uint64_t, kMaxOperands> addresses{};
  uint64_t scalar;
  bool is_aligned = true;  // All tensors are aligned.
  bool binds = true;       // All can be bound, without parts.
};

// The push constants of map_bound.comp.
struct MapPush {
  uint64_t scalar;
  uint32_t count;
};

// The record of map_rows.comp.
struct GroupRecord {
  uint32_t extents[BP_MAX_RANK];
  uint32_t strides[kMaxOperands][BP_MAX_RANK];
};

// Returns the module that computes in the type of the last operand. The first operand of `where` is
// bool, and so is the result of a comparison. A copy to a wider kind of number computes in the
// wider one.
const Module& module_of(const MapCall& call) {
  const bp_dtype dtype = call.dtypes[call.operand_count - 1], result = call.dtypes[0];
  if (dtype == BP_F64) return kMapF64Module;
  if (is_f32_class(dtype) || is_f32_class(result)) return kMapF32Module;
  return dtype == BP_I64 || result == BP_I64 ? kMapI64Module : kMapI32Module;
}

// Refuses dtypes that the module of a call has no code for.
void check_dtypes(const MapCall& call) {
  static constexpr bp_dtype kF64[] = {BP_F64, BP_BOOL};
  static constexpr bp_dtype kF32[] = {BP_F32, BP_F16, BP_BF16, BP_BOOL};
  static constexpr bp_dtype kI64[] = {BP_BOOL, BP_I8, BP_U8, BP_I16, BP_I32, BP_I64};
  static constexpr bp_dtype kI32[] = {BP_BOOL, BP_I8, BP_U8, BP_I16, BP_I32};
  const Module& module = module_of(call);
  const auto check = [&](const auto& dtypes) {
    for (size_t k = 0; k < call.operand_count; ++k) one_of(dtypes, call.dtypes[k]);
  };
  if (&module == &kMapF64Module) return check(kF64);
  if (&module == &kMapF32Module) return check(kF32);
  if (&module == &kMapI64Module) return check(kI64);
  check(kI32);
}

// One module for each type.
struct Modules {
  const Module &f32, &f64, &i32, &i64;

  const Module& of(const MapCall& call) const {
    const Module& module = module_of(call);
    if (&module == &kMapF64Module) return f64;
    if (&module == &kMapF32Module) return f32;
    return &module == &kMapI64Module ? i64 : i32;
  }
};

const Modules& bound_modules() {
  static constexpr Modules kModules{kMapBoundF32Module, kMapBoundF64Module, kMapBoundI32Module,
                                    kMapBoundI64Module};
  return kModules;
}

const Modules& row_modules() {
  static constexpr Modules kModules{kMapRowsF32Module, kMapRowsF64Module, kMapRowsI32Module,
                                    kMapRowsI64Module};
  return kModules;
}

// Returns whether every operand lies in the order of the walk without gaps, or repeats one element.
// An operand that is read several elements at a time must be aligned.
bool is_dense(const MapCall& call, const Walk& walk) {
  if (walk.rank > 1 || !call.is_aligned) return false;
  for (size_t k = 0; k < call.operand_count; ++k) {
    if (walk.rank == 0 || walk.strides[k][0] == 0) {
      if (k == 0) return false;
      continue;
    }
    if (walk.strides[k][0] != dtype_size_bytes(call.dtypes[k])) return false;
    if (call.addresses[k] % 16 != 0) return false;
  }
  return true;
}

// Returns whether the innermost axis consists of groups in every operand. A group has neighbours,
// or repeats one element.
bool has_groups(const MapCall& call, const Walk& walk) {
  if (walk.rank == 0 || !call.is_aligned || walk.extents[0] % int64_t{kGroup} != 0) return false;
  for (size_t k = 0; k < call.operand_count; ++k) {
    const int64_t item = dtype_size_bytes(call.dtypes[k]);
    if (walk.strides[k][0] == 0 && k != 0) continue;
    if (walk.strides[k][0] != item) return false;
    for (uint32_t i = 1; i < walk.rank; ++i) {
      if (walk.strides[k][i] % (item * int64_t{kGroup}) != 0) return false;
    }
  }
  return true;
}

GroupRecord group_record(const MapCall& call, const Walk& walk) {
  GroupRecord record{};
  std::fill_n(record.extents, BP_MAX_RANK, 1u);
  for (uint32_t i = 0; i < walk.rank; ++i) {
    record.extents[i] =
        static_cast<uint32_t>(i == 0 ? walk.extents[0] / int64_t{kGroup} : walk.extents[i]);
    for (size_t k = 0; k < call.operand_count; ++k) {
      const int64_t item = dtype_size_bytes(call.dtypes[k]);
      const bool is_uniform = walk.strides[k][0] == 0;
      const int64_t unit = is_uniform ? item : item * int64_t{kGroup};
      const int64_t stride = i == 0 && !is_uniform ? unit : walk.strides[k][i];
      record.strides[k][i] = static_cast<uint32_t>(stride / unit);
    }
  }
  return record;
}

// Submits the op with bound tensors: as one row, or in groups that the record describes.
bp_status submit_bound(Launch& launch, const MapCall& call, const Walk& walk, bool is_one_row) {
  const auto count = static_cast<uint64_t>(is_one_row ? walk.count : walk.count / int64_t{kGroup});
  const MapPush push{call.scalar, static_cast<uint32_t>(count)};
  const GroupRecord record = is_one_row ? GroupRecord{} : group_record(call, walk);
  std::array<uint32_t, 10> constants = {local_size(launch), call.op,
                                        static_cast<uint32_t>(call.operand_count),
                                        is_one_row ? 0 : walk.rank};
  std::array<Range, kMaxOperands> bound;
  Ranges reads(launch), writes(launch, {call.tensors[0]});
  for (size_t k = 0; k < call.operand_count; ++k) {
    constants[5 + k] = call.dtypes[k];
    if (walk.strides[k][0] == 0) constants[4] |= 1u << k;
    if (call.tensors[k] == nullptr) constants[9] |= 1u << k;
    // A scalar of the call has no buffer, so the buffer of the result is bound in its place.
    bound[k] = launch.range(*(call.tensors[k] == nullptr ? call.tensors[0] : call.tensors[k]));
    if (k > 0) reads.add(call.tensors[k]);
  }
  Dispatch dispatch{.module = &(is_one_row ? bound_modules() : row_modules()).of(call),
                    .constants = constants,
                    .pushed = std::as_bytes(std::span(&push, 1)),
                    .bound = std::span(bound).first(call.operand_count),
                    .reads = reads,
                    .writes = writes};
  if (!is_one_row) dispatch.arguments = std::as_bytes(std::span(&record, 1));
  const uint64_t groups = is_one_row ? ceil_divide(count, kGroup) : count;
  fold_groups(launch, ceil_divide(groups, local_size(launch)), dispatch.groups);
  return launch.dispatch(dispatch);
}

bp_status submit_part(Launch& launch, const MapCall& call, const Walk& walk) {
  const bool dense = is_dense(call, walk);
  if (call.binds && (dense || has_groups(call, walk))) {
    return submit_bound(launch, call, walk, dense);
  }
  MapRecord record{};
  record.scalar = call.scalar;
  record.count = static_cast<uint64_t>(walk.count);
  std::array<uint32_t, 9> constants = {local_size(launch), call.op,
                                       static_cast<uint32_t>(call.operand_count),
                                       dense ? 0 : std::max(walk.rank, 1u), 0};
  Ranges reads(launch), writes(launch);
  for (size_t k = 0; k < call.operand_count; ++k) {
    record.operands[k].address = call.addresses[k];
    std::copy_n(walk.strides[k].begin(), walk.rank, record.operands[k].strides);
    constants[5 + k] = call.dtypes[k];
    if (dense && walk.strides[k][0] == 0) constants[4] |= 1u << k;
    (k == 0 ? writes : reads).add(call.tensors[k]);
  }
  std::fill_n(record.extents, BP_MAX_RANK, 1u);
  for (uint32_t i = 0; i < walk.rank && !dense; ++i) {
    record.extents[i] = static_cast<uint32_t>(walk.extents[i]);
  }
  const uint64_t per_group = local_size(launch) * (dense ? kGroup : kPerInvocation);
  return submit(launch, module_of(call), constants, record, ceil_divide(record.count, per_group),
                {reads, writes});
}

// A strided dispatch counts elements in 32 bits. Longer walks are cut along their outermost axis.
bp_status submit_parts(Launch& launch, MapCall call, const Walk& walk) {
  constexpr int64_t kMost = int64_t{1} << 31;
  if (walk.count <= kMost || is_dense(call, walk)) return submit_part(launch, call, walk);
  call.binds = false;
  const size_t last = walk.rank - 1;
  const int64_t extent = walk.extents[last], inner = walk.count / extent;
  const int64_t step = std::max<int64_t>(1, kMost / inner);
  for (int64_t begin = 0; begin < extent; begin += step) {
    Walk part = walk;
    part.extents[last] = std::min(step, extent - begin);
    part.count = inner * part.extents[last];
    if (part.extents[last] == 1) --part.rank;
    const bp_status status = submit_parts(launch, call, part);
    if (status != BP_OK) return status;
    for (size_t k = 0; k < call.operand_count; ++k) {
      if (call.addresses[k] == 0) continue;
      call.addresses[k] += static_cast<uint64_t>(step * walk.strides[k][last]);
    }
  }
  return BP_OK;
}

bp_status submit_call(Launch& launch, MapOp op, std::initializer_list<const bp_tensor*> tensors,
                      uint64_t scalar, bool moves) {
  MapCall call{.op = op, .operand_count = tensors.size(), .scalar = scalar};
  size_t k = 0;
  for (const bp_tensor* t : tensors) {
    call.tensors[k] = t;
    if (t != nullptr) {
      call.dtypes[k] = t->dtype;
    } else {
      call.dtypes[k] = moves ? call.dtypes[0] : acc_dtype(call.dtypes[k - 1]);
    }
    if (moves && t != nullptr && !(op == kMapWhere && k == 1))
      call.dtypes[k] = moved_dtype(t->dtype);
    call.addresses[k] = address_of(launch, t);
    if (t != nullptr && element_count(*t) != 0) {
      call.is_aligned = call.is_aligned && launch.is_aligned(*t);
      call.binds = call.binds && launch.can_bind(*t);
    }
    ++k;
  }
  check_dtypes(call);
  const Walk walk = make_walk(tensors);
  if (walk.count == 0) return BP_OK;
  return submit_parts(launch, call, walk);
}

}  // namespace

bp_status submit_map(Launch& launch, MapOp op, std::initializer_list<const bp_tensor*> tensors,
                     uint64_t scalar) {
  return submit_call(launch, op, tensors, scalar, false);
}

bp_status submit_move(Launch& launch, MapOp op, std::initializer_list<const bp_tensor*> tensors,
                      uint64_t scalar) {
  return submit_call(launch, op, tensors, scalar, true);
}

}  // namespace bp::vulkan
