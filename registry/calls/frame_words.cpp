#include "registry/calls/frame_words.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "registry/calls/runtime_ops.hpp"

namespace bp::core {
namespace {

using Member = FrameMember;

constexpr bool is_tensor_kind(Kind kind) { return kind < Kind::i32; }

constexpr bool is_tensor_list(Kind kind) {
  return kind == Kind::tensor_list || kind == Kind::out_list || kind == Kind::inout_list;
}

constexpr Member kMembers[] = {
#define BP_OP(id, name, since, profile, core_or_decomposable, numerics) \
  {id, 0, Kind::i32, false, nullptr},
#define BP_ARG(op, member, kind, dtype_rule) \
  {0, offsetof(bp_##op##_args, member), Kind::kind, is_tensor_kind(Kind::kind), #member},
#include "backplane/ops.def"
#undef BP_OP
#undef BP_ARG
};

template <typename T>
T value_at(const void* args, uint32_t offset) {
  T value;
  // NOLINTNEXTLINE(bugprone-sizeof-expression): T may be a pointer.
  std::memcpy(&value, member(args, offset), sizeof(value));
  return value;
}

// Calls word(uint64_t) for each value that a plan depends on, until it returns false.
template <typename Word>
bool visit_words(std::span<const int64_t> values, Word&& word) {
  return std::ranges::all_of(values, [&](int64_t v) { return word(static_cast<uint64_t>(v)); });
}

template <typename Word>
bool visit_tensor(const bp_tensor* t, bool is_constant, Word&& word) {
  if (t == nullptr) return word(~uint64_t{0});
  return word(uint64_t{t->dtype} | uint64_t{t->ndim} << 32) &&
         word(reinterpret_cast<uintptr_t>(t->layout)) && visit_words({t->shape, t->ndim}, word) &&
         (t->layout != nullptr || visit_words({t->strides, t->ndim}, word)) &&
         (!is_constant || (word(reinterpret_cast<uintptr_t>(t->buffer)) && word(t->byte_offset)));
}

// The tensors of a member. The first of them has the number `first` in the frame.
struct Tensors {
  uint32_t first = 0, count = 0;
  TensorNumbers constants;

  bool is_constant(uint64_t i) const {
    return std::ranges::find(constants, first + i) != constants.end();
  }
  bool has_constant() const {
    return std::ranges::any_of(constants, [&](uint32_t n) { return n - first < count; });
  }
};

Tensors tensors_of(const Member& m, const void* args, uint32_t first, TensorNumbers constants) {
  if (!m.is_tensor) return {first, 0, constants};
  if (!is_tensor_list(m.kind)) return {first, 1, constants};
  return {first, static_cast<uint32_t>(value_at<uint64_t>(args, m.offset - 8)), constants};
}

template <typename Word>
bool visit_list(const void* args, uint32_t offset, const Tensors& tensors, Word&& word) {
  const auto count = value_at<uint64_t>(args, offset - 8);
  const auto* const items = value_at<const bp_tensor* const*>(args, offset);
  if (!word(count)) return false;
  for (uint64_t i = 0; i < count; ++i) {
    if (!visit_tensor(items[i], tensors.is_constant(i), word)) return false;
  }
  return true;
}

template <typename Word>
bool visit_member(const Member& m, const void* args, const Tensors& tensors, Word&& word) {
  switch (m.kind) {
    case Kind::tensor_list:
    case Kind::out_list:
    case Kind::inout_list:
      return visit_list(args, m.offset, tensors, word);
    case Kind::operand:
    case Kind::scalar_tensor: {
      const auto* const tensor = value_at<const bp_tensor*>(args, m.offset);
      if (tensor != nullptr) return visit_tensor(tensor, tensors.is_constant(0), word);
      const auto scalar = value_at<bp_scalar>(args, m.offset + sizeof(void*));
      uint64_t words[sizeof(bp_scalar) / sizeof(uint64_t)];
      std::memcpy(words, &scalar, sizeof(words));
      return word(~uint64_t{0}) && std::ranges::all_of(words, word);
    }
    case Kind::i64_list: {
      const auto count = value_at<uint64_t>(args, m.offset - 8);
      const auto* const values = value_at<const int64_t*>(args, m.offset);
      return word(count) && (values == nullptr || visit_words({values, count}, word));
    }
    case Kind::i32:
    case Kind::dtype:
    case Kind::enumeration:
      return word(value_at<uint32_t>(args, m.offset));
    case Kind::i64:
    case Kind::u64:
    case Kind::f64:
      return word(value_at<uint64_t>(args, m.offset));
    default:
      return visit_tensor(value_at<const bp_tensor*>(args, m.offset), tensors.is_constant(0), word);
  }
}

// Calls visit(member, tensors) for each member until it returns false.
template <typename Visit>
void for_each_member(const OpRow& row, const void* args, TensorNumbers constant_args,
                     Visit&& visit) {
  uint32_t first = 0;
  for (const Member& m : frame_members(row)) {
    const Tensors tensors = tensors_of(m, args, first, constant_args);
    first += tensors.count;
    if (!visit(m, tensors)) return;
  }
}

}  // namespace

uint32_t first_byte(const FrameMember& member) {
  const bool is_list = is_tensor_list(member.kind) || member.kind == Kind::i64_list;
  return member.offset - (is_list ? static_cast<uint32_t>(sizeof(uint64_t)) : 0);
}

std::span<const FrameMember> frame_members(const OpRow& op) {
  if (is_runtime_op(op)) return runtime_members(op);
  const auto is_row = [](const Member& m) { return m.name == nullptr; };
  const auto* const row =
      std::ranges::find_if(kMembers, [&](const Member& m) { return is_row(m) && m.op == op.op; });
  return {row + 1, std::find_if(row + 1, std::end(kMembers), is_row)};
}

std::vector<uint64_t> frame_words(const OpRow& row, const void* args, TensorNumbers constant_args) {
  std::vector<uint64_t> words;
  for_each_member(row, args, constant_args, [&](const Member& m, const Tensors& tensors) {
    return visit_member(m, args, tensors, [&](uint64_t word) {
      words.push_back(word);
      return true;
    });
  });
  return words;
}

FrameDifference differing_member(const OpRow& row, const void* args, TensorNumbers constant_args,
                                 const std::vector<uint64_t>& words) {
  FrameDifference difference;
  size_t at = 0;
  for_each_member(row, args, constant_args, [&](const Member& m, const Tensors& tensors) {
    const bool is_same = visit_member(
        m, args, tensors, [&](uint64_t word) { return at < words.size() && words[at++] == word; });
    if (!is_same) difference = {m.name, m.is_tensor, tensors.has_constant()};
    return is_same;
  });
  return difference;
}

}  // namespace bp::core
