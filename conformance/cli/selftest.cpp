// The verb selftest: runs the suite over backends that are broken on purpose, and over backends
// that are right in unusual ways, and prints which case found which backend.
#include "conformance/cli/selftest.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "conformance/cli/progress.hpp"
#include "conformance/cli/verbs.hpp"
#include "conformance/faults/fault.hpp"
#include "conformance/json_file.hpp"
#include "conformance/mutants/benign_table.hpp"
#include "conformance/mutants/kill_table.hpp"
#include "conformance/mutants/runtime_kill_table.hpp"
#include "conformance/perf/perf_list.hpp"
#include "conformance/report/files.hpp"

namespace bp::conformance {

std::string mutant_plugin(const CommandLine& line) {
  if (!line.mutants.empty()) return line.mutants;
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  const auto prefix = program.parent_path().parent_path();
  for (const char* folder : {"lib", "lib/backplane"}) {
    const auto path = prefix / folder / "libbp_mutant.so";
    if (std::filesystem::exists(path)) return path;
  }
  throw UsageError("libbp_mutant.so does not lie beside this program; name it by --mutants FILE");
}

std::string wrapped_path(const std::string& plugin) {
  if (!std::filesystem::exists(plugin)) {
    throw UsageError("selftest wraps a plugin by its path: there is no file '" + plugin + "'");
  }
  return std::filesystem::absolute(plugin);
}

namespace {

// There are few sets and short times, because they suffice for every mutant that can be found.
constexpr PerfOptions kQuickPerf{.cache_bytes = 8u << 20, .min_seconds = 0.01};

struct KillResult {
  const KillRow* row = nullptr;
  size_t cases = 0, failed = 0;
  bool is_right = false;
  std::string killer;                    // The first case that fails for the right reason.
  std::string message;                   // What this case says.
  std::map<std::string, size_t> causes;  // The causes of the failing cases, with their tags.
  std::string seed;                      // The seed of the run in which a benign mutant failed.
};

bool is_failure(const Final& final) {
  return count_of(final.attempt.result.outcome) == Count::kFailed;
}

void judge(const KillRow& row, const CaseList& cases, const RunReport& report, KillResult& out) {
  out.cases += report.finals.size();
  for (const Final& final : report.finals) {
    if (!is_failure(final)) continue;
    const Result& result = final.attempt.result;
    const std::string cause =
        result.cause.empty() ? std::string(outcome_name(result.outcome)) : result.cause;
    if (row.killer == nullptr && cause == row.cause) continue;
    ++out.failed;
    ++out.causes[row.tag == std::string_view("*") ? cause : cause + " " + result.tag];
    const std::string& id = cases[final.index].id;
    const bool is_expected = row.killer != nullptr && matches_glob(row.killer, id) &&
                             matches_glob(row.cause, cause) && matches_glob(row.tag, result.tag);
    if (out.killer.empty() && (is_expected || row.killer == nullptr)) {
      out.killer = id;
      out.message = result.message;
    }
  }
}

class Selftest {
 public:
  Selftest(const CommandLine& line, const CaseList& cases) : line_(line), cases_(cases) {
    line_.run.session.interrupt_fd = interrupt_descriptor();
    line_.run.retries = 0;
    line_.run.max_crashes = 1000000;
    SessionOptions& session = line_.run.session;
    line_.selection.shard_count = 1;  // A part of the mutants, of which each meets all its cases.
    wrapped_ = wrapped_path(line_.plugin);
    session.setup.plugin = mutant_plugin(line_);
    line_.plugin = session.setup.plugin;
  }

  // Returns false if the run was interrupted.
  bool run(const KillRow& row, KillResult& out) {
    out.row = &row;
    SelectionQuery query = line_.selection;
    query.filters = {row.cases};
    query.tier = row.is_smoke ? Tier::kSmoke : Tier::kQuick;
    const CaseList& cases = cases_of(row);
    const std::vector<size_t> all = select_cases(cases, query);
    SessionOptions& session = line_.run.session;
    session.setup.options = {{"mutant", row.mutant}, {"wrap", wrapped_}};
    const bool waits = row.killer == nullptr && row.cause == std::string_view(kWaits);
    session.setup.case_options.launch_patience_ms =
        waits ? kShortPatienceMs : CaseOptions().launch_patience_ms;
    const uint64_t first_seed = session.seed;
    const int seeds = row.killer == nullptr ? line_.seeds : 1;
    bool goes_on = true;
    for (int i = 0; goes_on && i < seeds && out.failed == 0; ++i) {
      session.seed = first_seed + static_cast<uint64_t>(i);
      const bool is_sampled = row.killer == nullptr && line_.sample != 0;
      goes_on = run_once(cases, is_sampled ? sample_of(all, row.mutant) : all, row, out);
      out.seed = std::to_string(session.seed);
    }
    session.seed = first_seed;
    out.is_right = row.killer == nullptr ? out.failed == 0 && out.cases > 0 : !out.killer.empty();
    return goes_on;
  }

 private:
  // Returns as many of the cases as --sample says, in their order. The seed of the run draws them,
  // for each mutant other ones.
  std::vector<size_t> sample_of(std::vector<size_t> cases, std::string_view mutant) const {
    uint64_t state = line_.run.session.seed;
    for (const char letter : mutant) state = faults::mixed(state, static_cast<uint8_t>(letter));
    const size_t count = std::min(line_.sample, cases.size());
    for (size_t i = 0; i < count; ++i) {
      std::swap(cases[i], cases[i + faults::mixed(state, i) % (cases.size() - i)]);
    }
    cases.resize(count);
    std::ranges::sort(cases);
    return cases;
  }

