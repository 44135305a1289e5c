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

  // On the current stream of the current device. As a program of the device's compiler, or as the
  // device does best.
  void begin(bool as_program);
  void end();
  void abandon() noexcept;  // Ends a capture without a graph.
  void replay();            // On the current stream of its device.
  bp_captured_graph_info info() const;

 private:
  void reset() noexcept;

  void close();  // Takes the capture out of the list of open ones.

  bp_capture* capture_ = nullptr;
  bp_stream* stream_ = nullptr;  // That of the capture.
  bp_captured_graph* graph_ = nullptr;
  c10::DeviceIndex device_ = -1;
};

// Returns whether a graph of the device is a program in any case.
bool is_program_device(c10::DeviceIndex index);

// How many captures are open in this process.
int open_capture_count() noexcept;

// Returns whether a capture was begun on the stream and not ended.
bool is_captured(const bp_stream* stream);

}  // namespace bpt
