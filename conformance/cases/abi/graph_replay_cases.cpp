// Cases for the slots and replays of api/include/backplane/graph.h.
#include <algorithm>
#include <string>

#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/graph_fixtures.hpp"

namespace bp::conformance {
namespace {

// ---- Slots --------------------------------------------------------------------------------------

void submitted_replay_keeps_its_ranges(Context& t) {
  const bp_graph_ops& graphs = graph_table(t);
  CopySetting s(t);
  const OwnedBuffer spare = make_buffer(t, 3 * kCopyBytes);
  const std::vector<uint8_t> first = random_bytes(t, kCopyBytes, 1),
                             second = random_bytes(t, kCopyBytes, 2);
  const bp_buffer_ref inputs[] = {range(spare, 0, kCopyBytes),
                                  range(spare, kCopyBytes, kCopyBytes)};
  const bp_buffer_ref output = range(spare, 2 * kCopyBytes, kCopyBytes);
  write(t, s.stream.get(), inputs[0], first);
  write(t, s.stream.get(), inputs[1], second);
  const OwnedInstance instance = instantiate(t, s.copying(t, {s.from, s.to}));
  Gate gate(t);
  gate.hold(s.stream.get());
  t.require_ok(graphs.bind(graphs.self, instance.get(), 0, &inputs[0]), "bind");
  replay(t, instance, s.stream.get());
  t.require_ok(graphs.bind(graphs.self, instance.get(), 0, &inputs[1]), "bind");
  t.require_ok(graphs.bind(graphs.self, instance.get(), 1, &output), "bind");
  replay(t, instance, s.stream.get());
  gate.open();
  t.expect(read(t, s.stream.get(), s.to) == first, "the first replay kept its ranges");
  t.expect(read(t, s.stream.get(), output) == second, "the second has the new ones");
  t.expect(read(t, s.stream.get(), s.from) == s.bytes, "the slot's own range is left alone");
}

// A slot is a range: work inside the range moves with it, and work beside it stays.
void parts_of_a_slot_move_with_it(Context& t) {
  const bp_graph_ops& graphs = graph_table(t);
  CopySetting s(t);
  const OwnedBuffer spare = make_buffer(t, 2 * kCopyBytes);
  write(t, s.stream.get(), range(spare, 0, 2 * kCopyBytes),
        std::vector<uint8_t>(2 * kCopyBytes, 0));
  Capturing capture(t, s.stream.get(), {range(s.to_buffer, 1024, 2048)});
  fill(t, s.stream.get(), range(s.to_buffer, 0, 1024), 1);
  fill(t, s.stream.get(), range(s.to_buffer, 1024, 1024), 2);
  fill(t, s.stream.get(), range(s.to_buffer, 2048, 1024), 3);
  const OwnedInstance instance = instantiate(t, capture.end());
  const bp_buffer_ref bound = range(spare, 4096, 2048);
  t.require_ok(graphs.bind(graphs.self, instance.get(), 0, &bound), "bind");
  replay(t, instance, s.stream.get());
  std::vector<uint8_t> beside = bytes_of(0), inside(2048, 2);
  std::fill_n(beside.begin(), 1024, uint8_t{1});
  std::fill_n(inside.begin() + 1024, 1024, uint8_t{3});
  t.expect(read(t, s.stream.get(), s.to) == beside, "beside the slot, and in its own range");
  t.expect(read(t, s.stream.get(), bound) == inside, "in the range that was bound");
}

void wrong_slots_are_refused(Context& t) {
  const bp_graph_ops& graphs = graph_table(t);
  CopySetting s(t);
  const bp_buffer_ref overlapping[] = {range(s.to_buffer, 0, 1024), range(s.to_buffer, 512, 1024)};
  const bp_buffer_ref outside = range(s.to_buffer, 1, kCopyBytes);
  bp_capture_desc desc{.struct_size = sizeof(desc),
                       .struct_type = BP_STRUCT_CAPTURE_DESC,
                       .slots = overlapping,
                       .slot_count = 2};
  t.expect_refused(graphs.begin_capture(graphs.self, s.stream.get(), &desc), BP_INVALID_ARGUMENT,
                   "slots that overlap");
  desc.slots = &outside;
  desc.slot_count = 1;
  t.expect_refused(graphs.begin_capture(graphs.self, s.stream.get(), &desc), BP_INVALID_ARGUMENT,
                   "a slot that leaves its buffer");
  t.expect(!is_capturing(t, s.stream.get()), "the stream does not capture");

  const OwnedInstance instance = instantiate(t, s.copying(t, {s.from}));
  const bp_buffer_ref small = range(s.to_buffer, 0, kCopyBytes - 1);
  t.expect_refused(graphs.bind(graphs.self, instance.get(), 1, &s.to), BP_INVALID_ARGUMENT,
                   "bind of a slot that is not there");
  t.expect_refused(graphs.bind(graphs.self, instance.get(), 0, &small), BP_INVALID_ARGUMENT,
                   "bind of a range that is too small");
  t.expect_refused(graphs.bind(graphs.self, instance.get(), 0, nullptr), BP_INVALID_ARGUMENT,
                   "bind of NULL");
  replay(t, instance, s.stream.get());
  t.expect(read(t, s.stream.get(), s.to) == s.bytes, "the instance is as it was");
}

// ---- Replays ------------------------------------------------------------------------------------

void update_takes_a_graph_of_the_same_shape(Context& t) {
  const bp_graph_ops& graphs = graph_table(t);
  CopySetting s(t);
  const OwnedBuffer spare = make_buffer(t, kCopyBytes);
  const bp_buffer_ref other = range(spare, 0, kCopyBytes);
  const OwnedInstance instance = instantiate(t, s.copying(t));
  Capturing same(t, s.stream.get());
  copy(t, s.stream.get(), other, s.from);
  const OwnedGraph moved = same.end();
  t.require_ok(graphs.update(graphs.self, instance.get(), moved.get()), "update");
  replay(t, instance, s.stream.get());
  t.expect(read(t, s.stream.get(), other) == s.bytes, "a replay after an update");
  t.expect(read(t, s.stream.get(), s.to) == bytes_of(0), "the old arguments are gone");

  Capturing different(t, s.stream.get());
  fill(t, s.stream.get(), other, 8);
  const OwnedGraph filling = different.end();
  t.expect_refused(graphs.update(graphs.self, instance.get(), filling.get()), BP_UNSUPPORTED,
                   "update with another kind of work");
  Capturing longer(t, s.stream.get());
  copy(t, s.stream.get(), s.to, s.from);
  copy(t, s.stream.get(), s.to, s.from);
  const OwnedGraph two = longer.end();
  t.expect_refused(graphs.update(graphs.self, instance.get(), two.get()), BP_UNSUPPORTED,
                   "update with more work");
  write(t, s.stream.get(), other, bytes_of(0));
  replay(t, instance, s.stream.get());
  t.expect(read(t, s.stream.get(), other) == s.bytes, "the instance is as it was");
}

// The chain to -> middle -> to, with a fill in between, must use the current contents of memory.
void replay_reads_what_memory_holds_now(Context& t) {
  graph_table(t);
  CopySetting s(t);
  const OwnedBuffer middle_buffer = make_buffer(t, kCopyBytes);
  const bp_buffer_ref middle = range(middle_buffer, 0, kCopyBytes);
  Capturing capture(t, s.stream.get());
  copy(t, s.stream.get(), middle, s.from);
  fill(t, s.stream.get(), s.from, 6);
  copy(t, s.stream.get(), s.to, middle);
  const OwnedInstance instance = instantiate(t, capture.end());
  for (uint64_t round = 1; round <= 3; ++round) {
    const std::vector<uint8_t> bytes = random_bytes(t, kCopyBytes, round);
    write(t, s.stream.get(), s.from, bytes);
    replay(t, instance, s.stream.get());
    t.expect(read(t, s.stream.get(), s.to) == bytes,
             "the bytes that the captured calls would give");
    t.expect(read(t, s.stream.get(), s.from) == bytes_of(6), "the bytes of the fill in between");
  }
  replay(t, instance, s.stream.get());
  replay(t, instance, s.stream.get());
  t.expect(read(t, s.stream.get(), s.to) == bytes_of(6), "two replays without a wait");
}

void replays_of_an_instance_are_ordered(Context& t) {
  graph_table(t);
  const bp_stream_ops& streams = *t.target().streams;
  CopySetting s(t);
  const OwnedStream second = make_stream(t);
  const OwnedInstance instance = instantiate(t, s.copying(t));
  Gate gate(t);
  gate.hold(s.stream.get());
  replay(t, instance, s.stream.get());
  replay(t, instance, second.get());
  t.expect_refused(streams.synchronize(streams.self, second.get(), kMomentNs), BP_TIMEOUT,
                   "a replay behind one that is held back");
  gate.open();
  finish(t, second.get());
  t.expect(read(t, second.get(), s.to) == s.bytes, "both ran");
}

void submitted_replays_outlive_their_handles(Context& t) {
  const bp_graph_ops& graphs = graph_table(t);
  t.expect_eq(graphs.destroy(graphs.self, nullptr), BP_OK, "destroy(NULL)");
  t.expect_eq(graphs.destroy_instance(graphs.self, nullptr), BP_OK, "destroy_instance(NULL)");
  CopySetting s(t);
  OwnedGraph graph = s.copying(t);
  OwnedInstance instance = instantiate(t, graph);
  Gate gate(t);
  gate.hold(s.stream.get());
  replay(t, instance, s.stream.get());
  instance.reset();
  graph.reset();
  gate.open();
  t.expect(read(t, s.stream.get(), s.to) == s.bytes, "a replay whose handles have ended");
}

void failed_stream_refuses_replays(Context& t) {
  const bp_graph_ops& graphs = graph_table(t);
  CopySetting s(t);
  const OwnedInstance instance = instantiate(t, s.copying(t));
  const OwnedStream failed = make_failed_stream(t, BP_ABORTED);
  t.expect_refused(graphs.launch(graphs.self, instance.get(), failed.get()), BP_STREAM_FAILED,
                   "launch on a failed stream");
  t.expect(read(t, s.stream.get(), s.to) == bytes_of(0), "nothing ran");
  replay(t, instance, s.stream.get());
  t.expect(read(t, s.stream.get(), s.to) == s.bytes, "on another stream it runs");
}

void dump_has_a_line_for_each_node(Context& t) {
  const bp_graph_ops& graphs = graph_table(t);
  CopySetting s(t);
  Capturing capture(t, s.stream.get());
  for (int i = 0; i < 3; ++i) fill(t, s.stream.get(), s.to, 1);
  const OwnedGraph graph = capture.end();
  uint64_t size = 0;
  t.require_ok(graphs.dump(graphs.self, graph.get(), 0, nullptr, &size), "dump");
  t.require(size > 1, "the size of the dump");
  const uint64_t whole = size;
  std::string text(size + 4, '#');
  t.require_ok(graphs.dump(graphs.self, graph.get(), size, text.data(), &size), "dump");
  t.require(size == whole, "both calls give one size of the dump");
  t.expect_eq(text.substr(size), std::string(4, '#'), "the bytes behind the dump");
  t.expect_eq(text.find('\0'), size_t{size - 1}, "the position of the end of the dump");
  t.expect(std::ranges::count(text, '\n') >= 2, "a line for each node");
  std::string cut(4, '#');
  t.require_ok(graphs.dump(graphs.self, graph.get(), 3, cut.data(), &size), "dump that is cut");
  t.expect_eq(cut, text.substr(0, 2) + '\0' + '#', "a dump that is cut");
  t.expect_eq(size, whole, "the size where the dump is cut");
}

void null_arguments_are_refused(Context& t) {
  const bp_graph_ops& g = graph_table(t);
  CopySetting s(t);
  const OwnedGraph graph = s.copying(t);
  const OwnedInstance instance = instantiate(t, graph);
  bp_graph_instance* out = nullptr;
  const auto refused = [&](bp_status status, const char* what) {
    t.expect_refused(status, BP_INVALID_ARGUMENT, what);
  };
  refused(g.begin_capture(g.self, nullptr, nullptr), "begin_capture: stream");
  refused(g.capture_info(g.self, s.stream.get(), nullptr), "capture_info: out_info");
  refused(g.end_capture(g.self, nullptr, nullptr), "end_capture: stream");
  refused(g.instantiate(g.self, nullptr, &out), "instantiate: graph");
  refused(g.instantiate(g.self, graph.get(), nullptr), "instantiate: out_instance");
  refused(g.bind(g.self, nullptr, 0, &s.to), "bind: instance");
  refused(g.update(g.self, nullptr, graph.get()), "update: instance");
  refused(g.update(g.self, instance.get(), nullptr), "update: graph");
  refused(g.launch(g.self, nullptr, s.stream.get()), "launch: instance");
  refused(g.launch(g.self, instance.get(), nullptr), "launch: stream");
  refused(g.dump(g.self, graph.get(), 0, nullptr, nullptr), "dump: out_size");
}

}  // namespace

void add_graph_replay_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "graph",
      {
          {"submitted_replay_keeps_its_ranges", {"GRAPH-6"}, submitted_replay_keeps_its_ranges},
          {"parts_of_a_slot_move_with_it", {"GRAPH-8"}, parts_of_a_slot_move_with_it},
          {"wrong_slots_are_refused", {"GRAPH-6", "ERROR-1"}, wrong_slots_are_refused},
          {"update_takes_a_graph_of_the_same_shape",
           {"GRAPH-7"},
           update_takes_a_graph_of_the_same_shape},
          {"replay_reads_what_memory_holds_now", {"GRAPH-8"}, replay_reads_what_memory_holds_now},
          {"replays_of_an_instance_are_ordered", {"GRAPH-9"}, replays_of_an_instance_are_ordered},
          {"submitted_replays_outlive_their_handles",
           {"GRAPH-10"},
           submitted_replays_outlive_their_handles},
          {"failed_stream_refuses_replays", {"STREAM-8"}, failed_stream_refuses_replays},
          {"dump_has_a_line_for_each_node", {"GRAPH-1"}, dump_has_a_line_for_each_node},
          {"null_arguments_are_refused", {"ERROR-3"}, null_arguments_are_refused},
      });
}

}  // namespace bp::conformance
