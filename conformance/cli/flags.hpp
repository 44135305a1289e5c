// The flags of bp-conformance, in groups that several verbs share.
#pragma once

#include <CLI/CLI.hpp>

#include "conformance/cli/command_line.hpp"

namespace bp::conformance {

// Options that CLI11 stores as text, and that are interpreted afterwards.
struct RawOptions {
  std::string seed = "0x5eed";
  std::string tier;
  std::string shard;
  std::string shuffle;
  std::vector<std::string> options;
  std::vector<std::string> group_options;             // A flag of dist.
  std::string cache_bytes;                            // A flag of perf.
  std::string max_regress = "5%";                     // A flag of perf.
  std::string min_bytes = "1K", max_bytes = "256M";   // Flags of dist.
  bool has_no_values = false, has_no_faults = false;  // Flags of dist.
  double perf_timeout_seconds = 120;  // The default of perf, whose cases take longer than those of
                                      // run.
};

// Adds the flags that select cases.
void add_selection(CLI::App& app, CommandLine& line, RawOptions& raw);

// Adds the flags for the device, the options of its backend, and time limits.
void add_backend(CLI::App& app, CommandLine& line, RawOptions& raw);

// Adds the flags for the data of the cases and for the memory around them.
void add_data(CLI::App& app, CommandLine& line, RawOptions& raw);

// Adds the flags that spread cases over workers.
void add_workers(CLI::App& app, CommandLine& line);

// Adds waivers, confirmation, repetition and the other flags of run alone.
void add_run(CLI::App& app, CommandLine& line, RawOptions& raw);

// Adds the flags of replay.
void add_replay(CLI::App& app, CommandLine& line, RawOptions& raw);

// Adds all flags of perf.
void add_perf(CLI::App& app, CommandLine& line, RawOptions& raw);

// Adds the flags for the documents that run and report write.
void add_reports(CLI::App& app, CommandLine& line);

// Adds the flags for the device, the options of its backend, and the time limit in
// `timeout_seconds`.
void add_device(CLI::App& app, CommandLine& line, RawOptions& raw, double& timeout_seconds);

// Cuts what a flag gives, each a KEY=VALUE, at the first equals sign.
NamedValues named_values_of_flag(const std::string& flag, const std::vector<std::string>& given);

// A check whose refusal names the allowed range.
CLI::Validator number_of_seconds();

// Adds the verb dist with its flags, and interprets them.
void add_dist_verb(CLI::App& app, CommandLine& line, RawOptions& raw);
void interpret_dist(CommandLine& line, const RawOptions& raw);

// Add the verbs report, package, verify and stress, with their flags.
void add_report_verb(CLI::App& app, CommandLine& line);
void add_package_verbs(CLI::App& app, CommandLine& line);
void add_stress_verb(CLI::App& app, CommandLine& line, RawOptions& raw);

}  // namespace bp::conformance
