#include "conformance/cli/command_line.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "conformance/report/summary.hpp"

namespace bp::conformance {
namespace {

using Words = std::vector<std::string>;

// Returns the message for a command line that is wrong.
std::string refusal_of(const Words& words) {
  try {
    static_cast<void>(parse_command_line(words));
  } catch (const CommandLineEnd& end) {
    EXPECT_EQ(end.exit_code, kExitUsage);
    return end.text;
  }
  ADD_FAILURE() << "the command line was taken";
  return "";
}

void expect_refused(const Words& words, const std::string& part) {
  const std::string text = refusal_of(words);
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

// A variable of the environment that lives until the end of a test.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;

 private:
  const char* name_;
};

TEST(CommandLine, TakesABarePluginForARun) {
  const CommandLine line = parse_command_line({"./x.so", "--seed", "7"});
  EXPECT_EQ(line.verb, Verb::kRun);
  EXPECT_EQ(line.plugin, "./x.so");
  EXPECT_EQ(line.run.session.setup.plugin, "./x.so");
  EXPECT_EQ(line.run.session.seed, 7u);
  EXPECT_EQ(line.words, (Words{"./x.so", "--seed", "7"})) << "as it was given";
  EXPECT_EQ(parse_command_line({"--seed=7", "./x.so"}).plugin, "./x.so");
}

TEST(CommandLine, FindsEachVerb) {
  const auto verb_of = [](const Words& words) { return parse_command_line(words).verb; };
  EXPECT_EQ(verb_of({"run", "x"}), Verb::kRun);
  EXPECT_EQ(verb_of({"list"}), Verb::kList);
  EXPECT_EQ(verb_of({"info"}), Verb::kInfo);
  EXPECT_EQ(verb_of({"coverage", "x"}), Verb::kCoverage);
  EXPECT_EQ(verb_of({"perf", "x"}), Verb::kPerf);
  EXPECT_EQ(verb_of({"shrink", "x", "--case", "c"}), Verb::kShrink);
  EXPECT_EQ(verb_of({"dist", "x"}), Verb::kDist);
  EXPECT_EQ(verb_of({"repro", "folder"}), Verb::kRepro);
  EXPECT_EQ(verb_of({"replay", "x", "folder"}), Verb::kReplay);
  EXPECT_EQ(verb_of({"diff", "a", "b"}), Verb::kDiff);
  EXPECT_EQ(verb_of({"report", "folder"}), Verb::kReport);
  EXPECT_EQ(verb_of({"report", "--compare", "a", "b", "c"}), Verb::kReport);
  EXPECT_EQ(verb_of({"package", "folder"}), Verb::kPackage);
  EXPECT_EQ(verb_of({"verify", "file"}), Verb::kVerify);
  EXPECT_EQ(verb_of({"stress", "x"}), Verb::kStress);
  EXPECT_EQ(verb_of({"explain", "STREAM-3"}), Verb::kExplain);
  EXPECT_EQ(verb_of({"selftest", "x"}), Verb::kSelftest);
  EXPECT_EQ(verb_of({"new", "acme.npu", "folder"}), Verb::kNew);
  EXPECT_EQ(
      verb_names(),
      "run, list, info, coverage, perf, shrink, repro, replay, diff, report, package, verify, "
      "stress, dist, explain, selftest and new");
}

TEST(CommandLine, RefusesWhatIsMissing) {
  expect_refused({}, "a verb is needed: run, list");
  expect_refused({"run"}, "PLUGIN is required");
  expect_refused({"--seed", "7"}, "PLUGIN is required");
  expect_refused({"shrink", "x"}, "--case is required");
  expect_refused({"replay", "x"}, "RECORDING is required");
  expect_refused({"diff", "a"}, "AFTER is required");
  expect_refused({"run", "x", "--seed"}, "--seed");
  expect_refused({"run", "x", "--option"}, "--option");
}

TEST(CommandLine, RefusesWhatItDoesNotKnow) {
  expect_refused({"run", "x", "--sede", "7"}, "--sede");
  expect_refused({"run", "x", "y"}, "y");
  expect_refused({"list", "--budget", "7"}, "--budget");
  expect_refused({"run", "x", "--baseline", "b"}, "--baseline");
  expect_refused({"run", "x", "--tier", "slow"}, "slow not in {smoke,quick,full}");
  expect_refused({"run", "x", "--format", "xml"}, "xml not in {pretty,plain,jsonl,tap}");
  expect_refused({"run", "x", "--isolate", "thread"}, "thread not in {case,batch,none}");
  expect_refused({"run", "x", "--poison", "zero"}, "zero not in {nan,ff,random}");
}

TEST(CommandLine, RefusesWhatExcludesEachOther) {
  expect_refused({"run", "x", "--out", "a", "--resume", "b"}, "excludes");
}

TEST(CommandLine, SaysNoErrorWhereHelpIsAskedFor) {
  for (const Words& words : {Words{"--help"}, Words{"-h"}, Words{"run", "--help"},
                             Words{"perf", "-h"}, Words{"--version"}}) {
    try {
      static_cast<void>(parse_command_line(words));
      ADD_FAILURE() << "the command line was taken";
    } catch (const CommandLineEnd& end) {
      EXPECT_EQ(end.exit_code, kExitOk) << end.text;
      EXPECT_FALSE(end.text.empty());
    }
  }
}

TEST(CommandLine, ReadsASeedInDecimalOrHexadecimal) {
  const auto seed_of = [](const char* text) {
    return parse_command_line({"run", "x", "--seed", text}).run.session.seed;
  };
  EXPECT_EQ(parse_command_line({"run", "x"}).run.session.seed, 0x5eedu);
  EXPECT_EQ(seed_of("0"), 0u);
  EXPECT_EQ(seed_of("0x5EED"), 0x5eedu);
  EXPECT_EQ(seed_of("0Xff"), 255u);
  EXPECT_EQ(seed_of("18446744073709551615"), UINT64_MAX);
  EXPECT_EQ(seed_of("0xffffffffffffffff"), UINT64_MAX);
}

TEST(CommandLine, TakesZerosInFrontForNoOctalNumber) {
  EXPECT_EQ(parse_command_line({"run", "x", "--seed", "010"}).run.session.seed, 10u);
  const CommandLine line = parse_command_line({"run", "x", "--shard", "08/010"});
  EXPECT_EQ(line.selection.shard_index, 7u);
  EXPECT_EQ(line.selection.shard_count, 10u);
}

TEST(CommandLine, RefusesASeedThatIsNoNumberOf64Bits) {
  for (const char* text : {"-1", " -1", "+1", "1.5", "7x", "0x", "0xg", "", " 7", "seven",
                           "18446744073709551616", "0x10000000000000000"}) {
    expect_refused({"run", "x", std::string("--seed=") + text},
                   text[0] == '\0' ? "--seed" : "; allowed: a number from 0 to 2^64 - 1");
  }
}

TEST(CommandLine, CountsShardsFromOne) {
  const auto shard_of = [](const char* text) {
    const CommandLine line = parse_command_line({"run", "x", "--shard", text});
    return std::pair(line.selection.shard_index, line.selection.shard_count);
  };
  EXPECT_EQ(shard_of("1/1"), std::pair(uint64_t{0}, uint64_t{1}));
  EXPECT_EQ(shard_of("3/3"), std::pair(uint64_t{2}, uint64_t{3}));
  for (const char* text : {"0/3", "4/3", "0/0", "1/0"}) {
    expect_refused({"run", "x", "--shard", text}, "; allowed: I/N with I from 1 to N");
  }
  expect_refused({"run", "x", "--shard", "3"}, "--shard is '3'; allowed: I/N");
  for (const char* text : {"/3", "1/", "1/2/3", "-1/3", "a/b"}) {
    expect_refused({"run", "x", "--shard", text}, "--shard");
  }
}

TEST(CommandLine, TakesSecondsThatFitEveryClock) {
  EXPECT_EQ(parse_command_line({"run", "x", "--timeout", "0.5"}).run.session.timeout_seconds, 0.5);
  EXPECT_EQ(parse_command_line({"run", "x", "--timeout", "1e8"}).run.session.timeout_seconds, 1e8);
  EXPECT_EQ(parse_command_line({"perf", "x"}).run.session.timeout_seconds, 120);
  for (const char* flag : {"--timeout", "--budget"}) {
    for (const char* text : {"0", "-1", "nan", "inf", "1e-300", "1e300", "2e8", "5s", "five"}) {
      expect_refused({"run", "x", std::string(flag) + "=" + text},
                     std::string(text) + " is not a number of seconds from 1e-09 to 1e+08");
    }
  }
  expect_refused({"perf", "x", "--min-time", "1e300"}, "is not a number of seconds");
}

TEST(CommandLine, RefusesCountsOutOfRange) {
  const auto expect = [](const char* verb, const char* flag, const char* text) {
    expect_refused({verb, "x", std::string(flag) + "=" + text}, flag);
  };
  for (const char* text : {"0", "-1", "100001", "1.5", "99999999999999999999", "many"}) {
    expect("run", "--batch", text);
    expect("run", "--repeat", text);
  }
  for (const char* text : {"0", "257", "-1"}) expect("run", "--jobs", text);
  for (const char* text : {"101", "-1"}) expect("run", "--retries", text);
  for (const char* text : {"-1", "1048577"}) expect("run", "--canary", text);
  for (const char* text : {"0", "1000001"}) expect("run", "--max-crashes", text);
  for (const char* text : {"0", "101"}) expect("perf", "--runs", text);
  EXPECT_EQ(parse_command_line({"run", "x", "--retries", "0"}).run.retries, 0);
  EXPECT_EQ(
      parse_command_line({"run", "x", "--canary", "0"}).run.session.setup.case_options.canary_bytes,
      0u);
}

TEST(CommandLine, TakesOptionsOfTheBackendApart) {
  const CommandLine line = parse_command_line(
      {"run", "x", "--option", "a=b=c", "--option", "empty=", "--option=list=[1,2]"});
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"a", "b=c"}, {"empty", ""}, {"list", "[1,2]"}};
  EXPECT_EQ(line.run.session.setup.options, expected);
  expect_refused({"run", "x", "--option", "a"}, "--option is 'a'; allowed: KEY=VALUE");
  expect_refused({"run", "x", "--option", "=b"}, "--option is '=b'; allowed: KEY=VALUE");
}

