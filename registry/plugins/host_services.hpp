// The services of the host, as one instance of a backend receives them.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backplane/host.h"
#include "registry/boundary/log_sink.hpp"
#include "registry/plugins/backend_options.hpp"

namespace bp::core {

// Thread-safe after set_source(). Outlives the instance that received table().
class HostServices {
 public:
  HostServices(LogSink sink, const BackendOptions& options);
  HostServices(const HostServices&) = delete;

  const bp_host* table() const { return &table_; }

  // The name in front of the backend's lines. Before the instance runs on other threads.
  void set_source(std::string source) { source_ = std::move(source); }

  // The latest line of the backend at level info or above; "" if there was none.
  std::string last_line() const;

  // The options that the backend never asked for, each followed by a space.
  std::string unread_options() const;

  // Host memory that the backend holds.
  uint64_t allocation_count() const { return allocation_count_.load(); }
  uint64_t allocated_bytes() const { return allocated_bytes_.load(); }

 private:
  struct Option {
    std::string key, value;
    std::atomic<bool> is_read = false;
    Option(std::string k, std::string v) : key(std::move(k)), value(std::move(v)) {}
    Option(Option&& other) noexcept : key(std::move(other.key)), value(std::move(other.value)) {}
  };

  static bp_status set_error(void* self, bp_status status, const char* message) noexcept;
  static bp_status log_line(void* self, bp_log_level level, const char* message) noexcept;
  static bp_status get_option(void* self, const char* key, const char** out_value) noexcept;
  static bp_status allocate(void* self, uint64_t size_bytes, uint64_t alignment_bytes,
                            void** out_memory) noexcept;
  static bp_status deallocate(void* self, void* memory, uint64_t size_bytes) noexcept;
  static bp_status op_find(void* self, const char* name, uint32_t* out_op) noexcept;
  static bp_status op_describe(void* self, uint32_t op, const bp_op_desc** out_desc) noexcept;

  LogSink sink_;
  std::string source_;
  std::vector<Option> options_;
  std::atomic<uint64_t> allocation_count_ = 0;
  std::atomic<uint64_t> allocated_bytes_ = 0;
  mutable std::mutex mutex_;
  std::string last_line_;  // Guarded by mutex_.
  bp_host table_;
};

}  // namespace bp::core
