#include "conformance/cli/trials_page.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>

#include "conformance/cases/selection.hpp"
#include "conformance/faults/generator.hpp"
#include "conformance/json_file.hpp"

namespace bp::conformance {
namespace {

using faults::Fate;
using faults::Fault;
using faults::Rate;
using faults::Tally;
using faults::Trial;
using nlohmann::json;

std::string percent(const Rate& rate) {
  char text[64];
  std::snprintf(text, sizeof(text), "%5.1f %% [%5.1f, %5.1f]", 100 * rate.share(), 100 * rate.low(),
                100 * rate.high());
  return text;
}

void print_tallies(const char* what, const std::map<std::string, Tally>& tallies) {
  std::printf("\n%-20s %7s %7s  %-24s %-24s %s\n", what, "mutants", "killed", "of all [95 %]",
              "of those that changed", "right causes");
  for (const auto& [name, tally] : tallies) {
    if (tally.killed.whole == 0) continue;
    std::printf("%-28s %7zu %7zu  %-24s %-24s %5.1f %%\n", name.c_str(), tally.killed.whole,
                tally.killed.part, percent(tally.killed).c_str(),
                percent(tally.killed_of_changed).c_str(), 100 * tally.right_causes.share());
  }
}

void print_survivors(const std::vector<Trial>& trials) {
  for (const Fate fate : {Fate::kSurvived, Fate::kUnchanged, Fate::kNotMet, Fate::kUnrelated}) {
    std::vector<std::string> texts;
    for (const Trial& trial : trials) {
      if (trial.fate != fate) continue;
      std::string text = faults::text_of(trial.fault);
      if (fate == Fate::kSurvived) {
        text += "  changed " + std::to_string(trial.sightings.changed) + " calls of " +
                std::to_string(trial.cases) + " cases";
      }
      if (fate == Fate::kUnrelated) text += "  " + trial.killer;
      texts.push_back(std::move(text));
    }
    if (texts.empty()) continue;
    std::ranges::sort(texts);
    std::printf("\n%s: %zu\n", faults::fate_name(fate), texts.size());
    for (const std::string& text : texts) std::printf("  %s\n", text.c_str());
  }
}

void print_wrong_causes(const std::vector<Trial>& trials) {
  bool has_title = false;
  for (const Trial& trial : trials) {
    if (trial.fate != Fate::kKilled || trial.is_right_cause) continue;
    if (!has_title) std::printf("\nwrong causes:\n");
    has_title = true;
    std::printf("  %-52s %s %s, %s\n", faults::text_of(trial.fault).c_str(), trial.cause.c_str(),
                trial.tag.c_str(), trial.killer.c_str());
  }
}

json json_of(const Trial& trial) {
  return {{"fault", faults::text_of(trial.fault)},
          {"family", faults::family_of(trial.fault)},
          {"fate", faults::fate_name(trial.fate)},
          {"cases", trial.cases},
          {"failed", trial.failed},
          {"calls", trial.sightings.calls},
          {"met", trial.sightings.met},
          {"changed", trial.sightings.changed},
          {"killer", trial.killer},
          {"cause", trial.cause},
          {"tag", trial.tag},
          {"message", trial.message},
          {"right_cause", trial.is_right_cause},
          {"seconds", trial.seconds}};
}

}  // namespace

void print_trials(const std::vector<Trial>& trials, bool is_verbose) {
  const auto family = [](const Trial& t) { return faults::family_of(t.fault); };
  const auto part = [](std::string Fault::*member) {
    return [member](const Trial& t) {
      return (t.fault.is_of_table() ? "tables " : "") + t.fault.*member;
    };
  };
  print_survivors(trials);
  print_wrong_causes(trials);
  print_tallies("family", faults::tallies(trials, family));
  if (is_verbose) {
    print_tallies("kind", faults::tallies(trials, part(&Fault::kind)));
    print_tallies("place", faults::tallies(trials, part(&Fault::place)));
    print_tallies("condition", faults::tallies(trials, part(&Fault::when)));
    print_tallies("op or entry",
                  faults::tallies(trials, [](const Trial& t) { return t.fault.subject; }));
  }
  print_tallies("all", faults::tallies(trials, [](const Trial&) { return std::string("all"); }));
}

std::string document_of(const std::vector<Trial>& trials, const CommandLine& line) {
  json mutants = json::array();
  for (const Trial& trial : trials) mutants.push_back(json_of(trial));
  const json document = {{"seed", line.run.session.seed},
                         {"tier", tier_name(line.selection.tier)},
                         {"mutants", std::move(mutants)}};
  return json_text(document, 1) + "\n";
}

}  // namespace bp::conformance
