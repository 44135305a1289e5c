// The verb dist: judges process groups whose ranks are processes.
#include <iostream>
#include <optional>

#include "conformance/cli/flags.hpp"
#include "conformance/cli/progress.hpp"
#include "conformance/cli/verbs.hpp"
#include "conformance/dist/fault.hpp"
#include "conformance/json_file.hpp"
#include "conformance/perf/cache_size.hpp"

namespace bp::conformance {
namespace {

constexpr uint32_t kMostRanks = 64;

constexpr const char* kDistFooter =
    R"(Each rank is a process that loads the plugin, takes a device in turn, and finds the others
through a store. Every check, fault and size ends in time, whatever the backend does: a rank that is
silent for too long is killed, and the page says which call it was in.

Examples:
  bp-conformance dist cpu                                    # values and faults, 1, 2 and 4 ranks
  bp-conformance dist ./libvendor_bp.so --ranks 2,8 --tier full
  bp-conformance dist cpu --fault dead,abort --ranks 2 --no-values
  bp-conformance dist cpu --table gloo --group-option shared_memory=0
  bp-conformance dist cpu --ranks 4 --no-values --no-faults --bandwidth --max-bytes 64M
  bp-conformance dist sim --transport cpu                    # staged groups, through host memory
  bp-conformance dist cpu --table mpi --launcher "mpirun --enable-recovery -n {}"

Exit codes: 0 all is right, 1 something failed, 2 the command line is wrong, 3 the plugin does not
load, 5 nothing ran, 130 interrupted.)";

std::string fault_names() {
  std::string names;
  for (const dist::FaultRow& row : dist::fault_rows()) {
    names += (names.empty() ? "" : ", ") + std::string(row.name);
  }
  return names;
}

uint64_t bytes_of_flag(const std::string& flag, const std::string& text) {
  const uint64_t size = parse_size(text);
  if (size != 0) return size;
  throw CommandLineEnd{kExitUsage,
                       flag + " is '" + text + "'; allowed: a size from 1 to 1024G, such as 64M"};
}

nlohmann::json dist_document(const CommandLine& line, const dist::Look& look,
                             const dist::Report& report, const std::string& verdict) {
  nlohmann::json document = report.json();
  document["schema"] = "backplane-dist-1";
  document["suite"] = kSuiteVersion;
  document["plugin"] = line.plugin;
  document["transport"] = line.dist.setup.transport;
  document["devices"] = look.devices;
  document["tables"] = look.tables;
  document["ranks"] = line.dist.ranks;
  document["seed"] = line.dist.seed;
  document["verdict"] = verdict;
  return document;
}

// Progress that begins anew with each list of checks or faults, so that the time that is left is
// that of the list.
class ShownProgress {
 public:
  explicit ShownProgress(bool is_quiet) : is_quiet_(is_quiet) { progress_.emplace(is_quiet, true); }

  void update(const ProgressState& state) {
    if (state.done < done_ || state.total != total_) {
      clear();
      progress_.emplace(is_quiet_, true);
    }
    done_ = state.done;
    total_ = state.total;
    progress_->update(state);
  }
  void clear() { progress_->clear(); }

 private:
  const bool is_quiet_;
  std::optional<Progress> progress_;
  size_t done_ = 0, total_ = 0;
};

}  // namespace

void add_dist_verb(CLI::App& app, CommandLine& line, RawOptions& raw) {
  dist::Options& o = line.dist;
  CLI::App* verb = app.add_subcommand(
      "dist", "judge process groups whose ranks are processes: values, faults, bandwidths");
  verb->footer(kDistFooter);
  verb->add_option("PLUGIN", line.plugin, "path or name of the backend")->required();

  const char* group = "Selection";
  verb->add_option("--ranks", o.ranks, "make groups of these numbers of ranks, such as 1,2,8")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(uint32_t{1}, kMostRanks))
      ->capture_default_str()
      ->group(group);
  verb->add_option("--table", o.table,
                   "judge only the table of process groups with this name; with --transport, a "
                   "table of the transport; default: all tables of the device")
      ->group(group);
  verb->add_option("--group-option", raw.group_options,
                   "give KEY=VALUE to each group; may be repeated")
      ->allow_extra_args(false)
      ->group(group);
  verb->add_option("--launcher", o.launcher,
                   "start the ranks with this command on this machine, where {} stands for their "
                   "number, such as \"mpirun -n {}\"; default: start each process alone")
      ->group(group);
  verb->add_option("--tier", raw.tier, "smoke, quick (default) or full: how many checks of values")
      ->check(CLI::IsMember({"smoke", "quick", "full"}))
      ->group(group);
  verb->add_flag("--no-values", raw.has_no_values, "leave out the checks of values")->group(group);
  verb->add_flag("--no-faults", raw.has_no_faults, "leave out the faults")->group(group);
  verb->add_option("--fault", o.faults, "try only these faults: " + fault_names())
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group(group);

  add_device(*verb, line, raw, o.timeout_seconds);
  verb->get_option("--device")
      ->description("index or name of the device of all ranks; default: the devices in turn");
  verb->get_option("--timeout")->description("give create() and each call this many seconds");
  verb->add_option("--fault-timeout", o.fault_timeout_seconds,
                   "give the calls of a fault this many seconds")
      ->check(number_of_seconds())
      ->capture_default_str()
      ->group("Backend");
  verb->add_option("--grace", o.grace_seconds,
                   "let a rank end this many seconds after a timeout; more for a busy machine")
      ->check(number_of_seconds())
      ->capture_default_str()
      ->group("Backend");
  verb->add_option("--load-timeout", o.load_seconds, "give the load this many seconds")
      ->check(number_of_seconds())
      ->capture_default_str()
      ->group("Backend");
  verb->add_option("--seed", raw.seed, "seed of random values; decimal or 0x...")
      ->capture_default_str()
      ->group("Selection");

  group = "Bandwidth";
  verb->add_flag("--bandwidth", o.has_bandwidth, "time collectives of f32 with the most ranks")
      ->group(group);
  verb->add_option("--min-bytes", raw.min_bytes, "the smallest size")
      ->capture_default_str()
      ->group(group);
  verb->add_option("--max-bytes", raw.max_bytes, "the largest size")
      ->capture_default_str()
      ->group(group);
  verb->add_option("--factor", o.sizes.factor, "each size is this many times the one before")
      ->check(CLI::Range(uint64_t{2}, uint64_t{1} << 20))
      ->capture_default_str()
      ->group(group);

  verb->add_option("--json", line.json_file, "write all results to this file")->group("Output");
  verb->add_flag("-q,--quiet", line.is_quiet, "show no progress")->group("Output");
}

