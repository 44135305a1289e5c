#include "conformance/report/coverage.hpp"

#include <gtest/gtest.h>

#include <sstream>

#include "conformance/cases/engine/op_case.hpp"

namespace bp::conformance {
namespace {

Case op_case(const std::string& id, const std::string& dtype, const Shape& shape, Layout layout) {
  OpCase row = make_case(BP_OP_ADD, BP_F32, "random", "x", "dense");
  row.input("a", BP_F32, shape, kRandom, layout).input("b", BP_F32, shape, kRandom);
  row.output("y", BP_F32, shape);
  Case made;
  made.id = id;
  made.op = BP_OP_ADD;
  made.dtype = dtype;
  made.run = [](Context&) {};
  made.op_case = std::make_shared<const OpCase>(std::move(row));
  return made;
}

TEST(Coverage, NamesTheLeastUsualLayoutOfACase) {
  const auto layout_of = [](const Shape& shape, Layout layout) {
    return layout_class_of(op_case("x", "f32", shape, layout));
  };
  EXPECT_EQ(layout_of({3, 4}, Layout::kDense), "dense");
  EXPECT_EQ(layout_of({3, 4}, Layout::kTransposed), "permute");
  EXPECT_EQ(layout_of({1, 4}, Layout::kTransposed), "dense");
  EXPECT_EQ(layout_of({3, 4}, Layout::kSliced), "gaps");
  EXPECT_EQ(layout_of({3, 4}, Layout::kStepped), "strided");
  EXPECT_EQ(layout_of({3, 4}, Layout::kNegative), "strided");
  EXPECT_EQ(layout_of({3, 4}, Layout::kBroadcastLast), "bcast");
  EXPECT_EQ(layout_of({3, 4}, Layout::kOffset), "offset");
  EXPECT_EQ(layout_of({3, 0}, Layout::kTransposed), "empty");
  EXPECT_EQ(layout_of({}, Layout::kDense), "dense");
  EXPECT_EQ(rank_of(op_case("x", "f32", {1, 1, 2}, Layout::kDense)), 3u);
  EXPECT_EQ(layout_class_of(Case{}), "");
}

class Coverages : public testing::Test {
 protected:
  Coverage coverage_of(const std::vector<std::pair<Case, Outcome>>& results) {
    std::vector<Case> all;
    all.reserve(results.size());
    for (const auto& [which, outcome] : results) all.push_back(which);
    cases_.emplace(std::move(all));
    Summary summary;
    for (const auto& [which, outcome] : results) {
      Judged& judged = summary.judged.emplace_back();
      judged.which = cases_->find(which.id);
      judged.result.outcome = outcome;
    }
    return Coverage(summary);
  }

  std::optional<CaseList> cases_;
};

TEST_F(Coverages, ShowTheWorstOfACellAndHowOftenItIs) {
  const Coverage coverage =
      coverage_of({{op_case("1", "f32", {2}, Layout::kDense), Outcome::kPass},
                   {op_case("2", "f32", {3}, Layout::kDense), Outcome::kFail},
                   {op_case("3", "f32", {3}, Layout::kOffset), Outcome::kNotSupported},
                   {op_case("4", "f32", {3}, Layout::kStepped), Outcome::kTimeout},
                   {op_case("5", "f32", {0}, Layout::kDense), Outcome::kFallback}});
  const std::string text = coverage.text(false);
  std::istringstream words(text.substr(text.find("add f32") + 7));
  for (const char* expected : {"W1/2", ".", ".", ".", "C1", "-", "F1", ".", "native"}) {
    std::string word;
    words >> word;
    EXPECT_EQ(word, expected) << text;
  }
  EXPECT_EQ(coverage.totals_text(), "5 cases: 1 native, 1 fallback, 1 refused, 1 wrong, 1 crash\n");
  EXPECT_EQ(coverage.json().at("cells").size(), 4u);
  EXPECT_EQ(coverage.json().at("total").at("crash"), 1u);
}

TEST_F(Coverages, JoinDtypesThatAreServedAlikeAndFitTheirWidth) {
  std::vector<std::pair<Case, Outcome>> results;
  for (const char* dtype : {"f16", "f32", "f64", "i16", "i32", "i64", "bf16", "bool"}) {
    results.emplace_back(op_case(dtype, dtype, {2, 2}, Layout::kDense), Outcome::kPass);
  }
  results.emplace_back(op_case("u8", "u8", {2, 2}, Layout::kDense), Outcome::kMissing);
  const std::string text = coverage_of(results).text(true);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  EXPECT_NE(text.find("f16 f32 f64 i16 i32 i64 bf16 bool"), std::string::npos) << text;
  EXPECT_NE(text.find("u8"), std::string::npos);
  EXPECT_NE(text.find("M1"), std::string::npos);
}

}  // namespace
}  // namespace bp::conformance
