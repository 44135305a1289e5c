// Tests what the layers know of semaphores, on a backend whose semaphores do nothing.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "registry/tests/fake_backend.hpp"

namespace bp::core {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

bp_semaphore_ops semaphore_table() {
  bp_semaphore_ops ops{.struct_size = sizeof(bp_semaphore_ops),
                       .struct_type = BP_STRUCT_SEMAPHORE_OPS};
  ops.create = [](void*, bp_device*, const bp_semaphore_desc*, bp_semaphore** out) -> bp_status {
    *out = reinterpret_cast<bp_semaphore*>(new char);
    return BP_OK;
  };
  ops.destroy = [](void*, bp_semaphore* semaphore) -> bp_status {
    delete reinterpret_cast<char*>(semaphore);
    return BP_OK;
  };
  ops.query = [](void*, bp_semaphore*, uint64_t* out) -> bp_status { return *out = 5, BP_OK; };
  ops.signal = [](void*, bp_semaphore*, uint64_t) -> bp_status { return BP_OK; };
  ops.synchronize = [](void*, bp_semaphore*, uint64_t, uint64_t) -> bp_status { return BP_OK; };
  ops.submit_signal = [](void*, bp_stream*, bp_semaphore*, uint64_t) -> bp_status { return BP_OK; };
  ops.submit_wait = ops.submit_signal;
  ops.clear_failure = [](void*, bp_semaphore*) -> bp_status { return BP_OK; };
  return ops;
}

// A backend with two streams, behind one layer.
class SemaphoreLayers : public testing::Test {
 protected:
  SemaphoreLayers() { fake_.semaphores = &table_; }
  ~SemaphoreLayers() override {
    r_.reset();
    for (bp_stream* const stream : {first_, second_}) delete reinterpret_cast<char*>(stream);
  }

  void load(const char* layer, const char* options = nullptr) {
    r_ = std::make_unique<TestRegistry>(0, layer, options);
    ASSERT_EQ(fake_.load(r_->registry, &plugin_), BP_OK) << bp_error_text();
    ASSERT_EQ(bp_target_has_table(r_->target(), BP_STRUCT_SEMAPHORE_OPS), 1u);
    first_ = make_stream();
    second_ = make_stream();
  }
  bp_stream* make_stream() {
    const bp_stream_ops& ops = *r_->target()->streams;
    bp_stream* made = nullptr;
    EXPECT_EQ(ops.create(ops.self, r_->target()->device, nullptr, &made), BP_OK);
    return made;
  }
  bp_semaphore* make(uint64_t value = 0) {
    const bp_semaphore_desc desc{.struct_size = sizeof(desc),
                                 .struct_type = BP_STRUCT_SEMAPHORE_DESC,
                                 .initial_value = value};
    bp_semaphore* made = nullptr;
    EXPECT_EQ(ops().create(ops().self, r_->target()->device, &desc, &made), BP_OK);
    return made;
  }
  bp_buffer* allocate() {
    const bp_allocator_ops& memory = *r_->target()->allocator;
    const bp_allocate_desc desc{
        .struct_size = sizeof(desc), .struct_type = BP_STRUCT_ALLOCATE_DESC, .size_bytes = 24};
    bp_buffer* buffer = nullptr;
    EXPECT_EQ(memory.allocate(memory.self, r_->target()->device, &desc, &buffer), BP_OK);
    return buffer;
  }
  void fill(bp_stream* stream, bp_buffer* buffer) {
    const bp_allocator_ops& memory = *r_->target()->allocator;
    const bp_buffer_ref range{buffer, 0, 8};
    const unsigned char zero = 0;
    EXPECT_EQ(memory.fill(memory.self, stream, &range, &zero, 1), BP_OK) << bp_error_text();
  }
  void end(bp_semaphore* semaphore, bp_buffer* buffer) {
    const bp_allocator_ops& memory = *r_->target()->allocator;
    EXPECT_EQ(ops().destroy(ops().self, semaphore), BP_OK);
    EXPECT_EQ(memory.deallocate(memory.self, buffer, nullptr), BP_OK) << bp_error_text();
  }
  uint64_t reports(const char* layer) const {
    uint64_t count = 99;
    EXPECT_EQ(bp_plugin_layer_reports(plugin_, layer, &count), BP_OK);
    return count;
  }
  const bp_semaphore_ops& ops() const { return *r_->target()->semaphores; }

