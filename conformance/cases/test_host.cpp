#include "conformance/cases/test_host.hpp"

#include <dlfcn.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace bp::conformance {
namespace {

// What register_all() is given: tables are kept, kernels and optional tables are let pass.
struct Registration {
  const bp_device_ops* devices = nullptr;
  const bp_allocator_ops* allocator = nullptr;
  const bp_stream_ops* streams = nullptr;
  const bp_event_ops* events = nullptr;
};

void accept(bp_add_result* out_results, uint64_t count) {
  for (uint64_t i = 0; out_results != nullptr && i < count; ++i) {
    out_results[i] = {.outcome = BP_ADD_ACCEPTED, .reserved = 0, .reason = nullptr};
  }
}

Registration& registration(void* self) { return *static_cast<Registration*>(self); }

bp_status add_device(void* self, uint64_t, bp_device* const*, const bp_device_ops* devices,
                     bp_add_result* out_result) {
  registration(self).devices = devices;
  return accept(out_result, 1), BP_OK;
}

bp_status add_allocator(void* self, uint64_t, bp_device* const*, const bp_allocator_ops* allocator,
                        bp_add_result* out_result) {
  registration(self).allocator = allocator;
  return accept(out_result, 1), BP_OK;
}

bp_status add_streams(void* self, uint64_t, bp_device* const*, const bp_stream_ops* streams,
                      const bp_event_ops* events, bp_add_result* out_result) {
  registration(self).streams = streams;
  registration(self).events = events;
  return accept(out_result, 1), BP_OK;
}

bp_status add_kernels(void*, uint64_t, bp_device* const*, uint64_t kernel_count,
                      const bp_kernel* const*, bp_add_result* out_results) {
  return accept(out_results, kernel_count), BP_OK;
}

}  // namespace

TestHost::TestHost(std::vector<bp_option> options)
    : options_(std::move(options)),
      table_{.struct_size = sizeof(bp_host),
             .struct_type = BP_STRUCT_HOST,
             .next = nullptr,
             .self = this,
             .set_error = set_error,
             .log = [](void*, bp_log_level, const char*) -> bp_status { return BP_OK; },
             .get_option = get_option,
             .allocate = allocate,
             .free = release} {}

std::string TestHost::take_text() {
  const std::lock_guard lock(mutex_);
  return std::exchange(text_, {});
}

bp_status TestHost::set_error(void* self, bp_status status, const char* message) {
  auto& host = *static_cast<TestHost*>(self);
  const std::lock_guard lock(host.mutex_);
  host.text_ = message == nullptr ? "" : message;
  return status;
}

bp_status TestHost::get_option(void* self, const char* key, const char** out_value) {
  for (const bp_option& option : static_cast<TestHost*>(self)->options_) {
    if (std::strcmp(option.key, key) == 0) return *out_value = option.value, BP_OK;
  }
  return BP_NOT_FOUND;
}

std::string TestHost::misuse() {
  const std::lock_guard lock(mutex_);
  return misuse_;
}

bp_status TestHost::allocate(void* self, uint64_t size_bytes, uint64_t alignment_bytes,
                             void** out_memory) {
  auto& host = *static_cast<TestHost*>(self);
  if (host.blocks_before_refusal_.fetch_sub(1) == 0) return BP_OUT_OF_MEMORY;
  const std::lock_guard lock(host.mutex_);
  if (!std::has_single_bit(alignment_bytes)) {
    host.misuse_ = "asked for an alignment of " + std::to_string(alignment_bytes) + " bytes";
    return BP_INVALID_ARGUMENT;
  }
  const uint64_t rounded = (size_bytes + alignment_bytes - 1) / alignment_bytes;
  void* memory = std::aligned_alloc(alignment_bytes, rounded * alignment_bytes);
  if (memory == nullptr) return BP_OUT_OF_MEMORY;
  host.sizes_[memory] = size_bytes;
  ++host.block_count_;
  return *out_memory = memory, BP_OK;
}

bp_status TestHost::release(void* self, void* memory, uint64_t size_bytes) {
  auto& host = *static_cast<TestHost*>(self);
  if (memory == nullptr) return BP_OK;
  const std::lock_guard lock(host.mutex_);
  const auto found = host.sizes_.find(memory);
  if (found == host.sizes_.end()) {
    host.misuse_ = "gave back memory that it has not, or not any more";
    return BP_INVALID_ARGUMENT;
  }
  if (found->second != size_bytes) {
    host.misuse_ = "took " + std::to_string(found->second) + " bytes and gave back " +
                   std::to_string(size_bytes);
  }
  host.sizes_.erase(found);
  --host.block_count_;
  std::free(memory);
  return BP_OK;
}

