// Tests the checks of process groups, with groups that are none.
#include "backplane/shell/group_checks.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace bp {
namespace {

using Ranks = std::vector<uint32_t>;
using Counts = std::vector<uint64_t>;

struct Group {
  static constexpr uint32_t kMagic = 6;

  uint32_t magic = kMagic;
  uint32_t rank;
  const int* world;
};

uint32_t rank_of(const Group& group) { return group.rank; }

bp_process_group* face(Group& group) { return reinterpret_cast<bp_process_group*>(&group); }

// Returns the text with which `check` refuses, or "" if it returns.
template <typename Check>
std::string refusal_of(const Check& check) {
  try {
    check();
  } catch (const StatusError& e) {
    EXPECT_EQ(e.status(), BP_INVALID_ARGUMENT);
    return e.what();
  }
  return "";
}

// ---- create() -----------------------------------------------------------------------------------

std::string refusal_of_desc(const Ranks& ranks, uint32_t world_size) {
  bp_device* const devices[4] = {};
  const bp_process_group_desc desc{.devices = devices,
                                   .ranks = ranks.data(),
                                   .local_count = static_cast<uint32_t>(ranks.size()),
                                   .world_size = world_size};
  return refusal_of([&] { check_group_desc(desc); });
}

TEST(GroupDesc, HasEachRankOnceAndBelowItsWorldSize) {
  EXPECT_EQ(refusal_of_desc({1, 0}, 2), "");
  EXPECT_EQ(refusal_of_desc({3}, 4), "") << "the other ranks may be elsewhere";
  EXPECT_EQ(refusal_of_desc({0, 5}, 2),
            "create: ranks[1] is 5; it must be below world_size, which is 2");
  EXPECT_EQ(refusal_of_desc({1, 1}, 2), "create: ranks[1] is 1 again; each rank is allowed once");
  EXPECT_EQ(refusal_of_desc({0, 1, 2}, 2),
            "create: local_count is 3; it must be from 1 to world_size, which is 2");
  EXPECT_EQ(refusal_of_desc({}, 2),
            "create: local_count is 0; it must be from 1 to world_size, which is 2");
}

TEST(GroupDesc, HasDevicesAndRanks) {
  bp_device* const devices[1] = {};
  bp_process_group_desc desc{.devices = devices, .local_count = 1, .world_size = 1};
  const auto check = [&] { check_group_desc(desc); };
  EXPECT_EQ(refusal_of(check), "create: ranks is NULL");
  desc.devices = nullptr;
  EXPECT_EQ(refusal_of(check), "create: devices is NULL");
}

// Returns the options that the table "ring" reads, as "key=value ", or why it refuses them.
std::string options_of(const bp_process_group_desc& desc) {
  constexpr std::string_view kKeys[] = {"width", "depth"};
  std::string words;
  try {
    for (const auto& [key, value] : read_group_options(desc, "ring", kKeys)) {
      words += std::string(key) + "=" + std::string(value) + " ";
    }
  } catch (const StatusError& e) {
    return std::to_string(e.status()) + ": " + e.what();
  }
  return words;
}

TEST(GroupDesc, IsForTheTableThatItNames) {
  EXPECT_EQ(options_of({.table_name = nullptr}), "");
  EXPECT_EQ(options_of({.table_name = ""}), "");
  EXPECT_EQ(options_of({.table_name = "ring"}), "");
  EXPECT_EQ(options_of({.table_name = "rings"}),
            std::to_string(BP_NOT_FOUND) +
                ": create: table_name is \"rings\"; the table that was called is \"ring\"");
}

TEST(GroupDesc, HasOptionsOfItsTableAlone) {
  const std::vector<bp_option> good{{"depth", "3"}, {"width", ""}}, unknown{{"height", "1"}};
  const bp_option bare{"depth", nullptr};
  const std::string invalid = std::to_string(BP_INVALID_ARGUMENT) + ": create: ";
  EXPECT_EQ(options_of({.option_count = 2, .options = good.data()}), "depth=3 width= ");
  EXPECT_EQ(options_of({.option_count = 1, .options = unknown.data()}),
            std::to_string(BP_NOT_FOUND) +
                ": create: process groups \"ring\" have no option \"height\"; allowed are: width "
                "depth");
  EXPECT_EQ(options_of({.option_count = 1, .options = nullptr}), invalid + "options is NULL");
  EXPECT_EQ(options_of({.option_count = 1, .options = &bare}),
            invalid + "options[0] has no key or no value");
}

// ---- supports() and submit() --------------------------------------------------------------------

TEST(GroupCall, IsOfAKindThatExistsAndOfADtypeOfWholeBytes) {
  EXPECT_EQ(refuse_collective(0, BP_F32), "there is no collective of kind 0");
  EXPECT_EQ(refuse_collective(BP_COLLECTIVE_BARRIER + 1, BP_F32),
            "there is no collective of kind " + std::to_string(BP_COLLECTIVE_BARRIER + 1));
  EXPECT_EQ(refuse_collective(BP_COLLECTIVE_SEND, BP_I4),
            "dtype " + std::to_string(BP_I4) + " is not sent");
  EXPECT_EQ(refuse_collective(BP_COLLECTIVE_BARRIER, BP_I4), "") << "it sends no elements";
  EXPECT_EQ(refuse_collective(BP_COLLECTIVE_SEND, BP_F32), "");
}

const std::string kName = "submit: call 3: ";

std::string refusal_of_root(bp_collective_kind kind, uint32_t root) {
  return refusal_of([&] { check_root({.kind = kind, .root = root}, 2, kName); });
}

TEST(GroupCall, HasARootThatIsARank) {
  const std::string text =
      "submit: call 3: root is 2; it must be below the size of the group, "
      "which is 2";
  for (const bp_collective_kind kind :
       {BP_COLLECTIVE_REDUCE, BP_COLLECTIVE_BROADCAST, BP_COLLECTIVE_GATHER, BP_COLLECTIVE_SCATTER,
        BP_COLLECTIVE_SEND, BP_COLLECTIVE_RECEIVE}) {
    EXPECT_EQ(refusal_of_root(kind, 1), "") << kind;
    EXPECT_EQ(refusal_of_root(kind, 2), text) << kind;
  }
  EXPECT_EQ(refusal_of_root(BP_COLLECTIVE_ALL_REDUCE, 2), "") << "it has no root";
}

PartCounts parts_of(const bp_collective_call& call) { return read_counts(call, 1, 2, kName); }

TEST(GroupCall, HasAPartForEachRank) {
  const Counts uneven{3, 4}, other{5, 4};
  bp_collective_call call{.count = 7, .kind = BP_COLLECTIVE_ALL_GATHER};
  EXPECT_EQ(parts_of(call).send, (Counts{7, 7}));
  call.counts = uneven.data();
  call.receive_counts = other.data();
  EXPECT_EQ(parts_of(call).send, uneven);
  EXPECT_EQ(parts_of(call).receive, uneven);
  call.kind = BP_COLLECTIVE_ALL_TO_ALL;
  EXPECT_EQ(parts_of(call).send, uneven);
  EXPECT_EQ(parts_of(call).receive, other);
  call.receive_counts = nullptr;
  EXPECT_EQ(parts_of(call).receive, uneven);
}

TEST(GroupCall, IgnoresPartsOfAKindThatHasNone) {
  const Counts uneven{3, 4};
  const bp_collective_call call{
      .count = 7, .counts = uneven.data(), .kind = BP_COLLECTIVE_ALL_REDUCE};
  EXPECT_EQ(parts_of(call).send, (Counts{7, 7}));
}

TEST(GroupCall, RefusesPartsThat64BitsCannotCount) {
  const Counts all{UINT64_MAX, 0}, more{UINT64_MAX, 1};
  const std::string text =
      "submit: call 3: the parts of 2 ranks have more elements together than "
      "2^64 - 1, the most that is allowed";
  bp_collective_call call{.counts = all.data(), .kind = BP_COLLECTIVE_ALL_TO_ALL};
  const auto check = [&] { static_cast<void>(parts_of(call)); };
  EXPECT_EQ(refusal_of(check), "");
  call.counts = more.data();
  EXPECT_EQ(refusal_of(check), text);
  call.counts = all.data();
  call.receive_counts = more.data();
  EXPECT_EQ(refusal_of(check), text);
  call = {.count = uint64_t{1} << 63, .kind = BP_COLLECTIVE_GATHER};
  EXPECT_EQ(refusal_of(check), text);
  call.kind = BP_COLLECTIVE_SEND;
  EXPECT_EQ(refusal_of(check), "") << "it has one part";
}

TEST(GroupCall, ReceivesFromItselfWhatItSendsToItself) {
  const Counts sends{3, 4}, receives{3, 5};
  const bp_collective_call call{
      .counts = sends.data(), .receive_counts = receives.data(), .kind = BP_COLLECTIVE_ALL_TO_ALL};
  EXPECT_EQ(refusal_of([&] { static_cast<void>(parts_of(call)); }),
            "submit: call 3: rank 1 sends itself 4 elements and receives 5 of them; both must be "
            "equal");
}

std::string refusal_of_elements(uint64_t size_bytes, uint64_t elements, bp_dtype dtype) {
  return refusal_of([&] {
    check_elements({nullptr, 0, size_bytes}, elements, dtype, kName, "send");
  });
}

TEST(GroupCall, IsReadForOneRank) {
  const Counts uneven{3, 4};
  bp_collective_call call{.count = 7,
                          .counts = uneven.data(),
                          .scale = 0.5,
                          .kind = BP_COLLECTIVE_GATHER,
                          .reduction = BP_REDUCTION_MAX,
                          .dtype = BP_F32,
                          .root = 1};
  const GroupCall gather = read_call(call, 1, 2, kName);
  EXPECT_EQ(gather.rank, 1u);
  EXPECT_EQ(gather.world_size, 2u);
  EXPECT_EQ(gather.root, 1u);
  EXPECT_EQ(gather.scale, 0.5);
  EXPECT_EQ(gather.send_counts, uneven);
  EXPECT_EQ(gather.reduction, 0u) << "it does not reduce";
  call.kind = BP_COLLECTIVE_REDUCE;
  EXPECT_EQ(read_call(call, 1, 2, kName).reduction, BP_REDUCTION_MAX + 0u);
  call.root = 2;
  EXPECT_NE(refusal_of([&] { read_call(call, 1, 2, kName); }), "");
}

// Returns what rank 0 and rank 1 move in a call of this kind, whose root is rank 1.
std::vector<Counts> moved(bp_collective_kind kind) {
  GroupCall call{.world_size = 2, .root = 1, .kind = kind, .count = 7};
  call.send_counts = {3, 4};
  call.receive_counts = {3, 5};
  Counts sent, received;
  for (call.rank = 0; call.rank < 2; ++call.rank) {
    sent.push_back(sent_elements(call));
    received.push_back(received_elements(call));
  }
  return {sent, received};
}

TEST(GroupCall, MovesTheElementsOfItsKind) {
  EXPECT_EQ(moved(BP_COLLECTIVE_ALL_REDUCE), (std::vector<Counts>{{7, 7}, {7, 7}}));
  EXPECT_EQ(moved(BP_COLLECTIVE_REDUCE), (std::vector<Counts>{{7, 7}, {0, 7}}));
  EXPECT_EQ(moved(BP_COLLECTIVE_BROADCAST), (std::vector<Counts>{{0, 7}, {7, 7}}));
  EXPECT_EQ(moved(BP_COLLECTIVE_ALL_GATHER), (std::vector<Counts>{{3, 4}, {7, 7}}));
  EXPECT_EQ(moved(BP_COLLECTIVE_REDUCE_SCATTER), (std::vector<Counts>{{7, 7}, {3, 4}}));
  EXPECT_EQ(moved(BP_COLLECTIVE_ALL_TO_ALL), (std::vector<Counts>{{7, 7}, {8, 8}}));
  EXPECT_EQ(moved(BP_COLLECTIVE_GATHER), (std::vector<Counts>{{3, 4}, {0, 7}}));
  EXPECT_EQ(moved(BP_COLLECTIVE_SCATTER), (std::vector<Counts>{{0, 7}, {3, 4}}));
  EXPECT_EQ(moved(BP_COLLECTIVE_SEND), (std::vector<Counts>{{7, 7}, {0, 0}}));
  EXPECT_EQ(moved(BP_COLLECTIVE_RECEIVE), (std::vector<Counts>{{0, 0}, {7, 7}}));
  EXPECT_EQ(moved(BP_COLLECTIVE_BARRIER), (std::vector<Counts>{{0, 0}, {0, 0}}));
}

TEST(GroupCall, HasRangesWithRoomForItsElements) {
  EXPECT_EQ(refusal_of_elements(16, 4, BP_F32), "");
  EXPECT_EQ(refusal_of_elements(16, 5, BP_F32),
            "submit: call 3: send has 16 bytes; it must have room for 5 elements of 4 bytes");
  EXPECT_EQ(refusal_of_elements(0, 0, BP_I4), "") << "without elements every dtype is right";
}

// The bytes of so many elements are 0 and 4 in 64 bits.
TEST(GroupCall, RefusesElementsWhoseBytes64BitsCannotCount) {
  constexpr uint64_t kMany = uint64_t{1} << 62;
  for (const uint64_t elements : {kMany, kMany + 1}) {
    EXPECT_EQ(refusal_of_elements(16, elements, BP_F32),
              "submit: call 3: send has 16 bytes; it must have room for " +
                  std::to_string(elements) + " elements of 4 bytes");
  }
}

TEST(GroupCall, IsOfTheDeviceOfItsGroup) {
  const int own = 0, other = 0;
  EXPECT_EQ(refusal_of([&] { check_same_device(&own, &own, "submit", "stream"); }), "");
  EXPECT_EQ(refusal_of([&] { check_same_device(&other, &own, "submit", "stream"); }),
            "submit: stream is of another device; it must be of the device of the group");
}

TEST(GroupCall, OfAGroupThatHasEndedIsRefusedWithTheStatusOfTheEnd) {
  EXPECT_NO_THROW(check_not_ended({}, kName));
  try {
    check_not_ended({BP_ABORTED, "rank 1 aborted the group"}, kName);
    FAIL();
  } catch (const StatusError& e) {
    EXPECT_EQ(e.status(), BP_ABORTED);
    EXPECT_STREQ(e.what(), "submit: call 3: the group has ended: rank 1 aborted the group");
  }
}

// Returns how the calls of ranks 0 and 1 differ.
std::string difference_of(const GroupCall& first, const GroupCall& second) {
  return difference(signature_of(first, 1), 0, signature_of(second, 0), 1);
}

TEST(CallSignature, TellsWhatDiffers) {
  const GroupCall call{.rank = 0,
                       .world_size = 2,
                       .kind = BP_COLLECTIVE_REDUCE,
                       .reduction = BP_REDUCTION_SUM,
                       .dtype = BP_F32,
                       .count = 3,
                       .send_counts = {3, 3},
                       .receive_counts = {3, 3}};
  EXPECT_EQ(difference_of(call, call), "");
  GroupCall other = call;
  other.kind = BP_COLLECTIVE_BARRIER;
  EXPECT_EQ(difference_of(call, other), "rank 1 calls barrier, rank 0 calls reduce");
  EXPECT_EQ(difference_of(other, other), "");
  other = call;
  other.dtype = BP_F16;
  EXPECT_EQ(difference_of(call, other), "rank 1 gives dtype " + std::to_string(BP_F16) +
                                            ", rank 0 gives " + std::to_string(BP_F32));
  other = call;
  other.root = 1;
  EXPECT_EQ(difference_of(call, other), "rank 1 gives root 1, rank 0 gives 0");
  other = call;
  other.send_counts = {3, 4};
  EXPECT_EQ(difference_of(call, other), "rank 1 gives other counts, such as 3, rank 0 gives 3");
}

TEST(CallSignature, ComparesWhatTwoRanksExchange) {
  GroupCall first{.rank = 0,
                  .world_size = 2,
                  .kind = BP_COLLECTIVE_ALL_TO_ALL,
                  .dtype = BP_F32,
                  .send_counts = {9, 2},
                  .receive_counts = {9, 5}};
  GroupCall second = first;
  second.rank = 1;
  second.send_counts = {5, 1};
  second.receive_counts = {2, 1};
  EXPECT_EQ(difference_of(first, second), "");
  second.receive_counts = {3, 1};
  EXPECT_EQ(difference_of(first, second), "rank 1 gives a count 3, rank 0 gives 2");
  second.receive_counts = {2, 1};
  second.send_counts = {4, 1};
  EXPECT_EQ(difference_of(first, second), "rank 1 gives a count 4, rank 0 gives 5");
}

// ---- split() and shrink() -----------------------------------------------------------------------

class Groups : public testing::Test {
 protected:
  std::string refusal_of_groups(const std::vector<bp_process_group*>& handles) {
    return refusal_of([&] {
      read_groups<Group>(static_cast<uint32_t>(handles.size()), handles.data(), "split");
    });
  }

