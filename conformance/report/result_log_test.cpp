// The folder of a run while it is written, interrupted and continued, and reports of texts that a
// backend made up.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <future>
#include <set>
#include <sstream>

#include "conformance/report/files.hpp"
#include "conformance/report/saved_failure.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;
using namespace std::string_literals;
namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

CaseList make_cases(size_t count) {
  std::vector<Case> all(count);
  for (size_t i = 0; i < count; ++i) {
    all[i].id = "stream.case_" + std::to_string(1000 + i);
    all[i].group = i % 2 == 0 ? "stream" : "event";
    all[i].tags = {"STREAM-1"};
    all[i].run = [](Context&) {};
  }
  return CaseList(std::move(all));
}

class RunFolders : public testing::Test {
 protected:
  RunFolders() {
    std::string path = (fs::temp_directory_path() / "bp_run_XXXXXX").string();
    folder_ = mkdtemp(path.data());
    header_ = {.plugin = "./x.so", .seed = 7, .selection_sha256 = "abc", .folder = folder_};
  }
  ~RunFolders() override { fs::remove_all(folder_); }

  fs::path log() const { return folder_ / "results.jsonl"; }
  static Attempt attempt(size_t index, Outcome outcome, int number = 1) {
    return {.index = index, .number = number, .result = {.outcome = outcome}, .wall_ms = 1.5};
  }
  std::string refusal_to_continue(const RunHeader& header, const json& hello) const {
    try {
      continue_result_folder(folder_.string(), StoredRun::read(folder_.string()), header, hello);
    } catch (const UsageError& e) {
      return e.what();
    }
    return "";
  }
  // A report of the cases, each with what `outcome_of` says.
  template <typename OutcomeOf>
  RunReport report_of(const CaseList& cases, OutcomeOf outcome_of) const {
    RunReport report;
    report.hello = json::object();
    for (size_t i = 0; i < cases.size(); ++i) {
      Final& final = report.finals.emplace_back();
      final.index = final.attempt.index = i;
      final.attempt.result = outcome_of(i);
    }
    return report;
  }

  fs::path folder_;
  RunHeader header_;
  const CaseList cases_ = make_cases(4);
};

TEST_F(RunFolders, AreContinuedBehindALineThatIsCut) {
  const json hello = {{"sha256", "f00d"}};
  write_info(header_, hello);
  {
    ResultLog first(log(), 7, cases_);
    first.add(attempt(0, Outcome::kPass));
    first.add(attempt(1, Outcome::kFail));
  }
  std::ofstream(log(), std::ios::app) << R"({"attempt":1,"case":"stream.case_1002","sta)";
  EXPECT_EQ(refusal_to_continue(header_, hello), "");
  {
    ResultLog second(log(), 7, cases_);
    second.add(attempt(2, Outcome::kCrash));
    second.add(attempt(1, Outcome::kFail, 2));
    second.finish();
  }
  const StoredRun stored = StoredRun::read(folder_.string());
  ASSERT_EQ(stored.cases().size(), 3u);
  EXPECT_EQ(stored.find(cases_[2].id)->result.outcome, Outcome::kCrash)
      << "the line that was cut is no part of that which follows";
  EXPECT_EQ(stored.find(cases_[1].id)->attempt_count, 2);
}

TEST_F(RunFolders, AreContinuedByTheSameRunAlone) {
  ResultLog(log(), 7, cases_).add(attempt(0, Outcome::kPass));
  EXPECT_NE(refusal_to_continue(header_, {}).find("has no info.json of a run"), std::string::npos);
  const json hello = {{"sha256", "f00d"}};
  header_.command_line = {"run", "./x.so", "--seed", "7"};
  header_.repro_flags = {"--layers", "leak"};
  write_info(header_, hello);
  EXPECT_EQ(refusal_to_continue(header_, hello), "");
  EXPECT_NE(refusal_to_continue(header_, {{"sha256", "beef"}}).find("the plugin has changed"),
            std::string::npos);
  RunHeader changed[] = {header_, header_, header_};
  changed[0].seed = 8;
  changed[1].selection_sha256 = "abd";
  changed[2].repro_flags.clear();
  for (const RunHeader& other : changed) {
    EXPECT_TRUE(refusal_to_continue(other, hello)
                    .ends_with("the folder holds another run; repeat its flags: bp-conformance run "
                               "./x.so --seed 7"))
        << refusal_to_continue(other, hello);
  }
}

