// The verbs that show what there is: list, info, explain, coverage, perf --list and selftest, over
// workers that behave as a script says (scripted_worker.hpp).
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "backplane/ops.h"
#include "conformance/tags.hpp"
#include "conformance/tests/verbs_fixture.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;

// A target with one kernel of `op`, which claims these pairs of dtypes.
json target_with(const char* op, const json& dtype_rows, bool claims_every_dtype = false) {
  const json numerics = {{"accumulator", "default"},   {"products", "native"},
                         {"rounding", "nearest_even"}, {"overflow", "ieee"},
                         {"math", "strict"},           {"tie", "first"},
                         {"accumulator_bits", 0},      {"flush", json::array()}};
  const json kernel = {{"op", op},
                       {"name", "it"},
                       {"claims_every_dtype", claims_every_dtype},
                       {"dtype_rows", dtype_rows},
                       {"layouts", {"dense", "strided"}},
                       {"flags", json::array()},
                       {"numerics", numerics}};
  const json heap = {{"size_bytes", 1024}, {"max_allocation_bytes", 512}, {"flags", {"device"}}};
  return {{"name", "acme.npu:0"},         {"device", "NPU"},
          {"dtypes", {"f32", "i64"}},     {"profiles", json::array()},
          {"heaps", json::array({heap})}, {"kernels", json::array({kernel})}};
}

// A worker that describes these targets.
std::string plugin_with(const json& targets, const json& more = json::object()) {
  json hello = {{"plugin", {{"name", "acme.npu"}, {"version", "1"}}}, {"target", 0}};
  hello["targets"] = targets;
  hello.update(more);
  return "hello:" + json_text(hello);
}

using Inspection = Verbs;

// ---- Claims ---------------------------------------------------------------------------------- //

TEST(Claims, BelongToAnOpAndOneOfItsDtypes) {
  const json target = target_with("embedding", json::parse(R"([["i64","f32"],["i64","f16"]])"));
  const auto claims = [&](uint32_t op, const char* dtype) {
    Case which;
    which.op = op;
    which.dtype = dtype;
    return is_claimed(which, target);
  };
  EXPECT_TRUE(claims(BP_OP_EMBEDDING, "f16")) << "in any place of a row";
  EXPECT_TRUE(claims(BP_OP_EMBEDDING, "")) << "of a case without a dtype";
  EXPECT_FALSE(claims(BP_OP_EMBEDDING, "f64"));
  EXPECT_FALSE(claims(BP_OP_ADD, "f32"));
  EXPECT_FALSE(claims(99999, "f32")) << "there is no such op";
  EXPECT_TRUE(claims(0, "f32")) << "the tables belong to every backend";
  Case which;
  which.op = BP_OP_COPY;
  which.dtype = "bool";
  EXPECT_TRUE(is_claimed(which, target_with("copy", json::array(), true)));
  EXPECT_FALSE(is_claimed(which, target_with("copy", json::array())));
}

// ---- list ------------------------------------------------------------------------------------ //

TEST_F(Inspection, ListMarksWhatTheBackendClaims) {
  const std::string plugin = plugin_with(json::array({target_with("add", {{"f32"}})}));
  const std::string claimed = "op.add.f32.random.17.dense", other = "op.add.f64.random.17.dense";
  EXPECT_EQ(
      call(list_verb, {"list", plugin, "--case", claimed, "--case", other, "--case", kStreamCase}),
      kExitOk);
  EXPECT_EQ(printed_, "+ " + claimed + "\n- " + other + "\n+ " + kStreamCase + "\n");
  call(list_verb, {"list", plugin, "--case", claimed, "--case", kStreamCase, "--json"});
  const json all = json::parse(printed_);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].at("op"), "add");
  EXPECT_EQ(all[0].at("dtype"), "f32");
  EXPECT_EQ(all[0].at("is_claimed"), true);
  EXPECT_FALSE(all[1].contains("op") || all[1].contains("dtype"));
}

TEST_F(Inspection, ListCountsTheIdsBelowEachPart) {
  call(list_verb, {"list", "--tree", "--case", "op.add.f32.random.17.dense", "--case",
                   "op.add.f64.random.17.dense", "--case", kStreamCase});
  EXPECT_EQ(printed_, "op  2\n  add  2\n    f32  1\n    f64  1\nstream  1\n")
      << "at most three parts are shown";
}

