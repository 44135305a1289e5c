#include "registry/layers/record_op.hpp"

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
  add_text(json, "dtype_rule", a.dtype_rule);
  add_text(json, "default_dtype", a.default_dtype);
  add_text(json, "shape_rule", a.shape_rule);
  add_text(json, "rank_rule", a.rank_rule);
  add_text(json, "count_rule", a.count_rule);
  add_text(json, "at_least", a.at_least);
  add_text(json, "at_most", a.at_most);
  add_text(json, "below", a.below);
  add_text(json, "default_text", a.default_text);
  add_text(json, "doc", a.doc);
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
  add_text(json, "doc", desc.doc);
  add_text(json, "numerics", desc.numerics);
  add_text(json, "decomposition", desc.decomposition);
  add_text(json, "backward", desc.backward);
  for (const bp_op_argument& a : op.described) json["arguments"].push_back(argument_json(a));
  return json;
}

}  // namespace bp::layers
