// Tests what a recording holds of a program that runs on a backend in memory of the host.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "registry/layers/record_frame.hpp"
#include "registry/tests/fake_backend.hpp"

namespace bp::core {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

class RecordLayer : public testing::Test {
 protected:
  RecordLayer() {
    std::string name = (fs::temp_directory_path() / "bp_record_XXXXXX").string();
    folder_ = mkdtemp(name.data());
    fake_.kernels = {&kernel_};
  }
  ~RecordLayer() override {
    registry_.reset();
    fs::remove_all(folder_);
  }

  void load(const std::string& options = "") {
    const std::string all = "record.dir=" + (folder_ / "r").string() + options;
    registry_ = std::make_unique<TestRegistry>(0, "record", all.c_str());
    ASSERT_EQ(fake_.load(registry_->registry, &plugin_), BP_OK) << bp_error_text();
  }

  bp_buffer* allocate(uint64_t size_bytes) {
    const bp_allocate_desc desc{.struct_size = sizeof(desc),
                                .struct_type = BP_STRUCT_ALLOCATE_DESC,
                                .size_bytes = size_bytes};
    bp_buffer* buffer = nullptr;
    EXPECT_EQ(memory().allocate(memory().self, target().device, &desc, &buffer), BP_OK);
    return buffer;
  }
  void upload(bp_buffer* buffer, uint64_t offset, const std::string& bytes) {
    const bp_buffer_ref range{buffer, offset, bytes.size()};
    EXPECT_EQ(memory().copy_from_host(memory().self, target().default_stream, &range, bytes.data(),
                                      BP_BORROW_DURING_CALL),
              BP_OK);
  }
  std::string download(bp_buffer* buffer, uint64_t offset, uint64_t size,
                       bp_borrow borrow = BP_BORROW_DURING_CALL) {
    std::string bytes(size, '?');
    const bp_buffer_ref range{buffer, offset, size};
    EXPECT_EQ(memory().copy_to_host(memory().self, target().default_stream, bytes.data(), &range,
                                    borrow, UINT64_MAX),
              BP_OK);
    return bytes;
  }
  void free(bp_buffer* buffer) {
    EXPECT_EQ(memory().deallocate(memory().self, buffer, nullptr), BP_OK);
  }

  // Launches y = a + b over two elements, all in one buffer.
  bp_status add(bp_buffer* buffer, bp_dtype dtype = BP_F32) {
    const int64_t shape[] = {2}, strides[] = {1};
    bp_tensor a{.buffer = buffer, .shape = shape, .strides = strides, .ndim = 1, .dtype = dtype};
    bp_tensor b = a, y = a;
    b.byte_offset = 8;
    y.byte_offset = 16;
    const bp_add_args args{.struct_size = sizeof(args), .a = &a, .b = &b, .y = &y};
    return bp_op_launch(registry_->target(), nullptr, 0, BP_OP_ADD, &args);
  }

  // Returns the lines of the recording. The lines of the end are there only after the unload.
  std::vector<json> lines() const {
    std::vector<json> all;
    std::ifstream file(folder_ / "r" / "stream.jsonl");
    for (std::string line; std::getline(file, line);) all.push_back(json::parse(line));
    return all;
  }
  std::vector<json> lines_of(const std::string& call) const {
    std::vector<json> found;
    for (const json& line : lines()) {
      if (line.value("call", "") == call) found.push_back(line);
    }
    return found;
  }
  std::string calls() const {
    std::string text;
    for (const json& line : lines()) text += line.value("call", "header") + " ";
    return text;
  }
  std::string payload(const json& line) const {
    std::ifstream file(folder_ / "r" / "payloads" / line.at("payload").get<std::string>(),
                       std::ios::binary);
    EXPECT_TRUE(file) << line;
    std::ostringstream bytes;
    bytes << file.rdbuf();
    return bytes.str();
  }
  uint64_t reports() const {
    uint64_t count = 99;
    EXPECT_EQ(bp_plugin_layer_reports(plugin_, "record", &count), BP_OK);
    return count;
  }