  const bp_semaphore_ops table_ = semaphore_table();
  FakeBackend fake_;
  std::unique_ptr<TestRegistry> r_;
  const bp_plugin* plugin_ = nullptr;
  bp_stream *first_ = nullptr, *second_ = nullptr;
};

TEST_F(SemaphoreLayers, ValidateKnowsTheOrderThatTheyMake) {
  load("validate");
  bp_semaphore* const s = make();
  bp_buffer* const buffer = allocate();
  fill(first_, buffer);
  EXPECT_EQ(ops().submit_signal(ops().self, first_, s, 2), BP_OK);
  EXPECT_EQ(ops().submit_wait(ops().self, second_, s, 1), BP_OK);
  fill(second_, buffer);
  EXPECT_EQ(reports("validate"), 0) << r_->log;
  fill(first_, buffer);
  EXPECT_EQ(reports("validate"), 1) << "nothing orders the second fill of the first stream";
  EXPECT_EQ(ops().submit_signal(ops().self, second_, s, 3), BP_OK);
  EXPECT_EQ(ops().submit_signal(ops().self, first_, s, 4), BP_OK);
  EXPECT_EQ(ops().synchronize(ops().self, s, 4, UINT64_MAX), BP_OK);
  end(s, buffer);
  EXPECT_EQ(reports("validate"), 1) << "the host has waited for all signals up to 4";
}

TEST_F(SemaphoreLayers, ValidateWaitsForSignalsToCome) {
  load("validate");
  bp_semaphore* const s = make();
  bp_buffer* const buffer = allocate();
  EXPECT_EQ(ops().submit_wait(ops().self, second_, s, 5), BP_OK);
  fill(first_, buffer);
  fill(second_, buffer);
  EXPECT_EQ(reports("validate"), 0) << "who signals is not known yet";
  EXPECT_EQ(ops().submit_signal(ops().self, first_, s, 5), BP_OK);
  fill(second_, buffer);
  EXPECT_EQ(reports("validate"), 0);
  fill(first_, buffer);
  EXPECT_EQ(reports("validate"), 1);
  const bp_stream_ops& streams = *r_->target()->streams;
  for (bp_stream* const stream : {first_, second_}) {
    EXPECT_EQ(streams.synchronize(streams.self, stream, UINT64_MAX), BP_OK);
  }
  end(s, buffer);
}

TEST_F(SemaphoreLayers, ValidateRefusesOneThatHasEnded) {
  load("validate");
  bp_semaphore* const s = make();
  EXPECT_EQ(ops().destroy(ops().self, s), BP_OK);
  EXPECT_EQ(ops().submit_wait(ops().self, first_, s, 1), BP_INVALID_ARGUMENT);
  EXPECT_NE(std::string(bp_error_text()).find("[SEMAPHORE-9] semaphore.submit_wait"),
            std::string::npos)
      << bp_error_text();
}

TEST_F(SemaphoreLayers, LeakNamesThoseThatWereNotDestroyed) {
  load("leak");
  bp_semaphore* const s = make();
  EXPECT_EQ(bp_registry_unload(r_->registry, plugin_, UINT64_MAX), BP_OK);
  EXPECT_NE(r_->log.find("was not destroyed; made by semaphore.create"), std::string::npos)
      << r_->log;
  delete reinterpret_cast<char*>(s);
}

TEST_F(SemaphoreLayers, RecordWritesTheirCalls) {
  std::string name = (fs::temp_directory_path() / "bp_semaphores_XXXXXX").string();
  const fs::path folder = mkdtemp(name.data());
  load("record", ("record.dir=" + (folder / "r").string()).c_str());
  bp_semaphore* const s = make(4);
  uint64_t value = 0;
  EXPECT_EQ(ops().submit_wait(ops().self, first_, s, 5), BP_OK);
  EXPECT_EQ(ops().signal(ops().self, s, 5), BP_OK);
  EXPECT_EQ(ops().query(ops().self, s, &value), BP_OK);
  EXPECT_EQ(ops().query(ops().self, s, &value), BP_OK);
  EXPECT_EQ(ops().destroy(ops().self, s), BP_OK);
  std::ifstream file(folder / "r" / "stream.jsonl");
  std::vector<json> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(json::parse(line));
    lines.back().erase("stream");
    if (!lines.back().value("call", "").starts_with("semaphore.")) lines.pop_back();
  }
  const std::vector<json> want = {
      {{"call", "semaphore.create"}, {"device", 0}, {"flags", 0}, {"semaphore", 1}, {"value", 4}},
      {{"call", "semaphore.submit_wait"}, {"semaphore", 1}, {"value", 5}},
      {{"call", "semaphore.signal"}, {"semaphore", 1}, {"value", 5}},
      {{"call", "semaphore.query"}, {"semaphore", 1}, {"value", 5}},
      {{"call", "semaphore.destroy"}, {"semaphore", 1}}};
  EXPECT_EQ(lines, want);
  r_.reset();
  fs::remove_all(folder);
}

}  // namespace
}  // namespace bp::core
