// Tests what the layer validate knows of work from calls other than plain launches and copies:
// replays of graphs, packing and conversions.
#include <utility>

#include "registry/tests/validate_fixture.hpp"

namespace bp::core {
namespace {

// A table of captures and replays that reports all work as done.
struct Graphs {
  char made[4] = {};
  int count = 0;
  bp_status end_status = BP_OK;
  bp_graph_ops ops{
      .struct_size = sizeof(ops),
      .struct_type = BP_STRUCT_GRAPH_OPS,
      .next = nullptr,
      .self = this,
      .begin_capture = [](void*, bp_stream*, const bp_capture_desc*) -> bp_status { return BP_OK; },
      .end_capture = end_capture,
      .instantiate = instantiate,
      .bind = [](void*, bp_graph_instance*, uint64_t, const bp_buffer_ref*) -> bp_status {
        return BP_OK;
      },
      .update = [](void*, bp_graph_instance*, bp_graph*) -> bp_status { return BP_OK; },
      .launch = [](void*, bp_graph_instance*, bp_stream*) -> bp_status { return BP_OK; },
      .destroy = [](void*, bp_graph*) -> bp_status { return BP_OK; },
      .destroy_instance = [](void*, bp_graph_instance*) -> bp_status { return BP_OK; },
      .dump = [](void*, bp_graph*, uint64_t, char*, uint64_t*) -> bp_status { return BP_OK; }};

  static bp_status end_capture(void* self, bp_stream*, bp_graph** out) {
    auto& graphs = *static_cast<Graphs*>(self);
    if (graphs.end_status != BP_OK) return graphs.end_status;
    *out = reinterpret_cast<bp_graph*>(&graphs.made[graphs.count++]);
    return BP_OK;
  }
  static bp_status instantiate(void* self, bp_graph*, bp_graph_instance** out) {
    auto& graphs = *static_cast<Graphs*>(self);
    *out = reinterpret_cast<bp_graph_instance*>(&graphs.made[graphs.count++]);
    return BP_OK;
  }
};

// The stream that was destroyed last, whose address is given again.
bp_stream* ended_stream = nullptr;

void give_addresses_again(FakeBackend& fake) {
  static bp_stream_ops theirs;
  theirs = fake.streams;
  fake.streams.create = [](void* self, bp_device* device, const bp_stream_desc* desc,
                           bp_stream** out) -> bp_status {
    if (ended_stream == nullptr) return theirs.create(self, device, desc, out);
    *out = std::exchange(ended_stream, nullptr);
    return BP_OK;
  };
  fake.streams.destroy = [](void* self, bp_stream* stream) -> bp_status {
    bp_stream* const before = std::exchange(ended_stream, stream);
    return before == nullptr ? BP_OK : theirs.destroy(self, before);
  };
}

class ValidateGraphs : public ValidateTest {
 protected:
  ValidateGraphs() {
    give_addresses_again(fake_);
    fake_.graphs = &graphs_.ops;
    kernel_.state = &launch_status_;
    kernel_.launch = [](const bp_kernel* self, const bp_launch*, const void*) -> bp_status {
      return *static_cast<const bp_status*>(self->state);
    };
  }
  void SetUp() override {
    ValidateTest::SetUp();
    first_ = stream();
    second_ = stream();
    in_ = allocate();
    out_ = allocate();
    other_ = allocate();
  }
  void TearDown() override {
    for (bp_stream* each : {first_, second_}) {
      EXPECT_EQ(streams().synchronize(streams().self, each, UINT64_MAX), BP_OK);
      EXPECT_EQ(streams().destroy(streams().self, each), BP_OK);
    }
    for (bp_buffer* each : {in_, out_, other_}) EXPECT_EQ(free(each), BP_OK);
  }

