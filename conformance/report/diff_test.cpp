#include "conformance/report/diff.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

namespace bp::conformance {
namespace {

namespace fs = std::filesystem;

class Diffs : public testing::Test {
 protected:
  Diffs() {
    std::string path = (fs::temp_directory_path() / "bp_diff_XXXXXX").string();
    folder_ = mkdtemp(path.data());
  }
  ~Diffs() override { fs::remove_all(folder_); }

  StoredRun run(const char* name, const std::string& lines, const std::string& info) const {
    fs::create_directories(folder_ / name);
    std::ofstream(folder_ / name / "results.jsonl") << lines;
    std::ofstream(folder_ / name / "info.json") << info;
    return StoredRun::read((folder_ / name).string());
  }
  static std::string line(const char* id, const char* status, double margin = 0.01) {
    const nlohmann::json line = {{"case", id},
                                 {"status", status},
                                 {"attempt", 1},
                                 {"message", "m"},
                                 {"metrics", {{"margin", margin}}}};
    return line.dump() + "\n";
  }

  fs::path folder_;
};

TEST_F(Diffs, SortChangesByWhatTheyMean) {
  const StoredRun before =
      run("a",
          line("same", "Pass") + line("worse", "Pass") + line("better", "Crash") +
              line("other", "Pass") + line("drifts", "Pass", 0.1) + line("grows", "Pass", 0.01) +
              line("gone", "Pass") + line("waived", "Fail"),
          R"({"plugin":{"name":"acme.npu","version":"1"}})");
  const StoredRun after =
      run("b",
          line("same", "Pass", 0.02) + line("worse", "Timeout") + line("better", "Pass") +
              line("other", "QualityWarning") + line("drifts", "Pass", 0.6) +
              line("grows", "Pass", 0.05) + line("fresh", "Pass") + line("fresh_bad", "Fail") +
              line("waived", "Waived"),
          R"({"plugin":{"name":"acme.npu","version":"2"}})");
  const RunDiff diff = diff_runs(before, after);
  const auto ids = [](const std::vector<Change>& changes) {
    std::vector<std::string> all;
    all.reserve(changes.size());
    for (const Change& change : changes) all.push_back(change.id);
    return all;
  };
  using Ids = std::vector<std::string>;
  EXPECT_EQ(ids(diff.new_failures), (Ids{"worse", "fresh_bad"}));
  EXPECT_EQ(ids(diff.fixed), Ids{"better"});
  EXPECT_EQ(ids(diff.changed), (Ids{"other", "waived"}));
  EXPECT_EQ(ids(diff.drifted), Ids{"drifts"});
  EXPECT_EQ(diff.drifted[0].text, "margin 0.1 -> 0.6");
  EXPECT_EQ(ids(diff.added), Ids{"fresh"});
  EXPECT_EQ(ids(diff.vanished), Ids{"gone"});
  EXPECT_EQ(diff.same_count, 2u);
  ASSERT_EQ(diff.context.size(), 1u);
  EXPECT_EQ(diff.context[0], "plugin version  1 -> 2");
  const std::string text = diff_text(diff, before, after, false);
  EXPECT_NE(text.find("Pass -> Timeout: m"), std::string::npos) << text;
  EXPECT_TRUE(diff_runs(before, before).is_empty());
}

TEST_F(Diffs, CountManyChangesByKindAndOpAndListThemOnRequest) {
  std::string then, now;
  for (int i = 0; i < 1000; ++i) {
    const std::string id =
        "op." + std::string(i % 4 == 0 ? "mul" : "add") + ".f32.case" + std::to_string(i);
    then += line(id.c_str(), "Pass");
    now += line(id.c_str(), i == 7 ? "Timeout" : "Fail");
  }
  const StoredRun before = run("a", then, "{}"), after = run("b", now, "{}");
  const RunDiff diff = diff_runs(before, after);
  const std::string text = diff_text(diff, before, after, false);
  EXPECT_NE(text.find("999 x Pass -> Fail: op.add 749, op.mul 250; such as\n"
                      "    op.mul.f32.case0\n      Pass -> Fail: m\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("\n  op.add.f32.case7\n    Pass -> Timeout: m\n"), std::string::npos) << text;
  EXPECT_LT(std::ranges::count(text, '\n'), 12);
  EXPECT_GT(std::ranges::count(diff_text(diff, before, after, true), '\n'), 2000);
}

TEST_F(Diffs, TakeAnotherCauseForAChangeAndAnotherMessageForNone) {
  const auto fail = [](const char* cause, const char* message) {
    return nlohmann::json{{"case", "a"},
                          {"status", "Fail"},
                          {"attempt", 1},
                          {"cause", cause},
                          {"message", message}}
               .dump() +
           "\n";
  };
  const StoredRun before = run("a", fail("tail", "at 7"), "{}");
  EXPECT_TRUE(diff_runs(before, run("b", fail("tail", "at 8\nand more"), "{}")).is_empty());
  const RunDiff changed = diff_runs(before, run("c", fail("values", "at 7\nand more"), "{}"));
  ASSERT_EQ(changed.changed.size(), 1u);
  EXPECT_EQ(changed.changed[0].text, "Fail: cause tail -> values: at 7") << "on one line";
}

TEST_F(Diffs, FindADriftFromFourTimesTheMarginAndATenthOn) {
  const auto has_drifted = [&](double then, double now) {
    return !diff_runs(run("a", line("x", "Pass", then), "{}"),
                      run("b", line("x", "Pass", now), "{}"))
                .drifted.empty();
  };
  EXPECT_TRUE(has_drifted(0.025, 0.1));
  EXPECT_FALSE(has_drifted(0.025, 0.0999)) << "it is far from the limit still";
  EXPECT_FALSE(has_drifted(0.125, 0.499)) << "it has not grown enough";
  EXPECT_TRUE(has_drifted(0.125, 0.5));
  EXPECT_TRUE(has_drifted(0, 0.1));
  EXPECT_FALSE(has_drifted(0.5, 0.1));
  const double none = std::nan("");  // Stored as null.
  EXPECT_FALSE(has_drifted(none, 0.9));
  EXPECT_FALSE(has_drifted(0.01, none));
}

TEST_F(Diffs, NameWhatTheTwoRunsWereMadeWith) {
  const char* const kInfo = R"({"suite":"0.1","sha256":"SHA","plugin":{"name":"acme.npu"},
                                "run":{"tier":"TIER","seed":SEED}})";
  const auto info = [&](const char* sha, const char* tier, const char* seed) {
    std::string text = kInfo;
    text.replace(text.find("SHA"), 3, sha);
    text.replace(text.find("TIER"), 4, tier);
    text.replace(text.find("SEED"), 4, seed);
    return text;
  };
  const std::string lines = line("x", "Pass");
  const StoredRun a = run("a", lines, info("0123456789abcdef0123456789abcdef", "quick", "7"));
  EXPECT_TRUE(diff_runs(a, a).context.empty());
  const StoredRun b = run("b", lines, info("0123456789abcdef0123456fffffffff", "full", "8"));
  EXPECT_EQ(diff_runs(a, b).context,
            (std::vector<std::string>{"plugin sha256  0123456789abcdef01234567 -> "
                                      "0123456789abcdef0123456f",
                                      "tier  quick -> full", "seed  7 -> 8"}));
  const StoredRun killed = run("c", lines, "{}");
  const std::vector<std::string> context = diff_runs(a, killed).context;
  ASSERT_EQ(context.size(), 5u);
  EXPECT_EQ(context[0], "suite  0.1 -> unknown");
  EXPECT_NE(diff_text(diff_runs(a, killed), a, killed, true).find("of a run that did not end"),
            std::string::npos);
}

TEST_F(Diffs, CountWhatIsNeitherBetterNorWorse) {
  const StoredRun before = run("a", line("skip", "Skip") + line("fail", "Fail"), "{}");
  const StoredRun after = run("b", line("skip", "Pass") + line("fail", "Skip"), "{}");
  const RunDiff diff = diff_runs(before, after);
  EXPECT_TRUE(diff.new_failures.empty());
  EXPECT_TRUE(diff.fixed.empty()) << "a case that is skipped is not mended";
  EXPECT_EQ(diff.changed.size(), 2u);
  EXPECT_NE(diff_text(diff, before, after, true)
                .find("0 new failures, 0 fixed, 2 changed, 0 drifted, 0 new, 0 vanished, 0 as "
                      "before\n"),
            std::string::npos);
}

}  // namespace
}  // namespace bp::conformance
