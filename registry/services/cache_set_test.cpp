// Tests blocks of every heap, private pools, blocks of foreign memory and the snapshot.
#include "registry/services/cache_set.hpp"

#include <nlohmann/json.hpp>

#include "registry/services/memory_snapshot.hpp"
#include "registry/tests/fake_memory.hpp"

namespace bp::services {
namespace {

bp_status refusal_of(const FakeMemory& fake, const bp_block_desc& desc) {
  Source source;
  return read_source(fake.target, desc, source);
}

TEST(CacheSet, TakesTheLowestHeapOfTheMaskThatHasTheFlags) {
  FakeMemory fake;
  const auto mask_of = [&](const bp_block_desc& desc) {
    bp_block* const block = fake.take(desc);
    const uint64_t mask = fake.buffers.at(block->ref.buffer).desc.heap_mask;
    Cache::free(block);
    return mask;
  };
  EXPECT_EQ(mask_of({.size_bytes = 8}), 0u) << "the first heap";
  EXPECT_EQ(mask_of({.size_bytes = 8, .heap_mask = 2}), 2u);
  EXPECT_EQ(mask_of({.size_bytes = 8, .heap_mask = 3}), 0u);
  EXPECT_EQ(mask_of({.size_bytes = 8, .heap_flags = BP_HEAP_HOST_VISIBLE}), 2u);
}

TEST(CacheSet, RefusesHeapsAndRequestsThatDoNotExist) {
  FakeMemory fake;
  EXPECT_EQ(refusal_of(fake, {.heap_mask = 8}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(refusal_of(fake, {.heap_mask = 4}), BP_NOT_FOUND) << "the host could not read it";
  EXPECT_EQ(refusal_of(fake, {.heap_mask = 1, .heap_flags = BP_HEAP_HOST_VISIBLE}), BP_NOT_FOUND);
  EXPECT_EQ(refusal_of(fake, {.alignment_bytes = 48}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(refusal_of(fake, {.alignment_bytes = 8192}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(refusal_of(fake, {.usage = 1u << 30}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(refusal_of(fake, {.usage = BP_MEMORY_STREAM_ORDERED}), BP_INVALID_ARGUMENT);
}

TEST(CacheSet, SharesTheFirstCacheWhereNothingElseIsAsked) {
  FakeMemory fake;
  bp_block* const a = fake.take({.size_bytes = 512, .alignment_bytes = 64});
  bp_block* const b = fake.take(512);
  EXPECT_EQ(a->ref.buffer, b->ref.buffer);
  Cache::free(a);
  Cache::free(b);
}

TEST(CacheSet, AlignsBlocksAndPassesUsageOn) {
  FakeMemory fake;
  std::vector<bp_block*> blocks;
  for (int i = 0; i < 3; ++i) {
    blocks.push_back(
        fake.take({.size_bytes = 100, .alignment_bytes = 4096, .usage = BP_MEMORY_PEER}));
    EXPECT_EQ(blocks.back()->ref.byte_offset % 4096, 0u);
  }
  const bp_allocate_desc& desc = fake.buffers.at(blocks[0]->ref.buffer).desc;
  EXPECT_EQ(desc.alignment_bytes, 4096u);
  EXPECT_EQ(desc.usage, BP_MEMORY_PEER);
  for (bp_block* const block : blocks) Cache::free(block);
}

TEST(CacheSet, LeavesABlockForExportAloneInItsBuffer) {
  FakeMemory fake;
  const bp_block_desc desc{.size_bytes = 600, .usage = BP_MEMORY_EXPORT};
  bp_block* const a = fake.take(desc);
  bp_block* const b = fake.take(desc);
  EXPECT_NE(a->ref.buffer, b->ref.buffer);
  EXPECT_EQ(a->ref.byte_offset, 0u);
  EXPECT_EQ(fake.buffers.at(a->ref.buffer).size_bytes, 1024u);
  Cache::free(a);
  Cache::free(b);
}

TEST(CacheSet, FreesWhatOtherHeapsCacheBeforeItGivesUp) {
  FakeMemory fake;
  fake.limit_bytes = 30ull << 20;
  Cache::free(fake.take({.size_bytes = 20ull << 20, .heap_mask = 2}));
  bp_block* const block = fake.take(24ull << 20);
  EXPECT_EQ(fake.buffers.size(), 1u);
  Cache::free(block);
}

TEST(CacheSet, SumsStatisticsAndEmptiesAllButThePools) {
  FakeMemory fake;
  PrivatePool* const pool = fake.caches->create_pool("graph");
  Cache::free(fake.take(512));
  Cache::free(fake.take({.size_bytes = 512, .heap_mask = 2}));
  Cache::free(fake.take(512, pool));
  EXPECT_EQ(fake.caches->statistics(nullptr).allocation_count, 2u);
  EXPECT_EQ(fake.caches->statistics(pool).allocation_count, 1u);
  EXPECT_EQ(fake.caches->empty(), BP_OK);
  EXPECT_EQ(fake.caches->statistics(nullptr).reserved_bytes, 0u);
  EXPECT_EQ(fake.buffers.size(), 1u) << "that of the pool";
  EXPECT_EQ(fake.caches->trim(*pool), BP_OK);
  EXPECT_TRUE(fake.buffers.empty());
  EXPECT_EQ(fake.caches->destroy(pool), BP_OK);
}

TEST(Pools, ShareNoMemoryWithOtherBlocks) {
  FakeMemory fake;
  PrivatePool* const a = fake.caches->create_pool(nullptr);
  PrivatePool* const b = fake.caches->create_pool(nullptr);
  bp_block* const blocks[] = {fake.take(512), fake.take(512, a), fake.take(512, b)};
  EXPECT_NE(blocks[0]->ref.buffer, blocks[1]->ref.buffer);
  EXPECT_NE(blocks[1]->ref.buffer, blocks[2]->ref.buffer);
  for (bp_block* const block : blocks) Cache::free(block);
  fake.caches->destroy(a);
  fake.caches->destroy(b);
}

TEST(Pools, EndBeforeTheirBlocksAndThenGiveTheMemoryBack) {
  FakeMemory fake;
  PrivatePool* pool = fake.caches->create_pool(nullptr);
  bp_block* const block = fake.take(512, pool);
  EXPECT_EQ(fake.caches->destroy(pool), BP_OK);
  EXPECT_EQ(fake.buffers.size(), 1u);
  pool = fake.caches->create_pool(nullptr);
  bp_block* const other = fake.take(512, pool);
  EXPECT_NE(other->ref.buffer, block->ref.buffer);
  EXPECT_EQ(fake.caches->statistics(pool).allocation_count, 1u);
  EXPECT_EQ(Cache::free(block), BP_OK);
  EXPECT_EQ(fake.buffers.size(), 1u) << "that of the second pool";
  EXPECT_EQ(Cache::free(block), BP_INVALID_ARGUMENT);
  Cache::free(other);
  EXPECT_EQ(fake.caches->destroy(pool), BP_OK);
  EXPECT_TRUE(fake.buffers.empty());
}

TEST(Pools, ReuseTheCachesOfDestroyedPools) {
  FakeMemory fake;
  for (int i = 0; i < 5; ++i) {
    PrivatePool* const pool = fake.caches->create_pool(nullptr);
    Cache::free(fake.take(512, pool));
    EXPECT_EQ(fake.caches->statistics(pool).allocation_count, 1u);
    EXPECT_EQ(fake.caches->destroy(pool), BP_OK);
  }
  EXPECT_EQ(fake.caches->others().size(), 1u);
}

TEST(Pools, GiveMemoryBackThatAnotherStreamUsedWhenTheCacheIsEmptied) {
  FakeMemory fake;
  PrivatePool* const pool = fake.caches->create_pool(nullptr);
  bp_block* const block = fake.take(512, pool);
  Cache::record_stream(block, FakeMemory::stream(2));
  EXPECT_EQ(fake.caches->destroy(pool), BP_OK);
  EXPECT_EQ(Cache::free(block), BP_OK);
  EXPECT_EQ(fake.caches->empty(), BP_OK);
  EXPECT_EQ(fake.buffers.size(), 1u) << "the other stream still uses it";
  fake.events_are_done = true;
  EXPECT_EQ(fake.caches->empty(), BP_OK);
  EXPECT_TRUE(fake.buffers.empty());
}

// Work that was recorded with freed blocks runs again in each replay.
TEST(PoolsOfGraphs, GiveNothingBackBeforeTheirEndAlsoIfMemoryRunsOut) {
  FakeMemory fake;
  PrivatePool* const pool = fake.caches->create_pool("graph", true);
  Cache::free(fake.take(24ull << 20, pool));
  EXPECT_EQ(fake.caches->trim(*pool), BP_OK);
  fake.limit_bytes = fake.used_bytes;
  bp_block* none = nullptr;
  EXPECT_EQ(fake.first->allocate(nullptr, 1 << 20, &none), BP_OUT_OF_MEMORY);
  EXPECT_EQ(fake.caches->get({}, pool).allocate(nullptr, 32ull << 20, &none), BP_OUT_OF_MEMORY);
  EXPECT_EQ(fake.buffers.size(), 1u);
  EXPECT_EQ(fake.caches->destroy(pool), BP_OK);
  EXPECT_TRUE(fake.buffers.empty());
}

TEST(PoolsOfGraphs, EndBehindTheReplaysOfAllStreams) {
  FakeMemory fake;
  PrivatePool* const pool = fake.caches->create_pool("graph", true);
  bp_block* const held = fake.take(24ull << 20, pool);
  bp_block* const shared = fake.take(4096, pool);
  Cache::free(fake.take(32ull << 20, pool));
  Cache::record_stream(shared, FakeMemory::stream(3));
  Cache::free(shared);
  EXPECT_EQ(fake.live_events, 0) << "its memory waits for the end of the graph";
  EXPECT_EQ(fake.caches->held(*pool).size(), 1u);
  fake.caches->add_user(*pool, FakeMemory::stream(2));
  EXPECT_EQ(fake.caches->destroy(pool), BP_OK);
  EXPECT_EQ(fake.caches->empty(), BP_OK);
  EXPECT_EQ(fake.buffers.size(), 3u) << "the replay on stream 2 has not run";
  fake.run();
  EXPECT_EQ(fake.caches->empty(), BP_OK);
  EXPECT_EQ(fake.buffers.size(), 1u) << "that of the block that is held";
  Cache::free(held);
  EXPECT_EQ(fake.caches->empty(), BP_OK);
  EXPECT_EQ(fake.buffers.size(), 1u) << "the free waits for stream 2 too";
  fake.run();
  EXPECT_EQ(fake.caches->empty(), BP_OK);
  EXPECT_TRUE(fake.buffers.empty());
}

TEST(Pools, AndTheirBlocksOutliveTheUnload) {
  FakeMemory fake;
  PrivatePool* const pool = fake.caches->create_pool(nullptr);
  bp_block* const block = fake.take(512, pool);
  fake.unload();
  EXPECT_EQ(pool->caches, nullptr);
  EXPECT_EQ(Cache::record_stream(block, FakeMemory::stream(2)), BP_OK);
  EXPECT_EQ(Cache::free(block), BP_OK);
  delete pool;  // As bp_pool_destroy() does now.
}

// ---- Blocks of foreign memory -------------------------------------------------------------------

// A buffer that the test owns, and how often its owner was told.
struct Foreign {
  explicit Foreign(FakeMemory& of) : fake(of) {
    const bp_allocate_desc desc{.size_bytes = 4096};
    fake.allocator.allocate(&fake, nullptr, &desc, &buffer);
  }
  ~Foreign() { fake.allocator.deallocate(&fake, buffer, nullptr); }

  bp_status wrap(uint64_t offset, uint64_t size, bp_block** out, uint64_t address = 0) {
    return fake.first->wrap(FakeMemory::stream(1), {buffer, offset, size}, address,
                            {[](void* self) { ++static_cast<Foreign*>(self)->releases; }, this},
                            out);
  }

  FakeMemory& fake;
  bp_buffer* buffer = nullptr;
  int releases = 0;
};

TEST(WrappedBlocks, TellTheirOwnerWhenTheWorkHasEnded) {
  FakeMemory fake;
  Foreign foreign(fake);
  bp_block* block = nullptr;
  ASSERT_EQ(foreign.wrap(64, 512, &block), BP_OK);
  EXPECT_EQ(block->ref.buffer, foreign.buffer);
  EXPECT_EQ(block->ref.byte_offset, 64u);
  EXPECT_EQ(Cache::record_stream(block, FakeMemory::stream(2)), BP_OK);
  EXPECT_EQ(Cache::free(block), BP_OK);
  EXPECT_EQ(Cache::free(block), BP_INVALID_ARGUMENT);
  EXPECT_EQ(foreign.releases, 0);
  EXPECT_EQ(fake.live_events, 2);
  fake.events_are_done = true;
  Cache::free(fake.take(512));
  EXPECT_EQ(foreign.releases, 1);
  EXPECT_EQ(fake.first->statistics().allocation_count, 1u) << "it is not counted";
}

TEST(WrappedBlocks, TellTheirOwnerAtOnceIfNothingRuns) {
  FakeMemory fake;
  fake.events_are_done = true;
  Foreign foreign(fake);
  bp_block* block = nullptr;
  ASSERT_EQ(foreign.wrap(0, 4096, &block), BP_OK);
  EXPECT_EQ(Cache::free(block), BP_OK);
  EXPECT_EQ(foreign.releases, 1);
}

TEST(WrappedBlocks, StayWithTheCallerIfNoEventCanBeRecorded) {
  FakeMemory fake;
  Foreign foreign(fake);
  bp_block* block = nullptr;
  ASSERT_EQ(foreign.wrap(0, 4096, &block), BP_OK);
  fake.record_status = BP_OUT_OF_MEMORY;
  EXPECT_EQ(Cache::free(block), BP_OUT_OF_MEMORY);
  fake.record_status = BP_OK;
  fake.events_are_done = true;
  EXPECT_EQ(Cache::free(block), BP_OK);
  EXPECT_EQ(foreign.releases, 1);
}

TEST(WrappedBlocks, RefuseRangesThatLeaveTheirBuffer) {
  FakeMemory fake;
  Foreign foreign(fake);
  bp_block* block = nullptr;
  for (const auto& [offset, size] :
       {std::pair{uint64_t{4096}, uint64_t{1}}, {UINT64_MAX, 2}, {0, 4097}}) {
    EXPECT_EQ(foreign.wrap(offset, size, &block), BP_INVALID_ARGUMENT);
    EXPECT_NE(std::string(bp_error_text()).find("leave the buffer"), std::string::npos);
  }
  EXPECT_EQ(block, nullptr);
}

TEST(WrappedBlocks, HaveAddressesAndAreFoundByThem) {
  FakeMemory fake;
  fake.events_are_done = true;
  Foreign foreign(fake);
  bp_block *own = nullptr, *given = nullptr, *found = nullptr;
  ASSERT_EQ(foreign.wrap(64, 512, &own), BP_OK);
  ASSERT_EQ(foreign.wrap(1024, 512, &given, 0x7000), BP_OK);
  uint64_t address = 0, offset = 0;
  EXPECT_EQ(Cache::address(own, &address), BP_OK);
  EXPECT_EQ(address, reinterpret_cast<uintptr_t>(foreign.buffer) + 64);
  EXPECT_EQ(fake.first->find(address + 511, &found, &offset), BP_OK);
  EXPECT_EQ(found, own);
  EXPECT_EQ(offset, 511u);
  EXPECT_EQ(Cache::address(given, &address), BP_OK);
  EXPECT_EQ(address, 0x7000u);
  fake.allocator.address = [](void*, bp_buffer*, uint64_t*) -> bp_status { return BP_UNSUPPORTED; };
  bp_block* synthetic = nullptr;
  ASSERT_EQ(foreign.wrap(2048, 512, &synthetic), BP_OK);
  EXPECT_EQ(Cache::address(synthetic, &address), BP_OK);
  EXPECT_EQ(fake.first->find(address, &found, &offset), BP_OK);
  EXPECT_EQ(found, synthetic);
  for (bp_block* const block : {own, given, synthetic}) EXPECT_EQ(Cache::free(block), BP_OK);
  EXPECT_EQ(fake.first->find(address, &found, &offset), BP_NOT_FOUND);
}

TEST(WrappedBlocks, OfOneRangeKeepTheirAddressApart) {
  FakeMemory fake;
  fake.events_are_done = true;
  Foreign foreign(fake);
  bp_block *a = nullptr, *b = nullptr, *found = nullptr;
  ASSERT_EQ(foreign.wrap(0, 512, &a), BP_OK);
  ASSERT_EQ(foreign.wrap(0, 512, &b), BP_OK);
  uint64_t address = 0, offset = 0;
  EXPECT_EQ(Cache::address(a, &address), BP_OK);
  EXPECT_EQ(Cache::address(b, &address), BP_OK);
  EXPECT_EQ(Cache::free(a), BP_OK);
  EXPECT_EQ(fake.first->find(address, &found, &offset), BP_OK);
  EXPECT_EQ(found, b);
  EXPECT_EQ(Cache::free(b), BP_OK);
}

TEST(WrappedBlocks, EndAfterTheUnloadAndAfterAReset) {
  FakeMemory fake;
  Foreign foreign(fake);
  bp_block *lost = nullptr, *waiting = nullptr, *late = nullptr;
  ASSERT_EQ(foreign.wrap(0, 512, &lost), BP_OK);
  fake.first->forget_memory();
  EXPECT_EQ(foreign.releases, 0);
  EXPECT_EQ(Cache::free(lost), BP_OK);
  EXPECT_EQ(foreign.releases, 1);
  ASSERT_EQ(foreign.wrap(0, 512, &waiting), BP_OK);
  ASSERT_EQ(foreign.wrap(0, 512, &late), BP_OK);
  EXPECT_EQ(Cache::free(waiting), BP_OK);
  fake.unload();
  EXPECT_EQ(foreign.releases, 2);
  EXPECT_EQ(Cache::free(late), BP_OK);
  EXPECT_EQ(foreign.releases, 3);
}

// ---- The snapshot -------------------------------------------------------------------------------

TEST(Snapshot, ShowsCachesSegmentsBlocksAndTheHistory) {
  FakeMemory fake;
  Foreign foreign(fake);
  fake.caches->history().keep(3);
  PrivatePool* const pool = fake.caches->create_pool("my \"pool\"");
  bp_block* const used = fake.take(600);
  bp_block* const waiting = fake.take(600);
  bp_block* const pooled = fake.take({.size_bytes = 8, .heap_mask = 2}, pool);
  bp_block* wrapped = nullptr;
  ASSERT_EQ(foreign.wrap(64, 512, &wrapped), BP_OK);
  Cache::record_stream(waiting, FakeMemory::stream(2));
  Cache::free(waiting);
  const auto json =
      nlohmann::json::parse(snapshot(fake.target, *fake.caches, fake.caches->history()));
  EXPECT_EQ(json["target"], "fake:0");
  ASSERT_EQ(json["caches"].size(), 2u);
  const auto& first = json["caches"][0];
  EXPECT_EQ(first["pool"], nullptr);
  EXPECT_EQ(first["statistics"]["allocation_count"], 2u);
  const auto& blocks = first["segments"][0]["blocks"];
  ASSERT_EQ(blocks.size(), 3u);
  EXPECT_EQ(blocks[0]["state"], "used");
  EXPECT_EQ(blocks[0]["size_bytes"], 1024u);
  EXPECT_EQ(blocks[0]["requested_bytes"], 600u);
  EXPECT_EQ(blocks[1]["state"], "waiting");
  EXPECT_EQ(blocks[2]["state"], "free");
  EXPECT_EQ(blocks[2]["byte_offset"], 2048u);
  EXPECT_EQ(first["segments"][1]["is_wrapped"], true);
  EXPECT_EQ(first["segments"][1]["blocks"][0]["byte_offset"], 64u);
  EXPECT_EQ(json["caches"][1]["pool"], "my \"pool\"");
  EXPECT_EQ(json["caches"][1]["heap"], 1u);
  ASSERT_EQ(json["history"].size(), 3u);
  EXPECT_EQ(json["history"][0]["event"], "allocate");
  EXPECT_EQ(json["history"][1]["event"], "add_segment");
  EXPECT_EQ(json["history"][2]["size_bytes"], 8u);
  fake.events_are_done = true;
  for (bp_block* const block : {used, pooled, wrapped}) Cache::free(block);
  fake.caches->destroy(pool);
}

TEST(Snapshot, KeepsNoHistoryUnlessAsked) {
  FakeMemory fake;
  Cache::free(fake.take(600));
  EXPECT_TRUE(fake.caches->history().events().empty());
  fake.caches->history().keep(8);
  Cache::free(fake.take(600));
  EXPECT_EQ(fake.caches->history().events().size(), 2u);
  fake.caches->history().keep(0);
  EXPECT_TRUE(fake.caches->history().events().empty());
}

}  // namespace
}  // namespace bp::services
