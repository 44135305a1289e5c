// Tests process groups on the fake CUDA and the fake NCCL. Two instances stand for two processes,
// which find each other through a store of the test.
#include "backends/cuda/collective.hpp"

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <map>
#include <thread>

#include "backends/cuda/engines.hpp"
#include "backends/cuda/fake/cuda.hpp"
#include "backends/cuda/fake/nccl.hpp"
#include "backends/cuda/memory.hpp"

namespace bp::cuda {
namespace {

constexpr uint64_t kLong = 10'000'000'000, kShort = 150'000'000;

// A store that lives in this process.
class Store {
 public:
  Store() {
    table_.struct_size = sizeof(table_);
    table_.struct_type = BP_STRUCT_STORE;
    table_.self = this;
    table_.get = [](void* self, const char* key, uint64_t timeout_ns, uint64_t capacity, void* out,
                    uint64_t* size) {
      return static_cast<Store*>(self)->get(key, timeout_ns, capacity, out, size);
    };
    table_.try_get = [](void* self, const char* key, uint64_t capacity, void* out, uint64_t* size) {
      const bp_status status = static_cast<Store*>(self)->get(key, 0, capacity, out, size);
      return status == BP_TIMEOUT ? bp_status{BP_NOT_FOUND} : status;
    };
    table_.put = [](void* self, const char* key, const void* value, uint64_t size) -> bp_status {
      auto& s = *static_cast<Store*>(self);
      const std::lock_guard lock(s.mutex_);
      s.values_[key].assign(static_cast<const char*>(value), size);
      s.changed_.notify_all();
      return BP_OK;
    };
  }
  const bp_store* table() const { return &table_; }
  std::vector<std::string> keys() {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> keys;
    for (const auto& [key, value] : values_) keys.push_back(key);
    return keys;
  }

 private:
  bp_status get(const std::string& key, uint64_t timeout_ns, uint64_t capacity, void* out,
                uint64_t* size) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::nanoseconds(timeout_ns),
                           [&] { return values_.contains(key); })) {
      return BP_TIMEOUT;
    }
    const std::string& value = values_[key];
    std::memcpy(out, value.data(), std::min<uint64_t>(capacity, value.size()));
    *size = value.size();
    return BP_OK;
  }
  bp_store table_{};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

// What stands for one process: an instance of the backend, and ranks on its devices.
class Process {
 public:
  Process() {
    host_.struct_size = sizeof(host_);
    host_.struct_type = BP_STRUCT_HOST;
    host_.self = this;
    host_.set_error = [](void* self, bp_status status, const char* text) {
      auto& p = *static_cast<Process*>(self);
      const std::lock_guard lock(p.mutex_);
      p.text_ = text;
      return status;
    };
    host_.log_line = [](void*, bp_log_level, const char*) -> bp_status { return BP_OK; };
    host_.get_option = [](void*, const char*, const char**) -> bp_status { return BP_NOT_FOUND; };
    instance_ = std::make_unique<Instance>(&host_, fake::driver());
    instance_->engines->libraries().put(fake::nccl());
  }
  ~Process() {
    for (Rank& rank : ranks_) {
      ops().destroy(ops().self, rank.group);
      instance_->streams.destroy(instance_->streams.self, rank.stream);
      instance_->allocator.deallocate(instance_->allocator.self, rank.buffer, nullptr);
    }
  }

  struct Rank {
    bp_device* device = nullptr;
    bp_stream* stream = nullptr;
    bp_buffer* buffer = nullptr;
    bp_process_group* group = nullptr;
  };

  const bp_process_group_ops& ops() const { return instance_->process_groups; }
  Rank& rank(size_t i) { return ranks_[i]; }
  std::string text() {
    const std::lock_guard lock(mutex_);
    return text_;
  }

