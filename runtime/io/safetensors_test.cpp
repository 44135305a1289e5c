#include "backplane/runtime/safetensors.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "backplane/runtime/ops.hpp"

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

  // Writes a file that has `header` and `data_bytes` zeros.
  std::string file(const std::string& header, size_t data_bytes, int64_t header_length = -1) const {
    std::ofstream out(path(), std::ios::binary | std::ios::trunc);
    const uint64_t length =
        header_length < 0 ? header.size() : static_cast<uint64_t>(header_length);
    out.write(reinterpret_cast<const char*>(&length), sizeof(length));
    out << header << std::string(data_bytes, '\0');
    return path();
  }

  // Returns the names in the folder.
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      names.push_back(entry.path().filename());
    }
    return names;
  }

  // Returns the message with which loading fails.
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

TEST_F(Safetensors, HoldsPackedElements) {
  const uint8_t codes[] = {0x21, 0x43, 0x65};
  const Tensor f4 = from_host(codes, {3, 2}, BP_F4E2M1, Device("cpu"));
  const Tensor f6 = from_host(codes, {4}, BP_F6E3M2, Device("cpu"));
  save_safetensors(path(), {{"f4", f4}, {"f6", f6}});
  const LoadedTensors loaded = load_safetensors(path());
  for (const char* name : {"f4", "f6"}) {
    const Tensor& read = loaded.tensors.at(name);
    std::vector<uint8_t> bytes(3);
    read.copy_to_host(bytes.data(), bytes.size());
    EXPECT_EQ(bytes, std::vector<uint8_t>(codes, codes + 3)) << name;
  }
  EXPECT_EQ(loaded.tensors.at("f4").shape(), IntList({3, 2}));
  EXPECT_EQ(loaded.tensors.at("f6").dtype(), bp_dtype{BP_F6E3M2});
  EXPECT_THROW(save_safetensors(path(), {{"odd", from_host(codes, {3}, BP_F4E2M1, Device("cpu"))}}),
               Error);
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
  expect(file(entry("\"F64\"", "[4294967296, 4294967296]", "[0, 8]"), 8),
         "'w'.shape: a tensor of the shape (4294967296, 4294967296) has too many elements");
  expect(file(entry("\"F4\"", "[3]", "[0, 2]"), 2),
         "3 elements of 4 bits, which are not whole bytes");
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

// ---- Files that something happened to ----------------------------------------------------------

std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

TEST_F(Safetensors, RefusesAFileThatIsCut) {
  save_safetensors(path(), {{"a", from_host<float>({1, 2}, {2})}, {"b", ones({3}, BP_BOOL)}});
  const std::string whole = read_all(path());
  for (size_t size = 0; size < whole.size(); size += size < 12 ? 1 : 7) {
    std::ofstream(path("cut"), std::ios::binary | std::ios::trunc) << whole.substr(0, size);
    EXPECT_EQ(failure(path("cut")).find(path("cut") + ": "), 0u) << size << " bytes";
  }
  std::ofstream(path("cut"), std::ios::binary | std::ios::trunc) << whole << '\0';
  EXPECT_NE(failure(path("cut")).find("bytes of elements"), std::string::npos);
}

TEST_F(Safetensors, LoadsOrRefusesAFileWithAnyWrongByteInItsHeader) {
  save_safetensors(path(), {{"a", from_host<float>({1, 2}, {2})}});
  const std::string whole = read_all(path());
  size_t refused = 0;
  for (size_t place = 0; place < whole.size() - 8; ++place) {
    std::string changed = whole;
    changed[place] = place % 2 == 0 ? '\xff' : '9';
    std::ofstream(path("wrong"), std::ios::binary | std::ios::trunc) << changed;
    const std::string message = failure(path("wrong"));
    if (message.empty()) continue;
    ++refused;
    EXPECT_EQ(message.find(path("wrong") + ": "), 0u) << message;
  }
  EXPECT_GT(refused, whole.size() / 2);
}

TEST_F(Safetensors, RefusesHeadersOfEveryImpossibleLength) {
  for (const int64_t length : {int64_t{INT64_MAX}, int64_t{1} << 32, int64_t{9}}) {
    EXPECT_NE(failure(file("{}", 0, length)).find("the header's length is"), std::string::npos);
  }
  EXPECT_EQ(failure(file("{}", 0)), "");
  EXPECT_NE(failure(file("", 0)).find("the header is not JSON"), std::string::npos);
}

TEST_F(Safetensors, RefusesShapesOfNoElementsThatNoTensorCanHave) {
  const std::string message = failure(file(
      R"({"w": {"dtype": "F32", "shape": [0, 4294967296, 4294967296], "data_offsets": [0, 0]}})",
      0));
  EXPECT_EQ(message.find(path() + ": 'w'.shape: a tensor of the shape (0, 4294967296, "), 0u)
      << message;
}

TEST_F(Safetensors, RefusesElementsThatTwoTensorsShare) {
  EXPECT_NE(failure(file(R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]},)"
                         R"("b": {"dtype": "U8", "shape": [4], "data_offsets": [2, 6]}})",
                         6))
                .find("'b'.data_offsets begin at 2, but the tensor before it ends at 4"),
            std::string::npos);
}

