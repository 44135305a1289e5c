// Tests what a capture keeps, what it refuses, and how streams join it.
#include "backends/shell/capture_test.hpp"

#include <functional>
#include <set>
#include <thread>

#include "backends/shell/in_time.hpp"
#include "backplane/shell/plan.hpp"

namespace bp {
namespace {

// ---- What is kept -------------------------------------------------------------------------------

TEST_F(CaptureTest, KeepsWorkInsteadOfRunningIt) {
  ASSERT_EQ(begin(s), BP_OK);
  EXPECT_EQ(fill(s, {x, 0, 16}), BP_OK);
  EXPECT_EQ(copy(s, {x, 0, 16}, {y, 0, 16}), BP_OK);
  EXPECT_EQ(launch(neg, s, {y, 0, 16}, {z, 0, 16}), BP_OK);
  EXPECT_EQ(take(), Lines{});
  EXPECT_EQ(info(s).node_count, 3u);
  EXPECT_EQ(fill(t, {x, 0, 16}), BP_OK);
  EXPECT_EQ(launch(neg, t, {x, 0, 8}, {y, 0, 8}), BP_OK);
  EXPECT_EQ(take(), (Lines{"t: fill 16 x+0 with 1", "t: neg 2 x+0 -> y+0 in none"}))
      << "another stream does not capture";
  end(s);
  EXPECT_EQ(fill(s, {x, 0, 16}, 7), BP_OK);
  EXPECT_EQ(take(), Lines{"s: fill 16 x+0 with 7"});
}

TEST_F(CaptureTest, TellsAKernelItsHostAndWhetherItsStreamCaptures) {
  using Launcher = LauncherOf<FakeInstance, int, int>;  // It uses no Env and no Launch.
  bp_launch launch{};
  launch.stream = s;
  EXPECT_EQ(&Launcher::host_of(neg), backend.host);
  EXPECT_FALSE(Launcher::is_capturing(neg, launch));
  ASSERT_EQ(begin(s), BP_OK);
  EXPECT_TRUE(Launcher::is_capturing(neg, launch));
  launch.stream = t;
  EXPECT_FALSE(Launcher::is_capturing(neg, launch));
  end(s);
}

TEST_F(CaptureTest, TellsWhichStreamsCapture) {
  const auto is_capturing = [this](bp_stream* stream) {
    uint32_t answer = 7;
    EXPECT_EQ(backend.streams.is_capturing(&backend, stream, &answer), BP_OK);
    return answer;
  };
  EXPECT_EQ(is_capturing(s), 0u);
  EXPECT_EQ(info(s).capture_id, 0u);
  ASSERT_EQ(begin(s), BP_OK);
  u.queue = &s;
  EXPECT_EQ(is_capturing(s), 1u);
  EXPECT_EQ(is_capturing(t), 0u);
  EXPECT_EQ(is_capturing(u), 1u) << "it is another handle of the same queue";
  const bp_capture_info first = info(u);
  EXPECT_NE(first.capture_id, 0u);
  EXPECT_EQ(first.is_valid, 1u);
  EXPECT_EQ(first.is_origin, 1u);
  end(s);
  EXPECT_EQ(is_capturing(s), 0u);
  std::set<uint64_t> ids{first.capture_id};
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(begin(s), BP_OK);
    EXPECT_TRUE(ids.insert(info(s).capture_id).second) << "an id was used again";
    EXPECT_EQ(abandon(s), BP_OK);
  }
}

// ---- What is refused ----------------------------------------------------------------------------

using Call = std::function<bp_status(bp_stream* stream)>;

// Returns the calls that are not legal on a capturing stream, by their names in error texts.
std::vector<std::pair<std::string, Call>> illegal_calls(FakeInstance& i, bp_buffer* buffer) {
  static constexpr uint32_t kWord = 0;
  const bp_buffer_ref range{buffer, 0, sizeof(kWord)};
  return {
      {"destroy", [&i](bp_stream* s) { return i.streams.destroy(&i, s); }},
      {"query", [&i](bp_stream* s) { return i.streams.query(&i, s, nullptr); }},
      {"clear_failure", [&i](bp_stream* s) { return i.streams.clear_failure(&i, s); }},
      {"synchronize", [&i](bp_stream* s) { return i.streams.synchronize(&i, s, 0); }},
      {"flush", [&i](bp_stream* s) { return i.streams.flush(&i, s); }},
      {"add_callback",
       [&i](bp_stream* s) { return i.streams.add_callback(&i, s, nullptr, nullptr); }},
      {"copy_from_host",
       [=, &i](bp_stream* s) { return i.allocator.copy_from_host(&i, s, &range, &kWord, 0); }},
      {"copy_to_host",
       [=, &i](bp_stream* s) {
         return i.allocator.copy_to_host(&i, s, nullptr, &range, 0, UINT64_MAX);
       }},
      {"deallocate", [=, &i](bp_stream* s) { return i.allocator.deallocate(&i, buffer, s); }},
      {"allocate",
       [&i](bp_stream* s) {
         bp_allocate_desc desc{};
         desc.struct_size = sizeof(desc);
         desc.stream = s;
         return i.allocator.allocate(&i, nullptr, &desc, nullptr);
       }},
  };
}

TEST_F(CaptureTest, RefusesCallsThatAreNotLegalAndStaysValid) {
  ASSERT_EQ(begin(s), BP_OK);
  EXPECT_EQ(fill(s, {x, 0, 16}), BP_OK);
  for (const auto& [name, call] : illegal_calls(backend, x)) {
    EXPECT_EQ(call(s), BP_INVALID_ARGUMENT) << name;
    EXPECT_NE(text.find(name + ": the stream captures"), std::string::npos) << text;
    EXPECT_EQ(take(), Lines{});
    EXPECT_EQ(call(t), BP_OK) << name;
    EXPECT_EQ(take().size(), 1u) << name << " did not reach the backend";
  }
  EXPECT_EQ(backend.streams.status(&backend, s), BP_INVALID_ARGUMENT);
  EXPECT_EQ(backend.streams.status(&backend, t), BP_OK);
  EXPECT_EQ(info(s).node_count, 1u);
  EXPECT_EQ(info(s).is_valid, 1u);
  EXPECT_NE(end(s), nullptr);
  EXPECT_EQ(backend.allocator.copy_peer, nullptr) << "what a backend lacks is not put there";
}

TEST_F(CaptureTest, RefusesCopiesAndFillsThatTheBackendWouldRefuse) {
  ASSERT_EQ(begin(s), BP_OK);
  EXPECT_EQ(copy(s, {x, 0, 16}, {y, 0, 8}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "copy: dst has 8 bytes, and src has 16");
  EXPECT_EQ(copy(s, {x, 0, 16}, {y, 4090, 16}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "copy: dst: 16 bytes at 4090 leave the buffer of 4096");
  EXPECT_EQ(copy(s, {x, 0, 16}, {x, 8, 16}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "copy: dst and src overlap and are not the same");
  EXPECT_EQ(copy(s, {nullptr, 0, 16}, {y, 0, 16}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "copy: src: buffer is NULL or not one of this backend");
  EXPECT_EQ(fill(s, {x, UINT64_MAX, 16}), BP_INVALID_ARGUMENT);
  const bp_buffer_ref range{x, 0, 16};
  const uint8_t pattern[17] = {};
  for (const uint64_t size_bytes : {0u, 17u}) {
    EXPECT_EQ(backend.allocator.fill(&backend, s, &range, pattern, size_bytes),
              BP_INVALID_ARGUMENT);
    EXPECT_EQ(text, "fill: pattern_size_bytes is " + std::to_string(size_bytes) +
                        "; 1 to 16 are allowed");
  }
  EXPECT_EQ(backend.allocator.fill(&backend, s, &range, pattern, 3), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "fill: 16 bytes are no multiple of 3, the size of the pattern");
  EXPECT_EQ(backend.allocator.fill(&backend, s, &range, nullptr, 4), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "fill: pattern is NULL");
  EXPECT_EQ(info(s).node_count, 0u);
  EXPECT_EQ(copy(s, {x, 0, 16}, {x, 0, 16}), BP_OK) << "onto itself is legal";
  EXPECT_EQ(copy(s, {x, 0, 16}, {x, 16, 16}), BP_OK);
  EXPECT_EQ(info(s).node_count, 2u);
  EXPECT_EQ(abandon(s), BP_OK);
}

TEST_F(CaptureTest, RefusesACopyWhoseRangesOverlapInTwoBuffers) {
  FakeBuffer alias{.name = "alias", .address = x.address + 8};  // It is wrapped around a part of x.
  ASSERT_EQ(begin(s), BP_OK);
  EXPECT_EQ(copy(s, {x, 0, 16}, {alias, 0, 16}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "copy: dst and src overlap and are not the same");
  EXPECT_EQ(copy(s, {x, 8, 16}, {alias, 0, 16}), BP_OK) << "both are the same bytes";
  EXPECT_EQ(copy(s, {x, 0, 8}, {alias, 0, 8}), BP_OK);
  EXPECT_EQ(info(s).node_count, 2u);
  EXPECT_EQ(abandon(s), BP_OK);
}

TEST_F(CaptureTest, NamesTheEntryThatCopies) {
  bp_allocator_ops memory = backend.captures->backend().memory;
  memory.copy_peer = memory.copy;
  CaptureFront<captures_of<FakeInstance>>::put(backend.streams, backend.events, memory);
  const bp_buffer_ref to{y, 0, 8}, from{x, 0, 16};
  ASSERT_EQ(begin(s), BP_OK);
  EXPECT_EQ(memory.copy_peer(&backend, s, &to, &from), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "copy_peer: dst has 8 bytes, and src has 16");
  EXPECT_EQ(memory.copy_peer(&backend, s, nullptr, &from), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "copy_peer: dst is NULL");
  EXPECT_EQ(memory.copy(&backend, s, &to, &from), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "copy: dst has 8 bytes, and src has 16");
  EXPECT_EQ(abandon(s), BP_OK);
}

TEST_F(CaptureTest, RefusesLaunchesThatTheKernelRefuses) {
  ASSERT_EQ(begin(s), BP_OK);
  EXPECT_EQ(launch(eager, s, {x, 0, 16}, {y, 0, 16}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "eager: the stream captures, and the kernel has no BP_KERNEL_CAPTURABLE");
  EXPECT_EQ(launch(eager, t, {x, 0, 16}, {y, 0, 16}), BP_OK);
  EXPECT_EQ(take().size(), 1u);
  backend.kernel_status = BP_UNSUPPORTED;
  EXPECT_EQ(launch(neg, s, {x, 0, 16}, {y, 0, 16}), BP_UNSUPPORTED);
  EXPECT_EQ(text, "the kernel says no");
  EXPECT_EQ(info(s).node_count, 0u);
  EXPECT_EQ(abandon(s), BP_OK);
}

TEST_F(CaptureTest, RefusesWorkThatLeavesASlot) {
  ASSERT_EQ(begin(s, {{x, 16, 32}}), BP_OK);
  EXPECT_EQ(fill(s, {x, 8, 16}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "capture: bytes 8 to 24 leave slot 0, which has bytes 16 to 48 of the buffer");
  EXPECT_EQ(copy(s, {x, 40, 16}, {y, 0, 16}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(launch(neg, s, {y, 0, 64}, {x, 0, 64}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(info(s).node_count, 0u);
  EXPECT_EQ(fill(s, {x, 16, 32}), BP_OK) << "all of the slot";
  EXPECT_EQ(fill(s, {x, 0, 16}), BP_OK) << "in front of the slot";
  EXPECT_EQ(fill(s, {x, 48, 16}), BP_OK) << "behind the slot";
  EXPECT_EQ(abandon(s), BP_OK);
}

TEST_F(CaptureTest, RefusesToBeginWhereNothingCanBeCaptured) {
  const auto is_refused = [this](bp_stream* stream, const std::vector<bp_buffer_ref>& slots,
                                 const std::string& reason) {
    EXPECT_EQ(begin(stream, slots), BP_INVALID_ARGUMENT);
    EXPECT_NE(text.find("begin_capture: " + reason), std::string::npos) << text;
  };
  is_refused(nullptr, {}, "stream is NULL");
  is_refused(reinterpret_cast<bp_stream*>(&e), {}, "stream is NULL or not one");
  is_refused(s, {{nullptr, 0, 16}}, "slot 0: buffer is NULL");
  is_refused(s, {{x, 0, 16}, {x, 4090, 16}}, "slot 1: 16 bytes at 4090 leave");
  is_refused(s, {{x, 0, 16}, {y, 0, 16}, {x, 15, 16}}, "slots 0 and 2 overlap");
  const bp_capture_desc without_slots{.struct_size = sizeof(without_slots),
                                      .struct_type = BP_STRUCT_CAPTURE_DESC,
                                      .next = nullptr,
                                      .slots = nullptr,
                                      .slot_count = 1};
  EXPECT_EQ(graphs.begin_capture(graphs.self, s, &without_slots), BP_INVALID_ARGUMENT);
  s.failure = BP_ABORTED;
  EXPECT_EQ(begin(s), BP_STREAM_FAILED);
  EXPECT_EQ(text, "begin_capture: the stream has failed: status() says why");
  s.failure = BP_DEVICE_LOST;
  EXPECT_EQ(begin(s), BP_DEVICE_LOST);
  s.failure = BP_OK;
  ASSERT_EQ(begin(s, {{x, 0, 16}, {x, 16, 16}, {y, 0, 16}}), BP_OK);
  is_refused(s, {}, "the stream captures already");
  EXPECT_NE(end(s), nullptr);
  EXPECT_EQ(backend.hooks.open_captures, 0u);
}

// ---- Ends ---------------------------------------------------------------------------------------

TEST_F(CaptureTest, EndsOnTheStreamWhereItBegan) {
  bp_graph* graph = nullptr;
  EXPECT_EQ(graphs.end_capture(graphs.self, nullptr, &graph), BP_INVALID_ARGUMENT);
  EXPECT_EQ(graphs.end_capture(graphs.self, s, &graph), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "end_capture: the stream does not capture");
  ASSERT_EQ(begin(s), BP_OK);
  EXPECT_EQ(record(e, s), BP_OK);
  EXPECT_EQ(wait(t, e), BP_OK);
  EXPECT_EQ(graphs.end_capture(graphs.self, t, &graph), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "end_capture: the capture began on another stream");
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(info(s).is_valid, 1u);
  EXPECT_EQ(abandon(s), BP_OK);
}

TEST_F(CaptureTest, LeavesNothingBehindWhenItIsAbandoned) {
  ASSERT_EQ(begin(s), BP_OK);
  EXPECT_EQ(fill(s, {x, 0, 16}), BP_OK);
  EXPECT_EQ(record(e, s), BP_OK);
  EXPECT_EQ(wait(t, e), BP_OK);
  EXPECT_EQ(fill(t, {x, 0, 16}), BP_OK);
  EXPECT_EQ(abandon(s), BP_OK) << "also where a stream was not joined again";
  EXPECT_EQ(backend.hooks.open_captures, 0u);
  EXPECT_EQ(take(), Lines{});
  EXPECT_EQ(fill(s, {x, 0, 8}), BP_OK);
  EXPECT_EQ(fill(t, {x, 0, 8}), BP_OK);
  EXPECT_EQ(take(), (Lines{"s: fill 8 x+0 with 1", "t: fill 8 x+0 with 1"}));
  ASSERT_EQ(begin(t), BP_OK);
  EXPECT_EQ(info(t).node_count, 0u);
  EXPECT_EQ(abandon(t), BP_OK);
}

// ---- Streams that join --------------------------------------------------------------------------

TEST_F(CaptureTest, TakesInStreamsThatWaitForIt) {
  ASSERT_EQ(begin(s), BP_OK);
  EXPECT_EQ(record(e, s), BP_OK);
  EXPECT_EQ(wait(t, e), BP_OK);
  EXPECT_EQ(info(t).capture_id, info(s).capture_id);
  EXPECT_EQ(info(t).is_origin, 0u);
  EXPECT_EQ(fill(t, {x, 0, 16}), BP_OK);
  EXPECT_EQ(info(s).node_count, 1u);
  EXPECT_EQ(record(f, t), BP_OK);
  EXPECT_EQ(wait(u, f), BP_OK) << "a stream joins behind one that has joined";
  EXPECT_EQ(fill(u, {y, 0, 16}), BP_OK);
  EXPECT_EQ(record(f, u), BP_OK);
  EXPECT_EQ(wait(t, f), BP_OK);
  EXPECT_EQ(record(e, t), BP_OK);
  EXPECT_EQ(wait(s, e), BP_OK) << "t brings u along";
  const bp_graph* const graph = end(s);
  EXPECT_NE(graph, nullptr);
  EXPECT_EQ(take(), Lines{});
}

TEST_F(CaptureTest, FailsWhereAStreamWasNotJoinedAgain) {
  const auto end_fails = [this] {
    bp_graph* graph = nullptr;
    EXPECT_EQ(graphs.end_capture(graphs.self, s, &graph), BP_INVALID_ARGUMENT);
    EXPECT_EQ(text, "end_capture: stream 1 of the capture was not joined again");
    EXPECT_EQ(graph, nullptr);
    EXPECT_EQ(info(s).capture_id, 0u) << "the capture is gone";
    EXPECT_EQ(info(t).capture_id, 0u);
    EXPECT_EQ(backend.hooks.open_captures, 0u);
  };
  const auto fork = [this] {
    ASSERT_EQ(begin(s), BP_OK);
    EXPECT_EQ(record(e, s), BP_OK);
    EXPECT_EQ(wait(t, e), BP_OK);
  };
  fork();
  end_fails();  // t has done nothing.
  fork();
  EXPECT_EQ(record(f, t), BP_OK);
  EXPECT_EQ(fill(t, {x, 0, 16}), BP_OK);
  EXPECT_EQ(wait(s, f), BP_OK);
  end_fails();  // t has worked behind the event.
  fork();
  EXPECT_EQ(fill(t, {x, 0, 16}), BP_OK);
  EXPECT_EQ(record(f, t), BP_OK);
  end_fails();  // Nobody waited for the event.
}

TEST_F(CaptureTest, RefusesStreamsThatCannotTakePart) {
  ASSERT_EQ(begin(s), BP_OK);
  EXPECT_EQ(record(e, s), BP_OK);
  EXPECT_EQ(wait(far, e), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "stream.wait_event: the stream is of another device than the capture");
  t.failure = BP_ABORTED;
  EXPECT_EQ(wait(t, e), BP_STREAM_FAILED);
  EXPECT_EQ(text, "stream.wait_event: the stream has failed: status() says why");
  ASSERT_EQ(begin(u), BP_OK);
  EXPECT_EQ(wait(u, e), BP_INVALID_ARGUMENT) << "two captures do not become one";
  EXPECT_NE(text.find("in another than that of the stream"), std::string::npos) << text;
  EXPECT_EQ(abandon(u), BP_OK);
  EXPECT_NE(end(s), nullptr) << "whoever was refused need not be joined";
}

TEST_F(CaptureTest, TellsAHostThatAsksForTheCaptureMeanwhile) {
  const auto expect_refused = [this](const char* what, const std::function<bp_status()>& call) {
    on_error = [&] {
      info(s);
      uint32_t answer = 7;
      EXPECT_EQ(backend.streams.is_capturing(&backend, t, &answer), BP_OK);
    };
    in_time([&] { EXPECT_NE(call(), BP_OK) << what; });
    EXPECT_FALSE(on_error) << what << " has not told the host";
    on_error = nullptr;
  };
  EXPECT_EQ(record(f, t), BP_OK);
  ASSERT_EQ(begin(s), BP_OK);
  expect_refused("a second begin", [&] { return begin(s); });
  EXPECT_EQ(record(e, s), BP_OK);
  expect_refused("a stream of another device", [&] { return wait(far, e); });
  t.failure = BP_ABORTED;
  expect_refused("a stream that has failed", [&] { return wait(t, e); });
  t.failure = BP_OK;
  expect_refused("an event from outside", [&] { return wait(s, f); });
  EXPECT_EQ(wait(t, e), BP_OK);
  expect_refused("an end on another stream", [&] { return abandon(t); });
  const auto end_unjoined = [&] {
    bp_graph* graph = nullptr;
    return graphs.end_capture(graphs.self, s, &graph);
  };
  expect_refused("an end without a stream", end_unjoined);
  expect_refused("an end without a capture", [&] { return abandon(s); });
  expect_refused("an event of a capture that has ended", [&] { return wait(u, e); });
}

// ---- Events -------------------------------------------------------------------------------------

TEST_F(CaptureTest, RefusesQuestionsAboutARecordThatNeverRan) {
  uint32_t done = 0;
  int64_t elapsed_ns = 0;
  const auto expect_all = [&](bp_status status) {
    EXPECT_EQ(backend.events.query(&backend, e, &done), status);
    EXPECT_EQ(backend.events.synchronize(&backend, e, 0), status);
    EXPECT_EQ(backend.events.elapsed_ns(&backend, e, f, &elapsed_ns), status);
    EXPECT_EQ(backend.events.elapsed_ns(&backend, f, e, &elapsed_ns), status);
  };
  ASSERT_EQ(begin(s), BP_OK);
  expect_all(BP_OK);
  EXPECT_EQ(record(e, s), BP_OK);
  expect_all(BP_INVALID_ARGUMENT);
  end(s);
  expect_all(BP_INVALID_ARGUMENT);
  EXPECT_EQ(wait(t, e), BP_INVALID_ARGUMENT);
  EXPECT_NE(text.find("a capture that has ended"), std::string::npos) << text;
  EXPECT_EQ(record(e, t), BP_OK);
  expect_all(BP_OK);
  EXPECT_EQ(wait(s, e), BP_OK);
  EXPECT_EQ(take(), (Lines{"t: record e", "s: wait e"}));
}

TEST_F(CaptureTest, ForgetsAnEventThatIsDestroyed) {
  ASSERT_EQ(begin(s), BP_OK);
  EXPECT_EQ(record(e, s), BP_OK);
  EXPECT_EQ(backend.events.destroy(&backend, e), BP_OK);
  end(s);
  uint32_t done = 0;
  EXPECT_EQ(backend.events.query(&backend, e, &done), BP_OK) << "an event of the same address";
}

TEST_F(CaptureTest, RefusesEventsFromOutside) {
  f.flags = BP_EVENT_HOST_SIGNAL;
  f.was_recorded = true;  // The event has its moment from the beginning.
  ASSERT_EQ(begin(s), BP_OK);
  EXPECT_EQ(wait(s, e), BP_OK) << "an event that was never recorded is nothing to wait for";
  EXPECT_EQ(record(e, t), BP_OK);
  EXPECT_EQ(wait(s, e), BP_INVALID_ARGUMENT);
  EXPECT_NE(text.find("outside of the capture"), std::string::npos) << text;
  EXPECT_EQ(wait(s, f), BP_INVALID_ARGUMENT);
  EXPECT_EQ(wait(s, nullptr), BP_INVALID_ARGUMENT);
  EXPECT_EQ(record(f, s), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "event.record: only the host signals this event");
  EXPECT_EQ(record(nullptr, s), BP_INVALID_ARGUMENT);
  EXPECT_EQ(take(), Lines{"t: record e"});
  EXPECT_NE(end(s), nullptr);
}

// ---- Threads ------------------------------------------------------------------------------------

TEST_F(CaptureTest, KeepsCapturesOfManyThreadsApart) {
  constexpr uint64_t kRounds = 300;
  const auto capture_often = [this](FakeStream& stream, FakeEvent& event, uint64_t work_count) {
    for (uint64_t round = 0; round < kRounds; ++round) {
      ASSERT_EQ(begin(stream), BP_OK);
      for (uint64_t k = 0; k < work_count; ++k) EXPECT_EQ(fill(stream, {x, 0, 16}), BP_OK);
      EXPECT_EQ(record(event, stream), BP_OK);
      EXPECT_EQ(info(stream).node_count, work_count);
      const bp_graph* const graph = end(stream);
      EXPECT_EQ(reinterpret_cast<const Graph*>(graph)->works.size(), work_count);
    }
  };
  std::thread first([&] { capture_often(s, e, 1); }), second([&] { capture_often(t, f, 2); });
  for (uint64_t round = 0; round < kRounds; ++round) EXPECT_EQ(fill(u, {y, 0, 16}), BP_OK);
  first.join();
  second.join();
  EXPECT_EQ(take(), Lines(kRounds, "u: fill 16 y+0 with 1"));
}

}  // namespace
}  // namespace bp
