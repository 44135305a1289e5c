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
  EXPECT_EQ(refusal("a("), "at byte 3 the expression has a ( without its )");
  EXPECT_EQ(refusal("a)"), "at byte 2 the expression has a ) without its (");
  EXPECT_EQ(refusal("*"), "at byte 1 the expression has a repetition of nothing");
  EXPECT_EQ(refusal("[a"), "at byte 3 the expression has a [ without its ]");
  EXPECT_EQ(refusal("[b-a]"),
            "at byte 5 the expression has a range whose end is before its beginning");
  EXPECT_EQ(refusal("(a)\\1"), "at byte 5 the expression has the escape \\1, which is not known");
  EXPECT_EQ(refusal("(?=a)"),
            "at byte 3 the expression has a group of the kind (?, of which only (?: is known");
  EXPECT_EQ(refusal("a{2,1}"),
            "at byte 7 the expression has a repetition whose end is less than its beginning");
  EXPECT_EQ(refusal("a{,2}"),
            "at byte 3 the expression has a { without a number; write \\{ for the character");
  EXPECT_EQ(refusal("a\\"), "at byte 3 the expression has a \\ at its end");
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
