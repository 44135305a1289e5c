// Tests what a captured graph keeps, and how captures and graphs end: with the device, the plugin,
// and the failures of a backend.
#include "backplane/test_fault.h"
#include "registry/tests/capture_fixture.hpp"
#include "registry/tests/fake_backend.hpp"
#include "registry/tests/fake_graphs.hpp"

namespace bp {
namespace {

std::string refusal() { return bp_error_text(); }

TEST_F(CaptureTest, KeepsPreparedCallsThatItsCallerReleases) {
  Floats x(*target, {4, 8}), weight(*target, {8, 3}), y(*target, {4, 3}), z(*target, {4, 3});
  x.set(random_values<float>(32));
  weight.set(random_values<float>(24));
  bp_matmul_args args{.struct_size = sizeof(args), .a = x.get(), .b = weight.get(), .y = y.get()};
  bp_prepared* prepared = nullptr;
  const uint32_t constant = 1;
  ASSERT_EQ(bp_op_prepare(target, nullptr, 0, BP_OP_MATMUL, &args, &constant, 1, &prepared), BP_OK)
      << bp_error_text();
  synchronize();
  bp_capture* const capture = begin();
  ASSERT_EQ(bp_prepared_launch(prepared, nullptr, &args), BP_OK) << bp_error_text();
  ASSERT_EQ(bp_prepared_launch(prepared, nullptr, &args), BP_OK) << bp_error_text();
  bp_captured_graph* const graph = end(capture);
  EXPECT_EQ(bp_prepared_release(prepared), BP_OK);
  EXPECT_EQ(info(graph).kept_count, 1u);
  replay(graph);
  args.y = z.get();
  ASSERT_EQ(bp_op_launch(target, nullptr, 0, BP_OP_MATMUL, &args), BP_OK);
  expect_close(y.elements(), z.elements());
  destroy(graph);
}

TEST_F(CaptureTest, EndsAHandleOnce) {
  bp_capture* const first = begin();
  bp_captured_graph* const graph = end(first);
  bp_capture* const second = begin();
  EXPECT_NE(first, second) << "a handle is never given again";
  bp_captured_graph* none = nullptr;
  for (bp_captured_graph** out : {&none, static_cast<bp_captured_graph**>(nullptr)}) {
    EXPECT_EQ(bp_capture_end(first, out), BP_INVALID_ARGUMENT);
    EXPECT_NE(refusal().find("takes each handle once"), std::string::npos) << refusal();
    EXPECT_EQ(none, nullptr);
  }
  EXPECT_EQ(bp_capture_end(reinterpret_cast<bp_capture*>(&none), &none), BP_INVALID_ARGUMENT);
  bp_block* const block = take(4096);
  fill(block, 1);
  bp_captured_graph* const other = end(second);
  EXPECT_EQ(info(other).node_count, 1u) << "the refusals ended nothing";
  replay(graph);
  replay(other);
  EXPECT_EQ(bp_block_free(block), BP_OK);
  destroy(graph);
  destroy(other);
}

TEST_F(CaptureTest, EndsAHandleOnceAlsoAfterAReset) {
  bp_capture* const capture = begin();
  ASSERT_EQ(target->devices->reset(target->devices->self, target->device), BP_OK)
      << bp_error_text();
  EXPECT_EQ(bp_capture_end(capture, nullptr), BP_DEVICE_LOST);
  EXPECT_EQ(bp_capture_end(capture, nullptr), BP_INVALID_ARGUMENT);
}

TEST_F(CaptureTest, RefusesAGraphThatWasDestroyed) {
  bp_captured_graph* const first = end(begin());
  bp_captured_graph* const second = end(begin());
  destroy(first);
  const bp_captured_graph* const third = end(begin());
  EXPECT_NE(first, third) << "a handle is never given again";
  const bp_buffer_ref range{};
  bp_captured_graph_info its{};
  its.struct_size = sizeof(its);
  its.struct_type = BP_STRUCT_CAPTURED_GRAPH_INFO;
  for (bp_captured_graph* const stale : {first, reinterpret_cast<bp_captured_graph*>(&its)}) {
    EXPECT_EQ(bp_captured_graph_launch(stale, nullptr), BP_INVALID_ARGUMENT);
    EXPECT_EQ(refusal(),
              "captured_graph.launch: graph is no captured graph, or was destroyed before");
    EXPECT_EQ(bp_captured_graph_bind(stale, 0, &range), BP_INVALID_ARGUMENT);
    EXPECT_EQ(bp_captured_graph_get_info(stale, &its), BP_INVALID_ARGUMENT);
    EXPECT_EQ(bp_captured_graph_destroy(stale), BP_INVALID_ARGUMENT);
  }
  replay(second);
  destroy(second);
  destroy(const_cast<bp_captured_graph*>(third));
}

// A device that has a compiler and no kernels.
class CaptureOfPrograms : public CaptureTest {
 protected:
  void SetUp() override {}
};

// Where each op is compiled by itself, the device records its graphs.
TEST_F(CaptureOfPrograms, KeepsProgramsThatTheHostForgets) {
  const bp_registry_desc desc{.struct_size = sizeof(desc),
                              .struct_type = BP_STRUCT_REGISTRY_DESC,
                              .flags = BP_REGISTRY_COMPILE_OPS};
  registry = Registry(&desc);
  open({{"kernels", "no"}});
  Floats x(*target, {4}), y(*target, {4});
  x.set({-1, 2, -3, 4});
  synchronize();
  const bp_relu_args args{.struct_size = sizeof(args), .x = x.get(), .y = y.get()};
  bp_prepared* prepared = nullptr;
  ASSERT_EQ(bp_op_prepare(target, nullptr, 0, BP_OP_RELU, &args, nullptr, 0, &prepared), BP_OK)
      << bp_error_text();
  bp_capture* const capture = begin();
  ASSERT_EQ(bp_prepared_launch(prepared, nullptr, &args), BP_OK) << bp_error_text();
  bp_captured_graph* const graph = end(capture);
  EXPECT_EQ(bp_prepared_release(prepared), BP_OK);
  EXPECT_EQ(info(graph).kept_count, 2u) << "the prepared call, and its program";
  core::impl(target).compiled->forget_programs();
  replay(graph);
  EXPECT_EQ(y.elements(), (std::vector<float>{0, 2, 0, 4}));
  destroy(graph);
}

TEST_F(CaptureOfPrograms, AreProgramsWhereNoOpIsCompiledByItself) {
  open({{"kernels", "no"}});
  Floats x(*target, {4}), y(*target, {4}), z(*target, {4});
  x.set({-1, 2, -3, 4});
  const bp_relu_args args{.struct_size = sizeof(args), .x = x.get(), .y = y.get()};
  const bp_neg_args neg{.struct_size = sizeof(neg), .x = y.get(), .y = z.get()};
  bp_prepared* prepared = nullptr;
  ASSERT_EQ(bp_op_prepare(target, nullptr, 0, BP_OP_RELU, &args, nullptr, 0, &prepared), BP_OK)
      << bp_error_text();
  ASSERT_EQ(bp_op_launch(target, nullptr, 0, BP_OP_NEG, &neg), BP_UNSUPPORTED);
  bp_capture* const capture = begin();
  ASSERT_EQ(bp_prepared_launch(prepared, nullptr, &args), BP_OK) << bp_error_text();
  ASSERT_EQ(bp_op_launch(target, nullptr, 0, BP_OP_NEG, &neg), BP_OK) << bp_error_text();
  bp_captured_graph* const graph = end(capture);
  EXPECT_EQ(bp_prepared_release(prepared), BP_OK);
  EXPECT_EQ(info(graph).node_count, 2u);
  EXPECT_EQ(info(graph).graph, nullptr);
  replay(graph);
  EXPECT_EQ(z.elements(), (std::vector<float>{0, -2, 0, -4}));
  destroy(graph);
}

TEST_F(CaptureTest, LosesItsProgramsByAResetOfTheDevice) {
  Floats x(*target, {4, 8}), y(*target, {4, 8}), z(*target, {4, 8});
  bp_capture *capture = nullptr, *open_capture = nullptr;
  ASSERT_EQ(bp_capture_begin_program(target, nullptr, nullptr, &capture), BP_OK);
  ASSERT_EQ(softmax(x, y), BP_OK) << bp_error_text();
  bp_captured_graph* const graph = end(capture);
  x.set(random_values<float>(32));
  ASSERT_EQ(softmax(x, z), BP_OK) << bp_error_text();
  replay(graph);
  EXPECT_EQ(y.elements(), z.elements());
  ASSERT_EQ(bp_capture_begin_program(target, nullptr, nullptr, &open_capture), BP_OK);
  ASSERT_EQ(softmax(x, y), BP_OK);
  ASSERT_EQ(target->devices->reset(target->devices->self, target->device), BP_OK)
      << bp_error_text();
  EXPECT_EQ(bp_captured_graph_launch(graph, nullptr), BP_DEVICE_LOST);
  EXPECT_EQ(bp_capture_end(open_capture, nullptr), BP_DEVICE_LOST);
  destroy(graph);
}

TEST_F(CaptureTest, EndsItsProgramsWithTheirPlugin) {
  bp_capture *capture = nullptr, *open_capture = nullptr;
  bp_captured_graph* graph = nullptr;
  {
    Floats x(*target, {4, 8}), y(*target, {4, 8});
    ASSERT_EQ(bp_capture_begin_program(target, nullptr, nullptr, &capture), BP_OK);
    ASSERT_EQ(softmax(x, y), BP_OK) << bp_error_text();
    graph = end(capture);
    ASSERT_EQ(bp_capture_begin_program(target, nullptr, nullptr, &open_capture), BP_OK);
    ASSERT_EQ(softmax(x, y), BP_OK);
  }
  const Status status = registry.unload(plugin);
  ASSERT_TRUE(status.ok()) << status.message;
  EXPECT_EQ(bp_captured_graph_launch(graph, nullptr), BP_DEVICE_LOST);
  EXPECT_EQ(bp_capture_end(open_capture, nullptr), BP_DEVICE_LOST);
  destroy(graph);
}

TEST_F(CaptureTest, EndsWithAResetOfTheDevice) {
  bp_captured_graph* const graph = end(begin());
  bp_capture* const capture = begin();
  bp_block* const block = take(4096);
  ASSERT_EQ(target->devices->reset(target->devices->self, target->device), BP_OK)
      << bp_error_text();
  EXPECT_EQ(bp_captured_graph_launch(graph, nullptr), BP_DEVICE_LOST);
  EXPECT_NE(refusal().find("capture it anew"), std::string::npos) << refusal();
  bp_captured_graph* none = nullptr;
  EXPECT_EQ(bp_capture_end(capture, &none), BP_DEVICE_LOST);
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(bp_block_free(block), BP_OK);
  EXPECT_EQ(bp_captured_graph_destroy(graph), BP_OK) << bp_error_text();
  destroy(end(begin()));
}

TEST_F(CaptureTest, FailsOnALostDeviceAndLeavesNothing) {
  const bp_backend* const backend = core::impl(target).owner().instance.backend();
  const bp_test_fault_ops* faults = nullptr;
  ASSERT_EQ(backend->get_extension(backend->self, BP_TEST_FAULT_NAME, BP_TEST_FAULT_VERSION,
                                   reinterpret_cast<const void**>(&faults)),
            BP_OK);
  bp_captured_graph* const graph = end(begin());
  bp_capture* const capture = begin();
  bp_block* const block = take(4096);
  ASSERT_EQ(faults->lose_device(faults->self, target->device), BP_OK);
  bp_block* other = nullptr;
  EXPECT_EQ(bp_block_allocate(target, nullptr, 4 << 20, &other), BP_DEVICE_LOST);
  bp_captured_graph* none = nullptr;
  EXPECT_EQ(bp_capture_end(capture, &none), BP_DEVICE_LOST);
  EXPECT_NE(refusal(), "");
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(bp_captured_graph_launch(graph, nullptr), BP_DEVICE_LOST);
  EXPECT_EQ(bp_block_free(block), BP_OK);
  EXPECT_EQ(bp_captured_graph_destroy(graph), BP_OK) << bp_error_text();
  EXPECT_EQ(bp_capture_begin(target, nullptr, nullptr, nullptr), BP_INVALID_ARGUMENT);
  bp_capture* later = nullptr;
  EXPECT_EQ(bp_capture_begin(target, nullptr, nullptr, &later), BP_DEVICE_LOST);
}

TEST_F(CaptureTest, EndsWithTheUnload) {
  bp_capture* capture = begin();
  bp_block* const of_graph = take(4096);
  fill(of_graph, 1);
  bp_captured_graph* const graph = end(capture);
  replay(graph);
  capture = begin();
  bp_block* const of_capture = take(4096);
  const Status status = registry.unload(plugin);
  EXPECT_TRUE(status.ok()) << status.message;
  EXPECT_EQ(bp_captured_graph_launch(graph, nullptr), BP_DEVICE_LOST);
  bp_captured_graph* none = nullptr;
  EXPECT_EQ(bp_capture_end(capture, &none), BP_DEVICE_LOST);
  EXPECT_EQ(bp_block_free(of_graph), BP_OK);
  EXPECT_EQ(bp_block_free(of_capture), BP_OK);
  EXPECT_EQ(bp_captured_graph_destroy(graph), BP_OK) << bp_error_text();
  EXPECT_EQ(bp_capture_begin(target, nullptr, nullptr, &capture), BP_DEVICE_LOST);
}

// ---- Failures of a backend
// ------------------------------------------------------------------------

struct FakeCapture {
  core::FakeGraphs graphs;
  core::FakeBackend fake;
  core::TestRegistry r;
  bp_capture* capture = nullptr;
  bp_captured_graph* graph = nullptr;

