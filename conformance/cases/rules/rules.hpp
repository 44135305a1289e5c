// Rows that every op gets by rule, from the rows that its family wrote: what an op meets follows
// from its class in ops.def, never from its name.
//
// rule_layouts.cpp lays the tensors of a row out in other ways; rule_fills.cpp fills them with
// other data.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "conformance/case.hpp"
#include "conformance/cases/engine/op_facts.hpp"

namespace bp::conformance {

// Rows of one op whose tensors have the same dtypes: what differs is shape, attributes and data.
using Group = std::vector<const OpCase*>;
std::vector<Group> groups_of(const OpCases& rows);

// Rows whose id is new.
class RowList {
 public:
  explicit RowList(const OpCases& given);

  void add(OpCase row);            // Unless it is no legal call.
  void add_unchecked(OpCase row);  // Of which it is known.
  OpCases take() { return std::move(rows_); }

 private:
  std::set<std::string> ids_;
  OpCases rows_;
};

void add_layout_rows(RowList& rows, const Group& group);
void add_alias_rows(RowList& rows, const Group& group);
void add_shape_rows(RowList& rows, const Group& group);
void add_fill_rows(RowList& rows, const Group& group);
void add_index_rows(RowList& rows, const Group& group);  // The indices in i32.

// Appends the rows of all rules to those of a family.
void add_rows_by_rule(OpCases& rows);

// ---- What the rules ask of a row ---------------------------------------------------------------

// Dense, with elements in every tensor, not wrong on purpose, and with data that any kernel takes.
bool is_plain(const OpCase& row);

// The plain row of the highest rank, and of its rank the one whose data show most; NULL if none.
const OpCase* widest(const Group& group);

// The widest row of the first group of each op that has one.
std::vector<const OpCase*> widest_of_each_op(const OpCases& rows);

// Plain rows of different ranks, the highest first.
std::vector<const OpCase*> rows_by_rank(const Group& group, size_t most);

// Each element of the result depends on the elements at its own place alone.
bool is_elementwise(const OpCase& row);

// ---- What kernels promise ----------------------------------------------------------------------

// A sentence about the kernels of an op, and what checks it on rows of it.
struct Promise {
  const char* sentence;
  std::vector<std::string> tags;
  void (*check)(Context&, const OpCases&);
  Tier tier = Tier::kSmoke;
};

// Adds "kernel.<sentence>.<op>" for each op, over the first plain rows of each of its dtypes.
void add_promise(std::vector<Case>& cases, const OpCases& rows, const char* group,
                 const Promise& promise);

// Adds the cases about the kernels of each op in `rows`: what they say to unknown flags and of
// tensors without memory.
void add_kernel_rules(std::vector<Case>& cases, const OpCases& rows, const char* group);

// Adds a case for each op in `rows` about launches with plans.
void add_plan_rule(std::vector<Case>& cases, const OpCases& rows, const char* group);

// Adds a case for each op in `rows` about launches between pages without access.
void add_edge_rule(std::vector<Case>& cases, const OpCases& rows, const char* group);

// Adds a case for each op in `rows` about captured launches.
void add_graph_rule(std::vector<Case>& cases, const OpCases& rows, const char* group);

// Adds a case for each op in `rows` about launches with arguments in layouts.
void add_layout_rule(std::vector<Case>& cases, const OpCases& rows, const char* group);

}  // namespace bp::conformance
