// What launches may not do: leave something behind, depend on the thread, or wait for their stream.
#pragma once

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "conformance/case.hpp"
#include "conformance/cases/fixtures/fixtures.hpp"
#include "conformance/cases/fixtures/resources.hpp"

namespace bp::conformance {

// Finds what each launch of a call leaves behind: host memory, or memory of the device. Only what
// every launch leaves counts, because a first one may make what later ones use. Host memory counts
// in launches from a new thread: the allocator of the process keeps freed memory for each thread,
// which hides small leaks, until the thread ends.
class LeakWatch {
 public:
  explicit LeakWatch(Context& t) : t_(t), has_layers_(has_layers(t)) {}

  void begin() {
    device_ = free_device_bytes(t_);
    host_ = heap_bytes_in_use();
  }
  void end(bool is_from_new_thread) {
    const int64_t host = heap_bytes_in_use() - host_;
    const uint64_t device = free_device_bytes(t_);
    least_device_ = std::min(least_device_, device_ - std::min(device_, device));
    if (is_from_new_thread) least_host_ = std::min(least_host_, host);
  }
  // Says whether each launch since the construction has left something.
  bool leaves_host_memory() const {
    return !has_layers_ && least_host_ != INT64_MAX && least_host_ >= kLeastBytes;
  }
  Context& context() const { return t_; }
  bool leaves_device_memory() const { return least_device_ > 0; }
  bool is_suspect() const { return leaves_host_memory() || leaves_device_memory(); }

  int64_t least_host_bytes() const { return least_host_; }
  uint64_t least_device_bytes() const { return least_device_; }

  void tell_host() const {
    add("each launch left at least " + std::to_string(least_host_) +
        " bytes of host memory behind");
  }
  void tell_device() const {
    if (least_device_ == 0 || !shows_allocations(t_) || !is_device_memory_still(t_)) return;
    add("each launch left at least " + std::to_string(least_device_) +
        " bytes of device memory behind");
  }

 private:
  static constexpr int64_t kLeastBytes = 8;

  void add(const std::string& what) const { t_.add({what, "leak", "KERNEL-9"}); }

  Context& t_;
  const bool has_layers_;  // They keep records of launches.
  int64_t host_ = 0, least_host_ = INT64_MAX;
  uint64_t device_ = 0, least_device_ = UINT64_MAX;
};

enum class From { kThisThread, kNewThread };

// The thread that launches, and who watches; NULL: nobody.
struct How {
  From from = From::kThisThread;
  LeakWatch* watch = nullptr;

  // Copies that still run may keep memory, so they end first where host memory counts. Elsewhere
  // the launch follows them at once.
  void begin(const Context& t, bp_stream* stream) const;
  void end() const;
};

// Calls work() on a new thread, and waits for its end. std::thread would take memory of the heap
// for itself, which a LeakWatch would count.
template <typename Work>
void run_on_new_thread(Context& t, Work work) {
  const auto body = [](void* work_of_caller) -> void* {
    (*static_cast<Work*>(work_of_caller))();
    return nullptr;
  };
  pthread_t thread{};
  const int error = pthread_create(&thread, nullptr, body, &work);
  if (error != 0) t.skip(std::string("no thread can be made: ") + std::strerror(error));
  pthread_join(thread, nullptr);
}

// Calls launch() on a thread of its own, which has no state yet, or on this one. The thread that
// calls a function has its error text, so `out_text` gets the text at once.
template <typename Launch>
bp_status launch_from(Context& t, From from, std::string& out_text, Launch launch) {
  if (from == From::kThisThread) return launch();
  bp_status status = BP_OK;
  run_on_new_thread(t, [&] {
    status = launch();
    if (status != BP_OK) out_text = bp_error_text();
    bp_error_clear();
  });
  return status;
}

// Launches until one launch leaves nothing behind, and adds a finding if none does. launch(from)
// returns false if the launch fails. Threads of the backend keep freed memory too, up to a limit;
// a leak goes on.
void look_for_leak(LeakWatch& watch, const bp_kernel& kernel,
                   const std::function<bool(From)>& launch);

// Returns whether the device has events that the host signals.
bool can_hold_streams(Context& t);

// Lets a stream go if nobody has called done() after the case's patience for launches, so that a
// launch that waits for the device ends.
class HeldStream {
 public:
  HeldStream(Context& t, bp_stream* stream) : gate_(t) {
    gate_.hold(stream);
    const std::chrono::milliseconds patience(t.options().launch_patience_ms);
    thread_ = std::thread([this, patience] {
      std::unique_lock lock(mutex_);
      is_late_ = !changed_.wait_for(lock, patience, [this] { return is_done_; });
      if (is_late_) gate_.open();
    });
  }
  ~HeldStream() { done(); }
  HeldStream(const HeldStream&) = delete;

  // Returns whether the time had passed. The stream goes on.
  bool done() {
    if (!thread_.joinable()) return is_late_;
    {
      const std::lock_guard lock(mutex_);
      is_done_ = true;
    }
    changed_.notify_one();
    thread_.join();
    return is_late_;
  }
  void open() {
    if (!is_late_) gate_.open();
  }

 private:
  Gate gate_;
  std::mutex mutex_;  // Guards is_done_ and is_late_.
  std::condition_variable changed_;
  bool is_done_ = false, is_late_ = false;
  std::thread thread_;
};

}  // namespace bp::conformance
