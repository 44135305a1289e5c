#include "conformance/perf/perf_list.hpp"

#include <gtest/gtest.h>

#include <set>

#include "conformance/perf/cache_size.hpp"
#include "conformance/perf/call_sets.hpp"
#include "conformance/perf/ceilings.hpp"
#include "conformance/perf/rows.hpp"

namespace bp::conformance {
namespace {

TEST(PerfList, HasEveryRowAsALegalCallOfItsOwn) {
  const CaseList cases = perf_cases({});  // Throws if a row makes no legal call.
  EXPECT_GE(cases.size(), 60U);
  for (const Case& each : cases.cases()) EXPECT_TRUE(each.id.starts_with(kPerfPrefix)) << each.id;
  EXPECT_NE(cases.find("perf.ceiling.copy"), nullptr);
}

TEST(PerfList, HasDataThatDifferBetweenItsTwoGroups) {
  for (const PerfCall& call : perf_calls()) {
    for (const TensorArgument& argument : call.op_case.tensors) {
      if (argument.role == Role::kOutput) continue;
      const bool is_drawn =
          argument.fill.kind == FillKind::kUniform || argument.fill.kind == FillKind::kIndex;
      EXPECT_TRUE(is_drawn) << call.id << ": " << argument.name;
    }
  }
}

TEST(PerfList, KeepsIndicesInsideOfWhatTheyName) {
  for (const PerfCall& call : perf_calls()) {
    for (const TensorArgument& argument : call.op_case.tensors) {
      if (argument.fill.kind != FillKind::kIndex) continue;
      EXPECT_GE(argument.fill.high, 2) << call.id;
    }
  }
}

TEST(PerfList, HasCallsThatOutgrowALaunch) {
  for (const PerfCall& call : perf_calls()) {
    EXPECT_GE(CallSets::size_bytes(call.op_case), 512u << 10) << call.id;
    EXPECT_LE(CallSets::size_bytes(call.op_case), 64u << 20) << call.id;
  }
}

TEST(CacheSize, IsReadWithItsUnit) {
  EXPECT_EQ(parse_size("512"), 512U);
  EXPECT_EQ(parse_size("32768K"), 32u << 20);
  EXPECT_EQ(parse_size("50M"), 50u << 20);
  EXPECT_EQ(parse_size("1G"), 1u << 30);
  for (const char* wrong : {"", "0", "-1", "M", "1T", "5 M", "99999999999999999999", "2000G"}) {
    EXPECT_EQ(parse_size(wrong), 0U) << wrong;
  }
}

TEST(CacheSize, OfADeviceThatIsNoHostIsAnUpperBound) {
  EXPECT_EQ(cache_size_of({{"class", "discrete"}}).bytes, 256u << 20);
  EXPECT_GT(cache_size_of({{"class", "host"}}).bytes, 0U);
}

}  // namespace
}  // namespace bp::conformance
