#include "registry/lifetime/stream_ends.hpp"

#include <utility>
#include <vector>

#include "registry/boundary/guard.hpp"
#include "registry/dispatch/prepared.hpp"
#include "registry/lifetime/pass_on.hpp"

namespace bp::core {
namespace {

bool is_same_table(const bp_stream_ops& a, const bp_stream_ops& b) {
  return a.self == b.self && a.destroy == b.destroy;
}

// Returns the targets to which `stream` may belong, because devices of a backend often share a
// table. Returns none for a default stream, which nobody can destroy.
std::vector<Target*> targets_of(const Target& one, bp_stream* stream) {
  std::vector<Target*> targets;
  for (const auto& target : one.owner().targets) {
    if (!is_same_table(target->next_streams, one.next_streams)) continue;
    if (target->default_stream == stream) return {};
    targets.push_back(target.get());
  }
  return targets;
}

bp_status stream_status(void* self, bp_stream* stream) {
  Target& target = target_of(self);
  const bp_stream_ops& next = target.next_streams;
  return target.stream_failures.in_words(stream, next.status(next.self, stream));
}

bp_status synchronize(void* self, bp_stream* stream, uint64_t timeout_ns) {
  Target& target = target_of(self);
  const bp_stream_ops& next = target.next_streams;
  const bp_status status = next.synchronize(next.self, stream, timeout_ns);
  return target.stream_failures.in_words(stream, status);
}

bp_status clear_failure(void* self, bp_stream* stream) {
  Target& target = target_of(self);
  const bp_stream_ops& next = target.next_streams;
  const bp_status status = next.clear_failure(next.self, stream);
  if (status == BP_OK) target.stream_failures.forget(stream);
  return status;
}

bp_status destroy(void* self, bp_stream* stream) {
  const bp_stream_ops& next = target_of(self).next_streams;
  if (stream == nullptr) return next.destroy(next.self, stream);
  return guarded([&] {
    std::vector<std::pair<services::Cache*, services::Cache::Ending>> endings;
    const std::vector<Target*> targets = targets_of(target_of(self), stream);
    for (Target* target : targets) {
      forget_stream(*target, stream);
      target->stream_failures.forget(stream);
      if (target->cache == nullptr) continue;
      std::vector<services::Cache*> caches = target->caches->others();
      caches.push_back(target->cache.get());
      endings.reserve(endings.size() + caches.size());
      for (services::Cache* cache : caches) endings.emplace_back(cache, cache->begin_end(stream));
    }
    const bp_status status = next.destroy(next.self, stream);
    for (auto& [cache, ending] : endings) cache->finish_end(ending, status == BP_OK);
    return status;
  });
}

}  // namespace

void watch_stream_ends(Target& target) {
  bp_stream_ops& streams = target.own_tables.streams;
  pass_all_on<&Target::next_streams>(target, streams);
  streams.status = stream_status;
  streams.synchronize = synchronize;
  streams.clear_failure = clear_failure;
  streams.destroy = destroy;
}

}  // namespace bp::core