// ---- explain --------------------------------------------------------------------------------- //

TEST_F(Inspection, ExplainTakesATagInAnyCaseAndListsTwentyCases) {
  EXPECT_EQ(call(explain_verb, {"explain", "kernel-8"}), kExitOk);
  EXPECT_TRUE(printed_.starts_with("[KERNEL-8] ")) << printed_;
  EXPECT_TRUE(has_printed("\n  ... and ")) << printed_;
  EXPECT_EQ(lines_in(printed_), 23u) << printed_;
}

TEST_F(Inspection, ExplainKnowsTheTagsOfEveryCase) {
  std::set<std::string_view> known, missing;
  for (const TagRow& row : tag_rows()) known.insert(row.tag);
  const CaseList& suite = CaseList::whole_suite();
  for (const Case& each : suite.cases()) {
    for (const std::string_view tag : each.tags) {
      if (!known.contains(tag)) missing.insert(tag);
    }
  }
  EXPECT_EQ(missing, std::set<std::string_view>());
}

TEST_F(Inspection, ExplainNamesTheTagsOfTheSameNoun) {
  const std::string near = error_of<NothingMatched>(explain_verb, {"explain", "Stream-999"});
  EXPECT_TRUE(near.starts_with("explain Stream-999: no header has this tag; there are STREAM-"))
      << near;
  EXPECT_EQ(near.find("KERNEL-"), std::string::npos) << near;
  EXPECT_EQ(
      error_of<NothingMatched>(explain_verb, {"explain", "nothing"}),
      "explain nothing: this is no tag (STREAM-3), op (softmax), class of errors (R1), status "
      "(BP_TIMEOUT), outcome (Missing) or cause (stride)");
}

TEST_F(Inspection, ExplainDescribesAnOp) {
  call(explain_verb, {"explain", "Softmax"});
  EXPECT_TRUE(printed_.starts_with("op softmax: ")) << printed_;
  for (const char* part : {"\n  x: tensor; dtype ", "\n  y: output", "\n  axis: i32", "cases\n  ",
                           "class of errors R4; bp-conformance explain R4\n", "gradient\n"}) {
    EXPECT_TRUE(has_printed(part)) << part << " is not in\n" << printed_;
  }
}

TEST_F(Inspection, ExplainReadsTheRowsOfThePages) {
  call(explain_verb, {"explain", "r1"});
  EXPECT_TRUE(printed_.starts_with("class of errors R1, from conformance/docs/")) << printed_;
  EXPECT_TRUE(has_printed("B = S * (m + ")) << "the section of the class follows\n" << printed_;
  for (const char* word : {"BP_DATA_FAILURE", "data_failure"}) {
    call(explain_verb, {"explain", word});
    EXPECT_TRUE(printed_.starts_with("status BP_DATA_FAILURE, from api/docs/errors.md\n  means: "))
        << printed_;
  }
  call(explain_verb, {"explain", "missing"});
  EXPECT_TRUE(printed_.starts_with("outcome Missing, ")) << printed_;
  EXPECT_TRUE(has_printed("\ncause missing, ")) << "both meanings are printed\n" << printed_;
}

TEST_F(Inspection, ExplainKnowsEveryOutcome) {
  for (int i = 0; i <= static_cast<int>(Outcome::kHarnessError); ++i) {
    const std::string name = outcome_name(static_cast<Outcome>(i));
    EXPECT_EQ(call(explain_verb, {"explain", name}), kExitOk);
    EXPECT_TRUE(has_printed("outcome " + name + ", ")) << printed_;
  }
}

// ---- info ------------------------------------------------------------------------------------ //

// The beginning of a row of the table of kernels.
std::string row(const std::string& dtypes) {
  return "    it" + std::string(28, ' ') + dtypes + std::string(62 - dtypes.size(), ' ');
}

