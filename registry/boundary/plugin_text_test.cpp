#include "registry/boundary/plugin_text.hpp"

#include <gtest/gtest.h>

namespace bp {
namespace {

std::string line(std::string_view text) { return clean_text(text, LineBreaks::kEscape); }

TEST(PluginText, LeavesPlainTextAsItIs) {
  EXPECT_EQ(line(""), "");
  EXPECT_EQ(line("add.f32: C:\\new is no folder (100 %)"), "add.f32: C:\\new is no folder (100 %)");
  EXPECT_EQ(line("Ger\xC3\xA4t \xE2\x82\xAC \xF0\x9F\x98\x80"),
            "Ger\xC3\xA4t \xE2\x82\xAC \xF0\x9F\x98\x80");
}

TEST(PluginText, ShowsControlCharactersAsEscapes) {
  EXPECT_EQ(line("\x1b[2J\x07\x7f\b"), "\\x1b[2J\\x07\\x7f\\x08");
  EXPECT_EQ(line("a\tb\rc"), "a\\tb\\rc");
  EXPECT_EQ(line(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(line("\xC2\x9B"
                 "2J"),
            "\\x9b2J")
      << "U+009B begins a sequence as ESC [ does";
}

TEST(PluginText, LetsNoPluginForgeALineOfTheHost) {
  EXPECT_EQ(line("fine\nverdict: PERFECT"), "fine\\nverdict: PERFECT");
  EXPECT_EQ(clean_text("log:\nverdict: PERFECT\n", LineBreaks::kIndent),
            "log:\n    verdict: PERFECT\n    ");
  EXPECT_EQ(clean_text("a\nb\x1b", LineBreaks::kKeep), "a\nb\\x1b");
  EXPECT_EQ(line("a\xE2\x80\xA8"
                 "b\xE2\x80\xAE"
                 "c\xE2\x81\xA6"),
            "a\\u2028b\\u202ec\\u2066");
}

TEST(PluginText, ReplacesWhatIsNoUtf8) {
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(line("a\xFF"
                 "b"),
            "a" + bad + "b");
  EXPECT_EQ(line("\xC0\x80"), bad + bad) << "an overlong zero";
  EXPECT_EQ(line("\xED\xA0\x80"), bad + bad + bad) << "a surrogate";
  EXPECT_EQ(line("\xF4\x90\x80\x80"), bad + bad + bad + bad) << "behind the last code point";
  EXPECT_EQ(line("\xE2\x82"), bad + bad) << "cut in the middle";
}

TEST(PluginText, CutsWhatHasNoEnd) {
  const std::string long_text(kMaxPluginText + 1, 'a');
  EXPECT_EQ(line(long_text), std::string(kMaxPluginText, 'a') + "... (cut after 16384 bytes)");
  EXPECT_EQ(line(long_text.substr(1)), long_text.substr(1));
  const char no_end[4] = {'a', 'b', 'c', 'd'};
  EXPECT_EQ(clean_text(static_cast<const char*>(no_end), LineBreaks::kEscape, 3),
            "abc... (cut after 3 bytes)");
  EXPECT_EQ(clean_text("a\xE2\x82\xAC", LineBreaks::kEscape, 3), "a... (cut after 3 bytes)");
  EXPECT_EQ(clean_text("\xE2\x82\xAC"
                       "a",
                       LineBreaks::kEscape, 3),
            "\xE2\x82\xAC... (cut after 3 bytes)");
}

TEST(PluginText, TakesNullForNoText) {
  EXPECT_EQ(clean_text(nullptr, LineBreaks::kEscape), "");
  EXPECT_EQ(clean_name(nullptr), "");
}

TEST(PluginText, ChangesNothingTheSecondTime) {
  const std::string once = line("\x1b[0m\xFF\\x1b\xC2\x85\n");
  EXPECT_EQ(line(once), once);
}

}  // namespace
}  // namespace bp
