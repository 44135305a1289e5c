// Tests what every argument frame begins with, and what ops.def says of its members.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "backplane/backend.h"
#include "backplane/ops.h"

#define BP_OP(id, name, since, profile, core_or_decomposable, numerics)                       \
  static_assert(                                                                              \
      offsetof(bp_##name##_args, struct_size) == 0 && offsetof(bp_##name##_args, flags) == 4, \
      "the frame of " #name " begins with struct_size and flags");
#define BP_ARG(op, member, kind, dtype_rule) \
  static_assert(offsetof(bp_##op##_args, member) >= 8, #op "." #member " is in the frame");
#include "backplane/ops.def"
#undef BP_OP
#undef BP_ARG

namespace {

TEST(OpsDef, GivesEachIdAndNameOnce) {
  std::set<int> ids;
  std::set<std::string> names;
#define BP_OP(id, name, since, profile, core_or_decomposable, numerics) \
  EXPECT_TRUE(ids.insert(id).second) << #name;                          \
  EXPECT_TRUE(names.insert(#name).second) << #name;
#define BP_ARG(op, member, kind, dtype_rule)
#include "backplane/ops.def"
#undef BP_OP
#undef BP_ARG
  EXPECT_FALSE(ids.empty());
}

}  // namespace
