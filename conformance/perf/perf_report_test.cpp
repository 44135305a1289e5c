#include "conformance/perf/perf_report.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "conformance/perf/cache_size.hpp"
#include "conformance/perf/preemption.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;

PerfLine graded(const char* id, double fraction) {
  PerfLine line;
  line.id = id;
  line.dtype = "f32";
  line.seconds.median = 1e-3;
  line.bytes_read = line.bytes_written = 1e6;
  line.fraction = fraction;
  line.roof_s = fraction * 1e-3;
  line.uncertainty.runs = 0;
  set_grades(line);
  return line;
}

PerfLine ended(const char* id, Outcome outcome, const char* message = "") {
  PerfLine line;
  line.id = id;
  line.result = {.outcome = outcome, .message = message};
  return line;
}

// ---- The verdict ----------------------------------------------------------------------------- //

TEST(PerfVerdicts, PutWhatIsWrongBeforeWhatIsSlow) {
  PerfSummary summary;
  Comparison comparison;
  EXPECT_EQ(perf_verdict(summary, comparison, false).exit_code, kExitNothingRan);
  summary.measured = 3;
  EXPECT_EQ(perf_verdict(summary, comparison, false).exit_code, kExitOk);
  EXPECT_EQ(perf_verdict(summary, comparison, false).text, "RIGHT");
  summary.grades['F'] = 2;
  EXPECT_EQ(perf_verdict(summary, comparison, false).exit_code, kExitOk) << "slow is not wrong";
  EXPECT_EQ(perf_verdict(summary, comparison, false).text, "RIGHT, 2 SLOW");
  comparison.regressions.push_back({.id = "perf.add"});
  EXPECT_EQ(perf_verdict(summary, comparison, false).exit_code, kExitTooSlow);
  EXPECT_EQ(perf_verdict(summary, comparison, false).text,
            "REGRESSED: every result is right, 1 slower than the baseline, 2 SLOW");
  summary.failed = 1;
  EXPECT_EQ(perf_verdict(summary, comparison, false).exit_code, kExitFailures);
  summary.lines.push_back(ended("perf.add", Outcome::kHarnessError));
  EXPECT_EQ(perf_verdict(summary, comparison, false).exit_code, kExitHarness);
  EXPECT_EQ(perf_verdict(summary, comparison, true).exit_code, kExitInterrupted);
}

// ---- Lines ----------------------------------------------------------------------------------- //

TEST(PerfLines, ShowTheGradeOfAMeasuredCall) {
  const std::string text = line_text(graded("perf.add.f32", 0.95), false);
  EXPECT_TRUE(text.starts_with("perf.add.f32  ")) << text;
  EXPECT_TRUE(text.ends_with("A\n")) << text;
  EXPECT_NE(text.find(" 1.00 ms"), std::string::npos) << text;
  EXPECT_NE(text.find(" 2.00 "), std::string::npos) << "GB/s: " << text;
  EXPECT_NE(text.find("95 %"), std::string::npos) << text;
  EXPECT_EQ(text.find('\033'), std::string::npos);
  EXPECT_NE(line_text(graded("perf.add.f32", 0.95), true).find("\033[32mA\033[0m"),
            std::string::npos);
}

TEST(PerfLines, MarkASlowCallAndOneAboveItsRoof) {
  EXPECT_TRUE(line_text(graded("perf.a", 0.05), false).ends_with("F SLOW\n"));
  EXPECT_TRUE(line_text(graded("perf.a", 1.3), false).ends_with("above the roof\n"));
  PerfLine noisy = graded("perf.a", 1.3);
  noisy.uncertainty.scatter = HUGE_VAL;
  set_grades(noisy);
  const std::string text = line_text(noisy, false);
  EXPECT_NE(text.find("not graded"), std::string::npos) << text;
  EXPECT_EQ(text.find("above the roof"), std::string::npos) << "nobody knows: " << text;
  EXPECT_EQ(text.find("inf"), std::string::npos) << text;
  EXPECT_EQ(text.find("nan"), std::string::npos) << text;
}

TEST(PerfLines, WithoutARoofSaySo) {
  PerfLine line = graded("perf.a", 0.5);
  line.fraction = 0;
  EXPECT_TRUE(line_text(line, false).ends_with("no roof\n"));
}

