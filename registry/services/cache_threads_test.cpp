// Tests the cache over a backend whose calls last as long as the test wants, or call the cache.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "registry/services/caching_allocator.hpp"

namespace bp::services {
namespace {

constexpr uint64_t kMiB = 1ull << 20;
constexpr auto kPatience = std::chrono::seconds(20);  // A test waits so long only if it fails.

// A backend without memory: its buffers are numbers. A test can hold a call. Then allocate() stops
// after it has raised `used_bytes_`, and deallocate() stops before it lowers it.
class SlowBackend {
 public:
  SlowBackend() {
    allocator_.allocate = [](void* self, bp_device*, const bp_allocate_desc* desc,
                             bp_buffer** out) {
      return from(self).allocate(desc->size_bytes, out);
    };
    allocator_.deallocate = [](void* self, bp_buffer* buffer, bp_stream* stream) {
      return from(self).free(buffer, stream);
    };
    devices_.memory_info = [](void*, bp_device*, uint64_t, uint64_t*, uint64_t*) -> bp_status {
      return BP_UNSUPPORTED;
    };
    streams_.query = [](void* self, bp_stream*, uint32_t* done) -> bp_status {
      *done = from(self).has_work ? 0 : 1;
      return BP_OK;
    };
    events_.create = [](void*, bp_device*, const bp_event_desc*, bp_event**) -> bp_status {
      return BP_UNSUPPORTED;
    };
    devices_.synchronize = [](void* self, bp_device*, uint64_t) -> bp_status {
      from(self).has_work = false;
      return BP_OK;
    };
    target_.name = "slow:0";
    target_.properties = &properties_;
    target_.devices = &devices_;
    target_.allocator = &allocator_;
    target_.streams = &streams_;
    target_.events = &events_;
    target_.default_stream = stream(1);
    cache = new Cache(target_, false);
  }
  ~SlowBackend() {
    EXPECT_EQ(Cache::release(cache), BP_OK);
    EXPECT_TRUE(buffers_.empty()) << "buffers leaked";
  }
  SlowBackend(const SlowBackend&) = delete;

  static bp_stream* stream(uintptr_t i) { return reinterpret_cast<bp_stream*>(i * 16); }

  bp_block* take(uint64_t size, bp_stream* on = nullptr) {
    bp_block* block = nullptr;
    EXPECT_EQ(cache->allocate(on, size, &block), BP_OK) << bp_error_text();
    return block;
  }

