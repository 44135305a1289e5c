#include "registry/files/json_depth.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace bp {
namespace {

std::string nested(size_t depth, char open, char close) {
  return std::string(depth, open) + std::string(depth, close);
}

TEST(JsonDepth, AllowsAsManyLevelsAsItSays) {
  EXPECT_EQ(json_depth_defect(nested(kMaxJsonDepth, '[', ']')), "");
  const std::string defect = json_depth_defect(nested(kMaxJsonDepth + 1, '[', ']'));
  EXPECT_EQ(defect, "the JSON nests deeper than 64 levels at byte 64; write it with fewer levels");
  EXPECT_EQ(json_depth_defect("[[1], [2], {\"a\": [3]}]", 3), "");
  EXPECT_NE(json_depth_defect("[[1], [2], {\"a\": [3]}]", 2), "");
}

TEST(JsonDepth, CountsObjectsAsWell) {
  std::string text;
  for (size_t i = 0; i < 100'000; ++i) text += "{\"a\":[";
  EXPECT_NE(json_depth_defect(text), "");
}

TEST(JsonDepth, PassesOverWhatStandsInStrings) {
  const std::string text = "{\"a\": \"" + std::string(1000, '[') + "\\\"[[[[\\\\\", \"b\": [1]}";
  ASSERT_FALSE(nlohmann::json::parse(text, nullptr, false).is_discarded());
  EXPECT_EQ(json_depth_defect(text, 2), "");
  EXPECT_NE(json_depth_defect(text, 1), "");
}

TEST(JsonDepth, LeavesWhatIsNoJsonToTheParser) {
  EXPECT_EQ(json_depth_defect(""), "");
  EXPECT_EQ(json_depth_defect("]]]}}\"\\"), "");
  EXPECT_EQ(json_depth_defect(std::string("\"\0[[[", 5), 1), "");
}

}  // namespace
}  // namespace bp
