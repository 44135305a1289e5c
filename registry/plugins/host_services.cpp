#include "registry/plugins/host_services.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/fail.hpp"
#include "registry/boundary/plugin_text.hpp"

namespace bp::core {
namespace {

HostServices& impl(void* self) { return *static_cast<HostServices*>(self); }

}  // namespace

HostServices::HostServices(LogSink sink, const BackendOptions& options)
    : sink_(sink),
      table_{.struct_size = sizeof(bp_host),
             .struct_type = BP_STRUCT_HOST,
             .next = nullptr,
             .self = this,
             .set_error = set_error,
             .log_line = log_line,
             .get_option = get_option,
             .allocate = allocate,
             .deallocate = deallocate,
             .op_find = op_find,
             .op_describe = op_describe} {
  for (const auto& [key, value] : options) options_.emplace_back(key, value);
}

std::string HostServices::last_line() const {
  const std::lock_guard lock(mutex_);
  return last_line_;
}

std::string HostServices::unread_options() const {
  std::string keys;
  for (const Option& option : options_) {
    if (!option.is_read) keys += option.key + " ";
  }
  return keys;
}

// Keeps the text of a plugin. If memory runs out, the text is lost, but not the status.
bp_status HostServices::set_error(void* self, bp_status status, const char* message) noexcept try {
  return core::set_error(self, status, clean_text(message, LineBreaks::kIndent).c_str());
} catch (...) {
  return core::set_error(self, status, nullptr);
}

bp_status HostServices::log_line(void* self, bp_log_level level, const char* message) noexcept try {
  if (message == nullptr) return set_error(self, BP_INVALID_ARGUMENT, "log_line: message is NULL");
  HostServices& services = impl(self);
  if (level >= BP_LOG_INFO) {
    const std::lock_guard lock(services.mutex_);
    services.last_line_ = clean_text(message, LineBreaks::kEscape);
  }
  services.sink_.line(level, services.source_, clean_text(message, LineBreaks::kEscape));
  return BP_OK;
} catch (...) {
  return out_of_host_memory("log_line");
}

bp_status HostServices::get_option(void* self, const char* key, const char** out_value) noexcept {
  if (key == nullptr || out_value == nullptr) {
    return set_error(self, BP_INVALID_ARGUMENT, "get_option: key or out_value is NULL");
  }
  auto& options = impl(self).options_;
  const auto found = std::ranges::find(options, key, &Option::key);
  if (found == options.end()) return BP_NOT_FOUND;
  found->is_read = true;
  *out_value = found->value.c_str();
  return BP_OK;
}

bp_status HostServices::allocate(void* self, uint64_t size_bytes, uint64_t alignment_bytes,
                                 void** out_memory) noexcept {
  if (out_memory == nullptr || !std::has_single_bit(alignment_bytes)) {
    return set_error(self, BP_INVALID_ARGUMENT,
                     "allocate: out_memory is NULL, or alignment_bytes is no power of two");
  }
  void* memory = nullptr;
  const uint64_t alignment = std::max<uint64_t>(alignment_bytes, sizeof(void*));
  if (posix_memalign(&memory, alignment, std::max<uint64_t>(size_bytes, 1)) != 0) {
    return set_error(
        self, BP_OUT_OF_MEMORY,
        "allocate: the host has not so much memory left; free host memory or ask for less");
  }
  impl(self).allocation_count_.fetch_add(1, std::memory_order_relaxed);
  impl(self).allocated_bytes_.fetch_add(size_bytes, std::memory_order_relaxed);
  *out_memory = memory;
  return BP_OK;
}

bp_status HostServices::deallocate(void* self, void* memory, uint64_t size_bytes) noexcept {
  if (memory == nullptr) return BP_OK;
  impl(self).allocation_count_.fetch_sub(1, std::memory_order_relaxed);
  impl(self).allocated_bytes_.fetch_sub(size_bytes, std::memory_order_relaxed);
  std::free(memory);
  return BP_OK;
}

bp_status HostServices::op_find(void* self, const char* name, uint32_t* out_op) noexcept {
  if (name == nullptr || out_op == nullptr) {
    return set_error(self, BP_INVALID_ARGUMENT, "op_find: name or out_op is NULL");
  }
  const uint32_t op = bp_op_from_name(name);
  if (op == 0) return set_error(self, BP_NOT_FOUND, "op_find: this host has no op of this name");
  *out_op = op;
  return BP_OK;
}

bp_status HostServices::op_describe(void* /*self*/, uint32_t op,
                                    const bp_op_desc** out_desc) noexcept {
  return bp_op_describe(op, out_desc);
}

}  // namespace bp::core