  void load() { ASSERT_EQ(fake.load(r.registry), BP_OK) << bp_error_text(); }
  bp_status begin() { return bp_capture_begin(r.target(), nullptr, nullptr, &capture); }
};

TEST(CaptureFailures, SayThatADeviceRecordsNoGraphs) {
  FakeCapture f;
  f.load();
  EXPECT_EQ(f.begin(), BP_UNSUPPORTED);
  EXPECT_NE(refusal().find("records no graphs"), std::string::npos) << refusal();
}

TEST(CaptureFailures, AreNoneOfADeviceThatHasACompilerAndRecordsNoGraphs) {
  FakeCapture f;
  bp_compiler_ops compiler{.struct_size = sizeof(compiler), .struct_type = BP_STRUCT_COMPILER_OPS};
  // Nothing is compiled for a capture without launches.
  compiler.formats = [](auto...) -> bp_status { return BP_INTERNAL; };
  compiler.query = [](auto...) -> bp_status { return BP_INTERNAL; };
  compiler.compile = [](auto...) -> bp_status { return BP_INTERNAL; };
  compiler.executable_kernel = [](auto...) -> bp_status { return BP_INTERNAL; };
  compiler.executable_info = [](auto...) -> bp_status { return BP_INTERNAL; };
  compiler.release = [](auto...) -> bp_status { return BP_INTERNAL; };
  f.fake.compiler = &compiler;
  f.load();
  ASSERT_EQ(f.begin(), BP_OK) << bp_error_text();
  bp_capture* second = nullptr;
  EXPECT_EQ(bp_capture_begin(f.r.target(), nullptr, nullptr, &second), BP_INVALID_ARGUMENT);
  EXPECT_NE(refusal().find("the stream captures already"), std::string::npos) << refusal();
  bp_block* block = nullptr;
  ASSERT_EQ(bp_block_allocate(f.r.target(), nullptr, 64, &block), BP_OK) << bp_error_text();
  ASSERT_EQ(bp_capture_end(f.capture, &f.graph), BP_OK) << bp_error_text();
  EXPECT_EQ(bp_captured_graph_launch(f.graph, nullptr), BP_OK) << bp_error_text();
  EXPECT_EQ(bp_block_free(block), BP_OK);
  EXPECT_EQ(bp_captured_graph_destroy(f.graph), BP_OK) << bp_error_text();
}

TEST(CaptureFailures, LeaveNothingOfACaptureWhoseGraphCannotRun) {
  FakeCapture f;
  f.fake.graphs = &f.graphs.table;
  f.load();
  f.graphs.instantiate_status = BP_OUT_OF_MEMORY;
  ASSERT_EQ(f.begin(), BP_OK) << bp_error_text();
  bp_block* block = nullptr;
  ASSERT_EQ(bp_block_allocate(f.r.target(), nullptr, 64, &block), BP_OK) << bp_error_text();
  bp_block_free(block);
  EXPECT_GT(f.fake.devices[0].live_buffers, 0);
  EXPECT_EQ(bp_capture_end(f.capture, &f.graph), BP_OUT_OF_MEMORY);
  EXPECT_EQ(f.graphs.live_graphs, 0);
  EXPECT_EQ(f.fake.devices[0].live_buffers, 0);
  EXPECT_TRUE(f.graphs.capturing.empty());
}

TEST(CaptureFailures, PassOverKernelsThatCannotBeCaptured) {
  FakeCapture f;
  static std::vector<std::string> launched;
  launched.clear();
  bp_kernel eager = core::make_kernel("add.eager"), recorded = core::make_kernel("add.recorded");
  for (bp_kernel* kernel : {&eager, &recorded}) {
    kernel->launch = [](const bp_kernel* self, const bp_launch*, const void*) -> bp_status {
      launched.emplace_back(self->name);
      return BP_OK;
    };
  }
  recorded.flags |= BP_KERNEL_CAPTURABLE;
  f.fake.graphs = &f.graphs.table;
  f.fake.kernels = {&eager, &recorded};
  f.load();
  core::AddCall call;
  const auto add = [&] { return bp_op_launch(f.r.target(), nullptr, 0, BP_OP_ADD, &call.args); };
  ASSERT_EQ(add(), BP_OK) << bp_error_text();
  ASSERT_EQ(f.begin(), BP_OK) << bp_error_text();
  ASSERT_EQ(add(), BP_OK) << bp_error_text();
  recorded.flags = 0;
  EXPECT_EQ(add(), BP_INVALID_ARGUMENT);
  EXPECT_NE(refusal().find("has no BP_KERNEL_CAPTURABLE"), std::string::npos) << refusal();
  EXPECT_EQ(bp_capture_end(f.capture, nullptr), BP_OK);
  EXPECT_EQ(launched, (std::vector<std::string>{"add.eager", "add.recorded"}));
}

TEST(CaptureFailures, AreThoseOfTheBackend) {
  FakeCapture f;
  f.fake.graphs = &f.graphs.table;
  f.load();
  f.graphs.end_status = BP_INVALID_ARGUMENT;
  ASSERT_EQ(f.begin(), BP_OK) << bp_error_text();
  EXPECT_EQ(bp_capture_end(f.capture, &f.graph), BP_INVALID_ARGUMENT);
  f.graphs.end_status = BP_OK;
  ASSERT_EQ(f.begin(), BP_OK) << bp_error_text();
  ASSERT_EQ(bp_capture_end(f.capture, &f.graph), BP_OK) << bp_error_text();
  EXPECT_EQ(f.graphs.live_instances, 1);
  EXPECT_EQ(bp_captured_graph_destroy(f.graph), BP_OK);
  EXPECT_EQ(f.graphs.live_instances + f.graphs.live_graphs, 0);
}

TEST(CaptureFailures, RefuseABackendThatGivesNoIdForItsCapture) {
  FakeCapture f;
  f.graphs.table.capture_info = [](void*, bp_stream*, bp_capture_info*) -> bp_status {
    return BP_OK;
  };
  f.fake.graphs = &f.graphs.table;
  f.load();
  EXPECT_EQ(f.begin(), BP_INTERNAL);
  EXPECT_NE(refusal().find("capture_id"), std::string::npos) << refusal();
  EXPECT_TRUE(f.graphs.capturing.empty()) << "the capture is abandoned";
}

}  // namespace
}  // namespace bp
