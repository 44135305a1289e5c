// A partition at work: ONNX Runtime calls it with tensors in memory of the host or of the device.
// They are copied to tensors of the runtime and back, and the call returns when that has ended.
//
// The importer runs the partition op by op. From the second run with the same input shapes on, the
// work is recorded once (backplane/runtime/capture.hpp) and replayed by one call. Shapes are the
// key, so dynamic extents need nothing else; the sets that were not used for longest are forgotten.
// What cannot be recorded, because it draws random numbers or reads values on the host, runs op by
// op each time.
//
//   Threads   Several threads may run one partition at once; each run has a lane of its own.
//   Failures  A failure on the device ends its lane, so that later runs begin anew.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backplane/runtime/capture.hpp"
#include "backplane/runtime/onnx.hpp"
#include "memory.hpp"
#include "options.hpp"

namespace bpo {

struct PartitionParts {
  std::vector<std::string> inputs, outputs;  // In the order of the fused node.
  bool has_graphs = false;  // A node has graphs, whose random numbers nobody would tell.
};

class Partition : public OrtNodeComputeInfo {
 public:
  Partition(const Ort& ort, bp::OnnxModel model, PartitionParts parts, const Options& options,
            const OrtLogger* logger, const DeviceMemory* memory);
  ~Partition();

  void run(OrtKernelContext* context);

 private:
  struct Recorded;
  struct Lane;
  struct Inputs;

  std::unique_ptr<Lane> take_lane();
  void give_back(std::unique_ptr<Lane> lane);
  void fill(const bp::Tensor& tensor, const Inputs& inputs, size_t i) const;
  Inputs read_inputs(OrtKernelContext* context) const;
  std::vector<bp::Tensor> compute(Lane& lane, const Inputs& inputs);
  bool replay(Lane& lane, const Inputs& inputs, std::vector<bp::Tensor>& outputs);
  void record(Lane& lane, const Inputs& inputs);
  bool record_as(bp::CaptureKind kind, const char* instead, Recorded& recorded);
  std::vector<bp::Tensor> run_model(const std::vector<bp::Tensor>& inputs,
                                    const bp::OnnxModel::Observer& observer = {}) const;
  void watch(const bp::OnnxNodeRun& run);
  void write_outputs(OrtKernelContext* context, const std::vector<bp::Tensor>& outputs) const;

  const Ort& ort_;
  bp::OnnxModel model_;
  PartitionParts parts_;
  Options options_;
  const OrtLogger* logger_;
  const DeviceMemory* memory_;            // NULL: inputs and outputs are in memory of the host.
  std::atomic<bool> is_watched_ = false;  // A run has told whether random numbers are drawn.
  std::atomic<bool> is_random_ = false;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Lane>> idle_;
};

}  // namespace bpo
