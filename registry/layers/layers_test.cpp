// Tests how layers are chosen and put on, and what the layers do that only watch.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "registry/tests/layered.hpp"

namespace bp::core {
namespace {

TEST(Layers, WithoutOneTheTablesAreTheBackendsOwn) {
  TestRegistry r(BP_REGISTRY_IGNORE_ENVIRONMENT);
  const bp_kernel kernel = make_kernel("add.fast");
  FakeBackend fake;
  fake.kernels = {&kernel};
  const bp_plugin* plugin = nullptr;
  ASSERT_EQ(fake.load(r.registry, &plugin), BP_OK) << bp_error_text();
  EXPECT_STREQ(plugin->layers, "");
  EXPECT_EQ(r.target()->allocator->allocate, fake.allocator.allocate);
  EXPECT_EQ(r.target()->allocator->self, &fake);
  EXPECT_EQ(bp_target_kernel(r.target(), 0), &kernel);
  uint64_t count = 7;
  EXPECT_EQ(bp_plugin_layer_reports(plugin, "leak", &count), BP_NOT_FOUND);
  EXPECT_STREQ(bp_error_text(), "acme.npu: it has no layer 'leak'; its layers are: none");
  EXPECT_EQ(count, 7);
}

TEST(Layers, RefusesWhatDoesNotExist) {
  struct Row {
    const char* layers;
    const char* options;
    bp_status status;
    const char* text;
  };
  const Row rows[] = {
      {"laek", nullptr, BP_NOT_FOUND, "layers: there is no layer 'laek'; there are diff, fault, "},
      {"leak,trace,leak", nullptr, BP_INVALID_ARGUMENT,
       "layers: 'leak' is given twice in 'leak,trace,leak'"},
      {"leak", "leak.fali=1", BP_NOT_FOUND, "layer option 'leak.fali': leak has fail"},
      {"leak", "lake.fail=1", BP_NOT_FOUND, "layers: there is no layer 'lake'; there are"},
      {"leak", "leak.fail", BP_INVALID_ARGUMENT, "layer option 'leak.fail' is not LAYER.KEY=VALUE"},
      {"leak", "trace.file=x", BP_INVALID_ARGUMENT,
       "layer option 'trace.file=x': its layer is not in use; in use are leak"},
      {"leak", "leak.fail=1,leak.fail=0", BP_INVALID_ARGUMENT,
       "layer option 'leak.fail' is given twice"},
  };
  for (const Row& row : rows) {
    const bp_registry_desc desc{.struct_size = sizeof(bp_registry_desc),
                                .struct_type = BP_STRUCT_REGISTRY_DESC,
                                .layers = row.layers,
                                .layer_options = row.options};
    bp_registry* registry = nullptr;
    EXPECT_EQ(bp_registry_create(&desc, &registry), row.status) << row.text;
    EXPECT_EQ(std::string(bp_error_text()).substr(0, std::strlen(row.text)), row.text);
    EXPECT_EQ(registry, nullptr);
  }
  TestRegistry r(0, "leak", "leak.fail=two");
  FakeBackend fake;
  EXPECT_EQ(fake.load(r.registry), BP_INVALID_ARGUMENT);
  EXPECT_STREQ(bp_error_text(), "layer option leak.fail is 'two', allowed are numbers up to 1");
}

TEST(Layers, ComeFromTheEnvironmentUnlessTheProgramSaysOtherwise) {
  setenv("BACKPLANE_LAYERS", "leak", 1);
  setenv("BACKPLANE_LAYER_OPTIONS", "leak.fail=1", 1);
  TestRegistry r, chosen(0, ""), ignoring(BP_REGISTRY_IGNORE_ENVIRONMENT);
  FakeBackend fake, other, third;
  const bp_plugin* plugin = nullptr;
  EXPECT_EQ(fake.load(r.registry, &plugin), BP_OK) << bp_error_text();
  EXPECT_STREQ(plugin->layers, "leak");
  EXPECT_EQ(other.load(chosen.registry, &plugin), BP_OK) << bp_error_text();
  EXPECT_STREQ(plugin->layers, "");
  EXPECT_EQ(third.load(ignoring.registry, &plugin), BP_OK) << bp_error_text();
  EXPECT_STREQ(plugin->layers, "");
  setenv("BACKPLANE_LAYERS", "nothing", 1);
  TestRegistry wrong;
  FakeBackend fourth;
  EXPECT_EQ(fourth.load(wrong.registry), BP_NOT_FOUND);
  unsetenv("BACKPLANE_LAYERS");
  unsetenv("BACKPLANE_LAYER_OPTIONS");
}

TEST(Layers, PassCallsOnInAnyOrder) {
  const TemporaryFolder folder;
  const std::string options = "trace.file=" + folder.file("trace.json");
  for (const char* layers : {"leak,trace", "trace,leak"}) {
    TestRegistry r(0, layers, options.c_str());
    bp_kernel kernel = make_kernel("add.fast");
    static const void* seen;
    kernel.state = &kernel;
    kernel.launch = [](const bp_kernel* self, const bp_launch*, const void*) -> bp_status {
      seen = self;
      return BP_OK;
    };
    FakeBackend fake;
    fake.kernels = {&kernel};
    const bp_plugin* plugin = nullptr;
    ASSERT_EQ(fake.load(r.registry, &plugin), BP_OK) << bp_error_text();
    EXPECT_STREQ(plugin->layers, layers);
    EXPECT_EQ(plugin->kernel_count, 1);
    EXPECT_EQ(r.target()->device, fake.device(0));
    bp_buffer* buffer = allocate(r.target(), 64);
    EXPECT_EQ(fake.devices[0].live_buffers, 1);
    const bp_kernel* front = bp_target_kernel(r.target(), 0);
    EXPECT_NE(front, &kernel);
    const bp_launch launch{.device = r.target()->device};
    EXPECT_EQ(front->launch(front, &launch, nullptr), BP_OK);
    EXPECT_EQ(seen, &kernel);
    const bp_allocator_ops& memory = *r.target()->allocator;
    EXPECT_EQ(memory.deallocate(memory.self, buffer, nullptr), BP_OK);
    EXPECT_EQ(fake.devices[0].live_buffers, 0);
    EXPECT_EQ(bp_registry_unload(r.registry, plugin, UINT64_MAX), BP_OK);
    EXPECT_EQ(fake.shutdowns, 1);
    EXPECT_EQ(r.log, "");
    EXPECT_EQ(reports(plugin, "leak"), 0);
  }
}

TEST(Layers, LeaveWhatABackendLacksAbsent) {
  TestRegistry plain(0, ""), layered(0, "leak");
  FakeBackend first, second;
  const bp_kernel broken = make_kernel("broken", 9999);
  for (FakeBackend* fake : {&first, &second}) {
    fake->kernels = {&broken, nullptr};
    fake->adds_allocator_twice = true;
  }
  const bp_plugin *without = nullptr, *with = nullptr;
  ASSERT_EQ(first.load(plain.registry, &without), BP_OK) << bp_error_text();
  ASSERT_EQ(second.load(layered.registry, &with), BP_OK) << bp_error_text();
  EXPECT_STREQ(with->refusals, without->refusals);
  EXPECT_NE(std::string(with->refusals).find("stream.flush"), std::string::npos);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(second.results[i].outcome, first.results[i].outcome);
  const bp_stream_ops& streams = *layered.target()->streams;
  EXPECT_EQ(streams.flush(streams.self, layered.target()->default_stream), BP_UNSUPPORTED);
  EXPECT_STREQ(bp_error_text(), "stream.flush is not offered by this backend");
}

const bp_kernel* preferring = nullptr;  // The kernel that the next table was asked about.
bp_kernel compiled;

bp_layout_ops make_layouts() {
  bp_layout_ops layouts{.struct_size = sizeof(bp_layout_ops), .struct_type = BP_STRUCT_LAYOUT_OPS};
  layouts.preferred = [](void*, bp_device*, const bp_kernel* kernel, uint32_t, const void*,
                         const bp_layout**) -> bp_status {
    preferring = kernel;
    return BP_OK;
  };
  return layouts;
}

bp_compiler_ops make_compiler() {
  bp_compiler_ops compiler{.struct_size = sizeof(bp_compiler_ops),
                           .struct_type = BP_STRUCT_COMPILER_OPS};
  compiler.executable_kernel = [](void*, bp_executable*, const bp_kernel** out) -> bp_status {
    *out = &compiled;
    return BP_OK;
  };
  compiler.release = [](void*, bp_executable*) -> bp_status { return BP_OK; };
  return compiler;
}

TEST(Layers, HandOnTheKernelsOfTheOtherSide) {
  compiled = make_kernel("program", 0);
  const bp_layout_ops layouts = make_layouts();
  const bp_compiler_ops compiler = make_compiler();
  TestRegistry r(0, "oldabi,fault", "oldabi.minor=" BP_TEST_STRING(BP_ABI_MINOR));
  const bp_kernel kernel = make_kernel("add.fast");
  FakeBackend fake;
  fake.kernels = {&kernel};
  fake.layouts = &layouts;
  fake.compiler = &compiler;
  ASSERT_EQ(fake.load(r.registry), BP_OK) << bp_error_text();
  const bp_target& target = *r.target();
  const bp_kernel* front = bp_target_kernel(&target, 0);
  const bp_layout* layout = nullptr;
  EXPECT_EQ(
      target.layouts->preferred(target.layouts->self, target.device, front, 0, nullptr, &layout),
      BP_OK);
  EXPECT_EQ(preferring, &kernel) << "the backend gets its own kernel";
  auto* const executable = reinterpret_cast<bp_executable*>(&fake);
  const bp_kernel *first = nullptr, *second = nullptr;
  for (const bp_kernel** lent : {&first, &second}) {
    EXPECT_EQ(target.compiler->executable_kernel(target.compiler->self, executable, lent), BP_OK);
  }
  EXPECT_NE(first, &compiled) << "the host gets the one of the layer in front";
  EXPECT_EQ(first, second);
  const bp_launch launch{};
  EXPECT_EQ(first->launch(first, &launch, nullptr), BP_OK);
  EXPECT_EQ(target.compiler->release(target.compiler->self, executable), BP_OK);
}

TEST(Layers, KeepATableThatIsTooShortTooShort) {
  TestRegistry r(0, "leak");
  FakeBackend fake;
  fake.allocator.struct_size = 40;
  EXPECT_EQ(fake.load(r.registry), BP_INTERNAL);
  EXPECT_NE(std::string(bp_error_text()).find("struct_size is 40"), std::string::npos)
      << bp_error_text();
}

// Replaces the slots that threads call by slots without the counters of the fake.
void make_thread_safe(FakeBackend& fake) {
  fake.allocator.allocate = [](void*, bp_device*, const bp_allocate_desc* desc,
                               bp_buffer** out) -> bp_status {
    *out = reinterpret_cast<bp_buffer*>(new unsigned char[desc->size_bytes]);
    return BP_OK;
  };
  fake.allocator.deallocate = [](void*, bp_buffer* buffer, bp_stream*) -> bp_status {
    delete[] reinterpret_cast<unsigned char*>(buffer);
    return BP_OK;
  };
  fake.allocator.fill = [](void*, bp_stream*, const bp_buffer_ref* dst, const void* pattern,
                           uint64_t) -> bp_status {
    std::memset(fake_bytes(*dst), *static_cast<const unsigned char*>(pattern), dst->size_bytes);
    return BP_OK;
  };
  fake.streams.create = [](void*, bp_device*, const bp_stream_desc*, bp_stream** out) -> bp_status {
    *out = reinterpret_cast<bp_stream*>(new char);
    return BP_OK;
  };
  fake.streams.destroy = [](void*, bp_stream* stream) -> bp_status {
    delete reinterpret_cast<char*>(stream);
    return BP_OK;
  };
}

// Makes, uses and ends a stream and a buffer. Returns true if every call succeeded.
bool work_once(const bp_target& target) {
  const bp_stream_ops& streams = *target.streams;
  const bp_allocator_ops& memory = *target.allocator;
  const bp_allocate_desc desc{
      .struct_size = sizeof(desc), .struct_type = BP_STRUCT_ALLOCATE_DESC, .size_bytes = 64};
  bp_stream* stream = nullptr;
  bp_buffer* buffer = nullptr;
  if (streams.create(streams.self, target.device, nullptr, &stream) != BP_OK) return false;
  if (memory.allocate(memory.self, target.device, &desc, &buffer) != BP_OK) return false;
  const bp_buffer_ref range{buffer, 0, 64};
  const unsigned char zero = 0;
  bool is_well = memory.fill(memory.self, stream, &range, &zero, 1) == BP_OK;
  const int64_t shape[] = {16}, strides[] = {1};
  const bp_tensor a{
      .buffer = buffer, .shape = shape, .strides = strides, .ndim = 1, .dtype = BP_F32};
  const bp_add_args args{.struct_size = sizeof(args), .a = &a, .b = &a, .y = &a};
  const bp_launch launch{.device = target.device, .stream = stream};
  const bp_kernel* kernel = bp_target_kernel(&target, 0);
  is_well &= kernel->launch(kernel, &launch, &args) == BP_OK;
  is_well &= streams.synchronize(streams.self, stream, UINT64_MAX) == BP_OK;
  is_well &= memory.deallocate(memory.self, buffer, nullptr) == BP_OK;
  return (streams.destroy(streams.self, stream) == BP_OK) && is_well;
}

TEST(Layers, ServeManyThreadsAtOnce) {
  const TemporaryFolder folder;
  const std::string options = "trace.file=" + folder.file("trace.json") + ",fault.memory=1000000";
  TestRegistry r(0, "validate,trace,leak,fault", options.c_str());
  const bp_kernel kernel = make_kernel("add.fast");
  FakeBackend fake;
  make_thread_safe(fake);
  fake.kernels = {&kernel};
  const bp_plugin* plugin = nullptr;
  ASSERT_EQ(fake.load(r.registry, &plugin), BP_OK) << bp_error_text();
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 100; ++n) failures += work_once(*r.target()) ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures.load(), 0);
  EXPECT_EQ(bp_registry_unload(r.registry, plugin, UINT64_MAX), BP_OK) << bp_error_text();
  EXPECT_EQ(r.log, "");
}

