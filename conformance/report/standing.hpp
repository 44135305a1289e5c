// What a run shows of the profiles of a backend, and of the badges that they lead to.
#pragma once

#include <string>
#include <vector>

#include "conformance/report/summary.hpp"

namespace bp::conformance {

// How the cases of one profile or badge ended.
struct Shown {
  size_t right = 0;    // They passed on kernels and tables of the backend.
  size_t wrong = 0;    // They failed.
  size_t served = 0;   // The host or a decomposition served them.
  size_t refused = 0;  // The backend does not claim what they ask for.
  size_t waived = 0;
  size_t not_run = 0;

  bool is_clean() const { return wrong == 0 && waived == 0 && not_run == 0 && right > 0; }
};

struct ProfileStanding {
  std::string name;
  std::string meaning;
  bool is_claimed = false;
  Shown shown;

  // Returns "holds", "fails", "not claimed", "not complete" or "not shown".
  const char* state() const;
};

// Returns every profile of the ABI, of which the backend claims some. Claiming `train` claims
// `infer`, and every backend claims `runtime`.
std::vector<ProfileStanding> profiles_of(const RunReport& report, const Summary& summary);

struct Badge {
  std::string name;
  std::string needs;
  Shown shown;
  bool is_given = false;
  std::string text;  // Why it is given or not.
};

// Returns the badges from the lowest to the highest. A badge is given for a whole run of tier full
// without failures and waivers, if the backend claims its profiles and has the badge below it. No
// run gives the highest one, which needs faults and long runs too.
std::vector<Badge> badges_of(const RunHeader& header, const RunReport& report,
                             const Summary& summary);

// Returns the first line of each reason why cases with these outcomes were not run, with its count,
// the most frequent first. Calls of one op that differ in their arguments have one reason.
std::vector<std::pair<size_t, std::string>> reasons_of(const Summary& summary,
                                                       std::initializer_list<Outcome> outcomes);

}  // namespace bp::conformance
