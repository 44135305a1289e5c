// Tests the functions that the headers define: those that read structs and links, and
// bp_abi_is_served.
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

TEST(StructRead, SkipsLinksExceptThoseThatMustBeUnderstood) {
  const bp_struct_header last{sizeof(last), 77 | BP_STRUCT_MUST_UNDERSTAND, nullptr};
  bp_struct_header first{sizeof(first), 78, nullptr};
  const bp_stream_desc theirs{sizeof(bp_stream_desc), BP_STRUCT_STREAM_DESC, &first, 0, 7};
  bp_stream_desc ours{};
  uint32_t offset = 99;
  EXPECT_EQ(bp_struct_read(&theirs, kFirst, &ours, sizeof(ours), &offset), BP_OK);
  EXPECT_EQ(offset, 99u);
  ours = {};
  first.next = &last;
  EXPECT_EQ(bp_struct_read(&theirs, kFirst, &ours, sizeof(ours), &offset), BP_INCOMPATIBLE);
  EXPECT_EQ(offset, offsetof(bp_stream_desc, next));
  EXPECT_EQ(bp_struct_read(&theirs, kFirst, &ours, sizeof(ours), nullptr), BP_INCOMPATIBLE);
  EXPECT_EQ(ours.struct_size, 0u) << "nothing is written on failure";
}

TEST(StructRead, TakesTheLinksThatItsReaderKnows) {
  bp_struct_header last{sizeof(last), 77 | BP_STRUCT_MUST_UNDERSTAND, nullptr};
  const bp_struct_header first{sizeof(first), 78, &last};
  const bp_stream_desc theirs{sizeof(bp_stream_desc), BP_STRUCT_STREAM_DESC, &first, 0, 7};
  const uint32_t known[] = {76, 77};
  bp_stream_desc ours{};
  uint32_t offset = 99;
  EXPECT_EQ(bp_struct_read_linked(&theirs, kFirst, &ours, sizeof(ours), known, 2, &offset), BP_OK);
  EXPECT_EQ(ours.next, &first) << "the reader finds its links there";
  EXPECT_EQ(offset, 99u);
  EXPECT_EQ(bp_struct_read_linked(&theirs, kFirst, &ours, sizeof(ours), known, 1, &offset),
            BP_INCOMPATIBLE);
  EXPECT_EQ(offset, offsetof(bp_stream_desc, next));
  EXPECT_EQ(bp_struct_read_linked(&theirs, kFirst, &ours, sizeof(ours), nullptr, 1, nullptr),
            BP_INVALID_ARGUMENT);
  last.next = &first;
  EXPECT_EQ(bp_struct_read_linked(&theirs, kFirst, &ours, sizeof(ours), known, 2, &offset),
            BP_INCOMPATIBLE)
      << "the chain does not end";
}

TEST(LinksRead, LooksAtTheWholeChain) {
  EXPECT_EQ(bp_links_read(nullptr, nullptr, 0), BP_OK);
  const uint32_t known = 77;
  EXPECT_EQ(bp_links_read(nullptr, nullptr, 1), BP_INVALID_ARGUMENT);
  bp_struct_header last{sizeof(last), 77, nullptr};
  const bp_struct_header first{sizeof(first), 78, &last};
  EXPECT_EQ(bp_links_read(&first, nullptr, 0), BP_OK);
  last.struct_type |= BP_STRUCT_MUST_UNDERSTAND;
  EXPECT_EQ(bp_links_read(&first, nullptr, 0), BP_INCOMPATIBLE);
  EXPECT_EQ(bp_links_read(&first, &known, 1), BP_OK);
}

TEST(LinkFind, FindsTheFirstLinkOfAType) {
  const bp_struct_header last{sizeof(last), 77 | BP_STRUCT_MUST_UNDERSTAND, nullptr};
  const bp_struct_header second{sizeof(second), 77, &last};
  const bp_struct_header first{sizeof(first), 78, &second};
  EXPECT_EQ(bp_link_find(&first, 77), &second);
  EXPECT_EQ(bp_link_find(&last, 77), &last);
  EXPECT_EQ(bp_link_find(&first, 79), nullptr);
  EXPECT_EQ(bp_link_find(nullptr, 77), nullptr);
}

constexpr bp_host kHost{sizeof(bp_host), BP_STRUCT_HOST};

