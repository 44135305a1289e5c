// The provider of one session, on one device.
#pragma once

#include "backplane/runtime/device.hpp"
#include "options.hpp"
#include "ort.hpp"
#include "transfer.hpp"
#include "trial.hpp"

namespace bpo {

class Ep : public OrtEp {
 public:
  // `memory` is that of the device, or NULL if its tensors are those of the host.
  Ep(const Ort& ort, bp::Device device, const Options& options, const OrtLogger* logger,
     const Memories& memories, const DeviceMemory* memory);

 private:
  static Ep& of(OrtEp* ep) { return *static_cast<Ep*>(ep); }
  void choose_nodes(const OrtGraph* graph, OrtEpGraphSupportInfo* out);
  OrtNodeComputeInfo* compile(const OrtGraph* graph, const OrtNode* fused);

  const Ort& ort_;
  bp::Device device_;
  Options options_;
  const OrtLogger* logger_;
  const DeviceMemory* memory_;
  CopyKernels copies_;
  Trials trials_;  // ONNX Runtime asks again when it has put graphs in place of nodes.
};

}  // namespace bpo
