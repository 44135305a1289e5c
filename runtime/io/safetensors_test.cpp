#include "backplane/runtime/safetensors.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace bp {
namespace {

class Safetensors : public testing::Test {
 protected:
  Safetensors() : guard_(Device("cpu")) {
    folder_ =
        std::filesystem::temp_directory_path() / ("safetensors_test." + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  ~Safetensors() override { std::filesystem::remove_all(folder_); }

  std::string path(const char* name = "weights.safetensors") const { return folder_ / name; }

  // Writes a file of `header` and `data_bytes` zeros behind it.
  std::string file(const std::string& header, size_t data_bytes, int64_t header_length = -1) const {
    std::ofstream out(path(), std::ios::binary | std::ios::trunc);
    const uint64_t length =
        header_length < 0 ? header.size() : static_cast<uint64_t>(header_length);
    out.write(reinterpret_cast<const char*>(&length), sizeof(length));
    out << header << std::string(data_bytes, '\0');
    return path();
  }

  // The names in the folder.
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      names.push_back(entry.path().filename());
    }
    return names;
  }

  // The message with which loading fails.
  static std::string failure(const std::string& path) {
    try {
      load_safetensors(path);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }

 private:
  DeviceGuard guard_;
  std::filesystem::path folder_;
};

TEST_F(Safetensors, GivesBackWhatWasSaved) {
  const Tensor a = from_host<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor b = from_host<int64_t>({-1, 1}, {2});
  save_safetensors(path(), {{"a", a.transpose(0, 1)}, {"b.c", b}, {"empty", zeros({0, 3}, BP_F64)}},
                   {{"epoch", "7"}});
  const LoadedTensors loaded = load_safetensors(path());
  EXPECT_EQ(loaded.metadata.at("epoch"), "7");
  ASSERT_EQ(loaded.tensors.size(), 3u);
  EXPECT_EQ(loaded.tensors.at("a").shape(), IntList({3, 2}));
  EXPECT_EQ(loaded.tensors.at("a").to_vector<float>(), (std::vector<float>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(loaded.tensors.at("b.c").to_vector<int64_t>(), (std::vector<int64_t>{-1, 1}));
  EXPECT_EQ(loaded.tensors.at("empty").shape(), IntList({0, 3}));
  EXPECT_EQ(files(), std::vector<std::string>{"weights.safetensors"});
}

TEST_F(Safetensors, SaysWhichFieldOfAMalformedFileIsWrong) {
  const auto entry = [](const char* dtype, const char* shape, const char* offsets) {
    return std::string(R"({"w": {"dtype": )") + dtype + R"(, "shape": )" + shape +
           R"(, "data_offsets": )" + offsets + "}}";
  };
  const auto expect = [&](const std::string& written, const char* part) {
    const std::string message = failure(written);
    EXPECT_NE(message.find(part), std::string::npos) << message << "\n  expected: " << part;
    EXPECT_EQ(message.find(path()), 0u) << "the message begins with the file";
  };
  expect(file(entry("\"F32\"", "[2]", "[0, 8]"), 4), "'w'.data_offsets is [0,8]");
  expect(file(entry("\"F31\"", "[2]", "[0, 8]"), 8), "'w'.dtype is \"F31\"; allowed: BOOL");
  expect(file(entry("\"F32\"", "[-2]", "[0, 8]"), 8), "'w'.shape is [-2]");
  expect(file(entry("\"F32\"", "[3]", "[0, 8]"), 8), "span 8 bytes");
  expect(file(entry("\"F32\"", "[2]", "[8, 0]"), 8), "'w'.data_offsets is [8,0]");
  expect(file(entry("\"F32\"", "[2]", "[0]"), 8), "'w'.data_offsets is [0]; allowed: [begin, end]");
  expect(file(entry("\"F32\"", "[2]", "[4, 12]"), 12), "'w'.data_offsets begin at 4");
  expect(file(entry("\"F32\"", "[2]", "[0, 8]"), 9), "the tensors end at byte 8 of 9");
  expect(file(entry("\"F64\"", "[4294967296, 4294967296]", "[0, 8]"), 8), "span 8 bytes");
  expect(file(R"({"w": {"dtype": "F32", "shape": [2]}})", 8), "'w' has no data_offsets");
  expect(file(R"({"w": 1})", 0), "'w' is not a JSON object");
  expect(file(R"({"w": {}, "w": {}})", 0), "names 'w' twice");
  expect(file("[1]", 0), "the header is not a JSON object");
  expect(file("{", 0), "the header is not JSON");
  expect(file("{}", 0, 1000), "the header's length is 1000");
  std::ofstream(path(), std::ios::binary | std::ios::trunc) << "abc";
  expect(path(), "the file has 3 bytes");
}

TEST_F(Safetensors, FollowsNoLinkThatSomebodyPlanted) {
  std::ofstream(path("victim")) << "precious";
  for (const char* name : {"weights.safetensors.partial", "weights.safetensors"}) {
    std::filesystem::create_symlink(path("victim"), path(name));
  }
  save_safetensors(path(), {{"w", from_host<float>({1, 2}, {2})}});
  std::ifstream victim(path("victim"));
  std::string content;
  std::getline(victim, content);
  EXPECT_EQ(content, "precious");
  EXPECT_FALSE(std::filesystem::is_symlink(path())) << "the link was replaced";
  EXPECT_EQ(load_safetensors(path()).tensors.size(), 1u);
}

TEST_F(Safetensors, LeavesTheOldFileAndNothingElseWhereAWriteFails) {
  save_safetensors(path(), {{"w", from_host<float>({1, 2}, {2})}});
  std::filesystem::create_directories(path("folder"));
  try {
    save_safetensors(path("folder"), {{"w", from_host<float>({1}, {1})}});
    FAIL();
  } catch (const Error& e) {
    const std::string words = e.what();
    EXPECT_NE(words.find(path("folder")), std::string::npos) << words;
    EXPECT_NE(words.find("Is a directory"), std::string::npos) << words;
  }
  EXPECT_EQ(files().size(), 2u) << "the folder and the old file";
  EXPECT_EQ(load_safetensors(path()).tensors.at("w").numel(), 2);
}

TEST_F(Safetensors, LeavesTheRightsToTheUmask) {
  const mode_t before = umask(027);
  save_safetensors(path(), {});
  umask(before);
  struct stat found {};
  ASSERT_EQ(stat(path().c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0640u);
}

TEST_F(Safetensors, RefusesAHeaderThatNestsWithoutEnd) {
  const std::string deep = R"({"w": {"dtype": )" + std::string(100'000, '[') +
                           std::string(100'000, ']') + R"(, "shape": [], "data_offsets": [0, 0]}})";
  EXPECT_NE(failure(file(deep, 0)).find("the JSON nests deeper than 64 levels"), std::string::npos);
}

TEST_F(Safetensors, SaysWhatIsNoRegularFile) {
  ASSERT_EQ(mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_NE(failure(path("fifo")).find("it is a FIFO, not a regular file"), std::string::npos);
}

TEST_F(Safetensors, RefusesANameThatIsNoUtf8) {
  try {
    save_safetensors(path(), {{"w\xff", from_host<float>({1}, {1})}});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("no UTF-8"), std::string::npos) << e.what();
  }
}

TEST_F(Safetensors, NamesAFileThatIsMissing) {
  EXPECT_NE(failure("/nonexistent/w.safetensors").find("/nonexistent/w.safetensors"),
            std::string::npos);
  try {
    save_safetensors("/nonexistent/w.safetensors", {});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("cannot be created: No such file or directory"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace bp