TEST(PerfLines, SayWhyACallWasNotMeasured) {
  EXPECT_TRUE(line_text(ended("perf.a", Outcome::kNotSupported, "no kernel\nmore"), false)
                  .ends_with(" NotSupported: no kernel\n"));
  const std::string reason(200, 'x');
  EXPECT_TRUE(line_text(ended("perf.a", Outcome::kNotSupported, reason.c_str()), false)
                  .ends_with("x ... (perf.json has it all)\n"));
  EXPECT_TRUE(
      line_text(ended("perf.a", Outcome::kFail, reason.c_str()), false).ends_with(reason + "\n"))
      << "what is wrong is told as a whole";
  EXPECT_NE(line_text(ended("perf.a", Outcome::kFail, "wrong"), true).find("\033[31mFail\033[0m"),
            std::string::npos);
}

TEST(PerfLines, HaveTimesOfThreeDigits) {
  const auto shows = [](double seconds, const char* words) {
    PerfLine line = graded("perf.a", 0.5);
    line.seconds.median = seconds;
    return line_text(line, false).find(words) != std::string::npos;
  };
  EXPECT_TRUE(shows(12.34, " 12.3 s "));
  EXPECT_TRUE(shows(1, " 1.00 s "));
  EXPECT_TRUE(shows(0.1234, " 123 ms "));
  EXPECT_TRUE(shows(4.5e-6, " 4.50 us "));
  EXPECT_TRUE(shows(4.5e-10, " 0.45 ns "));
}

// ---- The summary ----------------------------------------------------------------------------- //

