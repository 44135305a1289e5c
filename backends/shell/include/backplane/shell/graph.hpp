// Graphs made by Captures, and their instances.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backplane/shell/work.hpp"

namespace bp {

// What was captured. Never changes.
struct Graph {
  bp_device* device = nullptr;
  std::vector<bp_buffer_ref> slots;
  std::vector<Work> works;
};

// A copy of the work of a graph, in which slots can be replaced. What it was launched with was read
// when it was submitted, so it may be written to afterwards.
struct GraphInstance {
  explicit GraphInstance(const Graph& graph) { take(graph); }
  GraphInstance(const GraphInstance&) = delete;

  // Takes over the work of a graph. Slots are their own ranges.
  void take(const Graph& graph);

  // A place that moves with a slot.
  struct Patch {
    Place place;
    uint64_t delta_bytes;  // From the beginning of the slot to byte_offset.
  };

  bp_device* device = nullptr;
  std::vector<Work> works;
  std::vector<bp_buffer_ref> slots;         // As they were captured.
  std::vector<std::vector<Patch>> patches;  // By slot; they point into `works`.
  bp_event* last = nullptr;                 // Recorded behind each replay.
  const void* last_queue = nullptr;         // Of the latest replay.
  uint64_t revision = 0;                    // Raised when its work changes.
  std::shared_ptr<void> native;             // What the backend made of it.
};

}  // namespace bp
