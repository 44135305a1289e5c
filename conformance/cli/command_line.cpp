#include "conformance/cli/command_line.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <sstream>

#include "conformance/report/summary.hpp"

namespace bp::conformance {
namespace {

constexpr const char* kPrefix = "BACKPLANE_CONFORMANCE_";
constexpr const char* kVerbs[] = {"run", "list", "info", "explain"};

// What CLI11 stores as text and is read afterwards.
struct RawOptions {
  std::string seed = "0x5eed";
  std::string tier;
  std::string shard;
  std::string shuffle;
  std::vector<std::string> options;
};

constexpr const char* kFooter =
    R"(PLUGIN is a path if it has a '/' or ends in .so, else a name in a manifest, or its last part.
A bare PLUGIN means run. BACKPLANE_CONFORMANCE_<FLAG> sets a flag that is not on the command line.

Exit codes: 0 all right; 1 failures; 2 wrong command line; 3 the plugin does not load;
4 the suite broke; 5 nothing matched or nothing ran; 7 over the budget; 130 interrupted.)";

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
  app.add_option("--tier", raw.tier, "smoke, quick (default of run) or full (of list)")
      ->check(CLI::IsMember({"smoke", "quick", "full"}))
      ->group(group);
  app.add_option("--dtype", s.dtypes, "only cases of these dtypes: f32,i64")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group(group);
  app.add_option("--shard", raw.shard, "I/N: the I-th of N parts, counted from 1")->group(group);
}

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

void add_backend(CLI::App& app, CommandLine& line, RawOptions& raw) {
  const char* group = "Backend";
  app.add_option("--device", line.run.session.setup.device, "index or name; default: the first")
      ->group(group);
  app.add_option("--option", raw.options, "KEY=VALUE for the backend; may be repeated")
      ->allow_extra_args(false)
      ->group(group);
  app.add_option("--timeout", line.run.session.timeout_seconds, "seconds per case, and to load")
      ->check(positive_number())
      ->capture_default_str()
      ->group(group);
}

void add_run(CLI::App& app, CommandLine& line, RawOptions& raw) {
  RunOptions& run = line.run;
  CaseOptions& cases = run.session.setup.case_options;
  const char* group = "Expectations";
  app.add_option("--waivers", line.waivers, "file; default: beside the plugin")->group(group);
  app.add_option("--write-waivers", line.write_waivers, "write drafts for the failures")
      ->group(group);

  group = "Robustness";
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
  app.add_option("--retries", run.retries, "solo runs that confirm a failure")
      ->check(CLI::Range(0, 100))
      ->capture_default_str()
      ->group(group);
  app.add_option("--max-crashes", run.max_crashes, "end the run after so many")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str()
      ->group(group);
  app.add_flag("--fail-fast", run.fail_fast, "end the run at the first failure")->group(group);

  group = "Determinism";
  app.add_option("--seed", raw.seed, "of all data; decimal or 0x...")
      ->capture_default_str()
      ->group(group);
  app.add_option("--repeat", run.repeat, "runs of each case; a difference is a Flake")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str()
      ->group(group);
  app.add_option("--shuffle", raw.shuffle, "run in an order drawn from SEED; default: from --seed")
      ->expected(0, 1)
      ->type_name("[SEED]")
      ->group(group);
  app.add_option("--canary", cases.canary_bytes, "guard bytes on both sides of each tensor")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str()
      ->group(group);
  app.add_option("--poison", cases.poison, "what outputs hold before: nan, ff or random")
      ->check(CLI::IsMember({"nan", "ff", "random"}))
      ->capture_default_str()
      ->group(group);

  group = "Output";
  app.add_option("--out", line.out, "folder of the result files; default: bp-results/<time>")
      ->group(group);
  app.add_option("--format", line.format, "pretty, plain, jsonl or tap")
      ->check(CLI::IsMember({"pretty", "plain", "jsonl", "tap"}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--junit", line.junit, "write JUnit XML here as well")->group(group);
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

uint64_t parse_number(const std::string& flag, const std::string& text) {
  size_t end = 0;
  uint64_t value = 0;
  try {
    value = std::stoull(text, &end, 0);
  } catch (const std::exception&) {
    end = 0;
  }
  if (text.empty() || end != text.size() || text[0] == '-') {
    throw CommandLineEnd{kExitUsage, flag + " " + text + ": not a number that fits 64 bits"};
  }
  return value;
}

void parse_shard(const std::string& text, SelectionQuery& query) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos) throw CommandLineEnd{kExitUsage, "--shard " + text + ": not I/N"};
  const uint64_t index = parse_number("--shard", text.substr(0, slash));
  query.shard_count = parse_number("--shard", text.substr(slash + 1));
  if (index < 1 || index > query.shard_count) {
    throw CommandLineEnd{kExitUsage, "--shard " + text + ": 1 <= I <= N is needed"};
  }
  query.shard_index = index - 1;
}

// What the flags mean beyond what CLI11 stores.
void interpret(CommandLine& line, const RawOptions& raw, bool is_shuffled) {
  SessionOptions& session = line.run.session;
  session.seed = parse_number("--seed", raw.seed);
  if (!raw.shard.empty()) parse_shard(raw.shard, line.selection);
  if (is_shuffled) {
    line.selection.shuffle_seed =
        raw.shuffle.empty() ? session.seed : parse_number("--shuffle", raw.shuffle);
  }
  for (const std::string& option : raw.options) {
    const size_t equals = option.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw CommandLineEnd{kExitUsage, "--option " + option + ": not KEY=VALUE"};
    }
    session.setup.options.emplace_back(option.substr(0, equals), option.substr(equals + 1));
  }
  const std::string tier = !raw.tier.empty()         ? raw.tier
                           : line.verb == Verb::kRun ? "quick"
                                                     : "full";
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
}

