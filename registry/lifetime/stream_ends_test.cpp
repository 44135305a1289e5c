// Tests that the host forgets a stream when it ends, because the next stream may have its address.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "registry/tests/fake_backend.hpp"

namespace bp::core {
namespace {

constexpr uint64_t kLarge = 20ull << 20;  // A block of this size has a segment for itself.
constexpr uint64_t kSmall = 4096;

// How the streams and events of the test's backend behave, and what has happened to them.
struct Conduct {
  bool streams_are_idle = false, events_are_done = false, records = true;
  bp_status destroy_status = BP_OK, free_status = BP_OK;
  std::set<bp_stream*> dead;
  std::set<unsigned char*> memory;  // The memory of the buffers that are alive.
  std::vector<bp_stream*> freed_on;
  int live_events = 0, recorded_events = 0;
  uint64_t room_bytes = UINT64_MAX;
} conduct;

bp_status use(bp_stream* stream, const char* call) {
  if (!conduct.dead.contains(stream)) return BP_OK;
  ADD_FAILURE() << call << " of a stream that was destroyed";
  return BP_INVALID_ARGUMENT;
}

void conduct_streams(FakeBackend& fake) {
  fake.streams.create = [](void*, bp_device*, const bp_stream_desc*, bp_stream** out) -> bp_status {
    static char place;  // Every stream has this address, one after the other.
    *out = reinterpret_cast<bp_stream*>(&place);
    conduct.dead.erase(*out);
    return BP_OK;
  };
  fake.streams.query = [](void*, bp_stream* stream, uint32_t* out_done) -> bp_status {
    *out_done = conduct.streams_are_idle;
    return use(stream, "query");
  };
  fake.streams.destroy = [](void*, bp_stream* stream) -> bp_status {
    if (conduct.destroy_status == BP_OK) conduct.dead.insert(stream);
    return conduct.destroy_status;
  };
}

void conduct_events(FakeBackend& fake) {
  fake.events.create = [](void*, bp_device*, const bp_event_desc*, bp_event** out) -> bp_status {
    *out = reinterpret_cast<bp_event*>(new char);
    ++conduct.live_events;
    return BP_OK;
  };
  fake.events.destroy = [](void*, bp_event* event) -> bp_status {
    if (event != nullptr) --conduct.live_events;
    delete reinterpret_cast<char*>(event);
    return BP_OK;
  };
  fake.events.record = [](void*, bp_event*, bp_stream* stream) -> bp_status {
    ++conduct.recorded_events;
    return conduct.records ? use(stream, "record") : BP_UNSUPPORTED;
  };
  fake.events.query = [](void*, bp_event*, uint32_t* out_done) -> bp_status {
    *out_done = conduct.events_are_done;
    return BP_OK;
  };
  fake.events.synchronize = [](void*, bp_event*, uint64_t) -> bp_status { return BP_OK; };
}

void conduct_memory(FakeBackend& fake) {
  fake.allocator.allocate = [](void* self, bp_device*, const bp_allocate_desc* desc,
                               bp_buffer** out) -> bp_status {
    if (desc->size_bytes > conduct.room_bytes) return BP_OUT_OF_MEMORY;
    conduct.room_bytes -= desc->size_bytes;
    ++FakeBackend::from(self).devices[0].live_buffers;
    auto* const bytes = new unsigned char[desc->size_bytes];
    conduct.memory.insert(bytes);
    *out = reinterpret_cast<bp_buffer*>(bytes);
    return BP_OK;
  };
  fake.allocator.deallocate = [](void* self, bp_buffer* buffer, bp_stream* stream) -> bp_status {
    conduct.freed_on.push_back(stream);
    if (const bp_status status = use(stream, "free"); status != BP_OK) return status;
    if (conduct.free_status != BP_OK) {
      const bp_host& host = *FakeBackend::from(self).host;
      return host.set_error(host.self, conduct.free_status, "the buffer is stuck");
    }
    --FakeBackend::from(self).devices[0].live_buffers;
    conduct.memory.erase(reinterpret_cast<unsigned char*>(buffer));
    delete[] reinterpret_cast<unsigned char*>(buffer);
    return BP_OK;
  };
}

void conduct_backend(FakeBackend& fake) {
  conduct_streams(fake);
  conduct_events(fake);
  conduct_memory(fake);
}

// The tests run with the layers that follow handles, and without them.
class StreamEnds : public testing::TestWithParam<const char*> {
 protected:
  StreamEnds() {
    conduct = {};
    conduct_backend(fake);
    EXPECT_EQ(fake.load(r.registry), BP_OK) << bp_error_text();
    target = r.target();
  }
  ~StreamEnds() override {
    conduct.free_status = BP_OK;
    EXPECT_EQ(bp_registry_destroy(r.registry), BP_OK) << bp_error_text();
    r.registry = nullptr;
    EXPECT_EQ(fake.devices[0].live_buffers, 0);
    EXPECT_EQ(conduct.live_events, 0);
  }

