#include "backplane/shell/graph.hpp"

#include <algorithm>
#include <cstring>

#include "backplane/shell/capture.hpp"
#include "backplane/shell/lookup.hpp"

namespace bp {
namespace {

Captures& captures(void* self) { return *static_cast<Captures*>(self); }

// Runs `body` for an entry of bp_graph_ops, and keeps exceptions inside.
template <typename Body>
bp_status run(void* self, Body&& body) {
  Captures& c = captures(self);
  return guarded(*c.backend().host, [&] { return body(c); });
}

// Returns why the instance `ours` cannot take over the graph `theirs`, or "" if it can.
std::string difference(const GraphInstance& ours, const Graph& theirs) {
  if (ours.device != theirs.device) return "the graph is of another device";
  if (ours.slots.size() != theirs.slots.size()) {
    return "the graph has " + std::to_string(theirs.slots.size()) + " slots, and the instance " +
           std::to_string(ours.slots.size());
  }
  if (ours.works.size() != theirs.works.size()) {
    return "the graph has " + std::to_string(theirs.works.size()) + " nodes, and the instance " +
           std::to_string(ours.works.size());
  }
  for (size_t i = 0; i < ours.works.size(); ++i) {
    const Work &a = ours.works[i], &b = theirs.works[i];
    if (a.kind == b.kind && a.kernel == b.kernel) continue;
    return "node " + std::to_string(i) + " is " + b.name() + ", and was " + a.name();
  }
  return "";
}

}  // namespace

void GraphInstance::take(const Graph& graph) {
  device = graph.device;
  generation = graph.generation;
  slots = graph.slots;
  works.clear();
  for (const Work& work : graph.works) works.push_back(work.clone());
  patches.assign(slots.size(), {});
  for (Work& work : works) {
    for (const Place& place : places_of(work)) {
      const int found = slot_of(place, slots);
      if (found < 0) continue;
      const auto slot = static_cast<size_t>(found);
      patches[slot].push_back({place, *place.byte_offset - slots[slot].byte_offset});
    }
  }
}

// Returns the graph behind a handle. It looks the handle up and does not read through it, so a
// handle that was destroyed is refused.
Graph& Captures::checked(bp_graph* graph, const char* call) const {
  auto* const ours = reinterpret_cast<Graph*>(graph);
  const std::lock_guard lock(mutex_);
  if (graphs_.contains(ours)) return *ours;
  throw StatusError(BP_INVALID_ARGUMENT,
                    std::string(call) + ": graph is NULL or not one of this backend");
}

GraphInstance& Captures::checked(bp_graph_instance* instance, const char* call) const {
  auto* const ours = reinterpret_cast<GraphInstance*>(instance);
  const std::lock_guard lock(mutex_);
  if (instances_.contains(ours)) return *ours;
  throw StatusError(BP_INVALID_ARGUMENT,
                    std::string(call) + ": instance is NULL or not one of this backend");
}

template <typename Handle>
auto& Captures::living(Handle* handle, const char* call) const {
  auto& ours = checked(handle, call);
  if (ours.generation == generation_of(backend_.devices, ours.device)) return ours;
  throw StatusError(BP_DEVICE_LOST,
                    std::string(call) + ": the graph was captured before its device was reset");
}

bp_status Captures::instantiate(bp_graph* graph, bp_graph_instance** out_instance) {
  const Graph& g = living(graph, "instantiate");
  if (out_instance == nullptr) {
    return fail(BP_INVALID_ARGUMENT, "instantiate: out_instance is NULL");
  }
  auto instance = std::make_unique<GraphInstance>(g);
  const bp_event_ops& events = backend_.events;
  const bp_status status = events.create(events.self, g.device, nullptr, &instance->last);
  if (status != BP_OK) return status;
  const std::lock_guard lock(mutex_);
  instances_.insert(instance.get());
  *out_instance = reinterpret_cast<bp_graph_instance*>(instance.release());
  return BP_OK;
}

bp_status Captures::bind(bp_graph_instance* instance, uint64_t slot, const bp_buffer_ref* range) {
  GraphInstance& i = living(instance, "bind");
  if (slot >= i.slots.size()) {
    return fail(BP_INVALID_ARGUMENT, "bind: slot is " + std::to_string(slot) +
                                         ", and the graph has " + std::to_string(i.slots.size()) +
                                         " slots");
  }
  check_range(range, "bind: range");
  if (range->size_bytes < i.slots[slot].size_bytes) {
    return fail(BP_INVALID_ARGUMENT, "bind: range has " + std::to_string(range->size_bytes) +
                                         " bytes, and the slot " +
                                         std::to_string(i.slots[slot].size_bytes));
  }
  for (const auto& [place, delta_bytes] : i.patches[slot]) {
    if ((range->byte_offset + delta_bytes) % place.alignment_bytes == 0) continue;
    return fail(BP_INVALID_ARGUMENT,
                "bind: byte_offset is " + std::to_string(range->byte_offset) +
                    "; captured work needs the byte " + std::to_string(delta_bytes) +
                    " bytes after it at a multiple of " + std::to_string(place.alignment_bytes));
  }
  for (const auto& [place, delta_bytes] : i.patches[slot]) {
    *place.buffer = range->buffer;
    *place.byte_offset = range->byte_offset + delta_bytes;
  }
  ++i.revision;
  return BP_OK;
}

bp_status Captures::update(bp_graph_instance* instance, bp_graph* graph) {
  GraphInstance& i = living(instance, "update");
  const Graph& g = living(graph, "update");
  const std::string why = difference(i, g);
  if (!why.empty()) return fail(BP_UNSUPPORTED, "update: " + why + ": instantiate it anew");
  GraphInstance taken(g);
  std::swap(i.works, taken.works);
  std::swap(i.slots, taken.slots);
  std::swap(i.patches, taken.patches);
  ++i.revision;
  return BP_OK;
}

// Refuses before a replay what would be refused in the middle of it: a bind of slots can make the
// ranges of a copy overlap.
bp_status Captures::check_before_launch(const GraphInstance& instance) const {
  for (size_t i = 0; i < instance.works.size(); ++i) {
    const Work& work = instance.works[i];
    if (work.kind != Work::Kind::kCopy && work.kind != Work::Kind::kCopyPeer) continue;
    if (!is_partly_shared(bytes_of(work.dst), bytes_of(work.src))) continue;
    return fail(BP_INVALID_ARGUMENT,
                "graph.launch: the ranges bound to slots make the copy of "
                "node " +
                    std::to_string(i) + " overlap");
  }
  return BP_OK;
}

bp_status Captures::submit_works(const GraphInstance& i, bp_stream* stream,
                                 bool& out_has_begun) const {
  const bp_stream_ops& streams = backend_.streams;
  for (size_t k = 0; k < i.works.size(); ++k) {
    const bp_status status = i.works[k].submit(backend_.memory, stream);
    out_has_begun |= status == BP_OK;
    if (status == BP_OK) continue;
    if (k == 0) return status;
    // Work of this replay has failed. The stream reports the failure, as after any launch.
    if (streams.status(streams.self, stream) != BP_OK) return BP_OK;
    backend_.fail(stream, status, std::string("graph.launch: ") + i.works[k].name() + " refused");
    return status;
  }
  return BP_OK;
}

// Returns whether the latest replay has ended. A new replay does not wait for it then, so that its
// failure stays on its own stream.
bool Captures::has_ended(const GraphInstance& instance) const {
  uint32_t done = 0;
  const bp_event_ops& events = backend_.events;
  return events.query(events.self, instance.last, &done) == BP_OK && done != 0;
}

bp_status Captures::replay(bp_graph_instance* instance, bp_stream* stream) {
  GraphInstance& i = living(instance, "graph.launch");
  const void* const queue = backend_.queue_of(stream);
  if (queue == nullptr || backend_.device_of(backend_.streams.self, stream) != i.device) {
    return fail(BP_INVALID_ARGUMENT,
                "graph.launch: stream is NULL or not one of the graph's device");
  }
  if (is_capturing(stream)) return refuse("graph.launch");
  bp_status status = check_before_launch(i);
  const bp_stream_ops& streams = backend_.streams;
  if (status == BP_OK) status = admit(stream, "graph.launch");
  if (status == BP_OK && i.last_queue != nullptr && i.last_queue != queue && !has_ended(i)) {
    status = streams.wait_event(streams.self, stream, i.last);
  }
  bool has_begun = false;
  if (status == BP_OK) {
    status = backend_.replay == nullptr ? submit_works(i, stream, has_begun)
                                        : backend_.replay(streams.self, i, stream);
  }
  if (status != BP_OK && !has_begun) return status;
  i.last_queue = queue;
  const bp_status recorded = backend_.events.record(backend_.events.self, i.last, stream);
  return status == BP_OK ? recorded : status;
}

bp_status Captures::destroy(bp_graph* graph) {
  if (graph == nullptr) return BP_OK;
  const std::unique_ptr<Graph> owned(&checked(graph, "graph.destroy"));
  const std::lock_guard lock(mutex_);
  graphs_.erase(owned.get());
  return BP_OK;
}

bp_status Captures::destroy(bp_graph_instance* instance) {
  if (instance == nullptr) return BP_OK;
  const std::unique_ptr<GraphInstance> owned(&checked(instance, "graph.destroy_instance"));
  {
    const std::lock_guard lock(mutex_);
    instances_.erase(owned.get());
  }
  return backend_.events.destroy(backend_.events.self, owned->last);
}

bp_status Captures::dump(bp_graph* graph, uint64_t capacity, char* text, uint64_t* out_size) {
  const Graph& g = living(graph, "dump");
  if (out_size == nullptr || (capacity != 0 && text == nullptr)) {
    return fail(BP_INVALID_ARGUMENT,
                "dump: out_size is NULL, or text is NULL and capacity is not 0");
  }
  std::string lines;
  for (size_t k = 0; k < g.works.size(); ++k) {
    lines += std::to_string(k) + ": " + g.works[k].text() + "\n";
  }
  *out_size = lines.size() + 1;
  if (capacity == 0) return BP_OK;
  const uint64_t kept = std::min<uint64_t>(lines.size(), capacity - 1);
  std::memcpy(text, lines.data(), kept);
  text[kept] = '\0';
  return BP_OK;
}

bp_graph_ops Captures::graphs() {
  return {
      .struct_size = sizeof(bp_graph_ops),
      .struct_type = BP_STRUCT_GRAPH_OPS,
      .next = nullptr,
      .self = this,
      .begin_capture =
          [](void* self, bp_stream* stream, const bp_capture_desc* desc) {
            return run(self, [&](Captures& c) { return c.begin(stream, desc); });
          },
      .capture_info =
          [](void* self, bp_stream* stream, bp_capture_info* out_info) {
            return run(self, [&](Captures& c) { return c.info(stream, out_info); });
          },
      .end_capture =
          [](void* self, bp_stream* stream, bp_graph** out_graph) {
            return run(self, [&](Captures& c) { return c.end(stream, out_graph); });
          },
      .instantiate =
          [](void* self, bp_graph* graph, bp_graph_instance** out_instance) {
            return run(self, [&](Captures& c) { return c.instantiate(graph, out_instance); });
          },
      .bind =
          [](void* self, bp_graph_instance* instance, uint64_t slot, const bp_buffer_ref* range) {
            return run(self, [&](Captures& c) { return c.bind(instance, slot, range); });
          },
      .update =
          [](void* self, bp_graph_instance* instance, bp_graph* graph) {
            return run(self, [&](Captures& c) { return c.update(instance, graph); });
          },
      .launch =
          [](void* self, bp_graph_instance* instance, bp_stream* stream) {
            return run(self, [&](Captures& c) { return c.replay(instance, stream); });
          },
      .destroy =
          [](void* self, bp_graph* graph) {
            return run(self, [&](Captures& c) { return c.destroy(graph); });
          },
      .destroy_instance =
          [](void* self, bp_graph_instance* instance) {
            return run(self, [&](Captures& c) { return c.destroy(instance); });
          },
      .dump =
          [](void* self, bp_graph* graph, uint64_t capacity, char* text, uint64_t* out_size) {
            return run(self, [&](Captures& c) { return c.dump(graph, capacity, text, out_size); });
          }};
}

}  // namespace bp
