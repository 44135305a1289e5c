// A backend in the test's own process, over host memory. A test can change every part before a
// load.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "registry/lifetime/loader.hpp"

#define BP_TEST_STRING_OF(text) #text
#define BP_TEST_STRING(macro) BP_TEST_STRING_OF(macro)

// How a host of these headers names the versions that it serves.
#define BP_TEST_SERVED                                                                            \
  "ABI " BP_TEST_STRING(BP_ABI_MAJOR) "." BP_TEST_STRING(BP_ABI_MINOR_MIN) " to " BP_TEST_STRING( \
      BP_ABI_MAJOR) "." BP_TEST_STRING(BP_ABI_MINOR)

namespace bp::core {

// Streams are inline. Handles are addresses of objects of this file, cast.
struct FakeBackend {
  struct Device {
    bp_device_properties properties;
    int live_buffers = 0;
  };

  const char* name = "acme.npu";
  bp_status entry_status = BP_OK;
  const char* entry_words = nullptr;
  uint32_t abi_minor = BP_ABI_MINOR;
  bool gives_backend = true;
  bp_status register_status = BP_OK;
  bool adds_devices = true, adds_allocator = true, adds_streams = true;
  bool adds_guard = false;
  const char* dtype_name = nullptr;        // Added, with 16 bits, if the test sets it.
  bp_dtype dtype = 0;                      // What the host gave for it.
  const bp_layout_ops* layouts = nullptr;  // Added if the test sets it.
  const bp_compiler_ops* compiler = nullptr;
  const bp_profiler_ops* profiler = nullptr;
  const bp_semaphore_ops* semaphores = nullptr;
  const bp_process_group_ops* groups = nullptr;
  const bp_process_group_ops* more_groups = nullptr;
  const bp_graph_ops* graphs = nullptr;
  std::vector<const bp_kernel*> kernels;
  std::vector<bp_add_result> results;
  bp_add_result allocator_results[2] = {};
  bool adds_allocator_twice = false;
  std::string log_line;
  std::string option_key;           // The option that is read while registering.
  std::string option_value;         // Its value.
  uint64_t leaked_bytes = 0;        // Host memory that is taken and not given back.
  uint64_t buffer_size_bytes = 24;  // The size that copies assume for every buffer.
  int shutdowns = 0, synchronizes = 0, fills = 0, live_streams = 0;
  const bp_host* host = nullptr;

  bp_heap heap{.struct_size = sizeof(bp_heap),
               .struct_type = BP_STRUCT_HEAP,
               .size_bytes = 1ull << 40,
               .max_allocation_bytes = 1ull << 40,
               .tensor_offset_alignment_bytes = 1,
               .suballocation_granularity_bytes = 1};
  std::vector<bp_op_desc> ops;
  std::vector<uint32_t> op_numbers;       // What add_ops() gave.
  std::vector<bp_add_result> op_results;  // Their reasons end with register_all().
  std::vector<Device> devices;
  bp_device_ops device_ops{};
  bp_allocator_ops allocator{};
  bp_stream_ops streams{};
  bp_event_ops events{};
  bp_device_guard_ops guard{};
  bp_backend backend{};

  explicit FakeBackend(const char* backend_name = "acme.npu", size_t device_count = 1,
                       bp_device_class device_class = BP_DEVICE_ACCELERATOR)
      : name(backend_name), devices(device_count) {
    for (Device& device : devices) {
      device.properties = {.struct_size = sizeof(bp_device_properties),
                           .struct_type = BP_STRUCT_DEVICE_PROPERTIES,
                           .name = "Fake",
                           .device_class = device_class,
                           .max_rank = BP_MAX_RANK,
                           .heaps = &heap,
                           .heap_count = 1,
                           .heap_stride_bytes = sizeof(bp_heap)};
    }
    fill_tables();
  }
  FakeBackend(const FakeBackend&) = delete;

  static FakeBackend& from(void* self) { return *static_cast<FakeBackend*>(self); }
  bp_device* device(size_t index) { return reinterpret_cast<bp_device*>(&devices[index]); }