TEST(LeakLayer, SaysWhatWasNotGivenBackAndWhereItWasMade) {
  TestRegistry r(0, "leak", "leak.fail=1");
  FakeBackend fake;
  fake.leaked_bytes = 100;
  const bp_plugin* plugin = nullptr;
  ASSERT_EQ(fake.load(r.registry, &plugin), BP_OK) << bp_error_text();
  bp_buffer* kept = allocate(r.target(), 64);
  bp_buffer* freed = allocate(r.target(), 32);
  const bp_allocator_ops& memory = *r.target()->allocator;
  EXPECT_EQ(memory.deallocate(memory.self, freed, nullptr), BP_OK);
  const bp_stream_ops& streams = *r.target()->streams;
  bp_stream* stream = nullptr;
  ASSERT_EQ(streams.create(streams.self, r.target()->device, nullptr, &stream), BP_OK);
  EXPECT_EQ(bp_registry_unload(r.registry, plugin, UINT64_MAX), BP_INVALID_ARGUMENT);
  EXPECT_STREQ(bp_error_text(),
               "acme.npu: shutdown: leak: not given back: 1 buffer, 1 stream, 1 host memory");
  EXPECT_EQ(reports(plugin, "leak"), 3);
  for (const char* words :
       {"acme.npu/leak: buffer 0x", " of 64 bytes was not freed; made by memory.allocate, called",
        "stream 0x", "was not destroyed; made by stream.create", "host memory 0x",
        " of 100 bytes was not freed", "layers_test+0x"}) {
    EXPECT_NE(r.log.find(words), std::string::npos) << words << " in\n" << r.log;
  }
  EXPECT_EQ(r.log.find("of 32 bytes"), std::string::npos) << r.log;
  delete[] reinterpret_cast<unsigned char*>(kept);
  delete reinterpret_cast<char*>(stream);
}