void PluginEntry::Close::operator()(void* library) const { dlclose(library); }

PluginEntry::PluginEntry(const std::string& path)
    : library_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (library_ == nullptr) return;
  function_ = reinterpret_cast<bp_backend_entry_fn*>(dlsym(library_.get(), "bp_backend_entry"));
}

PluginEntry open_entry(Context& t) {
  const std::string path = t.target().plugin->path;
  if (path == "(static)") t.skip("the backend is linked into the program");
  PluginEntry entry(path);
  t.require(entry.get() != nullptr, "the plugin opens and exports bp_backend_entry");
  return entry;
}

bp_entry_request entry_request(const TestHost& host) {
  return {.struct_size = sizeof(bp_entry_request),
          .struct_type = BP_STRUCT_ENTRY_REQUEST,
          .abi_major_min = BP_ABI_MAJOR,
          .abi_major_max = BP_ABI_MAJOR,
          .abi_minor = BP_ABI_MINOR,
          .abi_minor_min = BP_ABI_MINOR_MIN,
          .host = &host.table()};
}

bp_entry_reply blank_reply() {
  return {.struct_size = sizeof(bp_entry_reply), .struct_type = BP_STRUCT_ENTRY_REPLY};
}

RawInstance::RawInstance(const PluginEntry& entry, TestHost& host) {
  const bp_entry_request request = entry_request(host);
  bp_entry_reply reply = blank_reply();
  status_ = entry.get()(&request, &reply);
  if (status_ != BP_OK) {
    problem_ = "the entry: " + host.take_text();
    return;
  }
  backend_ = reply.backend;
  Registration tables;
  const bp_registrar registrar{.struct_size = sizeof(bp_registrar),
                               .struct_type = BP_STRUCT_REGISTRAR,
                               .next = nullptr,
                               .self = &tables,
                               .add_device = add_device,
                               .add_allocator = add_allocator,
                               .add_streams = add_streams,
                               .add_kernels = add_kernels};
  status_ = backend_->register_all(backend_->self, &registrar);
  devices_ = tables.devices;
  allocator_ = tables.allocator;
  streams_ = tables.streams;
  events_ = tables.events;
  if (status_ != BP_OK) {
    problem_ = "register_all: " + host.take_text();
  } else if (devices_ == nullptr || allocator_ == nullptr || streams_ == nullptr) {
    problem_ = "register_all added no devices, no allocator or no streams";
  }
}

bp_status RawInstance::end() {
  const bp_backend* const backend = std::exchange(backend_, nullptr);
  return backend == nullptr ? bp_status{BP_OK} : backend->shutdown(backend->self);
}

bp_device* RawInstance::device(uint64_t index) const {
  uint64_t count = 0;
  if (devices_->enumerate(devices_->self, 0, nullptr, &count) != BP_OK) return nullptr;
  std::vector<bp_device*> list(count);
  if (devices_->enumerate(devices_->self, count, list.data(), &count) != BP_OK) return nullptr;
  return index < list.size() ? list[index] : nullptr;
}

std::string use_device(const RawInstance& instance, bp_device* device, TestHost& host) {
  constexpr uint64_t kSize = 4096;
  const bp_allocator_ops& memory = instance.allocator();
  const bp_stream_ops& streams = instance.streams();
  const bp_allocate_desc desc{.struct_size = sizeof(bp_allocate_desc),
                              .struct_type = BP_STRUCT_ALLOCATE_DESC,
                              .size_bytes = kSize};
  bp_stream* stream = nullptr;
  bp_buffer* buffer = nullptr;
  std::vector<uint8_t> bytes(kSize);
  const uint8_t pattern = 0x3C;
  bp_status status = streams.create(streams.self, device, nullptr, &stream);
  if (status == BP_OK) status = memory.allocate(memory.self, device, &desc, &buffer);
  const bp_buffer_ref whole{buffer, 0, kSize};
  if (status == BP_OK) status = memory.fill(memory.self, stream, &whole, &pattern, 1);
  if (status == BP_OK) {
    status = memory.copy_to_host(memory.self, stream, bytes.data(), &whole, BP_BORROW_DURING_CALL);
  }
  const std::string text = host.take_text();
  if (buffer != nullptr) static_cast<void>(memory.free(memory.self, buffer, nullptr));
  if (stream != nullptr) static_cast<void>(streams.destroy(streams.self, stream));
  if (status != BP_OK) return std::string(bp_status_name(status)) + ": " + text;
  return bytes == std::vector<uint8_t>(kSize, pattern) ? "" : "the bytes are not what was filled";
}

}  // namespace bp::conformance
