// Work that is recorded once, with its memory, and replayed often.
#pragma once

#include "backplane/capture.h"
#include "devices.h"

namespace bpt {

// Used by one thread at a time. The tensors that the recorded work reads and writes are those of
// the capture: a program copies new input into them, and reads the output from them.
class Graph {
 public:
  Graph() = default;
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void begin();  // On the current stream of the current device.
  void end();
  void abandon() noexcept;  // Ends a capture without a graph.
  void replay();            // On the current stream of its device.
  bp_captured_graph_info info() const;

 private:
  void reset() noexcept;

  bp_capture* capture_ = nullptr;
  bp_captured_graph* graph_ = nullptr;
  c10::DeviceIndex device_ = -1;
};

// How many captures are open in this process.
int open_capture_count() noexcept;

}  // namespace bpt
