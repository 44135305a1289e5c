#include "conformance/cases/graph_fixtures.hpp"

namespace bp::conformance {

const bp_graph_ops& graph_table(Context& t) {
  if ((t.target().table_mask >> BP_STRUCT_GRAPH_OPS & 1) == 0) {
    t.not_supported("the device has no table of graphs");
  }
  return *t.target().graphs;
}

Capturing::Capturing(Context& t, bp_stream* stream, const std::vector<bp_buffer_ref>& slots)
    : context_(t), ops_(graph_table(t)), stream_(stream) {
  const bp_capture_desc desc{.struct_size = sizeof(desc),
                             .struct_type = BP_STRUCT_CAPTURE_DESC,
                             .slots = slots.data(),
                             .slot_count = slots.size()};
  t.require_ok(ops_.begin_capture(ops_.self, stream, &desc), "begin_capture");
}

Capturing::~Capturing() {
  if (is_on_) static_cast<void>(ops_.end_capture(ops_.self, stream_, nullptr));
}

bp_capture_info Capturing::info() const {
  bp_capture_info info{.struct_size = sizeof(info), .struct_type = BP_STRUCT_CAPTURE_INFO};
  context_.require_ok(ops_.capture_info(ops_.self, stream_, &info), "capture_info");
  return info;
}

OwnedGraph Capturing::end() {
  bp_graph* graph = nullptr;
  is_on_ = false;
  context_.require_ok(ops_.end_capture(ops_.self, stream_, &graph), "end_capture");
  return OwnedGraph(graph, {&ops_});
}

void Capturing::abandon() {
  is_on_ = false;
  context_.require_ok(ops_.end_capture(ops_.self, stream_, nullptr), "end_capture without a graph");
}

OwnedInstance instantiate(Context& t, const OwnedGraph& graph) {
  const bp_graph_ops& ops = graph_table(t);
  bp_graph_instance* instance = nullptr;
  t.require_ok(ops.instantiate(ops.self, graph.get(), &instance), "instantiate");
  return OwnedInstance(instance, {&ops});
}

void replay(Context& t, const OwnedInstance& instance, bp_stream* stream) {
  const bp_graph_ops& ops = graph_table(t);
  t.require_ok(ops.launch(ops.self, instance.get(), stream), "graph.launch");
}

bool is_capturing(Context& t, bp_stream* stream) {
  const bp_stream_ops& streams = *t.target().streams;
  uint32_t is = 7;
  t.require_ok(streams.is_capturing(streams.self, stream, &is), "is_capturing");
  t.require(is <= 1, "is_capturing gives 0 or 1");
  return is == 1;
}

void copy(Context& t, bp_stream* stream, const bp_buffer_ref& to, const bp_buffer_ref& from) {
  const bp_allocator_ops& memory = *t.target().allocator;
  t.require_ok(memory.copy(memory.self, stream, &to, &from), "copy");
}

void fill(Context& t, bp_stream* stream, const bp_buffer_ref& to, uint8_t byte) {
  const bp_allocator_ops& memory = *t.target().allocator;
  t.require_ok(memory.fill(memory.self, stream, &to, &byte, 1), "fill");
}

void record(Context& t, const OwnedEvent& event, bp_stream* stream) {
  const bp_event_ops& events = *t.target().events;
  t.require_ok(events.record(events.self, event.get(), stream), "record");
}

void wait(Context& t, bp_stream* stream, const OwnedEvent& event) {
  const bp_stream_ops& streams = *t.target().streams;
  t.require_ok(streams.wait_event(streams.self, stream, event.get()), "wait_event");
}

std::vector<uint8_t> bytes_of(uint8_t byte) { return std::vector<uint8_t>(kCopyBytes, byte); }

CopySetting::CopySetting(Context& t)
    : stream(make_stream(t)),
      from_buffer(make_buffer(t, kCopyBytes)),
      to_buffer(make_buffer(t, kCopyBytes)),
      from(range(from_buffer, 0, kCopyBytes)),
      to(range(to_buffer, 0, kCopyBytes)),
      bytes(random_bytes(t, kCopyBytes)) {
  write(t, stream.get(), from, bytes);
  write(t, stream.get(), to, bytes_of(0));
}

OwnedGraph CopySetting::copying(Context& t, const std::vector<bp_buffer_ref>& slots) const {
  Capturing capture(t, stream.get(), slots);
  copy(t, stream.get(), to, from);
  return capture.end();
}

}  // namespace bp::conformance
