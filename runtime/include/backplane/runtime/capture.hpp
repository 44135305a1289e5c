// Captures of a device's work: what a thread submits is recorded once, and replayed often by one
// call.
//
//   bp::Tensor x = bp::zeros({8, 4}, BP_F32), loss;
//   bp::Capture capture;                       // From now on nothing runs.
//   loss = bp::mean(model(x));
//   loss.backward();
//   optimizer.step(rate, step);                // Tensors of one element, whose values may change.
//   bp::CapturedGraph graph = capture.end();
//   for (...) { x.copy_from_host(...); graph.launch(); std::cout << loss.item<float>(); }
//
// Tensors that are made in a capture have memory of the graph, so replays write to the same
// addresses: `loss` and the gradients hold the values of the latest replay. A tensor that is
// dropped in the capture gives its memory to later tensors of the capture. Tensors from before the
// capture that the work uses must live as long as the graph.
//
// Everything that gives values to the host is refused in a capture: item(), to_vector(), printing,
// copies from and to the host. Values that change between replays are in tensors: inputs, the rate
// and the number of the step (AdamW::step()), the seed of random ops (Generator::set_seed()). Run
// the work a few times before the capture, so that all that it makes once is there.
//
// A capture is a graph of the device, or one program that the compiler of the device compiles at
// the end (backplane/capture.h).
//
// Rules: those of device.hpp. A graph is used by one thread at a time.
#pragma once

#include <memory>
#include <vector>

#include "backplane/capture.h"
#include "backplane/runtime/tensor.hpp"

namespace bp {

// Recorded work with its memory.
class CapturedGraph {
 public:
  // Submits the work to the thread's current stream of the device.
  void launch() const;

  // Lets later launches use the memory of `tensor` in the place of slot `slot`. The tensor is
  // contiguous, has the bytes of the slot, and lives until these launches have ended.
  void bind(uint64_t slot, const Tensor& tensor) const;

  // Returns how much was recorded; backplane/capture.h describes the members.
  bp_captured_graph_info info() const;

 private:
  friend class Capture;
  struct Destroy {
    void operator()(bp_captured_graph* graph) const;
  };
  CapturedGraph(Device device, bp_captured_graph* graph) : device_(device), graph_(graph) {}

  Device device_;
  std::unique_ptr<bp_captured_graph, Destroy> graph_;
};

enum class CaptureKind {
  automatic,  // A graph, or a program if the device records no graphs or has no kernels.
  program,
};

// Records what the thread submits to its current stream of a device, until end(). A capture that is
// destroyed before end() is abandoned.
class Capture {
 public:
  // Slot i is the memory of slots[i], which bind() replaces.
  explicit Capture(Device device = current_device(), const std::vector<Tensor>& slots = {},
                   CaptureKind kind = CaptureKind::automatic);
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  CapturedGraph end();

 private:
  Device device_;
  bp_capture* capture_ = nullptr;  // NULL after end().
};

}  // namespace bp
