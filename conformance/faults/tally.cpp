#include "conformance/faults/tally.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

namespace bp::faults {
namespace {

constexpr double kQuantile = 1.96;  // Of the normal distribution, for 95 % between both sides.

bool has_word(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const size_t end = std::min(words.find(' '), words.size());
    if (words.substr(0, end) == word) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
}

// Returns the areas of tags that may be named for a fault of a table.
std::string_view areas_of(std::string_view table) {
  if (table == "memory") return "MEMORY STREAM ERROR ENTRY";
  if (table == "stream") return "STREAM EVENT ERROR ENTRY";
  if (table == "event") return "EVENT STREAM ERROR ENTRY";
  if (table == "device") return "DEVICE ERROR ENTRY";
  if (table == "semaphore") return "SEMAPHORE ERROR ENTRY";
  if (table == "collective") return "COLLECTIVE ERROR ENTRY";
  if (table == "layout") return "LAYOUT ERROR ENTRY";
  return "COMPILER ERROR ENTRY";
}

bool is_right_for_entry(const Fault& fault, const std::string& killer, const std::string& tag) {
  const std::string table = fault.subject.substr(0, fault.subject.find('.'));
  if (killer.starts_with(table + ".")) return true;
  return has_word(areas_of(table), tag.substr(0, tag.find('-')));
}

// The place and the condition of a fault are causes as well.
std::string_view more_causes(const Fault& fault) {
  if (fault.when == "offset") return "offset";
  if (fault.when == "strided" || fault.when == "broadcast") return "stride broadcast";
  if (fault.when == "odd") return "tail";
  if (fault.when == "other_thread") return "thread nondeterministic";
  if (fault.when == "second") return "nondeterministic";
  if (fault.when == "third") return "nondeterministic intermittent";
  const std::string_view place = fault.place;
  const bool is_tail =
      place.find("tail") != place.npos || place.starts_with("last") || place == "tile16";
  return is_tail ? "tail" : "";
}

}  // namespace

const char* fate_name(Fate fate) {
  switch (fate) {
    case Fate::kKilled:
      return "killed";
    case Fate::kSurvived:
      return "survived";
    case Fate::kUnchanged:
      return "place not met";
    case Fate::kNotMet:
      return "condition not met";
    case Fate::kAbsent:
      return "absent";
    case Fate::kUnrelated:
      return "failed without a change";
  }
  return "";
}

Fate fate_of(const Sightings& sightings, size_t failed) {
  if (failed > 0) return sightings.changed > 0 ? Fate::kKilled : Fate::kUnrelated;
  if (sightings.changed > 0) return Fate::kSurvived;
  return sightings.met > 0 ? Fate::kUnchanged : Fate::kNotMet;
}

bool is_right_cause(const Fault& fault, const std::string& killer, const std::string& cause,
                    const std::string& tag) {
  if (fault.is_of_table()) return is_right_for_entry(fault, killer, tag);
  const KindOfFault* kind = kind_of(fault);
  if (kind == nullptr) return false;
  return kind->causes == "*" || has_word(kind->causes, cause) ||
         has_word(more_causes(fault), cause);
}

double Rate::share() const {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

namespace {

// Returns the bound below the share (side -1), or above it (side 1).
double wilson(const Rate& rate, int side) {
  if (rate.whole == 0) return side < 0 ? 0 : 1;
  const auto n = static_cast<double>(rate.whole);
  const double p = rate.share(), z = kQuantile;
  const double middle = p + z * z / (2 * n);
  const double width = z * std::sqrt(p * (1 - p) / n + z * z / (4 * n * n));
  return std::clamp((middle + side * width) / (1 + z * z / n), 0.0, 1.0);
}

}  // namespace

double Rate::low() const { return wilson(*this, -1); }
double Rate::high() const { return wilson(*this, 1); }

void Tally::add(const Trial& trial) {
  ++fates[trial.fate];
  if (trial.fate == Fate::kAbsent || trial.fate == Fate::kUnrelated) return;
  const bool is_killed = trial.fate == Fate::kKilled;
  killed.part += is_killed;
  ++killed.whole;
  if (is_killed || trial.fate == Fate::kSurvived) {
    killed_of_changed.part += is_killed;
    ++killed_of_changed.whole;
  }
  right_causes.part += is_killed && trial.is_right_cause;
  right_causes.whole += is_killed;
}

}  // namespace bp::faults
