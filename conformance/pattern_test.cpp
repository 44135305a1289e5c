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

TEST(Pattern, KnowsEachByteOfAClassAndOfASet) {
  const auto bytes_of = [](const char* expression) {
    const Pattern pattern(expression);
    std::string found;
    for (int byte = 0; byte < 256; ++byte) {
      const char c = static_cast<char>(byte);
      if (pattern.matches(std::string_view(&c, 1))) found += c;
    }
    return found;
  };
  EXPECT_EQ(bytes_of("\\d"), "0123456789");
  EXPECT_EQ(bytes_of("\\s"), "\t\n\v\f\r ");
  EXPECT_EQ(bytes_of("\\w").size(), 63u) << "letters, digits and _";
  for (const char* inverse : {"\\D", "\\S", "\\W", "[^\\d]"}) {
    EXPECT_NE(bytes_of(inverse).find('\xff'), std::string::npos) << inverse;
    EXPECT_NE(bytes_of(inverse).find('\0'), std::string::npos) << inverse;
  }
  EXPECT_EQ(bytes_of(".").size(), 254u) << "all but the two ends of lines";
  EXPECT_EQ(bytes_of("[^a]").size(), 255u) << "the ends of lines too";
  EXPECT_EQ(bytes_of("[]").size(), 0u);
  EXPECT_EQ(bytes_of("[^]").size(), 256u);
  EXPECT_EQ(bytes_of("[a-]"), "-a") << "a - at the end is itself";
  EXPECT_EQ(bytes_of("[-a]"), "-a");
  EXPECT_EQ(bytes_of("[+--]"), "+,-");
  EXPECT_EQ(bytes_of("[\\d-z]"), "-0123456789z") << "no range begins with a class";
  EXPECT_EQ(bytes_of("[\\]\\\\]"), "\\]");
  EXPECT_EQ(bytes_of("[\x80-\xff]").size(), 128u);
  EXPECT_EQ(bytes_of("\\t|\\n|\\."), "\t\n.");
}

TEST(Pattern, FindsTheEndsOfTheTextOnlyThere) {
  EXPECT_TRUE(Pattern("^$").matches(""));
  EXPECT_TRUE(Pattern("(^a|b)+").matches("ab"));
  EXPECT_FALSE(Pattern("(^a|b)+").matches("ba"));
  EXPECT_FALSE(Pattern("a$b").matches("ab"));
  EXPECT_TRUE(Pattern("a$()").matches("a"));
  EXPECT_TRUE(Pattern("(^)*(a|$)*($)+").matches("aa"));
}

TEST(Pattern, CountsRepetitionsExactly) {
  const auto lengths = [](const char* expression) {
    std::string found;
    for (size_t n = 0; n < 10; ++n) {
      if (Pattern(expression).matches(std::string(n, 'a'))) found += std::to_string(n);
    }
    return found;
  };
  EXPECT_EQ(lengths("a{0}"), "0");
  EXPECT_EQ(lengths("a{0,0}"), "0");
  EXPECT_EQ(lengths("a{0,2}"), "012");
  EXPECT_EQ(lengths("a{3,}"), "3456789");
  EXPECT_EQ(lengths("(aa){1,3}?"), "246");
  EXPECT_EQ(lengths("(a{2}|a{3}){2}"), "456");
  EXPECT_EQ(lengths("(a?){3}"), "0123");
  EXPECT_EQ(lengths("(|a)+"), "0123456789");
  EXPECT_EQ(lengths("(a{0}){3,}"), "0");
}

TEST(Pattern, RefusesWhatWouldBeReadInTwoWays) {
  for (const char* expression :
       {"a**",    "a+*",     "a???",  "a{2}{3}", "a{2",     "a{2,",        "a{2,3",
        "a{2;3}", "a{}",     "a{-1}", "{2}",     "|*",      "(*)",         "(?",
        "(?:",    "(?<a>b)", "a}",    "a]",      "[a-\\d]", "[[:alpha:]]", "[a",
        "[a-",    "[\\",     "\\b",   "\\u0041", "\\x41",   "\\0",         "a|)"}) {
    EXPECT_THROW(Pattern{expression}, PatternError) << expression;
  }
}

TEST(Pattern, TakesAnExpressionOfEachLimitAndNoMore) {
  std::string longest;
  while (longest.size() < kMaxPatternBytes) longest += "(?:)";
  EXPECT_TRUE(Pattern(longest).matches(""));
  EXPECT_THROW(Pattern(longest + "a"), PatternError);
  // One state is that of the end.
  const std::string most = "a{" + std::to_string(kMaxPatternStates - 1) + "}";
  EXPECT_TRUE(Pattern(most).matches(std::string(kMaxPatternStates - 1, 'a')));
  EXPECT_FALSE(Pattern(most).matches(std::string(kMaxPatternStates, 'a')));
  EXPECT_THROW(Pattern("a" + most), PatternError);
}

}  // namespace
}  // namespace bp::conformance
