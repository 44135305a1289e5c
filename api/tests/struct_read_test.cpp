// bp_struct_read and bp_abi_is_served: the only code in the headers.
#include <gtest/gtest.h>

#include "backplane/backend.h"

namespace {

// bp_stream_desc as a later release may have it.
struct LaterDesc {
  bp_stream_desc known;
  uint64_t appended;
};

constexpr uint32_t kFirst = sizeof(bp_stream_desc);

TEST(StructRead, TakesOurOwnSize) {
  const bp_stream_desc theirs{sizeof(bp_stream_desc), BP_STRUCT_STREAM_DESC, nullptr, 0, 7};
  bp_stream_desc ours{};
  uint32_t offset = 99;
  EXPECT_EQ(bp_struct_read(&theirs, kFirst, &ours, sizeof(ours), &offset), BP_OK);
  EXPECT_EQ(ours.priority, 7);
  EXPECT_EQ(offset, 99u);
}

TEST(StructRead, RefusesLessThanTheFirstRelease) {
  const bp_stream_desc theirs{16, BP_STRUCT_STREAM_DESC, nullptr, 0, 7};
  bp_stream_desc ours{};
  uint32_t offset = 0;
  EXPECT_EQ(bp_struct_read(&theirs, kFirst, &ours, sizeof(ours), &offset), BP_INCOMPATIBLE);
  EXPECT_EQ(offset, 16u);
  EXPECT_EQ(ours.struct_size, 0u) << "nothing is written on failure";
}

TEST(StructRead, FillsMembersOfALaterReleaseWithZero) {
  const bp_stream_desc theirs{sizeof(bp_stream_desc), BP_STRUCT_STREAM_DESC, nullptr, 0, 7};
  LaterDesc ours{{}, 5};
  EXPECT_EQ(bp_struct_read(&theirs, kFirst, &ours, sizeof(ours), nullptr), BP_OK);
  EXPECT_EQ(ours.known.priority, 7);
  EXPECT_EQ(ours.appended, 0u);
  EXPECT_EQ(ours.known.struct_size, sizeof(LaterDesc));
}

TEST(StructRead, IgnoresTheTailOfAnOfferAndRefusesThatOfARequestUnlessItIsZero) {
  LaterDesc theirs{{sizeof(LaterDesc), BP_STRUCT_STREAM_DESC, nullptr, 0, 7}, 0};
  bp_stream_desc ours{};
  uint32_t offset = 0;
  EXPECT_EQ(bp_struct_read(&theirs, kFirst, &ours, sizeof(ours), &offset), BP_OK);
  theirs.appended = 1;
  EXPECT_EQ(bp_struct_read(&theirs, kFirst, &ours, sizeof(ours), nullptr), BP_OK);
  EXPECT_EQ(bp_struct_read(&theirs, kFirst, &ours, sizeof(ours), &offset), BP_INCOMPATIBLE);
  EXPECT_EQ(offset, offsetof(LaterDesc, appended));
}

bp_entry_request request(uint32_t major_min, uint32_t major_max, uint32_t minor_min,
                         uint32_t minor) {
  return {sizeof(bp_entry_request),
          BP_STRUCT_ENTRY_REQUEST,
          nullptr,
          major_min,
          major_max,
          minor,
          minor_min,
          nullptr};
}

TEST(AbiIsServed, ComparesRangesInBothDirections) {
  const uint32_t major = BP_ABI_MAJOR, minor = BP_ABI_MINOR;
  const bp_entry_request same = request(major, major, minor, minor);
  EXPECT_TRUE(bp_abi_is_served(&same));
  const bp_entry_request newer_host = request(major, major, minor, minor + 3);
  EXPECT_TRUE(bp_abi_is_served(&newer_host));
  const bp_entry_request dropped = request(major, major, minor + 1, minor + 3);
  EXPECT_FALSE(bp_abi_is_served(&dropped));
  const bp_entry_request foreign = request(major + 1, major + 2, 0, 0);
  EXPECT_FALSE(bp_abi_is_served(&foreign));
}

}  // namespace