  const bp_target& target() const { return *registry_->target(); }
  const bp_allocator_ops& memory() const { return *target().allocator; }

  static bp_status sum(const bp_kernel*, const bp_launch*, const void* frame) {
    const auto& args = *static_cast<const bp_add_args*>(frame);
    const auto values = [](const bp_tensor* t) {
      return reinterpret_cast<float*>(reinterpret_cast<unsigned char*>(t->buffer) + t->byte_offset);
    };
    for (int64_t i = 0; i < args.y->shape[0]; ++i) {
      values(args.y)[i] = values(args.a)[i] + values(args.b)[i];
    }
    return BP_OK;
  }

  fs::path folder_;
  bp_kernel kernel_ = [] {
    bp_kernel kernel = make_kernel("add.fake");
    kernel.launch = sum;
    return kernel;
  }();
  FakeBackend fake_;
  std::unique_ptr<TestRegistry> registry_;
  const bp_plugin* plugin_ = nullptr;
};

// Captures begin, and their ends fail.
bp_graph_ops capturing_graphs() {
  bp_graph_ops graphs{.struct_size = sizeof(bp_graph_ops), .struct_type = BP_STRUCT_GRAPH_OPS};
  graphs.begin_capture = [](void*, bp_stream*, const bp_capture_desc*) -> bp_status {
    return BP_OK;
  };
  graphs.end_capture = [](void*, bp_stream*, bp_graph**) -> bp_status {
    return BP_INVALID_ARGUMENT;
  };
  graphs.launch = [](void*, bp_graph_instance*, bp_stream*) -> bp_status { return BP_OK; };
  return graphs;
}

std::string floats(std::initializer_list<float> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(float)};
}

TEST_F(RecordLayer, WritesCallsInTheirOrder) {
  load();
  bp_buffer* buffer = allocate(24);
  upload(buffer, 0, floats({1, 2, 10, 20}));
  ASSERT_EQ(add(buffer), BP_OK) << bp_error_text();
  EXPECT_EQ(download(buffer, 16, 8), floats({11, 22}));
  const uint16_t zero = 0;
  const bp_buffer_ref range{buffer, 2, 4};
  EXPECT_EQ(memory().fill(memory().self, target().default_stream, &range, &zero, 2), BP_OK);
  free(buffer);
  ASSERT_EQ(bp_registry_unload(registry_->registry, plugin_, UINT64_MAX), BP_OK);
  EXPECT_EQ(reports(), 0) << registry_->log;
  EXPECT_EQ(calls(),
            "header stream.default_stream memory.allocate memory.copy_from_host kernel.launch "
            "memory.copy_to_host memory.fill memory.deallocate device.synchronize end ");

  const json header = lines().front();
  EXPECT_EQ(header.at("format"), "backplane.recording");
  EXPECT_EQ(header.at("version"), 1);
  EXPECT_EQ(header.at("backend"), "acme.npu");
  EXPECT_EQ(header.at("devices").size(), 1);

  const json upload = lines_of("memory.copy_from_host").front();
  EXPECT_EQ(payload(upload), floats({1, 2, 10, 20}));
  EXPECT_EQ(upload.at("dst"), json({1, 0, 16}));
  const json launch = lines_of("kernel.launch").front();
  EXPECT_EQ(launch.at("op"), "add");
  EXPECT_EQ(launch.at("kernel"), "add.fake");
  EXPECT_EQ(
      launch.at("args").at("b"),
      json(
          {{"dtype", "f32"}, {"shape", {2}}, {"strides", {1}}, {"buffer", 1}, {"byte_offset", 8}}));
  EXPECT_FALSE(launch.contains("outputs"));
  EXPECT_EQ(payload(lines_of("memory.copy_to_host").front()), floats({11, 22}));
  EXPECT_EQ(lines_of("memory.fill").front().at("pattern"), "0000");
  EXPECT_EQ(lines_of("end").front().at("launches"), 1);
}