  bp_stream* create() {
    bp_stream* stream = nullptr;
    EXPECT_EQ(target->streams->create(target->streams->self, target->device, nullptr, &stream),
              BP_OK);
    return stream;
  }
  bp_status destroy(bp_stream* stream) {
    return target->streams->destroy(target->streams->self, stream);
  }
  bp_block* take(bp_stream* stream, uint64_t size_bytes = kLarge) {
    bp_block* block = nullptr;
    EXPECT_EQ(bp_block_allocate(target, stream, size_bytes, &block), BP_OK) << bp_error_text();
    return block;
  }
  bp_cache_statistics statistics() const {
    bp_cache_statistics s{.struct_size = sizeof(s), .struct_type = BP_STRUCT_CACHE_STATISTICS};
    EXPECT_EQ(bp_cache_get_statistics(target, &s), BP_OK) << bp_error_text();
    return s;
  }
  static bool is_same(const bp_buffer_ref& a, const bp_buffer_ref& b) {
    return a.buffer == b.buffer && a.byte_offset == b.byte_offset;
  }

  FakeBackend fake;  // It outlives the registry.
  TestRegistry r{BP_REGISTRY_IGNORE_ENVIRONMENT, GetParam()};
  const bp_target* target = nullptr;
};

TEST_P(StreamEnds, LeaveBlocksBehindWhenTheWorkHasEnded) {
  for (const uint64_t size_bytes : {kLarge, kSmall}) {
    conduct.events_are_done = false;
    bp_stream* const first = create();
    bp_block* const block = take(first, size_bytes);
    const bp_buffer_ref where = block->ref;
    EXPECT_EQ(bp_block_free(block), BP_OK);
    EXPECT_EQ(destroy(first), BP_OK);
    bp_stream* const second = create();
    ASSERT_EQ(second, first);
    bp_block* const early = take(second, size_bytes);
    EXPECT_FALSE(is_same(early->ref, where)) << "work of the ended stream may still write there";
    conduct.events_are_done = true;
    bp_block* const late = take(nullptr, size_bytes);
    EXPECT_TRUE(is_same(late->ref, where)) << "the memory is of no use to anybody";
    EXPECT_EQ(bp_block_free(early), BP_OK);
    EXPECT_EQ(bp_block_free(late), BP_OK);
    EXPECT_EQ(destroy(second), BP_OK);
  }
}

TEST_P(StreamEnds, LeaveBlocksBehindThatAreFreedLater) {
  for (const uint64_t size_bytes : {kLarge, kSmall}) {
    conduct.events_are_done = false;
    bp_stream* const first = create();
    bp_block* const block = take(first, size_bytes);
    const bp_buffer_ref where = block->ref;
    EXPECT_EQ(destroy(first), BP_OK);
    EXPECT_EQ(bp_block_free(block), BP_OK);
    bp_stream* const second = create();
    bp_block* const early = take(second, size_bytes);
    EXPECT_FALSE(is_same(early->ref, where));
    conduct.events_are_done = true;
    bp_block* const late = take(nullptr, size_bytes);
    EXPECT_TRUE(is_same(late->ref, where));
    EXPECT_EQ(bp_block_free(early), BP_OK);
    EXPECT_EQ(bp_block_free(late), BP_OK);
    EXPECT_EQ(destroy(second), BP_OK);
  }
}

TEST_P(StreamEnds, LeaveBlocksToEveryStreamAtOnceWhereTheyAreIdle) {
  conduct.streams_are_idle = true;
  bp_stream* const stream = create();
  bp_block* const block = take(stream);
  const bp_buffer_ref where = block->ref;
  EXPECT_EQ(bp_block_free(block), BP_OK);
  EXPECT_EQ(destroy(stream), BP_OK);
  EXPECT_EQ(conduct.recorded_events, 0) << "nothing has to be waited for";
  bp_block* const other = take(nullptr);
  EXPECT_TRUE(is_same(other->ref, where));
  EXPECT_EQ(bp_block_free(other), BP_OK);
}

TEST_P(StreamEnds, LeaveTheRestOfASegmentToOneStream) {
  conduct.streams_are_idle = true;
  bp_stream* const stream = create();
  bp_block* const held = take(stream, 600 << 10);
  EXPECT_EQ(destroy(stream), BP_OK);
  bp_block* const other = take(nullptr, 600 << 10);
  EXPECT_EQ(other->ref.buffer, held->ref.buffer) << "a part of the segment was free";
  EXPECT_EQ(bp_block_free(held), BP_OK);
  EXPECT_EQ(bp_block_free(other), BP_OK);
  EXPECT_EQ(bp_cache_empty(target), BP_OK) << bp_error_text();
  EXPECT_EQ(statistics().reserved_bytes, 0u) << "the parts are one again";
}

TEST_P(StreamEnds, NeverReachTheBackendWhenTheCacheIsEmptied) {
  bp_stream* const stream = create();
  EXPECT_EQ(bp_block_free(take(stream)), BP_OK);
  EXPECT_EQ(destroy(stream), BP_OK);
  EXPECT_EQ(bp_cache_empty(target), BP_OK) << bp_error_text();
  EXPECT_EQ(statistics().reserved_bytes, kLarge) << "its work has not ended";
  conduct.events_are_done = true;
  EXPECT_EQ(bp_cache_empty(target), BP_OK) << bp_error_text();
  EXPECT_EQ(statistics().reserved_bytes, 0u);
  EXPECT_EQ(fake.devices[0].live_buffers, 0);
  EXPECT_EQ(conduct.freed_on, std::vector<bp_stream*>{nullptr});
}

TEST_P(StreamEnds, HoldABlockThatWasRecordedForThem) {
  bp_stream* const stream = create();
  bp_block* const block = take(nullptr);
  const bp_buffer_ref where = block->ref;
  EXPECT_EQ(bp_block_record_stream(block, stream), BP_OK);
  EXPECT_EQ(destroy(stream), BP_OK);
  EXPECT_EQ(bp_block_free(block), BP_OK) << bp_error_text();
  bp_block* const early = take(nullptr);
  EXPECT_FALSE(is_same(early->ref, where));
  conduct.events_are_done = true;
  bp_block* const late = take(nullptr);
  EXPECT_TRUE(is_same(late->ref, where));
  EXPECT_EQ(bp_block_free(early), BP_OK);
  EXPECT_EQ(bp_block_free(late), BP_OK);
}

TEST_P(StreamEnds, AreNotTakenForTheStreamsOfTheSameAddress) {
  conduct.streams_are_idle = true;
  bp_stream* const first = create();
  bp_block* const block = take(first);
  EXPECT_EQ(destroy(first), BP_OK);
  conduct.streams_are_idle = false;
  bp_stream* const second = create();
  ASSERT_EQ(second, first);
  EXPECT_EQ(bp_block_record_stream(block, second), BP_OK);
  EXPECT_EQ(bp_block_free(block), BP_OK);
  EXPECT_EQ(conduct.recorded_events, 1) << "the second stream uses the block of the first";
  conduct.events_are_done = true;
  EXPECT_EQ(destroy(second), BP_OK);
}

TEST_P(StreamEnds, DoNotHappenWhereTheDestroyFails) {
  bp_stream* const stream = create();
  bp_block* const held = take(stream);
  bp_block* const block = take(stream);
  const bp_buffer_ref where = block->ref;
  EXPECT_EQ(bp_block_free(block), BP_OK);
  conduct.destroy_status = BP_INTERNAL;
  EXPECT_EQ(destroy(stream), BP_INTERNAL);
  conduct.destroy_status = BP_OK;
  bp_block* const again = take(stream);
  EXPECT_TRUE(is_same(again->ref, where));
  const bp_buffer_ref there = held->ref;
  EXPECT_EQ(bp_block_free(held), BP_OK);
  conduct.events_are_done = true;
  bp_block* const other = take(nullptr);
  EXPECT_FALSE(is_same(other->ref, there)) << "the stream lives, and works on";
  for (bp_block* each : {again, other}) EXPECT_EQ(bp_block_free(each), BP_OK);
  EXPECT_EQ(destroy(stream), BP_OK);
}

TEST_P(StreamEnds, LetBlocksWaitForTheDeviceWhereNoEventCanBeRecorded) {
  conduct.records = false;
  bp_stream* const stream = create();
  bp_block* const block = take(stream);
  const bp_buffer_ref where = block->ref;
  EXPECT_EQ(bp_block_free(block), BP_OK);
  EXPECT_EQ(destroy(stream), BP_OK);
  conduct.events_are_done = true;
  bp_block* const early = take(nullptr);
  EXPECT_FALSE(is_same(early->ref, where));
  EXPECT_EQ(fake.synchronizes, 0) << "there was other memory";
  conduct.room_bytes = 0;
  bp_block* late = nullptr;
  EXPECT_EQ(bp_block_allocate(target, nullptr, kLarge, &late), BP_OUT_OF_MEMORY);
  EXPECT_EQ(fake.synchronizes, 1);
  EXPECT_EQ(statistics().reserved_bytes, kLarge) << "the other buffer was given back";
  EXPECT_EQ(bp_block_free(early), BP_OK);
}

TEST_P(StreamEnds, AreToldToEveryDeviceOfTheTable) {
  FakeBackend two("acme.pair", 2);
  conduct_backend(two);
  TestRegistry other(BP_REGISTRY_IGNORE_ENVIRONMENT, GetParam());
  ASSERT_EQ(two.load(other.registry), BP_OK) << bp_error_text();
  const bp_target* const a = other.target(0);
  const bp_target* const b = other.target(1);
  bp_stream* stream = nullptr;
  ASSERT_EQ(b->streams->create(b->streams->self, b->device, nullptr, &stream), BP_OK);
  bp_block* block = nullptr;
  ASSERT_EQ(bp_block_allocate(b, stream, kLarge, &block), BP_OK);
  EXPECT_EQ(bp_block_free(block), BP_OK);
  EXPECT_EQ(a->streams->destroy(a->streams->self, stream), BP_OK);
  EXPECT_EQ(conduct.recorded_events, 1);
  conduct.events_are_done = true;
  EXPECT_EQ(bp_cache_empty(b), BP_OK) << bp_error_text();
}

TEST_P(StreamEnds, KeepABufferThatTheBackendDoesNotTakeBack) {
  EXPECT_EQ(bp_block_free(take(nullptr)), BP_OK);
  conduct.free_status = BP_INTERNAL;
  EXPECT_EQ(bp_cache_empty(target), BP_INTERNAL);
  EXPECT_NE(std::string(bp_error_text()).find("the buffer is stuck"), std::string::npos)
      << bp_error_text();
  EXPECT_EQ(statistics().reserved_bytes, kLarge) << "it was not forgotten";
  conduct.free_status = BP_OK;
  EXPECT_EQ(bp_cache_empty(target), BP_OK) << bp_error_text();
  EXPECT_EQ(statistics().reserved_bytes, 0u);
}

TEST_P(StreamEnds, AndTheUnloadSaysWhatTheBackendDoesNotTakeBack) {
  EXPECT_EQ(bp_block_free(take(nullptr)), BP_OK);
  conduct.free_status = BP_INTERNAL;
  EXPECT_EQ(bp_registry_unload(r.registry, target->plugin, UINT64_MAX), BP_INTERNAL);
  const std::string text = bp_error_text();
  EXPECT_NE(text.find("did not take 1 of 1"), std::string::npos) << text;
  EXPECT_NE(text.find("the buffer is stuck"), std::string::npos) << text;
  for (unsigned char* bytes : conduct.memory) delete[] bytes;  // The cache has given them up.
  fake.devices[0].live_buffers = 0;
}

INSTANTIATE_TEST_SUITE_P(Layers, StreamEnds, testing::Values("", "leak", "trace,validate"),
                         [](const auto& test) {
                           const std::string layers = test.param;
                           return layers.empty() ? "none" : layers.substr(0, layers.find(','));
                         });

}  // namespace
}  // namespace bp::core
