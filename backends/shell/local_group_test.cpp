// Groups of two ranks, with devices that are none, and memory that is a vector.
#include "backplane/shell/local_group.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backends/shell/queue_test.hpp"

namespace bp {
namespace {

using Floats = std::vector<float>;

class VectorMemory final : public GroupMemory {
 public:
  VectorMemory(Floats& values, uint64_t byte_offset) : values_(values), offset_(byte_offset) {}
  std::byte* open() override { return reinterpret_cast<std::byte*>(values_.data()) + offset_; }
  void close() override {}

 private:
  Floats& values_;
  const uint64_t offset_;
};

// A buffer is a vector, a stream is a queue, and a device may be any pointer.
class VectorBackend final : public GroupBackend {
 public:
  void check_device(bp_device*, const char*) override {}
  uint64_t generation(bp_device*) override { return resets; }
  std::shared_ptr<Queue> queue(bp_stream* stream, bp_device*, const char*) override {
    return *reinterpret_cast<const std::shared_ptr<Queue>*>(stream);
  }
  std::shared_ptr<GroupMemory> memory(const bp_buffer_ref& range, bp_device*, bool, const char*,
                                      const char*) override {
    return std::make_shared<VectorMemory>(*reinterpret_cast<Floats*>(range.buffer),
                                          range.byte_offset);
  }

  uint64_t resets = 0;
};

class LocalGroupTest : public QueueTest {
 protected:
  LocalGroupTest() { EXPECT_EQ(create({0, 1}, 2, groups), BP_OK) << text; }
  ~LocalGroupTest() override {
    for (bp_process_group* const group : groups) ops.destroy(ops.self, group);
    for (bp_process_group* const group : out) ops.destroy(ops.self, group);
  }

  bp_device* device(size_t rank) { return reinterpret_cast<bp_device*>(&values[rank]); }

  bp_status create(const std::vector<uint32_t>& ranks, uint32_t world_size,
                   bp_process_group** out_groups) {
    bp_device* const devices[] = {device(0), device(1)};
    const bp_process_group_desc desc{.struct_size = sizeof(desc),
                                     .struct_type = BP_STRUCT_PROCESS_GROUP_DESC,
                                     .devices = devices,
                                     .ranks = ranks.data(),
                                     .local_count = static_cast<uint32_t>(ranks.size()),
                                     .world_size = world_size,
                                     .timeout_ns = kLong};
    return ops.create(ops.self, &desc, out_groups);
  }

  // Returns a call of `rank` in place, on the four elements that it has.
  bp_collective_call call(size_t rank, bp_collective_kind kind, uint64_t count) {
    const bp_buffer_ref all{reinterpret_cast<bp_buffer*>(&values[rank]), 0, 16};
    return {.struct_size = sizeof(bp_collective_call),
            .struct_type = BP_STRUCT_COLLECTIVE_CALL,
            .group = groups[rank],
            .stream = reinterpret_cast<bp_stream*>(&queue),
            .send = all,
            .receive = all,
            .count = count,
            .kind = kind,
            .reduction = BP_REDUCTION_SUM,
            .dtype = BP_F32};
  }
  bp_status submit(const std::vector<bp_collective_call>& calls) {
    return ops.submit(ops.self, calls.size(), calls.data(), sizeof(bp_collective_call));
  }
  bp_status split(const std::vector<bp_process_group*>& from) {
    const uint32_t colors[] = {4, 4}, keys[] = {9, 3};
    return ops.split(ops.self, static_cast<uint32_t>(from.size()), from.data(), colors, keys, kLong,
                     out);
  }
  bp_status shrink(const std::vector<bp_process_group*>& from, const std::vector<uint32_t>& gone) {
    return ops.shrink(ops.self, static_cast<uint32_t>(from.size()), from.data(),
                      static_cast<uint32_t>(gone.size()), gone.data(), kLong, out);
  }
  const LocalGroup& made(size_t i) { return *reinterpret_cast<const LocalGroup*>(out[i]); }
  bool made_nothing() const { return out[0] == nullptr && out[1] == nullptr; }