TEST(LeakLayer, CountsTheReferencesOfALayoutAlsoWhereAReleaseFails) {
  static bool fails;
  fails = false;
  static char made;
  bp_layout_ops layouts{.struct_size = sizeof(bp_layout_ops), .struct_type = BP_STRUCT_LAYOUT_OPS};
  layouts.preferred = [](void*, bp_device*, const bp_kernel*, uint32_t, const void*,
                         const bp_layout** out) -> bp_status {
    *out = reinterpret_cast<const bp_layout*>(&made);
    return BP_OK;
  };
  layouts.retain = [](void*, const bp_layout*) -> bp_status { return BP_OK; };
  layouts.release = [](void*, const bp_layout*) -> bp_status {
    return fails ? BP_INTERNAL : BP_OK;
  };
  for (const int missing : {0, 1}) {
    TestRegistry r(0, "leak");
    FakeBackend fake;
    fake.layouts = &layouts;
    const bp_plugin* plugin = nullptr;
    ASSERT_EQ(fake.load(r.registry, &plugin), BP_OK) << bp_error_text();
    const bp_layout_ops& table = *r.target()->layouts;
    const bp_layout* layout = nullptr;
    ASSERT_EQ(table.preferred(table.self, r.target()->device, nullptr, 0, nullptr, &layout), BP_OK);
    ASSERT_EQ(table.retain(table.self, layout), BP_OK);
    fails = true;
    EXPECT_EQ(table.release(table.self, layout), BP_INTERNAL);
    fails = false;
    for (int i = 0; i < 2 - missing; ++i) EXPECT_EQ(table.release(table.self, layout), BP_OK);
    EXPECT_EQ(bp_registry_unload(r.registry, plugin, UINT64_MAX), BP_OK);
    EXPECT_EQ(reports(plugin, "leak"), static_cast<uint64_t>(missing));
    EXPECT_EQ(r.log.find("was not released; made by layout.preferred") != r.log.npos, missing == 1)
        << r.log;
  }
}

