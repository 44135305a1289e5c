// Tests what the layer trace writes of calls and of the work of devices.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "registry/tests/comma_locale.hpp"
#include "registry/tests/layered.hpp"

namespace bp::core {
namespace {

nlohmann::json events_of(const std::string& file) {
  std::ifstream stream(file);
  return nlohmann::json::parse(stream);
}

TEST(TraceLayer, WritesEveryCallWithItsArguments) {
  const TemporaryFolder folder;
  const std::string options = "trace.file=" + folder.file("%b.json");
  TestRegistry r(0, "trace", options.c_str());
  const bp_kernel kernel = make_kernel("add.\"fast\"");
  FakeBackend fake;
  fake.kernels = {&kernel};
  const bp_plugin* plugin = nullptr;
  ASSERT_EQ(fake.load(r.registry, &plugin), BP_OK) << bp_error_text();
  bp_buffer* buffer = allocate(r.target(), 64);
  const int64_t shape[] = {2, 3}, strides[] = {3, 1};
  const bp_tensor a{
      .buffer = buffer, .shape = shape, .strides = strides, .ndim = 2, .dtype = BP_F32};
  const bp_add_args args{.struct_size = sizeof(args), .a = &a, .b = &a, .y = &a};
  ASSERT_EQ(bp_op_launch(r.target(), nullptr, 0, BP_OP_ADD, &args), BP_OK) << bp_error_text();
  const bp_allocator_ops& memory = *r.target()->allocator;
  uint64_t address = 0;
  EXPECT_EQ(memory.address(memory.self, buffer, &address), BP_UNSUPPORTED);
  EXPECT_EQ(memory.deallocate(memory.self, buffer, nullptr), BP_OK);
  ASSERT_EQ(bp_registry_unload(r.registry, plugin, UINT64_MAX), BP_OK);

  const nlohmann::json events = events_of(folder.file("acme.npu.json"));
  std::map<std::string, nlohmann::json> by_name;
  for (const auto& event : events) by_name[event.at("name")] = event;
  EXPECT_EQ(by_name.at("memory.allocate").at("args").at("size_bytes"), 64);
  EXPECT_EQ(by_name.at("memory.allocate").at("args").at("status"), "ok");
  EXPECT_EQ(by_name.at("memory.allocate").at("args").at("out_buffer"),
            by_name.at("memory.deallocate").at("args").at("buffer"));
  EXPECT_EQ(by_name.at("memory.deallocate").at("args").at("stream"), "NULL");
  const auto& launch = by_name.at("add.\"fast\"");
  EXPECT_EQ(launch.at("cat"), "kernel");
  EXPECT_GE(launch.at("dur"), 0);
  EXPECT_EQ(launch.at("args").at("op"), "add");
  EXPECT_NE(launch.at("args").at("tensors").get<std::string>().find("a f32[2, 3] at 0x"),
            std::string::npos);
  EXPECT_EQ(by_name.count("memory.address"), 0) << "it is not offered, so nobody was called";
  EXPECT_EQ(by_name.count("backend.shutdown"), 1);
}

TEST(TraceLayer, IsJsonInALocaleWithADecimalComma) {
  const CommaLocale locale;
  if (!locale.is_set()) GTEST_SKIP() << CommaLocale::kNone;
  const TemporaryFolder folder;
  const std::string options = "trace.file=" + folder.file("trace.json");
  TestRegistry r(0, "trace", options.c_str());
  FakeBackend fake;
  const bp_plugin* plugin = nullptr;
  ASSERT_EQ(fake.load(r.registry, &plugin), BP_OK) << bp_error_text();
  ASSERT_EQ(bp_registry_unload(r.registry, plugin, UINT64_MAX), BP_OK);
  const nlohmann::json events = events_of(folder.file("trace.json"));
  EXPECT_EQ(events.back().at("name"), "backend.shutdown");
  EXPECT_TRUE(events.back().at("ts").is_number());
}

TEST(TraceLayer, LetsNoTwoBackendsWriteOneFile) {
  const TemporaryFolder folder;
  const std::string options = "trace.file=" + folder.file("run.json");
  TestRegistry r(0, "trace", options.c_str());
  FakeBackend npu("acme.npu"), cpu("acme.cpu");
  for (FakeBackend* fake : {&npu, &cpu}) ASSERT_EQ(fake->load(r.registry), BP_OK);
  EXPECT_NE(r.log.find("'" + folder.file("run.acme.cpu.json") + "'"), std::string::npos) << r.log;
  while (bp_registry_plugin_count(r.registry) != 0) {
    ASSERT_EQ(bp_registry_unload(r.registry, bp_registry_plugin(r.registry, 0), UINT64_MAX), BP_OK);
  }
  for (const char* backend : {"npu", "cpu"}) {
    const bool is_first = std::string(backend) == "npu";
    const auto events = events_of(folder.file(is_first ? "run.json" : "run.acme.cpu.json"));
    EXPECT_EQ(events.front().at("args").at("name"), "backplane acme." + std::string(backend));
    EXPECT_EQ(events.back().at("name"), "backend.shutdown");
  }
}

// The next function keeps here what the host asked of its profiler.
bp_profile_desc sink;
int stops = 0;

// The device's clock began 5 s after the host's.
constexpr int64_t kClockNs = 5'000'000'000;

int64_t device_now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch().count() - kClockNs;
}

bp_profiler_ops make_profiler() {
  bp_profiler_ops profiler{.struct_size = sizeof(bp_profiler_ops),
                           .struct_type = BP_STRUCT_PROFILER_OPS};
  profiler.start = [](void*, bp_device*, const bp_profile_desc* desc) -> bp_status {
    sink = *desc;
    return BP_OK;
  };
  profiler.stop = [](void*, bp_device*, uint64_t) -> bp_status {
    ++stops;
    return BP_OK;
  };
  profiler.calibrate = [](void*, bp_device*, int64_t* device_ns, int64_t* host_ns,
                          int64_t* error_ns) -> bp_status {
    *host_ns = std::chrono::steady_clock::now().time_since_epoch().count();
    *device_ns = *host_ns - kClockNs;
    *error_ns = 0;
    return BP_OK;
  };
  return profiler;
}

TEST(TraceLayer, PutsTheWorkOfADeviceOnTheClockOfTheHost) {
  stops = 0;
  const bp_profiler_ops profiler = make_profiler();
  const TemporaryFolder folder;
  const std::string options = "trace.device=1,trace.file=" + folder.file("trace.json");
  TestRegistry r(0, "trace", options.c_str());
  const bp_kernel kernel = make_kernel("add.fast");
  FakeBackend fake;
  fake.kernels = {&kernel};
  fake.profiler = &profiler;
  const bp_plugin* plugin = nullptr;
  ASSERT_EQ(fake.load(r.registry, &plugin), BP_OK) << bp_error_text();
  const bp_launch launch{.device = r.target()->device, .stream = r.target()->default_stream};
  const bp_kernel* front = bp_target_kernel(r.target(), 0);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(front->launch(front, &launch, nullptr), BP_OK);
  ASSERT_NE(sink.sink, nullptr);
  const int64_t now = device_now_ns();
  const bp_activity activity{.struct_size = sizeof(activity),
                             .struct_type = BP_STRUCT_ACTIVITY,
                             .name = "rows\xff \xc3\xa4\x1f",  // One byte is no UTF-8.
                             .stream = launch.stream,
                             .start_ns = now,
                             .end_ns = now + 2000,
                             .bytes = 64,
                             .kind = BP_ACTIVITY_KERNEL};
  sink.sink(sink.user_data, &activity);
  ASSERT_EQ(bp_registry_unload(r.registry, plugin, UINT64_MAX), BP_OK);
  EXPECT_EQ(stops, 1);
  double last_launch = 0;
  nlohmann::json work;
  for (const auto& event : events_of(folder.file("trace.json"))) {
    if (event.at("name") == "add.fast") last_launch = event.at("ts");
    if (event.at("name") == "rows\xEF\xBF\xBD \xc3\xa4\x1f") work = event;
  }
  EXPECT_EQ(work.at("cat"), "device");
  EXPECT_DOUBLE_EQ(work.at("dur"), 2);
  EXPECT_EQ(work.at("args").at("bytes"), 64);
  EXPECT_GT(work.at("ts"), last_launch) << "it ran behind both launches, on the clock of the host";
}

TEST(TraceLayer, SaysThatItsFileCannotBeWritten) {
  TestRegistry r(0, "trace", "trace.file=/nowhere/trace.json");
  FakeBackend fake;
  EXPECT_EQ(fake.load(r.registry), BP_NOT_FOUND);
  EXPECT_STREQ(bp_error_text(),
               "acme.npu: layer option trace.file: '/nowhere/trace.json' cannot be written: No "
               "such file or directory; give a path that can be written");
  EXPECT_EQ(fake.shutdowns, 1);
}

TEST(TraceLayer, FollowsNoSymbolicLinkToAnotherFile) {
  const TemporaryFolder folder;
  const std::string victim = folder.file("victim"), trace = folder.file("trace.json");
  const std::string options = "trace.file=" + trace;
  std::ofstream(victim) << "precious";
  std::filesystem::create_symlink(victim, trace);
  {
    TestRegistry r(0, "trace", options.c_str());
    FakeBackend fake;
    EXPECT_EQ(fake.load(r.registry), BP_NOT_FOUND);
    EXPECT_EQ(std::string(bp_error_text()),
              "acme.npu: layer option trace.file: '" + trace +
                  "' cannot be written: it is a symbolic link, which layers do not follow; remove "
                  "it, or give the file to which it leads");
  }

  // The link takes the place of a trace that has begun.
  std::filesystem::remove(trace);
  TestRegistry r(0, "trace", options.c_str());
  FakeBackend fake;
  const bp_plugin* plugin = nullptr;
  ASSERT_EQ(fake.load(r.registry, &plugin), BP_OK) << bp_error_text();
  std::filesystem::remove(trace);
  std::filesystem::create_symlink(victim, trace);
  ASSERT_EQ(bp_registry_unload(r.registry, plugin, UINT64_MAX), BP_OK);
  EXPECT_NE(r.log.find("is not complete: it could not be written: it is a symbolic link"),
            std::string::npos)
      << r.log;

  std::ifstream stream(victim);
  std::string content;
  std::getline(stream, content);
  EXPECT_EQ(content, "precious");
}

TEST(TraceLayer, WritesTheCallsOfEachThreadUnderItsNumberAndWhole) {
  constexpr int kThreads = 4, kCalls = 100;
  const TemporaryFolder folder;
  const std::string options = "trace.file=" + folder.file("trace.json");
  TestRegistry r(0, "trace", options.c_str());
  FakeBackend fake;
  const bp_plugin* plugin = nullptr;
  ASSERT_EQ(fake.load(r.registry, &plugin), BP_OK) << bp_error_text();
  const bp_stream_ops& streams = *r.target()->streams;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < kCalls; ++n) streams.synchronize(streams.self, nullptr, 7);
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(bp_registry_unload(r.registry, plugin, UINT64_MAX), BP_OK);
  std::map<int64_t, int> calls;
  for (const auto& event : events_of(folder.file("trace.json"))) {
    if (event.at("name") != "stream.synchronize") continue;
    ++calls[event.at("tid").get<int64_t>()];
    EXPECT_EQ(event.at("args").at("timeout_ns"), 7);
  }
  ASSERT_EQ(calls.size(), kThreads);
  for (const auto& [thread, count] : calls) EXPECT_EQ(count, kCalls) << thread;
}