  // Returns the cases that the mutant meets: those of the suite, or those of perf for mutants that
  // only the clock can find.
  const CaseList& cases_of(const KillRow& row) {
    if (!std::string_view(row.cases).starts_with(kPerfPrefix)) return cases_;
    line_.run.session.setup.perf = kQuickPerf;
    if (!timed_) timed_ = perf_cases(kQuickPerf);
    return *timed_;
  }

  bool run_once(const CaseList& cases, const std::vector<size_t>& selection, const KillRow& row,
                KillResult& out) {
    BatchReport probed;
    if (!probe(line_, cases, probed)) {
      if (probed.is_interrupted) return false;
      throw UsageError(std::string("mutant ") + row.mutant + " does not load");
    }
    Progress progress(line_.is_quiet, true);
    Supervisor supervisor(line_.run, cases, [&](const Attempt&, const Position& position) {
      progress.update({.done = position.done, .total = position.total, .what = row.mutant});
    });
    const RunReport report = supervisor.run(selection, probed);
    judge(row, cases, report, out);
    return !report.is_interrupted;
  }

  CommandLine line_;
  const CaseList& cases_;
  std::optional<CaseList> timed_;
  std::string wrapped_;
};

std::string verdict_of(const KillResult& result) {
  if (result.row->killer == nullptr) return result.is_right ? "passed" : "WRONGLY FAILED";
  if (result.is_right) return "killed";
  return result.failed == 0 ? "SURVIVED" : "WRONG REASON";
}

void print(const KillResult& result) {
  std::string causes;
  for (const auto& [cause, count] : result.causes) {
    causes += (causes.empty() ? "" : ", ") + cause + " " + std::to_string(count);
  }
  char head[128];
  std::snprintf(head, sizeof(head), "%-23s %-36s %6zu %6zu  %-14s ", result.row->mutant,
                result.row->broken, result.cases, result.failed, verdict_of(result).c_str());
  std::cout << head << causes << "\n";
  if (result.row->killer == nullptr && !result.is_right) {
    std::cout << "    " << result.killer << " with seed " << result.seed << ": " << result.message
              << "\n";
  }
  std::cout.flush();
}

nlohmann::json json_of(const KillResult& result) {
  return {{"mutant", result.row->mutant}, {"broken", result.row->broken}, {"cases", result.cases},
          {"failed", result.failed},      {"causes", result.causes},      {"killer", result.killer},
          {"verdict", verdict_of(result)}};
}

// Returns the rows of the tables that the command line selects.
std::vector<KillRow> rows_of(const CommandLine& line) {
  std::vector<KillRow> rows;
  const auto add = [&](const KillRow& row) {
    if (line.mutant_filter.empty() || matches_glob(line.mutant_filter, row.mutant)) {
      rows.push_back(row);
    }
  };
  const auto add_part = [&](const char* part, std::span<const KillRow> table) {
    if (line.mutant_part.empty() || line.mutant_part == part) std::ranges::for_each(table, add);
  };
  add_part("ops", kKillTable);
  add_part("timed", kTimedKillTable);
  add_part("runtime", kRuntimeKillTable);
  add_part("benign", kBenignTable);
  if (rows.empty()) throw NothingMatched("no mutant matches '" + line.mutant_filter + "'");
  const auto& [index, count] = std::pair(line.selection.shard_index, line.selection.shard_count);
  std::vector<KillRow> part;
  for (size_t i = index; i < rows.size(); i += count) part.push_back(rows[i]);
  if (part.empty()) {
    throw NothingMatched("part " + std::to_string(index + 1) + " of " + std::to_string(count) +
                         " of " + std::to_string(rows.size()) + " mutants is empty");
  }
  return part;
}

}  // namespace

int selftest_verb(const CommandLine& line) {
  if (line.random_count > 0 || !line.faults.empty()) return random_selftest(line);
  const CaseList& cases = CaseList::whole_suite();
  Selftest selftest(line, cases);
  std::printf("%-23s %-36s %6s %6s  %-14s %s\n", "mutant", "what is wrong", "cases", "failed",
              "verdict", "causes");
  std::fflush(stdout);
  size_t wrong = 0;
  nlohmann::json matrix = nlohmann::json::array();
  for (const KillRow& row : rows_of(line)) {
    KillResult result;
    if (!selftest.run(row, result)) return kExitInterrupted;
    print(result);
    matrix.push_back(json_of(result));
    wrong += !result.is_right;
  }
  if (!line.json_file.empty()) write_file(line.json_file, json_text(matrix, 1) + "\n");
  std::cout << matrix.size() << " mutants, " << wrong << " judged wrongly\n";
  if (line.selection.shard_count > 1) {
    std::cout << "They are part " << line.selection.shard_index + 1 << " of "
              << line.selection.shard_count << " of the mutants.\n";
  }
  if (line.sample != 0) {
    std::cout << "A benign mutant met at most " << line.sample << " of its cases, drawn by seed "
              << line.run.session.seed << ".\n";
  }
  return wrong == 0 ? kExitOk : kExitFailures;
}

}  // namespace bp::conformance
