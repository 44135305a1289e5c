// What the tests of whole runs share: numbered cases, and workers that behave as a script says
// (runner/scripted_worker.hpp).
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "conformance/runner/supervisor.hpp"

namespace bp::conformance {

class Runs : public testing::Test {
 protected:
  explicit Runs(size_t count = 6) {
    std::vector<Case> all(count);
    for (size_t i = 0; i < all.size(); ++i) {
      all[i].id = "stream.case_" + std::to_string(i);
      all[i].group = "stream";
      all[i].tags = {"STREAM-1"};
      all[i].run = [](Context&) {};
    }
    cases_ = CaseList(std::move(all));
    options_.session.timeout_seconds = 60;  // No worker of these tests hangs.
    probed_.hello = nlohmann::json::object();
  }

  void on_case(size_t index, const std::string& step) {
    options_.session.setup.options.emplace_back(cases_[index].id, step);
  }

  RunReport run(const std::vector<size_t>& selection) {
    Supervisor supervisor(options_, cases_, [&](const Attempt& attempt, const Position& position) {
      if (attempt.index < cases_.size()) seen_.push_back(attempt.index);
      positions_.push_back(position);
      if (on_attempt_) on_attempt_(attempt);
    });
    return supervisor.run(selection, probed_);
  }
  RunReport run_all() {
    std::vector<size_t> selection(cases_.size());
    std::iota(selection.begin(), selection.end(), size_t{0});
    return run(selection);
  }

  static const Result& result_of(const RunReport& report, size_t index) {
    return report.finals.at(index).attempt.result;
  }
  static std::string outcomes(const RunReport& report) {
    std::string text;
    for (const Final& final : report.finals) {
      text += (text.empty() ? "" : " ") + std::string(outcome_name(final.attempt.result.outcome));
    }
    return text;
  }

  CaseList cases_{std::vector<Case>()};
  RunOptions options_;
  BatchReport probed_;
  std::vector<size_t> seen_;
  std::vector<Position> positions_;
  std::function<void(const Attempt&)> on_attempt_;
};

}  // namespace bp::conformance
