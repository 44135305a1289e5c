// What kernels declare about their arithmetic, against probes: a false declaration fails
// info.declaration.<field>.<op>.<dtypes>, whatever the results of the op's other cases are.
//
// Each probe leaves "declared" and "probed" in the details of its result. Failures have the cause
// "declaration".
#pragma once

#include "conformance/cases/engine/op_engine.hpp"
#include "conformance/cases/rules/rules.hpp"

namespace bp::conformance {

// Adds the probes of each op of `rows` that its class calls for.
void add_declaration_cases(std::vector<Case>& cases, const OpCases& rows);

// A probe of one field: a row of the op, and the body that runs it.
struct Probing {
  const char* field;
  OpCase row;
  void (*run)(Context& t, const OpCase& row);
};
using Probings = std::vector<Probing>;

void add_element_probes(Probings& probes, const Group& group);
void add_sum_probes(Probings& probes, const Group& group);
void add_implied_probes(Probings& probes, const Group& group);

// The call that `base` makes, with `columns` as the data of its numbers: a vector, unless the base
// is one of several axes.
OpCase with_columns(const OpCase& base, std::vector<std::vector<double>> columns);

// The declaration of the kernel that ran, for the dtype of its first output.
Numerics declared_numerics(const Observation& seen);

// Reports a declaration that a probe contradicts.
void report_false(Context& t, const std::string& field, const std::string& declared,
                  const std::string& probed, const std::string& evidence);
void report_true(Context& t, const std::string& declared, const std::string& probed);

}  // namespace bp::conformance