bool is_named(const std::vector<std::string>& words, const std::string& flag) {
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    return word == flag || word.compare(0, flag.size() + 1, flag + "=") == 0;
  });
}

// The flags in the environment that the command line does not set, as words.
std::vector<std::string> mirrored_words(const CLI::App& app, const std::vector<std::string>& words,
                                        const CLI::App& all, CommandLine& line) {
  std::vector<std::string> added;
  for (const std::string& name : environment_names(kPrefix)) {
    std::string flag = "--" + name.substr(std::string_view(kPrefix).size());
    std::transform(flag.begin(), flag.end(), flag.begin(), [](unsigned char c) {
      return c == '_' ? '-' : static_cast<char>(std::tolower(c));
    });
    if (all.get_option_no_throw(flag) == nullptr || flag == "--help") {
      throw CommandLineEnd{kExitUsage, name + ": there is no flag " + flag};
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
  if (std::find(std::begin(kVerbs), std::end(kVerbs), words[0]) != std::end(kVerbs)) return;
  words.insert(words.begin(), "run");
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

CommandLine parse_command_line(std::vector<std::string> words) {
  CommandLine line;
  RawOptions raw;
  line.words = words;

  CLI::App app("Takes one backend and says what in it is right, wrong, missing and unstable.",
               "bp-conformance");
  app.footer(kFooter);
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("bp-conformance, suite ") + kSuiteVersion);

  CLI::App* run = app.add_subcommand("run", "execute cases (the default verb)");
  run->add_option("PLUGIN", line.plugin, "path or name of the backend")->required();
  add_selection(*run, line, raw);
  add_backend(*run, line, raw);
  add_run(*run, line, raw);

  CLI::App* list = app.add_subcommand("list", "case ids, one a line");
  list->add_option("PLUGIN", line.plugin, "marks what it claims with +, the rest with -");
  add_selection(*list, line, raw);
  add_backend(*list, line, raw);
  list->add_flag("--tree", line.as_tree, "the parts of the ids as a tree with counts");
  list->add_flag("--count", line.as_count, "how many");
  list->add_flag("--json", line.as_json, "with tags, tier and dtype");

  CLI::App* info = app.add_subcommand("info", "discovery, devices, capabilities and kernels");
  info->add_option("PLUGIN", line.plugin, "without it: what discovery finds");
  add_backend(*info, line, raw);
  info->add_flag("--json", line.as_json, "all of it");

  CLI::App* explain = app.add_subcommand("explain", "the sentence behind a tag, and its cases");
  explain->add_option("TAG", line.tag, "such as STREAM-3")->required();

  if (words.empty()) {
    throw CommandLineEnd{kExitUsage, "a verb is needed: run, list, info or explain"};
  }
  insert_verb(words);
  try {
    for (CLI::App* verb : {run, list, info, explain}) {
      if (verb->get_name() != words[0]) continue;
      const std::vector<std::string> added = mirrored_words(*verb, words, *run, line);
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
  line.verb = run->parsed()    ? Verb::kRun
              : list->parsed() ? Verb::kList
              : info->parsed() ? Verb::kInfo
                               : Verb::kExplain;
  interpret(line, raw, run->count("--shuffle") > 0);
  return line;
}

}  // namespace bp::conformance
