#include "registry/layers/at_exit.hpp"

#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <set>
#include <thread>

namespace bp::layers {

// The list is never destroyed, because a layer may end later than the static objects.
struct AtExitList {
  std::mutex mutex;  // It guards the members below.
  std::condition_variable changed;
  std::set<AtExit*> entries;
  AtExit* running = nullptr;  // Its flush() runs, in `runner`.
  std::thread::id runner;

  static AtExitList& get() {
    static auto* const list = [] {
      std::atexit([] { get().flush_all(); });
      return new AtExitList;
    }();
    return *list;
  }

  // A flush writes to the log of the host, which may load and unload: the lock is not held.
  void flush_all() {
    std::unique_lock lock(mutex);
    runner = std::this_thread::get_id();
    while (!entries.empty()) {
      running = entries.extract(entries.begin()).value();
      const std::function<void()> flush = running->flush_;
      lock.unlock();
      flush();
      lock.lock();
      running = nullptr;
      changed.notify_all();
    }
  }

  // Takes `entry` out of the list. If its flush is running in another thread, this waits for the
  // flush to return, because the flush uses what the caller is about to destroy.
  void remove(AtExit* entry) {
    std::unique_lock lock(mutex);
    entries.erase(entry);
    const bool is_own = runner == std::this_thread::get_id();
    if (!is_own) changed.wait(lock, [&] { return running != entry; });
  }
};

AtExit::AtExit(std::function<void()> flush) : flush_(std::move(flush)) {
  const std::lock_guard lock(AtExitList::get().mutex);
  AtExitList::get().entries.insert(this);
}

AtExit::~AtExit() { AtExitList::get().remove(this); }

}  // namespace bp::layers
