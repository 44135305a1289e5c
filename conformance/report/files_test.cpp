#include "conformance/report/files.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "conformance/report/saved_failure.hpp"

namespace bp::conformance {
namespace {

namespace fs = std::filesystem;

class Files : public testing::Test {
 protected:
  Files() {
    std::string path = (fs::temp_directory_path() / "bp_files_XXXXXX").string();
    folder_ = mkdtemp(path.data());
  }
  ~Files() override { fs::remove_all(folder_); }

  fs::path folder_;
};

TEST_F(Files, HaveTheNameOfTheirCaseOrItsBeginningAndAHash) {
  EXPECT_EQ(file_name_of("op.add.f32.random.2x3-1_a"), "op.add.f32.random.2x3-1_a");
  const std::string ids[] = {std::string(300, 'x'),
                             std::string(301, 'x'),
                             std::string(181, 'x'),
                             "a/b",
                             "a_b",
                             "a\nb",
                             ".",
                             "..",
                             "",
                             ".a",
                             "_a",
                             "a~b",
                             "\xff"};
  std::vector<std::string> names;
  for (const std::string& id : ids) {
    names.push_back(file_name_of(id));
    EXPECT_LE(names.back().size(), 200u);
    EXPECT_EQ(names.back().find_first_of("/\n"), std::string::npos);
    EXPECT_NE(names.back()[0], '.');
  }
  std::ranges::sort(names);
  EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
}

TEST_F(Files, OfAFailureWithALongIdLieInAFolderThatHoldsTheWholeId) {
  Judged judged;
  judged.id = std::string(5000, 'x');
  judged.result.outcome = judged.attempt.result.outcome = Outcome::kFail;
  const RunHeader header{.folder = folder_.string()};
  write_saved_failure(header, nlohmann::json::object(), judged);
  const std::vector<std::string> found = saved_failures_in(folder_.string());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(SavedFailure::read(found.front()).id, judged.id);
}

TEST_F(Files, AreAllTriedAndWhatFailsIsNamed) {
  Outputs outputs;
  outputs.attempt([&] { write_file(folder_ / "none" / "a", "text"); });
  outputs.attempt([&] { write_file(folder_ / "b", "text"); });
  EXPECT_NE(outputs.problem().find((folder_ / "none" / "a").string() + ": "), std::string::npos);
  std::ifstream file(folder_ / "b");
  std::string text;
  file >> text;
  EXPECT_EQ(text, "text");
}

TEST_F(Files, OfAFolderAreWrittenByOneRun) {
  const std::string folder = folder_.string();
  {
    const ResultFolder held = make_result_folder(folder);
    EXPECT_THROW(static_cast<void>(make_result_folder(folder)), UsageError);
    EXPECT_THROW(FolderLock(folder, "--resume"), UsageError);
  }
  EXPECT_NO_THROW(static_cast<void>(make_result_folder(folder)));
}

TEST(Tap, EscapesWhatBeginsADirective) {
  Summary summary;
  Judged& judged = summary.judged.emplace_back();
  judged.id = "a # SKIP \\ b";
  judged.result = {.outcome = Outcome::kSkip, .message = "why # SKIP\nnot ok 7"};
  EXPECT_EQ(tap_text(summary),
            "TAP version 14\n1..1\nok 1 - a \\# SKIP \\\\ b # SKIP Skip: why \\# SKIP\n");
}

}  // namespace
}  // namespace bp::conformance