TEST_F(Inspection, InfoShowsOnlyWhatDiffersFromTheStrictestNumerics) {
  json target = target_with("matmul", json::parse(R"([["f32","f16"]])"));
  const auto shown = [&] {
    EXPECT_EQ(call(info_verb, {"info", plugin_with(json::array({target}))}), kExitOk);
    return printed_;
  };
  EXPECT_NE(shown().find(row("f32/f16") + "dense|strided\n"), std::string::npos) << printed_;
  json& kernel = target["kernels"][0];
  kernel["numerics"]["accumulator"] = "f32";
  kernel["numerics"]["accumulator_bits"] = 22;
  kernel["numerics"]["flush"] = {"inputs", "outputs"};
  kernel["layouts"] = json::array();
  kernel["claims_every_dtype"] = true;
  kernel["max_rank"] = 8;
  kernel["refuses_some"] = true;
  kernel["flags"] = {"takes_scalar", "in_place"};
  EXPECT_NE(shown().find(row("every dtype") +
                         "no layout  rank<=8  takes_scalar|in_place  refuses some "
                         "accumulator=f32 accumulator_bits=22 flush=inputs+outputs\n"),
            std::string::npos)
      << printed_;
}

TEST_F(Inspection, InfoFoldsRowsOfDtypesAndBreaksTheirLines) {
  json rows = json::array();
  for (const char* x : {"f32", "f16"}) {
    for (const char* y : {"i32", "i64"}) rows.push_back({x, y});
  }
  for (int i = 0; i < 100; ++i) rows.push_back({"f" + std::to_string(100 + i)});
  call(info_verb, {"info", plugin_with(json::array({target_with("copy", rows)}))});
  EXPECT_NE(printed_.find("f32/i32|i64 f16/i32|i64 f100 "), std::string::npos) << printed_;
  size_t longest = 0;
  for (size_t at = printed_.find("f32/i32"), end;
       (end = printed_.find('\n', at)) != std::string::npos; at = end + 1) {
    longest = std::max(longest, end - at);
  }
  EXPECT_LE(longest, 100u);
}

TEST_F(Inspection, InfoShowsWhatWasFoundAtLoadAndUnload) {
  const json more = {{"log", {"a warning\nof two lines"}}, {"findings", {"the locale changed"}}};
  call(info_verb, {"info", plugin_with(json::array({target_with("add", {{"f32"}})}), more)});
  EXPECT_TRUE(has_printed("  warning: a warning\\nof two lines\n")) << printed_;
  EXPECT_TRUE(has_printed("  finding: while loading, the locale changed\n")) << printed_;
  EXPECT_EQ(call(info_verb, {"info", "bye_exit:9"}), kExitOk);
  EXPECT_TRUE(has_printed("  finding: the process exited with code 9 after unloading\n"))
      << printed_;
}

TEST_F(Inspection, InfoGivesOneLineForWhatDoesNotLoad) {
  EXPECT_EQ(call(info_verb, {"info", R"(hello:{"error":"a\nb"})"}), kExitNotLoaded);
  EXPECT_EQ(printed_, "");
  ASSERT_EQ(complaints().size(), 1u);
  EXPECT_EQ(lines_in(complaints()[0]), 0u) << complaints()[0];
}

// ---- Declarations ---------------------------------------------------------------------------- //

TEST_F(Inspection, DeclarationsShowWhatAProbeContradicts) {
  const auto probe = [](const char* subject, const char* field, const char* declared,
                        const char* probed, const char* status) {
    return json{{"kernel_of", subject}, {"field", field},   {"declared", declared},
                {"probed", probed},     {"status", status}, {"message", "it sums\nin f16"}};
  };
  const auto shown = [](const json& probes) {
    testing::internal::CaptureStdout();
    print_declarations(probes);
    return testing::internal::GetCapturedStdout();
  };
  EXPECT_EQ(shown(json::array()), "");
  EXPECT_EQ(shown(json::array({probe("add.f32", "acc", "", "", "NotSupported")})), "")
      << "nothing was declared";
  EXPECT_EQ(shown(json::array({probe("matmul.f32", "acc", "f32", "f16", "Fail"),
                               probe("add.f32", "math", "strict", "strict", "Pass"),
                               probe("matmul.f32", "tie", "first", "first", "Pass")})),
            "\ndeclared numerics, as probed\n"
            "  add.f32  math=strict\n"
            "  matmul.f32  acc=f32 (probed f16)  tie=first\n"
            "  finding: matmul.f32: it sums\n    in f16\n");
}

// ---- coverage -------------------------------------------------------------------------------- //