TEST_F(RunFolders, LoseWhatAnEarlierRunLeftAndNothingElse) {
  for (const char* name : {"results.jsonl", "junit.xml", "report.md", "mine.txt"}) {
    std::ofstream(folder_ / name) << "old";
  }
  fs::create_directories(folder_ / "repro" / "op.add");
  std::ofstream(folder_ / "repro" / "op.add" / "case.json") << "{}";
  static_cast<void>(make_result_folder(folder_.string()));
  EXPECT_EQ(text_of(folder_ / "mine.txt"), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
  EXPECT_THROW(static_cast<void>(make_result_folder((folder_ / "mine.txt").string())), UsageError);
  EXPECT_THROW(static_cast<void>(make_result_folder((folder_ / "mine.txt" / "a").string())),
               UsageError);
}

TEST_F(RunFolders, HoldALineForEachFinalThatIsNotItsLastAttempt) {
  Summary summary;
  const auto judge = [&](const char* id, Outcome last, Result final) {
    Judged& judged = summary.judged.emplace_back();
    judged.id = id;
    judged.attempt.result.outcome = last;
    judged.result = std::move(final);
  };
  judge("same", Outcome::kFail, {.outcome = Outcome::kFail, .cause = "tail"});
  judge("waived", Outcome::kFail, {.outcome = Outcome::kWaived, .message = "known"});
  judge("flake", Outcome::kFlake, {.outcome = Outcome::kFlake});
  judge("order", Outcome::kFail, {.outcome = Outcome::kFail, .cause = "order"});
  {
    ResultLog results(log(), 7, cases_);
    results.add_finals(summary);
  }
  std::istringstream lines(text_of(log()));
  std::set<std::string> ids;
  for (std::string line; std::getline(lines, line);) {
    const json parsed = json::parse(line);
    EXPECT_EQ(parsed.at("final"), true);
    ids.insert(parsed.at("case"));
  }
  EXPECT_EQ(ids, (std::set<std::string>{"waived", "flake", "order"}));
}

TEST_F(RunFolders, SayThatADiskIsFull) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "the system has no /dev/full";
  ResultLog full("/dev/full", 7, cases_);
  try {
    full.add(attempt(0, Outcome::kPass));
    FAIL() << "nothing was written";
  } catch (const OutputError& e) {
    EXPECT_TRUE(std::string(e.what()).starts_with("/dev/full: cannot be written: ")) << e.what();
  }
  EXPECT_THROW(write_file("/dev/full", "text"), OutputError);
  EXPECT_THROW(ResultLog(folder_, 7, cases_), OutputError) << "a folder is no file";
}

TEST_F(RunFolders, NameProcessesWithoutACase) {
  ResultLog results(log(), 7, cases_);
  results.add(attempt(kLoad, Outcome::kCrash));
  Attempt noisy = attempt(kUnload, Outcome::kFail);
  noisy.output = "half of \xff\0 it"s, noisy.output_bytes = 100000;
  results.add(noisy);
  results.finish();
  const StoredRun stored = StoredRun::read(folder_.string());
  ASSERT_NE(stored.find("load"), nullptr);
  ASSERT_NE(stored.find("unload"), nullptr);
  EXPECT_EQ(stored.find("unload")->attempt.output_bytes, 100000u);
}

