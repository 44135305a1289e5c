#include "conformance/report/saved_failure.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "conformance/cases/selection.hpp"
#include "conformance/report/files.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

class SavedFailures : public testing::Test {
 protected:
  SavedFailures() {
    std::string path = (fs::temp_directory_path() / "bp_saved_XXXXXX").string();
    folder_ = mkdtemp(path.data());
    header_.folder = folder_.string();
    header_.plugin = "npu";
    header_.seed = UINT64_MAX;
    header_.session.timeout_seconds = 12.5;
    WorkerSetup& setup = header_.session.setup;
    setup.device = "acme.npu:1";
    setup.options = {{"a", "b=c"}, {"empty", ""}};
    setup.layers = "validate";
    setup.case_options = {.canary_bytes = 64, .poison = "ff"};
    judged_.id = "stream.case";
    judged_.result = {
        .outcome = Outcome::kFail, .message = "m", .cause = "tail", .tag = "STREAM-1"};
    judged_.attempt.result = judged_.result;
    judged_.attempt.output = "printed";
  }
  ~SavedFailures() override { fs::remove_all(folder_); }

  fs::path place() const { return folder_ / "repro" / file_name_of(judged_.id); }
  SavedFailure saved(const json& hello = {{"sha256", "abc"}, {"plugin", {{"path", "/lib/x.so"}}}}) {
    write_saved_failure(header_, hello, judged_);
    return SavedFailure::read(place().string());
  }
  json document() const {
    std::ifstream file(place() / "case.json");
    return json::parse(file);
  }

  fs::path folder_;
  RunHeader header_;
  Judged judged_;
};

TEST_F(SavedFailures, ComeBackAsTheyWereWritten) {
  const SavedFailure back = saved();
  EXPECT_EQ(back.id, "stream.case");
  EXPECT_EQ(back.change, "");
  EXPECT_TRUE(back.before.empty());
  EXPECT_EQ(back.seen.outcome, Outcome::kFail);
  EXPECT_EQ(back.seen.cause, "tail");
  EXPECT_EQ(back.plugin_path, "/lib/x.so");
  EXPECT_EQ(back.plugin_sha256, "abc");
  EXPECT_EQ(back.session.seed, UINT64_MAX);
  EXPECT_EQ(back.session.timeout_seconds, 12.5);
  EXPECT_EQ(back.session.setup.plugin, "/lib/x.so") << "the very library, not a name";
  EXPECT_EQ(back.session.setup.device, "acme.npu:1");
  EXPECT_EQ(back.session.setup.options, header_.session.setup.options);
  EXPECT_EQ(back.session.setup.layers, "validate");
  EXPECT_EQ(back.session.setup.case_options.canary_bytes, 64u);
  EXPECT_EQ(back.session.setup.case_options.poison, "ff");
  EXPECT_EQ(back.session.setup.parent, 0) << "the process of the run is gone";
  std::ifstream output(place() / "output.txt");
  std::string text;
  std::getline(output, text);
  EXPECT_EQ(text, "printed");
}

TEST_F(SavedFailures, HoldTheCasesThatMustRunBefore) {
  judged_.result.cause = "order";
  judged_.result.details = {{"after", "a.b, c.d"}, {"was", "Crash"}, {"was_cause", "crash"}};
  judged_.attempt.result = judged_.result;
  const SavedFailure back = saved();
  EXPECT_EQ(back.before, (std::vector<std::string>{"a.b", "c.d"}));
  EXPECT_EQ(back.seen.outcome, Outcome::kCrash) << "how the attempt itself ended";
  EXPECT_EQ(back.seen.cause, "crash");
}

TEST_F(SavedFailures, TakeHalfOfTheDetailsOfAnOrderForWhatABackendSaid) {
  judged_.attempt.result.details = {{"was", "Crash"}};
  EXPECT_EQ(saved().seen.outcome, Outcome::kFail);
  judged_.attempt.result.details = {{"was", "Crushed"}, {"was_cause", "x"}};
  EXPECT_EQ(saved().seen.outcome, Outcome::kFail);
  EXPECT_EQ(saved().seen.cause, "tail");
}

TEST_F(SavedFailures, OfABackendThatNeverLoadedHaveNoLibrary) {
  header_.session.setup.plugin = "npu";
  const SavedFailure back = saved(json());
  EXPECT_EQ(back.plugin_path, "");
  EXPECT_EQ(back.session.setup.plugin, "npu");
}

