// Tests what a graph replays, and on which memory.
#include "backends/shell/capture_test.hpp"

namespace bp {
namespace {

class GraphTest : public CaptureTest {
 protected:
  ~GraphTest() override { EXPECT_EQ(backend.live_event_count, 0) << "an instance was not ended"; }

  bp_status bind(bp_graph_instance* instance, uint64_t slot, const bp_buffer_ref& range) {
    return graphs.bind(graphs.self, instance, slot, &range);
  }
  bp_status update(bp_graph_instance* instance, bp_graph* graph) {
    return graphs.update(graphs.self, instance, graph);
  }
  void destroy(bp_graph_instance* instance) {
    EXPECT_EQ(graphs.destroy_instance(graphs.self, instance), BP_OK) << text;
  }

  // Returns what one replay on `s` submits, without the record behind it.
  Lines work_of(bp_graph_instance* instance) {
    EXPECT_EQ(replay(instance, s), BP_OK) << text;
    Lines lines = take();
    if (!lines.empty()) lines.pop_back();
    return lines;
  }

  // Captures a graph of one fill.
  bp_graph* graph_of_fill(const bp_buffer_ref& range, const std::vector<bp_buffer_ref>& slots = {},
                          uint8_t value = 1) {
    EXPECT_EQ(begin(s, slots), BP_OK);
    EXPECT_EQ(fill(s, range, value), BP_OK);
    return end(s);
  }
};

// ---- Replays ------------------------------------------------------------------------------------

TEST_F(GraphTest, ReplaysInTheOrderOfTheCallsOfAllStreams) {
  ASSERT_EQ(begin(s), BP_OK);
  EXPECT_EQ(fill(s, {x, 0, 16}, 3), BP_OK);
  EXPECT_EQ(record(e, s), BP_OK);
  EXPECT_EQ(wait(t, e), BP_OK);
  EXPECT_EQ(copy(t, {x, 0, 16}, {y, 4, 16}), BP_OK);
  EXPECT_EQ(launch(neg, s, {x, 0, 16}, {z, 0, 16}, {z, 256, 64}), BP_OK);
  EXPECT_EQ(launch(other, t, {y, 4, 12}, {z, 0, 12}), BP_OK);
  EXPECT_EQ(record(e, t), BP_OK);
  EXPECT_EQ(wait(s, e), BP_OK);
  bp_graph_instance* const instance = instantiate(end(s));
  EXPECT_EQ(take(), Lines{});
  const Lines calls = {"u: fill 16 x+0 with 3",          //
                       "u: copy 16 x+0 -> y+4",          //
                       "u: neg 4 x+0 -> z+0 in z+256",   //
                       "u: other 3 y+4 -> z+0 in none",  //
                       "u: record last"};
  EXPECT_EQ(replay(instance, u), BP_OK);
  EXPECT_EQ(take(), calls);
  EXPECT_EQ(replay(instance, u), BP_OK);
  EXPECT_EQ(take(), calls);
  destroy(instance);
}

TEST_F(GraphTest, RunsOneReplayBehindTheOther) {
  bp_graph_instance* const instance = instantiate(graph_of_fill({x, 0, 16}));
  const auto replays_as = [&](FakeStream& stream, const Lines& lines) {
    EXPECT_EQ(replay(instance, stream), BP_OK);
    EXPECT_EQ(take(), lines);
  };
  replays_as(s, {"s: fill 16 x+0 with 1", "s: record last"});
  replays_as(s, {"s: fill 16 x+0 with 1", "s: record last"});
  replays_as(t, {"t: wait last", "t: fill 16 x+0 with 1", "t: record last"});
  u.queue = &t;
  replays_as(u, {"u: fill 16 x+0 with 1", "u: record last"});
  destroy(instance);
}

TEST_F(GraphTest, IsLostByAResetOfItsDevice) {
  const bp_buffer_ref range{x, 0, 16};
  bp_graph* const graph = graph_of_fill(range, {range});
  bp_graph_instance* const instance = instantiate(graph);
  bp_graph_instance* more = nullptr;
  uint64_t size = 0;
  ++backend.generation;
  backend.captures->lose(reinterpret_cast<bp_device*>(&card));
  EXPECT_EQ(graphs.instantiate(graphs.self, graph, &more), BP_DEVICE_LOST);
  EXPECT_EQ(text, "instantiate: the graph was captured before its device was reset");
  EXPECT_EQ(graphs.dump(graphs.self, graph, 0, nullptr, &size), BP_DEVICE_LOST);
  EXPECT_EQ(bind(instance, 0, range), BP_DEVICE_LOST);
  EXPECT_EQ(update(instance, graph), BP_DEVICE_LOST);
  EXPECT_EQ(replay(instance, s), BP_DEVICE_LOST);
  EXPECT_EQ(take(), Lines{}) << "nothing was submitted";
  EXPECT_EQ(graphs.destroy(graphs.self, graph), BP_OK) << text;
  destroy(instance);
}

TEST_F(GraphTest, RefusesStreamsThatItCannotRunOn) {
  bp_graph_instance* const instance = instantiate(graph_of_fill({x, 0, 16}));
  EXPECT_EQ(replay(instance, nullptr), BP_INVALID_ARGUMENT);
  EXPECT_EQ(replay(instance, far), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "graph.launch: stream is NULL or not one of the graph's device");
  ASSERT_EQ(begin(t), BP_OK);
  EXPECT_EQ(replay(instance, t), BP_INVALID_ARGUMENT) << "a graph in a graph";
  EXPECT_EQ(info(t).node_count, 0u);
  EXPECT_EQ(abandon(t), BP_OK);
  ASSERT_EQ(begin(s), BP_OK);
  bp_graph_instance* const empty = instantiate(end(s));
  u.failure = BP_ABORTED;
  for (bp_graph_instance* each : {instance, empty}) EXPECT_EQ(replay(each, u), BP_STREAM_FAILED);
  EXPECT_EQ(take(), Lines{});
  destroy(instance);
  destroy(empty);
}

TEST_F(GraphTest, FailsTheStreamIfTheBackendRefusesInTheMiddle) {
  ASSERT_EQ(begin(s), BP_OK);
  EXPECT_EQ(fill(s, {x, 0, 16}), BP_OK);
  EXPECT_EQ(fill(s, {x, 16, 16}), BP_OK);
  bp_graph* const graph = end(s);
  const auto refuse_call = [&](int index, bp_stream* stream) {
    backend.calls_until_refusal = index;
    bp_graph_instance* const instance = instantiate(graph);
    const bp_status status = replay(instance, stream);
    destroy(instance);
    return status;
  };
  EXPECT_EQ(refuse_call(0, t), BP_OUT_OF_MEMORY);
  EXPECT_EQ(t.failure, BP_OK) << "nothing was submitted, so nothing has failed";
  EXPECT_EQ(take(), Lines{});
  EXPECT_EQ(refuse_call(1, t), BP_OUT_OF_MEMORY);
  EXPECT_EQ(t.failure, BP_OUT_OF_MEMORY);
  const Lines begun = take();
  ASSERT_FALSE(begun.empty());
  EXPECT_EQ(begun.front(), "t: fill 16 x+0 with 1");
  backend.fails_with_refusal = true;
  EXPECT_EQ(refuse_call(1, u), BP_OK) << "work of the replay has failed, and the stream tells";
  EXPECT_EQ(u.failure, BP_ABORTED);
}

TEST_F(GraphTest, LeavesAReplayToABackendThatCan) {
  CaptureBackend with_replay = backend.captures->backend();
  with_replay.replay = [](void* self, GraphInstance& instance, bp_stream* stream) {
    return fake(self).submit(stream, "graph of " + std::to_string(instance.works.size()) +
                                         ", revision " + std::to_string(instance.revision));
  };
  backend.captures = std::make_unique<Captures>(with_replay);
  backend.graphs = backend.captures->graphs();
  bp_graph* const graph = graph_of_fill({x, 0, 16}, {{x, 0, 16}});
  bp_graph_instance* const instance = instantiate(graph);
  EXPECT_EQ(work_of(instance), Lines{"s: graph of 1, revision 0"});
  EXPECT_EQ(work_of(instance), Lines{"s: graph of 1, revision 0"});
  EXPECT_EQ(bind(instance, 0, {y, 0, 16}), BP_OK);
  EXPECT_EQ(work_of(instance), Lines{"s: graph of 1, revision 1"});
  EXPECT_EQ(update(instance, graph), BP_OK);
  EXPECT_EQ(replay(instance, t), BP_OK);
  EXPECT_EQ(take(), (Lines{"t: wait last", "t: graph of 1, revision 2", "t: record last"}));
  destroy(instance);
}

// ---- Slots --------------------------------------------------------------------------------------

TEST_F(GraphTest, ReplaysOnTheRangesThatAreBound) {
  ASSERT_EQ(begin(s, {{x, 256, 64}, {y, 0, 32}}), BP_OK);
  EXPECT_EQ(fill(s, {x, 256, 64}), BP_OK);
  EXPECT_EQ(fill(s, {x, 0, 256}), BP_OK) << "in front of the slot";
  EXPECT_EQ(copy(s, {x, 272, 16}, {y, 8, 16}), BP_OK);
  EXPECT_EQ(launch(neg, s, {y, 16, 16}, {z, 0, 16}, {x, 256, 64}), BP_OK);
  bp_graph_instance* const instance = instantiate(end(s));
  EXPECT_EQ(work_of(instance), (Lines{"s: fill 64 x+256 with 1", "s: fill 256 x+0 with 1",
                                      "s: copy 16 x+272 -> y+8", "s: neg 4 y+16 -> z+0 in x+256"}))
      << "until it is bound a slot is its own range";
  EXPECT_EQ(bind(instance, 0, {z, 512, 128}), BP_OK) << "a longer range will do";
  EXPECT_EQ(work_of(instance), (Lines{"s: fill 64 z+512 with 1", "s: fill 256 x+0 with 1",
                                      "s: copy 16 z+528 -> y+8", "s: neg 4 y+16 -> z+0 in z+512"}));
  EXPECT_EQ(bind(instance, 1, {x, 4, 32}), BP_OK);
  EXPECT_EQ(bind(instance, 0, {y, 0, 64}), BP_OK) << "a slot is bound anew";
  EXPECT_EQ(work_of(instance), (Lines{"s: fill 64 y+0 with 1", "s: fill 256 x+0 with 1",
                                      "s: copy 16 y+16 -> x+12", "s: neg 4 x+20 -> z+0 in y+0"}));
  destroy(instance);
}

TEST_F(GraphTest, BindsTensorsThatReachBackwards) {
  ASSERT_EQ(begin(s, {{x, 16, 16}}), BP_OK);
  const int64_t shape = 4, stride = -1;
  bp_tensor from{}, to{};
  from.shape = to.shape = &shape;
  from.strides = to.strides = &stride;
  from.ndim = to.ndim = 1;
  from.dtype = to.dtype = BP_F32;
  from.buffer = x;
  from.byte_offset = 28;  // It is the last element of the slot.
  to.buffer = y;
  to.byte_offset = 12;
  bp_neg_args args{.struct_size = sizeof(args), .flags = 0, .x = &from, .y = &to};
  bp_launch call{};
  call.stream = s;
  EXPECT_EQ(neg.launch(&neg, &call, &args), BP_OK);
  from.byte_offset = 24;
  EXPECT_EQ(neg.launch(&neg, &call, &args), BP_INVALID_ARGUMENT) << "it begins before the slot";
  bp_graph_instance* const instance = instantiate(end(s));
  EXPECT_EQ(bind(instance, 0, {z, 100, 16}), BP_OK);
  EXPECT_EQ(work_of(instance), Lines{"s: neg 4 z+112 -> y+12 in none"});
  destroy(instance);
}

TEST_F(GraphTest, RefusesRangesThatDoNotFitASlot) {
  neg.min_byte_alignment_bytes = 8;
  ASSERT_EQ(begin(s, {{x, 0, 64}, {y, 0, 64}, {z, 0, 64}}), BP_OK);
  EXPECT_EQ(fill(s, {x, 0, 64}), BP_OK);
  EXPECT_EQ(launch(neg, s, {x, 8, 16}, {z, 1024, 16}, {y, 0, 64}), BP_OK);
  EXPECT_EQ(launch(other, s, {z, 4, 16}, {x, 1024, 16}), BP_OK);
  bp_graph_instance* const instance = instantiate(end(s));
  const Lines before = work_of(instance);
  const auto is_refused = [&](uint64_t slot, const bp_buffer_ref& range, const char* reason) {
    EXPECT_EQ(bind(instance, slot, range), BP_INVALID_ARGUMENT);
    EXPECT_NE(text.find(reason), std::string::npos) << text;
    EXPECT_EQ(work_of(instance), before) << "half of it was bound";
  };
  is_refused(3, {z, 0, 64}, "bind: slot is 3, and the graph has 3");
  is_refused(0, {z, 0, 63}, "bind: range has 63 bytes, and the slot 64");
  is_refused(0, {z, 4090, 64}, "bind: range: 64 bytes at 4090 leave the buffer");
  is_refused(0, {nullptr, 0, 64}, "bind: range: buffer is NULL");
  is_refused(0, {z, 4, 64}, "8 bytes after it at a multiple of 8");
  is_refused(1, {z, 128, 64}, "0 bytes after it at a multiple of 256");
  is_refused(2, {x, 2, 64}, "4 bytes after it at a multiple of 4");
  EXPECT_EQ(graphs.bind(graphs.self, instance, 0, nullptr), BP_INVALID_ARGUMENT);
  destroy(instance);
}

TEST_F(GraphTest, RefusesACopyThatBindingMadeOverlapBeforeItSubmitsAnything) {
  ASSERT_EQ(begin(s, {{x, 0, 32}, {y, 0, 32}}), BP_OK);
  EXPECT_EQ(fill(s, {z, 0, 16}), BP_OK);
  EXPECT_EQ(copy(s, {x, 0, 32}, {y, 0, 32}), BP_OK);
  bp_graph_instance* const instance = instantiate(end(s));
  EXPECT_EQ(bind(instance, 1, {x, 16, 32}), BP_OK);
  EXPECT_EQ(replay(instance, s), BP_INVALID_ARGUMENT);
  EXPECT_NE(text.find("the copy of node 1 overlap"), std::string::npos) << text;
  EXPECT_EQ(take(), Lines{});
  FakeBuffer alias{.name = "alias", .address = x.address + 16};  // It is wrapped around x.
  EXPECT_EQ(bind(instance, 1, {alias, 0, 32}), BP_OK);
  EXPECT_EQ(replay(instance, s), BP_INVALID_ARGUMENT);
  EXPECT_EQ(take(), Lines{});
  EXPECT_EQ(bind(instance, 1, {x, 32, 32}), BP_OK);
  EXPECT_EQ(work_of(instance).back(), "s: copy 32 x+0 -> x+32");
  destroy(instance);
}

TEST_F(GraphTest, BindsOneInstanceAlone) {
  bp_graph* const graph = graph_of_fill({x, 0, 16}, {{x, 0, 16}});
  bp_graph_instance *const first = instantiate(graph), *const second = instantiate(graph);
  EXPECT_EQ(bind(first, 0, {y, 0, 16}), BP_OK);
  EXPECT_EQ(work_of(first), Lines{"s: fill 16 y+0 with 1"});
  EXPECT_EQ(work_of(second), Lines{"s: fill 16 x+0 with 1"});
  destroy(first);
  destroy(second);
}

// ---- Lives --------------------------------------------------------------------------------------

TEST_F(GraphTest, LivesOnInItsInstances) {
  bp_graph* const graph = graph_of_fill({x, 0, 16}, {{x, 0, 16}});
  bp_graph_instance* const instance = instantiate(graph);
  EXPECT_EQ(graphs.destroy(graphs.self, graph), BP_OK);
  EXPECT_EQ(bind(instance, 0, {y, 0, 16}), BP_OK);
  EXPECT_EQ(work_of(instance), Lines{"s: fill 16 y+0 with 1"});
  bp_graph_instance* none = nullptr;
  EXPECT_EQ(graphs.instantiate(graphs.self, graph, &none), BP_INVALID_ARGUMENT);
  EXPECT_EQ(graphs.destroy(graphs.self, graph), BP_INVALID_ARGUMENT) << "it has ended";
  EXPECT_EQ(update(instance, graph), BP_INVALID_ARGUMENT);
  destroy(instance);
  EXPECT_EQ(replay(instance, s), BP_INVALID_ARGUMENT);
  EXPECT_EQ(bind(instance, 0, {y, 0, 16}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(graphs.destroy(graphs.self, nullptr), BP_OK);
  EXPECT_EQ(graphs.destroy_instance(graphs.self, nullptr), BP_OK);
}

TEST_F(GraphTest, TakesOverAGraphOfTheSameShape) {
  bp_graph_instance* const instance = instantiate(graph_of_fill({x, 0, 16}, {{x, 0, 16}}));
  EXPECT_EQ(bind(instance, 0, {z, 0, 16}), BP_OK);
  bp_graph* const graph = graph_of_fill({y, 8, 32}, {{y, 0, 64}}, 9);
  EXPECT_EQ(update(instance, graph), BP_OK);
  EXPECT_EQ(graphs.destroy(graphs.self, graph), BP_OK);
  EXPECT_EQ(work_of(instance), Lines{"s: fill 32 y+8 with 9"}) << "slots are their own ranges";
  EXPECT_EQ(bind(instance, 0, {z, 0, 16}), BP_INVALID_ARGUMENT) << "the slot has grown";
  EXPECT_EQ(bind(instance, 0, {z, 0, 64}), BP_OK);
  EXPECT_EQ(work_of(instance), Lines{"s: fill 32 z+8 with 9"});
  destroy(instance);
}

TEST_F(GraphTest, TakesOverNoGraphOfAnotherShape) {
  const auto graph_of = [this](FakeStream& stream, const std::vector<bp_buffer_ref>& slots,
                               const std::vector<const bp_kernel*>& kernels) {
    EXPECT_EQ(begin(stream, slots), BP_OK);
    EXPECT_EQ(fill(stream, {x, 0, 16}), BP_OK);
    for (const bp_kernel* kernel : kernels) {
      EXPECT_EQ(launch(*kernel, stream, {x, 0, 16}, {y, 0, 16}), BP_OK);
    }
    return end(stream);
  };
  bp_graph_instance* const instance = instantiate(graph_of(s, {{x, 0, 64}}, {&neg}));
  EXPECT_EQ(bind(instance, 0, {z, 0, 64}), BP_OK);
  const Lines before = work_of(instance);
  const auto is_refused = [&](bp_graph* graph, const std::string& reason) {
    EXPECT_EQ(update(instance, graph), BP_UNSUPPORTED);
    EXPECT_EQ(text, "update: " + reason + ": instantiate it anew");
    EXPECT_EQ(work_of(instance), before) << "it was changed nevertheless";
  };
  is_refused(graph_of(far, {{x, 0, 64}}, {&neg}), "the graph is of another device");
  is_refused(graph_of(s, {}, {&neg}), "the graph has 0 slots, and the instance 1");
  is_refused(graph_of(s, {{x, 0, 64}}, {}), "the graph has 1 nodes, and the instance 2");
  is_refused(graph_of(s, {{x, 0, 64}}, {&other}), "node 1 is other, and was neg");
  ASSERT_EQ(begin(s, {{x, 0, 64}}), BP_OK);
  EXPECT_EQ(copy(s, {x, 0, 16}, {y, 0, 16}), BP_OK);
  EXPECT_EQ(launch(neg, s, {x, 0, 16}, {y, 0, 16}), BP_OK);
  is_refused(end(s), "node 0 is copy, and was fill");
  destroy(instance);
}

TEST_F(GraphTest, IsWrittenDownForPeople) {
  ASSERT_EQ(begin(s), BP_OK);
  EXPECT_EQ(fill(s, {x, 0, 16}), BP_OK);
  EXPECT_EQ(launch(neg, s, {x, 0, 16}, {y, 0, 16}), BP_OK);
  bp_graph* const graph = end(s);
  const std::string whole = "0: fill 16 bytes\n1: neg (neg) dtype " + std::to_string(BP_F32) +
                            " [4] dtype " + std::to_string(BP_F32) + " [4]\n";
  uint64_t size = 0;
  EXPECT_EQ(graphs.dump(graphs.self, graph, 0, nullptr, &size), BP_OK);
  ASSERT_EQ(size, whole.size() + 1);
  std::string lines(size + 1, '#');
  EXPECT_EQ(graphs.dump(graphs.self, graph, size, lines.data(), &size), BP_OK);
  EXPECT_EQ(lines, whole + '\0' + '#');
  lines.assign(size, '#');
  EXPECT_EQ(graphs.dump(graphs.self, graph, 8, lines.data(), &size), BP_OK);
  EXPECT_EQ(lines.substr(0, 9), whole.substr(0, 7) + '\0' + '#');
  EXPECT_EQ(size, whole.size() + 1) << "what the whole needs";
  EXPECT_EQ(graphs.dump(graphs.self, graph, 8, nullptr, &size), BP_INVALID_ARGUMENT);
}

TEST_F(GraphTest, BindsTensorsOfSubByteDtypes) {
  ASSERT_EQ(begin(s, {{x, 0, 16}}), BP_OK);
  const int64_t shape = 8, stride = 1;
  bp_tensor in{}, out{};
  in.shape = out.shape = &shape;
  in.strides = out.strides = &stride;
  in.ndim = out.ndim = 1;
  in.dtype = out.dtype = BP_I4;
  in.buffer = x;
  out.buffer = y;
  const bp_neg_args args{.struct_size = sizeof(args), .flags = 0, .x = &in, .y = &out};
  bp_launch call{};
  call.stream = s;
  EXPECT_EQ(neg.launch(&neg, &call, &args), BP_OK);
  bp_graph_instance* const instance = instantiate(end(s));
  const bp_buffer_ref range{z, 0, 16};
  EXPECT_EQ(graphs.bind(graphs.self, instance, 0, &range), BP_OK);
  EXPECT_EQ(replay(instance, s), BP_OK);
  EXPECT_EQ(take(), (Lines{"s: neg 8 z+0 -> y+0 in none", "s: record last"}));
  destroy(instance);
}

TEST_F(GraphTest, ReplaysOnAnotherStreamWithoutTheFailureOfAnEarlierReplayThatHasEnded) {
  CaptureBackend with_query = backend.captures->backend();
  with_query.events.query = [](void*, bp_event*, uint32_t* out_done) {
    *out_done = 1;
    return bp_status{BP_OK};
  };
  backend.captures = std::make_unique<Captures>(with_query);
  backend.graphs = backend.captures->graphs();
  ASSERT_EQ(begin(s), BP_OK);
  EXPECT_EQ(fill(s, {x, 0, 16}), BP_OK);
  bp_graph_instance* const instance = instantiate(end(s));
  EXPECT_EQ(replay(instance, s), BP_OK);
  take();
  EXPECT_EQ(replay(instance, t), BP_OK);
  EXPECT_EQ(take(), (Lines{"t: fill 16 x+0 with 1", "t: record last"}));
  destroy(instance);
}

TEST_F(GraphTest, RefusesAPeerCopyThatBindingMadeOverlap) {
  CaptureBackend b = backend.captures->backend();
  b.memory.copy_peer = b.memory.copy;
  backend.captures = std::make_unique<Captures>(b);
  backend.graphs = backend.captures->graphs();
  ASSERT_EQ(begin(s, {{x, 0, 32}, {y, 0, 32}}), BP_OK);
  const bp_buffer_ref from{x, 0, 32}, to{y, 0, 32}, range{x, 16, 32};
  EXPECT_EQ(backend.captures->copy("copy_peer", Work::Kind::kCopyPeer, s, &to, &from), BP_OK);
  bp_graph_instance* const instance = instantiate(end(s));
  EXPECT_EQ(graphs.bind(graphs.self, instance, 1, &range), BP_OK);
  EXPECT_EQ(replay(instance, s), BP_INVALID_ARGUMENT);
  EXPECT_EQ(take(), Lines{});
  destroy(instance);
}

TEST_F(GraphTest, WaitsForTheWorkOfAReplayThatWasRefusedInTheMiddle) {
  ASSERT_EQ(begin(s), BP_OK);
  EXPECT_EQ(fill(s, {x, 0, 16}), BP_OK);
  EXPECT_EQ(fill(s, {x, 16, 16}), BP_OK);
  bp_graph_instance* const instance = instantiate(end(s));
  backend.calls_until_refusal = 1;
  EXPECT_EQ(replay(instance, t), BP_OUT_OF_MEMORY);
  take();
  EXPECT_EQ(replay(instance, u), BP_OK);
  EXPECT_EQ(take().front(), "u: wait last");
  destroy(instance);
}

}  // namespace
}  // namespace bp
