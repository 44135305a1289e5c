// The supervisor of the checks: it merges what the ranks say of each check, and goes on in new
// processes behind a check that ended the group.
#include <algorithm>
#include <optional>

#include "conformance/dist/setting.hpp"

namespace bp::conformance::dist {
namespace {

constexpr int kMostStarts = 12;
constexpr size_t kMostOfFamily = 2;  // Checks of one family that may end a group.

// What the ranks have said of one check.
struct Merge {
  std::string group, family, name;
  std::vector<std::optional<Outcome>> outcomes;
  std::vector<std::string> texts;
  std::vector<std::vector<uint64_t>> hashes;
  bool has_ended_group = false;

  bool is_complete() const {
    return std::ranges::all_of(outcomes, [](const auto& outcome) { return outcome.has_value(); });
  }
};

std::string name_of(uint32_t rank) { return "rank " + std::to_string(rank); }

// Returns in which part of its elements the result of a rank differs from that of rank 0, or "".
std::string difference_of_bits(const std::vector<std::vector<uint64_t>>& hashes) {
  for (uint32_t rank = 1; rank < hashes.size(); ++rank) {
    for (size_t i = 0; i < hashes[0].size() && i < hashes[rank].size(); ++i) {
      if (hashes[rank][i] == hashes[0][i]) continue;
      return "the results of ranks 0 and " + std::to_string(rank) +
             " differ in bits, first in the " + std::to_string(i + 1) + "th of " +
             std::to_string(hashes[0].size()) + " equal parts; each is within its bound";
    }
  }
  return "";
}

class Values {
 public:
  explicit Values(const Setting& setting) : setting_(setting) {}

  // Returns false if no group was made.
  bool run() {
    for (int starts = 0; starts < kMostStarts; ++starts) {
      if (!run_crew()) return false;
      if (!next_) return true;
    }
    setting_.add("group", "the rest of the checks", Outcome::kSkip,
                 std::to_string(count_ - *next_) + " checks did not run, since " +
                     std::to_string(kMostStarts) + " checks ended the group");
    return true;
  }

 private:
  bool run_crew() {
    const StoreFolder folder;
    std::vector<RankTask> tasks = setting_.tasks(Job::kValues, folder.path());
    for (RankTask& task : tasks) {
      task.first = next_.value_or(0);
      task.skips = skips_;
    }
    next_.reset();
    merges_.clear();
    creation_ = Creation(setting_.ranks);
    stops_.assign(setting_.ranks, "");
    const SharedMemory before;
    shared_ = before;
    Crew crew(tasks, setting_.options.interrupt_fd, setting_.options.launcher);
    const std::vector<RankEnd> ends =
        crew.run(setting_.options.load_seconds,
                 silence_seconds(setting_.options.timeout_seconds, setting_.options.grace_seconds),
                 [&](uint32_t rank, const nlohmann::json& line) { take(rank, line); });
    if (creation_.has_failed()) {
      creation_.judge(setting_);
      judge_ends_without_check(ends);
      return false;
    }
    for (const std::string& name : shared_.left()) {
      setting_.add("left behind", "shared memory", Outcome::kFail, name + " is left behind");
    }
    judge_ends(ends);
    return true;
  }

  void take(uint32_t rank, const nlohmann::json& line) {
    const std::string said = line.value("say", "");
    if (said == "create") creation_.take(rank, line);
    if (said == "plan") count_ = line.value("count", uint64_t{0});
    if (said == "begin" && line.contains("check")) merge_of(line).name = line.value("text", "");
    if (said == "stop") stops_[rank] = line.value("text", "");
    if (said == "end") take_end(rank, line);
    if (said == "left") take_left(rank, line);
    if (said == "extra") {
      Outcome outcome = Outcome::kFail;
      static_cast<void>(outcome_from_name(line.value("outcome", ""), outcome));
      setting_.add(
          line.value("group", ""), line.value("group", ""), outcome,
          (outcome == Outcome::kFail ? name_of(rank) + ": " : "") + line.value("text", ""));
    }
  }

  void take_left(uint32_t rank, const nlohmann::json& line) {
    shared_.take(line);
    const auto left = line.value("left", std::vector<std::string>());
    for (const std::string& what : left) {
      setting_.add("left behind", "descriptors and threads", Outcome::kFail,
                   name_of(rank) + " holds more after each group that it has destroyed: " + what);
    }
    if (left.empty()) setting_.add("left behind", "descriptors and threads", Outcome::kPass);
  }

  Merge& merge_of(const nlohmann::json& line) {
    Merge& merge = merges_[line.value("check", uint64_t{0})];
    merge.outcomes.resize(setting_.ranks);
    merge.texts.resize(setting_.ranks);
    merge.hashes.resize(setting_.ranks);
    merge.group = line.value("group", "");
    merge.family = line.value("family", "");
    return merge;
  }

