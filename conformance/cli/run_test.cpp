// The verbs run, replay and repro over workers that behave as a script says (scripted_worker.hpp):
// the files, the lines and the exit codes of a run, and what repeats.
#include <gtest/gtest.h>

#include "conformance/report/file_hash.hpp"
#include "conformance/report/saved_failure.hpp"
#include "conformance/tests/verbs_fixture.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

class RunVerb : public Verbs {
 protected:
  // Runs both cases, of which the stream's does `step`.
  int run(const std::string& step, const Words& more = {}, const std::string& plugin = "well") {
    Words words = run_words(plugin, "out", more);
    if (!step.empty()) words.insert(words.end(), {"--option", kStreamCase + ("=" + step)});
    return call(run_verb, words);
  }
  // The lines of results.jsonl: "stream.x Fail".
  Words results() const {
    std::istringstream lines(read("out/results.jsonl"));
    Words all;
    for (std::string line; std::getline(lines, line);) {
      const json parsed = json::parse(line);
      all.push_back(parsed.at("case").get<std::string>() + " " +
                    parsed.at("status").get<std::string>());
    }
    return all;
  }
  static std::string ended(const char* id, const char* status) {
    return std::string(id) + " " + status;
  }
};

TEST_F(RunVerb, LeavesTheFilesOfTheRunAndOfEachFailure) {
  EXPECT_EQ(run("fail:values"), kExitFailures);
  const std::string saved = std::string("out/repro/") + kStreamCase;
  for (const std::string& name :
       {std::string("info.json"), std::string("summary.json"), std::string("junit.xml"),
        std::string("report.html"), std::string("report.md"), saved + "/case.json"}) {
    EXPECT_TRUE(has("out/" + name) || has(name)) << name;
  }
  EXPECT_EQ(results(), (Words{ended(kStreamCase, "Fail"), ended(kEventCase, "Pass"),
                              ended(kStreamCase, "Fail")}))
      << "the last line is that of the confirmation";
  EXPECT_EQ(document("out/summary.json").at("failed"), 1);
  EXPECT_TRUE(has_printed("1 passed, 1 failed, 0 skipped")) << printed_;
  EXPECT_TRUE(complaints().empty());
}

TEST_F(RunVerb, PrintsInEachFormatWhatThatFormatHas) {
  run("fail:values", {"--format", "plain", "--retries", "0"});
  EXPECT_TRUE(
      has_printed("Fail                 1.5 ms  " + std::string(kStreamCase) + ": it fails\n"))
      << printed_;
  run("fail:values", {"--format", "plain", "--quiet"});
  EXPECT_FALSE(has_printed(" ms  ")) << printed_;

  run("fail:values", {"--format", "jsonl", "--retries", "0"});
  std::istringstream lines(printed_);
  size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_TRUE(json::parse(line).contains("status")) << "nothing else is printed";
  }
  EXPECT_EQ(count, 2u);

  testing::internal::CaptureStderr();
  run("fail:values", {"--format", "tap", "--verbose", "--retries", "0"});
  EXPECT_NE(testing::internal::GetCapturedStderr().find(kEventCase), std::string::npos);
  EXPECT_FALSE(has_printed(" ms  ")) << "only TAP is on standard output: " << printed_;
  EXPECT_TRUE(has_printed("1..2")) << printed_;
}

TEST_F(RunVerb, WritesEveryOutputThatItCanAndThenFails) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "the system has no /dev/full";
  EXPECT_EQ(run("", {"--json", "/dev/full", "--junit", at("x.xml")}), kExitHarness);
  EXPECT_TRUE(has("x.xml") && has("out/summary.json"));
  EXPECT_TRUE(has_printed("2 passed, 0 failed, 0 skipped")) << printed_;
  ASSERT_EQ(complaints().size(), 1u);
  EXPECT_TRUE(complaints()[0].starts_with("/dev/full: ")) << complaints()[0];
}

TEST_F(RunVerb, EndsInOneLineWhereThePluginDoesNotLoad) {
  EXPECT_EQ(run("", {}, "no_hello:3"), kExitNotLoaded);
  EXPECT_EQ(run("", {}, R"(hello:{"error":"npu: not found"})"), kExitNotLoaded);
  EXPECT_EQ(complaints(), (Words{"no_hello:3: the process exited with code 3 while loading",
                                 R"(hello:{"error":"npu: not found"}: npu: not found)"}));
  EXPECT_EQ(printed_, "");
  EXPECT_FALSE(has("out")) << "there is no run";
}

