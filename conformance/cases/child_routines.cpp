#include "conformance/cases/child_routines.hpp"

#include <utility>

namespace bp::conformance {
namespace {

constexpr int kChildTimeoutS = 25;  // Below the deadline of a case.

}  // namespace

const std::vector<ChildRoutine>& child_routines() {
  static const std::vector<ChildRoutine> routines = {
      {"fork_after_probe", fork_after_probe},
      {"import_and_invert", import_and_invert},
      {"reload_many_times", reload_many_times},
      {"lose_and_reset", lose_and_reset},
      {"fail_allocations", fail_allocations},
      {"wait_for_shared_event", wait_for_shared_event},
      {"record_shared_event", record_shared_event},
      {"convert_by_blob", convert_by_blob},
  };
  return routines;
}

void run_in_child(Context& t, const char* routine, std::string argument, int descriptor,
                  int channel) {
  ChildTask task{.routine = routine,
                 .plugin = t.target().plugin->path,
                 .options = {},
                 .device = t.target().index,
                 .seed = t.seed(),
                 .argument = std::move(argument),
                 .descriptor = descriptor,
                 .channel = channel};
  if (task.plugin == "(static)") t.skip("the backend is linked into the program");
  for (const bp_option& option : t.subject().options) {
    task.options.emplace_back(option.key, option.value);
  }
  const ChildReport report = call_child(task, kChildTimeoutS);
  if (report.kind == ChildReport::Kind::kNotSupported) t.not_supported(report.message);
  if (report.kind == ChildReport::Kind::kFailed) {
    t.fail({report.message, report.cause, report.tag});
  }
}

}  // namespace bp::conformance