TEST_F(RunFolders, WriteIntoAPipeThatSomebodyReads) {
  const std::string pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  // To open a pipe for reading waits for a writer. So the test holds it open until write_file() has
  // returned, even if write_file() throws before it opens the pipe.
  const int held = open(pipe.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(held, 0);
  std::ifstream source(pipe, std::ios::binary);
  auto reader = std::async(std::launch::async, [&] {
    std::ostringstream text;
    text << source.rdbuf();
    return text.str();
  });
  const std::string text(200000, 'x');  // More than a pipe holds.
  EXPECT_NO_THROW(write_file(pipe, text));
  close(held);
  EXPECT_EQ(reader.get(), text);
  EXPECT_TRUE(fs::is_fifo(pipe)) << "it is not replaced";
}

TEST_F(RunFolders, ReplaceAFileAsAWhole) {
  const fs::path file = folder_ / "report.html", link = folder_ / "link";
  write_file(file, std::string(100000, 'a'));
  fs::create_hard_link(file, link);
  write_file(file, "short");
  EXPECT_EQ(text_of(file), "short");
  EXPECT_EQ(text_of(link).size(), 100000u) << "who had it open still reads the old one";
  EXPECT_THROW(write_file(folder_ / "none" / "x", "text"), OutputError);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 2)
      << "no draft is left";
}

// Everything that a broken backend may say, in every file of a run.
TEST_F(RunFolders, HoldReportsOfTextsThatAreNoText) {
  const std::string wild =
      "]]> </failure><!-- \"'& \x01\x1b[31m \xff\xfe \xc3\xa9 \0"s + std::string(20000, 'z');
  const RunReport report = report_of(cases_, [&](size_t i) {
    Result result{.outcome = i == 3 ? Outcome::kNotSupported : Outcome::kFail,
                  .message = wild,
                  .cause = i == 0 ? wild.substr(0, 60) : "tail",
                  .notes = {wild, ""},
                  .metrics = {{"margin", std::nan("")}, {"x", HUGE_VAL}}};
    result.details["why"] = wild;
    return result;
  });
  const Summary summary = summarize(header_, cases_, report, {});
  Outputs outputs;
  write_result_files(header_, report, summary, outputs);
  EXPECT_EQ(outputs.problem(), "");
  EXPECT_EQ(json::parse(text_of(folder_ / "summary.json")).at("failed"), 3);
  const std::string xml = text_of(folder_ / "junit.xml");
  for (const char c : xml) {
    const auto byte = static_cast<unsigned char>(c);
    ASSERT_TRUE((byte >= 0x20 && byte < 0x7f) || c == '\n' || c == '\t') << int{byte};
  }
  EXPECT_EQ(xml.find("<!--"), std::string::npos);
  EXPECT_EQ(xml.find("]]>"), std::string::npos) << "it would end a section that was never begun";
  EXPECT_NE(text_of(folder_ / "report.html").find("</html>"), std::string::npos);
  EXPECT_EQ(saved_failures_in(folder_.string()).size(), 3u);
  for (const std::string& saved : saved_failures_in(folder_.string())) {
    EXPECT_NO_THROW(static_cast<void>(SavedFailure::read(saved))) << saved;
  }
}

TEST_F(RunFolders, CountEachSuiteOfJunitForItself) {
  const RunReport report = report_of(cases_, [&](size_t i) {
    return Result{.outcome = i == 1 ? Outcome::kCrash : i == 2 ? Outcome::kSkip : Outcome::kPass};
  });
  const std::string xml = junit_xml(report, summarize(header_, cases_, report, {}));
  EXPECT_NE(xml.find("<testsuite name=\"event\" tests=\"2\" failures=\"1\" skipped=\"0\""),
            std::string::npos)
      << xml;
  EXPECT_NE(xml.find("<testsuite name=\"stream\" tests=\"2\" failures=\"0\" skipped=\"1\""),
            std::string::npos);
  EXPECT_NE(xml.find("tests=\"4\" failures=\"1\" skipped=\"1\" time="), std::string::npos) << xml;
}

}  // namespace
}  // namespace bp::conformance
