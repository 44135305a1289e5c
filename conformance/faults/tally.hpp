// What became of drawn mutants, counted by family, place, condition and kind.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "conformance/faults/fault.hpp"

namespace bp::faults {

enum class Fate {
  kKilled,
  kSurvived,   // It changed something, and every case passed.
  kUnchanged,  // Calls met its condition, and none had an element at its place to change.
  kNotMet,     // No call met its dtype and its condition.
  kAbsent,     // The backend has no such kernel or entry. It does not count.
  kUnrelated,  // A case failed although the fault had changed nothing.
};

const char* fate_name(Fate fate);

// What the suite found in one mutant.
struct Trial {
  Fault fault;
  Fate fate = Fate::kNotMet;
  Sightings sightings;
  size_t cases = 0, failed = 0;  // Cases that ran, until enough had failed.
  std::string killer;            // The first case that failed.
  std::string cause, tag;        // The cause that most failures have, and its tag.
  std::string message;           // The message of the first failure.
  bool is_right_cause = false;
  double seconds = 0;
  bool has_run = false;  // If false, the run was interrupted before its end.
};

// Returns what the counts and the failures say.
Fate fate_of(const Sightings& sightings, size_t failed);

// Returns whether the cause and the tag that the suite prints name the fault rightly.
bool is_right_cause(const Fault& fault, const std::string& killer, const std::string& cause,
                    const std::string& tag);

// The share of `part` in `whole`, with the interval of 95 % by Wilson, Probable inference, JASA
// 1927.
struct Rate {
  size_t part = 0, whole = 0;

  double share() const;
  double low() const;
  double high() const;
};

// Killed mutants of those that count.
struct Tally {
  Rate killed;
  Rate killed_of_changed;  // Only of those that changed something.
  Rate right_causes;       // Of those that were killed.
  std::map<Fate, size_t> fates;

  void add(const Trial& trial);
};

// Returns tallies by a text of each trial, such as its family.
template <typename Key>
std::map<std::string, Tally> tallies(const std::vector<Trial>& trials, Key key) {
  std::map<std::string, Tally> all;
  for (const Trial& trial : trials) all[key(trial)].add(trial);
  return all;
}

}  // namespace bp::faults
