#include "conformance/faults/ops.hpp"

#include <algorithm>
#include <cstring>
#include <string>

namespace bp::faults {
namespace {

std::vector<Op> read_ops() {
  std::vector<Op> all;
#define BP_OP(id, name, since, profile, kind, numerics) \
  all.push_back({id, #name, #numerics, sizeof(bp_##name##_args), {}});
#define BP_ARG(op, member, kind, dtype) \
  all.back().members.push_back({#member, #kind, #dtype, offsetof(bp_##op##_args, member)});
#include "backplane/ops.def"
#undef BP_OP
#undef BP_ARG
  return all;
}

template <typename T>
T read(const void* args, size_t offset) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(args) + offset, sizeof(T));
  return value;
}

bool is_tensor(const Member& member) { return member.is_output() || member.is_input(); }

size_t count_of(const Op& op, bool (*is_counted)(const Member&)) {
  return static_cast<size_t>(std::ranges::count_if(op.members, is_counted));
}

bool is_optional(const Member& m) { return m.kind == "tensor_opt"; }
bool is_plain_input(const Member& m) { return m.kind == "tensor" || m.kind == "operand"; }
// Returns whether two inputs can have one dtype, and whether their order matters.
bool has_exchangeable(const Op& op) {
  for (const std::string_view commutative : {"add", "mul", "maximum", "minimum", "eq"}) {
    if (op.name == commutative) return false;
  }
  return std::ranges::any_of(op.members, [&](const Member& m) {
    return is_plain_input(m) && std::ranges::any_of(op.members, [&](const Member& first) {
             return is_plain_input(first) && m.dtype == "like(" + std::string(first.name) + ")";
           });
  });
}

bool is_number(const Member& m) { return m.kind == "f64"; }
bool is_attribute(const Member& m) { return !is_tensor(m) && m.kind != "dtype"; }

}  // namespace

bool Member::is_input() const {
  return kind.starts_with("tensor") || kind.starts_with("inout") || has_scalar();
}

bool Op::can_have(const KindOfFault& kind) const {
  // A sum of many terms in f32 may be farther from the exact result than one unit of 16 bits.
  if (kind.name == "toward_zero" && error_class != "E1" && error_class != "E1d") return false;
  // The bounds of the other classes admit zeros in place of subnormal numbers.
  if (kind.name == "flush" && error_class != "E0" && error_class != "E1") return false;
  const bool reads = count_of(*this, is_plain_input) > 0;
  switch (kind.needs) {
    case Needs::kInputs:
      return has_exchangeable(*this);
    case Needs::kOptional:
      return count_of(*this, is_optional) > 0;
    case Needs::kNumber:
      return count_of(*this, is_number) > 0;
    default:
      return reads || (kind.family != "inputs" && kind.name != "input_written");
  }
}

bool Op::can_meet(std::string_view condition) const {
  if (condition == "optional") return count_of(*this, is_optional) > 0;
  if (condition == "attribute") return count_of(*this, is_attribute) > 0;
  if (condition == "inline") {
    return count_of(*this, [](const Member& m) { return m.has_scalar(); }) > 0;
  }
  return true;
}

const std::vector<Op>& ops() {
  static const std::vector<Op> all = read_ops();
  return all;
}

const Op* find_op(uint32_t id) {
  const auto found = std::ranges::find(ops(), id, &Op::id);
  return found == ops().end() ? nullptr : &*found;
}

const Op* find_op(std::string_view name) {
  const auto found = std::ranges::find(ops(), name, &Op::name);
  return found == ops().end() ? nullptr : &*found;
}

// A list is a count, and behind it the address of the tensors' addresses.
std::vector<Argument> tensors_of(const Op& op, const void* args) {
  std::vector<Argument> tensors;
  const auto size_bytes = read<uint32_t>(args, 0);
  for (const Member& member : op.members) {
    if (!is_tensor(member) || member.offset + sizeof(void*) > size_bytes) continue;
    if (!member.is_list()) {
      const auto* tensor = read<const bp_tensor*>(args, member.offset);
      if (tensor != nullptr) tensors.push_back({&member, tensor});
      continue;
    }
    const auto count = read<uint64_t>(args, member.offset - sizeof(uint64_t));
    const auto* list = read<const bp_tensor* const*>(args, member.offset);
    for (uint64_t i = 0; i < count; ++i) tensors.push_back({&member, list[i]});
  }
  return tensors;
}

}  // namespace bp::faults
