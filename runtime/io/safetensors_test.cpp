#include "backplane/runtime/safetensors.hpp"

#include <gtest/gtest.h>
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
  EXPECT_FALSE(std::filesystem::exists(path() + ".partial"));
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

TEST_F(Safetensors, NamesAFileThatIsMissing) {
  EXPECT_NE(failure("/nonexistent/w.safetensors").find("/nonexistent/w.safetensors"),
            std::string::npos);
  try {
    save_safetensors("/nonexistent/w.safetensors", {});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("cannot be written"), std::string::npos);
  }
}

}  // namespace
}  // namespace bp
