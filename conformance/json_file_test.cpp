#include "conformance/json_file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "conformance/usage_error.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;

std::string refusal_of(const std::function<void()>& read) {
  try {
    read();
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

std::string parse_refusal(const std::string& text, size_t first_line = 1) {
  return refusal_of([&] { static_cast<void>(parse_json(text, "x.json", first_line)); });
}

TEST(JsonFile, NamesTheLineAndTheByteOfWhatIsNoJson) {
  EXPECT_TRUE(parse_refusal("{\n \"a\": 1,\n \"b\": }")
                  .starts_with("x.json:3: the text is not valid JSON from byte 7"));
  EXPECT_TRUE(parse_refusal("{\"a\": 1", 7)
                  .starts_with("x.json:7: the text is not valid JSON from byte 8 of this line on, "
                               "where it ends too early"));
  EXPECT_TRUE(parse_refusal("[1e999]").starts_with("x.json:1: has a number that fits no double"));
  EXPECT_TRUE(parse_refusal("").starts_with("x.json:1: the text is not valid JSON"));
}

TEST(JsonFile, WritesBytesThatAreNoUtf8AsReplacements) {
  EXPECT_EQ(json_text({{"a\xff", "b\xc3"}}), "{\"a\xEF\xBF\xBD\":\"b\xEF\xBF\xBD\"}");
  EXPECT_EQ(json_text(json::array({1}), 1), "[\n 1\n]");
}

TEST(JsonFile, CarriesAnyBytesAsText) {
  std::string every;
  for (int i = 0; i < 256; ++i) every += static_cast<char>(i);
  const std::string reserved = "\xF4\x8F\xBD\x81";  // U+10FF41, which stands for a byte.
  for (const std::string& bytes : {every, reserved, "\xF4\x8F" + reserved, std::string("a/\xC3")}) {
    const std::string text = text_of_bytes(bytes);
    EXPECT_EQ(json::parse(json_text(text)).get<std::string>(), text) << "no byte was replaced";
    EXPECT_EQ(bytes_of_text(text), bytes);
  }
  for (const char* plain : {"", "/lib/x.so", "/lib/\xC3\xA4.so"}) {
    EXPECT_EQ(text_of_bytes(plain), plain);
    EXPECT_EQ(bytes_of_text(plain), plain);
  }
}

TEST(JsonFile, RefusesWhatNestsTooDeep) {
  EXPECT_NE(parse_refusal(std::string(100000, '[')).find("nests deeper"), std::string::npos);
  EXPECT_NE(parse_refusal(std::string(100000, '[') + std::string(100000, ']')).find("nests deeper"),
            std::string::npos);
}

TEST(JsonFile, ReadsRegularFilesAlone) {
  std::string folder = (std::filesystem::temp_directory_path() / "bp_json_XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string file = folder + "/file", pipe = folder + "/pipe";
  std::ofstream(file).close();
  EXPECT_EQ(read_regular_file(file), "");
  std::ofstream(file) << "text";
  EXPECT_EQ(read_regular_file(file), "text");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const auto refusal = [](const std::string& path) {
    return refusal_of([&] { static_cast<void>(read_regular_file(path)); });
  };
  EXPECT_EQ(refusal(pipe), pipe + ": cannot be read: it is a FIFO, not a regular file");
  EXPECT_EQ(refusal(folder), folder + ": cannot be read: it is a folder, not a regular file");
  EXPECT_EQ(refusal(folder + "/none"), folder + "/none: cannot be read: No such file or directory");
  std::filesystem::remove_all(folder);
}

TEST(JsonObject, NamesTheMemberWhatItIsAndWhatIsNeeded) {
  const json value = json::parse(R"({"text":7,"number":"x","huge":1e300,"count":-1,"flag":0,
                                     "list":{},"texts":["a",1],"object":[]})");
  const JsonObject object(value, "x.json:3");
  const auto expect = [&](const std::function<void()>& read, const std::string& words) {
    const std::string text = refusal_of(read);
    EXPECT_TRUE(text.starts_with("x.json:3: " + words)) << text;
  };
  expect([&] { static_cast<void>(object.text("text")); },
         "\"text\" is the number 7; a text is needed; ");
  expect([&] { static_cast<void>(object.text("none")); }, "there is no \"none\"; ");
  expect([&] { static_cast<void>(object.number("number", 0, 9)); },
         "\"number\" is a text; a number from 0 to 9 is needed; ");
  expect([&] { static_cast<void>(object.number("huge", 0, 9)); },
         "\"huge\" is the number 1e+300; a number from 0 to 9 is needed; ");
  expect([&] { static_cast<void>(object.count("huge", 9)); },
         "\"huge\" is the number 1e+300; an integer from 0 to 9 is needed; ");
  expect([&] { static_cast<void>(object.count("count", 9)); },
         "\"count\" is the number -1; an integer from 0 to 9 is needed; ");
  expect([&] { static_cast<void>(object.flag("flag", false)); },
         "\"flag\" is the number 0; true or false is needed; ");
  expect([&] { static_cast<void>(object.list("list")); },
         "\"list\" is an object; a list is needed; ");
  expect([&] { static_cast<void>(object.texts("texts")); },
         "\"texts\" is a list with the number 1; a list of texts is needed; ");
  expect([&] { static_cast<void>(object.object("object")); },
         "\"object\" is a list of 0; an object is needed; ");
  EXPECT_EQ(object.text("none", "usual"), "usual");
  EXPECT_EQ(object.count("none", 9, 4), 4u);
  EXPECT_EQ(refusal_of([] { JsonObject(json::array(), "y"); }).find("y: not a JSON object, but "),
            0u);
}

}  // namespace
}  // namespace bp::conformance
