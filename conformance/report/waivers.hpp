// What a backend is expected to fail, in its waivers.yaml:
//
//   - case: "event.elapsed_*"
//     kind: unsupported    # Permanent: excuses a clean refusal and nothing else.
//     reason: The device has no timestamp counter.
//   - case: "op.softmax.*.axis0.*"
//     kind: broken         # Temporary: excuses any failure, and a pass fails the run.
//     reason: Only the last axis has a kernel.
//     issue: 41
#pragma once

#include <string>
#include <vector>

#include "conformance/cases/case_list.hpp"

namespace bp::conformance {

struct Waiver {
  std::string glob;
  bool is_broken = false;  // Else unsupported.
  std::string reason;
  std::string issue;
};

class Waivers {
 public:
  Waivers() = default;

  // Throws UsageError: a file that cannot be read, an unknown key or kind, no reason, a broken
  // entry without an issue, or a glob that matches no case of the suite.
  static Waivers parse(const std::string& text, const std::string& name, const CaseList& cases);
  static Waivers read(const std::string& path, const CaseList& cases);

  // The first entry for this case, or NULL.
  const Waiver* find(const std::string& id) const;

  // Whether an entry excuses `result` of this case.
  bool excuses(const Case& which, const Result& result) const;

  // The result under the waivers: Waived where one excuses it, XPass where one is stale.
  Result apply(const Case& which, Result result) const;

  size_t size() const { return entries_.size(); }

 private:
  std::vector<Waiver> entries_;
};

// Drafts with an empty reason and no issue, which read() refuses until they are written. All are
// "broken": that a device can never do something is for its vendor to say.
std::string draft_waivers(const std::vector<std::pair<std::string, Result>>& failures);

}  // namespace bp::conformance
