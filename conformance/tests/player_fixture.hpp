// What the tests of the player share: recordings made line by line, and a real backend behind the
// layer that counts handles.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "conformance/recordings/player.hpp"
#include "registry/files/sha256.hpp"

namespace bp::conformance {

using nlohmann::json;
namespace fs = std::filesystem;

// A registry with the backend of the tests.
class Host {
 public:
  explicit Host(const char* layers = "leak", const char* layer_options = nullptr,
                bp_registry_flags flags = 0) {
    const bp_registry_desc desc{.struct_size = sizeof(desc),
                                .struct_type = BP_STRUCT_REGISTRY_DESC,
                                .flags = flags | BP_REGISTRY_IGNORE_ENVIRONMENT,
                                .layers = layers,
                                .layer_options = layer_options};
    EXPECT_EQ(bp_registry_create(&desc, &registry_), BP_OK) << bp_error_text();
    EXPECT_EQ(bp_registry_load(registry_, BACKPLANE_TEST_PLUGIN, 0, nullptr, &plugin_), BP_OK)
        << bp_error_text();
  }
  Host(const Host&) = delete;
  ~Host() { static_cast<void>(bp_registry_destroy(registry_)); }

  const bp_target& target() const { return *bp_registry_target(registry_, 0); }

  // The handles that were not given back when the backend ended.
  uint64_t leaks() {
    uint64_t count = 999;
    EXPECT_EQ(bp_registry_unload(registry_, plugin_, UINT64_MAX), BP_OK) << bp_error_text();
    EXPECT_EQ(bp_plugin_layer_reports(plugin_, "leak", &count), BP_OK) << bp_error_text();
    return count;
  }

 private:
  bp_registry* registry_ = nullptr;
  const bp_plugin* plugin_ = nullptr;
};

inline std::string bytes_of(const std::vector<float>& values) {
  std::string bytes(values.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

class Players : public testing::Test {
 protected:
  Players() {
    std::string path = (fs::temp_directory_path() / "bp_player_XXXXXX").string();
    folder_ = mkdtemp(path.data());
    fs::create_directory(folder_ / "payloads");
    source_.path = folder_.string();
    lines_ = {{{"call", "stream.default_stream"}, {"device", 0}, {"stream", 1}}};
  }
  ~Players() override { fs::remove_all(folder_); }

  std::string payload(const std::string& bytes) const {
    std::string name = sha256(bytes);
    std::ofstream(folder_ / "payloads" / name, std::ios::binary) << bytes;
    return name;
  }

  // Each adds a line, and gives its index.
  size_t add(json line) {
    lines_.push_back(std::move(line));
    return lines_.size() - 1;
  }
  size_t allocate(uint64_t buffer, uint64_t size) {
    return add({{"call", "memory.allocate"},
                {"device", 0},
                {"buffer", buffer},
                {"size_bytes", size},
                {"alignment_bytes", 0},
                {"usage", 0}});
  }
  size_t upload(const json& dst, const std::string& bytes, uint64_t on = 1) {
    return add({{"call", "memory.copy_from_host"},
                {"stream", on},
                {"dst", dst},
                {"payload", payload(bytes)}});
  }
  size_t read(const json& src, const std::string& bytes, uint64_t on = 1) {
    return add({{"call", "memory.copy_to_host"},
                {"stream", on},
                {"read", ++reads_},
                {"src", src},
                {"payload", payload(bytes)}});
  }
  size_t free(uint64_t buffer) {
    return add({{"call", "memory.deallocate"}, {"buffer", buffer}, {"stream", 1}});
  }
  static json tensor(uint64_t buffer, int64_t count, uint64_t byte_offset = 0) {
    return {{"dtype", "f32"},
            {"shape", {count}},
            {"strides", {1}},
            {"buffer", buffer},
            {"byte_offset", byte_offset}};
  }
  size_t launch(const char* op, const json& args, uint64_t on = 1) {
    return add({{"call", "kernel.launch"},
                {"launch", ++launches_},
                {"device", 0},
                {"stream", on},
                {"flags", 0},
                {"op", op},
                {"kernel", "it"},
                {"args", args}});
  }
  // y = a + a, of four numbers in buffers 1 and 2.
  size_t launch_add() {
    return launch("add", {{"a", tensor(1, 4)}, {"b", tensor(1, 4)}, {"y", tensor(2, 4)}});
  }
  void begin_with(const std::vector<float>& values) {
    allocate(1, 16);
    allocate(2, 16);
    upload({1, 0, 16}, bytes_of(values));
  }

  Recording recording() const {
    std::ofstream file(folder_ / "stream.jsonl");
    file << json{{"format", "backplane.recording"}, {"version", 1}} << "\n";
    for (const json& line : lines_) file << line.dump() << "\n";
    file.close();
    return Recording(source_);
  }
  std::string place(size_t line) const {
    return (folder_ / "stream.jsonl").string() + ":" + std::to_string(line + 2) + ": ";
  }

  // The results of all lines on a new host, which keeps no handle of theirs.
  std::vector<LineResult> play() { return play_on(host_.emplace()); }
  std::vector<LineResult> play_on(Host& host) {
    std::vector<LineResult> results;
    {
      const Recording played = recording();
      Player player(played, host.target());
      for (size_t i = 0; i < lines_.size(); ++i) results.push_back(player.result_of(i));
    }
    EXPECT_EQ(host.leaks(), 0u);
    return results;
  }
  // Plays what ends at a defect of line `at`: the line `told` says so, and no later one is reached.
  void expect_end(size_t at, size_t told, const std::string& words, const char* cause) {
    const std::vector<LineResult> results = play();
    EXPECT_EQ(results[told].outcome, Outcome::kFail);
    EXPECT_TRUE(results[told].finding.message.starts_with(place(at))) << told;
    EXPECT_NE(results[told].finding.message.find(words), std::string::npos)
        << results[told].finding.message;
    EXPECT_EQ(results[told].finding.cause, cause);
    for (size_t i = told + 1; i < results.size(); ++i) {
      EXPECT_EQ(results[i].outcome, Outcome::kSkip) << i;
      EXPECT_TRUE(results[i].finding.message.starts_with("not reached: ")) << i;
    }
  }

  fs::path folder_;
  RecordingSource source_;
  std::vector<json> lines_;
  uint64_t reads_ = 0, launches_ = 0;
  std::optional<Host> host_;
};

}  // namespace bp::conformance