  // Creates the given ranks of a group of `size` ranks. Rank r is on device r % 2.
  bp_status create(const std::vector<uint32_t>& ranks, uint32_t size, const Store* store,
                   uint64_t timeout_ns, const std::vector<bp_option>& options = {},
                   const char* table_name = nullptr) {
    std::vector<bp_device*> devices;
    devices.reserve(ranks.size());
    for (const uint32_t rank : ranks) {
      devices.push_back(reinterpret_cast<bp_device*>(instance_->cards[rank % 2].get()));
    }
    bp_process_group_desc desc{};
    desc.struct_size = sizeof(desc);
    desc.struct_type = BP_STRUCT_PROCESS_GROUP_DESC;
    desc.devices = devices.data();
    desc.ranks = ranks.data();
    desc.local_count = static_cast<uint32_t>(ranks.size());
    desc.world_size = size;
    desc.store = store == nullptr ? nullptr : store->table();
    desc.key_prefix = "test/";
    desc.timeout_ns = timeout_ns;
    desc.table_name = table_name;
    desc.option_count = options.size();
    desc.options = options.data();
    std::vector<bp_process_group*> groups(ranks.size());
    const bp_status status = ops().create(ops().self, &desc, groups.data());
    if (status != BP_OK) return status;
    for (size_t i = 0; i < ranks.size(); ++i) add_rank(devices[i], groups[i]);
    return BP_OK;
  }

  void add_rank(bp_device* device, bp_process_group* group) {
    Rank rank{.device = device, .group = group};
    instance_->streams.create(instance_->streams.self, device, nullptr, &rank.stream);
    bp_allocate_desc desc{};
    desc.struct_size = sizeof(desc);
    desc.struct_type = BP_STRUCT_ALLOCATE_DESC;
    desc.size_bytes = 64;
    instance_->allocator.allocate(instance_->allocator.self, device, &desc, &rank.buffer);
    ranks_.push_back(rank);
  }

  float* values(size_t i) {
    return reinterpret_cast<float*>(address_of({ranks_[i].buffer, 0, 64}));
  }

  bp_collective_call call(size_t i, bp_collective_kind kind, bp_reduction reduction = 0) {
    bp_collective_call call{};
    call.struct_size = sizeof(call);
    call.struct_type = BP_STRUCT_COLLECTIVE_CALL;
    call.group = ranks_[i].group;
    call.stream = ranks_[i].stream;
    call.send = call.receive = {ranks_[i].buffer, 0, 64};
    call.count = 4;
    call.dtype = BP_F32;
    call.kind = kind;
    call.reduction = reduction;
    return call;
  }
  bp_status submit(const std::vector<bp_collective_call>& calls) {
    return ops().submit(ops().self, calls.size(), calls.data(), sizeof(bp_collective_call));
  }
  // Submits a copy of the first 16 bytes of a rank's buffer to its bytes from 32 on.
  bp_status keep(size_t i) {
    const bp_buffer_ref to{ranks_[i].buffer, 32, 16}, from{ranks_[i].buffer, 0, 16};
    return instance_->allocator.copy(instance_->allocator.self, ranks_[i].stream, &to, &from);
  }
  bp_status sum(size_t i) { return submit({call(i, BP_COLLECTIVE_ALL_REDUCE, BP_REDUCTION_SUM)}); }
  bp_status outcome(size_t i) {
    return instance_->streams.synchronize(instance_->streams.self, ranks_[i].stream, kLong);
  }
  bp_status status(size_t i) { return ops().status(ops().self, ranks_[i].group); }

 private:
  bp_host host_{};
  std::mutex mutex_;
  std::string text_;
  std::unique_ptr<Instance> instance_;
  std::vector<Rank> ranks_;
};

class CollectiveTest : public testing::Test {
 protected:
  ~CollectiveTest() override {
    fake::fail_nccl_call("", ncclSuccess);
    fake::fail_nccl_async(ncclSuccess);
    EXPECT_EQ(fake::live_communicators(), 0) << "communicators are left";
    EXPECT_EQ(fake::leftovers(), std::vector<std::string>());
  }

