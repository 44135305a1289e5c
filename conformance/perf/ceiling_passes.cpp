#include "conformance/perf/ceiling_passes.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

namespace bp::conformance {
namespace {

constexpr size_t kFewestPasses = 2, kMostPasses = 4;

// The result of one pass for one ceiling.
struct Candidate {
  double rate = 0;       // A higher rate is better.
  double yardstick = 0;  // 0 if the ceiling has no yardstick.
  bool is_settled = true;

  // If a ceiling has a yardstick, passes are compared by the ratio of the two, which does not
  // change when the machine slows both.
  double compared() const { return yardstick > 0 ? rate * yardstick : rate; }
};

// Returns the candidates of all passes that measured the ceiling: settled ones first, and within
// each part the best one first.
std::vector<Candidate> sorted(const std::vector<Ceilings>& passes, const std::string& name,
                              const std::function<Candidate(const Ceilings&)>& of) {
  std::vector<Candidate> candidates;
  for (const Ceilings& pass : passes) {
    Candidate candidate = of(pass);
    candidate.is_settled = std::isfinite(pass.uncertainty_of(name));
    if (candidate.rate > 0) candidates.push_back(candidate);
  }
  std::ranges::stable_sort(candidates, [](const Candidate& a, const Candidate& b) {
    return a.is_settled != b.is_settled ? a.is_settled : a.rate > b.rate;
  });
  return candidates;
}

double gap(const std::vector<Candidate>& candidates) {
  if (candidates.size() < 2 || !candidates[1].is_settled) return HUGE_VAL;
  return std::fabs(std::log(candidates[0].compared() / candidates[1].compared()));
}

double value_at(const std::map<std::string, double>& values, const std::string& name) {
  const auto found = values.find(name);
  return found == values.end() ? 0 : found->second;
}

void take_launch(const std::vector<Ceilings>& passes, Ceilings& best) {
  const auto by = [&](double Ceilings::*seconds) {
    const auto found = sorted(passes, "launch", [&](const Ceilings& pass) {
      return Candidate{.rate = pass.*seconds > 0 ? 1 / (pass.*seconds) : 0};
    });
    best.*seconds = found.empty() ? 0 : 1 / found.front().rate;
    if (!found.empty()) best.uncertainty["launch"] = gap(found);
  };
  by(&Ceilings::launch_s);
  by(&Ceilings::batched_launch_s);  // Roofs use batched launches, so the uncertainty of those is
                                    // kept.
}

}  // namespace

double Ceilings::uncertainty_of(const std::string& name) const {
  return value_at(uncertainty, name);
}

Ceilings best_of_passes(const std::vector<Ceilings>& passes) {
  Ceilings best;
  const auto take = [&](const char* name, double Ceilings::*rate, double Ceilings::*yardstick) {
    const auto found = sorted(passes, name, [&](const Ceilings& pass) {
      return Candidate{pass.*rate, yardstick == nullptr ? 0 : pass.*yardstick};
    });
    if (found.empty()) return;
    best.*rate = found.front().rate;
    if (yardstick != nullptr) best.*yardstick = found.front().yardstick;
    best.uncertainty[name] = gap(found);
  };
  take("copy", &Ceilings::copy_bytes_per_s, &Ceilings::copy_yardstick_s);
  take("read", &Ceilings::read_bytes_per_s, nullptr);
  take("write", &Ceilings::write_bytes_per_s, nullptr);
  take("update", &Ceilings::update_bytes_per_s, nullptr);
  take_launch(passes, best);
  std::set<std::string> dtypes;
  for (const Ceilings& pass : passes) {
    for (const auto& [dtype, rate] : pass.flops_per_s) dtypes.insert(dtype);
  }
  for (const std::string& dtype : dtypes) {
    const std::string name = "matmul." + dtype;
    const auto found = sorted(passes, name, [&](const Ceilings& pass) {
      return Candidate{value_at(pass.flops_per_s, dtype),
                       value_at(pass.product_yardstick_s, dtype)};
    });
    if (found.empty()) continue;
    best.flops_per_s[dtype] = found.front().rate;
    best.product_yardstick_s[dtype] = found.front().yardstick;
    best.uncertainty[name] = gap(found);
  }
  return best;
}

bool needs_another(const std::vector<Ceilings>& passes) {
  if (passes.size() < kFewestPasses) return true;
  if (passes.size() >= kMostPasses) return false;
  const Ceilings best = best_of_passes(passes);
  return std::ranges::any_of(best.uncertainty, [&](const auto& each) {
    const std::string& name = each.first;
    // A launch is a small part of each roof.
    if (name == "launch" || each.second <= kPassesAgree) return false;
    // If no pass has settled, the machine is busy, and another pass would not settle either.
    return std::ranges::any_of(
        passes, [&](const Ceilings& pass) { return std::isfinite(pass.uncertainty_of(name)); });
  });
}

}  // namespace bp::conformance
