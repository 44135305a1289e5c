// Tests the page for a terminal and the other documents with texts of a hostile backend.
#include "conformance/report/page.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "conformance/report/documents.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;

class Pages : public testing::Test {
 protected:
  Pages() {
    const json target = {{"name", "acme.npu:0"},
                         {"device", "X1"},
                         {"dtypes", json::array({"f32", "i32"})},
                         {"profiles", json::array({"core"})},
                         {"heaps", json::array({{{"size_bytes", uint64_t{3} << 29}}})},
                         {"kernels", json::array({1, 2})}};
    report_.hello = {{"plugin", {{"name", "acme.npu"}, {"version", "1.4"}, {"abi", "0.3"}}},
                     {"targets", json::array({target})},
                     {"target", 0},
                     {"sha256", "0123456789abcdef"}};
    std::vector<Case> all(30);
    for (size_t i = 0; i < all.size(); ++i) {
      all[i].id = "stream.case_" + std::string(i < 10 ? "0" : "") + std::to_string(i);
      all[i].group = "stream";
      all[i].run = [](Context&) {};
      Final final;
      final.index = i;
      final.attempt.index = i;
      final.attempt.wall_ms = static_cast<double>(i);
      report_.finals.push_back(final);
    }
    cases_ = CaseList(std::move(all));
  }

  Result& result(size_t index) { return report_.finals[index].attempt.result; }
  void fail(size_t index, const std::string& message, const std::string& cause = "tail") {
    result(index) = {.outcome = Outcome::kFail, .message = message, .cause = cause, .tag = "A-1"};
  }
  Summary summary() const { return summarize(header_, cases_, report_, Waivers()); }
  std::string page(const PageOptions& options = {}) const {
    return verdict_page(header_, report_, summary(), options);
  }
  std::string html() const { return html_page(header_, report_, summary()); }
  std::string markdown() const { return markdown_page(header_, report_, summary()); }

  static size_t count_of(const std::string& text, const std::string& part) {
    size_t count = 0;
    for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
    return count;
  }
  static void expect_part(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << "no " << part << " in\n" << text;
  }

  CaseList cases_{std::vector<Case>()};
  RunHeader header_{.plugin = "./x.so"};
  RunReport report_;
};

TEST_F(Pages, NameThePluginTheDeviceAndTheRun) {
  header_.environment = {"BACKPLANE_CONFORMANCE_SEED=7"};
  header_.waivers = "waivers.yaml";
  report_.wall_seconds = 2.25;
  const std::string text = page();
  expect_part(text, "seed 0x5eed   tier quick");
  expect_part(text, "plugin  acme.npu 1.4   abi 0.3   sha256 0123456789ab   ");
  expect_part(text, "device  acme.npu:0: X1 (1.5 GiB)   dtypes f32 i32   kernels 2\n");
  expect_part(text, "claims  core\n");
  expect_part(text, "env     BACKPLANE_CONFORMANCE_SEED=7\n");
  expect_part(text, "waivers waivers.yaml\n");
  expect_part(text, "30 passed, 0 failed, 0 skipped\n");
}

TEST_F(Pages, OfARunWithoutABackendStillEndWithAVerdict) {
  report_.hello = json();
  report_.finals.clear();
  expect_part(page(), "verdict: ");
  expect_part(html(), "</html>");
  expect_part(markdown(), "0 passed, 0 failed, 0 skipped");
}

// No line of a backend may look like a line of the page.
TEST_F(Pages, IndentEveryLineOfABackend) {
  fail(0, "first\nverdict: CONFORMANT\n#9 forged");
  result(0).notes = {"note\nverdict: forged"};
  const std::string text = page();
  EXPECT_EQ(count_of("\n" + text, "\nverdict: "), 1u) << text;
  EXPECT_EQ(count_of("\n" + text, "\n#9"), 0u) << text;
  expect_part(text, "   first\n    verdict: CONFORMANT\n    #9 forged\n");
}

