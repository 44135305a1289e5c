#include "conformance/cases/selection.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace bp::conformance {
namespace {

Case make_case(const char* id, Tier tier = Tier::kSmoke, const char* dtype = "") {
  Case c;
  c.id = id;
  c.tier = tier;
  c.dtype = dtype;
  c.run = [](Context&) {};
  return c;
}

const CaseList& cases() {
  static const CaseList list({make_case("op.add.f32.dense", Tier::kSmoke, "f32"),
                              make_case("op.add.f64.dense", Tier::kSmoke, "f64"),
                              make_case("op.mul.f32.dense", Tier::kQuick, "f32"),
                              make_case("stream.is_idle"), make_case("stream.is_ordered")});
  return list;
}

std::string select(const SelectionQuery& query) {
  std::vector<std::string> ids;
  for (const size_t index : select_cases(cases(), query)) ids.push_back(cases()[index].id);
  if (!query.shuffle_seed) std::sort(ids.begin(), ids.end());
  std::string text;
  for (const std::string& id : ids) text += id + " ";
  return text;
}

TEST(Selection, TakesAllUpToTheTier) {
  EXPECT_EQ(select({.tier = Tier::kSmoke}),
            "op.add.f32.dense op.add.f64.dense stream.is_idle stream.is_ordered ");
  EXPECT_EQ(select_cases(cases(), {.tier = Tier::kFull}).size(), 5u);
}

TEST(Selection, ReadsPositiveAndNegativeGlobs) {
  EXPECT_EQ(select({.filters = {"op.*:stream.*-*f64*:*ordered"}, .tier = Tier::kFull}),
            "op.add.f32.dense op.mul.f32.dense stream.is_idle ");
  EXPECT_EQ(select({.filters = {"-op.*"}}), "stream.is_idle stream.is_ordered ");
}

TEST(Selection, RefusesAPatternThatMatchesNothing) {
  EXPECT_THROW(select({.filters = {"op.*:nothing*"}}), NothingMatched);
  EXPECT_THROW(select({.filters = {"op.*-nothing*"}}), NothingMatched);
  EXPECT_THROW(select({.regexes = {"nothing"}}), NothingMatched);
  EXPECT_THROW(select({.ids = {"nothing"}}), NothingMatched);
  EXPECT_THROW(select({.excludes = {"nothing"}}), NothingMatched);
  EXPECT_THROW(select({.dtypes = {"f16"}}), NothingMatched);
}

TEST(Selection, SaysWhichTierHasWhatAPatternNames) {
  try {
    select({.filters = {"op.mul.*"}, .tier = Tier::kSmoke});
    FAIL() << "nothing was thrown";
  } catch (const NothingMatched& e) {
    EXPECT_NE(std::string(e.what()).find("--tier quick"), std::string::npos) << e.what();
  }
}

TEST(Selection, TakesANamedCaseAtAnyTierAndOnlyOnce) {
  EXPECT_EQ(select({.ids = {"op.mul.f32.dense"}, .tier = Tier::kSmoke}), "op.mul.f32.dense ");
  EXPECT_THROW(select({.ids = {"stream.is_idle", "stream.is_idle"}}), UsageError);
}

TEST(Selection, RefusesARegularExpressionThatCannotBeRead) {
  EXPECT_THROW(select({.regexes = {"("}}), UsageError);
  EXPECT_EQ(select({.regexes = {"op\\..*f64.*"}}), "op.add.f64.dense ");
}

TEST(Selection, KeepsTheDtypesThatAreAskedFor) {
  EXPECT_EQ(select({.tier = Tier::kFull, .dtypes = {"f64"}}), "op.add.f64.dense ");
}

TEST(Selection, CutsIntoShardsThatCoverAllOnce) {
  std::vector<size_t> all;
  for (uint64_t i = 0; i < 3; ++i) {
    const std::vector<size_t> shard =
        select_cases(cases(), {.tier = Tier::kFull, .shard_index = i, .shard_count = 3});
    all.insert(all.end(), shard.begin(), shard.end());
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, select_cases(cases(), {.tier = Tier::kFull}));
}

TEST(Selection, ShufflesTheSameWayForTheSameSeed) {
  const std::string once = select({.tier = Tier::kFull, .shuffle_seed = 1});
  EXPECT_EQ(once, select({.tier = Tier::kFull, .shuffle_seed = 1}));
  std::set<std::string> orders;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    orders.insert(select({.tier = Tier::kFull, .shuffle_seed = seed}));
  }
  EXPECT_GT(orders.size(), 1u);
}

TEST(CaseList, RefusesTwoCasesOfOneId) {
  EXPECT_THROW(CaseList({make_case("a.b"), make_case("a.b")}), std::logic_error);
}

std::vector<std::string> selected_from(const CaseList& list, const SelectionQuery& query) {
  std::vector<std::string> ids;
  for (const size_t index : select_cases(list, query)) ids.push_back(list[index].id);
  return ids;
}

TEST(CasesFor, MakesTheOpsThatTheGlobsName) {
  const CaseList& whole = CaseList::whole_suite();
  for (const SelectionQuery& query :
       {SelectionQuery{.filters = {"op.relu.*:op.add.f32.*-op.add.f32.*.offset*"}},
        SelectionQuery{.filters = {"op.add.*"}, .excludes = {"op.add.f16.*"}},
        SelectionQuery{.filters = {"stream.*:abi.*"}, .excludes = {"stream.destroy*"}},
        SelectionQuery{.filters = {"op.matmul.*:load.*"}, .shard_index = 1, .shard_count = 3}}) {
    const SharedCases made = cases_for(query);
    EXPECT_LT(made->size(), whole.size() / 10) << query.filters[0];
    EXPECT_EQ(selected_from(*made, query), selected_from(whole, query)) << query.filters[0];
  }
}

TEST(CasesFor, MakesEveryCaseWhoseIdBeginsWithTheWords) {
  std::map<std::string, size_t> counts;
  const auto beginning_of = [](const std::string& id) {
    const size_t first = id.find('.') + 1;
    return id.substr(0, id.starts_with("op.") ? id.find('.', first) + 1 : first);
  };
  for (const Case& which : CaseList::whole_suite().cases()) ++counts[beginning_of(which.id)];
  EXPECT_GT(counts.size(), 200u);
  for (const auto& [beginning, expected] : counts) {
    const SharedCases made = cases_for({.filters = {beginning + "*"}});
    size_t found = 0;
    for (const Case& which : made->cases()) {
      found += beginning_of(which.id) == beginning ? 1 : 0;
    }
    EXPECT_EQ(found, expected) << beginning;
  }
}

TEST(CasesFor, MakesTheWholeSuiteWhereAPatternMayMatchAnyCase) {
  for (const SelectionQuery& query :
       {SelectionQuery{}, SelectionQuery{.filters = {"op.a*"}},
        SelectionQuery{.filters = {"gradient.adjoint.relu_backward.*"}},
        SelectionQuery{.filters = {"op.add.*:str*"}}, SelectionQuery{.filters = {"-op.add.*"}},
        SelectionQuery{.filters = {"op.add.*"}, .regexes = {"op.*"}},
        SelectionQuery{.filters = {"op.add.*"}, .excludes = {"*f16*"}},
        SelectionQuery{.filters = {"op.no_such_op.*"}}}) {
    EXPECT_EQ(cases_for(query).get(), &CaseList::whole_suite());
  }
}

}  // namespace
}  // namespace bp::conformance
