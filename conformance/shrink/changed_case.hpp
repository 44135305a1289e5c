// An op case with other shapes, layouts, fills and attributes than the suite has, as data: what
// `shrink` tries, and what `run --shrunk FILE` reads. The data stay keyed by the id of the suite's
// case and the number of the element.
#pragma once

#include <nlohmann/json.hpp>

#include "conformance/cases/case_list.hpp"
#include "conformance/cases/engine/op_case.hpp"

namespace bp::conformance {

// The tensors and attributes of `op_case`.
nlohmann::json describe_call(const OpCase& op_case);

// `base` with the tensors and attributes of `description`. Throws UsageError where they are not
// those of this op, or make no legal call.
OpCase changed_case(const OpCase& base, const nlohmann::json& description);

// Gives each output the shape that the op infers from the inputs, where it infers one.
void infer_outputs(OpCase& op_case);

// The case of the suite that `json` names under "case", changed. With "wants_program" it launches
// nothing, and leaves the standalone program in its details. Throws UsageError.
Case make_changed_case(const CaseList& suite, const nlohmann::json& json);

}  // namespace bp::conformance
