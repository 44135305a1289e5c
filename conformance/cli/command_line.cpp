#include "conformance/cli/command_line.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "conformance/cli/flags.hpp"
#include "conformance/perf/cache_size.hpp"
#include "conformance/report/summary.hpp"
#include "registry/boundary/number_text.hpp"

namespace bp::conformance {
namespace {

constexpr const char* kVariables = "BACKPLANE_CONFORMANCE_";

// The verbs in the order of the help.
struct VerbName {
  Verb verb;
  const char* name;
};
constexpr VerbName kVerbs[] = {
    {Verb::kRun, "run"},           {Verb::kList, "list"},       {Verb::kInfo, "info"},
    {Verb::kCoverage, "coverage"}, {Verb::kPerf, "perf"},       {Verb::kShrink, "shrink"},
    {Verb::kRepro, "repro"},       {Verb::kReplay, "replay"},   {Verb::kDiff, "diff"},
    {Verb::kReport, "report"},     {Verb::kPackage, "package"}, {Verb::kVerify, "verify"},
    {Verb::kStress, "stress"},     {Verb::kDist, "dist"},       {Verb::kExplain, "explain"},
    {Verb::kSelftest, "selftest"}, {Verb::kNew, "new"}};

constexpr const char* kFooter =
    R"(PLUGIN is a path if it has a '/' or ends in .so. Otherwise it is the name in a manifest, or
the last part of such a name. If no verb is given, run is the verb. The environment variable
BACKPLANE_CONFORMANCE_<FLAG> sets a flag that is not on the command line.
'bp-conformance VERB --help' lists the flags of a verb.

Exit codes:
  0    everything that ran is right
  1    a case failed
  2    the command line is wrong
  3    the plugin does not load
  4    the suite itself failed, or could not write its output
  5    no case matched, or none ran
  6    all results are right, but a declaration is false
  7    the run took longer than --budget, or a call is slower than the baseline
  130  a signal interrupted the run)";

// Reads a decimal number, which may begin with zeros, or 0x and hexadecimal digits.
uint64_t parse_number(const std::string& flag, const std::string& text) {
  const bool is_hex = text.starts_with("0x") || text.starts_with("0X");
  const std::string_view digits = std::string_view(text).substr(is_hex ? 2 : 0);
  uint64_t value = 0;
  const char* const last = digits.data() + digits.size();
  const auto [end, error] = std::from_chars(digits.data(), last, value, is_hex ? 16 : 10);
  if (error != std::errc() || end != last) {
    throw CommandLineEnd{
        kExitUsage,
        flag + " is '" + text +
            "'; allowed: a number from 0 to 2^64 - 1, decimal or hexadecimal behind 0x"};
  }
  return value;
}

void parse_shard(const std::string& text, SelectionQuery& query) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos) {
    throw CommandLineEnd{kExitUsage, "--shard is '" + text + "'; allowed: I/N, such as 1/4"};
  }
  const uint64_t index = parse_number("I of --shard", text.substr(0, slash));
  query.shard_count = parse_number("N of --shard", text.substr(slash + 1));
  if (index < 1 || index > query.shard_count) {
    throw CommandLineEnd{kExitUsage, "--shard is '" + text + "'; allowed: I/N with I from 1 to N"};
  }
  query.shard_index = index - 1;
}

void interpret_perf(CommandLine& line, const RawOptions& raw) {
  SessionOptions& session = line.run.session;
  session.timeout_seconds = raw.perf_timeout_seconds;
  line.selection.tier = Tier::kFull;
  session.setup.perf.cache_bytes = 0;
  if (!raw.cache_bytes.empty()) {
    session.setup.perf.cache_bytes = parse_size(raw.cache_bytes);
    if (session.setup.perf.cache_bytes == 0) {
      throw CommandLineEnd{kExitUsage, "--cache-bytes is '" + raw.cache_bytes +
                                           "'; allowed: a size from 1 to 1024G, such as 50M"};
    }
  }
  std::string percent = raw.max_regress;
  if (percent.ends_with("%")) percent.pop_back();
  line.max_regress = parse_double(percent).value_or(-1) / 100;
  if (!std::isfinite(line.max_regress) || line.max_regress < 0) {
    throw CommandLineEnd{kExitUsage, "--max-regress is '" + raw.max_regress +
                                         "'; allowed: a percentage of at least 0, such as 5%"};
  }
}