  const bp_graph_ops& ops() const { return *r_.target()->graphs; }
  // Captures a launch from in_ to out_, which is slot 0.
  bp_graph_instance* captured() {
    const bp_buffer_ref slot{out_, 0, 64};
    const bp_capture_desc desc{.struct_size = sizeof(desc),
                               .struct_type = BP_STRUCT_CAPTURE_DESC,
                               .next = nullptr,
                               .slots = &slot,
                               .slot_count = 1};
    EXPECT_EQ(ops().begin_capture(ops().self, first_, &desc), BP_OK);
    EXPECT_EQ(launch(first_, in_, out_), BP_OK);
    EXPECT_EQ(ops().end_capture(ops().self, first_, &graph_), BP_OK);
    bp_graph_instance* instance = nullptr;
    EXPECT_EQ(ops().instantiate(ops().self, graph_, &instance), BP_OK);
    return instance;
  }
  bp_status replay(bp_graph_instance* instance, bp_stream* on) {
    return ops().launch(ops().self, instance, on);
  }

  Graphs graphs_;
  bp_status launch_status_ = BP_OK;
  bp_stream *first_ = nullptr, *second_ = nullptr;
  bp_buffer *in_ = nullptr, *out_ = nullptr, *other_ = nullptr;
  bp_graph* graph_ = nullptr;
};

TEST_F(ValidateGraphs, AReplayTouchesWhatWasCaptured) {
  EXPECT_EQ(fill(second_, in_), BP_OK);
  bp_graph_instance* instance = captured();
  EXPECT_EQ(reports(), 0) << "nothing ran yet\n" << r_.log;
  EXPECT_EQ(replay(instance, first_), BP_OK);
  EXPECT_EQ(reports(), 1) << r_.log;
  EXPECT_NE(r_.log.find("[STREAM-3] graph.launch: read after write without an order: replay of a "
                        "graph on stream 0x"),
            std::string::npos)
      << r_.log;
  EXPECT_EQ(fill(second_, out_), BP_OK);
  EXPECT_EQ(reports(), 2) << r_.log;
}

TEST_F(ValidateGraphs, ASlotIsTheRangeThatIsBound) {
  bp_graph_instance* instance = captured();
  const bp_buffer_ref range{other_, 0, 64};
  EXPECT_EQ(ops().bind(ops().self, instance, 0, &range), BP_OK);
  EXPECT_EQ(replay(instance, first_), BP_OK);
  EXPECT_EQ(fill(second_, out_), BP_OK);
  EXPECT_EQ(reports(), 0) << r_.log;
  EXPECT_EQ(fill(second_, other_), BP_OK);
  EXPECT_EQ(reports(), 1) << r_.log;
}

TEST_F(ValidateGraphs, ReplaysOfOneInstanceAreInOrder) {
  bp_graph_instance* instance = captured();
  EXPECT_EQ(replay(instance, first_), BP_OK);
  EXPECT_EQ(replay(instance, second_), BP_OK);
  EXPECT_EQ(reports(), 0) << r_.log;
  EXPECT_EQ(launch(first_, other_, out_), BP_OK);
  EXPECT_EQ(reports(), 1) << "the second replay is not behind this\n" << r_.log;
}

TEST_F(ValidateGraphs, RefusesReplaysOfWhatHasEnded) {
  bp_graph_instance* instance = captured();
  bp_buffer* gone = allocate();
  const bp_buffer_ref range{gone, 0, 64};
  EXPECT_EQ(ops().bind(ops().self, instance, 0, &range), BP_OK);
  EXPECT_EQ(free(gone), BP_OK);
  EXPECT_EQ(replay(instance, first_), BP_INVALID_ARGUMENT);
  expect_words("[MEMORY-5] graph.launch: buffer 0x");
  expect_words("; the graph uses it");
  EXPECT_EQ(ops().destroy(ops().self, graph_), BP_OK);
  EXPECT_EQ(ops().destroy(ops().self, graph_), BP_INVALID_ARGUMENT);
  expect_words("[GRAPH-10] graph.destroy: graph 0x");
  EXPECT_EQ(ops().update(ops().self, instance, graph_), BP_INVALID_ARGUMENT);
  EXPECT_EQ(ops().destroy_instance(ops().self, instance), BP_OK);
  EXPECT_EQ(replay(instance, first_), BP_INVALID_ARGUMENT);
  expect_words("[GRAPH-10] graph.launch: graph instance 0x");
}

TEST_F(ValidateGraphs, AStreamIsInNoCaptureOfAnEndedOneOfItsAddress) {
  bp_event* const fork = event();
  EXPECT_EQ(ops().begin_capture(ops().self, first_, nullptr), BP_OK);
  EXPECT_EQ(events().record(events().self, fork, first_), BP_OK);
  EXPECT_EQ(streams().wait_event(streams().self, second_, fork), BP_OK);
  EXPECT_EQ(streams().destroy(streams().self, second_), BP_OK);
  bp_stream* const third = stream();
  ASSERT_EQ(third, second_);
  bp_stream* const fourth = stream();
  EXPECT_EQ(fill(third, in_), BP_OK);
  EXPECT_EQ(fill(fourth, in_), BP_OK);
  EXPECT_EQ(reports(), 1) << "two streams write the same bytes\n" << r_.log;
  EXPECT_EQ(ops().end_capture(ops().self, first_, &graph_), BP_OK);
  EXPECT_EQ(events().destroy(events().self, fork), BP_OK);
  EXPECT_EQ(streams().destroy(streams().self, fourth), BP_OK);
  EXPECT_EQ(ops().destroy(ops().self, graph_), BP_OK);
}

TEST_F(ValidateGraphs, WorkOfOneCaptureIsOrderedByItsEventsAlone) {
  bp_event *fork = event(), *join = event();
  EXPECT_EQ(fill(second_, in_), BP_OK);
  EXPECT_EQ(ops().begin_capture(ops().self, first_, nullptr), BP_OK);
  EXPECT_EQ(launch(first_, in_, out_), BP_OK);
  EXPECT_EQ(events().record(events().self, fork, first_), BP_OK);
  EXPECT_EQ(streams().wait_event(streams().self, second_, fork), BP_OK);
  EXPECT_EQ(fill(second_, out_), BP_OK);
  EXPECT_EQ(reports(), 0) << "behind the fork; what ran before is no part of it\n" << r_.log;
  EXPECT_EQ(fill(first_, out_), BP_OK);
  EXPECT_EQ(reports(), 1) << "beside the fork\n" << r_.log;
  EXPECT_NE(r_.log.find("[STREAM-3] memory.fill: write after write"), std::string::npos) << r_.log;
  EXPECT_EQ(events().record(events().self, join, second_), BP_OK);
  EXPECT_EQ(streams().wait_event(streams().self, first_, join), BP_OK);
  EXPECT_EQ(fill(first_, out_), BP_OK);
  EXPECT_EQ(reports(), 1) << "behind the join\n" << r_.log;
  EXPECT_EQ(ops().end_capture(ops().self, first_, &graph_), BP_OK);
  // Nothing of the capture has run, and it ordered nothing.
  EXPECT_EQ(fill(first_, out_), BP_OK);
  EXPECT_EQ(reports(), 1) << r_.log;
  EXPECT_EQ(fill(first_, in_), BP_OK);
  EXPECT_EQ(reports(), 2) << "the fill of the second stream in front of the capture\n" << r_.log;
  for (bp_event* each : {fork, join}) EXPECT_EQ(events().destroy(events().self, each), BP_OK);
  EXPECT_EQ(ops().destroy(ops().self, graph_), BP_OK);
}

TEST_F(ValidateGraphs, ALaunchThatWasRefusedIsNoPartOfTheCapture) {
  bp_event* fork = event();
  EXPECT_EQ(ops().begin_capture(ops().self, first_, nullptr), BP_OK);
  EXPECT_EQ(events().record(events().self, fork, first_), BP_OK);
  EXPECT_EQ(streams().wait_event(streams().self, second_, fork), BP_OK);
  launch_status_ = BP_UNSUPPORTED;
  EXPECT_EQ(launch(first_, in_, out_), BP_UNSUPPORTED);
  EXPECT_EQ(fill(second_, out_), BP_OK);
  EXPECT_EQ(reports(), 0) << r_.log;
  launch_status_ = BP_OK;
  EXPECT_EQ(launch(first_, in_, out_), BP_OK);
  EXPECT_EQ(reports(), 1) << r_.log;
  EXPECT_EQ(ops().end_capture(ops().self, first_, &graph_), BP_OK);
  EXPECT_EQ(events().destroy(events().self, fork), BP_OK);
}

TEST_F(ValidateGraphs, AnEndThatFailsEndsTheCapture) {
  graphs_.end_status = BP_INVALID_ARGUMENT;
  EXPECT_EQ(ops().begin_capture(ops().self, first_, nullptr), BP_OK);
  EXPECT_EQ(ops().end_capture(ops().self, first_, &graph_), BP_INVALID_ARGUMENT);
  EXPECT_EQ(fill(first_, in_), BP_OK);
  EXPECT_EQ(fill(second_, in_), BP_OK);
  EXPECT_EQ(reports(), 1) << "the stream runs work again\n" << r_.log;
}

// ---- Plans, conversions, time-outs --------------------------------------------------------------

class ValidateWork : public ValidateTest {
 protected:
  ValidateWork() {
    kernel_.prepare = [](const bp_kernel*, bp_device*, const bp_prepare_desc*, const void*,
                         bp_plan** out) -> bp_status {
      static char plan;
      *out = reinterpret_cast<bp_plan*>(&plan);
      return BP_OK;
    };
    kernel_.plan_info = [](const bp_kernel*, const bp_plan*, bp_plan_info*) -> bp_status {
      return BP_OK;
    };
    kernel_.plan_pack = [](const bp_kernel*, const bp_launch*, const void*,
                           const bp_buffer_ref*) -> bp_status { return BP_OK; };
    kernel_.plan_release = [](const bp_kernel*, bp_plan*) -> bp_status { return BP_OK; };
    layouts_.convert = [](void*, bp_stream*, const bp_tensor*, const bp_tensor*) -> bp_status {
      return BP_OK;
    };
    fake_.layouts = &layouts_;
    fake_.streams.query = [](void* self, bp_stream*, uint32_t* out_done) -> bp_status {
      *out_done = FakeBackend::from(self).fills == 1 ? 1 : 0;
      return BP_OK;
    };
  }