TEST(TraceLayer, WritesMoreThanItKeepsInMemory) {
  const TemporaryFolder folder;
  const std::string options = "trace.file=" + folder.file("trace.json");
  TestRegistry r(0, "trace", options.c_str());
  FakeBackend fake;
  const bp_plugin* plugin = nullptr;
  ASSERT_EQ(fake.load(r.registry, &plugin), BP_OK) << bp_error_text();
  const bp_stream_ops& streams = *r.target()->streams;
  for (int i = 0; i < 3000; ++i) streams.synchronize(streams.self, nullptr, UINT64_MAX);
  EXPECT_GT(std::filesystem::file_size(folder.file("trace.json")), 256u << 10)
      << "a process that dies leaves what was written until then";
  ASSERT_EQ(bp_registry_unload(r.registry, plugin, UINT64_MAX), BP_OK);
  size_t count = 0;
  for (const auto& event : events_of(folder.file("trace.json"))) {
    count += event.at("name") == "stream.synchronize" ? 1 : 0;
  }
  EXPECT_EQ(count, 3000u);
}

TEST(TraceLayer, TellsOfAFailureWithItsStatusAndWithoutResults) {
  const TemporaryFolder folder;
  const std::string options = "trace.file=" + folder.file("trace.json");
  TestRegistry r(0, "trace", options.c_str());
  FakeBackend fake;
  fake.streams.create = [](void*, bp_device*, const bp_stream_desc*, bp_stream**) -> bp_status {
    return BP_OUT_OF_MEMORY;
  };
  const bp_plugin* plugin = nullptr;
  ASSERT_EQ(fake.load(r.registry, &plugin), BP_OK) << bp_error_text();
  const bp_stream_ops& streams = *r.target()->streams;
  auto* out = reinterpret_cast<bp_stream*>(&fake);
  EXPECT_EQ(streams.create(streams.self, r.target()->device, nullptr, &out), BP_OUT_OF_MEMORY);
  ASSERT_EQ(bp_registry_unload(r.registry, plugin, UINT64_MAX), BP_OK);
  nlohmann::json call;
  for (const auto& event : events_of(folder.file("trace.json"))) {
    if (event.at("name") == "stream.create") call = event.at("args");
  }
  EXPECT_EQ(call.at("status"), "out of memory");
  EXPECT_FALSE(call.contains("out_stream")) << call;
}

