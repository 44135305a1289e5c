// The pages for browsers: they are well formed, load nothing, and say in words what colors show.
#include <gtest/gtest.h>

#include "backplane/ops.h"
#include "conformance/report/comparison.hpp"
#include "conformance/report/documents.hpp"
#include "conformance/report/standing.hpp"
#include "conformance/usage_error.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

// A run of a few ops of the suite.
class HtmlPages : public testing::Test {
 protected:
  HtmlPages() {
    const json heap = {{"size_bytes", uint64_t{3} << 30}, {"flags", {"device_local"}}};
    const json target = {{"name", "acme.npu:0"},         {"device", "X1"},
                         {"dtypes", {"f32", "i32"}},     {"profiles", {"train"}},
                         {"heaps", json::array({heap})}, {"kernels", json::array()}};
    run_.report.hello = {{"plugin", {{"name", "acme.npu"}, {"version", "1.4"}, {"abi", "0.3"}}},
                         {"targets", json::array({target})},
                         {"target", 0},
                         {"sha256", "0123456789abcdef"}};
    const CaseList& suite = CaseList::whole_suite();
    std::vector<Case> all;
    // The map of ops counts neither large calls nor those with flags.
    const auto is_counted = [](const std::string& id) {
      return id.find(".large.") == std::string::npos && id.find(".medium.") == std::string::npos &&
             id.find(".deterministic.") == std::string::npos;
    };
    for (const char* op : {"op.add.f32.", "op.add.i32.", "op.relu.f32.", "stream."}) {
      size_t count = 0;
      for (const Case& which : suite.cases()) {
        if (which.id.starts_with(op) && is_counted(which.id) && count++ < 4) all.push_back(which);
      }
    }
    run_.cases = CaseList(std::move(all));
    for (size_t i = 0; i < run_.cases.size(); ++i) {
      Final final;
      final.index = final.attempt.index = i;
      final.attempt.result.metrics["margin"] = 0.05 * static_cast<double>(i);
      run_.report.finals.push_back(final);
    }
    run_.header.plugin = "./x.so";
    judge();
  }

  Result& result_of(const std::string& prefix) {
    for (Final& final : run_.report.finals) {
      if (run_.cases[final.index].id.starts_with(prefix)) return final.attempt.result;
    }
    throw std::out_of_range(prefix);
  }
  void judge() { run_.summary = summarize(run_.header, run_.cases, run_.report, Waivers()); }
  std::string page(const Speed* speed = nullptr) {
    judge();
    return html_page(run_.header, run_.report, run_.summary, speed);
  }
  static void expect_part(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << "no " << part << " in\n" << text;
  }
  static void expect_well_formed(const std::string& text) {
    for (const char* name :
         {"table", "thead", "tbody", "caption", "tr",   "td",   "th",   "details", "summary",
          "ul",    "li",    "p",     "code",    "pre",  "span", "h1",   "h2",      "h3",
          "b",     "nav",   "main",  "a",       "body", "head", "html", "style",   "title"}) {
      const std::string open = "<" + std::string(name);
      const size_t opened = count_of(text, open + ">") + count_of(text, open + " ");
      EXPECT_EQ(opened, count_of(text, "</" + std::string(name) + ">")) << name;
    }
    for (const char* loaded : {"<script", "<link", "<img", "@import", "url(", "http:", "https:"}) {
      EXPECT_EQ(text.find(loaded), std::string::npos) << loaded;
    }
    expect_part(text, "<html lang=\"en\">");
    expect_part(text, "name=\"viewport\"");
    for (const std::string cells : {"<th>", "<th class"}) {
      EXPECT_EQ(text.find(cells), std::string::npos) << "each heading of a table has a scope";
    }
  }

  RestoredRun run_{CaseList(std::vector<Case>()), {}, {}, {}};
};

Speed some_speed() {
  return speed_of(
      json::parse(R"({"schema":"backplane-perf-2","plugin":{"sha256":"0123456789abcdef"},
    "ceilings":{"copy_bytes_per_s":4e9,"launch_s":2e-6,"flops_per_s":{"f32":5e10}},
    "cases":[{"id":"perf.add.f32","status":"Pass","median_s":1e-3,"fraction":0.875,"grade":"A",
              "bytes_per_s":3.5e9,"bound":"memory"},
             {"id":"perf.mul.f32","status":"Fail","median_s":1e-3},
             {"id":"perf.exp.f16","status":"NotSupported"}]})"),
      "perf.json");
}

TEST_F(HtmlPages, AreWellFormedAndLoadNothing) {
  const Speed speed = some_speed();
  expect_well_formed(page());
  result_of("op.add.f32.") = {.outcome = Outcome::kFail, .message = "m", .cause = "tail"};
  result_of("stream.") = {.outcome = Outcome::kNotSupported, .message = "no <timer>"};
  expect_well_formed(page(&speed));
  const std::vector<ComparedRun> two = {{"a", &run_, speed}, {"b", &run_, {}}};
  expect_well_formed(comparison_page(two));
}

TEST_F(HtmlPages, ShowVerdictProfilesAndBadgesFirst) {
  const std::string text = page();
  size_t before = 0;
  for (const char* part : {"CLEAN at tier quick", "<b>runtime</b>holds", "<b>infer</b>holds: 12",
                           "<b>llm</b>not claimed", "<b>Bronze</b>", "id=\"map\"", "id=\"speed\"",
                           "id=\"memory\"", "id=\"not-run\"", "id=\"margins\""}) {
    const size_t at = text.find(part);
    ASSERT_NE(at, std::string::npos) << part;
    EXPECT_GT(at, before) << part;
    before = at;
  }
}