TEST_F(RunVerb, ReadsTheWaiversBesideThePlugin) {
  const auto waiver = [](const char* id, const char* reason) {
    return "- {case: " + std::string(id) + ", kind: broken, issue: 7, reason: " + reason + "}\n";
  };
  write("waivers.yaml", waiver(kStreamCase, "of the folder"));
  EXPECT_EQ(run("fail:values", {}, plugin_at(at("npu.so"))), kExitOk);
  EXPECT_EQ(document("out/info.json").at("run").at("waivers"), at("waivers.yaml"));
  write("npu.waivers.yaml", waiver(kEventCase, "of the plugin"));
  EXPECT_EQ(run("fail:values", {}, plugin_at(at("npu.so"))), kExitFailures)
      << "the file of the plugin stands in the place of that of the folder";
  EXPECT_TRUE(has_printed(kEventCase)) << "this waiver is stale: " << printed_;
  EXPECT_EQ(run("fail:values", {"--waivers", at("waivers.yaml")}, plugin_at(at("npu.so"))), kExitOk)
      << "the file that is named comes first";
}

TEST_F(RunVerb, TakesWaiversOfCasesThatDoNotRun) {
  const std::string file =
      write("w.yaml", "- {case: memory.*, kind: unsupported, reason: there is none}\n");
  EXPECT_EQ(run("", {"--waivers", file}), kExitOk);
  const std::string wrong =
      write("wrong.yaml", "- {case: memroy.*, kind: unsupported, reason: there is none}\n");
  const std::string text =
      error_of<UsageError>(run_verb, run_words("well", "out", {"--waivers", wrong}));
  EXPECT_NE(text.find("memroy.*"), std::string::npos) << text;
}

TEST_F(RunVerb, DraftsAWaiverForEachFailure) {
  run("fail:values", {"--write-waivers", at("draft.yaml")});
  const std::string draft = read("draft.yaml");
  EXPECT_NE(draft.find(kStreamCase), std::string::npos) << draft;
  EXPECT_EQ(draft.find(kEventCase), std::string::npos) << draft;
}

TEST_F(RunVerb, ContinuesWithWhatIsNotSettled) {
  Words words = run_words("well", "out", {"--option", kStreamCase + std::string("=once:values")});
  EXPECT_EQ(call(run_verb, words), kExitFailures);
  EXPECT_EQ(document("out/summary.json").at("statuses").at("Flake"), 1);
  const size_t before = results().size();
  *std::ranges::find(words, "--out") = "--resume";
  EXPECT_EQ(call(run_verb, words), kExitFailures) << "in its first attempt it fails once more";
  Words added = results();
  added.erase(added.begin(), added.begin() + static_cast<std::ptrdiff_t>(before));
  EXPECT_EQ(std::ranges::count(added, ended(kEventCase, "Pass")), 0) << "it has passed before";
  EXPECT_GE(std::ranges::count(added, ended(kStreamCase, "Fail")), 1) << "a Flake runs again";
  EXPECT_TRUE(has_printed("1 passed, 1 failed, 0 skipped")) << printed_;
}

TEST_F(RunVerb, TakesAFileOfShrinkAndNoOther) {
  const auto refusal = [&](const std::string& text) {
    const std::string file = write("shrunk.json", text);
    return error_of<UsageError>(run_verb, {"run", "well", "--shrunk", file});
  };
  for (const char* text :
       {"", "{", "[]", "{}", R"({"case":7})", R"({"case":"no.such.case"})",
        R"({"case":"stream.destroy_accepts_null"})", R"({"case":"op.add.f32.random.17.dense"})",
        R"({"case":"op.add.f32.random.17.dense","tensors":[],"attributes":{}})"}) {
    const std::string refused = refusal(text);
    EXPECT_TRUE(refused.starts_with("--shrunk: ")) << text << ": " << refused;
    EXPECT_TRUE(refused.ends_with("; allowed is a file that shrink wrote")) << text;
  }
}

TEST(ReproFlags, AreThoseThatDifferFromTheUsualOnes) {
  const auto flags = [](std::vector<std::string> words) {
    words.insert(words.begin(), {"run", "x"});
    return repro_flags(parse_command_line(words));
  };
  using Words = std::vector<std::string>;
  EXPECT_EQ(flags({}), Words{});
  EXPECT_EQ(flags({"--canary", "4096", "--poison", "nan", "--jobs", "3", "--batch", "2"}), Words{})
      << "these change no result";
  EXPECT_EQ(flags({"--device", "1", "--option", "a=b=c", "--option", "a=", "--canary", "0"}),
            (Words{"--option", "a=b=c", "--option", "a=", "--device", "1", "--canary", "0"}));
  EXPECT_EQ(flags({"--allow-decompositions"}), (Words{"--allow-decompositions"}));
  EXPECT_EQ(flags({"--poison", "ff", "--layers", "leak", "--layer-options", "leak.x=1"}),
            (Words{"--layers", "leak", "--layer-options", "leak.x=1", "--poison", "ff"}));
  EXPECT_EQ(repro_flags(parse_command_line({"replay", "x", "r", "--partial", "--seed-weights"})),
            (Words{"--seed-weights", "--partial"}));
}

// ---- repro ----------------------------------------------------------------------------------- //

class ReproVerb : public RunVerb {
 protected:
  ReproVerb() {
    plugin_ = write("npu.so", "a library");
    run("fail:values", {"--retries", "0"}, plugin_at(plugin_));
  }
  std::string place() const { return at("out/repro/" + std::string(kStreamCase)); }

