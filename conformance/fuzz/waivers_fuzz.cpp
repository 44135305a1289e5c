// Reads waivers.yaml. A file that cannot be read must give a UsageError that names it. Any other
// file has the members that each waiver needs.
#include <string>

#include "api/fuzz/fuzz.hpp"
#include "conformance/cases/selection.hpp"
#include "conformance/report/waivers.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace bp::conformance;  // NOLINT: the target tests this module alone.
  using bp::fuzz::check;
  static const CaseList cases = [] {
    std::vector<Case> all(3);
    const char* const ids[] = {"stream.a", "stream.b", "op.add.f32"};
    for (size_t i = 0; i < all.size(); ++i) {
      all[i].id = ids[i];
      all[i].run = [](Context&) {};
    }
    return CaseList(std::move(all));
  }();
  try {
    const Waivers waivers =
        Waivers::parse(std::string(bp::fuzz::text_of(data, size)), "w.yaml", cases);
    size_t used = 0;
    for (const Case& which : cases.cases()) {
      const Waiver* waiver = waivers.find(which.id);
      if (waiver == nullptr) continue;
      ++used;
      check(!waiver->reason.empty(), "a waiver has a reason");
      check(!waiver->is_broken || !waiver->issue.empty(), "a broken one names an issue");
    }
    check(waivers.size() == 0 || used > 0, "a waiver is of a case");
  } catch (const UsageError& e) {
    check(std::string_view(e.what()).starts_with("w.yaml:"), "a refusal names the file", e.what());
  }
  return 0;
}