TEST_F(HtmlPages, ShowEachCellOfTheMapInWords) {
  result_of("op.add.f32.") = {.outcome = Outcome::kFail, .message = "m"};
  result_of("op.add.i32.") = {.outcome = Outcome::kNotSupported, .message = "no"};
  const std::string text = page();
  expect_part(text, "<td class=\"bad\" data-of=\"f32\">W1/4</td>");
  expect_part(text, "<td class=\"part\" data-of=\"i32\">3/4</td>");
  expect_part(text, "<td class=\"good\" data-of=\"f32\">4</td>");
  expect_part(text, "<td class=\"empty\"></td>");
  expect_part(text, "no</li>");
}

TEST_F(HtmlPages, ShowSpeedsOfThisPluginAlone) {
  Speed speed = some_speed();
  const std::string text = page(&speed);
  expect_part(text, "width:88%");
  expect_part(text, "88 %");
  expect_part(text, "matmul f32 50.0 GFLOP/s");
  expect_part(text, "1 calls were measured, 1 were wrong, and no kernel takes 1.");
  EXPECT_EQ(text.find("Another build"), std::string::npos);
  speed.sha256 = "fedc";
  expect_part(page(&speed), "Another build of the plugin was measured: sha256 fedc");
}

TEST_F(HtmlPages, CompareRunsInColumns) {
  std::vector<Case> same(run_.cases.cases().begin(), run_.cases.cases().end());
  RestoredRun other{CaseList(std::move(same)), run_.header, run_.report, {}};
  for (Final& final : other.report.finals) {
    if (run_.cases[final.index].id.starts_with("op.relu")) {
      final.attempt.result = {.outcome = Outcome::kMissing, .message = "none"};
    }
  }
  other.header.seed = 9;
  other.summary = summarize(other.header, other.cases, other.report, Waivers());
  const std::vector<ComparedRun> two = {{"one", &run_, some_speed()}, {"two", &other, {}}};
  const std::string text = comparison_page(two);
  expect_part(text, "The runs have different seeds.");
  expect_part(text, "<td class=\"good\" data-of=\"one:\">4<span class=\"soft\"> f32</span></td>");
  expect_part(text,
              "<td class=\"bad\" data-of=\"two:\">M4<span class=\"soft\"> no dtype</span></td>");
  expect_part(text, "<td class=\"whole\" data-of=\"two:\">not measured</td>");
  const std::string table = comparison_text(two);
  expect_part(table, "infer     holds: 12 right");
  expect_part(table, "fails: 8 right, 4 wrong");
  expect_part(table, "warning: The runs have different seeds.");
}

// ---- Badges ---------------------------------------------------------------------------------- //

TEST_F(HtmlPages, GiveBadgesAtTierFullAlone) {
  const auto text_of = [&](const char* name) {
    judge();
    for (const Badge& badge : badges_of(run_.header, run_.report, run_.summary)) {
      if (badge.name == name) return badge.text;
    }
    return std::string("none");
  };
  EXPECT_EQ(text_of("Loadable"), "no case of it ran");
  EXPECT_EQ(text_of("Silver"), "clean so far: 16 cases; it is given at tier full");
  run_.header.tier = Tier::kFull;
  EXPECT_EQ(text_of("Silver"), "its cases are clean; the badge below is not given");
  EXPECT_EQ(text_of("Platinum"), "the backend does not claim dist");
  json& claims = run_.report.hello["targets"][0]["profiles"];
  claims = {"infer"};
  EXPECT_EQ(text_of("Gold"), "the backend does not claim train") << "refusals alone give no badge";
  claims = {"train", "dist"};
  EXPECT_EQ(text_of("Platinum"), "its cases are clean; a run does not show faults and stress");
  result_of("stream.") = {.outcome = Outcome::kWaived, .message = "m"};
  EXPECT_EQ(text_of("Silver"), "1 of its cases are waived");
  result_of("stream.") = {.outcome = Outcome::kSkip, .message = "m"};
  EXPECT_EQ(text_of("Silver"), "1 of its cases did not run");
  result_of("op.relu.f32.") = {.outcome = Outcome::kFail, .message = "m"};
  EXPECT_EQ(text_of("Silver"), "1 of its cases fail");
}

// ---- Speeds ---------------------------------------------------------------------------------- //

TEST(Speeds, OfAFileOfAnotherKindAreRefusedByName) {
  for (const char* text : {"[]", "{}", R"({"schema":"x"})", R"({"schema":"x","cases":[{}]})",
                           R"({"schema":"x","cases":[{"id":"a","status":"Odd"}]})",
                           R"({"schema":"x","cases":[{"id":"a","status":"Pass","median_s":"1"}]})",
                           R"({"schema":"x","cases":[],"ceilings":{"flops_per_s":{"f32":"x"}}})"}) {
    try {
      static_cast<void>(speed_of(json::parse(text), "perf.json"));
      ADD_FAILURE() << text;
    } catch (const UsageError& e) {
      EXPECT_TRUE(std::string(e.what()).starts_with("perf.json:")) << e.what();
    }
  }
}

TEST(Speeds, HaveThreeDigitsAndAUnit) {
  EXPECT_EQ(bytes_rate_text(3.456e9), "3.46 GB/s");
  EXPECT_EQ(flops_rate_text(67.89e12), "67.9 TFLOP/s");
  EXPECT_EQ(duration_text(1.234e-4), "123 us");
  EXPECT_EQ(bytes_text(3.0 * (1 << 30)), "3.00 GiB");
}

}  // namespace
}  // namespace bp::conformance
