#include "graph.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "streams.h"

namespace bpt {
namespace {

std::atomic<int> the_count{0};

struct Captured {
  std::mutex mutex;
  std::vector<const bp_stream*> streams;
};

Captured& captured() {
  static auto* the_captured = new Captured;
  return *the_captured;
}

}  // namespace

bool is_program_device(c10::DeviceIndex index) {
  const bp_target* target = device_at(index).target;
  if (bp_target_has_table(target, BP_STRUCT_COMPILER_OPS) == 0) return false;
  return bp_target_has_table(target, BP_STRUCT_GRAPH_OPS) == 0 ||
         bp_target_kernel_count(target) == 0;
}

int open_capture_count() noexcept { return the_count; }

bool is_captured(const bp_stream* stream) {
  if (the_count == 0) return false;
  const std::lock_guard lock(captured().mutex);
  const auto& streams = captured().streams;
  return std::find(streams.begin(), streams.end(), stream) != streams.end();
}

Graph::~Graph() { reset(); }

void Graph::reset() noexcept {
  abandon();
  if (graph_ != nullptr && !is_in_child()) bp_captured_graph_destroy(graph_);
  graph_ = nullptr;
}

void Graph::begin(bool as_program) {
  require_open();
  TORCH_CHECK(capture_ == nullptr, "torch_backplane: this graph is being captured already.");
  reset();
  device_ = current_device();
  const bp_target* target = device_at(device_).target;
  stream_ = current_stream(device_);
  const auto begin = as_program ? bp_capture_begin_program : bp_capture_begin;
  check(begin(target, stream_, nullptr, &capture_), "capture_begin");
  ++the_count;
  const std::lock_guard lock(captured().mutex);
  captured().streams.push_back(stream_);
}

void Graph::end() {
  require_open();
  TORCH_CHECK(capture_ != nullptr, "torch_backplane: this graph is not being captured.");
  bp_capture* capture = std::exchange(capture_, nullptr);
  close();
  check(bp_capture_end(capture, &graph_), "capture_end");
}

void Graph::abandon() noexcept {
  if (capture_ == nullptr) return;
  close();
  if (!is_in_child()) bp_capture_end(capture_, nullptr);
  capture_ = nullptr;
}

void Graph::close() {
  --the_count;
  const std::lock_guard lock(captured().mutex);
  auto& streams = captured().streams;
  streams.erase(std::find(streams.begin(), streams.end(), stream_));
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
