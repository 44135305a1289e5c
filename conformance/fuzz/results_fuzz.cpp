// Reads results.jsonl, info.json and summary.json of a run, which follow each other with a zero
// byte in between. Files that cannot be read must give a UsageError; others can be compared, and
// have clean texts.
#include <string>

#include "api/fuzz/fuzz.hpp"
#include "conformance/report/diff.hpp"
#include "conformance/usage_error.hpp"

namespace {

std::string take_part(std::string& rest) {
  const size_t end = rest.find('\0');
  std::string part = rest.substr(0, end);
  rest.erase(0, end == std::string::npos ? end : end + 1);
  return part;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace bp::conformance;  // NOLINT: the target tests this module alone.
  using bp::fuzz::check;
  std::string rest(bp::fuzz::text_of(data, size));
  const std::string results = take_part(rest), info = take_part(rest), summary = take_part(rest);
  try {
    const StoredRun run = StoredRun::parse("run", results, info, summary);
    const RunDiff diff = diff_runs(run, run);
    check(diff.new_failures.empty() || !run.cases().empty(), "a run of nothing has no failures");
    check(diff_text(diff, run, run, 0).find('\x1b') == std::string::npos, "no escape is shown");
    for (const StoredCase& stored : run.cases()) {
      check(run.find(stored.id) == &stored, "a case is found by its id", stored.id);
      check(stored.id.find('\n') == std::string::npos, "an id is one line", stored.id);
    }
    check(run.whole_bytes() <= results.size(), "whole lines are within the text");
  } catch (const UsageError& e) {
    check(std::string_view(e.what()).starts_with("run/"), "a refusal names the file", e.what());
  }
  return 0;
}