TEST_F(SavedFailures, FindALibraryWhosePathIsNoText) {
  header_.session.setup.plugin = "/lib/\xff\xfe.so";
  header_.session.setup.options = {{"file", "\x80"}};
  const json hello = {{"sha256", "abc"},
                      {"plugin", {{"path", "/lib/\xEF\xBF\xBD\xEF\xBF\xBD.so"}}}};
  const SavedFailure back = saved(hello);
  EXPECT_EQ(back.plugin_path, "/lib/\xff\xfe.so");
  EXPECT_EQ(back.session.setup.plugin, "/lib/\xff\xfe.so");
  EXPECT_EQ(back.session.setup.options, header_.session.setup.options);
}

TEST_F(SavedFailures, KeepBytesThatAreNoText) {
  judged_.result.message = "broken \xff text";
  judged_.attempt.result = judged_.result;
  EXPECT_EQ(saved().seen.message, "broken \xEF\xBF\xBD text");
}

TEST_F(SavedFailures, AreRefusedWhereAMemberIsDamaged) {
  saved();
  const json whole = document();
  const auto expect = [&](const char* pointer, const json& value, const std::string& words) {
    json wrong = whole;
    wrong[json::json_pointer(pointer)] = value;
    std::ofstream(place() / "case.json") << wrong.dump();
    try {
      static_cast<void>(SavedFailure::read(place().string()));
      ADD_FAILURE() << pointer << " = " << value << " was read";
    } catch (const UsageError& e) {
      const std::string text = e.what();
      EXPECT_TRUE(text.starts_with((place() / "case.json").string())) << text;
      EXPECT_NE(text.find(words), std::string::npos) << pointer << ": " << text;
    }
  };
  expect("/case", 7, "\"case\" is the number 7");
  expect("/seen", "Fail", "seen: not a JSON object");
  expect("/seen/status", "Failed", "\"status\" is \"Failed\"");
  for (const char* seed : {"", "-1", " 7", "7x", "0x", "18446744073709551616"}) {
    expect("/seed", seed, "\"seed\" is");
  }
  expect("/seed", 7, "\"seed\" is the number 7");
  expect("/session", json::array(), "\"session\" is a list of 0");
  for (const json& timeout : {json(0), json(-1), json(1e9), json("5")}) {
    expect("/session/timeout_seconds", timeout, "\"timeout_seconds\" is");
  }
  expect("/session/options", json::array({"a=b"}), "\"options\" is a list with a text");
  expect("/session/canary_bytes", 1 << 21, "\"canary_bytes\" is the number 2097152");
  expect("/session/poison", json(), "\"poison\" is null");
  expect("/plugin_path", json::array(), "\"plugin_path\" is a list of 0");
  expect("/before", "a", "\"before\" is a text");
  for (const char* member : {"case", "seed", "seen", "session", "plugin_path", "plugin_sha256"}) {
    json without = whole;
    without.erase(member);
    std::ofstream(place() / "case.json") << without.dump();
    EXPECT_THROW(static_cast<void>(SavedFailure::read(place().string())), UsageError) << member;
  }
}

TEST_F(SavedFailures, AreFoundByTheirOwnFolderTheRunOrTheListOfFailures) {
  EXPECT_TRUE(saved_failures_in(folder_.string()).empty());
  EXPECT_TRUE(saved_failures_in("/no/such/folder").empty());
  saved();
  judged_.id = "another.case";
  saved();
  const std::vector<std::string> both = {(folder_ / "repro" / "another.case").string(),
                                         (folder_ / "repro" / "stream.case").string()};
  EXPECT_EQ(saved_failures_in(folder_.string()), both);
  EXPECT_EQ(saved_failures_in((folder_ / "repro").string()), both);
  EXPECT_EQ(saved_failures_in(both[0]), std::vector<std::string>{both[0]});
}

TEST_F(SavedFailures, ThatCannotBeWrittenAreAnErrorOfTheOutput) {
  std::ofstream(folder_ / "repro") << "a file";
  EXPECT_THROW(write_saved_failure(header_, json::object(), judged_), OutputError);
}

}  // namespace
}  // namespace bp::conformance
