// Tests that CaseFinder finds the cases of the suite without making the whole suite.
#include "conformance/cases/case_list.hpp"

#include <gtest/gtest.h>

#include <map>

namespace bp::conformance {
namespace {

TEST(CaseFinder, FindsEveryCaseOfTheSuiteInItsPart) {
  const CaseList& suite = CaseList::whole_suite();
  CaseFinder finder;
  size_t found = 0;
  for (const Case& which : suite.cases()) {
    const Case* same = finder.find(which.id);
    ASSERT_NE(same, nullptr) << which.id;
    EXPECT_EQ(same->tags, which.tags) << which.id;
    EXPECT_EQ(same->tier, which.tier) << which.id;
    EXPECT_EQ(same->group, which.group) << which.id;
    EXPECT_EQ(same->op, which.op) << which.id;
    EXPECT_EQ(same->dtype, which.dtype) << which.id;
    EXPECT_EQ(same->op_case == nullptr, which.op_case == nullptr) << which.id;
    ++found;
  }
  EXPECT_EQ(found, suite.size());
  EXPECT_GT(found, 10000u);
}

TEST(CaseFinder, FindsNothingForAnotherId) {
  CaseFinder finder;
  EXPECT_EQ(finder.find("op.add.f32.no_such_fill.3.dense"), nullptr);
  EXPECT_EQ(finder.find(""), nullptr);
  EXPECT_NE(finder.find("random.philox_known_answer"), nullptr);
}

TEST(CaseList, OfSomeIdsHasThemAlone) {
  const CaseList list =
      CaseList::of({"stream.destroy_accepts_null", "no.case", "stream.destroy_accepts_null"});
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].id, "stream.destroy_accepts_null");
}

// If an op part lacked a case, the finder would make the whole suite.
TEST(OpParts, HoldTheCasesThatNameThem) {
  const CaseList& suite = CaseList::whole_suite();
  std::map<OpPart, CaseList> made;
  for (const Case& which : suite.cases()) {
    if (which.op == 0 || which.id.starts_with("random.")) continue;
    bool is_found = false;
    for (const OpPart& part : parts_of(which.id)) {
      if (!made.contains(part)) {
        std::vector<Case> cases;
        add_op_part(cases, part);
        made.emplace(part, CaseList(std::move(cases)));
      }
      is_found = is_found || made.at(part).find(which.id) != nullptr;
    }
    EXPECT_TRUE(is_found) << which.id;
  }
}

}  // namespace
}  // namespace bp::conformance
