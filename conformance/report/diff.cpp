#include "conformance/report/diff.hpp"

#include <algorithm>
#include <sstream>

#include "conformance/json_file.hpp"
#include "registry/boundary/number_text.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;

// A margin is the share of the allowed error that a result uses up.
constexpr double kGrowth = 4, kNotable = 0.1;

constexpr size_t kShownKinds = 12, kShownFamilies = 6;

std::string first_line(const std::string& message) { return message.substr(0, message.find('\n')); }

std::string status_of(const Result& result) {
  const std::string line = first_line(result.message);
  return outcome_name(result.outcome) + (line.empty() ? "" : ": " + line);
}

std::string change_text(const Result& before, const Result& after) {
  return std::string(outcome_name(before.outcome)) + " -> " + status_of(after);
}

// Returns the status with the cause of a failure or fallback: "Fail (tail)".
std::string kind_of(const Result& result) {
  const std::string name = outcome_name(result.outcome);
  return result.cause.empty() ? name : name + " (" + result.cause + ")";
}

Change change_between(const StoredCase& a, const StoredCase& b) {
  return {b.id, change_text(a.result, b.result), kind_of(a.result) + " -> " + kind_of(b.result)};
}

bool has_failed(const Result& result) { return count_of(result.outcome) == Count::kFailed; }

std::string number(double value) { return short_text(value, 3); }

// Returns "" unless the margin grew so much that the next change may break the case.
std::string drift_text(const Result& before, const Result& after) {
  const auto old_margin = before.metrics.find("margin"), new_margin = after.metrics.find("margin");
  if (old_margin == before.metrics.end() || new_margin == after.metrics.end()) return "";
  const bool has_grown =
      new_margin->second >= kNotable && new_margin->second >= kGrowth * old_margin->second;
  if (!has_grown) return "";
  return "margin " + number(old_margin->second) + " -> " + number(new_margin->second);
}

void compare(const StoredCase& a, const StoredCase& b, RunDiff& diff) {
  const bool failed_before = has_failed(a.result), fails = has_failed(b.result);
  if (fails && !failed_before) {
    diff.new_failures.push_back(change_between(a, b));
  } else if (failed_before && count_of(b.result.outcome) == Count::kPassed) {
    diff.fixed.push_back(change_between(a, b));
  } else if (a.result.outcome != b.result.outcome) {
    diff.changed.push_back(change_between(a, b));
  } else if (fails && a.result.cause != b.result.cause) {
    diff.changed.push_back({b.id,
                            std::string(outcome_name(b.result.outcome)) + ": cause " +
                                a.result.cause + " -> " + b.result.cause + ": " +
                                first_line(b.result.message),
                            kind_of(a.result) + " -> " + kind_of(b.result)});
  } else if (const std::string drift = drift_text(a.result, b.result); !drift.empty()) {
    diff.drifted.push_back({b.id, drift, "the margin grew"});
  } else {
    ++diff.same_count;
  }
}

// Returns a value of info.json; "unknown" if the run was killed before it wrote the value.
std::string told(const json& info, const char* part, const char* key) {
  if (!info.is_object()) return "unknown";
  const json* object = &info;
  if (*part != '\0') {
    if (!info.contains(part)) return "unknown";
    object = &info.at(part);
  }
  if (!object->contains(key)) return "unknown";
  const json& value = object->at(key);
  return value.is_string() ? value.get<std::string>() : json_text(value);
}

std::string change_of(const char* label, const std::string& before, const std::string& after) {
  return std::string(label) + "  " + before + " -> " + after;
}

void compare_context(const StoredRun& before, const StoredRun& after, RunDiff& diff) {
  struct Row {
    const char *label, *part, *key;
  };
  constexpr Row kRows[] = {{"suite", "", "suite"},
                           {"plugin", "plugin", "name"},
                           {"plugin version", "plugin", "version"},
                           {"plugin sha256", "", "sha256"},
                           {"tier", "run", "tier"},
                           {"seed", "run", "seed"}};
  for (const Row& row : kRows) {
    const std::string a = told(before.info(), row.part, row.key).substr(0, 24);
    const std::string b = told(after.info(), row.part, row.key).substr(0, 24);
    if (a != b) diff.context.push_back(change_of(row.label, a, b));
  }
}

// Returns the part of an id by which changes are counted: "op.add", "gradient.adjoint", "stream".
std::string family_of(const std::string& id) {
  const size_t dot = id.find('.');
  if (dot == std::string::npos) return id;
  const size_t second = id.find('.', dot + 1);
  return id.substr(0, second == std::string::npos ? dot : second);
}

// The changes of one kind, in the order of the run.
struct KindOfChange {
  std::string kind;
  std::vector<const Change*> changes;
};

