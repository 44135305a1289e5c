// The supervisor of the faults: it collects what the ranks say, and lets fault.cpp judge it.
#include <algorithm>

#include "conformance/dist/fault.hpp"
#include "conformance/dist/setting.hpp"

namespace bp::conformance::dist {
namespace {

class FaultSupervisor {
 public:
  FaultSupervisor(const Setting& setting, const FaultRow& row, uint32_t victim)
      : setting_(setting),
        row_(row),
        case_{.fault = row.fault,
              .victim = victim,
              .world_size = setting.ranks,
              .timeout_seconds = setting.options.fault_timeout_seconds,
              .grace_seconds = setting.options.grace_seconds},
        stories_(setting.ranks),
        has_ended_(setting.ranks) {}

  void run() {
    const StoreFolder folder;
    std::vector<RankTask> tasks = setting_.tasks(Job::kFault, folder.path());
    for (RankTask& task : tasks) {
      task.fault = row_.name;
      task.victim = case_.victim;
      task.timeout_seconds = case_.timeout_seconds;
    }
    Crew crew(tasks, setting_.options.interrupt_fd, setting_.options.launcher);
    crew_ = &crew;
    const std::vector<RankEnd> ends = crew.run(
        setting_.options.load_seconds, silence_seconds(case_.timeout_seconds, case_.grace_seconds),
        [this](uint32_t rank, const nlohmann::json& line) { take(rank, line); },
        [this] { continue_stopped(); });
    for (uint32_t rank = 0; rank < ends.size(); ++rank) {
      Story& story = stories_[rank];
      story.is_done = ends[rank].is_done;
      story.is_killed = ends[rank].is_killed;
      if (story.end.empty()) story.end = ends[rank].text;
    }
    judge();
  }

 private:
  void take(uint32_t rank, const nlohmann::json& line) {
    const std::string said = line.value("say", "");
    Story& story = stories_[rank];
    if (said == "step") {
      story.steps[line.value("step", "")] = {line.value("status", int{BP_INTERNAL}),
                                             line.value("text", ""), line.value("seconds", 0.0),
                                             line.value("is_right", true)};
    } else if (said == "left") {
      story.left = line.value("left", std::vector<std::string>());
      shared_.take(line);
    } else if (said == "skip") {
      story.skip = line.value("text", "");
    } else if (said == "stop") {
      story.end = line.value("text", "");
    } else if (said == "ended") {
      has_ended_[rank] = true;
    } else if (said == "stopped") {
      crew_->hold_rank(rank);
      stopped_ = Clock::now();
      is_stopped_ = true;
    }
  }

  // Continues the victim when all other ranks have ended, or should have.
  void continue_stopped() {
    if (!is_stopped_) return;
    size_t running = 0;
    for (uint32_t rank = 0; rank < setting_.ranks; ++rank) {
      running += rank != case_.victim && !has_ended_[rank];
    }
    const std::chrono::duration<double> passed = Clock::now() - stopped_;
    if (running != 0 && passed.count() < 2 * (case_.timeout_seconds + case_.grace_seconds)) return;
    is_stopped_ = false;
    crew_->continue_rank(case_.victim);
  }

  void judge() {
    const std::string name =
        std::string(row_.name) + " (rank " + std::to_string(case_.victim) + " " + row_.what + ")";
    // What fails before the fault is judged with the values.
    for (uint32_t rank = 0; rank < stories_.size(); ++rank) {
      const auto warm = stories_[rank].steps.find("warm");
      if (warm == stories_[rank].steps.end() || warm->second.status == BP_OK) continue;
      return setting_.add(row_.name, name, Outcome::kSkip,
                          "no working group before the fault: rank " + std::to_string(rank) + ": " +
                              warm->second.text);
    }
    FaultVerdict verdict = judge_fault(case_, stories_);
    for (const std::string& left : shared_.left()) {
      if (count_of(verdict.outcome) != Count::kFailed) {
        verdict.outcome = Outcome::kFail;
        verdict.text = left + " is left behind";
      } else {
        verdict.notes.push_back(left + " is left behind");
      }
    }
    setting_.add(row_.name, name, verdict.outcome, verdict.text, std::move(verdict.notes));
  }

  const Setting& setting_;
  const FaultRow& row_;
  const FaultCase case_;
  std::vector<Story> stories_;
  std::vector<bool> has_ended_;
  SharedMemory shared_;
  Crew* crew_ = nullptr;
  Clock::time_point stopped_;
  bool is_stopped_ = false;
};

}  // namespace

void run_faults(const Setting& setting) {
  std::vector<std::pair<const FaultRow*, uint32_t>> cases;
  const std::vector<std::string>& chosen = setting.options.faults;
  for (const FaultRow& row : fault_rows()) {
    if (!chosen.empty() && std::ranges::count(chosen, row.name) == 0) continue;
    cases.emplace_back(&row, setting.ranks - 1);
    if (row.has_two_victims) cases.emplace_back(&row, 0);
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto& [row, victim] = cases[i];
    setting.show(std::string(row->name) + ", rank " + std::to_string(victim), i, cases.size());
    FaultSupervisor(setting, *row, victim).run();
  }
}

}  // namespace bp::conformance::dist