  // The next call of this kind stops until let_go(). wait_until_held() returns when it has stopped.
  void hold(const char* call) {
    const std::lock_guard lock(mutex_);
    held_call_ = call;
  }
  void wait_until_held() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] { return is_held_; }));
  }
  void let_go() {
    const std::lock_guard lock(mutex_);
    is_held_ = false;
    changed_.notify_all();
  }
  void wait_for_refusals(int count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] { return refusals_ >= count; }));
  }

  Cache* cache = nullptr;
  uint64_t limit_bytes = UINT64_MAX;
  std::atomic<bool> has_work = false;  // If true, no stream is idle.
  int early_frees = 0;                 // The calls of deallocate() without a stream during work.
  std::function<void()> on_free;       // The next call of deallocate() runs it, once.

 private:
  static SlowBackend& from(void* self) { return *static_cast<SlowBackend*>(self); }

  bp_status allocate(uint64_t size, bp_buffer** out) {
    std::unique_lock lock(mutex_);
    if (used_bytes_ + size > limit_bytes) {
      ++refusals_;
      changed_.notify_all();
      return BP_OUT_OF_MEMORY;
    }
    used_bytes_ += size;
    stop("allocate", lock);
    *out = reinterpret_cast<bp_buffer*>(next_handle_++);
    buffers_[*out] = size;
    return BP_OK;
  }
  bp_status free(bp_buffer* buffer, bp_stream* stream) {
    if (on_free) std::exchange(on_free, nullptr)();
    std::unique_lock lock(mutex_);
    if (stream == nullptr && has_work) ++early_frees;
    stop("free", lock);
    used_bytes_ -= buffers_.at(buffer);
    buffers_.erase(buffer);
    return BP_OK;
  }
  void stop(const std::string& call, std::unique_lock<std::mutex>& lock) {
    if (held_call_ != call) return;
    held_call_.clear();
    is_held_ = true;
    changed_.notify_all();
    EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] { return !is_held_; }));
  }

  std::mutex mutex_;  // It guards the members down to next_handle_.
  std::condition_variable changed_;
  std::string held_call_;
  bool is_held_ = false;
  int refusals_ = 0;
  std::map<bp_buffer*, uint64_t> buffers_;
  uint64_t used_bytes_ = 0;
  uintptr_t next_handle_ = 1;

  bp_heap heap_{.struct_size = sizeof(bp_heap),
                .struct_type = BP_STRUCT_HEAP,
                .size_bytes = 1ull << 40,
                .max_allocation_bytes = 1ull << 40,
                .tensor_offset_alignment_bytes = 1,
                .suballocation_granularity_bytes = 1};
  bp_device_properties properties_{.struct_size = sizeof(bp_device_properties),
                                   .struct_type = BP_STRUCT_DEVICE_PROPERTIES,
                                   .heaps = &heap_,
                                   .heap_count = 1,
                                   .heap_stride_bytes = sizeof(bp_heap)};
  bp_device_ops devices_{.struct_size = sizeof(bp_device_ops), .self = this};
  bp_allocator_ops allocator_{.struct_size = sizeof(bp_allocator_ops), .self = this};
  bp_stream_ops streams_{.struct_size = sizeof(bp_stream_ops), .self = this};
  bp_event_ops events_{.struct_size = sizeof(bp_event_ops), .self = this};
  bp_target target_{};
};

class CacheThreads : public testing::Test {
 protected:
  // Runs `body` in a new thread.
  template <typename Body>
  auto start(Body body) {
    return std::async(std::launch::async, std::move(body));
  }
  template <typename T>
  bool is_over(std::future<T>& work, std::chrono::milliseconds patience = kPatience) {
    return work.wait_for(patience) == std::future_status::ready;
  }
  void end_stream(bp_stream* stream) {
    Cache::Ending ending = slow.cache->begin_end(stream);
    slow.cache->finish_end(ending, true);
  }

  SlowBackend slow;
};

TEST_F(CacheThreads, GoOnWhileTheBackendAllocatesForAnother) {
  Cache::free(slow.take(4096));
  slow.hold("allocate");
  auto slow_block = start([&] { return slow.take(64 * kMiB); });
  slow.wait_until_held();
  auto others = start([&] {
    Cache::free(slow.take(4096));
    Cache::free(slow.take(4096, SlowBackend::stream(2)));
    end_stream(SlowBackend::stream(2));
    return slow.cache->statistics().allocation_count;
  });
  EXPECT_TRUE(is_over(others));
  slow.let_go();
  EXPECT_EQ(others.get(), 3u);
  Cache::free(slow_block.get());
}

TEST_F(CacheThreads, EndAStreamWhileTheBackendFreesMemoryOfAnother) {
  Cache::free(slow.take(64 * kMiB));
  bp_block* const kept = slow.take(4096, SlowBackend::stream(2));
  slow.hold("free");
  auto emptied = start([&] { return slow.cache->empty(); });
  slow.wait_until_held();
  auto ended = start([&] { end_stream(SlowBackend::stream(2)); });
  EXPECT_TRUE(is_over(ended));
  slow.let_go();
  EXPECT_EQ(emptied.get(), BP_OK);
  Cache::free(kept);
}

TEST_F(CacheThreads, WaitWithTheEndOfAStreamThatTheBackendHas) {
  Cache::free(slow.take(64 * kMiB, SlowBackend::stream(2)));
  slow.hold("free");
  auto emptied = start([&] { return slow.cache->empty(); });
  slow.wait_until_held();
  auto ended = start([&] { end_stream(SlowBackend::stream(2)); });
  EXPECT_FALSE(is_over(ended, std::chrono::milliseconds(50)));
  slow.let_go();
  EXPECT_EQ(emptied.get(), BP_OK);
  EXPECT_TRUE(is_over(ended));
}

