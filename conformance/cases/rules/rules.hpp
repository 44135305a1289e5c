// Rows that every op gets by rule, from the rows that its family wrote: the class of an op in
// ops.def decides which rules apply to it, never its name.
//
// rule_layouts.cpp lays the tensors of a row out in other ways; rule_fills.cpp fills them with
// other data.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "conformance/case.hpp"
#include "conformance/cases/engine/op_facts.hpp"
#include "conformance/cases/engine/op_judge.hpp"

namespace bp::conformance {

// Rows of one op whose tensors have the same dtypes. They differ in shape, attributes and data.
using Group = std::vector<const OpCase*>;
std::vector<Group> groups_of(const OpCases& rows);

// A list that takes only rows whose id is new.
class RowList {
 public:
  explicit RowList(const OpCases& given);

  void add(OpCase row);            // Adds the row if it is a legal call.
  void add_unchecked(OpCase row);  // Adds a row that is known to be legal.
  OpCases take() { return std::move(rows_); }

 private:
  std::set<std::string> ids_;
  OpCases rows_;
};

void add_layout_rows(RowList& rows, const Group& group);
void add_alias_rows(RowList& rows, const Group& group);
void add_shape_rows(RowList& rows, const Group& group);
void add_fill_rows(RowList& rows, const Group& group);
void add_index_rows(RowList& rows, const Group& group);  // Adds rows with i32 indices.

// Appends the rows of all rules to those of a family.
void add_rows_by_rule(OpCases& rows);

// Puts rows of the dtypes that tier smoke does not have yet at this tier.
void add_smoke_sample(OpCases& rows);

// Returns the rows of right calls that together show the most layouts, attributes and kinds of
// shapes; at most `most_rows`.
std::vector<const OpCase*> most_telling(const Group& group, size_t most_rows);

// ---- What the rules ask of a row ---------------------------------------------------------------

// Returns whether the row is dense, has elements in every tensor, is not wrong on purpose, and has
// data that any kernel takes.
bool is_plain(const OpCase& row);

// Returns the plain row of the highest rank; among rows of that rank, the one whose data show most.
// Returns NULL if there is none.
const OpCase* widest(const Group& group);

// Returns the widest row of the first group of each op that has one.
std::vector<const OpCase*> widest_of_each_op(const OpCases& rows);

// Returns plain rows of different ranks, the highest first.
std::vector<const OpCase*> rows_by_rank(const Group& group, size_t most);

// Returns whether each element of the result depends only on the elements at its own place.
bool is_elementwise(const OpCase& row);

// Returns a text that rows of one op share if they have the same attributes.
std::string attributes_key(const OpCase& row);

// ---- What kernels promise ----------------------------------------------------------------------

// A sentence about the kernels of an op, and the function that checks it on rows of the op.
struct Promise {
  const char* sentence;
  std::vector<std::string> tags;
  void (*check)(Context&, const OpCases&);
  Tier tier = Tier::kSmoke;
};

// Adds "kernel.<sentence>.<op>" for each op, over the first plain rows of each of its dtypes.
void add_promise(std::vector<Case>& cases, const OpCases& rows, const char* group,
                 const Promise& promise);

// Adds the case of a promise for the op of `rows`, over these rows.
void add_promise_case(std::vector<Case>& cases, OpCases rows, const char* group,
                      const Promise& promise);

// Judges the result of several launches of one call, unless each reads what the one before wrote.
void require_right(Context& t, const OpCase& row, const Verdict& verdict);

// Adds the cases about the kernels of each op in `rows`: their answers to unknown flags and to
// tensors without memory.
void add_kernel_rules(std::vector<Case>& cases, const OpCases& rows, const char* group);

// Adds a case for each op in `rows` about launches with plans.
void add_plan_rule(std::vector<Case>& cases, const OpCases& rows, const char* group);

// Adds a case for each op in `rows` about launches between pages without access.
void add_edge_rule(std::vector<Case>& cases, const OpCases& rows, const char* group);

// Adds the cases for each op in `rows` about launches beside each other.
void add_flight_rules(std::vector<Case>& cases, const OpCases& rows, const char* group);

// Adds the cases for each op in `rows` about what launch() may not do: allocate and leave something
// behind.
void add_launch_rules(std::vector<Case>& cases, const OpCases& rows, const char* group);

// Adds a case for each op in `rows` about the workspace of launches.
void add_workspace_rule(std::vector<Case>& cases, const OpCases& rows, const char* group);

// Adds a case for each op in `rows` about launches while their stream waits.
void add_wait_rule(std::vector<Case>& cases, const OpCases& rows, const char* group);

// Adds a case for each op in `rows` about captured launches.
void add_graph_rule(std::vector<Case>& cases, const OpCases& rows, const char* group);

// Adds a case for each op in `rows` about operands in acc(x).
void add_acc_operand_rule(std::vector<Case>& cases, const OpCases& rows, const char* group);

// Adds the cases for each op in `rows` about links and flags of tensors.
void add_link_rules(std::vector<Case>& cases, const OpCases& rows, const char* group);

// Adds a case for each op in `rows` about launches with arguments in layouts.
void add_layout_rule(std::vector<Case>& cases, const OpCases& rows, const char* group);

}  // namespace bp::conformance
