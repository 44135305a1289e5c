// Tests the table of semaphores with queues that have no device.
#include "backplane/shell/semaphore_ops.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "backplane/shell/handles.hpp"
#include "backplane/shell/queue_streams.hpp"

namespace bp::semaphore_ops_test {
namespace {

constexpr uint64_t kTimeoutNs = 10'000'000'000, kMomentNs = 10'000'000;

struct Card;

using Handle = DeviceHandle<Card>;

struct Stream : Handle {
  static constexpr uint32_t kMagic = 1;

  Stream(Card& its_device, std::shared_ptr<Queue> its_queue)
      : Handle(kMagic, its_device), queue(std::move(its_queue)) {}

  std::shared_ptr<Queue> queue;
};

const std::shared_ptr<Queue>& work_of(const Stream& stream) { return stream.queue; }

struct Event : Handle, EventOf<Point> {
  static constexpr uint32_t kMagic = 2;

  Event(Card& its_device, bp_event_flags its_flags)
      : Handle(kMagic, its_device), EventOf(its_flags, false) {}
};

struct Semaphore : SemaphoreOf<Handle> {
  using SemaphoreOf::SemaphoreOf;
};

struct Buffer {
  uint64_t size_bytes;
};

struct Card : DeviceHandles<Stream, Queue, Buffer, Event, Semaphore> {
  explicit Card(const bp_host& its_host) : host(its_host) {}
  ~Card() {
    executor.wait_idle();
    abandon_work();
    executor.wait_idle();
    executor.stop();
    delete_all();
  }

  Stream* create_stream() {
    return streams_.add(
        std::make_unique<Stream>(*this, std::make_shared<Queue>(host, executor, false)));
  }
  Stream* default_stream() { return create_stream(); }
  using DeviceHandles::lose_semaphores;

  const bp_host& host;
  Executor executor{2};
};

struct Machine : HostedInstance {
  Card* card;
  bool shares;
};

struct Traits : QueueStreams<Machine, Card, Stream, Event> {
  using Semaphore = semaphore_ops_test::Semaphore;

  static Card& device_of(const Machine& i, const bp_device*, const char*) { return *i.card; }
  static const char* file_kind(const Machine& i) {
    return i.shares ? "backplane.test.semaphore" : nullptr;
  }
};

class SemaphoreTable : public testing::Test {
 protected:
  SemaphoreTable() {
    host.self = this;
    host.set_error = [](void* self, bp_status status, const char* reason) {
      const std::lock_guard lock(static_cast<SemaphoreTable*>(self)->mutex);
      static_cast<SemaphoreTable*>(self)->text = reason;
      return status;
    };
  }

  bp_stream* make_stream() { return reinterpret_cast<bp_stream*>(card.create_stream()); }
  Queue& queue(bp_stream* stream) { return *reinterpret_cast<Stream*>(stream)->queue; }
  bp_stream* make_failed_stream() {
    bp_stream* const stream = make_stream();
    EXPECT_EQ(queue(stream).submit([] { refuse(BP_ABORTED, "stopped"); }), BP_OK);
    EXPECT_TRUE(queue(stream).wait(kTimeoutNs));
    return stream;
  }
  bp_semaphore* make(uint64_t value = 0, bp_semaphore_flags flags = 0) {
    const bp_semaphore_desc desc{.struct_size = sizeof(desc),
                                 .struct_type = BP_STRUCT_SEMAPHORE_DESC,
                                 .initial_value = value,
                                 .flags = flags};
    bp_semaphore* made = nullptr;
    EXPECT_EQ(ops.create(&machine, nullptr, &desc, &made), BP_OK) << text;
    return made;
  }
  bp_semaphore* import_of(bp_semaphore* semaphore) {
    bp_external_handle handle{.struct_size = sizeof(handle),
                              .struct_type = BP_STRUCT_EXTERNAL_HANDLE};
    EXPECT_EQ(ops.export_semaphore(&machine, semaphore, BP_EXTERNAL_OPAQUE_FD, &handle), BP_OK)
        << text;
    bp_semaphore* imported = nullptr;
    EXPECT_EQ(ops.import_semaphore(&machine, nullptr, &handle, &imported), BP_OK) << text;
    close(handle.fd);
    return imported;
  }
  uint64_t value(bp_semaphore* semaphore) {
    uint64_t value = 99;
    EXPECT_EQ(ops.query(&machine, semaphore, &value), BP_OK) << text;
    return value;
  }
  bp_status wait(bp_semaphore* semaphore, uint64_t for_value, uint64_t timeout_ns = kTimeoutNs) {
    return ops.synchronize(&machine, semaphore, for_value, timeout_ns);
  }