std::vector<KindOfChange> by_kind(const std::vector<Change>& changes) {
  std::vector<KindOfChange> kinds;
  for (const Change& change : changes) {
    auto found = std::ranges::find(kinds, change.kind, &KindOfChange::kind);
    if (found == kinds.end()) found = kinds.insert(found, {change.kind, {}});
    found->changes.push_back(&change);
  }
  std::ranges::stable_sort(kinds, std::ranges::greater(),
                           [](const KindOfChange& k) { return k.changes.size(); });
  return kinds;
}

// Returns "op.add 12, op.mul 9 and 3 others".
std::string families_text(const KindOfChange& kind) {
  std::vector<std::pair<size_t, std::string>> families;
  for (const Change* change : kind.changes) {
    const std::string name = family_of(change->id);
    auto found = std::ranges::find(families, name, &std::pair<size_t, std::string>::second);
    if (found == families.end()) found = families.insert(found, {0, name});
    ++found->first;
  }
  std::ranges::stable_sort(families, std::ranges::greater(),
                           [](const auto& family) { return family.first; });
  std::string text;
  for (size_t i = 0; i < families.size() && i < kShownFamilies; ++i) {
    text += (i == 0 ? "" : ", ") + families[i].second + " " + std::to_string(families[i].first);
  }
  if (families.size() <= kShownFamilies) return text;
  return text + " and " + std::to_string(families.size() - kShownFamilies) + " others";
}

void list_all(std::ostream& out, const std::vector<Change>& changes) {
  for (const Change& change : changes) out << "  " << change.id << "\n    " << change.text << "\n";
}

void write_changes(std::ostream& out, const char* title, const std::vector<Change>& changes,
                   bool lists_all) {
  if (changes.empty()) return;
  out << title << "  " << changes.size() << "\n";
  if (lists_all) return list_all(out, changes);
  const std::vector<KindOfChange> kinds = by_kind(changes);
  for (size_t i = 0; i < kinds.size() && i < kShownKinds; ++i) {
    const Change& first = *kinds[i].changes.front();
    const size_t count = kinds[i].changes.size();
    if (count > 1) {
      out << "  " << count << " x " << kinds[i].kind << ": " << families_text(kinds[i])
          << "; such as\n";
    }
    out << "  " << (count > 1 ? "  " : "") << first.id << "\n    " << (count > 1 ? "  " : "")
        << first.text << "\n";
  }
  if (kinds.size() > kShownKinds) {
    out << "  ... and " << kinds.size() - kShownKinds << " other kinds: -v lists every case\n";
  }
}

}  // namespace

bool RunDiff::is_empty() const {
  return new_failures.empty() && fixed.empty() && changed.empty() && drifted.empty() &&
         added.empty() && vanished.empty();
}

RunDiff diff_runs(const StoredRun& before, const StoredRun& after) {
  RunDiff diff;
  compare_context(before, after, diff);
  for (const StoredCase& b : after.cases()) {
    if (const StoredCase* a = before.find(b.id)) {
      compare(*a, b, diff);
    } else if (has_failed(b.result)) {
      diff.new_failures.push_back(
          {b.id, "new case -> " + status_of(b.result), "new case -> " + kind_of(b.result)});
    } else {
      diff.added.push_back({b.id, status_of(b.result), kind_of(b.result)});
    }
  }
  for (const StoredCase& a : before.cases()) {
    if (after.find(a.id) == nullptr) {
      diff.vanished.push_back({a.id, "was " + status_of(a.result), "was " + kind_of(a.result)});
    }
  }
  return diff;
}

std::string diff_text(const RunDiff& diff, const StoredRun& before, const StoredRun& after,
                      bool lists_all) {
  std::ostringstream out;
  const auto write_run = [&](const char* name, const StoredRun& run) {
    out << name << run.folder() << "  " << run.cases().size() << " results"
        << (run.summary().is_null() ? ", of a run that did not end" : "") << "\n";
  };
  write_run("before  ", before);
  write_run("after   ", after);
  for (const std::string& line : diff.context) out << "differs " << line << "\n";
  out << "\n";
  write_changes(out, "NEW FAILURES", diff.new_failures, lists_all);
  write_changes(out, "FIXED", diff.fixed, lists_all);
  write_changes(out, "CHANGED", diff.changed, lists_all);
  write_changes(out, "DRIFTED", diff.drifted, lists_all);
  write_changes(out, "NEW CASES", diff.added, lists_all);
  write_changes(out, "VANISHED", diff.vanished, lists_all);
  out << diff.new_failures.size() << " new failures, " << diff.fixed.size() << " fixed, "
      << diff.changed.size() << " changed, " << diff.drifted.size() << " drifted, "
      << diff.added.size() << " new, " << diff.vanished.size() << " vanished, " << diff.same_count
      << " as before\n";
  return out.str();
}

}  // namespace bp::conformance