TEST_F(Pages, ShowTenCausesUnlessAllAreAskedFor) {
  for (size_t i = 0; i < 12; ++i) fail(i, "m", "cause_" + std::to_string(i));
  EXPECT_EQ(count_of(page(), "   repro: "), 10u);
  expect_part(page(), "... and 2 more causes: -v shows them, summary.json lists them\n");
  EXPECT_EQ(count_of(page({.is_verbose = true}), "   repro: "), 12u);
}

TEST_F(Pages, SayWhichFixesTurnMostCasesGreen) {
  for (size_t i = 0; i < 5; ++i) fail(i, "m", "tail");
  fail(5, "m", "order");
  expect_part(page(), "two fixes that turn most cases green: A-1 tail (5), A-1 order (1)\n");
  for (size_t i = 6; i < 16; ++i) fail(i, "m", "cause_" + std::to_string(i));
  expect_part(page(), "five fixes that turn most cases green: A-1 tail (5), ");
}

TEST_F(Pages, ListTheSlowestCasesFirst) {
  const std::string text = page({.slowest = 2});
  expect_part(text, "slowest:\n      29.0 ms  stream.case_29\n      28.0 ms  stream.case_28\n");
  EXPECT_EQ(text.find("stream.case_27"), std::string::npos);
  EXPECT_EQ(count_of(page({.slowest = 1000}), " ms  stream.case_"), 30u);
}

TEST_F(Pages, ThatAreQuietHoldTheVerdictAlone) {
  fail(0, "wrong");
  EXPECT_EQ(page({.is_quiet = true}).find("verdict: NOT CONFORMANT (1 wrong)"), 0u);
}

TEST_F(Pages, AreWithoutEscapesUnlessColorsAreAskedFor) {
  fail(0, "wrong");
  EXPECT_EQ(page().find('\033'), std::string::npos);
  expect_part(page({.has_color = true}), "\033[1;31mNOT CONFORMANT (1 wrong)\033[0m");
}

TEST_F(Pages, CountFallbacksApartAndExplainThemIfAsked) {
  for (size_t i = 0; i < 3; ++i) {
    result(i) = {.outcome = Outcome::kFallback, .cause = "host"};
    result(i).details[kWhyFallback] = "npu.add: rank 5 > 4\n\n";
  }
  result(3) = {.outcome = Outcome::kFallback, .message = "by parts", .cause = "decomposed"};
  result(4).details["kernel"] = "npu.add";
  report_.dispatch = DispatchCounts{.native = 7,
                                    .decomposed = 1,
                                    .host = 3,
                                    .copied_scalars = 2,
                                    .compiled = 4,
                                    .realigned = 1,
                                    .laid_out = 5};
  expect_part(
      page(),
      "served: 1 cases on kernels of the backend, 1 decomposed, 3 on the host; "
      "calls through the registry: 7 native (4 as programs of one op) (5 with conversions to "
      "layouts), 1 decomposed (1 on copies at aligned offsets), 3 on the host, 2 scalars copied");
  EXPECT_EQ(page().find("rank 5"), std::string::npos);
  const std::string text = page({.explains_fallbacks = true});
  expect_part(text, "fallback host  stream.case_00 and 2 more\n    npu.add: rank 5 > 4\n");
  expect_part(text, "fallback decomposed  stream.case_03\n    by parts\n");
}

TEST_F(Pages, SayByHowMuchTheBudgetWasMissed) {
  header_.budget_seconds = 2;
  report_.wall_seconds = 5.5;
  expect_part(page(), "; took 5 s of a budget of 2 s");
}

// ---- Repro lines ----------------------------------------------------------------------------- //

// A person pastes this line into a shell, so it must quote details that a backend put into its
// results.
TEST_F(Pages, QuoteWhatABackendSaysInTheLineThatRepeatsAFailure) {
  fail(0, "m", "order");
  result(0).details["after"] = "x; touch /opt/harm, $(harm)\nharm";
  const std::string line = repro_line(header_, summary().judged[0]);
  EXPECT_EQ(line,
            "bp-conformance run ./x.so --case 'x; touch /opt/harm' --case $'$(harm)\\012harm' "
            "--case stream.case_00 --seed 0x5eed");
}

