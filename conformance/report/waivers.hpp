// The expected failures of a backend, from its waivers.yaml:
//
//   - case: "event.elapsed_*"
//     kind: unsupported    # Permanent: it excuses only a clean refusal.
//     reason: The device has no timestamp counter.
//   - case: "op.softmax.*.axis0.*"
//     kind: broken         # Temporary: it excuses any failure, and a pass fails the run.
//     reason: Only the last axis has a kernel.
//     issue: 41
#pragma once

#include <string>
#include <vector>

#include "conformance/cases/case_list.hpp"

namespace bp::conformance {

struct Waiver {
  std::string glob;
  bool is_broken = false;  // If false, the kind is unsupported.
  std::string reason;
  std::string issue;
};

class Waivers {
 public:
  Waivers() = default;

  // Throws UsageError for a file that cannot be read, an unknown key or kind, a missing reason, a
  // broken entry without an issue, or a glob that matches no case of the suite.
  static Waivers parse(const std::string& text, const std::string& name, const CaseList& cases);
  static Waivers read(const std::string& path, const CaseList& cases);

  // Returns the first entry for this case, or NULL.
  const Waiver* find(const std::string& id) const;

  // Returns whether an entry excuses `result` of this case.
  bool excuses(const Case& which, const Result& result) const;

  // Returns the result after waivers: Waived if an entry excuses it, XPass if an entry is stale.
  Result apply(const Case& which, Result result) const;

  size_t size() const { return entries_.size(); }

 private:
  std::vector<Waiver> entries_;
};

// Returns drafts of entries with an empty reason and no issue. read() refuses them until a person
// completes them. All have the kind "broken", because only the vendor can say that a device can
// never do something.
std::string draft_waivers(const std::vector<std::pair<std::string, Result>>& failures);

}  // namespace bp::conformance
