#include "registry/calls/op_rows.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace bp::core {
namespace {

// Numbers the ops, so that the compiler can find the arguments of an op by comparing numbers. It
// would be slow to compare the names of all ops with those of all arguments.
enum class OpName : uint32_t {
#define BP_OP(id, name, since, profile, core_or_decomposable, numerics) op_##name,
#define BP_ARG(op, member, kind, dtype_rule)
#include "backplane/ops.def"
#undef BP_OP
#undef BP_ARG
  none,
};

struct Op {
  OpName op;
  uint32_t id, frame_size_bytes;
  const char* name;
  const char* numerics;
};

constexpr Op kOps[] = {
#define BP_OP(id, name, since, profile, core_or_decomposable, numerics) \
  {OpName::op_##name, id, sizeof(bp_##name##_args), #name, #numerics},
#define BP_ARG(op, member, kind, dtype_rule)
#include "backplane/ops.def"
#undef BP_OP
#undef BP_ARG
};

struct Argument {
  OpName op;
  const char* name;
  size_t offset;
  Kind kind;
  std::string_view dtype_rule;
};

constexpr Argument kArguments[] = {
#define BP_OP(id, name, since, profile, core_or_decomposable, numerics)
#define BP_ARG(op, member, kind, dtype_rule) \
  {OpName::op_##op, #member, offsetof(bp_##op##_args, member), Kind::kind, #dtype_rule},
#include "backplane/ops.def"
#undef BP_OP
#undef BP_ARG
};

struct DtypeSet {
  std::string_view name;
  Moves moves;
  std::string_view dtypes;
};

constexpr DtypeSet kDtypeSets[] = {
#define BP_OP(id, name, since, profile, core_or_decomposable, numerics)
#define BP_ARG(op, member, kind, dtype_rule)
#define BP_DTYPE_SET(name, moves, ...) {#name, Moves::moves, #__VA_ARGS__},
#include "backplane/ops.def"
#undef BP_OP
#undef BP_ARG
};

struct SizeRow {
  OpName op;
  FrameSize size;
};

constexpr SizeRow kSizes[] = {
#define BP_OP(id, name, since, profile, core_or_decomposable, numerics)
#define BP_ARG(op, member, kind, dtype_rule)
#define BP_ARGS_SIZE(op, revision, bytes) {OpName::op_##op, {revision, bytes}},
#include "backplane/ops.def"
#undef BP_OP
#undef BP_ARG
};

// The values that came later, in the order of the ops. An array has at least one element, so a
// value of no op ends it.
constexpr LaterValue kLaterValues[] = {
#define BP_OP(id, name, since, profile, core_or_decomposable, numerics)
#define BP_ARG(op, member, kind, dtype_rule)
#define BP_VALUE_SINCE(op, member, name, value, revision) \
  {offsetof(bp_##op##_args, member), value, revision, #member, #name},
#include "backplane/ops.def"
#undef BP_OP
#undef BP_ARG
    {},
};

constexpr OpName kOpOfLaterValues[] = {
#define BP_OP(id, name, since, profile, core_or_decomposable, numerics)
#define BP_ARG(op, member, kind, dtype_rule)
#define BP_VALUE_SINCE(op, member, name, value, revision) OpName::op_##op,
#include "backplane/ops.def"
#undef BP_OP
#undef BP_ARG
    OpName::none,
};

struct EnumerationRow {
  OpName op;
  Enumeration enumeration;
};

constexpr EnumerationRow kEnumerations[] = {
#define BP_OP(id, name, since, profile, core_or_decomposable, numerics)
#define BP_ARG(op, member, kind, dtype_rule)
#define BP_LAST_VALUE(op, member, value) \
  {OpName::op_##op, {offsetof(bp_##op##_args, member), value}},
#include "backplane/ops.def"
#undef BP_OP
#undef BP_ARG
};

// A scalar|tensor argument that a call may leave out.
struct AbsentScalar {
  OpName op;
  size_t offset;
  constexpr bool operator==(const AbsentScalar&) const = default;
};

// An array has at least one element, so a row of no op ends it.
constexpr AbsentScalar kAbsentScalars[] = {
#define BP_OP(id, name, since, profile, core_or_decomposable, numerics)
#define BP_ARG(op, member, kind, dtype_rule)
#define BP_MAY_BE_ABSENT(op, member) {OpName::op_##op, offsetof(bp_##op##_args, member)},
#include "backplane/ops.def"
#undef BP_OP
#undef BP_ARG
    {OpName::none, 0},
};

struct FixedDtype {
  std::string_view name;
  bp_dtype dtype;
};

// The dtypes that a dtype rule may consist of.
constexpr FixedDtype kFixedDtypes[] = {
    {"bool", BP_BOOL}, {"i32", BP_I32}, {"i64", BP_I64}, {"u64", BP_U64},
    {"f32", BP_F32},   {"f64", BP_F64}, {"u8", BP_U8},
};

constexpr const DtypeSet* find_set(std::string_view name) {
  const auto* const set = std::ranges::find(kDtypeSets, name, &DtypeSet::name);
  return set == std::end(kDtypeSets) ? nullptr : set;
}

constexpr bool is_free(std::string_view rule) {
  return find_set(rule) != nullptr || rule.starts_with("set(");
}

// Returns the one dtype of a rule, or the first one of "set(f64, f32)".
constexpr std::string_view first_dtype(std::string_view rule) {
  if (!rule.starts_with("set(")) return rule;
  rule.remove_prefix(4);
  return rule.substr(0, rule.find_first_of(",)"));
}

// Makes a row in which the `like` members are not set yet.
consteval OpRow make_row(const Op& op, uint32_t index) {
  OpRow row;
  row.op = op.id;
  row.name = op.name;
  row.numerics = op.numerics;
  row.frame_size_bytes = op.frame_size_bytes;
  row.revision = BP_OPS_REVISION;
  row.index = index;
  for (const SizeRow& size : kSizes) {
    if (size.op == op.op) row.sizes[row.size_count++] = size.size;
  }
  const auto* const later = std::ranges::find(kOpOfLaterValues, op.op);
  const auto* const later_end =
      std::find_if(later, std::end(kOpOfLaterValues), [&](OpName name) { return name != op.op; });
  row.later_values = {kLaterValues + (later - kOpOfLaterValues),
                      static_cast<size_t>(later_end - later)};
  for (const EnumerationRow& enumeration : kEnumerations) {
    if (enumeration.op != op.op) continue;
    row.enumerations[row.enumeration_count++] = enumeration.enumeration;
  }
  std::array<std::string_view, kMaxTensors> rules;
  for (const Argument& argument : kArguments) {
    if (argument.op != op.op) continue;
    if (argument.kind == Kind::i64_list) {
      row.integer_lists[row.integer_list_count++] = static_cast<uint16_t>(argument.offset);
    }
    if (argument.dtype_rule == "none") continue;
    rules[row.tensor_count] = argument.dtype_rule;
    TensorArgument& tensor = row.tensors[row.tensor_count++];
    tensor.name = argument.name;
    tensor.offset = static_cast<uint16_t>(argument.offset);
    tensor.kind = argument.kind;
    tensor.is_free = is_free(argument.dtype_rule);
    tensor.may_be_absent =
        argument.offset >= row.first_size_bytes() ||
        std::ranges::find(kAbsentScalars, AbsentScalar{op.op, argument.offset}) !=
            std::end(kAbsentScalars);
    const DtypeSet* const set = find_set(argument.dtype_rule);
    if (row.free_count == 0 && set != nullptr) row.moves = set->moves;
    row.free_count += tensor.is_free ? 1 : 0;
    if (tensor.is_free && !tensor.has_scalar()) continue;
    for (const FixedDtype& fixed : kFixedDtypes) {
      if (fixed.name == first_dtype(argument.dtype_rule)) tensor.dtype = fixed.dtype;
    }
  }
  for (uint32_t i = 0; i < row.tensor_count; ++i) {
    const TensorArgument& tensor = row.tensors[i];
    row.list_mask |= tensor.is_list() ? 1u << i : 0;
    row.required_mask |= tensor.is_required() ? 1u << i : 0;
    row.output_mask |= tensor.is_output() ? 1u << i : 0;
    if (!rules[i].starts_with("like(")) continue;
    const std::string_view target = rules[i].substr(5, rules[i].size() - 6);
    for (uint32_t j = 0; j < row.tensor_count; ++j) {
      if (target == row.tensors[j].name) row.tensors[i].like = static_cast<uint8_t>(j);
    }
  }
  return row;
}

consteval std::array<OpRow, std::size(kOps)> make_rows() {
  std::array<OpRow, std::size(kOps)> rows;
  for (uint32_t i = 0; i < rows.size(); ++i) rows[i] = make_row(kOps[i], i);
  return rows;
}

constexpr std::array kRows = make_rows();

// Returns whether every scalar has a dtype to which it can be converted, and every frame has the
// size that ops.def says and fits into kMaxFrameBytes.
consteval bool is_sound() {
  for (const OpRow& row : kRows) {
    if (row.frame_size_bytes > kMaxFrameBytes) return false;
    if (row.size_in(BP_OPS_REVISION) != row.frame_size_bytes) return false;
    for (uint32_t i = 0; i < row.tensor_count; ++i) {
      const TensorArgument& a = row.tensors[i];
      if (a.has_scalar() && a.like == kNoArgument && a.dtype == 0) return false;
      if (a.kind == Kind::operand && a.like == kNoArgument) return false;
    }
  }
  return true;
}
static_assert(is_sound());

}  // namespace

constinit const std::array<const OpRow*, kOpIdCount> kOpRowById = [] {
  std::array<const OpRow*, kOpIdCount> rows{};
  for (const OpRow& row : kRows) rows[row.op] = &row;
  return rows;
}();

std::span<const OpRow> op_rows() { return kRows; }

std::string_view dtypes_of_set(std::string_view name) {
  const DtypeSet* const set = find_set(name);
  return set == nullptr ? std::string_view() : set->dtypes;
}

}  // namespace bp::core
