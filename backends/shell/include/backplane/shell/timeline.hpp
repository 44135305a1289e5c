// The value of a semaphore, the failure that it keeps, and who waits for it. A value that processes
// share lies in a file of memory_file.hpp; a thread watches it while this process waits for it.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backplane/shell/memory_file.hpp"
#include "backplane/shell/queue.hpp"

namespace bp {

// A value that processes share. It only rises. Functions that take `call` throw StatusError, whose
// text begins with `call`.
class SharedValue {
 public:
  // The first constructor makes a value, whose file is named `kind`. The second one opens the value
  // behind such a descriptor.
  SharedValue(const char* call, const std::string& kind, uint64_t value);
  SharedValue(const char* call, const std::string& kind, int descriptor);
  SharedValue(const SharedValue&) = delete;

  // Returns a duplicate of the descriptor, which the caller owns.
  int duplicate(const char* call) const { return file_.duplicate(call); }

  uint64_t get() const;

  // Returns false, and does nothing, if `value` is not above the present one.
  bool raise(uint64_t value);

  // Blocks until the value is above `seen`, until `is_stopped` is set and wake() is called, or for
  // a moment.
  void wait_above(uint64_t seen, const std::atomic<bool>& is_stopped) const;
  void wake();

 private:
  struct Page;

  const MemoryFile file_;
  const Mapping mapping_;
  Page& page_;
};

// It is safe from any thread.
class Timeline {
 public:
  explicit Timeline(uint64_t value) : value_(value) {}
  explicit Timeline(std::unique_ptr<SharedValue> shared) : shared_(std::move(shared)) {}
  ~Timeline() { stop(); }
  Timeline(const Timeline&) = delete;

  // Returns NULL if processes do not share the value.
  const SharedValue* shared() const { return shared_.get(); }

  uint64_t value() const;

  // Raises the value, keeps `outcome` if it is the first failure, and lets waiters go. Returns
  // false, and does nothing, if `value` is not above the present one.
  bool raise(uint64_t value, Outcome outcome);

  // Returns a point that completes when the value is reached, with the failure that a wait gets.
  // Throws StatusError of BP_OUT_OF_MEMORY if no thread is left to watch a shared value.
  std::shared_ptr<Point> when(uint64_t value);

  // Blocks until the value is reached, and sets `outcome`. Returns false if timeout_ns passed
  // first.
  bool wait(uint64_t value, uint64_t timeout_ns, Outcome& outcome);

  bool is_waited_for() const;
  void clear_failure();

  // Ends all waits, also those to come, because the device of the semaphore is lost.
  void lose(const Outcome& loss);

  // Ends the thread that watches a shared value, at shutdown. Waits for other processes go on.
  void stop();

 private:
  using Due = std::vector<std::pair<std::shared_ptr<Point>, Outcome>>;

  uint64_t present() const { return shared_ == nullptr ? value_ : shared_->get(); }
  Outcome outcome_at(uint64_t value) const;
  Due take_due(uint64_t value);
  static void complete(Due due);
  void forget(uint64_t value, const std::shared_ptr<Point>& point);
  void start_watch();
  void watch();

  const std::unique_ptr<SharedValue> shared_;
  std::atomic<bool> is_stopped_ = false;
  mutable std::mutex mutex_;  // It guards the members below.
  uint64_t value_ = 0;        // It has no meaning if the value is shared.
  uint64_t failed_at_ = 0;    // The value with which `failure_` came.
  Outcome failure_, loss_;
  std::multimap<uint64_t, std::shared_ptr<Point>> waiters_;
  bool is_watching_ = false;
  std::thread watcher_;
};

// The timelines of a device whose semaphores have ended, while work waits for other processes to
// raise them. It is safe from any thread.
class KeptTimelines {
 public:
  // Keeps a timeline, if that is of use.
  void add(std::shared_ptr<Timeline> timeline);

  std::vector<std::shared_ptr<Timeline>> all() const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Timeline>> timelines_;
};

}  // namespace bp