// One process runs the recording from its beginning. A second run would do the same, so options for
// repetition have no use.
void interpret_replay(CommandLine& line) {
  line.run.batch = SIZE_MAX / 4;
  line.run.keeps_size = true;
  line.run.retries = 0;
  line.run.max_crashes = 1;
  line.run.session.setup.recording.seed = line.run.session.seed;
}

void check_report(const CommandLine& line) {
  if (line.folder.empty() && line.compared.empty()) {
    throw CommandLineEnd{kExitUsage, "report needs the folder of a run, or --compare with several"};
  }
  const size_t runs = line.compared.empty() ? 1 : line.compared.size();
  if (!line.speeds.empty() && line.speeds.size() != runs) {
    throw CommandLineEnd{kExitUsage, "--perf is given " + std::to_string(line.speeds.size()) +
                                         " times for " + std::to_string(runs) +
                                         " runs; allowed: once for each run, with - for none"};
  }
}

// Interprets the flags beyond what CLI11 stores.
void interpret(CommandLine& line, const RawOptions& raw, bool is_shuffled) {
  SessionOptions& session = line.run.session;
  session.seed = parse_number("--seed", raw.seed);
  if (!raw.shard.empty()) parse_shard(raw.shard, line.selection);
  if (is_shuffled) {
    line.selection.shuffle_seed =
        raw.shuffle.empty() ? session.seed : parse_number("--shuffle", raw.shuffle);
  }
  session.setup.options = named_values_of_flag("--option", raw.options);
  if (line.verb == Verb::kReplay) interpret_replay(line);
  const bool runs_cases = line.verb == Verb::kRun || line.verb == Verb::kCoverage;
  const bool is_short = line.verb == Verb::kStress || line.verb == Verb::kSelftest;
  const std::string usual = is_short ? "smoke" : runs_cases ? "quick" : "full";
  const std::string tier = raw.tier.empty() ? usual : raw.tier;
  line.selection.tier = tier == "smoke"   ? Tier::kSmoke
                        : tier == "quick" ? Tier::kQuick
                                          : Tier::kFull;
  line.is_tier_given = !raw.tier.empty();
  if (line.isolate == "case") line.run.batch = 1;
  if (line.isolate == "none") {
    line.run.batch = SIZE_MAX / 4;
    line.run.keeps_size = true;
  }
  session.setup.plugin = line.plugin;
  if (line.verb == Verb::kPerf) interpret_perf(line, raw);
  if (line.verb == Verb::kReport) check_report(line);
  if (line.verb == Verb::kDist) interpret_dist(line, raw);
}

bool is_named(const std::vector<std::string>& words, const std::string& flag) {
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    // The value of a short flag may follow without a space: -kGLOB.
    const bool is_short = flag.size() == 2;
    return word == flag || word.starts_with(is_short ? flag : flag + "=");
  });
}