  bp_layout_ops layouts_{.struct_size = sizeof(bp_layout_ops), .struct_type = BP_STRUCT_LAYOUT_OPS};
};

TEST_F(ValidateWork, PackingReadsConstantArgumentsAndWritesPacked) {
  bp_stream *first = stream(), *second = stream();
  bp_buffer *a = allocate(), *b = allocate(), *packed = allocate();
  const int64_t shape[] = {4}, strides[] = {1};
  const bp_tensor x{.buffer = a, .shape = shape, .strides = strides, .ndim = 1, .dtype = BP_F32};
  bp_tensor weights = x;
  weights.buffer = b;
  const bp_add_args args{.struct_size = sizeof(args), .a = &x, .b = &weights, .y = &x};
  const bp_kernel* kernel = bp_target_kernel(r_.target(), 0);
  const uint32_t constant = 1;
  const bp_prepare_desc desc{.struct_size = sizeof(desc),
                             .struct_type = BP_STRUCT_PREPARE_DESC,
                             .next = nullptr,
                             .flags = 0,
                             .reserved = 0,
                             .constant_args = &constant,
                             .constant_arg_count = 1};
  bp_launch launch{.device = r_.target()->device, .stream = second};
  ASSERT_EQ(kernel->prepare(kernel, launch.device, &desc, &args, &launch.plan), BP_OK);
  EXPECT_EQ(fill(first, a), BP_OK);
  const bp_buffer_ref to{packed, 0, 64};
  EXPECT_EQ(kernel->plan_pack(kernel, &launch, &args, &to), BP_OK);
  EXPECT_EQ(reports(), 0) << "a is no constant\n" << r_.log;
  EXPECT_EQ(fill(first, b), BP_OK);
  EXPECT_EQ(reports(), 1) << r_.log;
  EXPECT_NE(r_.log.find(", as packing for add.fast on stream 0x"), std::string::npos) << r_.log;
  for (bp_stream* each : {first, second}) {
    EXPECT_EQ(streams().synchronize(streams().self, each, UINT64_MAX), BP_OK);
  }
  EXPECT_EQ(kernel->launch(kernel, &launch, &args), BP_OK);
  EXPECT_EQ(fill(first, packed), BP_OK);
  EXPECT_EQ(reports(), 2) << "a launch reads what was packed\n" << r_.log;
  for (bp_stream* each : {first, second}) {
    EXPECT_EQ(streams().synchronize(streams().self, each, UINT64_MAX), BP_OK);
    EXPECT_EQ(streams().destroy(streams().self, each), BP_OK);
  }
  EXPECT_EQ(kernel->plan_release(kernel, launch.plan), BP_OK);
  for (bp_buffer* each : {a, b, packed}) EXPECT_EQ(free(each), BP_OK);
}

TEST_F(ValidateWork, ConversionsTouchTheirTensors) {
  bp_stream *first = stream(), *second = stream();
  bp_buffer *from = allocate(), *to = allocate();
  const int64_t shape[] = {4}, strides[] = {1};
  const bp_tensor src{
      .buffer = from, .shape = shape, .strides = strides, .ndim = 1, .dtype = BP_F32};
  bp_tensor dst = src;
  dst.buffer = to;
  const bp_layout_ops& layouts = *r_.target()->layouts;
  EXPECT_EQ(layouts.convert(layouts.self, first, &dst, &src), BP_OK);
  EXPECT_EQ(fill(second, to), BP_OK);
  EXPECT_EQ(reports(), 1) << r_.log;
  EXPECT_NE(r_.log.find(", as conversion on stream 0x"), std::string::npos) << r_.log;
  EXPECT_EQ(fill(second, from), BP_OK);
  EXPECT_EQ(reports(), 2) << r_.log;
  for (bp_stream* each : {first, second}) {
    EXPECT_EQ(streams().synchronize(streams().self, each, UINT64_MAX), BP_OK);
    EXPECT_EQ(streams().destroy(streams().self, each), BP_OK);
  }
  EXPECT_EQ(free(from), BP_OK);
  EXPECT_EQ(layouts.convert(layouts.self, r_.target()->default_stream, &dst, &src),
            BP_INVALID_ARGUMENT);
  expect_words("[MEMORY-5] layout.convert: tensor src (f32[4] at 0x");
  EXPECT_EQ(free(to), BP_OK);
}

// The streams of the fake are done after one fill, but not after two.
TEST_F(ValidateWork, WorkThatFailedByATimeOutHasEnded) {
  fake_.streams.synchronize = [](void*, bp_stream*, uint64_t) -> bp_status { return BP_TIMEOUT; };
  TestRegistry r(0, "validate");
  FakeBackend fake("acme.late");
  fake.streams = fake_.streams;
  fake.streams.self = &fake;
  const bp_plugin* plugin = nullptr;
  ASSERT_EQ(fake.load(r.registry, &plugin), BP_OK) << bp_error_text();
  const bp_stream_ops& streams = *r.target()->streams;
  const bp_allocator_ops& memory = *r.target()->allocator;
  bp_stream* on = nullptr;
  ASSERT_EQ(streams.create(streams.self, r.target()->device, nullptr, &on), BP_OK);
  const bp_allocate_desc desc{
      .struct_size = sizeof(desc), .struct_type = BP_STRUCT_ALLOCATE_DESC, .size_bytes = 8};
  for (const uint64_t want : {uint64_t{0}, uint64_t{1}}) {
    bp_buffer* buffer = nullptr;
    ASSERT_EQ(memory.allocate(memory.self, r.target()->device, &desc, &buffer), BP_OK);
    const bp_buffer_ref range{buffer, 0, 8};
    const unsigned char zero = 0;
    EXPECT_EQ(memory.fill(memory.self, on, &range, &zero, 1), BP_OK);
    EXPECT_EQ(streams.synchronize(streams.self, on, 1), BP_TIMEOUT);
    EXPECT_EQ(memory.deallocate(memory.self, buffer, nullptr), BP_OK);
    uint64_t count = 0;
    EXPECT_EQ(bp_plugin_layer_reports(plugin, "validate", &count), BP_OK);
    EXPECT_EQ(count, want) << r.log;
  }
  EXPECT_EQ(streams.destroy(streams.self, on), BP_OK);
}

}  // namespace
}  // namespace bp::core