  void take_end(uint32_t rank, const nlohmann::json& line) {
    const uint64_t index = line.value("check", uint64_t{0});
    Merge& merge = merge_of(line);
    Outcome outcome = Outcome::kHarnessError;
    static_cast<void>(outcome_from_name(line.value("outcome", ""), outcome));
    merge.outcomes[rank] = outcome;
    if (line.contains("name")) merge.name = line.value("name", "");
    merge.texts[rank] = line.value("text", "");
    merge.hashes[rank] = line.value("hashes", std::vector<uint64_t>());
    merge.has_ended_group |= line.value("has_ended_group", false);
    if (!merge.is_complete() || merge.has_ended_group) return;
    judge(merge);
    setting_.show(merge.name, index + 1, count_);
    merges_.erase(index);
  }

  // The worst outcome of a rank is that of the check.
  void judge(const Merge& merge) {
    Outcome outcome = Outcome::kPass;
    std::string text;
    std::vector<std::string> notes;
    for (uint32_t rank = 0; rank < setting_.ranks; ++rank) {
      if (!merge.outcomes[rank] || *merge.outcomes[rank] == Outcome::kPass) continue;
      const bool is_failure = count_of(*merge.outcomes[rank]) == Count::kFailed;
      const bool is_first = text.empty() || (is_failure && count_of(outcome) != Count::kFailed);
      std::string says = name_of(rank) + ": " + merge.texts[rank];
      if (is_first) {
        outcome = *merge.outcomes[rank];
        text = is_failure ? says : merge.texts[rank];
      } else if (is_failure) {
        notes.push_back(std::move(says));
      }
    }
    if (outcome == Outcome::kPass) {
      text = difference_of_bits(merge.hashes);
      if (!text.empty()) outcome = Outcome::kFail;
    }
    setting_.add(merge.group, merge.name, outcome, text, std::move(notes));
  }

  // Judges the first check that some rank did not end well, and sets where to go on.
  void judge_ends(const std::vector<RankEnd>& ends) {
    const bool is_whole = merges_.empty() &&
                          std::ranges::all_of(ends, [](const RankEnd& end) { return end.is_done; });
    if (is_whole) return;
    if (merges_.empty()) return judge_ends_without_check(ends);
    const auto& [index, merge] = *merges_.begin();
    Outcome outcome = Outcome::kFail;
    std::vector<std::string> texts;
    for (uint32_t rank = 0; rank < setting_.ranks; ++rank) {
      if (merge.outcomes[rank] == Outcome::kPass) continue;
      std::string text = merge.texts[rank];
      if (!merge.outcomes[rank]) {
        text = stops_[rank].empty() ? ends[rank].text : stops_[rank];
        if (stops_[rank].empty()) {
          outcome = ends[rank].is_killed ? Outcome::kTimeout : Outcome::kCrash;
        }
        if (text.empty()) continue;
        // What happened to a process explains what happened to the other ranks.
        texts.insert(texts.begin(), name_of(rank) + ": " + text);
        continue;
      }
      if (!text.empty()) texts.push_back(name_of(rank) + ": " + text);
    }
    const std::string first = texts.empty() ? "the group ended" : texts.front();
    if (!texts.empty()) texts.erase(texts.begin());
    setting_.add(merge.group, merge.name.empty() ? merge.group : merge.name, outcome, first, texts);
    if (++ended_by_[merge.family] == kMostOfFamily) skips_.push_back(merge.family);
    if (index + 1 < count_) next_ = index + 1;
  }

  // The ranks ended outside of a check: at loading, at the end, or all of them in one check.
  void judge_ends_without_check(const std::vector<RankEnd>& ends) {
    for (uint32_t rank = 0; rank < setting_.ranks; ++rank) {
      if (ends[rank].is_done) continue;
      const bool is_stop = !stops_[rank].empty();
      const Outcome outcome = ends[rank].is_killed ? Outcome::kTimeout
                              : is_stop            ? Outcome::kFail
                                                   : Outcome::kCrash;
      setting_.add("process", name_of(rank), outcome,
                   name_of(rank) + ": " + (is_stop ? stops_[rank] : ends[rank].text));
    }
  }

  const Setting& setting_;
  Creation creation_{0};
  SharedMemory shared_;
  std::map<uint64_t, Merge> merges_;  // The checks that some rank has not ended.
  std::vector<std::string> stops_;
  std::vector<std::string> skips_;
  std::map<std::string, size_t> ended_by_;
  uint64_t count_ = 0;
  std::optional<uint64_t> next_;
};

}  // namespace

bool run_values(const Setting& setting) { return Values(setting).run(); }

}  // namespace bp::conformance::dist