// Returns the flags from the environment that the command line does not set, as words. `program`
// has the verbs; a variable that is a flag of no verb is an error.
std::vector<std::string> mirrored_words(const CLI::App& app, const std::vector<std::string>& words,
                                        const CLI::App& program, CommandLine& line) {
  const auto is_known = [&](const std::string& flag) {
    return std::ranges::any_of(kVerbs, [&](const VerbName& verb) {
      return program.get_subcommand(verb.name)->get_option_no_throw(flag) != nullptr;
    });
  };
  std::vector<std::string> added;
  for (const std::string& name : environment_names(kVariables)) {
    std::string flag = "--" + name.substr(std::string_view(kVariables).size());
    std::transform(flag.begin(), flag.end(), flag.begin(), [](unsigned char c) {
      return c == '_' ? '-' : static_cast<char>(std::tolower(c));
    });
    if (!is_known(flag) || flag == "--help") {
      throw CommandLineEnd{kExitUsage, (name + ": there is no flag ").append(flag)};
    }
    const char* value = bp_environment(name.c_str());
    const CLI::Option* option = app.get_option_no_throw(flag);
    if (value == nullptr || option == nullptr) continue;
    bool is_set = false;
    for (const std::string& alias : option->get_lnames()) is_set |= is_named(words, "--" + alias);
    for (const std::string& alias : option->get_snames()) is_set |= is_named(words, "-" + alias);
    if (is_set) continue;
    added.push_back(flag + "=" + value);
    line.environment.push_back(name + "=" + value);
  }
  if (const char* mutant = bp_environment("BACKPLANE_MUTANT");
      mutant != nullptr && app.get_option_no_throw("--option") != nullptr) {
    added.push_back("--option=mutant=" + std::string(mutant));
    line.environment.push_back("BACKPLANE_MUTANT=" + std::string(mutant));
  }
  return added;
}

// Puts "run" before a bare plugin.
void insert_verb(std::vector<std::string>& words) {
  if (words[0] == "-h" || words[0] == "--help" || words[0] == "--version") return;
  if (std::ranges::find(kVerbs, words[0], &VerbName::name) != std::end(kVerbs)) return;
  words.insert(words.begin(), "run");
}

void add_running_verbs(CLI::App& app, CommandLine& line, RawOptions& raw) {
  CLI::App* run = app.add_subcommand("run", "run cases and report (the default verb)");
  run->add_option("PLUGIN", line.plugin, "path or name of the backend")->required();
  add_selection(*run, line, raw);
  add_backend(*run, line, raw);
  add_data(*run, line, raw);
  add_workers(*run, line);
  add_run(*run, line, raw);
  add_reports(*run, line);

  CLI::App* coverage =
      app.add_subcommand("coverage", "show what works: op x dtype x layout or rank");
  coverage->add_option("PLUGIN", line.plugin, "path or name of the backend")->required();
  add_selection(*coverage, line, raw);
  add_backend(*coverage, line, raw);
  add_data(*coverage, line, raw);
  add_workers(*coverage, line);
  coverage->add_option("--by", line.by, "take layout or rank as columns")
      ->check(CLI::IsMember({"layout", "rank"}))
      ->capture_default_str()
      ->group("Output");
  coverage
      ->add_option("--sample", line.sample,
                   "run only the first of the cases of each op and dtype, at most this many; "
                   "default: all")
      ->check(CLI::Range(1, 1000000))
      ->group("Selection");
  coverage->add_option("--json", line.json_file, "write op x dtype x layout x rank to this file")
      ->group("Output");
  coverage->add_flag("-q,--quiet", line.is_quiet, "show no progress, and only the totals")
      ->group("Output");
}

void add_shrink(CLI::App& app, CommandLine& line, RawOptions& raw) {
  CLI::App* shrink =
      app.add_subcommand("shrink", "find the smallest call that fails, and write it as a C file");
  shrink->add_option("PLUGIN", line.plugin, "path or name of the backend")->required();
  shrink->add_option("--case", line.case_id, "id of the failing case of an op")->required();
  shrink->add_option("--steps", line.steps, "try at most this many simplifications")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  add_backend(*shrink, line, raw);
  add_data(*shrink, line, raw);
  shrink
      ->add_option("--out", line.out,
                   "write the files to this folder; default: bp-results/shrunk/<case>")
      ->group("Output");
  shrink->add_flag("-q,--quiet", line.is_quiet, "show no progress")->group("Output");
}

void add_perf_verb(CLI::App& app, CommandLine& line, RawOptions& raw) {
  CLI::App* perf =
      app.add_subcommand("perf", "time and verify calls, and grade them by their roofs");
  perf->add_option("PLUGIN", line.plugin, "path or name of the backend")->required();
  add_perf(*perf, line, raw);
}

