// Cases for the workspace of launches. A launch gets exactly the bytes that the kernel asked for,
// at the smallest alignment that hosts promise, with any content: also what an earlier launch on
// other data has left there. There is one case for each op, over the largest of its first plain
// rows of each dtype whose kernel needs workspace.
#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "conformance/cases/engine/op_engine.hpp"
#include "conformance/cases/engine/op_flight.hpp"
#include "conformance/cases/fixtures/fixtures.hpp"
#include "conformance/cases/rules/rules.hpp"

namespace bp::conformance {
namespace {

constexpr uint64_t kOtherData = 0x9E3779B97F4A7C15u;

std::string text_of(const WorkspaceBytes& bytes) {
  return std::to_string(bytes.required) + " bytes required and " + std::to_string(bytes.preferred) +
         " preferred";
}

// Launches on other data, and then on this data with what that launch has left in the workspace.
void check_launches(Context& t, const OpCase& row, Flight& first, Flight& other,
                    uint64_t size_bytes, const char* which) {
  first.make_workspace(size_bytes);
  other.share_workspace(first);
  first.prepare(Poison::kNan);
  other.prepare(Poison::kOnes);
  finish(t, first.stream());  // The memory of the workspace is filled on this stream.
  for (Flight* const flight : {&other, &first}) {
    const bp_status status = flight->launch();
    const Verdict verdict = flight->land(status, status == BP_OK ? "" : bp_error_text());
    if (verdict.is_right()) continue;
    const char* const content =
        flight == &first ? "what another launch has left in it" : "poison in it";
    t.fail({row.id() + ", with the " + which + " workspace of " + std::to_string(size_bytes) +
                " bytes and " + content + ": " + verdict.message,
            verdict.cause, verdict.tag.empty() ? "KERNEL-8" : verdict.tag});
  }
}

void expect_same(Context& t, const OpCase& row, const WorkspaceBytes& asked,
                 const WorkspaceBytes& again, const char* when) {
  if (again == asked) return;
  t.add({row.id() + ": the kernel asked for a workspace of " + text_of(asked) + ", and " + when +
             " for one of " + text_of(again),
         "workspace", "KERNEL-15"});
}

// Returns false if no kernel of the backend takes the call by strides and needs workspace.
bool check_row(Context& t, const OpCase& row) {
  Flight first(t, row, CallData(row, t.seed()));
  if (first.kernel() == nullptr || !first.is_direct()) return false;
  const WorkspaceBytes asked = first.ask();
  if (asked == WorkspaceBytes{}) return false;
  Flight other(t, row, CallData(row, t.seed() ^ kOtherData));
  check_launches(t, row, first, other, asked.required, "required");
  if (asked.preferred > asked.required) {
    check_launches(t, row, first, other, asked.preferred, "preferred");
  }
  // By now, every tensor of the call has another content than when the kernel was asked first.
  expect_same(t, row, asked, first.ask(), "for the same call again, after a launch");
  expect_same(t, row, asked, first.ask_without_buffers(), "for tensors without buffers");
  return true;
}

// Returns the elements of all tensors of the row. Where results have few elements, those of two
// launches on different data can be equal.
int64_t size_of(const OpCase& row) {
  int64_t count = 0;
  for (const TensorArgument& argument : row.tensors) count += element_count(argument.shape);
  return count;
}

void any_workspace_of_the_size_serves(Context& t, const OpCases& rows) {
  std::vector<const OpCase*> sorted;
  for (const OpCase& row : rows) sorted.push_back(&row);
  std::ranges::stable_sort(sorted, std::ranges::greater(),
                           [](const OpCase* row) { return size_of(*row); });
  std::set<std::string> seen;
  for (const OpCase* row : sorted) {
    if (!is_listed(t, *row) || seen.contains(row->dtype)) continue;
    t.begin_part(row->id());
    if (check_row(t, *row)) seen.insert(row->dtype);
  }
  if (seen.empty()) {
    t.not_supported("no kernel of the backend takes these calls by strides and needs workspace");
  }
  t.metric("calls", static_cast<double>(seen.size()));
}

}  // namespace

void add_workspace_rule(std::vector<Case>& cases, const OpCases& rows, const char* group) {
  add_promise(cases, rows, group,
              {"any_workspace_of_the_size_serves",
               {"KERNEL-8", "KERNEL-9", "KERNEL-15"},
               any_workspace_of_the_size_serves});
}

}  // namespace bp::conformance
