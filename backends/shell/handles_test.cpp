// The sets of a device's handles, over streams and buffers that are none.
#include "backplane/shell/handles.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace bp {
namespace {

struct Work {
  bool wait(uint64_t timeout_ns) {
    timeouts.push_back(timeout_ns);
    std::this_thread::sleep_for(duration);
    return ends_in_time;
  }
  void abandon() { is_abandoned = true; }

  std::vector<uint64_t> timeouts;
  std::chrono::milliseconds duration{0};  // How long wait() takes.
  bool ends_in_time = true, is_abandoned = false;
};

struct Stream {
  uint32_t magic = 7;
  std::shared_ptr<Work> work = std::make_shared<Work>();
};

const std::shared_ptr<Work>& work_of(const Stream& stream) { return stream.work; }

class Streams : public testing::Test {
 protected:
  ~Streams() override { set.delete_all(); }

  Stream* make_default(bool is_valid) {
    return set.default_stream([=](const Stream&) { return is_valid; },
                              [] { return std::make_unique<Stream>(); });
  }

  StreamSet<Stream, Work> set;
};

TEST_F(Streams, KeepTheWorkOfADestroyedStreamUntilItHasEnded) {
  Stream* const stream = set.add(std::make_unique<Stream>());
  std::shared_ptr<Work> work = stream->work;
  set.destroy(stream);
  EXPECT_TRUE(set.is_empty());
  EXPECT_EQ(set.live_work(), std::vector{work});
  set.abandon();
  EXPECT_TRUE(work->is_abandoned);
  work.reset();
  EXPECT_TRUE(set.live_work().empty());
}

TEST_F(Streams, WaitForAllWorkWithinOneTimeout) {
  Stream* const stream = set.add(std::make_unique<Stream>());
  const std::shared_ptr<Work> closed = std::make_shared<Work>();
  set.destroy(set.add(std::make_unique<Stream>(Stream{.work = closed})));
  EXPECT_TRUE(set.wait(UINT64_MAX));
  EXPECT_EQ(stream->work->timeouts, std::vector{UINT64_MAX});
  EXPECT_EQ(closed->timeouts, std::vector{UINT64_MAX});
  stream->work->duration = std::chrono::milliseconds(1);
  closed->ends_in_time = false;
  EXPECT_FALSE(set.wait(1'000'000'000));
  EXPECT_LE(stream->work->timeouts.back(), 1'000'000'000u);
  EXPECT_LT(closed->timeouts.back(), stream->work->timeouts.back()) << "the rest of the timeout";
}

TEST_F(Streams, MakeASecondHandleOfOneWork) {
  Stream* const first = set.add(std::make_unique<Stream>());
  const auto is_first = [&](const Stream& stream) { return stream.work == first->work; };
  Stream* const second = set.add_copy(is_first);
  ASSERT_NE(second, nullptr);
  EXPECT_NE(second, first);
  EXPECT_EQ(second->work, first->work);
  EXPECT_EQ(set.add_copy([](const Stream&) { return false; }), nullptr);
  EXPECT_EQ(set.live_work().size(), 2u);
}

TEST_F(Streams, MakeTheDefaultStreamOnceAndAgainWhenItIsDead) {
  Stream* const made = make_default(true);
  EXPECT_TRUE(set.is_default(made));
  EXPECT_EQ(make_default(true), made);
  Stream* const other = make_default(false);
  EXPECT_NE(other, made);
  EXPECT_TRUE(set.is_default(other));
  EXPECT_FALSE(set.is_default(made));
}

TEST_F(Streams, KeepTheDefaultStreamOfTheThreadThatWasQuicker) {
  Stream* quicker = nullptr;
  std::weak_ptr<Work> dropped;
  const auto is_valid = [](const Stream&) { return true; };
  Stream* const got = set.default_stream(is_valid, [&] {
    quicker = make_default(true);
    auto late = std::make_unique<Stream>();
    dropped = late->work;
    return late;
  });
  EXPECT_EQ(got, quicker);
  EXPECT_TRUE(dropped.expired());
  EXPECT_EQ(set.live_work().size(), 1u);
}

struct Buffer {
  uint64_t size_bytes;
};

TEST(Buffers, AreFoundByEveryAddressOfTheirMemory) {
  BufferSet<Buffer> set;
  Buffer owner{16}, view{8}, overlapping{4}, empty{0};
  auto* const device = reinterpret_cast<bp_device*>(&set);
  ASSERT_TRUE(set.add(&owner, 100, true));
  EXPECT_TRUE(set.add(&view, 104, false));
  EXPECT_FALSE(set.add(&overlapping, 115, true));
  EXPECT_TRUE(set.add(&empty, 100, true));

  bp_address_info info{};
  ASSERT_TRUE(set.find(106, device, info));
  EXPECT_EQ(info.device, device);
  EXPECT_EQ(info.buffer, reinterpret_cast<bp_buffer*>(&owner));
  EXPECT_EQ(info.byte_offset, 6u);
  EXPECT_EQ(info.size_bytes, 16u);
  EXPECT_FALSE(set.find(116, device, info));
  const auto size = [](const Buffer& buffer) { return buffer.size_bytes; };
  EXPECT_EQ(set.with_owner(115, size), 16u);
  EXPECT_EQ(set.with_owner(116, size), 0u);

  set.remove(&view);
  EXPECT_TRUE(set.find(106, device, info));
  set.remove(&owner);
  EXPECT_FALSE(set.find(106, device, info));
  EXPECT_TRUE(set.add(&overlapping, 115, true));
}

TEST(Buffers, StayWhenTheirMemoryIsForgotten) {
  BufferSet<Buffer> set;
  Buffer dead{16}, next{16};
  bp_address_info info{};
  set.add(&dead, 100, true);
  std::vector<Buffer*> discarded;
  set.forget_memory([&](Buffer& buffer) { discarded.push_back(&buffer); });
  EXPECT_EQ(discarded, std::vector{&dead});
  EXPECT_FALSE(set.find(100, nullptr, info));
  EXPECT_TRUE(set.add(&next, 100, true));
  set.remove(&dead);
  ASSERT_TRUE(set.find(100, nullptr, info)) << "a dead buffer does not take the place of another";
  EXPECT_EQ(info.buffer, reinterpret_cast<bp_buffer*>(&next));
  std::vector<Buffer*> ended;
  set.end_all([&](Buffer* buffer) { ended.push_back(buffer); });
  EXPECT_EQ(ended, std::vector{&next});
  EXPECT_TRUE(set.is_empty());
}

TEST(Buffers, AddedWhileMemoryIsForgottenKeepTheirMemoryAndTheirAddress) {
  BufferSet<Buffer> set;
  Buffer dead{16}, next{16};
  bp_address_info info{};
  set.add(&dead, 100, true);
  std::vector<Buffer*> discarded;
  std::thread other;
  set.forget_memory([&](Buffer& buffer) {
    discarded.push_back(&buffer);
    other = std::thread([&] { EXPECT_TRUE(set.add(&next, 100, true)); });
  });
  other.join();
  EXPECT_EQ(discarded, std::vector{&dead});
  ASSERT_TRUE(set.find(100, nullptr, info));
  EXPECT_EQ(info.buffer, reinterpret_cast<bp_buffer*>(&next));
}

TEST(Handles, DeleteWhatTheHostLeft) {
  HandleSet<std::shared_ptr<int>> set;
  const auto owned = std::make_shared<int>(1);
  auto* const kept = new std::shared_ptr<int>(owned);
  auto* const removed = new std::shared_ptr<int>(owned);
  set.add(kept);
  set.add(removed);
  set.remove(removed);
  delete removed;
  int count = 0;
  set.for_each([&](std::shared_ptr<int>&) { ++count; });
  EXPECT_EQ(count, 1);
  set.delete_all();
  EXPECT_TRUE(set.is_empty());
  EXPECT_EQ(owned.use_count(), 1);
}

}  // namespace
}  // namespace bp
