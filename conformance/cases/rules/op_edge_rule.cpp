// Cases for the memory that a kernel touches. Tensors and workspace end at pages without access,
// once behind them and once before them. Elsewhere, a kernel that reads one element too far reads a
// canary and can still be right; here the read ends the process. There is one case for each op,
// over the first plain rows of each dtype, on devices that can use memory of the host.
#include "conformance/cases/engine/op_engine.hpp"
#include "conformance/cases/rules/rules.hpp"

namespace bp::conformance {
namespace {

// Ends the case as NotSupported if memory of the host cannot be lent to the device.
void require_registration(Context& t) {
  const bp_allocator_ops& memory = *t.target().allocator;
  FencedPages pages(1);
  bp_buffer* lent = nullptr;
  const bp_status status =
      memory.register_host(memory.self, t.target().device, pages.data(), pages.size_bytes(), &lent);
  if (status == BP_UNSUPPORTED) t.not_supported(bp_error_text());
  t.require_ok(status, "memory.register_host");
  t.require_ok(memory.unregister_host(memory.self, lent), "memory.unregister_host");
}

// Returns false if the backend has no kernel for the call.
bool check_row(Context& t, const OpCase& row, Edge edge) {
  const CallData data(row, t.seed());
  Variant variant;
  variant.edge = edge;
  Observation seen;
  try {
    seen = observe(t, row, data, variant);
  } catch (const NoKernel&) {
    return false;
  }
  if (seen.source != BP_KERNEL_NATIVE) return false;
  if (seen.launch_status != BP_OK || seen.stream_status != BP_OK) {
    const bool is_launched = seen.launch_status == BP_OK;
    t.fail({row.id() + (is_launched ? ": the stream failed: " : ": the launch failed: ") +
                bp_status_name(is_launched ? seen.stream_status : seen.launch_status) + ": " +
                seen.status_text,
            is_launched ? "stream_failure" : "launch", "KERNEL-8"});
  }
  const Verdict verdict = judge(row, data, seen);
  if (!verdict.is_right()) t.fail({row.id() + ": " + verdict.message, verdict.cause, verdict.tag});
  return true;
}

void launch_stays_between_pages(Context& t, const OpCases& rows) {
  require_registration(t);
  size_t launches = 0;
  for (const OpCase& row : rows) {
    if (!is_listed(t, row)) continue;
    for (const Edge edge : {Edge::kRight, Edge::kLeft}) {
      t.begin_part(row.id() + (edge == Edge::kRight ? " before" : " behind") +
                   " pages without access");
      launches += check_row(t, row, edge);
    }
  }
  if (launches == 0) t.not_supported("the backend has no kernel for these calls");
  t.metric("launches", static_cast<double>(launches));
}

}  // namespace

void add_edge_rule(std::vector<Case>& cases, const OpCases& rows, const char* group) {
  add_promise(cases, rows, group,
              {"launch_stays_between_pages",
               {"KERNEL-8", "MEMORY-15"},
               launch_stays_between_pages,
               Tier::kQuick});
}

}  // namespace bp::conformance
