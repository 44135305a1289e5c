#include "conformance/report/stored.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace bp::conformance {
namespace {

namespace fs = std::filesystem;

class StoredRuns : public testing::Test {
 protected:
  StoredRuns() {
    std::string path = (fs::temp_directory_path() / "bp_stored_XXXXXX").string();
    folder_ = mkdtemp(path.data());
  }
  ~StoredRuns() override { fs::remove_all(folder_); }

  void write(const char* name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  StoredRun read() const { return StoredRun::read(folder_.string()); }
  void expect_refusal(const std::string& words) const {
    try {
      static_cast<void>(read());
      ADD_FAILURE() << "was read";
    } catch (const UsageError& e) {
      EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
    }
  }

  fs::path folder_;
};

TEST_F(StoredRuns, GiveTheLastResultOfEachCaseAndLeaveOutALineThatIsCut) {
  const std::string whole =
      R"({"case":"a.x","status":"Fail","cause":"tail","attempt":1,"tags":["A-1"],"wall_ms":2.5})"
      "\n"
      R"({"case":"a.y","status":"Pass","attempt":1,"metrics":{"margin":0.5}})"
      "\n"
      R"({"case":"a.x","status":"Fail","cause":"tail","attempt":2})"
      "\n"
      R"({"case":"a.x","status":"Waived","message":"waived: known","final":true})"
      "\n";
  write("results.jsonl", whole + R"({"case":"a.z","stat)");
  const StoredRun run = read();
  ASSERT_EQ(run.cases().size(), 2u);
  const StoredCase& x = *run.find("a.x");
  EXPECT_EQ(x.result.outcome, Outcome::kWaived);
  EXPECT_EQ(x.attempt.result.outcome, Outcome::kFail);
  EXPECT_EQ(x.attempt_count, 2);
  EXPECT_TRUE(x.has_agreed);
  EXPECT_EQ(run.find("a.y")->result.metrics.at("margin"), 0.5);
  EXPECT_EQ(run.find("a.z"), nullptr);
  EXPECT_EQ(run.whole_bytes(), whole.size());
  EXPECT_TRUE(run.summary().is_null());
}

TEST_F(StoredRuns, AreRefusedWithAReason) {
  expect_refusal("holds no results.jsonl");
  write("results.jsonl", "{\"case\":\"a.x\",\"status\":\"Pass\"}\n{\"case\":\"a.x\"}\n");
  expect_refusal("results.jsonl:2: ");
  write("results.jsonl", "");
  write("info.json", "[]");
  expect_refusal("info.json: not a JSON object");
  EXPECT_THROW(static_cast<void>(StoredRun::read("/no/such/folder")), UsageError);
}

TEST_F(StoredRuns, AreRestoredWithTheirVerdict) {
  write("results.jsonl", R"({"case":"stream.destroy_accepts_null","status":"Pass","attempt":1})"
                         "\n"
                         R"({"case":"gone.case","status":"Fail","attempt":1,"tag":"G-1"})"
                         "\n"
                         R"({"case":"unload","status":"Crash","attempt":1})"
                         "\n");
  RunHeader header{.plugin = "./x.so", .seed = 7, .tier = Tier::kSmoke};
  write("info.json", nlohmann::json{{"run", to_json(header)}}.dump());
  write("summary.json", R"({"wall_seconds":2.0,"is_interrupted":false})");
  const RestoredRun run = restore(read());
  EXPECT_EQ(run.summary.passed, 1u);
  EXPECT_EQ(run.summary.failed, 2u);
  EXPECT_EQ(run.summary.exit_code, kExitFailures);
  EXPECT_EQ(run.header.seed, 7u);
  EXPECT_EQ(run.summary.groups.at("gone").total, 1u);
  EXPECT_EQ(run.summary.groups.at("stream").right, 1u);
}

}  // namespace
}  // namespace bp::conformance
