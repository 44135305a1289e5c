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

struct Card {
  uint64_t generation() const { return reset_count; }

  uint64_t reset_count = 0;
};

struct Stream {
  uint32_t magic = 7;
  const Card* device;
  uint64_t generation = device->generation();
  std::shared_ptr<Work> work = std::make_shared<Work>();
};

const std::shared_ptr<Work>& work_of(const Stream& stream) { return stream.work; }

class Streams : public testing::Test {
 protected:
  ~Streams() override { set.delete_all(); }

  std::unique_ptr<Stream> make() const { return std::make_unique<Stream>(Stream{.device = &card}); }
  Stream* make_default() {
    return set.default_stream([this] { return make(); });
  }

  Card card;
  StreamSet<Stream, Work> set;
};

TEST_F(Streams, KeepTheWorkOfADestroyedStreamUntilItHasEnded) {
  Stream* const stream = set.add(make());
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
  Stream* const stream = set.add(make());
  Stream* const other = set.add(make());
  const std::shared_ptr<Work> closed = other->work;
  set.destroy(other);
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
  Stream* const first = set.add(make());
  const auto is_first = [&](const Stream& stream) { return stream.work == first->work; };
  Stream* const second = set.add_copy(is_first);
  ASSERT_NE(second, nullptr);
  EXPECT_NE(second, first);
  EXPECT_EQ(second->work, first->work);
  EXPECT_EQ(set.add_copy([](const Stream&) { return false; }), nullptr);
  EXPECT_EQ(set.live_work().size(), 2u);
  ++card.reset_count;
  EXPECT_EQ(set.add_copy(is_first), nullptr) << "both handles are dead";
}

TEST_F(Streams, LendOneHandleOfTheDefaultStreamAlsoAfterAReset) {
  Stream* const made = make_default();
  EXPECT_TRUE(set.is_default(made));
  EXPECT_EQ(make_default(), made);
  EXPECT_EQ(&set.heir_of(*made), made);
  ++card.reset_count;
  EXPECT_EQ(&set.heir_of(*made), made) << "nothing has renewed it";
  set.renew_default_stream([this] { return make(); });
  EXPECT_EQ(make_default(), made);
  Stream& heir = set.heir_of(*made);
  EXPECT_NE(&heir, made);
  EXPECT_EQ(heir.generation, 1u);
  EXPECT_TRUE(set.is_default(&heir));
  EXPECT_TRUE(set.is_default(made));
  EXPECT_EQ(set.handle_of(&heir), made);
  ++card.reset_count;
  EXPECT_EQ(make_default(), made) << "a question for it renews it too";
  EXPECT_EQ(set.heir_of(*made).generation, 2u);
}

TEST_F(Streams, GoOnAsTheyAreUnlessTheyAreTheDefaultStream) {
  Stream* const stream = set.add(make());
  ++card.reset_count;
  set.renew_default_stream([this] { return make(); });
  EXPECT_FALSE(set.is_default(stream)) << "there is no default stream";
  EXPECT_EQ(&set.heir_of(*stream), stream);
  EXPECT_EQ(set.handle_of(stream), stream);
  EXPECT_FALSE(set.is_default(nullptr));
}