void interpret_dist(CommandLine& line, const RawOptions& raw) {
  dist::Options& o = line.dist;
  o.setup = line.run.session.setup;
  o.seed = line.run.session.seed;
  o.group_options = named_values_of_flag("--group-option", raw.group_options);
  o.tier = line.is_tier_given ? line.selection.tier : Tier::kQuick;
  o.has_values = !raw.has_no_values;
  o.has_faults = !raw.has_no_faults;
  o.sizes.min_bytes = bytes_of_flag("--min-bytes", raw.min_bytes);
  o.sizes.max_bytes = bytes_of_flag("--max-bytes", raw.max_bytes);
  if (o.sizes.min_bytes > o.sizes.max_bytes) {
    throw CommandLineEnd{kExitUsage, "--min-bytes is " + raw.min_bytes + " and --max-bytes is " +
                                         raw.max_bytes + "; the first must not be larger"};
  }
  const bool is_blank = o.launcher.find_first_not_of(' ') == std::string::npos;
  if (!o.launcher.empty() && (is_blank || o.launcher.find("{}") == std::string::npos)) {
    throw CommandLineEnd{kExitUsage, "--launcher is '" + o.launcher +
                                         "'; allowed: a command that has {} as a word, which "
                                         "stands for the number of ranks"};
  }
  for (const std::string& fault : o.faults) {
    if (dist::find_fault(fault) == nullptr) {
      throw CommandLineEnd{kExitUsage, "--fault is '" + fault + "'; allowed: " + fault_names()};
    }
  }
}

int dist_verb(const CommandLine& line) {
  dist::Options options = line.dist;
  options.interrupt_fd = interrupt_descriptor();
  ShownProgress progress(line.is_quiet);
  const dist::Observer observer{
      .progress =
          [&](const std::string& what, size_t done, size_t total, size_t failed) {
            progress.update({.done = done, .total = total, .failed = failed, .what = what});
          },
      .print =
          [&](const std::string& text) {
            progress.clear();
            std::cout << text << std::flush;
          }};
  dist::Look look;
  dist::Report report;
  bool is_interrupted = false;
  try {
    look = dist::look_at(options);
    std::cout << "bp-conformance dist, suite " << kSuiteVersion << ": " << line.plugin << ", "
              << look.devices.size() << (look.devices.size() == 1 ? " device" : " devices")
              << (options.setup.transport.empty()
                      ? ""
                      : ", staged groups through host memory over " + options.setup.transport)
              << "\n"
              << std::flush;
    dist::run_all(options, look, observer, report);
  } catch (const dist::NotLoaded& e) {
    complain(e.what());
    return kExitNotLoaded;
  } catch (const dist::Interrupted&) {
    is_interrupted = true;
  }
  progress.clear();
  const std::string verdict =
      is_interrupted ? "INTERRUPTED   " + report.verdict() : report.verdict();
  std::cout << report.text() << "\n"
            << "verdict: " << verdict << "\n";
  if (!line.json_file.empty()) {
    write_file(line.json_file, json_text(dist_document(line, look, report, verdict), 1) + "\n");
  }
  if (is_interrupted) return kExitInterrupted;
  const dist::Tally total = report.total();
  if (total.failed != 0) return kExitFailures;
  return total.passed == 0 ? kExitNothingRan : kExitOk;
}

}  // namespace bp::conformance