TEST_F(RecordLayer, NamesTheDtypesOfVendors) {
  bp_dtype dtype = 0;
  ASSERT_EQ(bp_dtype_add("acme.recorded", 32, &dtype), BP_OK) << bp_error_text();
  load();
  bp_buffer* const buffer = allocate(24);
  ASSERT_EQ(add(buffer, dtype), BP_OK) << bp_error_text();
  EXPECT_EQ(lines_of("kernel.launch").front().at("args").at("a").at("dtype"), "acme.recorded");
  free(buffer);
}

TEST_F(RecordLayer, KeepsEqualBytesOnce) {
  load();
  bp_buffer* buffer = allocate(24);
  for (const uint64_t offset : {0u, 8u, 16u}) upload(buffer, offset, "eight by");
  upload(buffer, 0, "other by");
  free(buffer);
  std::set<std::string> names;
  for (const json& line : lines_of("memory.copy_from_host")) names.insert(line.at("payload"));
  EXPECT_EQ(names.size(), 2);
  for (const auto& entry : fs::directory_iterator(folder_ / "r" / "payloads")) {
    EXPECT_EQ(names.erase(entry.path().filename().string()), 1) << entry.path();
  }
  EXPECT_TRUE(names.empty());
}

TEST_F(RecordLayer, WritesOutputsWhereTheyAreAskedFor) {
  load(",record.outputs=1");
  bp_buffer* buffer = allocate(24);
  upload(buffer, 0, floats({1, 2, 10, 20}));
  ASSERT_EQ(add(buffer), BP_OK) << bp_error_text();
  free(buffer);
  const json outputs = lines_of("kernel.launch").front().at("outputs");
  EXPECT_EQ(payload(outputs.at("y")), floats({11, 22}));
  EXPECT_EQ(outputs.at("y").at("byte_offset"), 16);
}

TEST_F(RecordLayer, NamesWhatItCannotRecord) {
  load();
  float foreign[6] = {};
  ASSERT_EQ(add(reinterpret_cast<bp_buffer*>(foreign)), BP_OK) << bp_error_text();
  EXPECT_EQ(reports(), 1) << "one line of the log, however many calls there are";
  ASSERT_EQ(add(reinterpret_cast<bp_buffer*>(foreign)), BP_OK) << bp_error_text();
  EXPECT_EQ(reports(), 1);
  const std::vector<json> unrecorded = lines_of("unrecorded");
  ASSERT_EQ(unrecorded.size(), 2);
  EXPECT_EQ(unrecorded[0].at("what"), "kernel.launch");
  EXPECT_EQ(unrecorded[0].at("why"), "a tensor lies in memory that the recording does not know");
}

TEST_F(RecordLayer, NamesACallThatGivesWhatItDoesNotKnow) {
  struct NewerArgs {
    bp_add_args known;
    uint64_t appended;
  };
  kernel_.spec_revision = BP_OPS_REVISION + 1;
  kernel_.args_size_bytes = sizeof(NewerArgs);
  load();
  bp_buffer* buffer = allocate(24);
  const int64_t shape[] = {2}, strides[] = {1};
  const bp_tensor x{
      .buffer = buffer, .shape = shape, .strides = strides, .ndim = 1, .dtype = BP_F32};
  NewerArgs args{{.struct_size = sizeof(args), .a = &x, .b = &x, .y = &x}, 0};
  ASSERT_EQ(bp_op_launch(registry_->target(), nullptr, 0, BP_OP_ADD, &args), BP_OK);
  args.appended = 1;
  ASSERT_EQ(bp_op_launch(registry_->target(), nullptr, 0, BP_OP_ADD, &args), BP_OK);
  free(buffer);
  EXPECT_EQ(lines_of("kernel.launch").size(), 1);
  ASSERT_EQ(lines_of("unrecorded").size(), 1);
  EXPECT_EQ(lines_of("unrecorded").front().at("why"),
            "add: byte 56 of its frame is not zero, and this host is too old to know it");
}

