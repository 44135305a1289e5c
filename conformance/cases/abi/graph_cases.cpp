// Cases for the captures of api/include/backplane/graph.h. Work is copies and fills, which every
// device has; op_graph_rule.cpp has the cases for the kernels of each op.
#include <atomic>
#include <string>

#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/graph_fixtures.hpp"

namespace bp::conformance {
namespace {

// ---- What a capture takes -----------------------------------------------------------------------

void captured_work_does_not_run(Context& t) {
  graph_table(t);
  CopySetting s(t);
  const OwnedGraph graph = s.copying(t);
  t.expect(read(t, s.stream.get(), s.to) == bytes_of(0), "captured work did not run");
  copy(t, s.stream.get(), s.to, s.from);
  t.expect(read(t, s.stream.get(), s.to) == s.bytes, "after the capture the stream runs work");
}

void illegal_calls_leave_a_capture_valid(Context& t) {
  const bp_graph_ops& graphs = graph_table(t);
  CopySetting s(t);
  const OwnedInstance other = instantiate(t, s.copying(t));
  const OwnedEvent outside = make_event(t);
  const OwnedStream elsewhere = make_stream(t);
  record(t, outside, elsewhere.get());
  finish(t, elsewhere.get());
  Capturing capture(t, s.stream.get());
  copy(t, s.stream.get(), s.to, s.from);

  const bp_stream_ops& streams = *t.target().streams;
  const bp_allocator_ops& memory = *t.target().allocator;
  bp_stream* const stream = s.stream.get();
  uint32_t done = 7;
  std::atomic<bool> ran = false;
  std::vector<uint8_t> host = bytes_of(9);
  const auto refused = [&](bp_status status, const char* what) {
    t.expect_refused(status, BP_INVALID_ARGUMENT, what);
    const bp_capture_info info = capture.info();
    t.expect_eq(info.node_count, uint64_t{1}, std::string("nodes after ") + what);
    t.expect_eq(info.is_valid, 1u, std::string("is_valid after ") + what);
  };
  refused(streams.query(streams.self, stream, &done), "query");
  refused(streams.synchronize(streams.self, stream, kTimeoutNs), "synchronize");
  refused(streams.flush(streams.self, stream), "flush");
  refused(streams.add_callback(
              streams.self, stream,
              [](void* data, bp_status) { *static_cast<std::atomic<bool>*>(data) = true; }, &ran),
          "add_callback");
  refused(streams.destroy(streams.self, stream), "stream.destroy");
  refused(streams.wait_event(streams.self, stream, outside.get()),
          "wait for an event recorded outside");
  refused(memory.copy_from_host(memory.self, stream, &s.to, host.data(), BP_BORROW_DURING_CALL),
          "copy_from_host");
  refused(memory.copy_to_host(memory.self, stream, host.data(), &s.to, BP_BORROW_DURING_CALL,
                              UINT64_MAX),
          "copy_to_host");
  refused(memory.deallocate(memory.self, s.to_buffer.get(), stream),
          "deallocate in the order of the stream");
  refused(graphs.launch(graphs.self, other.get(), stream), "launch of a graph");
  t.expect(done == 7 && host == bytes_of(9), "out parameters after refusals");

  const OwnedInstance instance = instantiate(t, capture.end());
  t.expect(!ran, "a refused callback does not run");
  t.expect(read(t, stream, s.to) == bytes_of(0), "nothing that was refused ran");
  replay(t, instance, stream);
  t.expect(read(t, stream, s.to) == s.bytes, "the capture went on");
}

void second_capture_is_refused(Context& t) {
  const bp_graph_ops& graphs = graph_table(t);
  CopySetting s(t);
  Capturing capture(t, s.stream.get());
  t.expect_refused(graphs.begin_capture(graphs.self, s.stream.get(), nullptr), BP_INVALID_ARGUMENT,
                   "begin_capture on a capturing stream");
  copy(t, s.stream.get(), s.to, s.from);
  t.expect_eq(capture.info().node_count, uint64_t{1}, "nodes of the first capture");
  capture.end();
}

void failed_stream_is_refused(Context& t) {
  const bp_graph_ops& graphs = graph_table(t);
  const bp_stream_ops& streams = *t.target().streams;
  const OwnedStream stream = make_failed_stream(t, BP_ABORTED);
  t.expect_refused(graphs.begin_capture(graphs.self, stream.get(), nullptr), BP_STREAM_FAILED,
                   "begin_capture on a failed stream");
  t.expect(!is_capturing(t, stream.get()), "the stream does not capture");
  t.require_ok(streams.clear_failure(streams.self, stream.get()), "clear_failure");
  Capturing(t, stream.get()).end();
}

void only_the_stream_captures(Context& t) {
  graph_table(t);
  CopySetting s(t);
  const OwnedStream other = make_stream(t);
  Capturing capture(t, s.stream.get());
  t.expect(is_capturing(t, s.stream.get()), "is_capturing of the stream");
  t.expect(!is_capturing(t, other.get()), "is_capturing of another stream");
  copy(t, other.get(), s.to, s.from);
  t.expect(read(t, other.get(), s.to) == s.bytes,
           "the bytes that another stream wrote during the capture");
  t.expect_eq(capture.info().node_count, uint64_t{0}, "nodes");
  capture.end();
  t.expect(!is_capturing(t, s.stream.get()), "is_capturing after the end");
}

void capture_info_tells_captures_apart(Context& t) {
  const bp_graph_ops& graphs = graph_table(t);
  const OwnedStream stream = make_stream(t);
  bp_capture_info info{.struct_size = sizeof(info), .struct_type = BP_STRUCT_CAPTURE_INFO};
  info.capture_id = 7;
  t.require_ok(graphs.capture_info(graphs.self, stream.get(), &info), "capture_info");
  t.expect_eq(info.capture_id, uint64_t{0}, "capture_id of a stream that does not capture");
  uint64_t last_id = 0;
  for (int i = 0; i < 3; ++i) {
    Capturing capture(t, stream.get());
    info = capture.info();
    t.expect(info.capture_id != 0 && info.capture_id != last_id, "each capture has an id");
    t.expect_eq(info.is_origin, 1u, "is_origin of the stream where the capture began");
    last_id = info.capture_id;
  }
}

// ---- Several streams ----------------------------------------------------------------------------

// The copy from -> middle runs on the origin, and middle -> to on another stream, which is joined
// again.
void streams_join_a_capture(Context& t) {
  graph_table(t);
  CopySetting s(t);
  const OwnedStream side = make_stream(t);
  const OwnedBuffer middle_buffer = make_buffer(t, kCopyBytes);
  const bp_buffer_ref middle = range(middle_buffer, 0, kCopyBytes);
  write(t, side.get(), middle, bytes_of(1));
  const OwnedEvent forked = make_event(t), joined = make_event(t);
  Capturing capture(t, s.stream.get());
  copy(t, s.stream.get(), middle, s.from);
  record(t, forked, s.stream.get());
  wait(t, side.get(), forked);
  t.expect(is_capturing(t, side.get()), "a stream that waits captures");
  copy(t, side.get(), s.to, middle);
  record(t, joined, side.get());
  wait(t, s.stream.get(), joined);
  fill(t, s.stream.get(), middle, 3);
  t.expect_eq(capture.info().node_count, uint64_t{3}, "nodes");
  const OwnedInstance instance = instantiate(t, capture.end());
  t.expect(!is_capturing(t, side.get()), "the other stream runs work again");
  t.expect(read(t, side.get(), s.to) == bytes_of(0), "nothing ran");
  replay(t, instance, s.stream.get());
  t.expect(read(t, s.stream.get(), s.to) == s.bytes, "the bytes that the second stream read");
  t.expect(read(t, s.stream.get(), middle) == bytes_of(3),
           "the bytes after the work behind both streams");
}

void unjoined_stream_ends_in_an_error(Context& t) {
  const bp_graph_ops& graphs = graph_table(t);
  CopySetting s(t);
  const OwnedStream side = make_stream(t);
  const OwnedEvent forked = make_event(t), joined = make_event(t);
  for (const bool is_joined_early : {false, true}) {
    Capturing capture(t, s.stream.get());
    record(t, forked, s.stream.get());
    wait(t, side.get(), forked);
    if (is_joined_early) {
      record(t, joined, side.get());
      wait(t, s.stream.get(), joined);
    }
    copy(t, side.get(), s.to, s.from);  // If there is a join, this copy comes after it.
    bp_graph* graph = t.sentinel<bp_graph>();
    t.expect_refused(
        graphs.end_capture(graphs.self, s.stream.get(), &graph), BP_INVALID_ARGUMENT,
        is_joined_early ? "end_capture with work behind the join" : "end_capture without a join");
    t.expect_eq(graph, t.sentinel<bp_graph>(), "out_graph after a failure");
    t.expect(!is_capturing(t, s.stream.get()) && !is_capturing(t, side.get()),
             "the capture is gone from both streams");
    t.expect(read(t, side.get(), s.to) == bytes_of(0), "nothing ran");
  }
  copy(t, side.get(), s.to, s.from);
  t.expect(read(t, side.get(), s.to) == s.bytes, "the streams run work as before");
}

void end_belongs_to_the_origin(Context& t) {
  const bp_graph_ops& graphs = graph_table(t);
  CopySetting s(t);
  const OwnedStream side = make_stream(t), other = make_stream(t);
  const OwnedEvent forked = make_event(t), joined = make_event(t);
  Capturing capture(t, s.stream.get());
  record(t, forked, s.stream.get());
  wait(t, side.get(), forked);
  bp_graph* graph = nullptr;
  t.expect_refused(graphs.end_capture(graphs.self, side.get(), &graph), BP_INVALID_ARGUMENT,
                   "end_capture on a stream that joined");
  t.expect_refused(graphs.end_capture(graphs.self, other.get(), &graph), BP_INVALID_ARGUMENT,
                   "end_capture on a stream that does not capture");
  bp_capture_info info{.struct_size = sizeof(info), .struct_type = BP_STRUCT_CAPTURE_INFO};
  t.require_ok(graphs.capture_info(graphs.self, side.get(), &info), "capture_info");
  t.expect_eq(info.is_origin, 0u, "is_origin of a stream that joined");
  t.expect_eq(info.capture_id, capture.info().capture_id, "capture_id of a stream that joined");
  record(t, joined, side.get());
  wait(t, s.stream.get(), joined);
  capture.end();
}

// ---- The end of a capture -----------------------------------------------------------------------

void abandoned_capture_leaves_nothing(Context& t) {
  graph_table(t);
  CopySetting s(t);
  const OwnedStream side = make_stream(t);
  const OwnedEvent forked = make_event(t);
  for (int i = 0; i < 100; ++i) {
    Capturing capture(t, s.stream.get(), {s.from});
    copy(t, s.stream.get(), s.to, s.from);
    record(t, forked, s.stream.get());
    wait(t, side.get(), forked);
    fill(t, side.get(), s.to, 5);
    capture.abandon();
  }
  t.expect(!is_capturing(t, s.stream.get()) && !is_capturing(t, side.get()),
           "the streams do not capture");
  t.expect(read(t, s.stream.get(), s.to) == bytes_of(0), "nothing of the captures ran");
  record(t, forked, side.get());
  wait(t, s.stream.get(), forked);
  copy(t, s.stream.get(), s.to, s.from);
  t.expect(read(t, s.stream.get(), s.to) == s.bytes, "streams and events work as before");
}

void instance_outlives_its_graph(Context& t) {
  graph_table(t);
  CopySetting s(t);
  OwnedGraph graph = s.copying(t);
  const OwnedInstance instance = instantiate(t, graph), second = instantiate(t, graph);
  graph.reset();
  replay(t, instance, s.stream.get());
  t.expect(read(t, s.stream.get(), s.to) == s.bytes, "a replay after the end of the graph");
  write(t, s.stream.get(), s.to, bytes_of(0));
  replay(t, second, s.stream.get());
  t.expect(read(t, s.stream.get(), s.to) == s.bytes, "a replay of another instance");
}

}  // namespace

void add_graph_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "graph",
      {
          {"captured_work_does_not_run", {"GRAPH-4"}, captured_work_does_not_run},
          {"illegal_calls_leave_a_capture_valid", {"GRAPH-1"}, illegal_calls_leave_a_capture_valid},
          {"second_capture_is_refused", {"GRAPH-2"}, second_capture_is_refused},
          {"failed_stream_is_refused", {"GRAPH-2"}, failed_stream_is_refused},
          {"only_the_stream_captures", {"STREAM-18"}, only_the_stream_captures},
          {"capture_info_tells_captures_apart", {"GRAPH-4"}, capture_info_tells_captures_apart},
          {"streams_join_a_capture", {"GRAPH-8", "STREAM-18"}, streams_join_a_capture},
          {"unjoined_stream_ends_in_an_error",
           {"GRAPH-3", "GRAPH-4"},
           unjoined_stream_ends_in_an_error},
          {"end_belongs_to_the_origin", {"GRAPH-3"}, end_belongs_to_the_origin},
          {"abandoned_capture_leaves_nothing", {"GRAPH-4"}, abandoned_capture_leaves_nothing},
          {"instance_outlives_its_graph", {"GRAPH-5"}, instance_outlives_its_graph},
      });
}

}  // namespace bp::conformance
