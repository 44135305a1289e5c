#include "backends/cuda/graph.hpp"

#include <memory>
#include <utility>

#include "backends/cuda/stream.hpp"
#include "backplane/shell/capture.hpp"

namespace bp::cuda {
namespace {

// An executable CUDA graph. Submissions that are held back keep it alive too.
struct NativeGraph {
  explicit NativeGraph(Device& its_device) : device(its_device) {}
  NativeGraph(const NativeGraph&) = delete;
  ~NativeGraph() {
    if (instance == nullptr) return;
    device.quietly([this](const Driver& driver) { driver.cudaGraphExecDestroy(instance); });
  }

  Device& device;
  cudaGraphExec_t instance = nullptr;
  uint64_t revision = 0;
  std::shared_ptr<BadDataSlot> slot;  // Where its kernels report.
};

// A captured CUDA graph that is not yet executable.
class CapturedGraph {
 public:
  explicit CapturedGraph(const Driver& driver) : driver_(driver) {}
  CapturedGraph(const CapturedGraph&) = delete;
  ~CapturedGraph() {
    if (graph_ != nullptr) driver_.cudaGraphDestroy(graph_);
  }
  cudaGraph_t get() const { return graph_; }
  cudaGraph_t* out() { return &graph_; }

 private:
  const Driver& driver_;
  cudaGraph_t graph_ = nullptr;
};

// Submits the work to the recorder's stream while this stream captures.
bp_status record_works(const Captures& captures, const GraphInstance& instance, Recorder& recorder,
                       CapturedGraph& graph) {
  const Driver& driver = recorder.device().driver();
  const cudaStream_t stream = recorder.lane().native();
  // Libraries may allocate memory meanwhile, which does not concern this stream.
  check(driver, driver.cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed),
        "cudaStreamBeginCapture");
  bp_status status = BP_OK;
  for (size_t k = 0; k < instance.works.size() && status == BP_OK; ++k) {
    status = instance.works[k].submit(captures.backend().memory, recorder.handle());
  }
  const cudaError_t error = driver.cudaStreamEndCapture(stream, graph.out());
  if (status == BP_OK) check(driver, error, "cudaStreamEndCapture");
  if (error != cudaSuccess) driver.cudaGetLastError();
  return status;
}

// Makes the captured work executable. It updates the graph in place unless a replay of it is held
// back.
void make_executable(std::shared_ptr<NativeGraph>& native, Device& device,
                     const CapturedGraph& graph) {
  const Driver& driver = device.driver();
  if (native != nullptr && native.use_count() == 1) {
    cudaGraphExecUpdateResultInfo info{};
    const cudaError_t error = driver.cudaGraphExecUpdate(native->instance, graph.get(), &info);
    if (error == cudaSuccess) return;
    driver.cudaGetLastError();  // The update failed; the graph is made again.
    if (error != cudaErrorGraphExecUpdateFailure) check(driver, error, "cudaGraphExecUpdate");
  }
  auto made = std::make_shared<NativeGraph>(device);
  check(driver, driver.cudaGraphInstantiate(&made->instance, graph.get(), 0),
        "cudaGraphInstantiate");
  native = std::move(made);
}

// Brings the executable graph of `instance` up to date.
bp_status bring_up_to_date(const Captures& captures, GraphInstance& instance, Device& device) {
  auto native = std::static_pointer_cast<NativeGraph>(std::exchange(instance.native, nullptr));
  const bool has_reported = native != nullptr && native->slot->reported() != 0;
  if (native == nullptr || native->revision != instance.revision || has_reported) {
    Recorder recorder(device);
    CapturedGraph graph(device.driver());
    const bp_status status = record_works(captures, instance, recorder, graph);
    if (status != BP_OK) return status;
    make_executable(native, device, graph);
    native->revision = instance.revision;
    native->slot = recorder.slot();
  }
  instance.native = std::move(native);
  return BP_OK;
}

}  // namespace

bp_status replay(const Instance& i, GraphInstance& instance, bp_stream* handle) {
  Lane& lane = lane_of(handle, "graph.launch");
  try {
    const Current current(lane.device());
    const bp_status status = bring_up_to_date(*i.captures, instance, lane.device());
    if (status != BP_OK) return status;
  } catch (const CudaError& e) {
    lane.device().note(e);
    throw;
  }
  return lane.submit([&lane, native = std::static_pointer_cast<NativeGraph>(instance.native)] {
    const Driver& driver = lane.device().driver();
    check(driver, driver.cudaGraphLaunch(native->instance, lane.native()), "cudaGraphLaunch");
    if (native->slot->last() != 0) lane.inherit({{native->slot, native->slot->last()}});
  });
}

}  // namespace bp::cuda
