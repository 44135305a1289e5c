// A backend for tests of shared events. Its streams wait, and SharedEventFront stands in front of
// its tables.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <utility>

#include "backplane/shell/shared_event_front.hpp"

namespace bp {

constexpr uint64_t kLongNs = 20'000'000'000, kShortNs = 2'000'000;

// The moment of a record or a signal.
struct Mark {
  bool is_done = false;
  bp_status status = BP_OK;
  std::string text;
};

struct FakeEvent {
  bp_event_flags flags = 0;
  std::shared_ptr<Mark> mark;
};

// A stream that runs its work in order, up to work that has to wait.
struct FakeStream {
  // Each function returns whether the work behind it may run.
  std::deque<std::function<bool(FakeStream& on)>> work;
  bp_status failure = BP_OK;
  std::string failure_text;
  bool is_capturing = false;
};

// Stands for a process. It shares only the memory of shared events with another one.
class Process {
 public:
  Process();
  Process(const Process&) = delete;
  ~Process() {
    shared_.reset();
    for (const FakeEvent* const event : events_) delete event;
  }

  bp_device* device() { return reinterpret_cast<bp_device*>(this); }
  void end_sharing() { shared_.reset(); }  // Its tables cannot be used after this.

  bp_stream* make_stream() { return reinterpret_cast<bp_stream*>(&streams_.emplace_back()); }
  bp_event* make_event(bp_event_flags flags) {
    const bp_event_desc desc{
        .struct_size = sizeof(desc), .struct_type = BP_STRUCT_EVENT_DESC, .flags = flags};
    bp_event* event = nullptr;
    EXPECT_EQ(events.create(this, device(), &desc, &event), BP_OK) << text;
    return event;
  }
  void capture(bp_stream* stream) { of(stream).is_capturing = true; }

  // Makes the stream wait until the returned event is signalled.
  bp_event* hold(bp_stream* stream) {
    bp_event* const gate = make_event(BP_EVENT_HOST_SIGNAL);
    EXPECT_EQ(streams.wait_event(this, stream, gate), BP_OK);
    return gate;
  }
  bp_status signal(bp_event* gate, bp_status status = BP_OK) {
    return events.signal(this, gate, status);
  }
  bp_status record(bp_event* event, bp_stream* stream) {
    return events.record(this, event, stream);
  }
  uint32_t is_done(bp_event* event) {
    uint32_t done = 7;
    EXPECT_EQ(events.query(this, event, &done), BP_OK) << text;
    return done;
  }
  bp_status synchronize(bp_event* event, uint64_t timeout_ns = kLongNs) {
    return events.synchronize(this, event, timeout_ns);
  }
  bool is_idle(bp_stream* stream) {
    const std::lock_guard lock(mutex_);
    return of(stream).work.empty();
  }
  // Why a stream that has settled failed.
  std::string failure_text(bp_stream* stream) {
    const std::lock_guard lock(mutex_);
    return of(stream).failure_text;
  }
  // The status of the stream when its work has ended.
  bp_status settle(bp_stream* stream) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::nanoseconds(kLongNs),
                                  [&] { return of(stream).work.empty(); }));
    return of(stream).failure;
  }
  size_t event_count() {
    const std::lock_guard lock(mutex_);
    return events_.size();
  }

  bp_host host{};
  bp_stream_ops streams{};
  bp_event_ops events{};
  std::string text;
  std::function<void()> on_callback;  // It runs once, after add_callback.
  std::string failing_call;           // It fails with BP_OUT_OF_MEMORY.
  bp_event_flags last_flags = 0;

 private:
  static Process& at(void* self) { return *static_cast<Process*>(self); }
  static FakeStream& of(bp_stream* stream) { return *reinterpret_cast<FakeStream*>(stream); }
  static FakeEvent& of(bp_event* event) { return *reinterpret_cast<FakeEvent*>(event); }
  static SharedEvents& shared_of(void* self) { return *at(self).shared_; }

  bp_status fail(bp_status status, const char* reason) {
    text = reason;
    return status;
  }
  bp_status submit(bp_stream* stream, std::function<bool(FakeStream&)> work) {
    const std::lock_guard lock(mutex_);
    of(stream).work.push_back(std::move(work));
    advance();
    return BP_OK;
  }
  void advance() {
    for (FakeStream& stream : streams_) {
      while (!stream.work.empty() && stream.work.front()(stream)) stream.work.pop_front();
    }
    changed_.notify_all();
  }
  void make_streams();
  void make_events();
  void make_waits();

  std::mutex mutex_;  // It guards the members below.
  std::condition_variable changed_;
  std::deque<FakeStream> streams_;
  std::unordered_set<FakeEvent*> events_;
  std::unique_ptr<SharedEvents> shared_;
};

