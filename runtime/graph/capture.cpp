#include "backplane/runtime/capture.hpp"

#include <utility>

#include "backplane/runtime/error.hpp"
#include "runtime/tensor/tensor_impl.hpp"

namespace bp {
namespace {

// Returns the memory of a tensor as one range.
bp_buffer_ref range_of(const char* call, const Tensor& tensor) {
  if (!tensor.is_contiguous()) {
    detail::fail(std::string(call) + ": the tensor has the shape " + to_string(tensor.shape()) +
                 " and the strides " + to_string(tensor.strides()) +
                 "; allowed: row-major elements without gaps, as contiguous() returns them");
  }
  return {tensor.get()->buffer, tensor.get()->byte_offset, tensor.size_bytes()};
}

}  // namespace

void CapturedGraph::Destroy::operator()(bp_captured_graph* graph) const {
  bp_captured_graph_destroy(graph);
}

void CapturedGraph::launch() const {
  check(bp_captured_graph_launch(graph_.get(), current_stream(device_.target())),
        "CapturedGraph::launch");
}

void CapturedGraph::bind(uint64_t slot, const Tensor& tensor) const {
  const bp_buffer_ref range = range_of("CapturedGraph::bind", tensor);
  check(bp_captured_graph_bind(graph_.get(), slot, &range), "CapturedGraph::bind");
}

bp_captured_graph_info CapturedGraph::info() const {
  bp_captured_graph_info info{};
  info.struct_size = sizeof(info);
  info.struct_type = BP_STRUCT_CAPTURED_GRAPH_INFO;
  check(bp_captured_graph_get_info(graph_.get(), &info), "CapturedGraph::info");
  return info;
}

Capture::Capture(Device device, const std::vector<Tensor>& slots, CaptureKind kind)
    : device_(device) {
  std::vector<bp_buffer_ref> ranges;
  ranges.reserve(slots.size());
  for (const Tensor& slot : slots) ranges.push_back(range_of("Capture", slot));
  bp_capture_desc desc{};
  desc.struct_size = sizeof(desc);
  desc.struct_type = BP_STRUCT_CAPTURE_DESC;
  desc.slots = ranges.data();
  desc.slot_count = ranges.size();
  const bp_target& target = device.target();
  const bool is_program = kind == CaptureKind::program;
  const auto begin = is_program ? bp_capture_begin_program : bp_capture_begin;
  check(begin(&target, current_stream(target), &desc, &capture_), "Capture");
}

Capture::~Capture() {
  if (capture_ != nullptr) bp_capture_end(capture_, nullptr);
}

CapturedGraph Capture::end() {
  if (capture_ == nullptr) detail::fail("Capture::end: the capture has ended already");
  bp_captured_graph* graph = nullptr;
  check(bp_capture_end(std::exchange(capture_, nullptr), &graph), "Capture::end");
  return {device_, graph};
}

}  // namespace bp
