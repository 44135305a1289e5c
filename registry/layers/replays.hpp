// Knows what the work of a capture touches and what orders it, and so what each replay of its graph
// touches.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "backplane/graph.h"
#include "registry/layers/hazards.hpp"

namespace bp::layers {

// Not thread-safe. A handle that is not known has no accesses.
class Replays {
 public:
  // Begins a capture, which is named by the stream that began it.
  void begin(bp_stream* origin, const bp_capture_desc* desc);
  void add(bp_stream* origin, const std::vector<Access>& accesses);
  // Returns the order of the streams in the capture, and of nothing else: work before the capture
  // comes before all of it. Returns NULL if `origin` began none.
  Hazards* hazards(bp_stream* origin);
  // `graph` is NULL if the capture gave no graph.
  void end(bp_stream* origin, bp_graph* graph);

  void instantiate(bp_graph* graph, bp_graph_instance* instance);
  // Gives the slots their own ranges again.
  void update(bp_graph_instance* instance, bp_graph* graph);
  void bind(bp_graph_instance* instance, uint64_t slot, const bp_buffer_ref& range);
  void remove(bp_graph* graph) { graphs_.erase(graph); }
  void remove(bp_graph_instance* instance) { instances_.erase(instance); }

  // Returns what a replay touches, with the ranges that are bound now.
  std::vector<Access> accesses(bp_graph_instance* instance) const;

  // Returns a mark like an event that the latest replay recorded, or NULL if the instance is not
  // known.
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
    std::vector<bp_buffer_ref> bound;  // Replaces the slots.
  };

  std::map<bp_stream*, Capture> captures_;
  std::map<bp_graph*, std::shared_ptr<const Recorded>> graphs_;
  std::map<bp_graph_instance*, Instance> instances_;
};

}  // namespace bp::layers
