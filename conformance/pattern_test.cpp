#include "conformance/pattern.hpp"

#include <gtest/gtest.h>

#include <regex>

namespace bp::conformance {
namespace {

constexpr const char* kIds[] = {"",
                                "op.add.f32.random.2x3.dense",
                                "op.add.bf16.edges.2x3.dense",
                                "op.matmul.f32.random.m4k4n4.dense",
                                "stream.new_stream_is_idle",
                                "aaa",
                                "ab",
                                "a-b",
                                "a.b"};

TEST(Pattern, MatchesTheWholeIdAsECMAScriptDoes) {
  for (const char* expression : {"",
                                 "a",
                                 ".*",
                                 "op\\..*",
                                 "op\\.(add|matmul)\\.f32\\..*",
                                 "[^.]+\\.[a-z_]+",
                                 "a+",
                                 "a{2,3}",
                                 "a{3}",
                                 "a{1,}",
                                 "a?b",
                                 "^ab$",
                                 "(a|b)*",
                                 "(?:a|ab)(?:b)?",
                                 "\\w+",
                                 "[\\w.]+",
                                 "[a-c]\\.b",
                                 "[a-]*b",
                                 "op\\.add\\.b?f(16|32)\\..*",
                                 "(a*)*",
                                 "a*?b",
                                 "x||ab",
                                 ".*\\d+x\\d+.*",
                                 "a$|b"}) {
    const Pattern pattern(expression);
    const std::regex oracle(expression);
    for (const char* id : kIds) {
      EXPECT_EQ(pattern.matches(id), std::regex_match(id, oracle)) << expression << " of " << id;
    }
  }
}

TEST(Pattern, TakesTimeThatGrowsWithTheIdAlone) {
  EXPECT_FALSE(Pattern("(a*)*(a*)*(a*)*b").matches(std::string(10000, 'a')));
  EXPECT_TRUE(Pattern("(a|a)*").matches(std::string(100000, 'a')));
}

TEST(Pattern, RefusesWhatItDoesNotKnowAndSaysWhere) {
  const auto refusal = [](const std::string& expression) -> std::string {
    try {
      Pattern pattern(expression);
    } catch (const PatternError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(refusal("a("), "has a ( without its ) at byte 3");
  EXPECT_EQ(refusal("a)"), "has a ) without its ( at byte 2");
  EXPECT_EQ(refusal("*"), "has a repetition of nothing at byte 1");
  EXPECT_EQ(refusal("[a"), "has a [ without its ] at byte 3");
  EXPECT_EQ(refusal("[b-a]"), "has a range whose end is before its beginning at byte 5");
  EXPECT_EQ(refusal("(a)\\1"), "has the escape \\1, which is not known at byte 5");
  EXPECT_EQ(refusal("(?=a)"), "has a group of the kind (?, of which only (?: is known at byte 3");
  EXPECT_EQ(refusal("a{2,1}"), "has a repetition whose end is less than its beginning at byte 7");
  EXPECT_EQ(refusal("a{,2}"), "has a { without a number; write \\{ for the character at byte 3");
  EXPECT_EQ(refusal("a\\"), "has a \\ at its end at byte 3");
}

TEST(Pattern, BoundsItsLengthItsDepthAndItsSize) {
  EXPECT_THROW(Pattern(std::string(100000, '(')), PatternError);
  EXPECT_THROW(Pattern(std::string(kMaxPatternDepth + 1, '(') + std::string(51, ')')),
               PatternError);
  EXPECT_NO_THROW(Pattern(std::string(kMaxPatternDepth, '(') + std::string(50, ')')));
  EXPECT_THROW(Pattern("((a{100}){100}){100}"), PatternError);
  EXPECT_THROW(Pattern("(((){4000}){4000}){4000}"), PatternError);
  EXPECT_THROW(Pattern("a{99999999999999999999}"), PatternError);
}

}  // namespace
}  // namespace bp::conformance