TEST_F(Inspection, CoverageCountsCallsOfOpsAlone) {
  const std::string id = "op.add.f32.random.17.dense";
  EXPECT_EQ(call(coverage_verb, {"coverage", "well", "--case", id, "--case", kStreamCase, "--json",
                                 at("c.json"), "--option", id + "=fail:values"}),
            kExitFailures);
  EXPECT_TRUE(has_printed("W")) << printed_;
  const json file = document("c.json");
  EXPECT_EQ(file.at("plugin").at("name"), "acme.npu");
  EXPECT_EQ(file.at("tier"), "quick");
  EXPECT_EQ(error_of<NothingMatched>(coverage_verb, {"coverage", "well", "--case", kStreamCase}),
            "no selected case is a call of an op");
}

// ---- perf ------------------------------------------------------------------------------------ //

TEST_F(Inspection, PerfMeasuresTheCeilingsThatTheCallsNeed) {
  const auto has_line = [&](const std::string& id) { return has_printed(id + "\n"); };
  EXPECT_EQ(call(perf_verb, {"perf", "well", "--list", "-k", "perf.matmul.*.f16"}), kExitOk);
  EXPECT_TRUE(has_line("perf.ceiling.matmul.f16")) << printed_;
  EXPECT_FALSE(has_line("perf.ceiling.matmul.f32")) << printed_;
  EXPECT_TRUE(has_line("perf.ceiling.copy") && has_line("perf.ceiling.launch")) << printed_;
  EXPECT_GT(printed_.find("perf.matmul."), printed_.rfind("perf.ceiling.")) << "ceilings first";
  call(perf_verb, {"perf", "well", "--list", "-k", "perf.relu.*.f32"});
  EXPECT_FALSE(has_printed("perf.ceiling.matmul.")) << "nothing is a product: " << printed_;
  call(perf_verb, {"perf", "well", "--list", "-k", "perf.ceiling.matmul.f64"});
  EXPECT_TRUE(has_line("perf.ceiling.matmul.f64")) << "it was asked for: " << printed_;
}

TEST_F(Inspection, PerfReadsItsBaselineBeforeItMeasures) {
  const auto refusal = [&](const std::string& path) {
    return error_of<UsageError>(perf_verb, {"perf", "no_hello:3", "--baseline", path});
  };
  EXPECT_TRUE(refusal(at("none")).starts_with("--baseline: " + at("none")));
  EXPECT_TRUE(refusal(write("x.json", "{}")).ends_with("it has no schema"));
  const std::string other =
      write("other.json", R"({"schema":1,"cases":[],"plugin":{"name":"other.npu"}})");
  EXPECT_TRUE(error_of<UsageError>(perf_verb, {"perf", "well", "--baseline", other, "--out",
                                               at("out"), "-k", "perf.relu.*.f32"})
                  .ends_with("; such figures do not compare"));
  EXPECT_FALSE(has("out")) << "nothing was measured";
}

// ---- selftest -------------------------------------------------------------------------------- //

TEST_F(Inspection, SelftestFailsWhereAMutantSurvives) {
  const std::string wrapped = write("good.so", "");
  const Words words = {"selftest", wrapped,  "--mutants",  "well",
                       "--quiet",  "--json", at("m.json"), "--mutant"};
  const auto selftest = [&](const char* mutant) {
    Words all = words;
    all.emplace_back(mutant);
    return call(selftest_verb, all);
  };
  EXPECT_EQ(selftest("2"), kExitFailures) << "every case passes, so that none finds the mutant";
  EXPECT_TRUE(has_printed("SURVIVED")) << printed_;
  EXPECT_TRUE(has_printed("1 mutants, 1 judged wrongly\n")) << printed_;
  EXPECT_EQ(document("m.json")[0].at("verdict"), "SURVIVED");
  EXPECT_GT(document("m.json")[0].at("cases"), 0);
  EXPECT_EQ(selftest("benign_guard"), kExitOk);
  EXPECT_EQ(document("m.json")[0].at("verdict"), "passed");
}

