#include "registry/stream_ends.hpp"

#include <type_traits>
#include <utility>
#include <vector>

#include "registry/boundary/guard.hpp"
#include "registry/calls/prepared.hpp"
#include "registry/state.hpp"

namespace bp::core {
namespace {

StreamEnds& ends_of(void* self) { return *static_cast<StreamEnds*>(self); }

// Makes `slot` call the table behind.
template <auto kSlot, typename... Args>
void pass_on(bp_status (*&slot)(void*, Args...)) {
  slot = [](void* self, Args... args) -> bp_status {
    const bp_stream_ops& next = ends_of(self).next;
    return (next.*kSlot)(next.self, args...);
  };
}

template <typename Table>
void pass_all_on(Table& table) {
#define BP_SLOT(slot_table, noun, slot, presence, gone) \
  if constexpr (std::is_same_v<Table, slot_table>) pass_on<&slot_table::slot>(table.slot);
#include "registry/boundary/slots.def"
}

bool is_same_table(const bp_stream_ops& a, const bp_stream_ops& b) {
  return a.self == b.self && a.destroy == b.destroy;
}

// The targets whose streams `stream` may be one of: devices of a backend often share a table. None
// for the default stream, which nobody can destroy.
std::vector<Target*> targets_of(const StreamEnds& ends, bp_stream* stream) {
  std::vector<Target*> targets;
  for (const auto& target : ends.target->owner().targets) {
    if (!is_same_table(target->stream_ends.next, ends.next)) continue;
    if (target->default_stream == stream) return {};
    targets.push_back(target.get());
  }
  return targets;
}

void forget_failure(StreamEnds& ends, bp_stream* stream) {
  const std::lock_guard lock(ends.mutex);
  ends.failures.erase(stream);
}

// `status` of `stream`, with the host's words where the failure came from the host.
bp_status in_words(StreamEnds& ends, bp_stream* stream, bp_status status) {
  if (status == BP_OK) return BP_OK;
  const std::lock_guard lock(ends.mutex);
  const auto found = ends.failures.find(stream);
  if (found == ends.failures.end() || found->second.status != status) return status;
  return set_error(nullptr, status, found->second.text.c_str());
}

bp_status stream_status(void* self, bp_stream* stream) {
  const bp_stream_ops& next = ends_of(self).next;
  return in_words(ends_of(self), stream, next.status(next.self, stream));
}

bp_status synchronize(void* self, bp_stream* stream, uint64_t timeout_ns) {
  const bp_stream_ops& next = ends_of(self).next;
  return in_words(ends_of(self), stream, next.synchronize(next.self, stream, timeout_ns));
}

bp_status clear_failure(void* self, bp_stream* stream) {
  const bp_stream_ops& next = ends_of(self).next;
  const bp_status status = next.clear_failure(next.self, stream);
  if (status == BP_OK) forget_failure(ends_of(self), stream);
  return status;
}

bp_status destroy(void* self, bp_stream* stream) {
  const bp_stream_ops& next = ends_of(self).next;
  if (stream == nullptr) return next.destroy(next.self, stream);
  return guarded([&] {
    std::vector<std::pair<services::Cache*, services::Cache::Ending>> endings;
    const std::vector<Target*> targets = targets_of(ends_of(self), stream);
    endings.reserve(targets.size());
    for (Target* target : targets) {
      forget_stream(*target, stream);
      forget_failure(target->stream_ends, stream);
      if (target->cache == nullptr) continue;
      endings.emplace_back(target->cache.get(), target->cache->begin_end(stream));
    }
    const bp_status status = next.destroy(next.self, stream);
    for (auto& [cache, ending] : endings) cache->finish_end(ending, status == BP_OK);
    return status;
  });
}

}  // namespace

void watch_stream_ends(Target& target) {
  bp_stream_ops& streams = target.own_tables.streams;
  target.stream_ends.next = streams;
  target.stream_ends.target = &target;
  streams.self = &target.stream_ends;
  pass_all_on(streams);
  streams.status = stream_status;
  streams.synchronize = synchronize;
  streams.clear_failure = clear_failure;
  streams.destroy = destroy;
}

void remember_failure(Target& target, bp_stream* stream, bp_status status,
                      const std::string& text) {
  const std::lock_guard lock(target.stream_ends.mutex);
  target.stream_ends.failures[stream] = {status, text};
}

}  // namespace bp::core
