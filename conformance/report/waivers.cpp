#include "conformance/report/waivers.hpp"

#include <yaml-cpp/yaml.h>

#include <sstream>

#include "conformance/cases/selection.hpp"
#include "conformance/json_file.hpp"
#include "registry/files/json_depth.hpp"

namespace bp::conformance {
namespace {

[[noreturn]] void refuse(const std::string& name, const YAML::Node& node, const std::string& why) {
  throw UsageError(name + ":" + std::to_string(node.Mark().line + 1) + ": " + why);
}

std::string string_of(const std::string& name, const YAML::Node& entry, const char* key) {
  const YAML::Node value = entry[key];
  if (!value) return "";
  if (!value.IsScalar()) refuse(name, value, std::string("\"") + key + "\" is not a text");
  return value.as<std::string>();
}

Waiver read_entry(const std::string& name, const YAML::Node& entry) {
  if (!entry.IsMap()) refuse(name, entry, "a waiver is a map with case, kind, reason and issue");
  for (const auto& pair : entry) {
    const std::string key = pair.first.as<std::string>();
    if (key != "case" && key != "kind" && key != "reason" && key != "issue") {
      refuse(name, pair.first, "unknown key \"" + key + "\"; case, kind, reason, issue are known");
    }
  }
  Waiver waiver;
  waiver.glob = string_of(name, entry, "case");
  waiver.reason = string_of(name, entry, "reason");
  waiver.issue = string_of(name, entry, "issue");
  const std::string kind = string_of(name, entry, "kind");
  if (waiver.glob.empty()) refuse(name, entry, "a waiver has no \"case\"");
  if (kind != "unsupported" && kind != "broken") {
    refuse(name, entry, "kind is \"" + kind + "\"; unsupported and broken are allowed");
  }
  waiver.is_broken = kind == "broken";
  if (waiver.reason.empty()) refuse(name, entry, "the waiver of " + waiver.glob + " has no reason");
  if (waiver.is_broken && waiver.issue.empty()) {
    refuse(name, entry, "the waiver of " + waiver.glob + " is \"broken\" and names no issue");
  }
  return waiver;
}

}  // namespace

Waivers Waivers::parse(const std::string& text, const std::string& name, const CaseList& cases) {
  Waivers waivers;
  // The flow style of YAML has the syntax of JSON.
  if (const std::string defect = json_depth_defect(text); !defect.empty()) {
    throw UsageError(name + ": " + defect);
  }
  try {
    const YAML::Node root = YAML::Load(text);
    if (root.IsNull()) return waivers;
    if (!root.IsSequence()) refuse(name, root, "the file is not a list of waivers");
    for (const YAML::Node& entry : root) {
      Waiver waiver = read_entry(name, entry);
      bool matches = false;
      for (const Case& which : cases.cases()) matches |= matches_glob(waiver.glob, which.id);
      if (!matches) {
        refuse(name, entry,
               "the waiver of " + waiver.glob + " matches no case; delete it or correct it");
      }
      waivers.entries_.push_back(std::move(waiver));
    }
  } catch (const YAML::Exception& e) {
    throw UsageError(name + ": " + e.what());
  }
  return waivers;
}

Waivers Waivers::read(const std::string& path, const CaseList& cases) {
  return parse(read_regular_file(path), path, cases);
}

const Waiver* Waivers::find(const std::string& id) const {
  for (const Waiver& entry : entries_) {
    if (matches_glob(entry.glob, id)) return &entry;
  }
  return nullptr;
}

bool Waivers::excuses(const Case& which, const Result& result) const {
  const Waiver* waiver = find(which.id);
  if (waiver == nullptr || count_of(result.outcome) != Count::kFailed) return false;
  if (result.outcome == Outcome::kHarnessError) return false;
  return waiver->is_broken || result.outcome == Outcome::kMissing;
}

Result Waivers::apply(const Case& which, Result result) const {
  const Waiver* waiver = find(which.id);
  if (waiver == nullptr) return result;
  if (excuses(which, result)) {
    result.notes.insert(result.notes.begin(),
                        std::string(outcome_name(result.outcome)) + ": " + result.message);
    result.outcome = Outcome::kWaived;
    result.message = "waived: " + waiver->reason;
    if (!waiver->issue.empty()) result.message += " (issue " + waiver->issue + ")";
  } else if (count_of(result.outcome) == Count::kPassed) {
    result.outcome = Outcome::kXPass;
    result.message = "passes, so its waiver (" + waiver->glob + ") is stale";
    result.cause = "stale_waiver";
  }
  return result;
}

std::string draft_waivers(const std::vector<std::pair<std::string, Result>>& failures) {
  std::ostringstream out;
  out << "# Drafts. Each needs a reason and an issue before it is accepted. What is missing "
         "because\n"
         "# the device can never do it is `unsupported`, and then needs no issue.\n";
  for (const auto& [id, result] : failures) {
    const std::string line = result.message.substr(0, result.message.find('\n'));
    out << "# " << outcome_name(result.outcome) << ": " << line << '\n'
        << "- case: \"" << id << "\"\n  kind: broken\n  reason: \"\"\n  issue: \"\"\n";
  }
  return out.str();
}

}  // namespace bp::conformance
