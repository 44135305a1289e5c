// Growth is found where a figure rises through all of a run, and nowhere else.
#include "conformance/report/soak.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "conformance/usage_error.hpp"

namespace bp::conformance {
namespace {

constexpr uint64_t kMiB = 1 << 20;

Soak soak_of(size_t count, const std::function<void(size_t, SoakSample&)>& change) {
  Soak soak;
  for (size_t i = 0; i < count; ++i) {
    SoakSample sample{.seconds = static_cast<double>(i),
                      .resident_bytes = 100 * kMiB,
                      .threads = 4,
                      .descriptors = 12,
                      .round_seconds = 1,
                      .device_bytes = 200 * kMiB};
    change(i, sample);
    soak.add(sample);
  }
  return soak;
}

std::string findings_of(const Soak& soak) {
  std::string text;
  for (const std::string& finding : soak.findings()) text += finding + "\n";
  return text;
}

TEST(Soaks, FindEachFigureThatGrows) {
  const auto grows = [](auto change) { return findings_of(soak_of(100, change)); };
  EXPECT_NE(grows([](size_t i, SoakSample& s) {
              s.resident_bytes += i * kMiB;
            }).find("memory of the process grow from 125 MiB"),
            std::string::npos);
  EXPECT_NE(grows([](size_t i, SoakSample& s) {
              *s.device_bytes += i * kMiB;
            }).find("memory in use on the device grow from 225 MiB"),
            std::string::npos);
  EXPECT_NE(grows([](size_t i, SoakSample& s) { s.threads += i / 10; }).find("threads grow"),
            std::string::npos);
  EXPECT_NE(grows([](size_t i, SoakSample& s) { s.descriptors += i; }).find("descriptors grow"),
            std::string::npos);
  EXPECT_NE(grows([](size_t i, SoakSample& s) {
              s.round_seconds += 0.02 * static_cast<double>(i);
            }).find("the fastest round takes"),
            std::string::npos);
}

TEST(Soaks, TakeAWarmUpAndNoiseForNoGrowth) {
  EXPECT_EQ(findings_of(soak_of(100, [](size_t, SoakSample&) {})), "");
  EXPECT_EQ(findings_of(soak_of(100,
                                [](size_t i, SoakSample& s) {
                                  s.resident_bytes += std::min<size_t>(i, 24) * 10 * kMiB;
                                  s.threads += i > 5 ? 8 : 0;
                                })),
            "")
      << "a warm-up";
  EXPECT_EQ(findings_of(soak_of(100,
                                [](size_t i, SoakSample& s) {
                                  s.resident_bytes += i % 7 * 20 * kMiB;
                                  s.descriptors += i % 3;
                                  s.round_seconds += i % 5 == 0 ? 9 : 0;
                                })),
            "")
      << "noise";
}

// A lost device tells nothing, so a run with such a sample has no growth of its memory.
TEST(Soaks, AskNoDeviceThatDoesNotTellItsMemory) {
  const Soak soak = soak_of(100, [](size_t i, SoakSample& s) {
    s.device_bytes = i == 50 ? std::nullopt : std::optional(i * kMiB);
  });
  EXPECT_EQ(findings_of(soak), "");
  EXPECT_NE(soak.text().find("device memory  not told"), std::string::npos);
  EXPECT_FALSE(soak.json().at(50).contains("device_bytes"));
  EXPECT_EQ(soak.json().at(51).at("device_bytes"), 51 * kMiB);
}

TEST(Soaks, ShowNothingByFewSamples) {
  const auto leak = [](size_t i, SoakSample& s) { s.resident_bytes += i * 100 * kMiB; };
  EXPECT_FALSE(soak_of(15, leak).is_enough());
  EXPECT_EQ(findings_of(soak_of(15, leak)), "");
  EXPECT_NE(findings_of(soak_of(16, leak)), "");
}

TEST(Soaks, KeepAFewSamplesOfAnyLength) {
  const Soak soak = soak_of(100000, [](size_t i, SoakSample& s) { s.resident_bytes += i << 12; });
  EXPECT_LE(soak.samples().size(), 4096u);
  EXPECT_GE(soak.samples().size(), 2000u);
  EXPECT_EQ(soak.samples().front().seconds, 0);
  EXPECT_GT(soak.samples().back().seconds, 99900);
  EXPECT_NE(findings_of(soak), "");
}

TEST(Soaks, LookAtAProcessAndAtATemperature) {
  const std::optional<SoakSample> here = look_at_process(getpid());
  ASSERT_TRUE(here);
  EXPECT_GT(here->resident_bytes, kMiB);
  EXPECT_GE(here->threads, 1u);
  EXPECT_GE(here->descriptors, 3u);
  EXPECT_FALSE(look_at_process(-1));
  const auto file =
      std::filesystem::temp_directory_path() / ("bp_degrees_" + std::to_string(getpid()));
  std::ofstream(file) << "42500\n";
  EXPECT_EQ(read_degrees(file), 42.5);
  std::ofstream(file) << "warm\n";
  EXPECT_THROW(read_degrees(file), UsageError);
  std::filesystem::remove(file);
  EXPECT_THROW(read_degrees(file), UsageError);
}

}  // namespace
}  // namespace bp::conformance