  // Creates a group of two ranks, one in each process.
  static void meet(Process& a, Process& b, const Store& store, uint64_t timeout_ns = kLong) {
    bp_status other = BP_INTERNAL;
    std::thread thread([&] { other = b.create({1}, 2, &store, timeout_ns); });
    const bp_status mine = a.create({0}, 2, &store, timeout_ns);
    thread.join();
    ASSERT_EQ(mine, BP_OK) << a.text();
    ASSERT_EQ(other, BP_OK) << b.text();
  }
};

TEST_F(CollectiveTest, SumsUpOverProcesses) {
  Store store;
  Process a, b;
  ASSERT_NO_FATAL_FAILURE(meet(a, b, store));
  a.values(0)[0] = 1;
  b.values(0)[0] = 2;
  EXPECT_EQ(a.sum(0), BP_OK);
  EXPECT_EQ(b.sum(0), BP_OK);
  EXPECT_EQ(a.outcome(0), BP_OK);
  EXPECT_EQ(b.outcome(0), BP_OK);
  EXPECT_EQ(a.values(0)[0], 3);
  EXPECT_EQ(b.values(0)[0], 3);
  for (const std::string& key : store.keys()) EXPECT_TRUE(key.starts_with("test/")) << key;
}

TEST_F(CollectiveTest, MakesNoGroupWhereARankDoesNotCome) {
  Store store;
  {
    Process late;
    EXPECT_EQ(late.create({1}, 2, &store, kShort), BP_TIMEOUT);
    EXPECT_NE(late.text().find("rank 0 did not come"), std::string::npos) << late.text();
  }
  Process first;
  EXPECT_EQ(first.create({0}, 2, &store, kShort), BP_TIMEOUT);
  EXPECT_NE(first.text().find("waited for the others"), std::string::npos) << first.text();
}

TEST_F(CollectiveTest, EndsWorkThatWaitsTooLong) {
  Store store;
  Process a, b;
  ASSERT_NO_FATAL_FAILURE(meet(a, b, store));
  std::vector<bp_collective_call> calls{a.call(0, BP_COLLECTIVE_ALL_REDUCE, BP_REDUCTION_SUM)};
  calls[0].timeout_ns = kShort;
  EXPECT_EQ(a.submit(calls), BP_OK);
  EXPECT_EQ(a.outcome(0), BP_TIMEOUT);
  EXPECT_EQ(a.status(0), BP_TIMEOUT);
  EXPECT_NE(a.text().find("all_reduce: rank 0 waited"), std::string::npos) << a.text();
  EXPECT_EQ(b.status(0), BP_ABORTED);  // The other process learns it from the store.
  EXPECT_EQ(b.sum(0), BP_ABORTED);
}

TEST_F(CollectiveTest, AbortReachesAnotherProcess) {
  Store store;
  Process a, b;
  ASSERT_NO_FATAL_FAILURE(meet(a, b, store));
  EXPECT_EQ(b.sum(0), BP_OK);
  EXPECT_EQ(a.ops().abort(a.ops().self, a.rank(0).group), BP_OK);
  EXPECT_EQ(b.outcome(0), BP_ABORTED);
  EXPECT_NE(b.text().find("another process has ended the group: rank 0 aborted"), std::string::npos)
      << b.text();
}

// NCCL makes a connection when the first call needs it, and all its ranks must come for that.
TEST_F(CollectiveTest, AThreadSubmitsOneRankAfterTheOther) {
  Process a;
  ASSERT_EQ(a.create({0, 1}, 2, nullptr, kLong), BP_OK);
  a.values(0)[0] = 1;
  a.values(1)[0] = 2;
  EXPECT_EQ(a.sum(0), BP_OK);
  EXPECT_EQ(a.keep(0), BP_OK);  // It must come after the sum.
  EXPECT_EQ(a.sum(0), BP_OK);   // The communicator takes it when it has connected.
  EXPECT_EQ(a.sum(1), BP_OK);
  EXPECT_EQ(a.sum(1), BP_OK);
  EXPECT_EQ(a.outcome(0), BP_OK) << a.text();
  EXPECT_EQ(a.outcome(1), BP_OK) << a.text();
  EXPECT_EQ(a.values(0)[8], 3);
  EXPECT_EQ(a.values(0)[0], 6);
  EXPECT_EQ(a.values(1)[0], 6);
}

