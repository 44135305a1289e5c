// The parts of dist that need no process: shapes, values, sizes, the store, and the judge of
// faults.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "backplane/host.h"
#include "conformance/dist/bandwidth.hpp"
#include "conformance/dist/fault.hpp"
#include "conformance/dist/folder_store.hpp"
#include "conformance/dist/report.hpp"
#include "conformance/dist/values.hpp"
#include "conformance/numerics/dtype.hpp"

namespace bp::conformance::dist {
namespace {

const std::vector<bp_dtype> kDtypes = {BP_F32, BP_BF16, BP_I32};

// Carries out a check in this process: copies what the ranks send to where the shapes say. A kind
// that reduces is left out.
void expect_moves(const Check& check, uint32_t world_size) {
  const Values values(check, world_size, 7);
  const uint64_t item = element_size(check.claim.dtype);
  for (uint32_t rank = 0; rank < world_size; ++rank) {
    const Shape shape = shape_of(check, rank, world_size);
    std::vector<std::byte> received(shape.receives * item, std::byte{0xA5});
    uint64_t covered = 0;
    for (const Piece& piece : shape.pieces) {
      const Shape other = shape_of(check, piece.from, world_size);
      ASSERT_LE(piece.source_at + piece.count, other.sends) << check.text();
      const std::vector<std::byte> sent = values.sent(piece.from, other.sends);
      std::copy_n(sent.begin() + static_cast<std::ptrdiff_t>(piece.source_at * item),
                  piece.count * item,
                  received.begin() + static_cast<std::ptrdiff_t>(piece.at * item));
      covered += piece.count;
    }
    EXPECT_EQ(covered, shape.receives) << check.text() << ", rank " << rank;
    EXPECT_EQ(values.compare(shape, received.data()).first, "") << check.text();
    if (received.empty() || check.claim.dtype != BP_F32) continue;
    received[received.size() - 1] ^= std::byte{1};
    const Values::Wrong wrong = values.compare(shape, received.data());
    EXPECT_EQ(wrong.count, 1u);
    EXPECT_NE(wrong.first.find("element " + std::to_string(shape.receives - 1) + " is "),
              std::string::npos)
        << wrong.first;
  }
}

TEST(Checks, MoveEachElementOnce) {
  for (const uint32_t world_size : {1u, 2u, 3u, 8u}) {
    for (const Check& check : list_checks(possible_claims(kDtypes), world_size, Tier::kSmoke)) {
      const bool moves = check.sort == Sort::kCall || check.sort == Sort::kPairs;
      if (moves && !is_reducing(check.claim.kind)) expect_moves(check, world_size);
    }
  }
}

TEST(Checks, AreMoreInALargerTier) {
  const std::vector<Claim> claims = possible_claims(kDtypes);
  const size_t smoke = list_checks(claims, 4, Tier::kSmoke).size();
  const size_t quick = list_checks(claims, 4, Tier::kQuick).size();
  EXPECT_LT(smoke, quick);
  EXPECT_LT(quick, list_checks(claims, 4, Tier::kFull).size());
}

TEST(Checks, SayWhatTheyRun) {
  const Check check{.claim = {BP_COLLECTIVE_REDUCE, BP_REDUCTION_SUM, BP_BF16},
                    .count = 37,
                    .is_in_place = true,
                    .root = 2};
  EXPECT_EQ(check.text(), "reduce sum bf16, 37 elements, root 2, in place");
  EXPECT_EQ(check.group(), "reduce");
  EXPECT_EQ(check.family(), "reduce, in place");
}

TEST(Values, OfFloatsAllowTheBoundAndNoMore) {
  const Check check{.claim = {BP_COLLECTIVE_ALL_REDUCE, BP_REDUCTION_SUM, BP_F32},
                    .count = 3,
                    .data = Data::kNoise};
  const Values values(check, 2, 7);
  const Shape shape = shape_of(check, 0, 2);
  float a[3], b[3], sum[3];
  std::memcpy(a, values.sent(0, 3).data(), sizeof(a));
  std::memcpy(b, values.sent(1, 3).data(), sizeof(b));
  for (int i = 0; i < 3; ++i) sum[i] = a[i] + b[i];
  const auto* const bytes = reinterpret_cast<const std::byte*>(sum);
  EXPECT_EQ(values.compare(shape, bytes).count, 0u);
  sum[1] *= 1.001F;
  EXPECT_EQ(values.compare(shape, bytes).count, 1u);
  sum[1] = a[1];
  EXPECT_NE(values.compare(shape, bytes).first.find(", allowed are "), std::string::npos);
}

TEST(Bandwidth, HasTheFactorsOfALink) {
  EXPECT_DOUBLE_EQ(bus_factor(BP_COLLECTIVE_ALL_REDUCE, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(BP_COLLECTIVE_ALL_GATHER, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(BP_COLLECTIVE_REDUCE_SCATTER, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(BP_COLLECTIVE_ALL_TO_ALL, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(BP_COLLECTIVE_BROADCAST, 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor(BP_COLLECTIVE_SEND, 4), 1);
}

TEST(Bandwidth, CountsTheElementsOfAPart) {
  EXPECT_EQ(count_of_size({BP_COLLECTIVE_ALL_REDUCE, BP_REDUCTION_SUM, BP_F32}, 4096, 4), 1024u);
  EXPECT_EQ(count_of_size({BP_COLLECTIVE_ALL_GATHER, 0, BP_F32}, 4096, 4), 256u);
  EXPECT_EQ(listed_sizes({1024, 5000, 2}), (std::vector<uint64_t>{1024, 2048, 4096}));
}

TEST(Bandwidth, TakesTheMedianOfTheSlowestRanks) {
  EXPECT_DOUBLE_EQ(median_of_slowest({{1, 5, 2}, {3, 1, 1}}), 3);
}

// A folder that ends with the test.
class Store : public testing::Test {
 protected:
  Store() : path_((std::filesystem::temp_directory_path() / "bp-store-XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr) ADD_FAILURE() << "no folder";
  }
  ~Store() override { std::filesystem::remove_all(path_); }

  std::string path_;
};

TEST_F(Store, GivesWhatAnotherProcessHasPut) {
  FolderStore one(path_), other(path_);
  const bp_store *const put = one.table_for("g/"), *const get = other.table_for("g/");
  char value[8] = "";
  uint64_t size = 0;
  EXPECT_EQ(get->try_get(get->self, "g/a b", 8, value, &size), BP_NOT_FOUND);
  EXPECT_EQ(get->get(get->self, "g/a b", 1'000'000, 8, value, &size), BP_TIMEOUT);
  ASSERT_EQ(put->put(put->self, "g/a b", "12345678910", 11), BP_OK);
  EXPECT_EQ(get->get(get->self, "g/a b", 1'000'000, 8, value, &size), BP_OK);
  EXPECT_EQ(size, 11u);
  EXPECT_EQ(std::string(value, 8), "12345678");
  ASSERT_EQ(put->put(put->self, "g/a b", "", 0), BP_OK);
  EXPECT_EQ(get->try_get(get->self, "g/a b", 8, value, &size), BP_OK);
  EXPECT_EQ(size, 0u) << "put() replaces an earlier value";
}

TEST_F(Store, KeepsKeysApartThatNeedOtherNames) {
  FolderStore store(path_);
  const std::string name(300, 'x');
  store.put("a/b", "1");
  store.put("a%2fb", "2");
  store.put(name + "1", "3");
  store.put(name + "2", "4");
  std::string value;
  ASSERT_TRUE(store.try_get("a/b", value));
  EXPECT_EQ(value, "1");
  ASSERT_TRUE(store.try_get(name + "1", value));
  EXPECT_EQ(value, "3");
}

TEST_F(Store, NamesAKeyThatBeginsWithNoPrefix) {
  FolderStore store(path_);
  const bp_store* const table = store.table_for("group/1/");
  table->put(table->self, "group/1/a", "", 0);
  EXPECT_EQ(store.foreign_key(), "");
  table->put(table->self, "group/2/a", "", 0);
  EXPECT_EQ(store.foreign_key(), "group/2/a");
}

// What two ranks say when all is as it should be.
std::vector<Story> stories(bp_status stream, const std::string& text) {
  Story story;
  story.is_done = true;
  story.steps["create"] = {};
  story.steps["submit"] = {};
  story.steps["stream"] = {stream, text, 1, true};
  story.steps["status"] = {stream, text, 0, true};
  story.steps["destroy"] = {};
  story.steps["again"] = {};
  return {story, story};
}

FaultVerdict judged(Fault fault, const std::vector<Story>& ranks) {
  return judge_fault({.fault = fault, .victim = 1, .world_size = 2}, ranks);
}

TEST(Judge, PassesARankThatNamesTheLateOne) {
  const auto good = stories(BP_TIMEOUT, "BP_TIMEOUT: all_reduce: rank 0 waited for rank 1");
  const FaultVerdict verdict = judged(Fault::kAbsent, good);
  EXPECT_EQ(verdict.outcome, Outcome::kPass) << verdict.text;
  EXPECT_EQ(judged(Fault::kAbsent, stories(BP_TIMEOUT, "BP_TIMEOUT: too late")).outcome,
            Outcome::kQualityWarning);
}

TEST(Judge, FailsASuccessWithoutTheLateRank) {
  const FaultVerdict verdict = judged(Fault::kAbsent, stories(BP_OK, ""));
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_EQ(verdict.text, "rank 0 reports success, although rank 1 does not submit its call");
}

TEST(Judge, FailsASilentWrongSum) {
  auto ranks = stories(BP_OK, "");
  ranks[0].steps["data"] = {BP_OK, "element 999 is 3, expected 5", 0, false};
  const FaultVerdict verdict = judged(Fault::kOtherCount, ranks);
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_EQ(verdict.text, "rank 0 reports success with wrong data: element 999 is 3, expected 5");
  ASSERT_EQ(verdict.notes.size(), 1u);
  EXPECT_EQ(verdict.notes[0], "all ranks report success, although rank 1 gives another count");
}

TEST(Judge, FailsARankThatHangs) {
  auto ranks = stories(BP_TIMEOUT, "rank 1 did not come");
  ranks[0].is_done = false;
  ranks[0].is_killed = true;
  ranks[0].end = "it was in the call after 'submit' for 26.0 s, and was killed";
  EXPECT_EQ(judged(Fault::kStopped, ranks).outcome, Outcome::kTimeout);
}

TEST(Judge, FailsAnEndAfterTheTimeout) {
  auto ranks = stories(BP_TIMEOUT, "rank 1 did not come");
  ranks[0].steps["stream"].seconds = 9;
  const FaultVerdict verdict = judged(Fault::kAbsent, ranks);
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_EQ(verdict.text,
            "rank 0 ended 'stream' after 9.0 s; the timeout is 2 s, with 5 s of grace");
}

TEST(Judge, WantsAnAbortOnEveryRank) {
  auto ranks = stories(BP_ABORTED, "rank 0 aborted the group");
  EXPECT_EQ(judged(Fault::kAbort, ranks).outcome, Outcome::kPass);
  ranks[1].steps["stream"] = {BP_TIMEOUT, "BP_TIMEOUT: late", 2, true};
  EXPECT_EQ(judged(Fault::kAbort, ranks).outcome, Outcome::kFail);
}

TEST(Judge, WantsAGroupOnAllRanksOrNone) {
  auto ranks = stories(BP_OK, "");
  ranks[0].steps = {{"create", {BP_TIMEOUT, "BP_TIMEOUT: rank 1 did not come", 2, true}}};
  ranks[1].steps = {};
  EXPECT_EQ(judged(Fault::kNeverComes, ranks).outcome, Outcome::kPass);
  ranks[0].steps["create"] = {};
  const FaultVerdict verdict = judged(Fault::kNeverComes, ranks);
  EXPECT_EQ(verdict.text,
            "create() made a group on rank 0, although rank 1 does not call create()");
}

TEST(Judge, LooksForBothSidesOfADifference) {
  EXPECT_EQ(judged(Fault::kOtherReduction,
                   stories(BP_ABORTED, "rank 0 calls all_reduce (sum), rank 1 all_reduce (max)"))
                .outcome,
            Outcome::kPass);
  EXPECT_EQ(judged(Fault::kOtherReduction, stories(BP_ABORTED, "the calls differ")).outcome,
            Outcome::kQualityWarning);
}

TEST(Judge, FindsTheNumberOfARank) {
  EXPECT_TRUE(names_rank("all_reduce: rank 0 waited for rank 12", 12));
  EXPECT_FALSE(names_rank("all_reduce: rank 0 waited for rank 12", 1));
  EXPECT_TRUE(names_rank("ranks 0 and 3 are gone", 3));
  EXPECT_FALSE(names_rank("3 of 4 came", 3));
}

TEST(Report, CountsByRowAndKeepsWhatIsNoPass) {
  Report report;
  EXPECT_EQ(report.verdict(), "NOTHING RAN   0 passed, 0 failed, 0 skipped");
  report.add({"gloo", 2, "values", "all_reduce", "a", Outcome::kPass, "", {}});
  EXPECT_EQ(report.verdict(), "PASS   1 passed, 0 failed, 0 skipped");
  report.add({"gloo", 2, "values", "all_reduce", "b", Outcome::kFail, "wrong", {"more"}});
  report.add({"gloo", 2, "values", "split", "c", Outcome::kNotSupported, "refused", {}});
  EXPECT_EQ(report.verdict(), "FAIL   1 passed, 1 failed, 1 skipped");
  const std::string text = report.text();
  EXPECT_NE(text.find("  #1 gloo, 2 ranks: b  Fail\n       wrong\n       more\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("SKIPPED\n  gloo, 2 ranks: c: refused\n"), std::string::npos) << text;
  EXPECT_EQ(report.results().size(), 2u);
}

}  // namespace
}  // namespace bp::conformance::dist