TEST_F(Streams, KeepTheDefaultStreamOfTheThreadThatWasQuicker) {
  Stream* quicker = nullptr;
  std::weak_ptr<Work> dropped;
  Stream* const got = set.default_stream([&] {
    quicker = make_default();
    auto late = make();
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
  ASSERT_TRUE(set.add(&owner, 100, true));
  EXPECT_TRUE(set.add(&view, 104, false));
  EXPECT_FALSE(set.add(&overlapping, 115, true));
  EXPECT_TRUE(set.add(&empty, 100, true));

  bp_address_info info{};
  ASSERT_TRUE(set.find(106, info));
  EXPECT_EQ(info.buffer, reinterpret_cast<bp_buffer*>(&owner));
  EXPECT_EQ(info.byte_offset, 6u);
  EXPECT_EQ(info.size_bytes, 16u);
  EXPECT_FALSE(set.find(116, info));
  const auto size = [](const Buffer& buffer) { return buffer.size_bytes; };
  EXPECT_EQ(set.with_owner(115, size), 16u);
  EXPECT_EQ(set.with_owner(116, size), 0u);

  set.remove(&view);
  EXPECT_TRUE(set.find(106, info));
  set.remove(&owner);
  EXPECT_FALSE(set.find(106, info));
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
  EXPECT_FALSE(set.find(100, info));
  EXPECT_TRUE(set.add(&next, 100, true));
  set.remove(&dead);
  ASSERT_TRUE(set.find(100, info)) << "a dead buffer does not take the place of another";
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
  ASSERT_TRUE(set.find(100, info));
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

// What a handle of the test leaves in `ended` when it is deleted.
struct Event {
  ~Event() { ended->emplace_back("event"); }
  std::vector<std::string>* ended;
};

struct OwnedBuffer {
  ~OwnedBuffer() { ended->emplace_back("buffer"); }
  std::vector<std::string>* ended;
  uint64_t size_bytes;
};

struct EndlessStream {
  uint32_t magic = 7;
  std::shared_ptr<Work> work = std::make_shared<Work>();
};

const std::shared_ptr<Work>& work_of(const EndlessStream& stream) { return stream.work; }

struct Device : DeviceHandles<EndlessStream, Work, OwnedBuffer, Event> {
  ~Device() { delete_all(); }
  using DeviceHandles::add;
  bool add(OwnedBuffer* buffer, uint64_t address) { return buffers_.add(buffer, address, true); }
  EndlessStream* create_stream() { return streams_.add(std::make_unique<EndlessStream>()); }
  EndlessStream* default_stream() {
    return streams_.default_stream([] { return std::make_unique<EndlessStream>(); });
  }
};

TEST(DeviceHandles, SayWhetherTheHostHasAny) {
  std::vector<std::string> ended;
  Device device;
  Event event{&ended};
  OwnedBuffer buffer{&ended, 16};
  EXPECT_FALSE(device.is_in_use());
  device.add(&event);
  EXPECT_TRUE(device.is_in_use());
  device.remove(&event);
  EXPECT_FALSE(device.is_in_use());
  device.add(&buffer, 100);
  EXPECT_TRUE(device.is_in_use());
  device.remove(&buffer);
  EXPECT_FALSE(device.is_in_use());
  EndlessStream* const stream = device.create_stream();
  EXPECT_FALSE(device.is_default_stream(stream));
  EXPECT_TRUE(device.is_in_use());
  device.destroy_stream(stream);
  EXPECT_FALSE(device.is_in_use());
  EXPECT_TRUE(device.is_default_stream(device.default_stream()));
  EXPECT_TRUE(device.is_in_use()) << "the host was lent the default stream";
}

TEST(DeviceHandles, WaitForTheWorkOfStreamsAndAbandonIt) {
  Device device;
  Work& work = *device.create_stream()->work;
  EXPECT_TRUE(device.wait(UINT64_MAX));
  work.ends_in_time = false;
  EXPECT_FALSE(device.wait(0));
  device.abandon_work();
  EXPECT_TRUE(work.is_abandoned);
}

TEST(DeviceHandles, AreDeletedWithTheirDevice) {
  std::vector<std::string> ended;
  std::weak_ptr<Work> work;
  {
    Device device;
    device.add(new Event{&ended});
    device.add(new OwnedBuffer{&ended, 16}, 100);
    work = device.create_stream()->work;
  }
  EXPECT_EQ(ended, (std::vector<std::string>{"event", "buffer"}));
  EXPECT_TRUE(work.expired());
}

TEST(DeviceHandles, AreSearchedForTheBufferAtAnAddress) {
  std::vector<std::string> ended;
  OwnedBuffer buffer{&ended, 16};
  std::vector<std::unique_ptr<Device>> devices(2);
  for (std::unique_ptr<Device>& device : devices) device = std::make_unique<Device>();
  ASSERT_TRUE(devices[1]->add(&buffer, 100));
  bp_address_info info{.struct_size = sizeof(info), .struct_type = BP_STRUCT_ADDRESS_INFO};
  EXPECT_EQ(find_address<Device>(devices, 106, &info), BP_OK);
  EXPECT_EQ(info.device, reinterpret_cast<bp_device*>(devices[1].get()));
  EXPECT_EQ(info.buffer, reinterpret_cast<bp_buffer*>(&buffer));
  EXPECT_EQ(info.byte_offset, 6u);
  EXPECT_THROW(find_address<Device>(devices, 116, &info), StatusError);
  devices[1]->remove(&buffer);
}

}  // namespace
}  // namespace bp