TEST_F(CollectiveTest, AbortEndsACallThatConnects) {
  Process a;
  ASSERT_EQ(a.create({0, 1}, 2, nullptr, kLong), BP_OK);
  EXPECT_EQ(a.sum(0), BP_OK);
  EXPECT_EQ(a.ops().abort(a.ops().self, a.rank(0).group), BP_OK);
  EXPECT_EQ(a.outcome(0), BP_ABORTED);
  EXPECT_NE(a.text().find("rank 0 aborted the group"), std::string::npos) << a.text();
}

TEST_F(CollectiveTest, ACallThatConnectsOutlivesItsGroup) {
  Process a;
  ASSERT_EQ(a.create({0, 1}, 2, nullptr, kLong), BP_OK);
  a.values(0)[0] = 1;
  a.values(1)[0] = 2;
  EXPECT_EQ(a.sum(0), BP_OK);
  EXPECT_EQ(a.ops().destroy(a.ops().self, std::exchange(a.rank(0).group, nullptr)), BP_OK);
  EXPECT_EQ(a.sum(1), BP_OK);
  EXPECT_EQ(a.outcome(0), BP_OK) << a.text();
  EXPECT_EQ(a.values(0)[0], 3);
}

// The rank that comes last to a split stores the communicators of all ranks, also of those that
// have gone meanwhile.
TEST_F(CollectiveTest, ASplitThatTimesOutEndsItsGroupAndLeavesNothing) {
  Store store;
  Process a, b;
  ASSERT_NO_FATAL_FAILURE(meet(a, b, store));
  const uint32_t color = 4, key = 0;
  bp_process_group* out = nullptr;
  const auto split = [&](Process& p) {
    return p.ops().split(p.ops().self, 1, &p.rank(0).group, &color, &key, kShort, &out);
  };
  EXPECT_EQ(split(a), BP_TIMEOUT);
  EXPECT_EQ(a.status(0), BP_TIMEOUT);
  EXPECT_NE(split(b), BP_OK);
  EXPECT_NE(b.status(0), BP_OK);  // It waited in vain too, or the store told it the end.
  EXPECT_EQ(out, nullptr);
}

TEST_F(CollectiveTest, ASplitWithoutATimeoutHasThatOfTheGroup) {
  Process a;
  ASSERT_EQ(a.create({0, 1}, 2, nullptr, kLong), BP_OK);
  bp_process_group* const groups[] = {a.rank(0).group, a.rank(1).group};
  const uint32_t colors[] = {4, 4}, keys[] = {0, 1};
  bp_process_group* out[2] = {};
  ASSERT_EQ(a.ops().split(a.ops().self, 2, groups, colors, keys, 0, out), BP_OK) << a.text();
  for (size_t i = 0; i < 2; ++i) a.add_rank(a.rank(i).device, out[i]);
  EXPECT_EQ(a.ops().shrink(a.ops().self, 2, out, 0, nullptr, 0, out), BP_OK) << a.text();
  for (size_t i = 0; i < 2; ++i) a.add_rank(a.rank(i).device, out[i]);
}

TEST_F(CollectiveTest, AFailureOfNcclEndsTheGroupInWords) {
  Process a;
  ASSERT_EQ(a.create({0, 1}, 2, nullptr, kLong), BP_OK);
  EXPECT_EQ(a.sum(0), BP_OK);
  fake::fail_nccl_async(ncclRemoteError);
  EXPECT_EQ(a.outcome(0), BP_ABORTED);
  EXPECT_NE(a.text().find("an error of NCCL for tests"), std::string::npos) << a.text();
}

