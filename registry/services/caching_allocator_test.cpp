// Tests the cache over a backend of this file, which counts its buffers and can run out of memory.
#include "registry/services/caching_allocator.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <vector>

namespace bp::services {
namespace {

// A backend without memory: its buffers are numbers. Events complete when the test says so.
struct Fake {
  std::map<bp_buffer*, uint64_t> buffers;
  uint64_t limit_bytes = UINT64_MAX, used_bytes = 0;
  uintptr_t next_handle = 1;
  bool events_are_done = false;
  int live_events = 0;
  std::vector<bp_buffer*> freed;

  bp_heap heap{.struct_size = sizeof(bp_heap),
               .struct_type = BP_STRUCT_HEAP,
               .size_bytes = 1ull << 40,
               .max_allocation_bytes = 1ull << 40,
               .tensor_offset_alignment_bytes = 1,
               .suballocation_granularity_bytes = 1};
  bp_device_properties properties{.struct_size = sizeof(bp_device_properties),
                                  .struct_type = BP_STRUCT_DEVICE_PROPERTIES,
                                  .heaps = &heap,
                                  .heap_count = 1,
                                  .heap_stride_bytes = sizeof(bp_heap)};
  bp_device_ops devices{.struct_size = sizeof(bp_device_ops), .self = this};
  bp_allocator_ops allocator{.struct_size = sizeof(bp_allocator_ops), .self = this};
  bp_event_ops events{.struct_size = sizeof(bp_event_ops), .self = this};
  bp_target target{.name = "fake:0",
                   .properties = &properties,
                   .devices = &devices,
                   .allocator = &allocator,
                   .events = &events,
                   .default_stream = stream(1)};
  Cache* cache = new Cache(target, false);

  static Fake& from(void* self) { return *static_cast<Fake*>(self); }

  Fake() {
    conduct_events();
    allocator.allocate = [](void* self, bp_device*, const bp_allocate_desc* desc,
                            bp_buffer** out) -> bp_status {
      Fake& f = from(self);
      if (f.used_bytes + desc->size_bytes > f.limit_bytes) return BP_OUT_OF_MEMORY;
      *out = reinterpret_cast<bp_buffer*>(f.next_handle++);
      f.buffers[*out] = desc->size_bytes;
      f.used_bytes += desc->size_bytes;
      return BP_OK;
    };
    allocator.deallocate = [](void* self, bp_buffer* buffer, bp_stream*) -> bp_status {
      Fake& f = from(self);
      f.used_bytes -= f.buffers.at(buffer);
      f.buffers.erase(buffer);
      f.freed.push_back(buffer);
      return BP_OK;
    };
    devices.memory_info = [](void* self, bp_device*, uint64_t, uint64_t* free_bytes,
                             uint64_t* total_bytes) -> bp_status {
      *total_bytes = from(self).limit_bytes;
      *free_bytes = *total_bytes - from(self).used_bytes;
      return BP_OK;
    };
  }

  void conduct_events() {
    events.create = [](void* self, bp_device*, const bp_event_desc*, bp_event** out) -> bp_status {
      ++from(self).live_events;
      *out = reinterpret_cast<bp_event*>(from(self).next_handle++);
      return BP_OK;
    };
    events.destroy = [](void* self, bp_event*) -> bp_status {
      --from(self).live_events;
      return BP_OK;
    };
    events.record = [](void*, bp_event*, bp_stream*) -> bp_status { return BP_OK; };
    events.query = [](void* self, bp_event*, uint32_t* done) -> bp_status {
      *done = from(self).events_are_done;
      return BP_OK;
    };
    events.synchronize = [](void*, bp_event*, uint64_t) -> bp_status { return BP_OK; };
  }

  ~Fake() {
    if (cache != nullptr) Cache::release(cache);
    EXPECT_TRUE(buffers.empty()) << "buffers leaked";
    EXPECT_EQ(live_events, 0) << "events leaked";
  }

