#include "graph.h"

#include "streams.h"

namespace bpt {
namespace {

std::atomic<int> the_count{0};

}  // namespace

int open_capture_count() noexcept { return the_count; }

Graph::~Graph() { reset(); }

void Graph::reset() noexcept {
  abandon();
  if (graph_ != nullptr && !is_in_child()) bp_captured_graph_destroy(graph_);
  graph_ = nullptr;
}

void Graph::begin() {
  require_open();
  TORCH_CHECK(capture_ == nullptr, "torch_backplane: this graph is being captured already.");
  reset();
  device_ = current_device();
  const bp_target* target = device_at(device_).target;
  check(bp_capture_begin(target, current_stream(device_), nullptr, &capture_), "capture_begin");
  ++the_count;
}

void Graph::end() {
  require_open();
  TORCH_CHECK(capture_ != nullptr, "torch_backplane: this graph is not being captured.");
  bp_capture* capture = std::exchange(capture_, nullptr);
  --the_count;
  check(bp_capture_end(capture, &graph_), "capture_end");
}

void Graph::abandon() noexcept {
  if (capture_ == nullptr) return;
  --the_count;
  if (!is_in_child()) bp_capture_end(capture_, nullptr);
  capture_ = nullptr;
}

void Graph::replay() {
  require_open();
  TORCH_CHECK(graph_ != nullptr, "torch_backplane: nothing was captured in this graph yet.");
  check(bp_captured_graph_launch(graph_, current_stream(device_)), "captured_graph_launch");
}

bp_captured_graph_info Graph::info() const {
  TORCH_CHECK(graph_ != nullptr, "torch_backplane: nothing was captured in this graph yet.");
  bp_captured_graph_info info{};
  info.struct_size = sizeof(info);
  info.struct_type = BP_STRUCT_CAPTURED_GRAPH_INFO;
  check(bp_captured_graph_get_info(graph_, &info), "captured_graph_get_info");
  return info;
}

}  // namespace bpt
