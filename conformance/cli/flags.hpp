// The flags of bp-conformance, in groups that several verbs share.
#pragma once

#include <CLI/CLI.hpp>

#include "conformance/cli/command_line.hpp"

namespace bp::conformance {

// What CLI11 stores as text and is read afterwards.
struct RawOptions {
  std::string seed = "0x5eed";
  std::string tier;
  std::string shard;
  std::string shuffle;
  std::vector<std::string> options;
  std::string cache_bytes;            // Of perf.
  std::string max_regress = "5%";     // Of perf.
  double perf_timeout_seconds = 120;  // Of perf, whose cases take longer than those of run.
};

// Which cases.
void add_selection(CLI::App& app, CommandLine& line, RawOptions& raw);

// Which device, with which options of its backend, and for how long.
void add_backend(CLI::App& app, CommandLine& line, RawOptions& raw);

// What the data of the cases are made from, and what surrounds them.
void add_data(CLI::App& app, CommandLine& line, RawOptions& raw);

// How cases are spread over workers.
void add_workers(CLI::App& app, CommandLine& line);

// Waivers, confirmation, repetition and the other flags of run alone.
void add_run(CLI::App& app, CommandLine& line, RawOptions& raw);

// Those of replay.
void add_replay(CLI::App& app, CommandLine& line, RawOptions& raw);

// All flags of perf.
void add_perf(CLI::App& app, CommandLine& line, RawOptions& raw);

// The documents that run and report write.
void add_reports(CLI::App& app, CommandLine& line);

}  // namespace bp::conformance