void add_selftest(CLI::App& app, CommandLine& line, RawOptions& raw) {
  CLI::App* selftest =
      app.add_subcommand("selftest", "check that the suite finds backends broken on purpose");
  selftest->add_option("PLUGIN", line.plugin, "path of a good backend, which the mutants wrap")
      ->required();
  selftest->add_option("--mutants", line.mutants,
                       "path of libbp_mutant.so; default: beside the program");
  selftest->add_option("--mutant", line.mutant_filter, "run only the mutants that match this glob");
  selftest
      ->add_option("--part", line.mutant_part,
                   "run only the mutants of ops, those that are judged by times, those of the "
                   "runtime, or the benign ones")
      ->check(CLI::IsMember({"ops", "timed", "runtime", "benign"}));
  selftest->add_option("--seeds", line.seeds, "run the benign mutants with this many seeds")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  selftest
      ->add_option("--sample", line.sample,
                   "run each benign mutant on this many of its cases, drawn by --seed; default: "
                   "all of them")
      ->check(CLI::Range(1, 1000000));
  selftest->add_option("--shard", raw.shard,
                       "run the I-th of N parts of the mutants, counted from 1: I/N");
  const char* drawn = "Drawn mutants";
  selftest
      ->add_option("--random", line.random_count,
                   "draw this many mutants by --seed, and print the share that the suite kills")
      ->check(CLI::Range(1, 1000000))
      ->excludes("--mutant")
      ->excludes("--shard")
      ->group(drawn);
  selftest
      ->add_option("--fault", line.faults,
                   "run the mutant with this fault, as --random prints it; may be repeated")
      ->allow_extra_args(false)
      ->excludes("--mutant")
      ->excludes("--shard")
      ->group(drawn);
  selftest->add_option("--only", line.family, "draw only mutants of this family")
      ->needs("--random")
      ->group(drawn);
  selftest
      ->add_option("--tier", raw.tier,
                   "let drawn mutants meet the cases up to this tier: smoke, "
                   "quick or full; default: smoke")
      ->check(CLI::IsMember({"smoke", "quick", "full"}))
      ->group(drawn);
  selftest
      ->add_flag("-v,--verbose", line.is_verbose,
                 "show the shares by kind, place, condition and op too")
      ->group(drawn);
  selftest->add_option("--json", line.json_file, "write the matrix to this file");
  selftest->add_flag("-q,--quiet", line.is_quiet, "show no progress");
  add_data(*selftest, line, raw);
  add_workers(*selftest, line);
}

