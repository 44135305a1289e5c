// Compares what kernels declare about their arithmetic with probes. A false declaration fails
// info.declaration.<field>.<op>.<dtypes>, even if the op's other cases pass.
//
// Each probe leaves "declared" and "probed" in the details of its result. Failures have the cause
// "declaration".
#pragma once

#include "conformance/cases/engine/op_engine.hpp"
#include "conformance/cases/rules/rules.hpp"

namespace bp::conformance {

// Adds the probes of each op of `rows` that the op's class needs.
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

// Returns the call of `base` with `columns` as the data of its numbers. The tensors are vectors,
// unless `base` has several axes.
OpCase with_columns(const OpCase& base, std::vector<std::vector<double>> columns);

// Returns the declaration of the kernel that ran, for the dtype of its first output.
Numerics declared_numerics(const Observation& seen);

// Reports a declaration that a probe contradicts.
void report_false(Context& t, const std::string& field, const std::string& declared,
                  const std::string& probed, const std::string& evidence);
void report_true(Context& t, const std::string& declared, const std::string& probed);

}  // namespace bp::conformance
