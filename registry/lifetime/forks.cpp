#include "registry/lifetime/forks.hpp"

#include <pthread.h>

#include <algorithm>

#include "registry/boundary/fail.hpp"
#include "registry/boundary/forks.hpp"
#include "registry/captures/captures.hpp"
#include "registry/dispatch/prepared.hpp"

namespace bp {

uint32_t fork_count = 0;

namespace core {
namespace {

struct Watched {
  std::mutex mutex;
  // `mutex` guards the members below.
  std::vector<Registry*> registries;
  std::vector<std::unique_ptr<Plugin>> of_parents;  // What children were cut off from.
};

// The object lives as long as the process, because a fork may follow the destructors of globals.
Watched& watched() {
  static auto* const made = new Watched;
  return *made;
}

// Calls visit(mutex) for every lock that protects what cut_off() changes. A thread that holds
// a later one never waits for an earlier one.
template <typename Visit>
void visit_locks(const Visit& visit) {
  visit(watched().mutex);
  for (Registry* registry : watched().registries) {
    visit(registry->mutex);
    for (const auto& plugin : registry->plugins) {
      for (const auto& target : plugin->targets) {
        visit(target->prepared_mutex);
        visit(target->captures_mutex);
      }
    }
  }
}

void lock_all() {
  visit_locks([](std::mutex& mutex) { mutex.lock(); });
}

void unlock_all() {
  visit_locks([](std::mutex& mutex) { mutex.unlock(); });
}

// Leaves the objects that know the backend where they are: their ends would call it, and another
// thread of the parent may hold their locks.
void cut_off(Target& target) {
  end_tables(target.own_tables);
  leave_prepared(target);
  leave_captures(target);
  target.kernels.compiled = nullptr;
  static_cast<void>(target.compiled.release());
  static_cast<void>(target.pinned.release());
  static_cast<void>(target.caches.release());
  static_cast<void>(target.cache.release());
  target.fallback_streams.clear();
}

void cut_off_all() {
  ++fork_count;
  unlock_all();
  for (Registry* registry : watched().registries) {
    registry->targets.clear();
    registry->host_target = nullptr;
    for (auto& plugin : registry->plugins) {
      for (const auto& target : plugin->targets) cut_off(*target);
      watched().of_parents.push_back(std::move(plugin));
    }
    registry->plugins.clear();
  }
}

}  // namespace

bp_status watch_forks(Registry& registry) {
  static const int failure = pthread_atfork(lock_all, unlock_all, cut_off_all);
  if (failure != 0) return out_of_host_memory("registry.create");
  const std::lock_guard lock(watched().mutex);
  watched().registries.push_back(&registry);
  return BP_OK;
}

void forget_forks(Registry& registry) {
  const std::lock_guard lock(watched().mutex);
  std::erase(watched().registries, &registry);
}

}  // namespace core
}  // namespace bp
