// Reads perf.json as a baseline. A file that cannot be read must give a UsageError that names it.
// Any other file is compared with a run that measured nothing.
#include <string>

#include "api/fuzz/fuzz.hpp"
#include "conformance/perf/baseline.hpp"
#include "conformance/usage_error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace bp::conformance;  // NOLINT: the target tests this module alone.
  using bp::fuzz::check;
  try {
    const Baseline baseline =
        Baseline::parse(std::string(bp::fuzz::text_of(data, size)), "perf.json");
    const Comparison comparison = baseline.compare(PerfSummary{}, nlohmann::json::object(), 0.05);
    check(comparison.compared == 0, "nothing was measured");
    try {
      baseline.require_comparable(nlohmann::json::object());
    } catch (const UsageError& e) {
      check(std::string_view(e.what()).find("perf.json") != std::string_view::npos,
            "a refusal names the file", e.what());
    }
  } catch (const UsageError& e) {
    check(std::string_view(e.what()).starts_with("perf.json:"), "a refusal names the file",
          e.what());
  }
  return 0;
}