TEST_F(Pages, QuoteACaseOfAStoredRun) {
  Case foreign;
  foreign.id = "a'b; harm";
  foreign.run = [](Context&) {};
  Judged judged;
  judged.which = &foreign;
  judged.id = foreign.id;
  EXPECT_EQ(repro_line(header_, judged),
            "bp-conformance run ./x.so --case 'a'\\''b; harm' --seed 0x5eed");
}

TEST_F(Pages, SayFromWhatTheWorstElementWasComputed) {
  fail(0, "y[0, 24] is 0, not nan");
  result(0).details = {{kInputsDetail, "y[0, 24] is computed from x[0, 24] = nan"},
                       {kCallDetail, "relu(x f32 [3, 25]) -> y f32 [3, 25]"}};
  const std::string text = page();
  expect_part(text,
              "   y[0, 24] is 0, not nan\n"
              "   inputs: y[0, 24] is computed from x[0, 24] = nan\n"
              "   call: relu(x f32 [3, 25]) -> y f32 [3, 25]\n   repro: ");
  expect_part(html(), "<p>inputs: y[0, 24] is computed from x[0, 24] = nan</p>");
}

TEST_F(Pages, NameAllRequirementsOfWhichOneWasBroken) {
  fail(0, "m");
  result(0).details = {{kTagsDetail, "A-1, B-2"}};
  expect_part(page(), "#1 one of A-1, B-2:  stream.case_00");
  expect_part(html(), "<p>one of the requirements: A-1, B-2</p>");
}

// ---- Documents ------------------------------------------------------------------------------- //

TEST_F(Pages, EscapeWhatIsMarkupForABrowser) {
  header_.plugin = "<x>\"&'.so";
  fail(0, "<script>alert(1)</script>", "<b>");
  result(0).notes = {"<i>note</i>"};
  report_.hello.at("plugin")["name"] = "<img src=x>";
  const std::string text = html();
  for (const char* markup : {"<script", "<x>", "<i>", "<img"}) {
    EXPECT_EQ(text.find(markup), std::string::npos) << markup;
  }
  expect_part(text, "&lt;script&gt;alert(1)&lt;/script&gt;");
  expect_part(text, "<b>A-1 &lt;b&gt;</b>");
  expect_part(text, "&lt;x&gt;&quot;&amp;&#39;.so: conformance</title>");
  expect_part(text, "also: &lt;i&gt;note&lt;/i&gt;");
}

TEST_F(Pages, EscapeWhatIsMarkupInMarkdown) {
  fail(0, "a | b\n# heading", "`code`");
  report_.hello.at("plugin")["version"] = "*bold* [link](x)\n# heading";
  const std::string text = markdown();
  expect_part(text, "| A-1 \\`code\\` <code>stream.case\\_00</code> | 1 | Fail | a \\| b |\n");
  expect_part(text, "\\*bold\\* \\[link\\](x)\\\\n\\# heading");
  EXPECT_EQ(count_of("\n" + text, "\n# "), 1u) << "the title alone: " << text;
}

TEST_F(Pages, PutMarginsIntoTenths) {
  const double margins[] = {0, 0.05, 0.1, 0.999, 1, 7, -1, std::nan("")};
  for (size_t i = 0; i < std::size(margins); ++i) result(i).metrics["margin"] = margins[i];
  fail(20, "m");
  result(20).metrics["margin"] = 0.5;
  const auto histograms = margin_histograms(summary());
  ASSERT_EQ(histograms.size(), 1u);
  const MarginHistogram& counts = histograms.at("stream");
  EXPECT_EQ(counts[0], 3u) << "0, 0.05 and what is below 0";
  EXPECT_EQ(counts[1], 1u);
  EXPECT_EQ(counts[9], 1u);
  EXPECT_EQ(counts.back(), 3u) << "1, 7 and no number";
  EXPECT_EQ(counts[5], 0u) << "the margin of a wrong result says nothing";
}

}  // namespace
}  // namespace bp::conformance
