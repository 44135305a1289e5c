// Tests how the nodes of a program are divided into partitions.
#include "backplane/shell/partitions.hpp"

#include <gtest/gtest.h>

#include "backends/shell/test_program.hpp"

namespace bp {
namespace {

constexpr uint32_t kNone = BP_NO_PARTITION;

class PartitionsTest : public ::testing::Test {
 protected:
  std::vector<uint32_t> divided(const std::vector<bool>& is_taken) {
    const Program program(static_cast<const bp_program*>(maker.desc()->data));
    const Partitions seen = partition_nodes(program, is_taken);
    count = seen.count;
    return seen.of_node;
  }

  uint32_t input() { return maker.add_value(BP_VALUE_INPUT); }
  uint32_t temporary() { return maker.add_value(BP_VALUE_TEMPORARY); }
  uint32_t output() { return maker.add_value(BP_VALUE_OUTPUT); }

  ProgramMaker maker;
  uint64_t count = 0;
};

TEST_F(PartitionsTest, NodesThatAreAllTakenAreOnePartition) {
  const uint32_t x = input(), t = temporary(), y = output();
  maker.add_neg(x, t);
  maker.add_add(t, x, y);
  EXPECT_EQ(divided({true, true}), (std::vector<uint32_t>{0, 0}));
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(divided({false, false}), (std::vector<uint32_t>{kNone, kNone}));
  EXPECT_EQ(count, 0u);
}

TEST_F(PartitionsTest, ANodeThatIsNotTakenSeparatesWhatItReadsFromWhatReadsIt) {
  const uint32_t x = input(), t = temporary(), u = temporary(), y = output();
  maker.add_neg(x, t);
  maker.add_neg(t, u);
  maker.add_neg(u, y);
  EXPECT_EQ(divided({true, false, true}), (std::vector<uint32_t>{0, kNone, 1}));
  EXPECT_EQ(count, 2u);
  EXPECT_EQ(divided({false, true, true}), (std::vector<uint32_t>{kNone, 0, 0}))
      << "a stage without nodes has no number";
  EXPECT_EQ(count, 1u);
}

TEST_F(PartitionsTest, ANodeBesideThePathDoesNotSeparate) {
  const uint32_t x = input(), t = temporary(), y = output(), z = output();
  maker.add_neg(x, t);
  maker.add_neg(x, z);
  maker.add_neg(t, y);
  EXPECT_EQ(divided({true, false, true}), (std::vector<uint32_t>{0, kNone, 0}));
}

TEST_F(PartitionsTest, APathMayEndInAPartitionByWayOfASecondNode) {
  const uint32_t x = input(), t = temporary(), u = temporary(), y = output(), z = output();
  maker.add_neg(x, t);     // It is read by both.
  maker.add_neg(t, u);     // It is not taken.
  maker.add_neg(t, z);     // It joins the first.
  maker.add_add(t, u, y);  // It waits for the second.
  EXPECT_EQ(divided({true, false, true, true}), (std::vector<uint32_t>{0, kNone, 0, 1}));
}

TEST_F(PartitionsTest, AnOverwrittenValueWaitsForItsReaders) {
  const uint32_t x = input(), t = output(), y = output();
  maker.add_neg(x, t);
  maker.add_neg(t, y);  // It is not taken, and reads t.
  maker.add_neg(x, t);  // It writes t again.
  EXPECT_EQ(divided({true, false, true}), (std::vector<uint32_t>{0, kNone, 1}));
}

}  // namespace
}  // namespace bp
