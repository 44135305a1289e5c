// The parts that the tests of layers share.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "registry/tests/fake_backend.hpp"

namespace bp::core {

inline uint64_t reports(const bp_plugin* plugin, const char* layer) {
  uint64_t count = 999;
  EXPECT_EQ(bp_plugin_layer_reports(plugin, layer, &count), BP_OK) << bp_error_text();
  return count;
}

// A folder that is removed at the end of the test.
struct TemporaryFolder {
  std::filesystem::path path;
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "bp_layers_XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
  std::string file(const char* name) const { return (path / name).string(); }
};

inline bp_buffer* allocate(const bp_target* target, uint64_t size_bytes) {
  const bp_allocate_desc desc{.struct_size = sizeof(desc),
                              .struct_type = BP_STRUCT_ALLOCATE_DESC,
                              .size_bytes = size_bytes};
  bp_buffer* buffer = nullptr;
  const bp_allocator_ops& memory = *target->allocator;
  EXPECT_EQ(memory.allocate(memory.self, target->device, &desc, &buffer), BP_OK) << bp_error_text();
  return buffer;
}

}  // namespace bp::core
