// Tests what the layer validate knows of process groups: which bytes their calls touch, and what
// they order.
#include <vector>

#include "registry/tests/validate_fixture.hpp"

namespace bp::core {
namespace {

struct Groups {
  char made[8] = {};
  int count = 0;
  bp_status submit_status = BP_OK;
  bp_process_group_ops ops{
      .struct_size = sizeof(ops),
      .struct_type = BP_STRUCT_PROCESS_GROUP_OPS,
      .next = nullptr,
      .self = this,
      .name = "fake",
      .create = create,
      .destroy = [](void*, bp_process_group*) -> bp_status { return BP_OK; },
      .supports = nullptr,
      .submit = [](void* self, uint64_t, const bp_collective_call*, uint64_t) -> bp_status {
        return static_cast<Groups*>(self)->submit_status;
      },
      .split = [](void* self, uint32_t local_count, bp_process_group* const*, const uint32_t*,
                  const uint32_t*, uint64_t, bp_process_group** out) -> bp_status {
        return static_cast<Groups*>(self)->make(local_count, out);
      },
      .shrink = [](void* self, uint32_t local_count, bp_process_group* const*, uint32_t,
                   const uint32_t*, uint64_t, bp_process_group** out) -> bp_status {
        return static_cast<Groups*>(self)->make(local_count, out);
      }};

  bp_status make(uint32_t local_count, bp_process_group** out) {
    for (uint32_t i = 0; i < local_count; ++i) {
      out[i] = reinterpret_cast<bp_process_group*>(&made[count++]);
    }
    return BP_OK;
  }
  static bp_status create(void* self, const bp_process_group_desc* desc, bp_process_group** out) {
    return static_cast<Groups*>(self)->make(desc->local_count, out);
  }
};

// Two ranks on one device.
class ValidateGroups : public ValidateTest {
 protected:
  ValidateGroups() { fake_.groups = &groups_.ops; }
  void SetUp() override {
    ValidateTest::SetUp();
    create(0, 2);
    for (int i = 0; i < 2; ++i) {
      streams_[i] = stream();
      buffers_[i] = allocate();
    }
  }
  void TearDown() override {
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(streams().synchronize(streams().self, streams_[i], UINT64_MAX), BP_OK);
      EXPECT_EQ(free(buffers_[i]), BP_OK);
      EXPECT_EQ(streams().destroy(streams().self, streams_[i]), BP_OK);
    }
  }

  // Makes the ranks first_rank and first_rank + 1 of a world.
  void create(uint32_t first_rank, uint32_t world_size) {
    bp_device* const devices[] = {r_.target()->device, r_.target()->device};
    const uint32_t ranks[] = {first_rank, first_rank + 1};
    const bp_process_group_desc desc{.struct_size = sizeof(desc),
                                     .struct_type = BP_STRUCT_PROCESS_GROUP_DESC,
                                     .next = nullptr,
                                     .devices = devices,
                                     .ranks = ranks,
                                     .local_count = 2,
                                     .world_size = world_size};
    ASSERT_EQ(ops().create(ops().self, &desc, made_), BP_OK);
  }
  // Afterwards rank 0 is the second group.
  void split_in_reverse() {
    const uint32_t colors[] = {7, 7}, keys[] = {1, 0};
    bp_process_group* from[] = {made_[0], made_[1]};
    ASSERT_EQ(ops().split(ops().self, 2, from, colors, keys, UINT64_MAX, made_), BP_OK);
  }

  const bp_process_group_ops& ops() const { return *r_.target()->process_groups; }
  bp_collective_call call(int rank, bp_collective_kind kind, uint32_t root = 0) const {
    const bp_buffer_ref whole{buffers_[rank], 0, 64};
    return {.struct_size = sizeof(bp_collective_call),
            .struct_type = BP_STRUCT_COLLECTIVE_CALL,
            .next = nullptr,
            .group = made_[rank],
            .stream = streams_[rank],
            .send = whole,
            .receive = whole,
            .count = 4,
            .kind = kind,
            .reduction = 0,
            .dtype = BP_F32,
            .root = root};
  }
  bp_status submit(const std::vector<bp_collective_call>& calls) {
    return ops().submit(ops().self, calls.size(), calls.data(), sizeof(bp_collective_call));
  }
  bp_status copy(int on, int from, int to) {
    const bp_buffer_ref src{buffers_[from], 0, 64}, dst{buffers_[to], 0, 64};
    return memory().copy(memory().self, streams_[on], &dst, &src);
  }