  // Changes case.json.
  void edit(const std::function<void(json&)>& change) const {
    json saved = read_json_file(place() + "/case.json");
    change(saved);
    write(fs::relative(place(), folder_).string() + "/case.json", saved.dump());
  }
  // The stream's case does `step` now.
  int repro_with(const std::string& step) {
    edit([&](json& saved) {
      saved["session"]["options"] = json::array({json::array({kStreamCase, step})});
    });
    return call(repro_verb, {"repro", place()});
  }

  std::string plugin_;
};

TEST_F(ReproVerb, SaysWhatRepeatsAndWhatDoesNot) {
  EXPECT_EQ(call(repro_verb, {"repro", at("out")}), kExitFailures);
  EXPECT_TRUE(
      has_printed("  then  Fail (values): it fails\n  now   Fail (values): it fails\n"
                  "repeats: the same cause\n"))
      << printed_;
  EXPECT_EQ(repro_with("fail:tail"), kExitFailures);
  EXPECT_TRUE(has_printed("fails, but with another cause\n")) << printed_;
  EXPECT_EQ(repro_with("exit:4"), kExitFailures);
  EXPECT_TRUE(has_printed("  now   Crash (crash): the process exited with code 4\n")) << printed_;
  EXPECT_EQ(repro_with("pass"), kExitOk);
  EXPECT_TRUE(has_printed("  now   Pass\npasses now\n")) << printed_;
  EXPECT_EQ(repro_with(R"(end:{"status":"NotSupported","message":"no streams"})"), kExitNothingRan);
  EXPECT_TRUE(has_printed("did not run natively now\n")) << printed_;
  EXPECT_EQ(repro_with(R"(end:{"status":"HarnessError"})"), kExitHarness);
  EXPECT_TRUE(has_printed("the suite itself failed, so nothing is known of the failure\n"))
      << printed_;
}

TEST_F(ReproVerb, RunsTheCasesWithoutWhichItPasses) {
  edit([](json& saved) { saved["before"] = json::array({kEventCase}); });
  EXPECT_EQ(repro_with("after:" + std::string(kEventCase) + ":values"), kExitFailures);
  EXPECT_TRUE(has_printed("repeats: the same cause\n")) << printed_;
  edit([](json& saved) {
    saved["session"]["options"] = json::array({json::array({kEventCase, "exit:5"})});
  });
  EXPECT_EQ(call(repro_verb, {"repro", place()}), kExitFailures);
  EXPECT_TRUE(has_printed("not reached: " + std::string(kEventCase) +
                          " before it ended the worker: Crash (crash): the process exited with "
                          "code 5\nfails, but with another cause\n"))
      << printed_;
}

TEST_F(ReproVerb, ShowsWhatTheBackendPrinted) {
  EXPECT_EQ(repro_with("print:one\ntwo \x1b[31m"), kExitFailures);
  EXPECT_TRUE(has_printed("  it printed\n    one\n")) << printed_;
  EXPECT_TRUE(has_printed("two \\x1b[31m")) << printed_;
}

TEST_F(ReproVerb, WarnsOfAPluginThatHasChangedAndEndsWithoutOne) {
  const std::string before = sha256_of_file(plugin_);
  write("npu.so", "another library");
  EXPECT_EQ(call(repro_verb, {"repro", at("out")}), kExitFailures) << "it runs all the same";
  ASSERT_EQ(complaints().size(), 1u);
  EXPECT_EQ(complaints()[0], "warning: " + plugin_ +
                                 " has changed since the failure was saved: its sha256 was " +
                                 before + " and is " + sha256_of_file(plugin_));
  complaints().clear();
  fs::remove(plugin_);
  EXPECT_EQ(call(repro_verb, {"repro", at("out")}), kExitNotLoaded);
  EXPECT_EQ(complaints(),
            Words{"the plugin of the saved failure, " + plugin_ + ", is not there any more"});
}

TEST_F(ReproVerb, NeedsOneFailureThatIsACaseOfTheSuite) {
  EXPECT_TRUE(error_of<UsageError>(repro_verb, {"repro", at("none")})
                  .starts_with(at("none") + ": holds no saved failure"));
  edit([](json& saved) { saved["case"] = "load"; });
  EXPECT_TRUE(error_of<UsageError>(repro_verb, {"repro", place()})
                  .starts_with("the failure happened during the load of the plugin"));
  edit([](json& saved) { saved["case"] = "stream.forgotten"; });
  EXPECT_EQ(error_of<NothingMatched>(repro_verb, {"repro", place()}),
            "stream.forgotten: the suite has no case of this id any more");
  fs::copy(place(), at("out/repro/other"));
  const std::string text = error_of<UsageError>(repro_verb, {"repro", at("out")});
  EXPECT_TRUE(text.starts_with(at("out") + ": holds 2 saved failures")) << text;
  EXPECT_EQ(printed_, at("out/repro/other") + "\n" + place() + "\n");
}

}  // namespace
}  // namespace bp::conformance
