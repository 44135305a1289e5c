// Cases for links and flags of tensors: a kernel gets no call with what it does not know, and gives
// with an ignorable link what it gives without one.
#include <set>
#include <string>
#include <vector>

#include "conformance/cases/engine/host_call.hpp"
#include "conformance/cases/engine/op_engine.hpp"
#include "conformance/cases/rules/rules.hpp"

namespace bp::conformance {
namespace {

constexpr uint32_t kUnknownLink = 0x7fff0000;  // The block that nobody has (versioning.md).
constexpr uint32_t kUnknownFlag = 1u << 31;

struct Found {
  bp_status status;
  std::string text;
};

// Asks for a kernel. No tensor has memory, and the question needs none.
Found find(Context& t, const OpCase& row, HostCall& call, bp_kernel_sources sources = 0) {
  for (size_t i = 0; i < row.tensors.size(); ++i) call.tensor(i).buffer = nullptr;
  bp_kernel_choice choice{};
  const bp_status status =
      bp_kernel_find(&t.target(), 0, sources, row.op, call.frame().data(), &choice);
  Found found{status, status == BP_OK ? choice.kernel->name : bp_error_text()};
  bp_error_clear();
  return found;
}

void expect_unoffered(Context& t, const Found& found, const std::string& what,
                      const std::string& named) {
  if (found.status == BP_OK) {
    t.add({what + " is offered to " + found.text, "offered", "KERNEL-12"});
    return;
  }
  t.expect_eq(found.status, BP_UNSUPPORTED, what);
  t.expect(found.text.find(named) != std::string::npos,
           what + ": the text does not name " + named + ": " + found.text);
}

// Tries a link and a flag on each tensor of the first row that a kernel takes without them.
void unknown_link_is_not_offered(Context& t, const OpCases& rows) {
  const bp_struct_header link{sizeof(link), kUnknownLink | BP_STRUCT_MUST_UNDERSTAND, nullptr};
  for (const OpCase& row : rows) {
    if (!is_listed(t, row)) continue;
    HostCall call(row);
    if (find(t, row, call, BP_KERNEL_NATIVE).status != BP_OK) continue;
    for (size_t i = 0; i < row.tensors.size(); ++i) {
      const std::string name(row.tensors[i].name);
      call.tensor(i).next = &link;
      expect_unoffered(t, find(t, row, call), name + " with a link that nobody knows",
                       std::to_string(kUnknownLink));
      call.tensor(i).next = nullptr;
      call.tensor(i).flags = kUnknownFlag;
      expect_unoffered(t, find(t, row, call), name + " with a flag that nobody knows", "bit 31");
      call.tensor(i).flags = 0;
    }
    return;
  }
  t.not_supported("the backend has no kernel for a call of this op");
}

void ignorable_link_changes_nothing(Context& t, const OpCases& rows) {
  for (const OpCase& row : rows) {
    if (!is_listed(t, row)) continue;
    const CallData data(row, t.seed());
    const Observation plain = observe_native(t, row, data),
                      linked = observe_native(t, row, data, {.has_ignorable_links = true});
    if (linked.kernel != plain.kernel) {
      t.fail(
          {row.id() + ": " + linked.kernel->name + " is chosen in place of " + plain.kernel->name,
           "choice", "LINK-1"});
    }
    const Verdict verdict = judge(row, data, linked);
    if (!verdict.is_right() && judge(row, data, plain).is_right()) {
      t.fail({row.id() + ": " + verdict.message, verdict.cause, "LINK-1"});
    }
  }
}

}  // namespace

void add_link_rules(std::vector<Case>& cases, const OpCases& rows, const char* group) {
  add_promise(cases, rows, group,
              {"unknown_link_is_not_offered", {"KERNEL-12"}, unknown_link_is_not_offered});
  OpCases first;  // One row of each dtype is enough.
  std::set<std::string> seen;
  for (const OpCase& row : rows) {
    if (is_plain(row) && seen.insert(std::to_string(row.op) + " " + row.dtype).second) {
      first.push_back(row);
    }
  }
  add_promise(cases, first, group,
              {"ignorable_link_changes_nothing", {"LINK-1"}, ignorable_link_changes_nothing});
}

}  // namespace bp::conformance