TEST_F(Inspection, SelftestDrawsCasesOfBenignMutants) {
  const std::string wrapped = write("good.so", "");
  const auto cases_of = [&](const char* mutant, const char* count, const char* seed) {
    call(selftest_verb, {"selftest", wrapped, "--mutants", "well", "--quiet", "--json",
                         at("m.json"), "--mutant", mutant, "--sample", count, "--seed", seed});
    return document("m.json")[0].at("cases").get<size_t>();
  };
  EXPECT_EQ(cases_of("benign_welford", "3", "9"), 3u);
  EXPECT_TRUE(has_printed("A benign mutant met at most 3 of its cases, drawn by seed 9.\n"))
      << printed_;
  const size_t all = cases_of("benign_guard", "100000", "9");
  EXPECT_GT(all, 3u) << "a sample is at most all cases";
  EXPECT_LT(all, 100u);
  EXPECT_GT(cases_of("2", "3", "9"), 3u) << "a mutant that must be found meets all its cases";
}

// The parts together are all mutants, and each mutant of a part meets all its cases.
TEST_F(Inspection, SelftestRunsAPartOfTheMutants) {
  const std::string wrapped = write("good.so", "");
  std::vector<std::string> all, parts;
  const auto run = [&](std::vector<std::string> more, std::vector<std::string>& names) {
    std::vector<std::string> words{"selftest", wrapped,      "--mutants", "well",       "--quiet",
                                   "--json",   at("m.json"), "--mutant",  "benign_any*"};
    words.insert(words.end(), more.begin(), more.end());
    call(selftest_verb, words);
    for (const auto& row : document("m.json")) {
      names.push_back(row.at("mutant").get<std::string>() + " " + row.at("cases").dump());
    }
  };
  run({"--sample", "3"}, all);
  run({"--sample", "3", "--shard", "1/2"}, parts);
  EXPECT_TRUE(has_printed("They are part 1 of 2 of the mutants.\n")) << printed_;
  EXPECT_EQ(all.size(), 2u);
  EXPECT_EQ(parts.size(), 1u);
  run({"--sample", "3", "--shard", "2/2"}, parts);
  std::ranges::sort(all);
  std::ranges::sort(parts);
  EXPECT_EQ(parts, all);
  EXPECT_EQ(error_of<NothingMatched>(selftest_verb, {"selftest", wrapped, "--mutants", "well",
                                                     "--mutant", "2", "--shard", "2/2"}),
            "part 2 of 2 of 1 mutants is empty");
}

TEST_F(Inspection, SelftestWrapsAFileAndLoadsEveryMutant) {
  EXPECT_EQ(error_of<UsageError>(selftest_verb, {"selftest", at("none.so"), "--mutants", "well"}),
            "selftest wraps a plugin by its path: there is no file '" + at("none.so") + "'");
  EXPECT_EQ(error_of<UsageError>(selftest_verb, {"selftest", write("good.so", ""), "--mutants",
                                                 "no_hello:3", "--mutant", "2", "--quiet"}),
            "mutant 2 does not load");
}

TEST_F(Inspection, SelftestRunsTheFaultsThatAreNamed) {
  const std::string wrapped = write("good.so", "");
  const Words words = {"selftest",       wrapped,   "--mutants",
                       "well",           "--quiet", "--json",
                       at("drawn.json"), "--fault", "add/f32/element/always/small/1"};
  EXPECT_EQ(call(selftest_verb, words), kExitOk);
  EXPECT_TRUE(has_printed("condition not met: 1\n  add/f32/element/always/small/1\n")) << printed_;
  const json document_of_run = document("drawn.json");
  EXPECT_EQ(document_of_run.at("tier"), "smoke");
  const json& mutant = document_of_run.at("mutants").at(0);
  EXPECT_EQ(mutant.at("fate"), "condition not met") << "the worker met no mutant";
  EXPECT_EQ(mutant.at("family"), "values");
  EXPECT_GT(mutant.at("cases"), 100) << "the cases of the op";
}

TEST_F(Inspection, SelftestRefusesFaultsAndFamiliesThatDoNotExist) {
  const std::string wrapped = write("good.so", "");
  const auto refusal = [&](const char* flag, const char* value) {
    return error_of<UsageError>(selftest_verb, {"selftest", wrapped, "--mutants", "well", "--quiet",
                                                "--random", "1", flag, value});
  };
  EXPECT_TRUE(refusal("--fault", "add/f32").starts_with("--fault is 'add/f32'; allowed: "));
  EXPECT_TRUE(refusal("--fault", "nothing/f32/element/always/small/1").starts_with("--fault is "));
  EXPECT_TRUE(refusal("--only", "colours").starts_with("--only is 'colours'; allowed: values, "));
}

}  // namespace
}  // namespace bp::conformance
