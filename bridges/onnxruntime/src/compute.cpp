#include "compute.hpp"

#include <algorithm>

#include "graph.hpp"

namespace bpo {

// The inputs of one run, as ONNX Runtime has them.
struct Partition::Inputs {
  std::vector<HostTensorView> views;
  std::vector<bool> is_on_device;
  std::vector<bp_dtype> dtypes;
  std::vector<int64_t> key;  // The shapes, each behind its number of axes.
};

// The recorded work for one set of shapes. `inputs` and `outputs` are the memory that it uses.
struct Partition::Recorded {
  std::vector<int64_t> key;
  std::vector<bp::Tensor> inputs, outputs;
  std::unique_ptr<bp::CapturedGraph> graph;  // NULL: not recorded yet, or it cannot be.
  bool can_record = true;
};

// What one run uses alone: a stream, and the work that was recorded for it, latest first.
struct Partition::Lane {
  explicit Lane(bp::Device device) : stream(device) {}
  bp::Stream stream;
  std::list<Recorded> recorded;
};

Partition::Partition(const Ort& ort, bp::OnnxModel model, PartitionParts parts,
                     const Options& options, const OrtLogger* logger, const DeviceMemory* memory)
    : OrtNodeComputeInfo{},
      ort_(ort),
      model_(std::move(model)),
      parts_(std::move(parts)),
      options_(options),
      logger_(logger),
      memory_(memory) {
  ort_version_supported = ort.version;
  CreateState = [](OrtNodeComputeInfo* self, OrtNodeComputeContext*, void** out) -> OrtStatus* {
    *out = self;  // The lanes are the state.
    return nullptr;
  };
  ReleaseState = [](OrtNodeComputeInfo*, void*) {};
  Compute = [](OrtNodeComputeInfo* self, void*, OrtKernelContext* context) {
    auto& partition = *static_cast<Partition*>(self);
    return guarded(partition.ort_, [&] { partition.run(context); });
  };
}

Partition::~Partition() = default;

std::unique_ptr<Partition::Lane> Partition::take_lane() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Lane> lane = std::move(idle_.back());
      idle_.pop_back();
      return lane;
    }
  }
  return std::make_unique<Lane>(model_.device());
}

void Partition::give_back(std::unique_ptr<Lane> lane) {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(lane));
}

void Partition::run(OrtKernelContext* context) {
  const Inputs inputs = read_inputs(context);
  std::unique_ptr<Lane> lane = take_lane();
  {
    const bp::StreamGuard guard(lane->stream);
    const std::vector<bp::Tensor> outputs = compute(*lane, inputs);
    write_outputs(context, outputs);
    lane->stream.synchronize();
  }
  give_back(std::move(lane));
}

Partition::Inputs Partition::read_inputs(OrtKernelContext* context) const {
  Inputs inputs;
  for (size_t i = 0; i < parts_.inputs.size(); ++i) {
    const OrtValue* value = nullptr;
    ort_.check(ort_.KernelContext_GetInput(context, i, &value), "KernelContext_GetInput");
    HostTensorView view = view_of(ort_, value);
    inputs.is_on_device.push_back(memory_ != nullptr && memory_->has(value));
    inputs.dtypes.push_back(bp::onnx_dtype(view.element_type));
    inputs.key.push_back(static_cast<int64_t>(view.dims.size()));
    inputs.key.insert(inputs.key.end(), view.dims.begin(), view.dims.end());
    inputs.views.push_back(std::move(view));
  }
  return inputs;
}

std::vector<bp::Tensor> Partition::run_model(const std::vector<bp::Tensor>& inputs,
                                             const bp::OnnxModel::Observer& observer) const {
  bp::TensorMap given;
  for (size_t i = 0; i < inputs.size(); ++i) given[parts_.inputs[i]] = inputs[i];
  const bp::TensorMap made = model_.run(given, observer);
  std::vector<bp::Tensor> outputs;
  for (const std::string& name : parts_.outputs) outputs.push_back(made.at(name).contiguous());
  return outputs;
}

std::vector<bp::Tensor> Partition::compute(Lane& lane, const Inputs& inputs) {
  std::vector<bp::Tensor> outputs;
  if (replay(lane, inputs, outputs)) return outputs;
  std::vector<bp::Tensor> tensors;
  for (size_t i = 0; i < inputs.views.size(); ++i) {
    tensors.push_back(bp::empty(inputs.views[i].dims, inputs.dtypes[i], model_.device()));
    fill(tensors.back(), inputs, i);
  }
  if (is_watched_) return run_model(tensors);
  outputs = run_model(tensors, [this](const bp::OnnxNodeRun& run) { watch(run); });
  is_watched_ = true;
  return outputs;
}

