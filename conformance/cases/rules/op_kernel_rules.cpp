// Cases for the offer of a kernel: unknown launch flags, and questions without memory. There is one
// case of each kind for every op, on its first plain row.
#include <memory>
#include <set>

#include "conformance/cases/engine/op_engine.hpp"
#include "conformance/cases/rules/rules.hpp"

namespace bp::conformance {
namespace {

constexpr bp_launch_flags kUnknownFlag = 1u << 31;

Probe probe(Context& t, const OpCase& op_case) {
  require_listed(t, op_case);
  const CallData data(op_case, t.seed());
  const Probe seen = probe_kernel(t, op_case, data, kUnknownFlag);
  if (!seen.has_kernel) t.not_supported("the backend has no kernel for this call");
  return seen;
}

void unknown_launch_flag_is_refused(Context& t, const OpCase& op_case) {
  const Probe seen = probe(t, op_case);
  t.expect_eq(seen.status, BP_UNSUPPORTED, "launch with an unknown flag");
  if (seen.status != BP_OK && seen.text.empty()) {
    t.add({"the launch was refused without an error text", "no_text", "ERROR-1"});
  }
  if (seen.status == BP_UNSUPPORTED && !seen.is_untouched) {
    t.add({"the launch was refused, and memory has changed", "submitted", "KERNEL-5"});
  }
}

void supports_needs_no_buffers(Context& t, const OpCase& op_case) {
  const Probe seen = probe(t, op_case);
  const auto text = [](bp_reason reason) {
    return reason == nullptr ? std::string("yes") : "no: " + std::string(reason);
  };
  t.expect_eq(text(seen.without_buffers), text(seen.with_buffers), "supports without buffers");
}

struct Rule {
  const char* sentence;
  std::vector<std::string> tags;
  void (*run)(Context&, const OpCase&);
};

}  // namespace

void add_kernel_rules(std::vector<Case>& cases, const OpCases& rows, const char* group) {
  static const Rule kRules[] = {
      {"unknown_launch_flag_is_refused", {"KERNEL-2", "KERNEL-5"}, unknown_launch_flag_is_refused},
      {"supports_needs_no_buffers", {"KERNEL-4"}, supports_needs_no_buffers},
  };
  std::set<uint32_t> seen;
  for (const OpCase& row : rows) {
    const bool is_plain = row.layout == "dense" && row.is_smoke && !row.fails_on_device;
    if (!is_plain || !seen.insert(row.op).second) continue;
    const auto shared = std::make_shared<const OpCase>(row);
    for (const Rule& rule : kRules) {
      Case entry;
      entry.id = std::string("kernel.") + rule.sentence + "." + std::string(op_info(row.op).name);
      entry.tags = rule.tags;
      entry.group = group;
      entry.op = row.op;
      entry.dtype = row.dtype;
      entry.run = [shared, &rule](Context& t) { rule.run(t, *shared); };
      cases.push_back(std::move(entry));
    }
  }
}

}  // namespace bp::conformance