  // Loads this backend into `registry`, as a backend that is linked in.
  bp_status load(bp_registry* registry, const bp_plugin** out_plugin = nullptr,
                 const std::vector<bp_option>& options = {}) {
    current = this;
    const Source source{name, "(static)", name, entry};
    return load_source(impl(registry), source, options.size(), options.data(), out_plugin);
  }

 private:
  // An entry has no self. Tests are single-threaded while they load, so one pointer is enough.
  static inline FakeBackend* current = nullptr;

  static bp_status entry(const bp_entry_request* request, bp_entry_reply* reply) {
    FakeBackend& f = *current;
    f.host = request->host;
    reply->abi_major_min = reply->abi_major_max = BP_ABI_MAJOR;
    if (f.entry_status != BP_OK) {
      if (f.entry_words != nullptr) f.host->set_error(f.host->self, f.entry_status, f.entry_words);
      return f.entry_status;
    }
    f.backend.struct_size = sizeof(bp_backend);
    f.backend.struct_type = BP_STRUCT_BACKEND;
    f.backend.self = &f;
    f.backend.name = f.name;
    f.backend.version = "1.4.2";
    f.backend.register_all = register_all;
    f.backend.shutdown = [](void* self, uint64_t) -> bp_status {
      ++from(self).shutdowns;
      return BP_OK;
    };
    reply->abi_major = BP_ABI_MAJOR;
    reply->abi_minor = f.abi_minor;
    reply->backend = f.gives_backend ? &f.backend : nullptr;
    return BP_OK;
  }

  static bp_status register_all(void* self, const bp_registrar* r) {
    FakeBackend& f = from(self);
    const bp_host& h = *f.host;
    if (!f.log_line.empty()) h.log_line(h.self, BP_LOG_WARNING, f.log_line.c_str());
    const char* value = nullptr;
    if (h.get_option(h.self, f.option_key.c_str(), &value) == BP_OK) f.option_value = value;
    void* memory = nullptr;
    if (f.leaked_bytes != 0) h.allocate(h.self, f.leaked_bytes, 64, &memory);
    std::unique_ptr<void, decltype(&std::free)> no_leak_for_sanitizers(memory, std::free);
    if (f.register_status != BP_OK) return h.set_error(h.self, f.register_status, "no driver");
    f.op_results.resize(f.ops.size());
    f.op_numbers.resize(f.ops.size());
    r->add_ops(r->self, f.ops.size(), f.ops.data(), sizeof(bp_op_desc), f.op_numbers.data(),
               f.op_results.data());
    if (f.dtype_name != nullptr) r->add_dtype(r->self, f.dtype_name, 16, &f.dtype);
    if (f.adds_devices) r->add_device(r->self, 0, nullptr, &f.device_ops, nullptr);
    if (f.adds_allocator) {
      r->add_allocator(r->self, 0, nullptr, &f.allocator, &f.allocator_results[0]);
    }
    if (f.adds_allocator_twice) {
      r->add_allocator(r->self, 0, nullptr, &f.allocator, &f.allocator_results[1]);
    }
    if (f.adds_streams) r->add_streams(r->self, 0, nullptr, &f.streams, &f.events, nullptr);
    if (f.adds_guard) r->add_device_guard(r->self, 0, nullptr, &f.guard, nullptr);
    if (f.layouts != nullptr) r->add_layout(r->self, 0, nullptr, f.layouts, nullptr);
    if (f.compiler != nullptr) r->add_compiler(r->self, 0, nullptr, f.compiler, nullptr);
    for (const bp_process_group_ops* groups : {f.groups, f.more_groups}) {
      if (groups != nullptr) r->add_process_group(r->self, 0, nullptr, groups, nullptr);
    }
    if (f.graphs != nullptr) r->add_graph(r->self, 0, nullptr, f.graphs, nullptr);
    if (f.profiler != nullptr) r->add_profiler(r->self, 0, nullptr, f.profiler, nullptr);
    if (f.semaphores != nullptr) r->add_semaphore(r->self, 0, nullptr, f.semaphores, nullptr);
    f.results.resize(f.kernels.size());
    return r->add_kernels(r->self, 0, nullptr, f.kernels.size(), f.kernels.data(),
                          f.results.data());
  }