  bp_host host{};
  std::mutex mutex;  // It guards `text`.
  std::string text;
  Card card{host};
  Machine machine{{&host}, &card, true};
  const bp_semaphore_ops ops = SemaphoreOps<Traits>::table();
};

TEST_F(SemaphoreTable, RaisesAValueFromTheHostAndFromStreams) {
  bp_semaphore* const s = make(3);
  EXPECT_EQ(value(s), 3u);
  EXPECT_EQ(wait(s, 3, 0), BP_OK);
  EXPECT_EQ(wait(s, 4, 0), BP_TIMEOUT);
  EXPECT_EQ(wait(s, 4, kMomentNs), BP_TIMEOUT);
  EXPECT_EQ(ops.signal(&machine, s, 4), BP_OK);
  EXPECT_EQ(ops.submit_signal(&machine, make_stream(), s, UINT64_MAX), BP_OK);
  EXPECT_EQ(wait(s, 1000), BP_OK);
  EXPECT_EQ(value(s), UINT64_MAX);
  EXPECT_EQ(ops.destroy(&machine, s), BP_OK);
}

TEST_F(SemaphoreTable, RefusesValuesThatDoNotRise) {
  bp_semaphore* const s = make(3);
  EXPECT_EQ(ops.signal(&machine, s, 3), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text,
            "semaphore.signal: value is 3, and the semaphore has reached 3; values only rise");
  EXPECT_EQ(ops.submit_signal(&machine, make_stream(), s, 2), BP_INVALID_ARGUMENT);
  EXPECT_EQ(value(s), 3u);
}

TEST_F(SemaphoreTable, FailsAStreamWhoseSignalComesTooLate) {
  bp_semaphore *const gate = make(), *const s = make();
  bp_stream* const stream = make_stream();
  ASSERT_EQ(ops.submit_wait(&machine, stream, gate, 1), BP_OK);
  ASSERT_EQ(ops.submit_signal(&machine, stream, s, 5), BP_OK);
  ASSERT_EQ(ops.signal(&machine, s, 6), BP_OK);
  ASSERT_EQ(ops.signal(&machine, gate, 1), BP_OK);
  ASSERT_TRUE(queue(stream).wait(kTimeoutNs));
  EXPECT_EQ(queue(stream).surface(), BP_INVALID_ARGUMENT);
  EXPECT_EQ(value(s), 6u);
  EXPECT_EQ(wait(s, 6), BP_OK) << "a signal without effect leaves no failure";
}

TEST_F(SemaphoreTable, HoldsAStreamUntilTheValueIsReached) {
  bp_semaphore* const s = make();
  bp_stream *const waiter = make_stream(), *const signaller = make_stream();
  std::atomic<bool> has_run = false;
  ASSERT_EQ(ops.submit_wait(&machine, waiter, s, 2), BP_OK);
  ASSERT_EQ(queue(waiter).submit([&] { has_run = true; }), BP_OK);
  ASSERT_EQ(ops.signal(&machine, s, 1), BP_OK);
  EXPECT_FALSE(queue(waiter).wait(kMomentNs));
  EXPECT_FALSE(has_run);
  ASSERT_EQ(ops.submit_signal(&machine, signaller, s, 3), BP_OK);
  EXPECT_EQ(ops.destroy(&machine, s), BP_OK) << "what was submitted is performed";
  EXPECT_TRUE(queue(waiter).wait(kTimeoutNs));
  EXPECT_TRUE(has_run);
}

TEST_F(SemaphoreTable, KeepsTheFirstFailureForItsValueAndLaterOnes) {
  bp_semaphore* const s = make();
  bp_stream *const failed = make_failed_stream(), *const waiter = make_stream();
  ASSERT_EQ(ops.signal(&machine, s, 4), BP_OK);
  ASSERT_EQ(ops.submit_signal(&machine, failed, s, 5), BP_OK);
  EXPECT_EQ(wait(s, 5), BP_ABORTED);
  EXPECT_EQ(text, "stopped");
  EXPECT_EQ(wait(s, 4), BP_OK);
  EXPECT_EQ(wait(s, 6, kMomentNs), BP_TIMEOUT) << "the value is not reached";
  ASSERT_EQ(ops.submit_wait(&machine, waiter, s, 6), BP_OK);
  ASSERT_EQ(ops.signal(&machine, s, 6), BP_OK);
  ASSERT_TRUE(queue(waiter).wait(kTimeoutNs));
  EXPECT_EQ(queue(waiter).surface(), BP_ABORTED);
  EXPECT_EQ(ops.submit_wait(&machine, waiter, s, 6), BP_STREAM_FAILED);
  ASSERT_EQ(ops.clear_failure(&machine, s), BP_OK);
  EXPECT_EQ(wait(s, 6), BP_OK);
  EXPECT_EQ(queue(waiter).surface(), BP_ABORTED);
}

TEST_F(SemaphoreTable, EndsWaitsWhenTheDeviceIsLost) {
  bp_semaphore *const s = make(), *const shared = make(0, BP_SEMAPHORE_EXPORTABLE);
  bp_stream* const waiter = make_stream();
  ASSERT_EQ(ops.submit_wait(&machine, waiter, s, 1), BP_OK);
  bp_status status = BP_OK;
  std::thread host_waits([&] { status = wait(shared, 1); });
  while (!reinterpret_cast<Semaphore*>(shared)->timeline->is_waited_for()) {
    std::this_thread::yield();
  }
  card.lose_semaphores({.status = BP_DEVICE_LOST, .text = "it is lost"});
  host_waits.join();
  EXPECT_EQ(status, BP_DEVICE_LOST);
  ASSERT_TRUE(queue(waiter).wait(kTimeoutNs));
  EXPECT_EQ(queue(waiter).surface(), BP_DEVICE_LOST);
  EXPECT_EQ(wait(s, 1, 0), BP_DEVICE_LOST);
}

TEST_F(SemaphoreTable, SharesItsValueAndNotItsFailure) {
  bp_semaphore *const s = make(7, BP_SEMAPHORE_EXPORTABLE), *const imported = import_of(s);
  EXPECT_EQ(value(imported), 7u);
  bp_stream *const waiter = make_stream(), *const failed = make_failed_stream();
  ASSERT_EQ(ops.submit_wait(&machine, waiter, imported, 8), BP_OK);
  EXPECT_FALSE(queue(waiter).wait(kMomentNs));
  ASSERT_EQ(ops.submit_signal(&machine, failed, s, 8), BP_OK);
  EXPECT_TRUE(queue(waiter).wait(kTimeoutNs));
  EXPECT_EQ(queue(waiter).surface(), BP_OK);
  EXPECT_EQ(wait(imported, 8), BP_OK);
  EXPECT_EQ(wait(s, 8), BP_ABORTED);
  EXPECT_EQ(ops.signal(&machine, imported, 8), BP_INVALID_ARGUMENT);
  ASSERT_EQ(ops.signal(&machine, imported, 9), BP_OK);
  EXPECT_EQ(value(s), 9u);
}

TEST_F(SemaphoreTable, LetsAStreamGoThatWaitsForAnotherProcessThroughAnEndedHandle) {
  bp_semaphore *const s = make(0, BP_SEMAPHORE_EXPORTABLE), *const imported = import_of(s);
  bp_stream *const waiter = make_stream(), *const abandoned = make_stream();
  ASSERT_EQ(ops.submit_wait(&machine, waiter, imported, 1), BP_OK);
  ASSERT_EQ(ops.submit_wait(&machine, abandoned, imported, 2), BP_OK);
  ASSERT_EQ(ops.destroy(&machine, imported), BP_OK);
  ASSERT_EQ(ops.signal(&machine, s, 1), BP_OK);
  EXPECT_TRUE(queue(waiter).wait(kTimeoutNs));
  EXPECT_FALSE(queue(abandoned).wait(kMomentNs)) << "it ends with the device";
}

TEST_F(SemaphoreTable, WatchesASharedValueAgainAfterAWaitThatRanOut) {
  bp_semaphore *const s = make(0, BP_SEMAPHORE_EXPORTABLE), *const imported = import_of(s);
  for (uint64_t next = 1; next <= 20; ++next) {
    EXPECT_EQ(wait(imported, next, kMomentNs / 10), BP_TIMEOUT);
    std::thread other([&] { EXPECT_EQ(ops.signal(&machine, s, next), BP_OK); });
    EXPECT_EQ(wait(imported, next), BP_OK);
    other.join();
  }
}

TEST_F(SemaphoreTable, RefusesWhatItCannotDo) {
  bp_semaphore *const plain = make(), *made = nullptr;
  bp_stream* const stream = make_stream();
  auto* const foreign = reinterpret_cast<bp_semaphore*>(stream);
  uint64_t value = 0;
  EXPECT_EQ(ops.create(&machine, nullptr, nullptr, nullptr), BP_INVALID_ARGUMENT);
  for (bp_semaphore* const none : {static_cast<bp_semaphore*>(nullptr), foreign}) {
    EXPECT_EQ(ops.query(&machine, none, &value), BP_INVALID_ARGUMENT);
    EXPECT_EQ(ops.signal(&machine, none, 1), BP_INVALID_ARGUMENT);
    EXPECT_EQ(ops.synchronize(&machine, none, 1, 0), BP_INVALID_ARGUMENT);
    EXPECT_EQ(ops.submit_signal(&machine, stream, none, 1), BP_INVALID_ARGUMENT);
    EXPECT_EQ(ops.submit_wait(&machine, stream, none, 1), BP_INVALID_ARGUMENT);
    EXPECT_EQ(ops.clear_failure(&machine, none), BP_INVALID_ARGUMENT);
  }
  EXPECT_EQ(ops.destroy(&machine, nullptr), BP_OK);
  EXPECT_EQ(ops.destroy(&machine, foreign), BP_INVALID_ARGUMENT);
  const bp_semaphore_desc unknown{
      .struct_size = sizeof(unknown), .struct_type = BP_STRUCT_SEMAPHORE_DESC, .flags = 1u << 31};
  EXPECT_EQ(ops.create(&machine, nullptr, &unknown, &made), BP_INVALID_ARGUMENT);
  bp_external_handle handle{.struct_size = sizeof(handle),
                            .struct_type = BP_STRUCT_EXTERNAL_HANDLE,
                            .type = BP_EXTERNAL_OPAQUE_FD,
                            .fd = 0};
  EXPECT_EQ(ops.export_semaphore(&machine, plain, BP_EXTERNAL_OPAQUE_FD, &handle),
            BP_INVALID_ARGUMENT);
  EXPECT_EQ(ops.import_semaphore(&machine, nullptr, &handle, &made), BP_INVALID_ARGUMENT);
  handle.size_bytes = 8;
  EXPECT_EQ(ops.import_semaphore(&machine, nullptr, &handle, &made), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "import_semaphore: handle: size_bytes is 8, and that of a semaphore is 0");
  machine.shares = false;
  bp_semaphore_desc exportable = unknown;
  exportable.flags = BP_SEMAPHORE_EXPORTABLE;
  EXPECT_EQ(ops.create(&machine, nullptr, &exportable, &made), BP_UNSUPPORTED);
  EXPECT_EQ(made, nullptr);
}

}  // namespace
}  // namespace bp::semaphore_ops_test
