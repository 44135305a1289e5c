// A host of the suite's own: it meets a plugin at its entry, keeps what the plugin says and counts
// what it takes.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "conformance/case.hpp"

namespace bp::conformance {

class TestHost {
 public:
  // `options` are the backend's.
  explicit TestHost(std::vector<bp_option> options);
  TestHost(const TestHost&) = delete;

  const bp_host& table() const { return table_; }

  // The latest error text, of any thread; "" if there was none since the last call.
  std::string take_text();

  // Blocks of host memory that the plugin has not given back.
  int64_t block_count() const { return block_count_; }

  // Has the request with this number, from now on, find no memory; has_refused() once it did.
  void refuse_block(int64_t index) { blocks_before_refusal_ = index; }
  bool has_refused() const { return blocks_before_refusal_ < 0; }

  // What the plugin gave back wrongly: memory of nobody, twice, or with another size; "" if
  // nothing.
  std::string misuse();

 private:
  static bp_status set_error(void* self, bp_status status, const char* message);
  static bp_status get_option(void* self, const char* key, const char** out_value);
  static bp_status allocate(void* self, uint64_t size_bytes, uint64_t alignment_bytes,
                            void** out_memory);
  static bp_status release(void* self, void* memory, uint64_t size_bytes);

  const std::vector<bp_option> options_;
  bp_host table_;
  std::atomic<int64_t> block_count_ = 0;
  std::atomic<int64_t> blocks_before_refusal_ = INT64_MAX;
  std::mutex mutex_;  // Guards what follows.
  std::string text_;
  std::map<void*, uint64_t> sizes_;  // Of the blocks.
  std::string misuse_;
};

// The entry of a plugin, and its library.
class PluginEntry {
 public:
  explicit PluginEntry(const std::string& path);

  // NULL if the file cannot be opened or has no entry.
  bp_backend_entry_fn* get() const { return function_; }

 private:
  struct Close {
    void operator()(void* library) const;
  };
  std::unique_ptr<void, Close> library_;
  bp_backend_entry_fn* function_ = nullptr;
};

// The entry of the plugin under test; ends the case where it has none.
PluginEntry open_entry(Context& t);

bp_entry_request entry_request(const TestHost& host);
bp_entry_reply blank_reply();

// One instance of a plugin with its tables as they are, without a registry in between.
class RawInstance {
 public:
  RawInstance(const PluginEntry& entry, TestHost& host);
  ~RawInstance() { end(); }
  RawInstance(const RawInstance&) = delete;

  // Why it could not be made; "" if it was.
  const std::string& problem() const { return problem_; }
  bp_status status() const { return status_; }

  // The status of shutdown(). A second call does nothing.
  bp_status end();

  const bp_backend& backend() const { return *backend_; }
  const bp_device_ops& devices() const { return *devices_; }
  const bp_allocator_ops& allocator() const { return *allocator_; }
  const bp_stream_ops& streams() const { return *streams_; }
  const bp_event_ops& events() const { return *events_; }

  // The device with this index; NULL if there is none.
  bp_device* device(uint64_t index) const;

 private:
  std::string problem_;
  bp_status status_ = BP_OK;
  const bp_backend* backend_ = nullptr;
  const bp_device_ops* devices_ = nullptr;
  const bp_allocator_ops* allocator_ = nullptr;
  const bp_stream_ops* streams_ = nullptr;
  const bp_event_ops* events_ = nullptr;
};

// Allocates, fills, reads back and frees, on a stream of its own. What went wrong; "" if nothing.
std::string use_device(const RawInstance& instance, bp_device* device, TestHost& host);

}  // namespace bp::conformance