  void fill_tables() {
    fill_devices();
    fill_allocator();
    fill_streams();
    guard = {.struct_size = sizeof(bp_device_guard_ops), .struct_type = BP_STRUCT_DEVICE_GUARD_OPS};
    guard.self = this;
    guard.exchange = [](void*, bp_device*, bp_device** out) -> bp_status {
      *out = nullptr;
      return BP_OK;
    };
  }
  void fill_devices();
  void fill_allocator();
  void fill_streams();
};

inline unsigned char* fake_bytes(const bp_buffer_ref& ref) {
  return reinterpret_cast<unsigned char*>(ref.buffer) + ref.byte_offset;
}

inline void FakeBackend::fill_devices() {
  device_ops = {.struct_size = sizeof(bp_device_ops), .struct_type = BP_STRUCT_DEVICE_OPS};
  device_ops.self = this;
  device_ops.enumerate = [](void* self, uint64_t capacity, bp_device** out,
                            uint64_t* count) -> bp_status {
    FakeBackend& f = from(self);
    for (uint64_t i = 0; i < capacity && i < f.devices.size(); ++i) out[i] = f.device(i);
    *count = f.devices.size();
    return BP_OK;
  };
  device_ops.properties = [](void*, bp_device* device,
                             const bp_device_properties** out) -> bp_status {
    *out = &reinterpret_cast<Device*>(device)->properties;
    return BP_OK;
  };
  device_ops.synchronize = [](void* self, bp_device*, uint64_t) -> bp_status {
    ++from(self).synchronizes;
    return BP_OK;
  };
  device_ops.generation = [](void*, bp_device*, uint64_t* out) -> bp_status {
    *out = 0;
    return BP_OK;
  };
}

inline void FakeBackend::fill_allocator() {
  allocator = {.struct_size = sizeof(bp_allocator_ops), .struct_type = BP_STRUCT_ALLOCATOR_OPS};
  allocator.self = this;
  allocator.allocate = [](void* self, bp_device*, const bp_allocate_desc* desc,
                          bp_buffer** out) -> bp_status {
    ++from(self).devices[0].live_buffers;
    *out = reinterpret_cast<bp_buffer*>(new unsigned char[desc->size_bytes]);
    return BP_OK;
  };
  allocator.deallocate = [](void* self, bp_buffer* buffer, bp_stream*) -> bp_status {
    --from(self).devices[0].live_buffers;
    delete[] reinterpret_cast<unsigned char*>(buffer);
    return BP_OK;
  };
  allocator.copy = [](void* self, bp_stream*, const bp_buffer_ref*,
                      const bp_buffer_ref* src) -> bp_status {
    const uint64_t size_bytes = from(self).buffer_size_bytes;
    if (src->byte_offset <= size_bytes) return BP_OK;  // Only copies of 0 bytes are made.
    const bp_host& h = *from(self).host;
    return h.set_error(h.self, BP_INVALID_ARGUMENT, "copy: src leaves its buffer");
  };
  allocator.copy_from_host = [](void*, bp_stream*, const bp_buffer_ref* dst, const void* src,
                                bp_borrow) -> bp_status {
    std::memcpy(fake_bytes(*dst), src, dst->size_bytes);
    return BP_OK;
  };
  allocator.copy_to_host = [](void*, bp_stream*, void* dst, const bp_buffer_ref* src, bp_borrow,
                              uint64_t) -> bp_status {
    std::memcpy(dst, fake_bytes(*src), src->size_bytes);
    return BP_OK;
  };
  allocator.fill = [](void* self, bp_stream*, const bp_buffer_ref* dst, const void* pattern,
                      uint64_t size) -> bp_status {
    ++from(self).fills;
    for (uint64_t i = 0; i < dst->size_bytes; i += size) {
      std::memcpy(fake_bytes(*dst) + i, pattern, size);
    }
    return BP_OK;
  };
}

inline void FakeBackend::fill_streams() {
  streams = {.struct_size = sizeof(bp_stream_ops), .struct_type = BP_STRUCT_STREAM_OPS};
  streams.self = this;
  streams.create = [](void* self, bp_device*, const bp_stream_desc*, bp_stream** out) -> bp_status {
    ++from(self).live_streams;
    *out = reinterpret_cast<bp_stream*>(new char);
    return BP_OK;
  };
  streams.default_stream = [](void* self, bp_device*, bp_stream** out) -> bp_status {
    *out = reinterpret_cast<bp_stream*>(self);
    return BP_OK;
  };
  streams.destroy = [](void* self, bp_stream* stream) -> bp_status {
    --from(self).live_streams;
    delete reinterpret_cast<char*>(stream);
    return BP_OK;
  };
  streams.synchronize = [](void*, bp_stream*, uint64_t) -> bp_status { return BP_OK; };
  events = {.struct_size = sizeof(bp_event_ops), .struct_type = BP_STRUCT_EVENT_OPS};
  events.self = this;
}

// Makes a kernel of add that returns BP_OK and does nothing.
inline bp_kernel make_kernel(const char* name, uint32_t op = BP_OP_ADD,
                             uint32_t args_size_bytes = sizeof(bp_add_args)) {
  bp_kernel kernel{};
  kernel.struct_size = sizeof(bp_kernel);
  kernel.struct_type = BP_STRUCT_KERNEL;
  kernel.name = name;
  kernel.op = op;
  kernel.spec_revision = BP_OPS_REVISION;
  kernel.args_size_bytes = args_size_bytes;
  kernel.flags = BP_KERNEL_TAKES_SCALAR | BP_KERNEL_IN_PLACE;
  kernel.layouts = BP_LAYOUT_ANY;
  kernel.launch = [](const bp_kernel*, const bp_launch*, const void*) -> bp_status {
    return BP_OK;
  };
  return kernel;
}

// A call y = a + b over (2, 3) f32 tensors, each in a buffer such as the fake allocator gives.
struct AddCall {
  int64_t shape[2] = {2, 3};
  int64_t strides[2] = {3, 1};
  float memory[3][6] = {};
  bp_tensor a = tensor(memory[0]), b = tensor(memory[1]), y = tensor(memory[2]);
  bp_add_args args{.struct_size = sizeof(bp_add_args), .a = &a, .b = &b, .y = &y};

