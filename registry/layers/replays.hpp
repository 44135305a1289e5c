// What the work of a capture touches, what orders it within, and with it each replay of its graph.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "backplane/graph.h"
#include "registry/layers/hazards.hpp"

namespace bp::layers {

// Not thread-safe. Handles that nobody told of have no accesses.
class Replays {
 public:
  // A capture, by the stream that began it.
  void begin(bp_stream* origin, const bp_capture_desc* desc);
  void add(bp_stream* origin, const std::vector<Access>& accesses);
  // The streams that are in the capture, and nothing else: what came before it is before all of it.
  // NULL if `origin` began none.
  Hazards* hazards(bp_stream* origin);
  // `graph` is NULL where none came of it.
  void end(bp_stream* origin, bp_graph* graph);

  void instantiate(bp_graph* graph, bp_graph_instance* instance);
  // Slots are their own ranges again.
  void update(bp_graph_instance* instance, bp_graph* graph);
  void bind(bp_graph_instance* instance, uint64_t slot, const bp_buffer_ref& range);
  void remove(bp_graph* graph) { graphs_.erase(graph); }
  void remove(bp_graph_instance* instance) { instances_.erase(instance); }

  // What a replay touches, with the ranges that are bound now.
  std::vector<Access> accesses(bp_graph_instance* instance) const;

  // As an event that the latest replay recorded; NULL if the instance is not known.
  bp_event* mark(bp_graph_instance* instance);

 private:
  struct Recorded {
    std::vector<bp_buffer_ref> slots;
    std::vector<Access> accesses;
  };
  struct Capture {
    Recorded recorded;
    Hazards hazards;
  };
  struct Instance {
    std::shared_ptr<const Recorded> recorded;
    std::vector<bp_buffer_ref> bound;  // In the place of the slots.
  };

  std::map<bp_stream*, Capture> captures_;
  std::map<bp_graph*, std::shared_ptr<const Recorded>> graphs_;
  std::map<bp_graph_instance*, Instance> instances_;
};

}  // namespace bp::layers