TEST_F(RecordLayer, WritesNoKernelThatRefuses) {
  kernel_.launch = [](const bp_kernel*, const bp_launch*, const void*) -> bp_status {
    return BP_UNSUPPORTED;
  };
  load();
  bp_buffer* buffer = allocate(24);
  EXPECT_NE(add(buffer), BP_OK);
  free(buffer);
  EXPECT_TRUE(lines_of("kernel.launch").empty()) << calls();
}

TEST_F(RecordLayer, WritesFailuresAsSuch) {
  kernel_.launch = [](const bp_kernel*, const bp_launch*, const void*) -> bp_status {
    return BP_ABORTED;
  };
  load();
  bp_buffer* buffer = allocate(24);
  EXPECT_EQ(add(buffer), BP_ABORTED);
  free(buffer);
  EXPECT_EQ(lines_of("kernel.launch").front(),
            json({{"call", "kernel.launch"}, {"status", "aborted"}}));
}

TEST_F(RecordLayer, SeesWhatTheHostWritesIntoMappedMemory) {
  fake_.allocator.map = [](void*, const bp_buffer_ref* range, void** out) -> bp_status {
    *out = fake_bytes(*range);
    return BP_OK;
  };
  fake_.allocator.unmap = [](void*, bp_buffer*, void*) -> bp_status { return BP_OK; };
  fake_.allocator.flush = [](void*, const bp_buffer_ref*) -> bp_status { return BP_OK; };
  load();
  bp_buffer* buffer = allocate(24);
  std::memset(fake_bytes({buffer, 0, 24}), 0, 24);
  const bp_buffer_ref range{buffer, 0, 16};
  void* mapped = nullptr;
  ASSERT_EQ(memory().map(memory().self, &range, &mapped), BP_OK);
  EXPECT_TRUE(lines_of("host.read").empty()) << "nobody has written yet";
  const std::string bytes = floats({1, 2, 10, 20});
  std::memcpy(mapped, bytes.data(), bytes.size());
  ASSERT_EQ(add(buffer), BP_OK);
  ASSERT_EQ(add(buffer), BP_OK);
  ASSERT_EQ(lines_of("host.write").size(), 1) << "the second launch reads the same bytes";
  EXPECT_EQ(lines_of("host.write").front().at("dst"), json({1, 0, 16}));
  EXPECT_EQ(payload(lines_of("host.write").front()), bytes);
  void* second = nullptr;
  const bp_buffer_ref part{buffer, 8, 8};
  ASSERT_EQ(memory().map(memory().self, &part, &second), BP_OK);
  ASSERT_EQ(memory().unmap(memory().self, buffer, second), BP_OK);
  static_cast<char*>(mapped)[0] ^= 1;
  ASSERT_EQ(memory().flush(memory().self, &range), BP_OK);
  EXPECT_EQ(lines_of("host.write").size(), 2) << "the first map is still open";
  static_cast<char*>(mapped)[0] ^= 1;
  ASSERT_EQ(memory().unmap(memory().self, buffer, mapped), BP_OK);
  EXPECT_EQ(lines_of("host.write").size(), 3);

  const bp_buffer_ref result{buffer, 16, 8};
  ASSERT_EQ(memory().map(memory().self, &result, &mapped), BP_OK);
  ASSERT_EQ(lines_of("host.read").size(), 3) << "two of the maps that were open together";
  EXPECT_EQ(payload(lines_of("host.read").back()), floats({11, 22}));
  ASSERT_EQ(memory().unmap(memory().self, buffer, mapped), BP_OK);
  free(buffer);
}