TEST_F(CacheThreads, MayComeBackFromTheBackend) {
  Cache::free(slow.take(64 * kMiB));
  bp_block* const other = slow.take(4096);
  Cache::free(slow.take(4096, SlowBackend::stream(2)));
  bool has_run = false;
  slow.on_free = [&] {
    Cache::free(other);
    Cache::free(slow.take(64 * kMiB, SlowBackend::stream(2)));
    end_stream(SlowBackend::stream(2));
    has_run = true;
  };
  auto emptied = start([&] { return slow.cache->empty(); });
  ASSERT_TRUE(is_over(emptied));
  EXPECT_EQ(emptied.get(), BP_OK);
  EXPECT_TRUE(has_run);
}

// Both streams end while empty() gives back the segment of one of them, and the other is next.
TEST_F(CacheThreads, KeepTheMemoryOfAStreamThatEndsBeforeItsWork) {
  for (const uintptr_t i : {2u, 3u}) Cache::free(slow.take(64 * kMiB, SlowBackend::stream(i)));
  slow.has_work = true;
  slow.on_free = [&] {
    for (const uintptr_t i : {2u, 3u}) end_stream(SlowBackend::stream(i));
  };
  EXPECT_EQ(slow.cache->empty(), BP_OK);
  EXPECT_EQ(slow.early_frees, 0);
  EXPECT_EQ(slow.cache->statistics().reserved_bytes, 64 * kMiB);
}

TEST_F(CacheThreads, OutOfMemoryWaitForWhatAnotherIsGivingBack) {
  slow.limit_bytes = 64 * kMiB;
  Cache::free(slow.take(64 * kMiB));
  slow.hold("free");
  auto emptied = start([&] { return slow.cache->empty(); });
  slow.wait_until_held();
  auto block = start([&] { return slow.take(48 * kMiB); });
  slow.wait_for_refusals(1);
  EXPECT_FALSE(is_over(block, std::chrono::milliseconds(50)));
  slow.let_go();
  EXPECT_EQ(emptied.get(), BP_OK);
  Cache::free(block.get());
  EXPECT_EQ(slow.cache->statistics().out_of_memory_count, 0u);
}

TEST_F(CacheThreads, OutOfMemoryShareTheSegmentThatAnotherIsAdding) {
  slow.limit_bytes = 20 * kMiB;
  slow.hold("allocate");
  auto first = start([&] { return slow.take(4 * kMiB); });
  slow.wait_until_held();
  auto second = start([&] { return slow.take(4 * kMiB); });
  slow.wait_for_refusals(1);
  EXPECT_FALSE(is_over(second, std::chrono::milliseconds(50)));
  slow.let_go();
  bp_block *const a = first.get(), *const b = second.get();
  ASSERT_TRUE(a != nullptr && b != nullptr);
  EXPECT_EQ(a->ref.buffer, b->ref.buffer);
  EXPECT_EQ(slow.cache->statistics().reserved_bytes, 20 * kMiB);
  EXPECT_EQ(slow.cache->statistics().out_of_memory_count, 0u);
  Cache::free(a);
  Cache::free(b);
}

TEST_F(CacheThreads, OutOfMemoryTogetherDoNotWaitForEachOther) {
  slow.limit_bytes = 0;
  std::vector<std::future<bp_status>> all;
  for (int i = 0; i < 4; ++i) {
    all.push_back(start([&] {
      bp_block* none = nullptr;
      return slow.cache->allocate(nullptr, kMiB, &none);
    }));
  }
  for (std::future<bp_status>& one : all) {
    ASSERT_TRUE(is_over(one));
    EXPECT_EQ(one.get(), BP_OUT_OF_MEMORY);
  }
  EXPECT_EQ(slow.cache->statistics().out_of_memory_count, 4u);
}

}  // namespace
}  // namespace bp::services
