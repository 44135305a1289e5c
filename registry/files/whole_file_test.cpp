// Tests files that exist as a whole or not at all, and reading files of other programs.
#include "registry/files/whole_file.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "registry/files/read_file.hpp"

namespace bp {
namespace {

namespace fs = std::filesystem;

class Files : public ::testing::Test {
 protected:
  Files() : folder(fs::temp_directory_path() / ("bp_whole_file_" + std::to_string(getpid()))) {
    fs::create_directories(folder);
  }
  ~Files() override { fs::remove_all(folder); }

  std::string path(const char* name) const { return folder / name; }
  static std::string content(const std::string& file) {
    std::ifstream stream(file);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }
  std::set<std::string> names() const {
    std::set<std::string> all;
    for (const auto& entry : fs::directory_iterator(folder)) all.insert(entry.path().filename());
    return all;
  }

  fs::path folder;
};

TEST_F(Files, AppearWholeUnderTheirName) {
  for (const bool is_durable : {true, false}) {
    WholeFile file(path("a"), is_durable);
    file.write("first ");
    EXPECT_EQ(names().count("a"), is_durable ? 0u : 1u);
    file.write(is_durable ? "durable" : "quick");
    EXPECT_EQ(file.commit(), "");
    EXPECT_EQ(content(path("a")), is_durable ? "first durable" : "first quick");
    EXPECT_EQ(names(), std::set<std::string>{"a"});
  }
}

TEST_F(Files, LeaveNothingWithoutACommit) {
  std::ofstream(path("a")) << "old";
  {
    WholeFile file(path("a"));
    file.write("new");
  }
  EXPECT_EQ(content(path("a")), "old");
  EXPECT_EQ(names(), std::set<std::string>{"a"});
}

TEST_F(Files, FollowNoLink) {
  std::ofstream(path("victim")) << "precious";
  fs::create_symlink(path("victim"), path("a"));
  WholeFile file(path("a"));
  file.write("new");
  EXPECT_EQ(file.commit(), "");
  EXPECT_EQ(content(path("victim")), "precious");
  EXPECT_FALSE(fs::is_symlink(path("a")));
}

TEST_F(Files, HaveTheRightsThatTheUmaskLeaves) {
  const mode_t before = umask(027);
  WholeFile file(path("a"));
  EXPECT_EQ(file.commit(), "");
  umask(before);
  struct stat found {};
  ASSERT_EQ(stat(path("a").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0640u);
}

TEST_F(Files, MayHaveTheLongestName) {
  const std::string longest(255, 'a');
  WholeFile file(path(longest.c_str()));
  EXPECT_EQ(file.commit(), "");
  EXPECT_EQ(names(), std::set<std::string>{longest});
}

TEST_F(Files, SayWithThePathWhyTheyCannotBeWritten) {
  WholeFile nowhere(path("no/such"));
  nowhere.write("lost");
  EXPECT_EQ(
      nowhere.commit(),
      path("no/such") +
          ": cannot be written: a file beside it cannot be created: No such file or directory");
  fs::create_directories(path("folder"));
  WholeFile file(path("folder"));
  EXPECT_EQ(file.commit(),
            path("folder") +
                ": the file that was written beside it cannot be renamed to it: Is a directory");
  EXPECT_EQ(names(), std::set<std::string>{"folder"});
}

TEST_F(Files, KeepTheOldContentWhereTheDiskIsFull) {
  std::ofstream(path("a")) << "old";
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{1000, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  WholeFile file(path("a"));
  file.write(std::string(2000, 'x'));
  const std::string problem = file.commit();
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(problem, path("a") + ": cannot be written: File too large");
  EXPECT_EQ(content(path("a")), "old");
  EXPECT_EQ(names(), std::set<std::string>{"a"});
}

TEST_F(Files, OfOthersAreReadUpToASize) {
  std::ofstream(path("a")) << "12345";
  std::string text;
  EXPECT_EQ(read_file(path("a"), 5, text), "");
  EXPECT_EQ(text, "12345");
  EXPECT_EQ(read_file(path("a"), 4, text), "it has 5 bytes; allowed are at most 4");
  EXPECT_EQ(read_file(path("b"), 4, text), "No such file or directory");
}

TEST_F(Files, OfOthersAreRegular) {
  ASSERT_EQ(mkfifo(path("fifo").c_str(), 0600), 0);
  std::string text;
  EXPECT_EQ(read_file(path("fifo"), 9, text), "it is a FIFO, not a regular file");
  EXPECT_EQ(read_file(folder, 9, text), "it is a folder, not a regular file");
  EXPECT_EQ(read_file("/dev/zero", 9, text), "it is a device, not a regular file");
}

}  // namespace
}  // namespace bp