  const int world_ = 0, other_world_ = 0;
  Group first_{.rank = 0, .world = &world_};
  Group second_{.rank = 1, .world = &world_};
  Group stranger_{.rank = 2, .world = &other_world_};
};

TEST_F(Groups, AreReadInTheOrderOfTheirHandles) {
  bp_process_group* const handles[] = {face(second_), face(first_)};
  const std::vector<Group*> groups = read_groups<Group>(2, handles, "split");
  EXPECT_EQ(groups, (std::vector<Group*>{&second_, &first_}));
  EXPECT_EQ(ranks_of(groups), (Ranks{1, 0}));
}

TEST_F(Groups, AreOfOneWorldEachOnce) {
  EXPECT_EQ(refusal_of_groups({face(first_), face(second_), face(stranger_)}),
            "split: groups[2] is of another world than groups[0]; all must be of one world");
  EXPECT_EQ(refusal_of_groups({face(first_), face(second_), face(second_)}),
            "split: groups[2] is rank 1, as groups[1] is; each rank is allowed once");
}

TEST_F(Groups, AreThereAndOfThisBackend) {
  Group destroyed{.magic = 0, .rank = 1, .world = &world_};
  for (bp_process_group* const wrong : {static_cast<bp_process_group*>(nullptr), face(destroyed)}) {
    EXPECT_EQ(refusal_of_groups({face(first_), wrong}),
              "split: groups[1] is NULL or not one of this backend");
  }
  EXPECT_EQ(refusal_of_groups({}), "split: local_count is 0; it must be at least 1");
  EXPECT_EQ(refusal_of([] { read_groups<Group>(1, nullptr, "split"); }), "split: groups is NULL");
}

std::string refusal_of_gone(const Ranks& gone, uint32_t world_size) {
  return refusal_of(
      [&] { read_gone_ranks(static_cast<uint32_t>(gone.size()), gone.data(), world_size); });
}

TEST(GoneRanks, AreRanksOfTheGroupEachOnce) {
  const Ranks gone{3, 1};
  EXPECT_EQ(read_gone_ranks(2, gone.data(), 4), (Ranks{1, 3}));
  EXPECT_EQ(read_gone_ranks(0, nullptr, 4), Ranks{});
  EXPECT_EQ(refusal_of_gone({7}, 2),
            "shrink: gone_ranks[0] is 7; it must be below the size of the group, which is 2");
  EXPECT_EQ(refusal_of_gone({1, 0, 1}, 3),
            "shrink: gone_ranks[2] is 1 again; each rank is allowed once");
  EXPECT_EQ(refusal_of([] { read_gone_ranks(1, nullptr, 2); }), "shrink: gone_ranks is NULL");
}

TEST(GoneRanks, LeaveTheOtherRanksInTheirOrder) {
  const Ranks gone{1, 3};
  EXPECT_EQ(rank_without(gone, 0), 0u);
  EXPECT_EQ(rank_without(gone, 2), 1u);
  EXPECT_EQ(rank_without(gone, 4), 2u);
  EXPECT_EQ(rank_without({}, 4), 4u);
}

std::string refusal_of_presence(const Ranks& given, const Ranks& local, const Ranks& gone) {
  return refusal_of([&] { check_presence(given, local, gone, "shrink"); });
}

TEST(Presence, IsThatOfEachLocalRankThatIsNotGone) {
  EXPECT_EQ(refusal_of_presence({1, 0}, {0, 1}, {}), "");
  EXPECT_EQ(refusal_of_presence({2}, {1, 2}, {0, 1}), "") << "ranks elsewhere may be gone too";
  EXPECT_EQ(
      refusal_of_presence({2}, {1, 2}, {0}),
      "shrink: groups lacks rank 1; each rank of this process that is not gone must be there");
  EXPECT_EQ(refusal_of_presence({1, 2}, {1, 2}, {2}),
            "shrink: rank 2 is in groups and in gone_ranks; it may be in one of them");
}

}  // namespace
}  // namespace bp
