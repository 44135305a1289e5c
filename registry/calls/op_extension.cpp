// Compares two descriptions of one name.
#include <algorithm>
#include <cstring>
#include <string>

#include "registry/calls/op_texts.hpp"
#include "registry/calls/runtime_op.hpp"

namespace bp::core {
namespace {

// Compares two texts without their spaces; NULL is "".
bool is_same_rule(const char* a, const char* b) {
  const auto packed = [](const char* text) {
    std::string result = text == nullptr ? "" : text;
    std::erase(result, ' ');
    return result;
  };
  return packed(a) == packed(b);
}

// Returns what differs between two descriptions of one argument, or NULL.
const char* difference(const bp_op_argument& shorter, const bp_op_argument& longer) {
  if (std::strcmp(shorter.name, longer.name) != 0) return "the name";
  if (shorter.kind != longer.kind) return "the kind";
  if (shorter.offset_bytes != longer.offset_bytes) return "offset_bytes";
  if (shorter.since != longer.since) return "since";
  if (shorter.may_alias != longer.may_alias) return "may_alias";
  for (const auto& [member, name] : kArgumentRules) {
    if (!is_same_rule(shorter.*member, longer.*member)) return name;
  }
  if (shorter.value_count > longer.value_count) return "value_count";
  for (uint32_t i = 0; i < shorter.value_count; ++i) {
    if (std::strcmp(shorter.value_names[i], longer.value_names[i]) != 0) return "value_names";
    if (shorter.value_revisions[i] != longer.value_revisions[i]) return "value_revisions";
  }
  return nullptr;
}

// Returns how many values of `a` a description of `revision` has.
uint32_t values_in(const bp_op_argument& a, uint32_t revision) {
  return static_cast<uint32_t>(std::count_if(a.value_revisions, a.value_revisions + a.value_count,
                                             [=](uint32_t since) { return since <= revision; }));
}

std::string only_one_has(const bp_op_argument& argument, uint32_t revision) {
  return std::string("only one of them has ") + argument.name + " in revision " +
         std::to_string(revision);
}

}  // namespace

std::string extension_defect(const RuntimeOp& shorter, const RuntimeOp& longer) {
  const std::string head = std::string(longer.name) + " has another description: ";
  const uint32_t revision = shorter.revision;
  if (shorter.desc.since != longer.desc.since) return head + "since differs";
  for (size_t i = 0; i < shorter.described.size(); ++i) {
    const bp_op_argument& ours = shorter.described[i];
    if (i == longer.described.size()) return head + only_one_has(ours, revision);
    const char* const what = difference(ours, longer.described[i]);
    if (what != nullptr) return head + what + " of " + ours.name + " differs";
    const bp_op_argument& theirs = longer.described[i];
    if (theirs.value_count != 0 && values_in(theirs, revision) != ours.value_count) {
      return head + "the values of " + ours.name + " in revision " + std::to_string(revision) +
             " differ";
    }
  }
  for (size_t i = shorter.described.size(); i < longer.described.size(); ++i) {
    if (longer.described[i].since > revision) continue;
    return head + only_one_has(longer.described[i], revision);
  }
  if (longer.size_in(revision) != shorter.frame_size_bytes) {
    return head + "the frame of revision " + std::to_string(revision) + " has another size";
  }
  return "";
}

}  // namespace bp::core