TEST_F(RecordLayer, ReadsLateCopiesBehindTheirStream) {
  static bp_stream_callback_fn* callback;
  static void* user_data;
  fake_.streams.add_callback = [](void*, bp_stream*, bp_stream_callback_fn* given,
                                  void* data) -> bp_status {
    callback = given;
    user_data = data;
    return BP_OK;
  };
  load();
  bp_buffer* buffer = allocate(8);
  upload(buffer, 0, "eight by");
  download(buffer, 0, 8, BP_BORROW_UNTIL_COMPLETE);
  const json copy = lines_of("memory.copy_to_host").front();
  EXPECT_FALSE(copy.contains("payload"));
  EXPECT_TRUE(lines_of("host.read").empty());
  callback(user_data, BP_OK);
  EXPECT_EQ(lines_of("host.read").front().at("read"), copy.at("read"));
  EXPECT_EQ(payload(lines_of("host.read").front()), "eight by");
  free(buffer);
}

TEST_F(RecordLayer, GivesEachBufferOfEachThreadANumberOfItsOwn) {
  fake_.allocator.allocate = [](void*, bp_device*, const bp_allocate_desc* desc,
                                bp_buffer** out) -> bp_status {
    *out = reinterpret_cast<bp_buffer*>(new unsigned char[desc->size_bytes]);
    return BP_OK;
  };
  fake_.allocator.deallocate = [](void*, bp_buffer* buffer, bp_stream*) -> bp_status {
    delete[] reinterpret_cast<unsigned char*>(buffer);
    return BP_OK;
  };
  load();
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this] {
      for (int n = 0; n < 50; ++n) {
        bp_buffer* buffer = allocate(8);
        upload(buffer, 0, "eight by");
        free(buffer);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<int> alive, all;
  for (const json& line : lines()) {
    const std::string call = line.value("call", "");
    if (call == "memory.allocate") {
      EXPECT_TRUE(all.insert(line.at("buffer").get<int>()).second) << line;
      alive.insert(line.at("buffer").get<int>());
    } else if (call == "memory.copy_from_host") {
      EXPECT_EQ(alive.count(line.at("dst").at(0).get<int>()), 1) << line;
    } else if (call == "memory.deallocate") {
      EXPECT_EQ(alive.erase(line.at("buffer").get<int>()), 1) << line;
    }
  }
  EXPECT_EQ(all.size(), 200);
  EXPECT_TRUE(alive.empty());
  EXPECT_TRUE(lines_of("unrecorded").empty());
}

TEST_F(RecordLayer, NamesInItsHeaderTheCallsThatItNeverRecords) {
  const bp_graph_ops graphs = capturing_graphs();
  fake_.graphs = &graphs;
  load();
  free(allocate(8));
  const json names = lines().front().at("not_recorded");
  EXPECT_EQ(names, json({"graph.begin_capture", "graph.end_capture", "graph.launch"}));
}

TEST_F(RecordLayer, TakesACaptureWhoseEndFailsForEnded) {
  const bp_graph_ops graphs = capturing_graphs();
  fake_.graphs = &graphs;
  load();
  bp_buffer* buffer = allocate(24);
  upload(buffer, 0, floats({1, 2, 10, 20}));
  const bp_graph_ops& ops = *target().graphs;
  ASSERT_EQ(ops.begin_capture(ops.self, target().default_stream, nullptr), BP_OK);
  ASSERT_EQ(add(buffer), BP_OK);
  EXPECT_TRUE(lines_of("kernel.launch").empty()) << "it is submitted to the capture";
  int other = 0;
  bp_graph* graph = nullptr;
  EXPECT_EQ(ops.end_capture(ops.self, reinterpret_cast<bp_stream*>(&other), &graph),
            BP_INVALID_ARGUMENT);
  ASSERT_EQ(add(buffer), BP_OK);
  EXPECT_TRUE(lines_of("kernel.launch").empty()) << "another stream's end is not this one's";
  EXPECT_EQ(ops.end_capture(ops.self, target().default_stream, &graph), BP_INVALID_ARGUMENT);
  ASSERT_EQ(add(buffer), BP_OK);
  EXPECT_EQ(lines_of("kernel.launch").size(), 1) << calls();
  free(buffer);
}

TEST_F(RecordLayer, RefusesAFolderThatHoldsARecording) {
  load();
  const std::string options = "record.dir=" + (folder_ / "r").string();
  TestRegistry second(0, "record", options.c_str());
  FakeBackend other;
  EXPECT_EQ(other.load(second.registry), BP_ALREADY_EXISTS);
  EXPECT_EQ(std::string(bp_error_text()),
            "acme.npu: layer option record.dir: '" + (folder_ / "r").string() +
                "' holds a recording; give a folder that is empty or not there yet");
  TestRegistry third(0, "record", "record.dir=/proc/nowhere");
  FakeBackend another;
  EXPECT_EQ(another.load(third.registry), BP_NOT_FOUND);
  EXPECT_STREQ(bp_error_text(),
               "acme.npu: layer option record.dir: '/proc/nowhere' cannot be written");
  TestRegistry fourth(0, "record", "record.outputs=2");
  FakeBackend last;
  EXPECT_EQ(last.load(fourth.registry), BP_INVALID_ARGUMENT);
  EXPECT_STREQ(bp_error_text(), "layer option record.outputs is '2', allowed are numbers up to 1");
}

// Returns the names of the members that a recording has of `args`, if a later revision appended to
// the frame what is there from `first_size_bytes` on.
std::string recorded_members(uint32_t op, const void* args, uint32_t first_size_bytes) {
  OpRow row = *find_op(op);
  row.sizes[0].size_bytes = first_size_bytes;
  const auto number_of = [](const bp_buffer*) { return uint64_t{1}; };
  const auto members = layers::frame_json(row, args, number_of);
  std::string names;
  for (const auto& [name, value] : members.items()) {
    names += (names.empty() ? "" : " ") + name;
  }
  return names;
}

TEST(RecordFrame, HasAMemberThatCameLaterOnlyWhereItIsGiven) {
  bp_linear_args linear{.struct_size = sizeof(linear)};
  constexpr uint32_t kFirst = offsetof(bp_linear_args, activation);
  EXPECT_EQ(recorded_members(BP_OP_LINEAR, &linear, kFirst), "");
  EXPECT_EQ(recorded_members(BP_OP_LINEAR, &linear, sizeof(linear)), "activation alpha beta");
  const bp_tensor tensor{.dtype = BP_F32};
  linear.addend = &tensor;
  linear.activation = 2;
  linear.beta = -0.0;  // It is not zero as the host compares frames.
  EXPECT_EQ(recorded_members(BP_OP_LINEAR, &linear, kFirst), "activation addend beta");

  const int64_t axes[] = {0};
  bp_mean_args mean{.struct_size = sizeof(mean), .axes_count = 0, .axes = axes};
  constexpr uint32_t kShort = offsetof(bp_mean_args, axes_count);
  EXPECT_EQ(recorded_members(BP_OP_MEAN, &mean, kShort), "");
  mean.axes_count = 1;
  EXPECT_EQ(recorded_members(BP_OP_MEAN, &mean, kShort), "axes");
}

TEST_F(RecordLayer, FollowsNoSymbolicLinkInPlaceOfItsStream) {
  load();
  const fs::path stream = folder_ / "r" / "stream.jsonl", victim = folder_ / "victim";
  std::ofstream(victim) << "precious";
  fs::remove(stream);
  fs::create_symlink(victim, stream);
  free(allocate(64));
  ASSERT_EQ(bp_registry_unload(registry_->registry, plugin_, UINT64_MAX), BP_OK);
  EXPECT_NE(registry_->log.find("is not complete: it could not be written"), std::string::npos)
      << registry_->log;
  EXPECT_EQ(fs::file_size(victim), std::string("precious").size());
}

}  // namespace
}  // namespace bp::core
