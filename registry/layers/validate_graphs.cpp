// The rules of captures, in which nothing runs, and of their replays.
#include "registry/layers/validate.hpp"
#include "registry/layers/words.hpp"

namespace bp::layers {

bp_status ValidateLayer::call(At<Slot::graph_begin_capture>, Continue next, bp_stream* stream,
                              const bp_capture_desc* desc) {
  const bp_status status = next();
  if (status != BP_OK) return status;
  const std::lock_guard lock(mutex_);
  if (!captures_.begin(stream)) return status;
  hazards_.begin_unseen(stream);
  replays_.begin(stream, desc);
  return status;
}

// The capture ends also if the call fails.
bp_status ValidateLayer::call(At<Slot::graph_end_capture>, Continue next, bp_stream* stream,
                              bp_graph** out_graph) {
  const bp_status status = next();
  const std::lock_guard lock(mutex_);
  for (bp_stream* each : captures_.end(stream)) hazards_.end_unseen(each);
  bp_graph* const made = status == BP_OK && out_graph != nullptr ? *out_graph : nullptr;
  replays_.end(stream, made);
  if (made == nullptr) return status;
  const Handle* on = handles_.find(HandleKind::stream, stream);
  handles_.add(HandleKind::graph, made, {.device = on == nullptr ? nullptr : on->device});
  return status;
}

bp_status ValidateLayer::call(At<Slot::graph_instantiate>, Continue next, bp_graph* graph,
                              bp_graph_instance** out_instance) {
  const bp_status status = next();
  if (status != BP_OK) return status;
  const std::lock_guard lock(mutex_);
  const Handle* of = handles_.find(HandleKind::graph, graph);
  handles_.add(HandleKind::instance, *out_instance,
               {.device = of == nullptr ? nullptr : of->device});
  replays_.instantiate(graph, *out_instance);
  return status;
}

bp_status ValidateLayer::call(At<Slot::graph_bind>, Continue next, bp_graph_instance* instance,
                              uint64_t slot, const bp_buffer_ref* range) {
  const bp_status status = next();
  if (status != BP_OK) return status;
  const std::lock_guard lock(mutex_);
  replays_.bind(instance, slot, *range);
  return status;
}

bp_status ValidateLayer::call(At<Slot::graph_update>, Continue next, bp_graph_instance* instance,
                              bp_graph* graph) {
  const bp_status status = next();
  if (status != BP_OK) return status;
  const std::lock_guard lock(mutex_);
  replays_.update(instance, graph);
  return status;
}

// A replay touches what was captured, in the ranges that are bound now, and runs after the previous
// replay.
bp_status ValidateLayer::call(At<Slot::graph_launch>, Continue next, bp_graph_instance* instance,
                              bp_stream* stream) {
  std::vector<Access> accesses;
  {
    std::unique_lock lock(mutex_);
    accesses = replays_.accesses(instance);
    for (const Access& access : accesses) {
      const std::string defect = defect_of(access.where.buffer);
      if (!defect.empty()) return illegal(lock, Slot::graph_launch, defect + "; the graph uses it");
    }
    hazards_.wait_event(stream, replays_.mark(instance));
  }
  const bp_status status = submit(Slot::graph_launch, stream, accesses, "replay of a graph", next);
  if (status != BP_OK) return status;
  const std::lock_guard lock(mutex_);
  if (bp_event* mark = replays_.mark(instance)) hazards_.record_event(mark, stream);
  return status;
}

bp_status ValidateLayer::call(At<Slot::graph_destroy>, Continue next, bp_graph* graph) {
  {
    const std::lock_guard lock(mutex_);
    replays_.remove(graph);
  }
  return end_through(HandleKind::graph, graph, Slot::graph_destroy, next);
}

bp_status ValidateLayer::call(At<Slot::graph_destroy_instance>, Continue next,
                              bp_graph_instance* instance) {
  {
    const std::lock_guard lock(mutex_);
    if (bp_event* mark = replays_.mark(instance)) hazards_.remove_event(mark);
    replays_.remove(instance);
  }
  return end_through(HandleKind::instance, instance, Slot::graph_destroy_instance, next);
}

}  // namespace bp::layers
