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

TEST_F(Pinned, IsUsedAgainBehindAFailedStreamWhoseWorkHasEnded) {
  static bp_status of_wait = BP_TIMEOUT;
  of_wait = BP_TIMEOUT;
  fake.events.query = [](void*, bp_event*, uint32_t*) -> bp_status { return BP_DATA_FAILURE; };
  fake.events.synchronize = [](void*, bp_event*, uint64_t) -> bp_status { return of_wait; };
  void* const memory = take(4096);
  EXPECT_EQ(pinned->record_stream(memory, FakeMemory::stream(1)), BP_OK);
  EXPECT_EQ(pinned->free(memory), BP_OK);
  void* const other = take(4096);
  EXPECT_NE(other, memory) << "the work has not ended";
  of_wait = BP_DATA_FAILURE;
  EXPECT_EQ(take(4096), memory);
  EXPECT_EQ(pinned->free(memory), BP_OK);
  EXPECT_EQ(pinned->free(other), BP_OK);
}

TEST_F(Pinned, IsNotUsedAgainOnALostDevice) {
  fake.events.query = [](void*, bp_event*, uint32_t*) -> bp_status { return BP_DEVICE_LOST; };
  void* const memory = take(4096);
  EXPECT_EQ(pinned->record_stream(memory, FakeMemory::stream(1)), BP_OK);
  EXPECT_EQ(pinned->free(memory), BP_OK);
  void* const other = take(4096);
  EXPECT_NE(other, memory);
  EXPECT_EQ(pinned->free(other), BP_OK);
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

TEST_F(Pinned, ServesDownloadsToOtherMemory) {
  bp_block* const block = fake.take(kSize);
  std::vector<unsigned char> bytes(kSize);
  std::iota(FakeMemory::bytes(block->ref), FakeMemory::bytes(block->ref) + kSize, uint8_t{1});
  struct End {
    const std::vector<unsigned char>& bytes;
    unsigned char last = 0;
    bp_status status = -1;
  } end{bytes};
  const auto call = [](void* self, bp_status status) {
    auto& it = *static_cast<End*>(self);
    it.last = it.bytes.back();
    it.status = status;
  };
  EXPECT_EQ(download(bytes.data(), place(block), {call, &end}), BP_OK);
  EXPECT_EQ(fake.copies, 1);
  EXPECT_EQ(allocated(), kSize) << "the copy still uses it";
  fake.run();
  EXPECT_EQ(end.status, BP_OK);
  EXPECT_EQ(end.last, static_cast<unsigned char>(kSize)) << "it is called behind the last byte";
  EXPECT_EQ(bytes[0], 1);
  EXPECT_EQ(pinned->trim(), BP_OK);
  EXPECT_EQ(allocated(), 0u);
  Cache::free(block);
}

TEST_F(Pinned, ServesDownloadsOfDevicesWithoutCallbacks) {
  fake.streams.add_callback = [](void*, bp_stream*, bp_stream_callback_fn*, void*) -> bp_status {
    return BP_UNSUPPORTED;
  };
  bp_block* const block = fake.take(kSize);
  std::vector<unsigned char> bytes(kSize);
  std::memset(FakeMemory::bytes(block->ref), 9, kSize);
  EXPECT_EQ(download(bytes.data(), place(block), {}), BP_OK);
  EXPECT_EQ(fake.copies, 1);
  EXPECT_EQ(bytes.back(), 9);
  EXPECT_EQ(pinned->trim(), BP_OK);
  EXPECT_EQ(allocated(), 0u);
  Cache::free(block);
}

TEST_F(Pinned, LeavesDownloadsOfAFailedStreamAsTheyAre) {
  fake.streams.add_callback = [](void* self, bp_stream* on, bp_stream_callback_fn* callback,
                                 void* user_data) -> bp_status {
    FakeMemory::from(self).submit(on, [=] { return callback(user_data, BP_DATA_FAILURE), true; });
    return BP_OK;
  };
  bp_block* const block = fake.take(kSize);
  std::vector<unsigned char> bytes(kSize, 3);
  bp_status ended = BP_OK;
  const Completion end{
      [](void* self, bp_status status) { *static_cast<bp_status*>(self) = status; }, &ended};
  EXPECT_EQ(download(bytes.data(), place(block), end), BP_OK);
  fake.run();
  EXPECT_EQ(ended, BP_DATA_FAILURE);
  EXPECT_EQ(bytes.back(), 3);
  Cache::free(block);
}

TEST_F(Pinned, ServesCopiesFromAnotherDevice) {
  FakeMemory other;
  const bp_plugin plugins[2] = {};
  fake.target.plugin = &plugins[0];
  other.target.plugin = &plugins[1];
  bp_block *const from = other.take(kSize), *const to = fake.take(kSize);
  std::memset(FakeMemory::bytes(from->ref), 6, kSize);
  const auto shape = static_cast<int64_t>(kSize), stride = int64_t{1};
  const auto tensor = [&](const bp_block* block) {
    return bp_tensor{.buffer = block->ref.buffer,
                     .byte_offset = block->ref.byte_offset,
                     .shape = &shape,
                     .strides = &stride,
                     .ndim = 1,
                     .dtype = BP_U8};
  };
  const bp_tensor src = tensor(from), dst = tensor(to);
  const CopySide src_side{&other.target, other.first, FakeMemory::stream(1), &src};
  const CopySide dst_side{&fake.target, fake.first, FakeMemory::stream(2), &dst, pinned.get()};
  EXPECT_EQ(copy_tensor(dst_side, src_side, {}, nullptr), BP_OK) << bp_error_text();
  EXPECT_EQ(fake.copies, 1) << "the device copies from pinned memory";
  EXPECT_EQ(allocated(), kSize);
  fake.run();
  EXPECT_EQ(allocated(), kSize) << "the other device has not written it";
  other.run();
  fake.run();
  pinned->wait_for_others();
  EXPECT_EQ(pinned->trim(), BP_OK);
  EXPECT_EQ(allocated(), 0u);
  EXPECT_EQ(FakeMemory::bytes(to->ref)[kSize - 1], 6);
  Cache::free(from);
  Cache::free(to);
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
  std::vector<unsigned char> back(kSize);
  EXPECT_EQ(download(back.data(), few, {}), BP_OK);
  EXPECT_EQ(download(back.data(), place(block), {}), BP_OK);
  EXPECT_EQ(fake.copies, 0);
  fake.run();  // The downloads write `back`.
  EXPECT_EQ(back[0], 5);
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