TEST_F(CollectiveTest, EachFailingCallIsAStatusAndLeavesNothing) {
  for (const char* name :
       {"ncclGetUniqueId", "ncclCommInitRankConfig", "ncclGroupEnd", "ncclAllReduce"}) {
    Process a;
    fake::fail_nccl_call(name, ncclInternalError);
    EXPECT_EQ(a.create({0, 1}, 2, nullptr, kLong), BP_INTERNAL) << name;
    EXPECT_NE(a.text().find(name), std::string::npos) << a.text();
    fake::fail_nccl_call("", ncclSuccess);
    EXPECT_EQ(a.create({0, 1}, 2, nullptr, kLong), BP_OK) << name << ": " << a.text();
  }
}

TEST_F(CollectiveTest, AFailingSubmissionFailsTheStreams) {
  Process a;
  ASSERT_EQ(a.create({0, 1}, 2, nullptr, kLong), BP_OK);
  fake::fail_nccl_call("ncclAllReduce", ncclInternalError);
  static_cast<void>(a.submit({a.call(0, BP_COLLECTIVE_ALL_REDUCE, BP_REDUCTION_SUM),
                              a.call(1, BP_COLLECTIVE_ALL_REDUCE, BP_REDUCTION_SUM)}));
  EXPECT_EQ(a.outcome(0), BP_INTERNAL);
  EXPECT_EQ(a.outcome(1), BP_INTERNAL);
  EXPECT_EQ(a.status(0), BP_INTERNAL);
}

TEST_F(CollectiveTest, PairsSendsAndReceivesInTheirOrder) {
  Process a;
  ASSERT_EQ(a.create({0, 1}, 2, nullptr, kLong), BP_OK);
  a.values(0)[0] = 5;
  a.values(0)[4] = 7;
  const auto peer_call = [&](size_t i, bp_collective_kind kind, uint64_t offset) {
    bp_collective_call call = a.call(i, kind);
    call.send = call.receive = {a.rank(i).buffer, offset, 16};
    call.root = i == 0 ? 1 : 0;
    return call;
  };
  EXPECT_EQ(
      a.submit({peer_call(0, BP_COLLECTIVE_SEND, 16), peer_call(0, BP_COLLECTIVE_SEND, 0),
                peer_call(1, BP_COLLECTIVE_RECEIVE, 0), peer_call(1, BP_COLLECTIVE_RECEIVE, 16)}),
      BP_OK)
      << a.text();
  EXPECT_EQ(a.outcome(1), BP_OK);
  EXPECT_EQ(a.values(1)[0], 7);
  EXPECT_EQ(a.values(1)[4], 5);
}

TEST_F(CollectiveTest, RefusesWhatNcclHasNot) {
  Process a;
  EXPECT_EQ(a.create({0, 2}, 2, nullptr, kLong), BP_INVALID_ARGUMENT);
  EXPECT_EQ(a.create({0, 1, 2}, 3, nullptr, kLong), BP_UNSUPPORTED);
  EXPECT_NE(a.text().find("one rank for each device"), std::string::npos) << a.text();
  EXPECT_EQ(a.create({0}, 2, nullptr, kLong), BP_INVALID_ARGUMENT);
  ASSERT_EQ(a.create({0, 1}, 2, nullptr, kLong), BP_OK);
  EXPECT_EQ(a.submit({a.call(0, BP_COLLECTIVE_ALL_REDUCE, BP_REDUCTION_SCALED_SUM + 1)}),
            BP_UNSUPPORTED);
  EXPECT_EQ(a.status(0), BP_OK);
}