  AddCall() = default;
  AddCall(const AddCall&) = delete;

  bp_tensor tensor(float* elements) {
    return {.buffer = reinterpret_cast<bp_buffer*>(elements),
            .byte_offset = 0,
            .shape = shape,
            .strides = strides,
            .ndim = 2,
            .dtype = BP_F32,
            .layout = nullptr,
            .flags = 0,
            .reserved = 0};
  }
};

// A registry that keeps the lines of its log.
struct TestRegistry {
  std::string log;
  std::function<void()> on_log;  // Runs once, with the next line.
  bp_registry* registry = nullptr;

  explicit TestRegistry(bp_registry_flags flags = 0, const char* layers = nullptr,
                        const char* layer_options = nullptr) {
    const bp_registry_desc desc{
        .struct_size = sizeof(bp_registry_desc),
        .struct_type = BP_STRUCT_REGISTRY_DESC,
        .flags = flags,
        .log_line =
            [](void* self, bp_log_level, const char* source, const char* message) {
              auto& test = *static_cast<TestRegistry*>(self);
              test.log += std::string(source) + ": " + message + "\n";
              if (test.on_log) std::exchange(test.on_log, nullptr)();
            },
        .user_data = this,
        .layers = layers,
        .layer_options = layer_options};
    bp_registry_create(&desc, &registry);
  }
  TestRegistry(const TestRegistry&) = delete;
  ~TestRegistry() { bp_registry_destroy(registry); }

  const bp_target* target(uint64_t index = 0) const { return bp_registry_target(registry, index); }
};

}  // namespace bp::core