TEST(CommandLine, TakesOptionsOfGroupsApart) {
  const CommandLine line = parse_command_line({"dist", "x", "--group-option", "shared_memory=0"});
  EXPECT_EQ(line.dist.group_options, (NamedValues{{"shared_memory", "0"}}));
  expect_refused({"dist", "x", "--group-option", "a"}, "--group-option is 'a'; allowed: KEY=VALUE");
}

TEST(CommandLine, KeepsTheWordBehindAFlagThatTakesOne) {
  const CommandLine line = parse_command_line({"run", "-k", "op.*", "x", "--case", "a", "--exclude",
                                               "[ab]*", "-kmemory.*", "--dtype", "f32,i64"});
  EXPECT_EQ(line.plugin, "x");
  EXPECT_EQ(line.selection.filters, (Words{"op.*", "memory.*"}));
  EXPECT_EQ(line.selection.ids, Words{"a"});
  EXPECT_EQ(line.selection.excludes, Words{"[ab]*"}) << "a glob in brackets is no list";
  EXPECT_EQ(line.selection.dtypes, (Words{"f32", "i64"}));
}

TEST(CommandLine, HasATierForEachVerb) {
  EXPECT_EQ(parse_command_line({"run", "x"}).selection.tier, Tier::kQuick);
  EXPECT_EQ(parse_command_line({"coverage", "x"}).selection.tier, Tier::kQuick);
  EXPECT_EQ(parse_command_line({"list"}).selection.tier, Tier::kFull);
  EXPECT_FALSE(parse_command_line({"run", "x"}).is_tier_given);
  const CommandLine smoke = parse_command_line({"run", "x", "--tier", "smoke"});
  EXPECT_EQ(smoke.selection.tier, Tier::kSmoke);
  EXPECT_TRUE(smoke.is_tier_given);
}

