#include "conformance/perf/baseline.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "conformance/perf/perf_report.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;

PerfLine line_of(const char* id, double median, double scatter) {
  PerfLine line;
  line.id = id;
  line.seconds.median = median;
  line.uncertainty.scatter = scatter;
  return line;
}

json document() {
  return {{"schema", "backplane-perf-2"},
          {"suite", "0.1"},
          {"plugin", {{"name", "acme.npu"}, {"version", "1"}}},
          {"device", {{"name", "acme.npu:0"}, {"description", "X1"}}},
          {"settings", {{"cache_bytes", 4096}, {"min_seconds", 0.2}, {"seed", 1}}}};
}

class Baselines : public testing::Test {
 protected:
  ~Baselines() override { std::filesystem::remove_all(folder_); }

  Baseline stored(const json& content) {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "perf.json") << content.dump();
    return Baseline::read(folder_.string());
  }

  json with_cases(std::vector<PerfLine> lines) {
    json content = document();
    add_results(summarize_perf(std::move(lines), {}), content);
    return content;
  }

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() /
      ("bp_baseline_test_" +
       std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
};

// Returns `line` with the metrics that make_line() would have kept of its result.
PerfLine with_metrics(PerfLine line) {
  line.result.metrics = {{"median_s", line.seconds.median}};
  return line;
}

// Both limits of quiet runs are 1.5 hypot(3 %, 3 %) = 6.4 %.
TEST_F(Baselines, NeedAChangeBeyondBothLimits) {
  std::vector<PerfLine> before;
  for (const char* id : {"perf.small", "perf.slower", "perf.faster", "perf.gone"}) {
    before.push_back(with_metrics(line_of(id, 1, 0)));
  }
  before.push_back(with_metrics(line_of("perf.noisy", 1, 0.2)));
  const Baseline baseline = stored(with_cases(before));
  const PerfSummary now = summarize_perf(
      {line_of("perf.small", 1.06, 0), line_of("perf.noisy", 1.3, 0),
       line_of("perf.slower", 1.2, 0), line_of("perf.faster", 0.8, 0), line_of("perf.fresh", 1, 0)},
      {});
  const Comparison comparison = baseline.compare(now, document(), 0.05);
  EXPECT_EQ(comparison.compared, 4U);
  ASSERT_EQ(comparison.regressions.size(), 1U);
  EXPECT_EQ(comparison.regressions[0].id, "perf.slower");
  ASSERT_EQ(comparison.improvements.size(), 1U);
  EXPECT_EQ(comparison.improvements[0].id, "perf.faster");
  EXPECT_EQ(comparison.fresh, std::vector<std::string>{"perf.fresh"});
  EXPECT_NEAR(comparison.uncertainty, 1.5 * std::hypot(0.03, 0.03), 1e-12);
  EXPECT_EQ(perf_verdict(now, comparison, false).exit_code, kExitTooSlow);
  EXPECT_TRUE(baseline.compare(now, document(), 0.25).regressions.empty());
}

TEST_F(Baselines, SayNothingOfWhatWasTooNoisyThenOrNow) {
  const Baseline baseline = stored(with_cases(
      {with_metrics(line_of("perf.then", 1, HUGE_VAL)), with_metrics(line_of("perf.now", 1, 0))}));
  const Comparison comparison = baseline.compare(
      summarize_perf({line_of("perf.then", 9, 0), line_of("perf.now", 9, HUGE_VAL)}, {}),
      document(), 0.05);
  EXPECT_EQ(comparison.unclear, (std::vector<std::string>{"perf.then", "perf.now"}));
  EXPECT_EQ(comparison.compared, 0u);
  EXPECT_TRUE(comparison.regressions.empty());
}

TEST_F(Baselines, NameWhatIsSelectedAndNoLongerMeasured) {
  const Baseline baseline = stored(with_cases({with_metrics(line_of("perf.a", 1, 0.001))}));
  PerfLine refused = line_of("perf.a", 0, 0);
  refused.result.outcome = Outcome::kNotSupported;
  const Comparison comparison = baseline.compare(summarize_perf({refused}, {}), document(), 0.05);
  EXPECT_EQ(comparison.missing, std::vector<std::string>{"perf.a"});
}

TEST_F(Baselines, OfAnotherDeviceSuiteOrCacheAreRefusedInWords) {
  const Baseline baseline = stored(with_cases({}));
  EXPECT_NO_THROW(baseline.require_comparable(document()));
  for (const char* pointer :
       {"/device/description", "/device/name", "/suite", "/plugin/name", "/settings/cache_bytes"}) {
    json other = document();
    other[json::json_pointer(pointer)] = "another";
    try {
      baseline.require_comparable(other);
      ADD_FAILURE() << pointer << " may not differ";
    } catch (const UsageError& e) {
      EXPECT_NE(std::string(e.what()).find("another"), std::string::npos) << e.what();
    }
  }
}

TEST_F(Baselines, SayWhichVersionTheyAreOf) {
  const Baseline baseline = stored(with_cases({}));
  json newer = document();
  newer["plugin"]["version"] = "2";
  EXPECT_NO_THROW(baseline.require_comparable(newer));
  const Comparison comparison = baseline.compare({}, newer, 0.05);
  ASSERT_EQ(comparison.warnings.size(), 1U);
  EXPECT_NE(comparison.warnings[0].find("1 then, 2 now"), std::string::npos);
}

TEST_F(Baselines, ThatAreNoneAreRefused) {
  EXPECT_THROW(stored(json::array()), UsageError);
  EXPECT_THROW(Baseline::read((folder_ / "nothing.json").string()), UsageError);
}

}  // namespace
}  // namespace bp::conformance
