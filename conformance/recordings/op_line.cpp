#include "conformance/recordings/op_line.hpp"

#include <deque>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "conformance/usage_error.hpp"
#include "registry/calls/op_texts.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;

// What a description points to.
struct Texts {
  std::deque<std::string> texts;
  std::deque<std::vector<const char*>> lists;
  std::deque<std::vector<uint32_t>> numbers;

  const char* text(const json& value, const char* name) {
    const auto found = value.find(name);
    return found == value.end() ? nullptr : texts.emplace_back(found->get<std::string>()).c_str();
  }
};

// Stands for the infer() of the backend until that is loaded.
bp_status no_infer(void*, const void*, uint32_t, bp_op_output*) { return BP_NOT_FOUND; }

bp_op_argument read_argument(const json& value, Texts& texts) {
  bp_op_argument a{};
  a.struct_size = sizeof(a);
  a.struct_type = BP_STRUCT_OP_ARGUMENT;
  a.name = texts.text(value, "name");
  value.at("kind").get_to(a.kind);
  value.at("offset_bytes").get_to(a.offset_bytes);
  value.at("since").get_to(a.since);
  value.at("may_alias").get_to(a.may_alias);
  for (const auto& [member, name] : kArgumentRules) a.*member = texts.text(value, name);
  for (const auto& [member, name] : kArgumentTexts) a.*member = texts.text(value, name);
  if (!value.contains("values")) return a;
  std::vector<const char*>& names = texts.lists.emplace_back();
  for (const json& each : value.at("values")) {
    names.push_back(texts.texts.emplace_back(each.get<std::string>()).c_str());
  }
  std::vector<uint32_t>& revisions = texts.numbers.emplace_back();
  value.at("value_revisions").get_to(revisions);
  if (revisions.size() != names.size()) {
    throw UsageError(std::string("describes ") + a.name + " with " + std::to_string(names.size()) +
                     " values and " + std::to_string(revisions.size()) + " revisions");
  }
  value.at("first_value").get_to(a.first_value);
  a.value_names = names.data();
  a.value_revisions = revisions.data();
  a.value_count = static_cast<uint32_t>(names.size());
  return a;
}

}  // namespace

RecordedOps::RecordedOps() {
  if (bp_registry_create(nullptr, &registry_) != BP_OK) throw std::runtime_error(bp_error_text());
}

RecordedOps::~RecordedOps() { static_cast<void>(bp_registry_destroy(registry_)); }

void RecordedOps::add(const json& line) {
  const json& value = line.at("description");
  Texts texts;
  std::vector<bp_op_argument> arguments;
  for (const json& each : value.at("arguments")) arguments.push_back(read_argument(each, texts));
  bp_op_desc desc{};
  desc.struct_size = sizeof(desc);
  desc.struct_type = BP_STRUCT_OP_DESC;
  desc.name = texts.text(line, "op");
  value.at("since").get_to(desc.since);
  value.at("revision").get_to(desc.revision);
  value.at("frame_size_bytes").get_to(desc.frame_size_bytes);
  value.at("formula_revision").get_to(desc.formula_revision);
  value.at("backward_revision").get_to(desc.backward_revision);
  desc.arguments = arguments.data();
  desc.argument_count = arguments.size();
  desc.argument_stride_bytes = sizeof(bp_op_argument);
  for (const auto& [member, name] : kOpTexts) desc.*member = texts.text(value, name);
  if (value.at("infers").get<bool>()) desc.infer = no_infer;
  uint32_t op = 0;
  bp_add_result result{};
  if (bp_registry_add_ops(registry_, 1, &desc, sizeof(desc), &op, &result) != BP_OK) {
    throw std::runtime_error(bp_error_text());
  }
  if (op != 0) return;
  throw UsageError(std::string("describes ") + desc.name +
                   " in a way that this host rejects: " + result.reason);
}

}  // namespace bp::conformance