TEST(TraceLayer, LetsAnotherWriteAFileThatIsComplete) {
  const TemporaryFolder folder;
  const std::string options = "trace.file=" + folder.file("trace.json");
  for (int i = 0; i < 2; ++i) {
    TestRegistry r(0, "trace", options.c_str());
    FakeBackend fake;
    const bp_plugin* plugin = nullptr;
    ASSERT_EQ(fake.load(r.registry, &plugin), BP_OK) << bp_error_text();
    ASSERT_EQ(bp_registry_unload(r.registry, plugin, UINT64_MAX), BP_OK);
    r.log.clear();
  }
  EXPECT_EQ(events_of(folder.file("trace.json")).back().at("name"), "backend.shutdown");
}

TEST(TraceLayer, GoesOnWithoutAProfilerWhereWorkOfTheDeviceIsAskedFor) {
  const TemporaryFolder folder;
  const std::string options = "trace.device=1,trace.file=" + folder.file("trace.json");
  TestRegistry r(0, "trace", options.c_str());
  const bp_kernel kernel = make_kernel("add.fast");
  FakeBackend fake;
  fake.kernels = {&kernel};
  ASSERT_EQ(fake.load(r.registry), BP_OK) << bp_error_text();
  const bp_launch launch{.device = r.target()->device};
  const bp_kernel* front = bp_target_kernel(r.target(), 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(front->launch(front, &launch, nullptr), BP_OK);
  const std::string words = "the backend has no profiler; its calls alone are traced";
  const size_t first = r.log.find(words);
  EXPECT_NE(first, r.log.npos) << r.log;
  EXPECT_EQ(r.log.find(words, first + 1), r.log.npos) << "it is said once";
}

}  // namespace
}  // namespace bp::core