inline void Process::make_streams() {
  streams.create = [](void* self, bp_device*, const bp_stream_desc*,
                      bp_stream** out_stream) -> bp_status {
    const std::lock_guard lock(at(self).mutex_);
    *out_stream = at(self).make_stream();
    return BP_OK;
  };
  streams.destroy = [](void*, bp_stream*) -> bp_status { return BP_OK; };  // Its work goes on.
  streams.wait_event = [](void* self, bp_stream* stream, bp_event* event) -> bp_status {
    if (at(self).failing_call == "wait_event") return at(self).fail(BP_OUT_OF_MEMORY, "no room");
    return at(self).submit(stream, [mark = of(event).mark](FakeStream& on) {
      if (mark->is_done && on.failure == BP_OK) {
        on.failure = mark->status;
        on.failure_text = mark->text;
      }
      return mark->is_done;
    });
  };
  streams.add_callback = [](void* self, bp_stream* stream, bp_stream_callback_fn* callback,
                            void* user_data) -> bp_status {
    if (at(self).failing_call == "add_callback") return at(self).fail(BP_OUT_OF_MEMORY, "no room");
    const bp_status status = at(self).submit(stream, [=](FakeStream& on) {
      callback(user_data, on.failure);
      return true;
    });
    if (at(self).on_callback) std::exchange(at(self).on_callback, nullptr)();
    return status;
  };
  streams.is_capturing = [](void*, bp_stream* stream, uint32_t* out_is_capturing) -> bp_status {
    *out_is_capturing = of(stream).is_capturing ? 1 : 0;
    return BP_OK;
  };
}

inline void Process::make_events() {
  events.create = [](void* self, bp_device*, const bp_event_desc* desc,
                     bp_event** out_event) -> bp_status {
    if (at(self).failing_call == "create") return at(self).fail(BP_OUT_OF_MEMORY, "no room");
    const bool is_signalled = (desc->flags & BP_EVENT_HOST_SIGNAL) != 0;
    auto* const event = new FakeEvent{desc->flags, std::make_shared<Mark>(Mark{!is_signalled})};
    const std::lock_guard lock(at(self).mutex_);
    at(self).last_flags = desc->flags;
    at(self).events_.insert(event);
    *out_event = reinterpret_cast<bp_event*>(event);
    return BP_OK;
  };
  events.destroy = [](void* self, bp_event* event) -> bp_status {
    const std::lock_guard lock(at(self).mutex_);
    EXPECT_EQ(at(self).events_.erase(&of(event)), 1u);
    delete &of(event);
    return BP_OK;
  };
  events.record = [](void* self, bp_event* event, bp_stream* stream) -> bp_status {
    if (at(self).failing_call == "record") return at(self).fail(BP_OUT_OF_MEMORY, "no room");
    of(event).mark = std::make_shared<Mark>();
    return at(self).submit(stream, [mark = of(event).mark](FakeStream& on) {
      *mark = {true, on.failure, on.failure_text};
      return true;
    });
  };
  events.signal = [](void* self, bp_event* event, bp_status status) -> bp_status {
    const std::lock_guard lock(at(self).mutex_);
    *of(event).mark = {true, status, status == BP_OK ? "" : "the host signalled a failure"};
    at(self).advance();
    return BP_OK;
  };
}

inline void Process::make_waits() {
  events.query = [](void* self, bp_event* event, uint32_t* out_done) -> bp_status {
    if (out_done == nullptr) return at(self).fail(BP_INVALID_ARGUMENT, "out_done is NULL");
    const std::lock_guard lock(at(self).mutex_);
    *out_done = of(event).mark->is_done ? 1 : 0;
    return BP_OK;
  };
  events.synchronize = [](void* self, bp_event* event, uint64_t timeout_ns) -> bp_status {
    std::unique_lock lock(at(self).mutex_);
    const std::shared_ptr<Mark> mark = of(event).mark;
    const bool is_done = at(self).changed_.wait_for(lock, std::chrono::nanoseconds(timeout_ns),
                                                    [&] { return mark->is_done; });
    return is_done ? mark->status : bp_status{BP_TIMEOUT};
  };
  events.elapsed_ns = [](void*, bp_event*, bp_event*, int64_t* out_elapsed_ns) -> bp_status {
    *out_elapsed_ns = 77;
    return BP_OK;
  };
}

inline Process::Process() {
  host.self = this;
  host.set_error = [](void* self, bp_status status, const char* reason) {
    return at(self).fail(status, reason);
  };
  streams.self = events.self = this;
  make_streams();
  make_events();
  make_waits();
  shared_ = std::make_unique<SharedEvents>(SharedEventBackend{
      .host = &host,
      .streams = streams,
      .events = events,
      .kind = "backplane.test.event",
      .check_device =
          [](void* self, bp_device* handle, const char* call) {
            if (handle == at(self).device()) return;
            throw StatusError(BP_INVALID_ARGUMENT, std::string(call) + ": no device");
          },
      .check_event =
          [](void* self, bp_event* handle, const char* call) {
            const std::lock_guard lock(at(self).mutex_);
            if (at(self).events_.contains(&of(handle))) return;
            throw StatusError(BP_INVALID_ARGUMENT, std::string(call) + ": no event");
          },
      .end_event =
          [](void* self, bp_event* handle, bp_status status, const std::string& words) {
            const std::lock_guard lock(at(self).mutex_);
            *of(handle).mark = {true, status, words};
            at(self).advance();
          }});
  SharedEventFront<shared_of>::put(streams, events);
}

}  // namespace bp