  Floats values[2] = {{1, 2, 3, 4}, {10, 20, 30, 40}};
  std::shared_ptr<Queue> queue = make(true);
  VectorBackend backend;
  LocalGroups local{host, backend};
  const bp_process_group_ops ops = local.table();
  bp_process_group* groups[2] = {};
  bp_process_group* out[2] = {};
};

TEST_F(LocalGroupTest, SumsUpAllElementsThatItsRangesHold) {
  EXPECT_EQ(submit({call(0, BP_COLLECTIVE_ALL_REDUCE, 4), call(1, BP_COLLECTIVE_ALL_REDUCE, 4)}),
            BP_OK)
      << text;
  EXPECT_EQ(values[0], (Floats{11, 22, 33, 44}));
  EXPECT_EQ(values[1], values[0]);
}

TEST_F(LocalGroupTest, IsLostByAResetOfItsDevice) {
  ++backend.resets;
  EXPECT_EQ(submit({call(0, BP_COLLECTIVE_ALL_REDUCE, 4)}), BP_DEVICE_LOST);
  EXPECT_EQ(text, "submit: the group was made before its device was reset");
  EXPECT_EQ(ops.supports(ops.self, groups[0], BP_COLLECTIVE_ALL_REDUCE, BP_REDUCTION_SUM, BP_F32),
            BP_DEVICE_LOST);
  EXPECT_EQ(ops.status(ops.self, groups[0]), BP_DEVICE_LOST);
  EXPECT_EQ(ops.abort(ops.self, groups[0]), BP_DEVICE_LOST);
  EXPECT_EQ(split({groups[0], groups[1]}), BP_DEVICE_LOST);
  EXPECT_EQ(shrink({groups[0]}, {1}), BP_DEVICE_LOST);
  EXPECT_TRUE(made_nothing());
}

// The bytes of so many elements are 0 and 4 in 64 bits.
TEST_F(LocalGroupTest, RefusesElementsWhoseBytes64BitsCannotCount) {
  constexpr uint64_t kMany = uint64_t{1} << 62;
  for (const uint64_t count : {kMany, kMany + 1}) {
    EXPECT_EQ(submit({call(0, BP_COLLECTIVE_ALL_REDUCE, count),
                      call(1, BP_COLLECTIVE_ALL_REDUCE, count)}),
              BP_INVALID_ARGUMENT);
    EXPECT_EQ(text, "submit: call 0: send has 16 bytes; it must have room for " +
                        std::to_string(count) + " elements of 4 bytes");
  }
  EXPECT_EQ(values[0], (Floats{1, 2, 3, 4}));
}

TEST_F(LocalGroupTest, RefusesPartsThat64BitsCannotCount) {
  constexpr uint64_t kMany = uint64_t{1} << 63;
  EXPECT_EQ(submit({call(0, BP_COLLECTIVE_ALL_TO_ALL, kMany)}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text,
            "submit: call 0: the parts of 2 ranks have more elements together than 2^64 - 1, the "
            "most that is allowed");
}

// Ranks with equal counts and another `count` would read the memory of each other beyond its end.
TEST_F(LocalGroupTest, IgnoresCountsOfAKindWithoutParts) {
  const uint64_t counts[] = {1, 1};
  std::vector<bp_collective_call> calls{call(0, BP_COLLECTIVE_ALL_REDUCE, 4),
                                        call(1, BP_COLLECTIVE_ALL_REDUCE, 2)};
  for (bp_collective_call& c : calls) c.counts = counts;
  EXPECT_EQ(submit(calls), BP_OK) << text;
  EXPECT_EQ(ops.status(ops.self, groups[0]), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "rank 1 gives other counts, such as 2, rank 0 gives 4");
}

// The stream of the first send gets to it behind the second send.
TEST_F(LocalGroupTest, PairsSendsAndReceivesInTheOrderOfTheirSubmission) {
  std::shared_ptr<Queue> late = make(true);
  const auto gate = std::make_shared<Point>(false);
  ASSERT_EQ(late->wait_for(gate), BP_OK);
  const auto letter = [&](size_t rank, uint64_t element, std::shared_ptr<Queue>& stream) {
    bp_collective_call c = call(rank, rank == 0 ? BP_COLLECTIVE_SEND : BP_COLLECTIVE_RECEIVE, 1);
    c.root = rank == 0 ? 1 : 0;
    c.send.byte_offset = c.receive.byte_offset = 4 * element;
    c.stream = reinterpret_cast<bp_stream*>(&stream);
    return c;
  };
  std::shared_ptr<Queue> receiver = make(true);
  EXPECT_EQ(submit({letter(0, 0, late)}), BP_OK) << text;
  EXPECT_EQ(submit({letter(0, 3, queue)}), BP_OK) << text;
  EXPECT_EQ(submit({letter(1, 1, receiver), letter(1, 2, receiver)}), BP_OK) << text;
  gate->complete({});
  EXPECT_TRUE(receiver->wait(kLong));
  EXPECT_EQ(values[1], (Floats{10, 1, 4, 40}));
}

TEST_F(LocalGroupTest, HasAllItsRanksInOneProcess) {
  EXPECT_EQ(create({1}, 2, out), BP_UNSUPPORTED);
  EXPECT_EQ(text,
            "create: local_count is 1 and world_size is 2; this backend makes groups whose ranks "
            "all live in one process");
  EXPECT_EQ(create({1, 1}, 2, out), BP_INVALID_ARGUMENT);
  EXPECT_TRUE(made_nothing());
}

TEST_F(LocalGroupTest, SplitsByColorAndKey) {
  ASSERT_EQ(split({groups[0], groups[1]}), BP_OK) << text;
  EXPECT_EQ(made(0).rank, 1u) << "its key is the larger one";
  EXPECT_EQ(made(1).rank, 0u);
  EXPECT_EQ(made(0).device, device(0));
  EXPECT_EQ(made(0).world, made(1).world);
}

TEST_F(LocalGroupTest, RefusesASplitThatDoesNotGiveEachRankOnce) {
  EXPECT_EQ(split({groups[1], groups[1]}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "split: groups[1] is rank 1, as groups[0] is; each rank is allowed once");
  EXPECT_EQ(split({groups[0]}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text,
            "split: groups lacks rank 1; each rank of this process that is not gone must be there");
  EXPECT_TRUE(made_nothing());
}

TEST_F(LocalGroupTest, DoesNotSplitWhenItHasEnded) {
  ASSERT_EQ(ops.abort(ops.self, groups[1]), BP_OK);
  EXPECT_EQ(split({groups[0], groups[1]}), BP_ABORTED);
  EXPECT_EQ(text, "split: the group has ended: rank 1 aborted the group");
  EXPECT_TRUE(made_nothing());
}

TEST_F(LocalGroupTest, ShrinksToTheRanksThatAreLeft) {
  ASSERT_EQ(shrink({groups[1]}, {0}), BP_OK) << text;
  EXPECT_EQ(made(0).rank, 0u);
  EXPECT_EQ(made(0).device, device(1));
  EXPECT_EQ(made(0).world->size(), 1u);
  EXPECT_EQ(ops.status(ops.self, groups[1]), BP_ABORTED);
}

TEST_F(LocalGroupTest, RefusesAShrinkThatDoesNotAccountForEachRank) {
  EXPECT_EQ(shrink({groups[0]}, {7}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "shrink: gone_ranks[0] is 7; it must be below the size of the group, which is 2");
  EXPECT_EQ(shrink({groups[0]}, {1, 1}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "shrink: gone_ranks[1] is 1 again; each rank is allowed once");
  EXPECT_EQ(shrink({groups[0], groups[0]}, {}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "shrink: groups[1] is rank 0, as groups[0] is; each rank is allowed once");
  EXPECT_EQ(shrink({groups[0]}, {}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(
      text,
      "shrink: groups lacks rank 1; each rank of this process that is not gone must be there");
  EXPECT_EQ(shrink({groups[0], groups[1]}, {1}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "shrink: rank 1 is in groups and in gone_ranks; it may be in one of them");
  EXPECT_EQ(ops.status(ops.self, groups[0]), BP_OK);
  EXPECT_TRUE(made_nothing());
}

TEST(Deadlines, ForgetOneThatWasRemoved) {
  Deadlines deadlines;
  Point first(false), second(false);
  const auto owner = std::make_shared<int>();
  const auto soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  const auto key = deadlines.add(soon, owner, [&] { first.complete({}); });
  deadlines.add(soon + std::chrono::milliseconds(1), owner, [&] { second.complete({}); });
  deadlines.remove(key);
  EXPECT_TRUE(second.wait(kLong));
  EXPECT_FALSE(first.is_complete());
}

TEST(Deadlines, ComeInTheOrderOfTheirTimes) {
  Deadlines deadlines;
  Point first(false), second(false);
  bool was_first = false;
  const auto owner = std::make_shared<int>();
  const auto soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(5);
  deadlines.add(soon + std::chrono::milliseconds(5), owner, [&] {
    was_first = first.is_complete();
    second.complete({});
  });
  deadlines.add(soon, owner, [&] { first.complete({}); });
  EXPECT_TRUE(second.wait(kLong));
  EXPECT_TRUE(was_first);
}

}  // namespace
}  // namespace bp
