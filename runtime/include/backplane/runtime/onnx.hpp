// Models in the ONNX format (onnx.ai, IR version 3 to 14, opsets 1 to 28 of the default domain): a
// file is read and checked once, and then run on any device through the ops of this runtime.
//
//   bp::OnnxModel model = bp::OnnxModel::load("resnet50.onnx", bp::Device("npu"));
//   bp::TensorMap outputs = model.run({{"data", image}});
//
// Rules for everything here, unless it says otherwise:
//   Threads    Several threads may run one model at once. Work goes to the calling thread's current
//              stream of the model's device.
//   Blocking   load() waits for its copies. run() waits where a node needs values on the host: the
//              shape of a Reshape, the bounds of a Slice, the elements of a NonZero.
//   Errors     Throws bp::Error. A message begins with the file, or names the node, its operator,
//              the domain and the opset. An operator that cannot be run is BP_UNSUPPORTED; a file
//              that breaks the rules of the format is BP_INVALID_ARGUMENT. An index out of range
//              fails the stream, as it does in the ops; a StreamGuard keeps such a failure apart.
//   Ownership  A model owns its weights. Copies of a model share them. Tensors that run() returns
//              belong to the caller, unless the model passes an input or a weight through.
//
// The library is backplane_onnx, since it needs protobuf. Gradients are not recorded: run() works
// under a NoGradGuard.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backplane/runtime/safetensors.hpp"
#include "backplane/runtime/tensor.hpp"

namespace bp {

namespace onnx {
struct LoadedModel;
}  // namespace onnx

// What a model says of one of its inputs or outputs.
struct OnnxValueInfo {
  std::string name;
  bp_dtype dtype = 0;  // 0 if the model does not say it.
  // Empty if the model does not say it. An extent of -1 is known only when the model runs.
  std::optional<std::vector<int64_t>> shape;
  bool is_required = true;  // False for an input that has an initialiser of its name.
};

// How the operator of a node is run. A node of kOp is one op of the runtime, of kView a view or
// a value that the host knows, and of kComposed several ops. A node of kHost is computed by the
// processor of the host, because the extents of its result depend on values.
enum class OnnxRoute { kOp, kView, kComposed, kHost };

// Returns "op", "view", "composed" or "host".
const char* to_string(OnnxRoute route);

// One node of the model as it is written.
struct OnnxNodeInfo {
  std::string name;     // May be empty.
  std::string op_type;  // Such as "Conv".
  std::string domain;   // Empty for the default domain.
  int64_t opset = 0;    // The version of the domain that the model imports.
  bool is_supported = false;
  std::string reason;  // Why the node cannot be run.
  OnnxRoute route = OnnxRoute::kOp;
};

// What one node did in a run. The counts are those of bp_dispatch_statistics for the calls of the
// node; another thread that uses the device meanwhile adds its own.
struct OnnxNodeRun {
  const OnnxNodeInfo& node;
  int64_t time_ns = 0;  // With the wait for the stream.
  uint64_t native_count = 0, decomposed_count = 0, host_fallback_count = 0;
  bool is_random = false;  // The node drew random numbers.
};

class OnnxModel {
 public:
  // Reads and checks the model at `path`, and copies its weights to `device`. External data must
  // lie in the folder of the model. Unless `needs_support` is false, an operator that is not
  // supported is an error; otherwise only run() refuses it.
  static OnnxModel load(const std::string& path, Device device, bool needs_support = true);

  // Does the same for the bytes of a model. Messages call it `name`. The model may have no external
  // data. `constants` has tensors for inputs of the model, of their dtypes and shapes: they become
  // constants, which run() does not take. The model shares their memory, which nobody may change
  // any more, unless they are on another device.
  static OnnxModel parse(std::string_view bytes, const std::string& name, Device device,
                         bool needs_support = true, const TensorMap& constants = {});

  Device device() const;
  const std::vector<OnnxValueInfo>& inputs() const;
  const std::vector<OnnxValueInfo>& outputs() const;

  // Returns the nodes in the order in which they run. Nodes of subgraphs follow the node that has
  // them.
  const std::vector<OnnxNodeInfo>& nodes() const;

  // Runs the model. `inputs` has a tensor for each required input, of its dtype, and of its shape
  // where the model gives one; tensors of other devices are copied. The observer is called after
  // each node that is no constant, in order; then the stream is waited for after each node.
  using Observer = std::function<void(const OnnxNodeRun&)>;
  TensorMap run(const TensorMap& inputs, const Observer& observer = {}) const;

 private:
  explicit OnnxModel(std::shared_ptr<const onnx::LoadedModel> model) : model_(std::move(model)) {}
  std::shared_ptr<const onnx::LoadedModel> model_;
};

// Reads a file of one tensor, as the data sets of ONNX's tests have them (a TensorProto). External
// data is refused.
Tensor load_onnx_tensor(const std::string& path, Device device = current_device());

// Returns the dtype for a number of TensorProto.DataType, or 0 if there is none.
bp_dtype onnx_dtype(int32_t data_type);

}  // namespace bp