// Looks at a node of the first run. A recorded graph would draw the same numbers in each replay.
void Partition::watch(const bp::OnnxNodeRun& run) {
  if (run.is_random) is_random_ = true;
  if (run.host_fallback_count == 0) return;
  ort_.log(logger_, kWarning,
           std::string("Backplane: ") + model_.device().name() + " does not compute " +
               run.node.op_type + " '" + run.node.name +
               "' for these shapes and dtypes; the library computes it on the host");
}

// Copies input `i` to a tensor of its shape and dtype.
void Partition::fill(const bp::Tensor& tensor, const Inputs& inputs, size_t i) const {
  if (inputs.is_on_device[i]) {
    memory_->copy_to(tensor, inputs.views[i].data);
  } else {
    tensor.copy_from_host(inputs.views[i].data, size_of(tensor));
  }
}

// Returns false if this run is not to be replayed.
bool Partition::replay(Lane& lane, const Inputs& inputs, std::vector<bp::Tensor>& outputs) {
  if (parts_.has_graphs || !is_watched_ || is_random_ || options_.graph_count == 0) return false;
  const auto found = std::ranges::find(lane.recorded, inputs.key, &Recorded::key);
  if (found == lane.recorded.end()) {
    lane.recorded.push_front({inputs.key, {}, {}, nullptr});
    if (lane.recorded.size() > options_.graph_count) lane.recorded.pop_back();
    return false;
  }
  lane.recorded.splice(lane.recorded.begin(), lane.recorded, found);
  Recorded& recorded = lane.recorded.front();
  if (!recorded.can_record) return false;
  if (recorded.graph == nullptr) record(lane, inputs);
  if (recorded.graph == nullptr) return false;
  for (size_t i = 0; i < inputs.views.size(); ++i) fill(recorded.inputs[i], inputs, i);
  recorded.graph->launch();
  outputs = recorded.outputs;
  return true;
}

// Records the work for the shapes of the lane's first set. What cannot be recorded stays without.
void Partition::record(Lane& lane, const Inputs& inputs) {
  Recorded& recorded = lane.recorded.front();
  for (size_t i = 0; i < inputs.views.size(); ++i) {
    recorded.inputs.push_back(bp::empty(inputs.views[i].dims, inputs.dtypes[i], model_.device()));
  }
  const bool has_no_kernels = bp_target_kernel_count(&model_.device().target()) == 0;
  const bool is_recorded = (options_.as_programs.value_or(has_no_kernels) &&
                            record_as(bp::CaptureKind::program, "not as a program", recorded)) ||
                           record_as(bp::CaptureKind::automatic, "op by op", recorded);
  if (is_recorded) return;
  recorded.can_record = false;
  recorded.inputs.clear();
}

// Returns false, and logs why, if the work cannot be recorded so.
bool Partition::record_as(bp::CaptureKind kind, const char* instead, Recorded& recorded) {
  // What cannot be recorded may leave its stream with a failure, so that it is not the lane's.
  const bp::Stream stream(model_.device());
  const bp::StreamGuard guard(stream);
  try {
    bp::Capture capture(model_.device(), {}, kind);
    recorded.outputs = run_model(recorded.inputs);
    recorded.graph = std::make_unique<bp::CapturedGraph>(capture.end());
    return true;
  } catch (const bp::Error& e) {
    if (e.code() == BP_DEVICE_LOST) throw;
    ort_.log(logger_, kInfo,
             std::string("Backplane: ") + model_.device().name() + " runs a partition " + instead +
                 ", since it cannot be recorded so: " + e.what());
    recorded.outputs.clear();
    return false;
  }
}

void Partition::write_outputs(OrtKernelContext* context,
                              const std::vector<bp::Tensor>& outputs) const {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const bp::IntList shape = outputs[i].shape();
    OrtValue* value = nullptr;
    void* data = nullptr;
    ort_.check(ort_.KernelContext_GetOutput(context, i, shape.data(), shape.size(), &value),
               "KernelContext_GetOutput");
    ort_.check(ort_.GetTensorMutableData(value, &data), "GetTensorMutableData");
    if (memory_ != nullptr && memory_->has(value)) {
      memory_->copy_from(outputs[i], data);
    } else {
      outputs[i].copy_to_host(data, size_of(outputs[i]));
    }
  }
}

}  // namespace bpo
