#include "registry/boundary/number_text.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "registry/tests/comma_locale.hpp"

namespace bp {
namespace {

std::string printed(const char* pattern, int digits, double value) {
  char text[512];
  std::snprintf(text, sizeof(text), pattern, digits, value);
  return text;
}

TEST(NumberText, IsThatOfPrintfInTheLocaleC) {
  constexpr unsigned kSeed = 0x5eed;
  std::mt19937_64 random(kSeed);
  std::vector<double> values = {0,
                                -0.0,
                                1,
                                1.5,
                                0.1,
                                1e22,
                                123456.5,
                                5e-324,
                                std::numeric_limits<double>::infinity(),
                                -std::numeric_limits<double>::infinity(),
                                std::numeric_limits<double>::max()};
  std::uniform_real_distribution<double> exponents(-300, 300);
  for (int i = 0; i < 1000; ++i) values.push_back(std::pow(10, exponents(random)));
  for (const double value : values) {
    for (const int digits : {0, 1, 3, 9, 17}) {
      SCOPED_TRACE("seed " + std::to_string(kSeed));
      EXPECT_EQ(fixed_text(value, digits), printed("%.*f", digits, value));
      EXPECT_EQ(scientific_text(value, digits), printed("%.*e", digits, value));
      EXPECT_EQ(short_text(value, digits), printed("%.*g", digits, value));
    }
    EXPECT_EQ(parse_double(short_text(value, 17)), value);
  }
  EXPECT_EQ(short_text(NAN), "nan");
}

TEST(NumberText, IsTheSameInALocaleWithADecimalComma) {
  const CommaLocale locale;
  if (!locale.is_set()) GTEST_SKIP() << CommaLocale::kNone;
  ASSERT_EQ(printed("%.*f", 1, 1.5), "1,5") << "the locale has a comma";
  EXPECT_EQ(fixed_text(1234567.5, 3), "1234567.500");
  EXPECT_EQ(scientific_text(1.5, 1), "1.5e+00");
  EXPECT_EQ(short_text(1.5), "1.5");
  EXPECT_EQ(parse_double("1.5"), 1.5);
  EXPECT_EQ(parse_double("1,5"), std::nullopt);
}

TEST(NumberText, IsReadAsAWholeOrNotAtAll) {
  EXPECT_EQ(parse_double("+2e3"), 2000);
  EXPECT_EQ(parse_double("-0.25"), -0.25);
  for (const char* text : {"", "+", "-", "+-1", "1.5x", " 1", "1 ", "0x10", "1e999", "--1"}) {
    EXPECT_EQ(parse_double(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace bp