TEST(CommandLine, IsolatesAsAsked) {
  EXPECT_EQ(parse_command_line({"run", "x", "--isolate", "case"}).run.batch, 1u);
  const CommandLine none = parse_command_line({"run", "x", "--isolate", "none"});
  EXPECT_GT(none.run.batch, size_t{1} << 40);
  EXPECT_TRUE(none.run.keeps_size);
  const CommandLine batch = parse_command_line({"run", "x", "--batch", "50"});
  EXPECT_EQ(batch.run.batch, 50u);
  EXPECT_FALSE(batch.run.keeps_size);
}

TEST(CommandLine, ShufflesByTheSeedUnlessAnotherIsGiven) {
  EXPECT_FALSE(parse_command_line({"run", "x"}).selection.shuffle_seed.has_value());
  EXPECT_EQ(parse_command_line({"run", "x", "--seed", "7", "--shuffle"}).selection.shuffle_seed,
            7u);
  EXPECT_EQ(parse_command_line({"run", "x", "--shuffle=9"}).selection.shuffle_seed, 9u);
  expect_refused({"run", "x", "--shuffle=often"}, "--shuffle is 'often'; allowed: a number");
}

TEST(CommandLine, ReplaysInOneProcessAndOnce) {
  const CommandLine line = parse_command_line({"replay", "x", "folder", "--seed", "9"});
  EXPECT_EQ(line.run.session.setup.recording.path, "folder");
  EXPECT_EQ(line.run.session.setup.recording.seed, 9u);
  EXPECT_EQ(line.run.retries, 0);
  EXPECT_EQ(line.run.max_crashes, 1);
  EXPECT_TRUE(line.run.keeps_size);
  EXPECT_FALSE(line.run.session.setup.recording.is_partial);
}