bp_entry_request request(uint32_t major_min, uint32_t major_max, uint32_t minor_min,
                         uint32_t minor) {
  return {sizeof(bp_entry_request),
          BP_STRUCT_ENTRY_REQUEST,
          nullptr,
          major_min,
          major_max,
          minor,
          minor_min,
          &kHost};
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

TEST(AbiIsServed, IsNeverABuildOfMajor0InAHostOfAnotherMajor) {
  static_assert(BP_ABI_MAJOR == 0);
  for (const uint32_t lowest : {0u, 1u}) {
    const bp_entry_request next = request(lowest, 1, 0, BP_ABI_MINOR);
    EXPECT_FALSE(bp_abi_is_served(&next)) << lowest;
  }
}

TEST(AbiIsServed, RefusesAHostThatCannotBeRead) {
  bp_host host = kHost;
  bp_entry_request r = request(BP_ABI_MAJOR, BP_ABI_MAJOR, BP_ABI_MINOR, BP_ABI_MINOR);
  r.host = &host;
  EXPECT_TRUE(bp_abi_is_served(&r));
  host.struct_size = offsetof(bp_host, op_describe);
  EXPECT_FALSE(bp_abi_is_served(&r));
  host = kHost;
  const bp_struct_header link{sizeof(link), 77 | BP_STRUCT_MUST_UNDERSTAND, nullptr};
  host.next = &link;
  EXPECT_FALSE(bp_abi_is_served(&r));
  host.next = nullptr;
  r.struct_size -= 8;
  EXPECT_FALSE(bp_abi_is_served(&r));
}

TEST(StructRead, RefusesASizeThatNoStructHasWithoutReadingSoFar) {
  bp_stream_desc theirs{UINT32_MAX, BP_STRUCT_STREAM_DESC, nullptr, 0, 7};
  bp_stream_desc ours{};
  for (const uint32_t size : {UINT32_MAX, 65537u}) {
    theirs.struct_size = size;
    uint32_t offset = 99;
    EXPECT_EQ(bp_struct_read(&theirs, kFirst, &ours, sizeof(ours), &offset), BP_INCOMPATIBLE);
    EXPECT_EQ(offset, 0u) << "the size itself is wrong";
    EXPECT_EQ(bp_struct_read(&theirs, kFirst, &ours, sizeof(ours), nullptr), BP_INCOMPATIBLE);
  }
}

TEST(StructRead, RefusesAChainThatDoesNotEnd) {
  bp_struct_header first{sizeof(first), 77, nullptr};
  const bp_struct_header second{sizeof(second), 78, &first};
  first.next = &second;
  const bp_stream_desc theirs{sizeof(bp_stream_desc), BP_STRUCT_STREAM_DESC, &first, 0, 7};
  bp_stream_desc ours{};
  uint32_t offset = 99;
  EXPECT_EQ(bp_struct_read(&theirs, kFirst, &ours, sizeof(ours), &offset), BP_INCOMPATIBLE);
  EXPECT_EQ(offset, offsetof(bp_stream_desc, next));
  EXPECT_EQ(bp_struct_read(&theirs, kFirst, &ours, sizeof(ours), nullptr), BP_INCOMPATIBLE);
}

TEST(StructRead, TakesAChainOfAsManyLinksAsItSays) {
  bp_struct_header links[65];
  for (int i = 0; i < 65; ++i) links[i] = {sizeof(links[i]), 77, i == 0 ? nullptr : &links[i - 1]};
  bp_stream_desc theirs{sizeof(bp_stream_desc), BP_STRUCT_STREAM_DESC, &links[63], 0, 7};
  bp_stream_desc ours{};
  EXPECT_EQ(bp_struct_read(&theirs, kFirst, &ours, sizeof(ours), nullptr), BP_OK);
  theirs.next = &links[64];
  EXPECT_EQ(bp_struct_read(&theirs, kFirst, &ours, sizeof(ours), nullptr), BP_INCOMPATIBLE);
}

TEST(StructRead, RefusesNull) {
  bp_stream_desc ours{};
  uint32_t offset = 99;
  EXPECT_EQ(bp_struct_read(nullptr, kFirst, &ours, sizeof(ours), &offset), BP_INVALID_ARGUMENT);
  EXPECT_EQ(offset, 0u);
  EXPECT_EQ(bp_struct_read(nullptr, kFirst, &ours, sizeof(ours), nullptr), BP_INVALID_ARGUMENT);
  const bp_stream_desc theirs{sizeof(bp_stream_desc), BP_STRUCT_STREAM_DESC, nullptr, 0, 7};
  offset = 99;
  EXPECT_EQ(bp_struct_read(&theirs, kFirst, nullptr, sizeof(ours), &offset), BP_INVALID_ARGUMENT);
  EXPECT_EQ(offset, 0u);
  EXPECT_EQ(bp_struct_read(&theirs, kFirst, nullptr, sizeof(ours), nullptr), BP_INVALID_ARGUMENT);
  EXPECT_EQ(bp_struct_read(nullptr, 0, nullptr, 0, nullptr), BP_INVALID_ARGUMENT);
}

TEST(AbiIsServed, IsNotWithoutARequestOrAHost) {
  EXPECT_EQ(bp_abi_is_served(nullptr), 0);
  const bp_entry_request request{.struct_size = sizeof(request),
                                 .struct_type = BP_STRUCT_ENTRY_REQUEST,
                                 .next = nullptr,
                                 .abi_major_min = BP_ABI_MAJOR,
                                 .abi_major_max = BP_ABI_MAJOR,
                                 .abi_minor = BP_ABI_MINOR,
                                 .abi_minor_min = BP_ABI_MINOR_MIN,
                                 .host = nullptr};
  EXPECT_EQ(bp_abi_is_served(&request), 0);
}

}  // namespace
