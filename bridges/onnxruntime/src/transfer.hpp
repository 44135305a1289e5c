// Copies between memory of the host and of devices: for ONNX Runtime's inputs and outputs of a
// model, and as kernels of the nodes that it puts between providers.
#pragma once

#include "memory.hpp"

namespace bpo {

// Copies tensors at the borders of a model. ONNX Runtime releases it.
class DataTransfer : public OrtDataTransferImpl {
 public:
  DataTransfer(const Ort& ort, const Memories& memories);

 private:
  static DataTransfer& of(OrtDataTransferImpl* transfer) {
    return *static_cast<DataTransfer*>(transfer);
  }
  bool can_copy(const OrtMemoryDevice* source, const OrtMemoryDevice* target) const;

  const Ort& ort_;
  const Memories& memories_;
};

// The kernels MemcpyFromHost and MemcpyToHost of the provider `name`.
class CopyKernels {
 public:
  CopyKernels(const Ort& ort, const Memories& memories, const char* name);
  ~CopyKernels() { ort_.ReleaseKernelRegistry(registry_); }
  CopyKernels(const CopyKernels&) = delete;
  CopyKernels& operator=(const CopyKernels&) = delete;

  const OrtKernelRegistry* registry() const { return registry_; }

 private:
  struct Kernel;
  void add(const char* op, bool reads_host, const char* name);
  void run(OrtKernelContext* context) const;

  const Ort& ort_;
  const Memories& memories_;
  OrtKernelRegistry* registry_ = nullptr;
};

}  // namespace bpo