TEST(CommandLine, ReadsWhatPerfIsTold) {
  const auto perf = [](const Words& more) {
    Words words = {"perf", "x"};
    words.insert(words.end(), more.begin(), more.end());
    return parse_command_line(words);
  };
  EXPECT_EQ(perf({}).run.session.setup.perf.cache_bytes, 0u) << "the system is asked";
  EXPECT_EQ(perf({"--cache-bytes", "50M"}).run.session.setup.perf.cache_bytes, 50u << 20);
  EXPECT_EQ(perf({}).max_regress, 0.05);
  EXPECT_EQ(perf({"--max-regress", "12.5%"}).max_regress, 0.125);
  EXPECT_EQ(perf({"--max-regress", "0"}).max_regress, 0);
  for (const char* text : {"", "%", "5%%", "-1", "nan", "inf", "1e999", "5 percent"}) {
    expect_refused({"perf", "x", std::string("--max-regress=") + text}, "--max-regress");
  }
  for (const char* text : {"0", "1025G", "12X", "-1", "1.5M"}) {
    expect_refused({"perf", "x", std::string("--cache-bytes=") + text},
                   "; allowed: a size from 1 to 1024G");
  }
}

TEST(Environment, SetsAFlagThatIsNotOnTheCommandLine) {
  const Variable seed("BACKPLANE_CONFORMANCE_SEED", "7");
  const Variable quiet("BACKPLANE_CONFORMANCE_QUIET", "1");
  const Variable crashes("BACKPLANE_CONFORMANCE_MAX_CRASHES", "3");
  const CommandLine line = parse_command_line({"x"});
  EXPECT_EQ(line.run.session.seed, 7u);
  EXPECT_TRUE(line.is_quiet);
  EXPECT_EQ(line.run.max_crashes, 3);
  EXPECT_EQ(line.environment,
            (Words{"BACKPLANE_CONFORMANCE_MAX_CRASHES=3", "BACKPLANE_CONFORMANCE_QUIET=1",
                   "BACKPLANE_CONFORMANCE_SEED=7"}));
  EXPECT_EQ(line.words, Words{"x"});
  EXPECT_EQ(parse_command_line({"x", "--seed", "9"}).run.session.seed, 9u);
  EXPECT_EQ(parse_command_line({"x", "--seed=9"}).run.session.seed, 9u);
}

TEST(Environment, IsNotAddedToAFlagOfTheCommandLineHoweverItIsWritten) {
  const Variable filter("BACKPLANE_CONFORMANCE_FILTER", "memory.*");
  EXPECT_EQ(parse_command_line({"x"}).selection.filters, Words{"memory.*"});
  for (const Words& words : {Words{"x", "--filter", "op.*"}, Words{"x", "--filter=op.*"},
                             Words{"x", "-k", "op.*"}, Words{"x", "-kop.*"}}) {
    const CommandLine line = parse_command_line(words);
    EXPECT_EQ(line.selection.filters, Words{"op.*"}) << words[1];
    EXPECT_TRUE(line.environment.empty()) << words[1];
  }
}

TEST(Environment, MayHoldFlagsOfOtherVerbsAndNoneThatNoVerbHas) {
  const Variable budget("BACKPLANE_CONFORMANCE_BUDGET", "60");
  EXPECT_TRUE(parse_command_line({"list"}).environment.empty());
  EXPECT_EQ(parse_command_line({"x"}).budget_seconds, 60);
  const Variable unknown("BACKPLANE_CONFORMANCE_SEDE", "7");
  expect_refused({"x"}, "BACKPLANE_CONFORMANCE_SEDE: there is no flag --sede");
}

TEST(Environment, IsCheckedAsTheCommandLineIs) {
  const Variable jobs("BACKPLANE_CONFORMANCE_JOBS", "0");
  expect_refused({"x"}, "--jobs");
}

TEST(Environment, HandsTheMutantToTheBackend) {
  const Variable mutant("BACKPLANE_MUTANT", "add.tail");
  const CommandLine line = parse_command_line({"x", "--option", "a=b"});
  const std::vector<std::pair<std::string, std::string>> expected = {{"a", "b"},
                                                                     {"mutant", "add.tail"}};
  EXPECT_EQ(line.run.session.setup.options, expected);
  EXPECT_EQ(line.environment, Words{"BACKPLANE_MUTANT=add.tail"});
  EXPECT_TRUE(parse_command_line({"report", "folder"}).environment.empty());
}

}  // namespace
}  // namespace bp::conformance