void add_verbs(CLI::App& app, CommandLine& line, RawOptions& raw) {
  add_running_verbs(app, line, raw);
  add_perf_verb(app, line, raw);
  add_shrink(app, line, raw);

  CLI::App* list = app.add_subcommand("list", "list case ids, one on each line");
  list->add_option("PLUGIN", line.plugin,
                   "mark the cases that this backend claims with +, the others with -");
  add_selection(*list, line, raw);
  add_backend(*list, line, raw);
  list->add_flag("--tree", line.as_tree, "show the parts of the ids as a tree with counts");
  list->add_flag("--count", line.as_count, "show only how many there are");
  list->add_flag("--json", line.as_json, "write JSON, with tags, tier and dtype");

  CLI::App* info = app.add_subcommand("info", "show discovery, devices, capabilities and kernels");
  info->add_option("PLUGIN", line.plugin,
                   "path or name of the backend; default: list all that discovery finds");
  add_backend(*info, line, raw);
  info->add_flag("--probe", line.wants_probes,
                 "check the declarations of kernels; exit code 6 if one is false");
  info->add_flag("--json", line.as_json, "write everything as JSON");

  CLI::App* repro = app.add_subcommand("repro", "run one saved failure again");
  repro
      ->add_option("DIR", line.folder,
                   "<folder of a run>/repro/<case id>, or the folder of a run with one failure")
      ->required();

  CLI::App* replay =
      app.add_subcommand("replay", "run a recording of the layer record, and judge it");
  replay->add_option("PLUGIN", line.plugin, "path or name of the backend")->required();
  replay->add_option("RECORDING", line.run.session.setup.recording.path, "folder of the recording")
      ->required();
  add_replay(*replay, line, raw);
  add_reports(*replay, line);

  CLI::App* diff = app.add_subcommand("diff", "show what changed between two result folders");
  diff->add_option("BEFORE", line.folder, "folder of the first run")->required();
  diff->add_option("AFTER", line.other_folder, "folder of the second run")->required();
  diff->add_flag("--strict", line.is_strict,
                 "end with exit code 1 for any difference, improvements too");
  diff->add_flag("-v,--verbose", line.is_verbose,
                 "list every change, and not only counts by kind and op");

  add_report_verb(app, line);
  add_package_verbs(app, line);
  add_stress_verb(app, line, raw);
  add_dist_verb(app, line, raw);

  CLI::App* explain = app.add_subcommand(
      "explain",
      "say what a word means: a tag, an op, an error class, a status, an outcome, a cause");
  explain
      ->add_option("WORD", line.tag,
                   "such as STREAM-3, softmax, R1, BP_TIMEOUT, Missing or stride, in any case")
      ->required();

  add_selftest(app, line, raw);
  CLI::App* fresh =
      app.add_subcommand("new", "write a backend that builds and loads, for you to fill in");
  fresh->add_option("NAME", line.plugin, "name of the backend: vendor.backend, such as acme.npu")
      ->required();
  fresh->add_option("DIR", line.folder, "folder to write to; it must be empty or not exist")
      ->required();
  CLI::Option* async = fresh->add_flag(
      "--async", line.is_async,
      "write C++ on the shell of the package, whose streams, events and failures work already");
  fresh
      ->add_flag("--compiler", line.is_compiler,
                 "the same for a device that runs only compiled programs")
      ->excludes(async);
}

}  // namespace

std::vector<std::string> environment_names(const std::string& prefix) {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (text.substr(0, prefix.size()) == prefix) names.emplace_back(text.substr(0, text.find('=')));
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string verb_names() {
  std::string names;
  for (const VerbName& verb : kVerbs) {
    const bool is_last = &verb == &kVerbs[std::size(kVerbs) - 1];
    names += (names.empty() ? "" : is_last ? " and " : ", ") + std::string(verb.name);
  }
  return names;
}

CommandLine parse_command_line(std::vector<std::string> words) {
  CommandLine line;
  RawOptions raw;
  line.words = words;

  CLI::App app("Tests one backend and says what in it is right, wrong, missing and unstable.",
               "bp-conformance");
  app.footer(kFooter);
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("bp-conformance, suite ") + kSuiteVersion);
  add_verbs(app, line, raw);

  if (words.empty()) throw CommandLineEnd{kExitUsage, "a verb is needed: " + verb_names()};
  insert_verb(words);
  try {
    const auto* verb = std::ranges::find(kVerbs, words[0], &VerbName::name);
    if (verb != std::end(kVerbs)) {
      const std::vector<std::string> added =
          mirrored_words(*app.get_subcommand(verb->name), words, app, line);
      words.insert(words.end(), added.begin(), added.end());
    }
    std::reverse(words.begin(), words.end());
    app.parse(words);
  } catch (const CLI::ParseError& e) {
    std::ostringstream out, error;
    const bool is_error = app.exit(e, out, error) != 0;
    if (is_error) throw CommandLineEnd{kExitUsage, e.what()};
    throw CommandLineEnd{kExitOk, out.str()};
  }
  const CLI::App* parsed = app.get_subcommands().front();
  line.verb = std::ranges::find(kVerbs, parsed->get_name(), &VerbName::name)->verb;
  const CLI::Option* shuffle = parsed->get_option_no_throw("--shuffle");
  interpret(line, raw, shuffle != nullptr && shuffle->count() > 0);
  return line;
}

}  // namespace bp::conformance
