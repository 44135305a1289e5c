// Reads the arguments of a described op: names, kinds, places in the frame, and enumerations.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "registry/calls/op_draft.hpp"

namespace bp::core {
namespace {

uint32_t size_of(bp_argument_kind kind) {
  switch (kind) {
    case BP_ARGUMENT_OPERAND:
    case BP_ARGUMENT_SCALAR_TENSOR:
      return sizeof(void*) + sizeof(bp_scalar);
    case BP_ARGUMENT_I32:
    case BP_ARGUMENT_DTYPE:
    case BP_ARGUMENT_ENUM:
      return sizeof(uint32_t);
    default:
      return sizeof(uint64_t);
  }
}

// Returns whether an argument of this kind may be absent, which is all zero.
bool is_appendable(bp_argument_kind kind) {
  return kind != BP_ARGUMENT_TENSOR && kind != BP_ARGUMENT_OUT && kind != BP_ARGUMENT_INOUT;
}

bool is_member_name(std::string_view name) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; };
  return !name.empty() && name.size() <= 64 && is_letter(name[0]) && name != "struct_size" &&
         name != "flags" &&
         std::ranges::all_of(name, [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

class PlaceReader {
 public:
  explicit PlaceReader(OpDraft& draft) : draft_(draft) {}

  // Reads everything but the rules, and checks the place in the frame.
  void read(bp_op_argument a, uint64_t index) {
    if (a.name == nullptr || !is_member_name(a.name)) {
      draft_.reject("argument " + std::to_string(index) + " is called " + clean_name(a.name) +
                    ", which is no name in [a-z_][a-z0-9_]*");
    }
    a.name = draft_.keep(a.name);
    a.next = nullptr;
    a.doc = draft_.keep(a.doc);
    a.dtypes = nullptr;
    a.dtype_count = 0;
    for (const bp_op_argument& earlier : made_.described) {
      if (std::strcmp(earlier.name, a.name) == 0) draft_.reject(a, "two arguments have this name");
    }
    if (a.kind < BP_ARGUMENT_TENSOR || a.kind > BP_ARGUMENT_ENUM) {
      draft_.reject(a, "its kind is " + std::to_string(a.kind) + ", which this host does not know");
    }
    if (a.since == 0) a.since = given_.since;
    read_since(a);
    const uint32_t size = size_of(a.kind), count_size = is_list_kind(a.kind) ? 8 : 0;
    const uint32_t first = a.offset_bytes - count_size;
    const uint32_t alignment = std::min(size, 8u);
    if (a.offset_bytes < draft_.end + count_size || a.offset_bytes % alignment != 0 ||
        uint64_t{a.offset_bytes} + size > given_.frame_size_bytes) {
      draft_.reject(a, "offset_bytes is " + std::to_string(a.offset_bytes) +
                           "; allowed is a multiple of " + std::to_string(alignment) +
                           " behind the argument before and inside the frame");
    }
    if (a.since != draft_.last_since) {
      if (first % 8 != 0)
        draft_.reject(a, "what a revision appends begins at a multiple of 8 bytes");
      draft_.add_size(draft_.last_since, first);
      draft_.last_since = a.since;
    }
    draft_.end = a.offset_bytes + size;
    read_enumeration(a);
    made_.described.push_back(a);
    made_.desc.arguments = made_.described.data();
  }

 private:
  void read_since(const bp_op_argument& a) {
    if (draft_.last_since == 0) draft_.last_since = given_.since;
    if (a.since < draft_.last_since || a.since > given_.revision) {
      draft_.reject(a, "since is " + std::to_string(a.since) + "; allowed are " +
                           std::to_string(draft_.last_since) +
                           ", that of the argument before, to " + std::to_string(given_.revision));
    }
    if (a.since > given_.since && !is_appendable(a.kind)) {
      draft_.reject(a, "an argument that a later revision appends must be one that may be absent");
    }
  }

  void read_enumeration(bp_op_argument& a) {
    const bool is_appended = a.since > given_.since;
    if (a.kind != BP_ARGUMENT_ENUM) {
      if (a.value_count != 0) draft_.reject(a, "it has values, and is no enumeration");
      return;
    }
    if (a.value_count == 0 || a.value_count > 256 || a.value_names == nullptr) {
      draft_.reject(a, "an enumeration has 1 to 256 values, and value_names");
    }
    if (a.first_value > (is_appended ? 0 : 1)) {
      draft_.reject(a, "first_value is " + std::to_string(a.first_value) + "; it must be 0" +
                           (is_appended ? ", because the argument is appended" : " or 1"));
    }
    auto& names = made_.lists.emplace_back();
    auto& revisions = made_.numbers.emplace_back();
    for (uint32_t i = 0; i < a.value_count; ++i) {
      const char* const name = a.value_names[i];
      if (name == nullptr || !is_member_name(name)) {
        draft_.reject(a, "value " + std::to_string(i) + " has no name in [a-z_][a-z0-9_]*");
      }
      const auto is_same = [&](const char* other) { return std::strcmp(other, name) == 0; };
      if (std::ranges::any_of(names, is_same)) {
        draft_.reject(a, "two of its values are called " + std::string(name));
      }
      names.push_back(draft_.keep(name));
      revisions.push_back(a.value_revisions == nullptr ? a.since : a.value_revisions[i]);
      const uint32_t before = i == 0 ? a.since : revisions[i - 1];
      if (revisions[i] < before || revisions[i] > given_.revision) {
        draft_.reject(a, std::string(name) + " came in revision " + std::to_string(revisions[i]) +
                             "; allowed are " + std::to_string(before) + " to " +
                             std::to_string(given_.revision));
      }
      if (revisions[i] == a.since) continue;
      made_.later.push_back({.offset = a.offset_bytes,
                             .value = a.first_value + i,
                             .revision = revisions[i],
                             .member = a.name,
                             .name = names.back()});
    }
    a.value_names = names.data();
    a.value_revisions = revisions.data();
  }

  OpDraft& draft_;
  const bp_op_desc& given_ = draft_.given;
  RuntimeOp& made_ = *draft_.made;
};

}  // namespace

void read_place(OpDraft& draft, const bp_op_argument& argument, uint64_t index) {
  PlaceReader(draft).read(argument, index);
}

}  // namespace bp::core
