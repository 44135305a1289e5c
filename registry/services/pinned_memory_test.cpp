// Tests pinned memory with a device whose streams the test runs.
#include "registry/services/pinned_memory.hpp"

#include <cstring>
#include <numeric>

#include "registry/services/memory_snapshot.hpp"
#include "registry/services/transfers.hpp"
#include "registry/tests/fake_memory.hpp"

namespace bp::services {
namespace {

constexpr uint64_t kSize = 64u << 10;  // The least that an upload puts there.
constexpr bp_heap_flags kHost = BP_HEAP_HOST_VISIBLE | BP_HEAP_HOST_COHERENT;

struct Pinned : ::testing::Test {
  FakeMemory fake;
  std::unique_ptr<PinnedMemory> pinned;

  explicit Pinned(bp_heap_flags flags = kHost | BP_HEAP_HOST_CONCURRENT) {
    fake.heaps[1].flags = flags;
    pinned = std::make_unique<PinnedMemory>(fake.target, *fake.caches);
  }
  ~Pinned() override {
    fake.run();
    pinned.reset();
  }

  void* take(uint64_t size_bytes) {
    void* memory = nullptr;
    EXPECT_EQ(pinned->allocate(size_bytes, &memory), BP_OK) << bp_error_text();
    return memory;
  }
  DevicePlace place(const bp_block* block) {
    return {fake.target, pinned.get(), FakeMemory::stream(2), block->ref};
  }
  uint64_t allocated() const { return pinned->statistics().allocated_bytes; }
};

TEST_F(Pinned, ComesFromTheHeapOfTheHostAndIsMappedWhileItIsHeld) {
  void* const memory = take(1000);
  EXPECT_EQ(fake.buffers.begin()->second.desc.heap_mask, 1u << 1);
  EXPECT_EQ(fake.maps, 1);
  std::memset(memory, 1, 1000);
  EXPECT_EQ(allocated(), 1024u);
  EXPECT_EQ(pinned->free(memory), BP_OK);
  EXPECT_EQ(fake.maps, 0);
  EXPECT_EQ(allocated(), 0u);
  EXPECT_EQ(take(1000), memory) << "it is used again";
  EXPECT_EQ(pinned->free(memory), BP_OK);
}

TEST_F(Pinned, IsUsedAgainOnlyWhenTheWorkOfAllItsStreamsHasEnded) {
  void* const memory = take(4096);
  EXPECT_EQ(pinned->record_stream(memory, FakeMemory::stream(1)), BP_OK);
  EXPECT_EQ(pinned->record_stream(memory, FakeMemory::stream(2)), BP_OK);
  EXPECT_EQ(pinned->free(memory), BP_OK);
  void* const other = take(4096);
  EXPECT_NE(other, memory) << "work still uses it";
  EXPECT_EQ(allocated(), 8192u);
  fake.run();
  EXPECT_EQ(take(4096), memory);
  EXPECT_EQ(pinned->free(memory), BP_OK);
  EXPECT_EQ(pinned->free(other), BP_OK);
  EXPECT_EQ(fake.live_events, 0);
}

TEST_F(Pinned, WaitsForFreedMemoryIfMemoryRunsOut) {
  fake.limit_bytes = 2u << 20;
  void* const memory = take(2u << 20);
  EXPECT_EQ(pinned->record_stream(memory, FakeMemory::stream(1)), BP_OK);
  EXPECT_EQ(pinned->free(memory), BP_OK);
  void* const again = take(2u << 20);
  EXPECT_EQ(again, memory);
  void* more = &fake;
  EXPECT_EQ(pinned->allocate(2u << 20, &more), BP_OUT_OF_MEMORY);
  EXPECT_EQ(more, &fake);
  EXPECT_EQ(pinned->free(again), BP_OK);
}

TEST_F(Pinned, RefusesMemoryThatItDidNotGive) {
  auto* const memory = static_cast<unsigned char*>(take(4096));
  EXPECT_EQ(pinned->free(memory + 1), BP_INVALID_ARGUMENT);
  EXPECT_EQ(pinned->record_stream(&fake, FakeMemory::stream(1)), BP_INVALID_ARGUMENT);
  EXPECT_EQ(pinned->free(memory), BP_OK);
  EXPECT_EQ(pinned->free(memory), BP_INVALID_ARGUMENT);
  EXPECT_EQ(pinned->free(nullptr), BP_OK);
  void* none = &fake;
  EXPECT_EQ(pinned->allocate(0, &none), BP_OK);
  EXPECT_EQ(none, nullptr);
}

TEST_F(Pinned, RefusesAStreamThatCaptures) {
  void* const memory = take(4096);
  fake.streams.is_capturing = [](void*, bp_stream*, uint32_t* out) -> bp_status {
    *out = 1;
    return BP_OK;
  };
  EXPECT_EQ(pinned->record_stream(memory, FakeMemory::stream(1)), BP_INVALID_ARGUMENT);
  EXPECT_EQ(pinned->free(memory), BP_OK);
}

TEST_F(Pinned, GivesFreeMemoryBackAndIsShownAsAPool) {
  void* const memory = take(4096);
  void* const kept = take(8u << 20);
  const std::string text = snapshot(fake.target, *fake.caches, fake.caches->history());
  EXPECT_NE(text.find("\"pool\":\"pinned\""), std::string::npos) << text;
  EXPECT_EQ(pinned->free(memory), BP_OK);
  EXPECT_EQ(pinned->trim(), BP_OK);
  EXPECT_EQ(fake.buffers.size(), 1u) << "one block is held";
  EXPECT_EQ(pinned->free(kept), BP_OK);
  EXPECT_EQ(pinned->trim(), BP_OK);
  EXPECT_TRUE(fake.buffers.empty());
}

TEST_F(Pinned, EndsWithTheUnloadAlsoWhatIsHeld) {
  void* const memory = take(4096);
  EXPECT_EQ(pinned->record_stream(memory, FakeMemory::stream(1)), BP_OK);
  fake.run();
  pinned.reset();
  EXPECT_EQ(fake.maps, 0);
  EXPECT_EQ(fake.live_events, 0);
}

TEST_F(Pinned, ForgetsWhatAResetHasEnded) {
  void* const memory = take(4096);
  EXPECT_EQ(pinned->record_stream(memory, FakeMemory::stream(1)), BP_OK);
  fake.first->forget_memory();
  for (Cache* cache : fake.caches->others()) cache->forget_memory();
  pinned->forget();
  EXPECT_EQ(pinned->free(memory), BP_OK);
  EXPECT_EQ(fake.maps, 1) << "the reset ended the map";
  fake.maps = 0;
  fake.buffers.clear();
  fake.used_bytes = 0;
}

TEST_F(Pinned, ServesUploadsWhoseBytesAreTakenDuringTheCall) {
  bp_block* const block = fake.take(kSize);
  std::vector<unsigned char> bytes(kSize);
  std::iota(bytes.begin(), bytes.end(), uint8_t{1});
  const std::vector<unsigned char> expected = bytes;
  EXPECT_EQ(upload(place(block), bytes.data(), {}), BP_OK);
  std::ranges::fill(bytes, uint8_t{0});
  EXPECT_EQ(fake.copies, 1);
  EXPECT_EQ(allocated(), kSize) << "the work still reads it";
  void* const other = take(kSize);
  std::memset(other, 7, kSize);
  fake.run();
  EXPECT_EQ(std::memcmp(FakeMemory::bytes(block->ref), expected.data(), kSize), 0);
  EXPECT_EQ(pinned->free(other), BP_OK);
  Cache::free(block);
}

TEST_F(Pinned, IsCopiedFromAndToWithoutMemoryBetween) {
  bp_block* const block = fake.take(kSize);
  auto* const from = static_cast<unsigned char*>(take(kSize));
  auto* const to = static_cast<unsigned char*>(take(kSize));
  std::iota(from, from + kSize, uint8_t{3});
  int ends = 0;
  const Completion end{[](void* self, bp_status) { ++*static_cast<int*>(self); }, &ends};
  EXPECT_EQ(upload(place(block), from, end), BP_OK);
  EXPECT_EQ(download(to, place(block), end), BP_OK);
  EXPECT_EQ(fake.copies, 2);
  EXPECT_EQ(pinned->free(from), BP_OK);
  EXPECT_EQ(allocated(), 2 * kSize) << "the copy still reads it";
  fake.run();
  EXPECT_EQ(ends, 2);
  EXPECT_EQ(to[kSize - 1], static_cast<unsigned char>(3 + kSize - 1));
  EXPECT_EQ(pinned->free(to), BP_OK);
  Cache::free(block);
}

TEST_F(Pinned, LeavesSmallUploadsAndThoseOfCapturesToTheBackend) {
  bp_block* const block = fake.take(kSize);
  const std::vector<unsigned char> bytes(kSize, 5);
  DevicePlace few = place(block);
  few.range.size_bytes = kSize - 1;
  EXPECT_EQ(upload(few, bytes.data(), {}), BP_OK);
  fake.streams.is_capturing = [](void*, bp_stream*, uint32_t* out) -> bp_status {
    *out = 1;
    return BP_OK;
  };
  EXPECT_EQ(upload(place(block), bytes.data(), {}), BP_OK);
  EXPECT_EQ(fake.copies, 0);
  Cache::free(block);
}

struct MappedAlone : Pinned {
  MappedAlone() : Pinned(kHost) {}
};

TEST_F(MappedAlone, IsNotUsedByWorkOfTheDeviceWhileItIsMapped) {
  bp_block* const block = fake.take(kSize);
  void* const memory = take(kSize);
  int ends = 0;
  const Completion end{[](void* self, bp_status) { ++*static_cast<int*>(self); }, &ends};
  EXPECT_EQ(upload(place(block), memory, end), BP_OK);
  EXPECT_EQ(fake.copies, 0);
  EXPECT_EQ(pinned->free(memory), BP_OK);
  EXPECT_EQ(allocated(), kSize);
  fake.run();
  EXPECT_EQ(pinned->trim(), BP_OK);
  EXPECT_EQ(allocated(), 0u);
  Cache::free(block);
}

struct NoHostHeap : Pinned {
  NoHostHeap() : Pinned(BP_HEAP_HOST_VISIBLE) {}
};

TEST_F(NoHostHeap, IsUnsupportedWithoutACoherentHeap) {
  void* memory = &fake;
  EXPECT_EQ(pinned->allocate(8, &memory), BP_UNSUPPORTED);
  EXPECT_EQ(memory, &fake);
}

}  // namespace
}  // namespace bp::services
