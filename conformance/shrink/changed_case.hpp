// An op case whose shapes, layouts, fills and attributes differ from those in the suite, as data.
// `shrink` tries such cases, and `run --shrunk FILE` reads them. The key of the data stays the id
// of the suite's case and the number of the element.
#pragma once

#include <nlohmann/json.hpp>

#include "conformance/cases/case_list.hpp"
#include "conformance/cases/engine/op_case.hpp"

namespace bp::conformance {

// Returns the tensors and attributes of `op_case`.
nlohmann::json describe_call(const OpCase& op_case);

// Returns `base` with the tensors and attributes of `description`. Throws UsageError if they are
// not those of this op, or make no legal call.
OpCase changed_case(const OpCase& base, const nlohmann::json& description);

// Gives each output the shape that the op infers from the inputs, if it infers one.
void infer_outputs(OpCase& op_case);

// Makes the case of the suite that `json` names under "case", with changes. With "wants_program" it
// launches nothing, and leaves the standalone program in its details. Throws UsageError.
Case make_changed_case(const CaseList& suite, const nlohmann::json& json);

}  // namespace bp::conformance