  static bp_stream* stream(uintptr_t i) { return reinterpret_cast<bp_stream*>(i * 16); }

  bp_block* take(uint64_t size, bp_stream* on = nullptr) {
    bp_block* block = nullptr;
    EXPECT_EQ(cache->allocate(on, size, &block), BP_OK);
    return block;
  }
};

TEST(Cache, ReusesAFreedBlockOfTheSameStreamAtOnce) {
  Fake fake;
  bp_block* first = fake.take(100);
  const bp_buffer_ref where = first->ref;
  EXPECT_EQ(where.size_bytes, 100u);
  Cache::free(first);
  bp_block* again = fake.take(90);
  EXPECT_EQ(again->ref.buffer, where.buffer);
  EXPECT_EQ(again->ref.byte_offset, where.byte_offset);
  bp_block* other = fake.take(100, Fake::stream(2));
  EXPECT_NE(other->ref.buffer, where.buffer) << "another stream must not get its segment";
  Cache::free(again);
  Cache::free(other);
  EXPECT_EQ(fake.cache->statistics().backend_allocation_count, 2u);
}

TEST(Cache, GivesNoTwoBlocksBytesThatMoveTogetherWhereMemoryIsNotCoherent) {
  Fake fake;
  Cache::release(fake.cache);
  fake.heap.map_granularity_bytes = 4096;
  fake.cache = new Cache(fake.target, false);
  std::vector<bp_block*> blocks;
  for (const uint64_t size : {1u, 4096u, 4097u, 100u, 300u << 10, 2u << 20, 12u << 20}) {
    blocks.push_back(fake.take(size));
    EXPECT_EQ(blocks.back()->ref.byte_offset % 4096, 0u) << size;
  }
  EXPECT_EQ(blocks[1]->ref.byte_offset, 4096u);
  EXPECT_EQ(blocks[3]->ref.byte_offset, 4u * 4096);
  Cache::free(blocks[0]);
  blocks[0] = fake.take(700);
  EXPECT_EQ(blocks[0]->ref.byte_offset, 0u) << "a bin has blocks of the rounded size";
  for (bp_block* const block : blocks) Cache::free(block);
}

TEST(Cache, CutsSegmentsAndMergesNeighboursAgain) {
  Fake fake;
  bp_block* a = fake.take(300 << 10);
  bp_block* b = fake.take(300 << 10);
  EXPECT_EQ(a->ref.buffer, b->ref.buffer);
  EXPECT_EQ(b->ref.byte_offset % 512, 0u);
  EXPECT_GE(b->ref.byte_offset, a->ref.byte_offset + a->ref.size_bytes);
  Cache::free(a);
  Cache::free(b);
  bp_block* whole = fake.take(1 << 20);
  EXPECT_EQ(whole->ref.byte_offset, 0u);
  Cache::free(whole);
  EXPECT_EQ(fake.cache->statistics().backend_allocation_count, 1u);
}

TEST(Cache, MergesSmallBinsBeforeItTakesANewSegment) {
  Fake fake;
  std::vector<bp_block*> blocks;
  for (int i = 0; i < 4096; ++i) blocks.push_back(fake.take(512));  // They fill one whole segment.
  for (bp_block* block : blocks) Cache::free(block);
  bp_block* large = fake.take(1 << 20);
  EXPECT_EQ(fake.cache->statistics().backend_allocation_count, 1u);
  Cache::free(large);
}

TEST(Cache, GivesABlockBackOnlyWhenItsOtherStreamsAreDone) {
  Fake fake;
  bp_block* block = fake.take(4 << 20);
  const bp_buffer_ref where = block->ref;
  EXPECT_EQ(Cache::record_stream(block, Fake::stream(2)), BP_OK);
  Cache::free(block);
  bp_block* early = fake.take(4 << 20);
  EXPECT_NE(early->ref.byte_offset, where.byte_offset);
  fake.events_are_done = true;
  bp_block* late = fake.take(4 << 20);
  EXPECT_EQ(late->ref.buffer, where.buffer);
  EXPECT_EQ(late->ref.byte_offset, where.byte_offset);
  Cache::free(early);
  Cache::free(late);
}

TEST(Cache, FreesWhatIsCachedAndTriesAgainBeforeItGivesUp) {
  Fake fake;
  fake.limit_bytes = 30ull << 20;
  Cache::free(fake.take(20ull << 20));
  bp_block* other = fake.take(24ull << 20);
  EXPECT_EQ(fake.cache->statistics().retry_count, 1u);
  bp_block* none = nullptr;
  EXPECT_EQ(fake.cache->allocate(nullptr, 16ull << 20, &none), BP_OUT_OF_MEMORY);
  EXPECT_EQ(none, nullptr);
  const std::string text = bp_error_text();
  for (const char* part : {"fake:0", "16.0 MiB asked for", "24.0 MiB in use", "free of 30.0 MiB"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  EXPECT_EQ(fake.cache->statistics().out_of_memory_count, 1u);
  Cache::free(other);
}

TEST(Cache, TakesAnExactBufferWhereAWholeSegmentDoesNotFit) {
  Fake fake;
  fake.limit_bytes = 1 << 20;
  bp_block* block = fake.take(4096);
  EXPECT_EQ(fake.used_bytes, 4096u);
  Cache::free(block);
}

TEST(Cache, NeverCutsABufferThatCanOnlyBeUsedWhole) {
  Fake fake;
  fake.heap.suballocation_granularity_bytes = 0;
  bp_block* a = fake.take(1000);
  bp_block* b = fake.take(1000);
  EXPECT_NE(a->ref.buffer, b->ref.buffer);
  EXPECT_EQ(a->ref.byte_offset, 0u);
  Cache::free(a);
  Cache::free(b);
}

TEST(Cache, ServesZeroBytesWithoutMemory) {
  Fake fake;
  bp_block* block = fake.take(0);
  EXPECT_EQ(block->ref.buffer, nullptr);
  EXPECT_EQ(block->ref.size_bytes, 0u);
  EXPECT_EQ(Cache::free(block), BP_OK);
  EXPECT_EQ(Cache::free(nullptr), BP_OK);
}

TEST(Cache, RefusesToFreeABlockTwice) {
  Fake fake;
  fake.allocator.address = [](void*, bp_buffer*, uint64_t*) -> bp_status { return BP_UNSUPPORTED; };
  // The freed blocks are in a bin, in a free set, merged with a neighbour, waiting for a stream,
  // and without memory.
  bp_block* const held = fake.take(700 << 10);
  for (const uint64_t size :
       {uint64_t{512}, uint64_t{30} << 20, uint64_t{600} << 10, uint64_t{0}}) {
    bp_block* const block = fake.take(size);
    EXPECT_EQ(Cache::free(block), BP_OK);
    const bp_cache_statistics before = fake.cache->statistics();
    EXPECT_EQ(Cache::free(block), BP_INVALID_ARGUMENT) << size;
    EXPECT_NE(std::string(bp_error_text()).find("was freed before"), std::string::npos)
        << bp_error_text();
    EXPECT_EQ(Cache::record_stream(block, Fake::stream(2)), BP_INVALID_ARGUMENT);
    uint64_t address = 1;
    EXPECT_EQ(Cache::address(block, &address), BP_INVALID_ARGUMENT);
    EXPECT_EQ(fake.cache->statistics().free_count, before.free_count);
    EXPECT_EQ(fake.cache->statistics().allocated_bytes, before.allocated_bytes);
    bp_block* const a = fake.take(size);
    bp_block* const b = fake.take(size);
    EXPECT_NE(a, b) << "one block was handed out twice";
    Cache::free(a);
    Cache::free(b);
  }
  bp_block* const shared = fake.take(4096);
  EXPECT_EQ(Cache::record_stream(shared, Fake::stream(2)), BP_OK);
  EXPECT_EQ(Cache::free(shared), BP_OK);
  EXPECT_EQ(Cache::free(shared), BP_INVALID_ARGUMENT);
  EXPECT_EQ(fake.live_events, 1);
  fake.events_are_done = true;
  Cache::free(held);
}

TEST(Cache, RefusesToFreeABlockTwiceAfterItsBufferWasGivenBack) {
  Fake fake;
  bp_block* const block = fake.take(30 << 20);
  EXPECT_EQ(Cache::free(block), BP_OK);
  EXPECT_EQ(fake.cache->empty(), BP_OK);
  EXPECT_EQ(Cache::free(block), BP_INVALID_ARGUMENT);
}

TEST(Cache, RefusesASizeThatOverflows) {
  Fake fake;
  bp_block* none = nullptr;
  EXPECT_EQ(fake.cache->allocate(nullptr, UINT64_MAX, &none), BP_OUT_OF_MEMORY);
}

TEST(Cache, OutlivesItsReleaseUntilTheLastBlockIsFreed) {
  Fake fake;
  bp_block* block = fake.take(100);
  bp_block* large = fake.take(64ull << 20);
  Cache::record_stream(large, Fake::stream(2));
  Cache::release(fake.cache);
  fake.cache = nullptr;
  EXPECT_TRUE(fake.buffers.empty());
  EXPECT_EQ(Cache::free(block), BP_OK);
  EXPECT_EQ(Cache::free(large), BP_OK);
}

TEST(Cache, KeepsBlocksApartThroughSeededChurn) {
  Fake fake;
  std::mt19937 random(0x5eed);
  std::vector<std::pair<bp_block*, bp_stream*>> held;
  std::map<std::pair<bp_buffer*, uint64_t>, uint64_t> ranges;  // Maps the begin to the end.
  for (int step = 0; step < 20000; ++step) {
    if (!held.empty() && random() % 2 == 0) {
      const size_t i = random() % held.size();
      ranges.erase({held[i].first->ref.buffer, held[i].first->ref.byte_offset});
      Cache::free(held[i].first);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    const uint64_t size = 1 + random() % (random() % 8 == 0 ? 12u << 20 : 100u << 10);
    bp_stream* stream = Fake::stream(1 + random() % 3);
    bp_block* block = fake.take(size, stream);
    const bp_buffer_ref& r = block->ref;
    ASSERT_LE(r.byte_offset + r.size_bytes, fake.buffers.at(r.buffer));
    const auto next = ranges.lower_bound({r.buffer, r.byte_offset});
    if (next != ranges.end() && next->first.first == r.buffer) {
      ASSERT_LE(r.byte_offset + r.size_bytes, next->first.second) << "overlap at step " << step;
    }
    if (next != ranges.begin() && std::prev(next)->first.first == r.buffer) {
      ASSERT_LE(std::prev(next)->second, r.byte_offset) << "overlap at step " << step;
    }
    ranges[{r.buffer, r.byte_offset}] = r.byte_offset + r.size_bytes;
    held.emplace_back(block, stream);
  }
  for (const auto& [block, stream] : held) Cache::free(block);
  EXPECT_EQ(fake.cache->statistics().allocated_bytes, 0u);
  EXPECT_EQ(fake.cache->statistics().requested_bytes, 0u);
  EXPECT_EQ(fake.cache->empty(), BP_OK);
  EXPECT_EQ(fake.cache->statistics().reserved_bytes, 0u);
}

// An implementation of `address` for a device that has no addresses.
bp_status (*const kNoAddress)(void*, bp_buffer*, uint64_t*) =
    [](void*, bp_buffer*, uint64_t*) -> bp_status { return BP_UNSUPPORTED; };

struct Found {
  bp_status status;
  bp_block* block = nullptr;
  uint64_t offset = 0;
};

Found find(const Fake& fake, uint64_t address) {
  Found found{};
  found.status = fake.cache->find(address, &found.block, &found.offset);
  return found;
}

uint64_t address_of(bp_block* block) {
  uint64_t address = 0;
  EXPECT_EQ(Cache::address(block, &address), BP_OK);
  return address;
}

TEST(BlockAddresses, AreTheDevicesOwnWhereItHasThem) {
  Fake fake;
  fake.allocator.address = [](void*, bp_buffer*, uint64_t* out) -> bp_status {
    *out = 0x7000;
    return BP_OK;
  };
  bp_block* const a = fake.take(600);
  bp_block* const b = fake.take(600);
  EXPECT_EQ(address_of(a), 0x7000 + a->ref.byte_offset);
  EXPECT_EQ(address_of(b), 0x7000 + b->ref.byte_offset);
  Cache::free(a);
  Cache::free(b);
}

TEST(BlockAddresses, AreSyntheticElseAndFindTheirBlocks) {
  Fake fake;
  fake.allocator.address = kNoAddress;
  bp_block* const a = fake.take(600);
  bp_block* const b = fake.take(30 << 20);
  const uint64_t at_a = address_of(a), at_b = address_of(b);
  EXPECT_EQ(address_of(a), at_a) << "it stays";
  const Found inside = find(fake, at_b + (30 << 20) - 1);
  EXPECT_EQ(inside.block, b);
  EXPECT_EQ(inside.offset, (30 << 20) - 1);
  EXPECT_EQ(find(fake, at_a + 599).block, a);
  EXPECT_EQ(find(fake, at_a + 600).status, BP_NOT_FOUND) << "behind what was asked for";
  EXPECT_EQ(find(fake, at_a - 1).status, BP_NOT_FOUND);
  Cache::free(b);
  EXPECT_EQ(find(fake, at_b).status, BP_NOT_FOUND) << "a freed block has no address";
  Cache::free(a);
}

TEST(BlockAddresses, CannotBeRead) {
  Fake fake;
  fake.allocator.address = kNoAddress;
  bp_block* const block = fake.take(600);
  const auto* at = reinterpret_cast<const volatile char*>(address_of(block));
  EXPECT_DEATH(static_cast<void>(*at), "");
  Cache::free(block);
}

TEST(BlockAddresses, AreOnlyOfBlocksThatWereAskedForThem) {
  Fake fake;
  fake.allocator.address = kNoAddress;
  bp_block* const asked = fake.take(512);
  bp_block* const other = fake.take(512);
  bp_block* const empty = fake.take(0);
  ASSERT_EQ(asked->ref.buffer, other->ref.buffer);
  const uint64_t address = address_of(asked);
  EXPECT_EQ(find(fake, address + other->ref.byte_offset - asked->ref.byte_offset).status,
            BP_NOT_FOUND);
  EXPECT_EQ(address_of(empty), 0u);
  for (bp_block* block : {asked, other, empty}) Cache::free(block);
}

TEST(BlockAddresses, EndWithTheFreeAlsoWhereAnotherStreamUsesTheBlock) {
  Fake fake;
  fake.allocator.address = kNoAddress;
  bp_block* const block = fake.take(600);
  const uint64_t address = address_of(block);
  ASSERT_EQ(Cache::record_stream(block, Fake::stream(2)), BP_OK);
  Cache::free(block);
  EXPECT_EQ(find(fake, address).status, BP_NOT_FOUND);
  fake.events_are_done = true;
}

TEST(BlockAddresses, SayWhyTheDeviceGivesNone) {
  Fake fake;
  fake.allocator.address = [](void*, bp_buffer*, uint64_t*) -> bp_status { return BP_DEVICE_LOST; };
  bp_block* const block = fake.take(600);
  uint64_t address = 1;
  EXPECT_EQ(Cache::address(block, &address), BP_DEVICE_LOST);
  EXPECT_EQ(address, 1u);
  Cache::free(block);
}

}  // namespace
}  // namespace bp::services
