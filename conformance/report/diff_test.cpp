#include "conformance/report/diff.hpp"

#include <gtest/gtest.h>

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
  const std::string text = diff_text(diff, before, after, 1);
  EXPECT_NE(text.find("Pass -> Timeout: m"), std::string::npos) << text;
  EXPECT_NE(text.find("... and 1 more: -v"), std::string::npos) << text;
  EXPECT_TRUE(diff_runs(before, before).is_empty());
}

}  // namespace
}  // namespace bp::conformance
