#include "registry/layers/at_exit.hpp"

#include <cstdlib>
#include <mutex>
#include <set>

namespace bp::layers {

// Never destroyed: a layer may end later than the static objects.
struct AtExitList {
  std::mutex mutex;
  std::set<AtExit*> entries;  // Guarded by mutex.

  static AtExitList& get() {
    static auto* const list = [] {
      std::atexit([] { get().flush_all(); });
      return new AtExitList;
    }();
    return *list;
  }

  void flush_all() {
    const std::lock_guard lock(mutex);
    for (AtExit* entry : entries) entry->flush_();
    entries.clear();
  }
};

AtExit::AtExit(std::function<void()> flush) : flush_(std::move(flush)) {
  const std::lock_guard lock(AtExitList::get().mutex);
  AtExitList::get().entries.insert(this);
}

AtExit::~AtExit() {
  const std::lock_guard lock(AtExitList::get().mutex);
  AtExitList::get().entries.erase(this);
}

}  // namespace bp::layers