TEST_F(CollectiveTest, PassesItsOptionsToNcclAndToThePartsOfAGroup) {
  Process a;
  static_cast<void>(fake::take_max_ctas());
  ASSERT_EQ(a.create({0, 1}, 2, nullptr, kLong, {{"max_ctas", "8"}, {"min_ctas", "2"}}, "nccl"),
            BP_OK)
      << a.text();
  EXPECT_EQ(fake::take_max_ctas(), (std::vector{8, 8}));
  bp_process_group* const groups[] = {a.rank(0).group, a.rank(1).group};
  const uint32_t colors[] = {4, 4}, keys[] = {9, 3};
  bp_process_group* out[2] = {};
  ASSERT_EQ(a.ops().split(a.ops().self, 2, groups, colors, keys, kLong, out), BP_OK) << a.text();
  EXPECT_EQ(fake::take_max_ctas(), (std::vector{8, 8}));
  for (size_t i = 0; i < 2; ++i) a.add_rank(a.rank(i).device, out[i]);
  ASSERT_EQ(a.create({0, 1}, 2, nullptr, kLong), BP_OK) << a.text();
  EXPECT_EQ(fake::take_max_ctas(), (std::vector{NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT}));
}

TEST_F(CollectiveTest, RefusesOptionsThatItDoesNotHaveAndTheNameOfAnotherTable) {
  Process a;
  EXPECT_EQ(a.create({0, 1}, 2, nullptr, kLong, {}, "gloo"), BP_NOT_FOUND);
  EXPECT_EQ(a.create({0, 1}, 2, nullptr, kLong, {{"color", "red"}}), BP_NOT_FOUND);
  EXPECT_EQ(a.text(),
            "create: process groups \"nccl\" have no option \"color\"; allowed are: min_ctas "
            "max_ctas");
  EXPECT_EQ(a.create({0, 1}, 2, nullptr, kLong, {{"max_ctas", "none"}}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(a.text(), "option max_ctas: \"none\" is not a number from 1 to 64");
  EXPECT_EQ(a.create({0, 1}, 2, nullptr, kLong, {{"min_ctas", "9"}, {"max_ctas", "8"}}),
            BP_INVALID_ARGUMENT);
  EXPECT_EQ(a.text(), "create: min_ctas is 9; it must be at most max_ctas, which is 8");
}

TEST_F(CollectiveTest, SplitsByColorAndKey) {
  Process a;
  ASSERT_EQ(a.create({0, 1}, 2, nullptr, kLong), BP_OK);
  bp_process_group* const groups[] = {a.rank(0).group, a.rank(1).group};
  const uint32_t alike[] = {4, 4}, keys[] = {9, 3}, apart[] = {1, UINT32_MAX};
  bp_process_group* out[2] = {};
  ASSERT_EQ(a.ops().split(a.ops().self, 2, groups, alike, keys, kLong, out), BP_OK) << a.text();
  a.add_rank(a.rank(0).device, out[0]);
  a.add_rank(a.rank(1).device, out[1]);
  a.values(2)[0] = 10;  // Its key is the larger one, so it is rank 1.
  a.values(3)[0] = 20;
  EXPECT_EQ(a.submit({a.call(2, BP_COLLECTIVE_BROADCAST), a.call(3, BP_COLLECTIVE_BROADCAST)}),
            BP_OK)
      << a.text();
  EXPECT_EQ(a.outcome(2), BP_OK);
  EXPECT_EQ(a.values(2)[0], 20);
  ASSERT_EQ(a.ops().split(a.ops().self, 2, groups, apart, keys, kLong, out), BP_OK) << a.text();
  EXPECT_EQ(out[1], nullptr);
  a.add_rank(a.rank(0).device, out[0]);
  EXPECT_EQ(a.sum(4), BP_OK);
  EXPECT_EQ(a.outcome(4), BP_OK);
}

// NCCL would split a communicator twice, or wait for ranks that never come.
TEST_F(CollectiveTest, RefusesASplitOrShrinkThatDoesNotAccountForEachRank) {
  Process a;
  bp_process_group* out[2] = {};
  ASSERT_EQ(a.create({0, 1}, 2, nullptr, kLong), BP_OK) << a.text();
  ASSERT_EQ(a.create({0, 1}, 2, nullptr, kLong), BP_OK) << a.text();
  bp_process_group* const one_world[] = {a.rank(0).group, a.rank(1).group};
  bp_process_group* const two_worlds[] = {a.rank(0).group, a.rank(3).group};
  bp_process_group* const twice[] = {a.rank(0).group, a.rank(0).group};
  const uint32_t colors[] = {4, 4}, keys[] = {9, 3}, far[] = {7}, repeated[] = {1, 1};
  const bp_process_group_ops& ops = a.ops();
  const std::string once = "groups[1] is rank 0, as groups[0] is; each rank is allowed once";
  const std::string lacks =
      "groups lacks rank 1; each rank of this process that is not gone must be there";
  EXPECT_EQ(ops.split(ops.self, 2, twice, colors, keys, kLong, out), BP_INVALID_ARGUMENT);
  EXPECT_EQ(a.text(), "split: " + once);
  EXPECT_EQ(ops.split(ops.self, 1, one_world, colors, keys, kLong, out), BP_INVALID_ARGUMENT);
  EXPECT_EQ(a.text(), "split: " + lacks);
  const auto shrink = [&](uint32_t count, bp_process_group* const* groups, uint32_t gone_count,
                          const uint32_t* gone) {
    EXPECT_EQ(ops.shrink(ops.self, count, groups, gone_count, gone, kLong, out),
              BP_INVALID_ARGUMENT);
    return a.text();
  };
  EXPECT_EQ(shrink(2, twice, 0, nullptr), "shrink: " + once);
  EXPECT_EQ(shrink(2, two_worlds, 0, nullptr),
            "shrink: groups[1] is of another world than groups[0]; all must be of one world");
  EXPECT_EQ(shrink(1, one_world, 0, nullptr), "shrink: " + lacks);
  EXPECT_EQ(shrink(1, one_world, 1, far),
            "shrink: gone_ranks[0] is 7; it must be below the size of the group, which is 2");
  EXPECT_EQ(shrink(1, one_world, 2, repeated),
            "shrink: gone_ranks[1] is 1 again; each rank is allowed once");
  EXPECT_EQ(a.status(0), BP_OK);
  EXPECT_EQ(out[0], nullptr);
}

TEST_F(CollectiveTest, RefusesElementsThatItsRangesDoNotHold) {
  Process a;
  ASSERT_EQ(a.create({0, 1}, 2, nullptr, kLong), BP_OK);
  bp_collective_call call = a.call(0, BP_COLLECTIVE_ALL_REDUCE, BP_REDUCTION_SUM);
  call.count = uint64_t{1} << 62;  // Their bytes are 0 in 64 bits.
  EXPECT_EQ(a.submit({call}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(a.text(),
            "submit: call 0: send has 64 bytes; it must have room for 4611686018427387904 elements "
            "of 4 bytes");
  call = a.call(0, BP_COLLECTIVE_ALL_TO_ALL);
  call.count = uint64_t{1} << 63;  // The sum over the ranks is 0 in 64 bits.
  EXPECT_EQ(a.submit({call}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(a.text(),
            "submit: call 0: the parts of 2 ranks have more elements together than 2^64 - 1, the "
            "most that is allowed");
  EXPECT_EQ(a.status(0), BP_OK);
}

TEST_F(CollectiveTest, ShrinksToTheRanksThatAreLeft) {
  Store store;
  Process a, b;
  ASSERT_NO_FATAL_FAILURE(meet(a, b, store));
  bp_process_group* out = nullptr;
  const uint32_t gone = 0;
  ASSERT_EQ(b.ops().shrink(b.ops().self, 1, &b.rank(0).group, 1, &gone, kLong, &out), BP_OK)
      << b.text();
  EXPECT_EQ(b.status(0), BP_ABORTED);
  b.add_rank(b.rank(0).device, out);
  EXPECT_EQ(b.sum(1), BP_OK) << b.text();
  EXPECT_EQ(b.outcome(1), BP_OK);
}

}  // namespace
}  // namespace bp::cuda