TEST_F(Safetensors, RefusesMetadataThatIsNoText) {
  EXPECT_NE(failure(file(R"({"__metadata__": {"epoch": 7}})", 0))
                .find("__metadata__.epoch is not a string"),
            std::string::npos);
  EXPECT_NE(failure(file(R"({"__metadata__": []})", 0)).find("__metadata__ is not a JSON object"),
            std::string::npos);
}

// ---- What is saved -----------------------------------------------------------------------------

TEST_F(Safetensors, KeepsEveryDtypeBitForBit) {
  TensorMap saved;
  for (const bp_dtype dtype :
       {BP_BOOL, BP_I8, BP_U8, BP_I16, BP_I32, BP_I64, BP_F16, BP_BF16, BP_F32, BP_F64}) {
    saved[dtype_text(dtype)] = (arange(6, BP_F32).reshape({2, 3}) / 2).to(dtype).transpose();
  }
  save_safetensors(path(), saved);
  const TensorMap loaded = load_safetensors(path()).tensors;
  ASSERT_EQ(loaded.size(), saved.size());
  for (const auto& [name, tensor] : saved) {
    EXPECT_EQ(loaded.at(name).dtype(), tensor.dtype());
    EXPECT_EQ(loaded.at(name).shape(), IntList({3, 2}));
    EXPECT_EQ(loaded.at(name).to(BP_F64).to_vector<double>(), tensor.to(BP_F64).to_vector<double>())
        << name;
  }
}

TEST_F(Safetensors, KeepsNamesAndMetadataOfAnyText) {
  const std::string name = "layer.0/\"w\\\n\t\u00e4\u2603";
  save_safetensors(path(), {{name, scalar(3, BP_F32)}, {"", scalar(4, BP_F32)}}, {{name, ""}});
  const LoadedTensors loaded = load_safetensors(path());
  EXPECT_EQ(loaded.tensors.at(name).item<float>(), 3);
  EXPECT_EQ(loaded.tensors.at("").item<float>(), 4);
  EXPECT_EQ(loaded.metadata.at(name), "");
}

TEST_F(Safetensors, NamesTheTensorThatCannotBeSavedAndKeepsTheFile) {
  save_safetensors(path(), {{"w", scalar(1, BP_F32)}});
  const auto refusal = [&](const TensorMap& tensors) {
    try {
      save_safetensors(path(), tensors);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal({{"w", scalar(2, BP_F32)}, {"x", Tensor()}}),
            "save_safetensors: 'x' is an empty tensor");
  EXPECT_EQ(refusal({{"__metadata__", scalar(2, BP_F32)}}),
            "save_safetensors: no tensor can be named __metadata__");
  EXPECT_EQ(load_safetensors(path()).tensors.at("w").item<float>(), 1);
  EXPECT_EQ(files(), std::vector<std::string>{"weights.safetensors"});
}

TEST_F(Safetensors, WritesAFileThatIsReadMeanwhileAsAWhole) {
  save_safetensors(path(), {{"w", full({1000}, 0, BP_F32)}});
  std::atomic<bool> is_over = false;
  std::thread writer([&] {
    const DeviceGuard here(Device("cpu"));
    for (int i = 1; i <= 4; ++i) save_safetensors(path(), {{"w", full({1000}, i, BP_F32)}});
    is_over = true;
  });
  while (!is_over) {
    const std::vector<float> seen = load_safetensors(path()).tensors.at("w").to_vector<float>();
    EXPECT_EQ(seen, std::vector<float>(1000, seen[0]));
  }
  writer.join();
  EXPECT_EQ(load_safetensors(path()).tensors.at("w").to_vector<float>()[999], 4);
  EXPECT_EQ(files().size(), 1u);
}

}  // namespace
}  // namespace bp