TEST(LeakLayer, ReportsInTheOrderInWhichHandlesWereMadeAndForgetsWhatAResetEnded) {
  TestRegistry r(0, "leak");
  FakeBackend fake;
  fake.device_ops.reset = [](void*, bp_device*) -> bp_status { return BP_OK; };
  const bp_plugin* plugin = nullptr;
  ASSERT_EQ(fake.load(r.registry, &plugin), BP_OK) << bp_error_text();
  const bp_device_ops& devices = *r.target()->devices;
  const bp_allocator_ops& memory = *r.target()->allocator;
  bp_buffer* lost = allocate(r.target(), 16);
  ASSERT_EQ(devices.reset(devices.self, r.target()->device), BP_OK);
  bp_buffer* second = allocate(r.target(), 32);
  bp_buffer* third = allocate(r.target(), 48);
  bp_buffer* fourth = allocate(r.target(), 64);
  EXPECT_EQ(memory.deallocate(memory.self, third, nullptr), BP_OK);
  EXPECT_EQ(bp_registry_unload(r.registry, plugin, UINT64_MAX), BP_OK)
      << "reports alone fail nothing";
  EXPECT_EQ(reports(plugin, "leak"), 2);
  const size_t first_line = r.log.find("of 32 bytes"), second_line = r.log.find("of 64 bytes");
  EXPECT_LT(first_line, second_line) << r.log;
  EXPECT_NE(second_line, r.log.npos) << r.log;
  EXPECT_EQ(r.log.find("of 16 bytes"), r.log.npos) << r.log;
  for (bp_buffer* buffer : {lost, second, fourth}) delete[] reinterpret_cast<char*>(buffer);
}

}  // namespace
}  // namespace bp::core
