#include "conformance/cli/flags.hpp"

#include "conformance/report/summary.hpp"
#include "registry/boundary/number_text.hpp"

namespace bp::conformance {
namespace {

constexpr double kLeastSeconds = 1e-9;

void add_confirmation(CLI::App& app, RunOptions& run) {
  const char* group = "Robustness";
  app.add_option("--retries", run.retries,
                 "run a failed case this many times alone, to confirm the failure")
      ->check(CLI::Range(0, 100))
      ->capture_default_str()
      ->group(group);
  app.add_flag("--fail-fast", run.fail_fast, "end the run at the first failure")->group(group);
}

void add_output(CLI::App& app, CommandLine& line) {
  const char* group = "Output";
  app.add_option("--out", line.out,
                 "write the result files to this folder; default: bp-results/<time>")
      ->group(group);
  app.add_option("--resume", line.resume, "continue the interrupted run in this folder")
      ->excludes("--out")
      ->group(group);
  app.add_option("--format", line.format, "print results as pretty, plain, jsonl or tap")
      ->check(CLI::IsMember({"pretty", "plain", "jsonl", "tap"}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--json", line.json_file, "write the summary to this file too")->group(group);
  app.add_flag("-v,--verbose", line.is_verbose, "show a line for each case, and every cause")
      ->group(group);
  app.add_flag("-q,--quiet", line.is_quiet, "show only the verdict and the counts")->group(group);
  app.add_option("--color", line.color, "use colours: auto, always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--list-slowest", line.list_slowest, "list this many of the slowest cases")
      ->check(CLI::Range(0, 1000000))
      ->group(group);
  app.add_option("--budget", line.budget_seconds,
                 "end with exit code 7 if the run takes more than this many seconds")
      ->check(number_of_seconds())
      ->group(group);
}

}  // namespace

NamedValues named_values_of_flag(const std::string& flag, const std::vector<std::string>& given) {
  NamedValues values;
  for (const std::string& text : given) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw CommandLineEnd{kExitUsage, std::string(flag).append(" is '") + text +
                                           "'; allowed: KEY=VALUE, such as threads=2"};
    }
    values.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return values;
}

// The check of CLI11 names the largest double. A number above kMostSeconds fits no clock, and a
// stored run with such a number could not be read.
CLI::Validator number_of_seconds() {
  const auto check = [](const std::string& text) {
    const double value = parse_double(text).value_or(0);
    if (value >= kLeastSeconds && value <= kMostSeconds) return std::string();
    return text + " is not a number of seconds from " + short_text(kLeastSeconds) + " to " +
           short_text(kMostSeconds);
  };
  return CLI::Validator(check, "SECONDS");
}

void add_device(CLI::App& app, CommandLine& line, RawOptions& raw, double& timeout_seconds) {
  const char* group = "Backend";
  app.add_option("--device", line.run.session.setup.device,
                 "index or name of the device; default: the first")
      ->group(group);
  app.add_option("--option", raw.options, "give KEY=VALUE to the backend; may be repeated")
      ->allow_extra_args(false)
      ->group(group);
  app.add_option("--layers", line.run.session.setup.layers,
                 "put these layers in front of the backend, such as validate,trace; default: "
                 "BACKPLANE_LAYERS")
      ->group(group);
  app.add_option("--layer-options", line.run.session.setup.layer_options,
                 "give these options to layers: LAYER.KEY=VALUE, separated by commas")
      ->group(group);
  app.add_option("--transport", line.run.session.setup.transport,
                 "judge staged process groups: those of the device in place of its own, through "
                 "host memory and the process groups of this plugin")
      ->group(group);
  app.add_option("--timeout", timeout_seconds,
                 "allow this many seconds for each case, and for the load")
      ->check(number_of_seconds())
      ->capture_default_str()
      ->group(group);
}

void add_selection(CLI::App& app, CommandLine& line, RawOptions& raw) {
  SelectionQuery& s = line.selection;
  const char* group = "Selection";
  app.add_option("-k,--filter", s.filters, "select matching cases: GLOB[:GLOB][-NEG]")
      ->allow_extra_args(false)
      ->group(group);
  app.add_option("--regex", s.regexes, "select cases whose whole id matches this expression")
      ->allow_extra_args(false)
      ->group(group);
  app.add_option("--case", s.ids, "select the case with this id, at any tier")
      ->allow_extra_args(false)
      ->group(group);
  app.add_option("--caselist", s.caselists,
                 "select the ids in this file, one on each line; - is standard input")
      ->allow_extra_args(false)
      ->group(group);
  app.add_option("--exclude", s.excludes, "leave out the cases that match this glob")
      ->allow_extra_args(false)
      ->group(group);
  app.add_option("--tier", raw.tier,
                 "smoke (default of stress), quick (default of run and coverage) or full (default "
                 "of list)")
      ->check(CLI::IsMember({"smoke", "quick", "full"}))
      ->group(group);
  app.add_option("--dtype", s.dtypes, "select cases of these dtypes, such as f32,i64")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group(group);
  app.add_option("--shard", raw.shard, "select the I-th of N parts, counted from 1: I/N")
      ->group(group);
}

void add_backend(CLI::App& app, CommandLine& line, RawOptions& raw) {
  add_device(app, line, raw, line.run.session.timeout_seconds);
}

void add_data(CLI::App& app, CommandLine& line, RawOptions& raw) {
  CaseOptions& cases = line.run.session.setup.case_options;
  const char* group = "Determinism";
  app.add_option("--seed", raw.seed, "seed of all data; decimal or 0x...")
      ->capture_default_str()
      ->group(group);
  app.add_option("--canary", cases.canary_bytes,
                 "put this many guard bytes on both sides of each tensor")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str()
      ->group(group);
  app.add_option("--poison", cases.poison, "fill outputs with nan, ff or random before each launch")
      ->check(CLI::IsMember({"nan", "ff", "random"}))
      ->capture_default_str()
      ->group(group);
  app.add_flag("--allow-decompositions", line.run.session.setup.allows_decompositions,
               "let the host serve calls that no kernel takes, by decompositions and in other "
               "dtypes, and judge the results; these cases are Fallbacks")
      ->group(group);
}

void add_workers(CLI::App& app, CommandLine& line) {
  RunOptions& run = line.run;
  const char* group = "Robustness";
  app.add_option("--isolate", line.isolate,
                 "start a new worker for each case or batch, or for none of them")
      ->check(CLI::IsMember({"case", "batch", "none"}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--batch", run.batch, "run this many cases in each worker")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str()
      ->group(group);
  app.add_option("--jobs", run.jobs, "run this many workers at a time")
      ->check(CLI::Range(1, 256))
      ->capture_default_str()
      ->group(group);
  app.add_option("--max-crashes", run.max_crashes, "end the run after this many crashes")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str()
      ->group(group);
}

void add_run(CLI::App& app, CommandLine& line, RawOptions& raw) {
  RunOptions& run = line.run;
  const char* group = "Expectations";
  app.add_option("--waivers", line.waivers,
                 "read waivers from this file; default: the file beside the plugin")
      ->group(group);
  app.add_option("--write-waivers", line.write_waivers,
                 "write drafts of waivers for the failures to this file")
      ->group(group);

  app.add_option("--shrunk", line.shrunk, "run the call in this file, which shrink wrote")
      ->group("Selection");
  add_confirmation(app, run);

  group = "Determinism";
  app.add_option("--repeat", run.repeat, "run each case this many times; a difference is a Flake")
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
  RecordingSource& recording = line.run.session.setup.recording;
  app.add_option("-k,--filter", s.filters,
                 "judge only matching launches and reads: GLOB[:GLOB][-NEG]")
      ->allow_extra_args(false)
      ->group("Selection");
  app.add_option("--case", s.ids, "judge the launch or read with this id")
      ->allow_extra_args(false)
      ->group("Selection");
  app.add_flag("--partial", recording.is_partial, "continue after a call that was not recorded")
      ->group("Recording");
  app.add_flag("--seed-weights", recording.seeds_weights,
               "draw the floats that the program copied in from --seed; only oracles judge then")
      ->group("Recording");
  app.add_option("--seed", raw.seed, "seed of --seed-weights; decimal or 0x...")
      ->capture_default_str()
      ->group("Recording");
  add_backend(app, line, raw);
  add_output(app, line);
}

void add_perf(CLI::App& app, CommandLine& line, RawOptions& raw) {
  PerfOptions& perf = line.run.session.setup.perf;
  app.add_option("-k,--filter", line.selection.filters,
                 "measure only matching cases: GLOB[:GLOB][-NEG]")
      ->allow_extra_args(false)
      ->group("Selection");
  app.add_flag("--list", line.wants_list, "list the ids of the cases, and measure nothing")
      ->group("Selection");

  add_device(app, line, raw, raw.perf_timeout_seconds);

  const char* group = "Measurement";
  app.add_option("--min-time", perf.min_seconds, "time launches of each case for this many seconds")
      ->check(number_of_seconds())
      ->capture_default_str()
      ->group(group);
  app.add_option(
         "--runs", line.perf_runs,
         "repeat everything this many times, ceilings included; take medians, and list the calls "
         "whose grade changed")
      ->check(CLI::Range(1, 100))
      ->capture_default_str()
      ->group(group);
  app.add_option("--cache-bytes", raw.cache_bytes,
                 "size of the last-level cache, such as 50M; inputs are more than twice as large; "
                 "default: the size that the system reports for the host, 256M for other devices")
      ->group(group);
  app.add_option("--seed", raw.seed, "seed of all data; decimal or 0x...")
      ->capture_default_str()
      ->group(group);

  group = "Comparison";
  app.add_option("--baseline", line.baseline,
                 "compare with this perf.json of an earlier run, or with that in this folder")
      ->group(group);
  app.add_option("--max-regress", raw.max_regress,
                 "end with exit code 7 if a call is slower by more than this, and it is no noise")
      ->capture_default_str()
      ->group(group);

  group = "Output";
  app.add_option("--out", line.out, "write perf.json to this folder; default: bp-results/<time>")
      ->group(group);
  app.add_option("--json", line.json_file, "write perf.json to this file too")->group(group);
  app.add_flag("-q,--quiet", line.is_quiet, "show only the summary")->group(group);
  app.add_option("--color", line.color, "use colours: auto, always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->capture_default_str()
      ->group(group);
}

void add_reports(CLI::App& app, CommandLine& line) {
  const char* group = "Output";
  app.add_flag("--explain-fallbacks", line.explains_fallbacks,
               "show why calls were decomposed or ran on the host")
      ->group(group);
  app.add_option("--junit", line.junit, "write JUnit XML to this file too")->group(group);
  app.add_option("--html", line.html, "write the HTML page to this file too")->group(group);
  app.add_option("--md", line.markdown, "write the Markdown page to this file too")->group(group);
}

}  // namespace bp::conformance
