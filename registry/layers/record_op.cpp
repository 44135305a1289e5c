#include "registry/layers/record_op.hpp"

#include "registry/calls/op_texts.hpp"
#include "registry/calls/runtime_op.hpp"
#include "registry/calls/runtime_ops.hpp"

namespace bp::layers {
namespace {

// What is not given is left out.
void add_text(Json& json, const char* name, const char* text) {
  if (text != nullptr && *text != '\0') json[name] = text;
}

Json argument_json(const bp_op_argument& a) {
  Json json = {{"name", a.name},
               {"kind", a.kind},
               {"offset_bytes", a.offset_bytes},
               {"since", a.since},
               {"may_alias", a.may_alias}};
  for (const auto& [member, name] : kArgumentRules) add_text(json, name, a.*member);
  for (const auto& [member, name] : kArgumentTexts) add_text(json, name, a.*member);
  if (a.value_count == 0) return json;
  json["first_value"] = a.first_value;
  json["values"] = std::vector<std::string>(a.value_names, a.value_names + a.value_count);
  json["value_revisions"] =
      std::vector<uint32_t>(a.value_revisions, a.value_revisions + a.value_count);
  return json;
}

}  // namespace

Json op_json(const core::OpRow& row) {
  const core::RuntimeOp& op = core::runtime_op(row);
  const bp_op_desc& desc = op.desc;
  Json json = {{"since", desc.since},
               {"revision", desc.revision},
               {"frame_size_bytes", desc.frame_size_bytes},
               {"formula_revision", desc.formula_revision},
               {"backward_revision", desc.backward_revision},
               {"infers", op.infers},
               {"arguments", Json::array()}};
  for (const auto& [member, name] : kOpTexts) add_text(json, name, desc.*member);
  for (const bp_op_argument& a : op.described) json["arguments"].push_back(argument_json(a));
  return json;
}

}  // namespace bp::layers