TEST(PerfSummaries, ListTheSlowestAndTheCounts) {
  std::vector<PerfLine> lines = {graded("perf.fast", 0.95), graded("perf.slow", 0.05),
                                 ended("perf.wrong", Outcome::kFail),
                                 ended("perf.none", Outcome::kNotSupported)};
  const PerfSummary summary = summarize_perf(lines, Ceilings{});
  const std::string text = summary_text(summary, Comparison{}, "WRONG");
  EXPECT_NE(text.find("slowest  slow 5 %  fast 95 %\n"), std::string::npos) << text;
  EXPECT_NE(text.find("verdict: WRONG\n2 measured, 1 failed, 1 skipped\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("A 1  B 0  C 0  D 0  F 1"), std::string::npos) << text;
}

TEST(PerfSummaries, TellWhatChangedAndWhatCouldNotBeCompared) {
  Comparison comparison;
  comparison.path = "old.json";
  EXPECT_NE(summary_text({}, comparison, "x").find("nothing could be compared"), std::string::npos);
  comparison.compared = 30;
  comparison.warnings = {"another driver"};
  comparison.missing = {"perf.gone"};
  comparison.fresh = {"perf.new"};
  comparison.unclear = {"perf.noisy"};
  for (int i = 0; i < 25; ++i) {
    PerfChange change{.id = "perf.row_" + std::to_string(i)};
    change.before.seconds = 1e-3;
    change.after.seconds = 2e-3;
    comparison.regressions.push_back(change);
  }
  const std::string text = summary_text({}, comparison, "x");
  for (const char* words :
       {"30 compared, beyond 5 %", "  warning: another driver\n", "slower 25\n",
        "1.00 ms ->   2.00 ms   +100 %", "... and 5 more in perf.json\n", "perf.gone",
        " was measured then, and is not now\n", "  1 that the baseline does not have\n",
        "  1 were too noisy to compare"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << " in\n" << text;
  }
  EXPECT_EQ(text.find("perf.row_20"), std::string::npos) << "twenty are enough for a screen";
}

TEST(PerfDocuments, HoldEveryLineWithItsNumbersOrItsReason) {
  const json hello = {{"plugin", {{"name", "acme.npu"}}},
                      {"targets", json::array({{{"name", "acme.npu:0"}, {"device", "X1"}}})},
                      {"target", 0},
                      {"sha256", "abc"}};
  PerfHeader header;
  header.seed = UINT64_MAX;
  header.backend_options = {{"a", "b"}};
  json document = perf_document(header, hello);
  EXPECT_EQ(document.at("plugin").at("name"), "acme.npu");
  EXPECT_EQ(document.at("device").at("description"), "X1");
  EXPECT_EQ(document.at("settings").at("seed"), UINT64_MAX);
  EXPECT_EQ(document.at("settings").at("options").at("a"), "b");
  PerfLine noisy = graded("perf.noisy", 0.5);
  noisy.uncertainty.scatter = HUGE_VAL;
  set_grades(noisy);
  add_results(summarize_perf({graded("perf.a", 0.95), noisy,
                              ended("perf.none", Outcome::kNotSupported, "why")},
                             Ceilings{}),
              document);
  add_comparison(Comparison{}, document);
  EXPECT_FALSE(document.contains("comparison")) << "there was no baseline";
  // The document as a reader gets it: an infinite number is null.
  const json read = json::parse(document.dump());
  ASSERT_EQ(read.at("cases").size(), 3u);
  EXPECT_EQ(read.at("cases")[0].at("grade"), "A");
  EXPECT_EQ(read.at("cases")[0].at("bytes_per_s"), 2e9);
  EXPECT_TRUE(read.at("cases")[1].at("uncertainty").is_null());
  EXPECT_EQ(read.at("cases")[1].at("grade"), "none");
  EXPECT_FALSE(read.at("cases")[1].contains("fraction_least"));
  EXPECT_EQ(read.at("cases")[2].at("status"), "NotSupported");
  EXPECT_EQ(read.at("cases")[2].at("message"), "why");
  EXPECT_FALSE(read.at("cases")[2].contains("bytes_per_s"));
  EXPECT_EQ(read.at("summary").at("measured"), 2);
}

TEST(PerfHeads, NameTheDeviceThatWasMeasured) {
  const json hello = {
      {"plugin", {{"name", "acme.npu"}, {"version", "1.4"}}},
      {"targets", json::array({{{"name", "acme.npu:0"}}, {{"name", "acme.npu:1"}}})},
      {"target", 1},
      {"sha256", "0123456789abcdef"}};
  PerfHeader header;
  header.environment = {"BACKPLANE_CONFORMANCE_SEED=7"};
  const std::string text = perf_head(header, hello);
  EXPECT_NE(text.find("device  acme.npu:1: "), std::string::npos) << text;
  EXPECT_NE(text.find("sha256 0123456789ab "), std::string::npos) << text;
  EXPECT_NE(text.find("2 x 256.0 MiB"), std::string::npos) << text;
  EXPECT_NE(text.find("env     BACKPLANE_CONFORMANCE_SEED=7\n"), std::string::npos) << text;
}

// ---- Caches and preemptions ------------------------------------------------------------------ //

TEST(CacheSizes, AreReadWithTheirUnits) {
  EXPECT_EQ(parse_size("512"), 512u);
  EXPECT_EQ(parse_size("64K"), 64u << 10);
  EXPECT_EQ(parse_size("32M"), 32u << 20);
  EXPECT_EQ(parse_size("1G"), 1u << 30);
  EXPECT_EQ(parse_size("1024G"), uint64_t{1} << 40);
  for (const char* wrong :
       {"", "0", "K", "-1", "+1", " 1", "1 K", "1k", "1KB", "1T", "1.5M", "0x10", "1025G",
        "1048577M", "18446744073709551615", "18446744073709551616", "17179869184G"}) {
    EXPECT_EQ(parse_size(wrong), 0u) << wrong;
  }
}

TEST(CacheSizes, OfADeviceThatCannotBeAskedAreAnUpperBound) {
  for (const json& target : {json{{"class", "discrete"}}, json::object()}) {
    EXPECT_EQ(cache_size_of(target).bytes, 256u << 20);
    EXPECT_NE(cache_size_of(target).source.find("--cache-bytes"), std::string::npos);
  }
  const CacheSize host = cache_size_of({{"class", "host"}});
  EXPECT_GT(host.bytes, 0u);
  EXPECT_FALSE(host.source.empty());
}

TEST(Preemptions, AreTooManyByProcessorAndSecond) {
  EXPECT_FALSE(are_too_many_preemptions(0, 0, 1));
  EXPECT_TRUE(are_too_many_preemptions(1, 0, 1));
  EXPECT_FALSE(are_too_many_preemptions(25, 1, 1));
  EXPECT_TRUE(are_too_many_preemptions(26, 1, 1));
  EXPECT_FALSE(are_too_many_preemptions(100, 1, 4));
  EXPECT_TRUE(are_too_many_preemptions(101, 1, 4));
  EXPECT_FALSE(are_too_many_preemptions(50, 2, 1));
}

TEST(Preemptions, OfAMomentThatHasJustBegunAreFewerThanThoseOfYears) {
  const PreemptionWatch watch;
  EXPECT_FALSE(watch.was_preempted(1e9));
}

}  // namespace
}  // namespace bp::conformance