  Groups groups_;
  bp_process_group* made_[2] = {};
  bp_stream* streams_[2] = {};
  bp_buffer* buffers_[2] = {};
};

TEST_F(ValidateGroups, ACallTouchesItsBuffersAsFarAsItsCount) {
  fake_.allocator.copy = [](void*, bp_stream*, const bp_buffer_ref*,
                            const bp_buffer_ref*) -> bp_status { return BP_OK; };
  EXPECT_EQ(submit({call(0, BP_COLLECTIVE_ALL_REDUCE), call(1, BP_COLLECTIVE_ALL_REDUCE)}), BP_OK);
  EXPECT_EQ(reports(), 0) << r_.log;
  EXPECT_EQ(fill(streams_[1], buffers_[0], 16, 8), BP_OK);
  EXPECT_EQ(reports(), 0) << "16 bytes are reduced\n" << r_.log;
  EXPECT_EQ(fill(streams_[1], buffers_[0], 8, 8), BP_OK);
  EXPECT_NE(r_.log.find(", as collective call on stream 0x"), std::string::npos) << r_.log;
}

TEST_F(ValidateGroups, TheRootAloneReceivesAReduction) {
  EXPECT_EQ(submit({call(0, BP_COLLECTIVE_REDUCE), call(1, BP_COLLECTIVE_REDUCE)}), BP_OK);
  bp_stream* other = stream();
  bp_buffer* target = allocate();
  for (const int rank : {1, 0}) {
    const bp_buffer_ref src{buffers_[rank], 0, 8}, dst{target, 0, 8};
    EXPECT_EQ(memory().copy(memory().self, other, &dst, &src), BP_OK);
    EXPECT_EQ(reports(), rank == 1 ? 0 : 1) << r_.log;
  }
  EXPECT_EQ(streams().synchronize(streams().self, other, UINT64_MAX), BP_OK);
  EXPECT_EQ(free(target), BP_OK);
  EXPECT_EQ(streams().destroy(streams().self, other), BP_OK);
}

TEST_F(ValidateGroups, ABarrierOrdersTheStreamsOfItsRanks) {
  for (const bool is_apart : {false, true}) {
    EXPECT_EQ(fill(streams_[0], buffers_[0]), BP_OK);
    EXPECT_EQ(fill(streams_[1], buffers_[1]), BP_OK);
    if (is_apart) {
      EXPECT_EQ(submit({call(1, BP_COLLECTIVE_BARRIER)}), BP_OK);
      EXPECT_EQ(submit({call(0, BP_COLLECTIVE_BARRIER)}), BP_OK);
    } else {
      EXPECT_EQ(submit({call(0, BP_COLLECTIVE_BARRIER), call(1, BP_COLLECTIVE_BARRIER)}), BP_OK);
    }
    EXPECT_EQ(copy(1, 0, 1), BP_OK);
    EXPECT_EQ(reports(), 0) << r_.log;
    EXPECT_EQ(submit({call(0, BP_COLLECTIVE_BARRIER), call(1, BP_COLLECTIVE_BARRIER)}), BP_OK);
  }
  groups_.submit_status = BP_UNSUPPORTED;
  EXPECT_EQ(fill(streams_[0], buffers_[0]), BP_OK);
  EXPECT_EQ(submit({call(0, BP_COLLECTIVE_BARRIER), call(1, BP_COLLECTIVE_BARRIER)}),
            BP_UNSUPPORTED);
  EXPECT_EQ(copy(1, 0, 1), BP_OK);
  EXPECT_EQ(reports(), 1) << "a call that was refused orders nothing\n" << r_.log;
}

TEST_F(ValidateGroups, AReceiverGoesOnBehindTheSenderAndNotTheOtherWayRound) {
  EXPECT_EQ(fill(streams_[0], buffers_[0]), BP_OK);
  EXPECT_EQ(fill(streams_[1], buffers_[1]), BP_OK);
  EXPECT_EQ(submit({call(1, BP_COLLECTIVE_RECEIVE, 0)}), BP_OK);
  EXPECT_EQ(submit({call(0, BP_COLLECTIVE_SEND, 1)}), BP_OK);
  EXPECT_EQ(reports(), 0) << r_.log;
  bp_buffer* target = allocate();
  const bp_buffer_ref dst{target, 0, 64}, first{buffers_[0], 0, 64}, second{buffers_[1], 0, 64};
  EXPECT_EQ(memory().copy(memory().self, streams_[1], &dst, &first), BP_OK);
  EXPECT_EQ(reports(), 0) << r_.log;
  EXPECT_EQ(memory().copy(memory().self, streams_[0], &dst, &second), BP_OK);
  EXPECT_GT(reports(), 0) << r_.log;
  EXPECT_EQ(streams().synchronize(streams().self, streams_[0], UINT64_MAX), BP_OK);
  EXPECT_EQ(streams().synchronize(streams().self, streams_[1], UINT64_MAX), BP_OK);
  EXPECT_EQ(free(target), BP_OK);
}

TEST_F(ValidateGroups, RanksOfASplitAreOrderedByTheirKeys) {
  split_in_reverse();
  EXPECT_EQ(submit({call(0, BP_COLLECTIVE_REDUCE), call(1, BP_COLLECTIVE_REDUCE)}), BP_OK);
  bp_stream* other = stream();
  bp_buffer* target = allocate();
  for (const int place : {0, 1}) {
    const bp_buffer_ref src{buffers_[place], 0, 8}, dst{target, 0, 8};
    EXPECT_EQ(memory().copy(memory().self, other, &dst, &src), BP_OK);
    EXPECT_EQ(reports(), place) << "the second receives: it is the root\n" << r_.log;
  }
  EXPECT_EQ(streams().synchronize(streams().self, other, UINT64_MAX), BP_OK);
  EXPECT_EQ(free(target), BP_OK);
  EXPECT_EQ(streams().destroy(streams().self, other), BP_OK);
}

TEST_F(ValidateGroups, MessagesOfASplitOrderItsRanks) {
  split_in_reverse();
  EXPECT_EQ(fill(streams_[1], buffers_[1]), BP_OK);
  EXPECT_EQ(submit({call(1, BP_COLLECTIVE_SEND, 1), call(0, BP_COLLECTIVE_RECEIVE, 0)}), BP_OK);
  EXPECT_EQ(copy(0, 1, 0), BP_OK);
  EXPECT_EQ(reports(), 0) << "behind the fill that was sent\n" << r_.log;
}

TEST_F(ValidateGroups, RanksMoveUpBehindThoseThatAShrinkTookOut) {
  create(1, 3);
  const uint32_t gone[] = {0};
  bp_process_group* from[] = {made_[0], made_[1]};
  ASSERT_EQ(ops().shrink(ops().self, 2, from, 1, gone, UINT64_MAX, made_), BP_OK);
  EXPECT_EQ(fill(streams_[0], buffers_[0]), BP_OK);
  EXPECT_EQ(submit({call(0, BP_COLLECTIVE_SEND, 1), call(1, BP_COLLECTIVE_RECEIVE, 0)}), BP_OK);
  EXPECT_EQ(copy(1, 0, 1), BP_OK);
  EXPECT_EQ(reports(), 0) << "behind the fill that was sent\n" << r_.log;
}

TEST_F(ValidateGroups, RefusesAGroupThatHasEndedAndRangesThatLeave) {
  bp_collective_call wrong = call(1, BP_COLLECTIVE_ALL_REDUCE);
  wrong.send.byte_offset = 1 << 20;
  EXPECT_EQ(submit({call(0, BP_COLLECTIVE_ALL_REDUCE), wrong}), BP_INVALID_ARGUMENT);
  expect_words("[MEMORY-1] collective.submit: 64 bytes from byte 1048576 on leave buffer 0x");
  EXPECT_EQ(ops().destroy(ops().self, made_[0]), BP_OK);
  EXPECT_EQ(submit({call(0, BP_COLLECTIVE_BARRIER)}), BP_INVALID_ARGUMENT);
  expect_words("[COLLECTIVE-7] collective.submit: process group 0x");
}

}  // namespace
}  // namespace bp::core
