// What cases of several threads share.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "conformance/case.hpp"

namespace bp::conformance {

inline constexpr int kThreads = 6;

// What a thread has to say: the first thing that went wrong there, for the thread of the case.
class ThreadReport {
 public:
  void add(const std::string& problem) {
    const std::lock_guard lock(mutex_);
    if (first_.empty()) first_ = problem;
  }
  // False, and the sentence is kept, unless `status` is BP_OK.
  bool ok(bp_status status, const char* what) {
    if (status == BP_OK) return true;
    add(std::string(what) + ": " + bp_status_name(status) + ": " + bp_error_text());
    bp_error_clear();
    return false;
  }
  void tell(Context& t) {
    if (!first_.empty()) t.fail(first_);
  }

 private:
  std::mutex mutex_;
  std::string first_;  // Guarded by mutex_.
};

// Runs `body(thread number)` on all threads at once.
template <typename Body>
void on_threads(Body body) {
  std::atomic<int> waiting = kThreads;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      --waiting;
      while (waiting > 0) std::this_thread::yield();
      body(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A callback that counts in a std::atomic<int>.
inline void count_callback(void* data, bp_status) { ++*static_cast<std::atomic<int>*>(data); }

}  // namespace bp::conformance
