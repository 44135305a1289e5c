#include "conformance/cli/flags.hpp"

#include <cmath>
#include <cstdlib>

namespace bp::conformance {
namespace {

// A check whose refusal says what is allowed; CLI11's own gives the largest double there is.
CLI::Validator positive_number() {
  const auto check = [](const std::string& text) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    const bool is_valid = *end == '\0' && std::isfinite(value) && value > 0;
    return is_valid ? std::string() : text + " is not a number above 0";
  };
  return CLI::Validator(check, "POSITIVE");
}

void add_confirmation(CLI::App& app, RunOptions& run) {
  const char* group = "Robustness";
  app.add_option("--retries", run.retries, "solo runs that confirm a failure")
      ->check(CLI::Range(0, 100))
      ->capture_default_str()
      ->group(group);
  app.add_flag("--fail-fast", run.fail_fast, "end the run at the first failure")->group(group);
}

void add_output(CLI::App& app, CommandLine& line) {
  const char* group = "Output";
  app.add_option("--out", line.out, "folder of the result files; default: bp-results/<time>")
      ->group(group);
  app.add_option("--resume", line.resume, "go on with the interrupted run in this folder")
      ->excludes("--out")
      ->group(group);
  app.add_option("--format", line.format, "pretty, plain, jsonl or tap")
      ->check(CLI::IsMember({"pretty", "plain", "jsonl", "tap"}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--json", line.json_file, "write the summary here as well")->group(group);
  app.add_flag("-v,--verbose", line.is_verbose, "a line for each case, and every cause")
      ->group(group);
  app.add_flag("-q,--quiet", line.is_quiet, "the verdict and the counts alone")->group(group);
  app.add_option("--color", line.color, "auto, always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--list-slowest", line.list_slowest, "so many of the slowest cases")
      ->check(CLI::Range(0, 1000000))
      ->group(group);
  app.add_option("--budget", line.budget_seconds, "seconds for the run; above: exit code 7")
      ->check(positive_number())
      ->group(group);
}

void add_device(CLI::App& app, CommandLine& line, RawOptions& raw, double& timeout_seconds) {
  const char* group = "Backend";
  app.add_option("--device", line.run.session.setup.device, "index or name; default: the first")
      ->group(group);
  app.add_option("--option", raw.options, "KEY=VALUE for the backend; may be repeated")
      ->allow_extra_args(false)
      ->group(group);
  app.add_option("--layers", line.run.session.setup.layers,
                 "in front of the backend: validate,trace; default: BACKPLANE_LAYERS")
      ->group(group);
  app.add_option("--layer-options", line.run.session.setup.layer_options,
                 "LAYER.KEY=VALUE of layers, separated by commas")
      ->group(group);
  app.add_option("--timeout", timeout_seconds, "seconds per case, and to load")
      ->check(positive_number())
      ->capture_default_str()
      ->group(group);
}

}  // namespace

void add_selection(CLI::App& app, CommandLine& line, RawOptions& raw) {
  SelectionQuery& s = line.selection;
  const char* group = "Selection";
  app.add_option("-k,--filter", s.filters, "GLOB[:GLOB][-NEG]: cases to run")
      ->allow_extra_args(false)
      ->group(group);
  app.add_option("--regex", s.regexes, "cases whose whole id matches")
      ->allow_extra_args(false)
      ->group(group);
  app.add_option("--case", s.ids, "one case by its id, at any tier")
      ->allow_extra_args(false)
      ->group(group);
  app.add_option("--caselist", s.caselists, "file with an id a line; - is standard input")
      ->allow_extra_args(false)
      ->group(group);
  app.add_option("--exclude", s.excludes, "glob of cases to leave out")
      ->allow_extra_args(false)
      ->group(group);
  app.add_option("--tier", raw.tier, "smoke, quick (default of run, coverage) or full (of list)")
      ->check(CLI::IsMember({"smoke", "quick", "full"}))
      ->group(group);
  app.add_option("--dtype", s.dtypes, "only cases of these dtypes: f32,i64")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group(group);
  app.add_option("--shard", raw.shard, "I/N: the I-th of N parts, counted from 1")->group(group);
}

void add_backend(CLI::App& app, CommandLine& line, RawOptions& raw) {
  add_device(app, line, raw, line.run.session.timeout_seconds);
}

void add_data(CLI::App& app, CommandLine& line, RawOptions& raw) {
  CaseOptions& cases = line.run.session.setup.case_options;
  const char* group = "Determinism";
  app.add_option("--seed", raw.seed, "of all data; decimal or 0x...")
      ->capture_default_str()
      ->group(group);
  app.add_option("--canary", cases.canary_bytes, "guard bytes on both sides of each tensor")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str()
      ->group(group);
  app.add_option("--poison", cases.poison, "what outputs hold before: nan, ff or random")
      ->check(CLI::IsMember({"nan", "ff", "random"}))
      ->capture_default_str()
      ->group(group);
}

void add_workers(CLI::App& app, CommandLine& line) {
  RunOptions& run = line.run;
  const char* group = "Robustness";
  app.add_option("--isolate", line.isolate, "case, batch or none")
      ->check(CLI::IsMember({"case", "batch", "none"}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--batch", run.batch, "cases per worker")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str()
      ->group(group);
  app.add_option("--jobs", run.jobs, "workers at a time")
      ->check(CLI::Range(1, 256))
      ->capture_default_str()
      ->group(group);
  app.add_option("--max-crashes", run.max_crashes, "end the run after so many")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str()
      ->group(group);
}

void add_run(CLI::App& app, CommandLine& line, RawOptions& raw) {
  RunOptions& run = line.run;
  const char* group = "Expectations";
  app.add_option("--waivers", line.waivers, "file; default: beside the plugin")->group(group);
  app.add_option("--write-waivers", line.write_waivers, "write drafts for the failures")
      ->group(group);

  app.add_option("--shrunk", line.shrunk, "run the one call in this file of shrink")
      ->group("Selection");
  add_confirmation(app, run);

  group = "Determinism";
  app.add_option("--repeat", run.repeat, "runs of each case; a difference is a Flake")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str()
      ->group(group);
  app.add_option("--shuffle", raw.shuffle, "run in an order drawn from SEED; default: from --seed")
      ->expected(0, 1)
      ->type_name("[SEED]")
      ->group(group);

  add_output(app, line);
}

void add_replay(CLI::App& app, CommandLine& line, RawOptions& raw) {
  SelectionQuery& s = line.selection;
  ReplaySource& replay = line.run.session.setup.replay;
  app.add_option("-k,--filter", s.filters, "GLOB[:GLOB][-NEG]: launches and reads to judge")
      ->allow_extra_args(false)
      ->group("Selection");
  app.add_option("--case", s.ids, "one launch or read by its id")
      ->allow_extra_args(false)
      ->group("Selection");
  app.add_flag("--partial", replay.is_partial, "go on where calls were not recorded")
      ->group("Recording");
  app.add_flag("--seed-weights", replay.seeds_weights,
               "floats that were copied in are drawn from --seed; only oracles judge then")
      ->group("Recording");
  app.add_option("--seed", raw.seed, "of --seed-weights; decimal or 0x...")
      ->capture_default_str()
      ->group("Recording");
  add_backend(app, line, raw);
  add_output(app, line);
}

void add_perf(CLI::App& app, CommandLine& line, RawOptions& raw) {
  PerfOptions& perf = line.run.session.setup.perf;
  app.add_option("-k,--filter", line.selection.filters, "GLOB[:GLOB][-NEG]: cases to measure")
      ->allow_extra_args(false)
      ->group("Selection");
  app.add_flag("--list", line.wants_list, "the ids of the cases, and measure nothing")
      ->group("Selection");

  add_device(app, line, raw, raw.perf_timeout_seconds);

  const char* group = "Measurement";
  app.add_option("--min-time", perf.min_seconds, "seconds of timed launches for each case")
      ->check(positive_number())
      ->capture_default_str()
      ->group(group);
  app.add_option(
         "--runs", line.perf_runs,
         "runs of everything, ceilings included: says whose grade changed, and takes medians")
      ->check(CLI::Range(1, 100))
      ->capture_default_str()
      ->group(group);
  app.add_option("--cache-bytes", raw.cache_bytes,
                 "last-level cache that inputs exceed twice, such as 50M; default: what the system "
                 "says of the host, 256M of other devices")
      ->group(group);
  app.add_option("--seed", raw.seed, "of all data; decimal or 0x...")
      ->capture_default_str()
      ->group(group);

  group = "Comparison";
  app.add_option("--baseline", line.baseline, "perf.json of an earlier run, or its folder")
      ->group(group);
  app.add_option("--max-regress", raw.max_regress,
                 "slower by more is exit code 7, if it is no noise")
      ->capture_default_str()
      ->group(group);

  group = "Output";
  app.add_option("--out", line.out, "folder of perf.json; default: bp-results/<time>")
      ->group(group);
  app.add_option("--json", line.json_file, "write perf.json here as well")->group(group);
  app.add_flag("-q,--quiet", line.is_quiet, "the summary alone")->group(group);
  app.add_option("--color", line.color, "auto, always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->capture_default_str()
      ->group(group);
}

void add_reports(CLI::App& app, CommandLine& line) {
  const char* group = "Output";
  app.add_flag("--explain-fallbacks", line.explains_fallbacks,
               "why calls were decomposed or ran on the host")
      ->group(group);
  app.add_option("--junit", line.junit, "write JUnit XML here as well")->group(group);
  app.add_option("--html", line.html, "write the page for browsers here as well")->group(group);
  app.add_option("--md", line.markdown, "write Markdown here as well")->group(group);
}

}  // namespace bp::conformance
