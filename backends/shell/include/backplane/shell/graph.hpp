// Graphs made by Captures, and their instances.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backplane/shell/work.hpp"

namespace bp {

// What was captured. A graph never changes.
struct Graph {
  bp_device* device = nullptr;
  uint64_t generation = 0;  // That of the device, which loses the graph at its next reset.
  std::vector<bp_buffer_ref> slots;
  std::vector<Work> works;
};

// A copy of the work of a graph, in which slots can be replaced. A replay reads this work when it
// is submitted, so the work may change afterwards.
struct GraphInstance {
  explicit GraphInstance(const Graph& graph) { take(graph); }
  GraphInstance(const GraphInstance&) = delete;

  // Copies the work of a graph. Each slot is bound to the range that was captured.
  void take(const Graph& graph);

  // A place in a piece of work that lies in a slot and moves with it.
  struct Patch {
    Place place;
    uint64_t delta_bytes;  // The place's offset in the slot.
  };

  bp_device* device = nullptr;
  uint64_t generation = 0;
  std::vector<Work> works;
  std::vector<bp_buffer_ref> slots;         // As they were captured.
  std::vector<std::vector<Patch>> patches;  // For each slot; they point into `works`.
  bp_event* last = nullptr;                 // It is recorded after each replay.
  const void* last_queue = nullptr;         // The queue of the latest replay.
  uint64_t revision = 0;                    // It grows when the work changes.
  std::shared_ptr<void> native;             // What the backend made of the work.
};

}  // namespace bp
