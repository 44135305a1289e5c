#include "conformance/dist/supervisor.hpp"

#include <algorithm>
#include <map>

#include "conformance/dist/setting.hpp"

namespace bp::conformance::dist {
namespace {

constexpr uint32_t kMostRanksOfFaults = 4;  // More ranks meet no other faults.

class BandwidthSupervisor {
 public:
  explicit BandwidthSupervisor(const Setting& setting)
      : setting_(setting), creation_(setting.ranks), stops_(setting.ranks) {}

  bool run() {
    const StoreFolder folder;
    Crew crew(setting_.tasks(Job::kBandwidth, folder.path()), setting_.options.interrupt_fd,
              setting_.options.launcher);
    // A rank speaks once for each size, which takes some groups of calls.
    const double silence =
        120 + silence_seconds(setting_.options.timeout_seconds, setting_.options.grace_seconds);
    const std::vector<RankEnd> ends =
        crew.run(setting_.options.load_seconds, silence,
                 [this](uint32_t rank, const nlohmann::json& line) { take(rank, line); });
    if (creation_.has_failed()) {
      creation_.judge(setting_);
      return false;
    }
    finish_kind();
    for (uint32_t rank = 0; rank < ends.size(); ++rank) {
      if (ends[rank].is_done) continue;
      const std::string name = "rank " + std::to_string(rank);
      setting_.add("process", name, ends[rank].is_killed ? Outcome::kTimeout : Outcome::kFail,
                   name + ": " + (stops_[rank].empty() ? ends[rank].text : stops_[rank]));
    }
    setting_.report.add_bandwidth(setting_.table, setting_.ranks, std::move(all_));
    return true;
  }

 private:
  struct Times {
    std::vector<std::vector<double>> ranks;
    uint64_t wrong_count = 0;
    std::string text;
  };

  void take(uint32_t rank, const nlohmann::json& line) {
    const std::string said = line.value("say", "");
    if (said == "create") creation_.take(rank, line);
    if (said == "stop") stops_[rank] = line.value("text", "");
    if (said == "size") take_size(line);
  }

  void take_size(const nlohmann::json& line) {
    const bp_collective_kind kind = line.value("kind", bp_collective_kind{0});
    const uint64_t size = line.value("size", uint64_t{0});
    const bool is_in_place = line.value("in_place", false);
    const std::pair key(size, is_in_place);
    Times& times = times_[{kind, key}];
    times.ranks.push_back(line.value("seconds", std::vector<double>()));
    times.wrong_count += line.value("wrong", uint64_t{0});
    if (times.text.empty()) times.text = line.value("text", "");
    if (times.ranks.size() < setting_.ranks) return;
    if (rows_.empty() || rows_.back().claim.kind != kind) finish_kind();
    if (rows_.empty() || rows_.back().size_bytes != size) {
      const auto claims = timed_claims();
      rows_.push_back({*std::ranges::find(claims, kind, &Claim::kind),
                       size,
                       line.value("count", uint64_t{0}),
                       {},
                       {}});
    }
    Timing& timing = is_in_place ? rows_.back().in_place : rows_.back().apart;
    timing = {median_of_slowest(times.ranks), times.wrong_count, true};
    const std::string name = std::string(kind_text(kind)) + ", " + std::to_string(size) + " bytes" +
                             (is_in_place ? ", in place" : "");
    setting_.add(kind_text(kind), name, times.text.empty() ? Outcome::kPass : Outcome::kFail,
                 times.text);
    setting_.show(name, 0, 0);
  }

  void finish_kind() {
    if (rows_.empty()) return;
    if (setting_.observer.print) {
      setting_.observer.print(bandwidth_text(rows_, setting_.ranks) + "\n");
    }
    all_.insert(all_.end(), rows_.begin(), rows_.end());
    rows_.clear();
  }

  const Setting& setting_;
  Creation creation_;
  std::vector<std::string> stops_;
  std::map<std::pair<bp_collective_kind, std::pair<uint64_t, bool>>, Times> times_;
  std::vector<BandwidthRow> rows_;  // Of the kind that is timed.
  std::vector<BandwidthRow> all_;
};

std::vector<std::string> chosen_tables(const Options& options, const Look& look) {
  if (options.table.empty()) return look.tables;
  if (std::ranges::count(look.tables, options.table) != 0) return {options.table};
  std::string all;
  for (const std::string& table : look.tables) all += (all.empty() ? "" : ", ") + table;
  throw NotLoaded("there is no table \"" + options.table + "\" of process groups; " +
                  (all.empty() ? "the device has none" : "the device has " + all));
}

}  // namespace

bool run_bandwidth(const Setting& setting) { return BandwidthSupervisor(setting).run(); }

Look look_at(const Options& options) {
  const StoreFolder folder;
  RankTask task;
  task.setup = options.setup;
  task.folder = folder.path();
  Crew crew({task}, options.interrupt_fd);
  Look look;
  std::string problem;
  const std::vector<RankEnd> ends = crew.run(
      options.load_seconds, options.load_seconds, [&](uint32_t, const nlohmann::json& line) {
        const std::string said = line.value("say", "");
        if (said == "stop") problem = line.value("text", "");
        if (said != "hello") return;
        look.devices = line.value("devices", std::vector<std::string>());
        look.tables = line.value("tables", std::vector<std::string>());
      });
  if (!ends[0].is_done) throw NotLoaded(problem.empty() ? ends[0].text : problem);
  return look;
}

void run_all(const Options& options, const Look& look, const Observer& observer, Report& report) {
  if (look.tables.empty() && options.table.empty()) {
    report.add({"no table",
                1,
                "values",
                "create",
                "create",
                Outcome::kNotSupported,
                "the device has no process groups; --transport judges staged ones",
                {}});
  }
  for (const std::string& table : chosen_tables(options, look)) {
    Setting setting{options, observer, report, table, 1, look.devices.size(), ""};
    uint32_t most = 0, most_for_faults = 0;  // Of the numbers of ranks with which groups are made.
    for (const uint32_t ranks : options.ranks) {
      setting.ranks = ranks;
      setting.section = "values";
      if (options.has_values && !run_values(setting)) continue;
      most = std::max(most, ranks);
      if (ranks <= kMostRanksOfFaults) most_for_faults = std::max(most_for_faults, ranks);
    }
    if (options.has_faults && most_for_faults > 1) {
      setting.ranks = most_for_faults;
      setting.section = "faults";
      run_faults(setting);
    }
    if (options.has_bandwidth && most > 1) {
      setting.ranks = most;
      setting.section = "bandwidth";
      static_cast<void>(run_bandwidth(setting));
    }
  }
}

}  // namespace bp::conformance::dist
