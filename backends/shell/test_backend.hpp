// Helps the unit tests of backends: it loads a plugin and collects what the plugin registers,
// without the host library. It is not part of any backend.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "backplane/backend.h"
#include "backplane/ops.h"
#include "backplane/shell/shape.hpp"

namespace bp {

// A plugin, one instance of it, and its tables. The host gives it the options.
class TestBackend {
 public:
  explicit TestBackend(const char* path, std::map<std::string, std::string> options = {})
      : TestBackend(open(path), std::move(options)) {}

  // Makes an instance of a backend that is linked into the test.
  explicit TestBackend(bp_backend_entry_fn* entry, std::map<std::string, std::string> options = {})
      : TestBackend(Opened{nullptr, entry}, std::move(options)) {}

  TestBackend(const TestBackend&) = delete;
  ~TestBackend() {
    shutdown();
    if (library_ != nullptr) dlclose(library_);
  }

  void shutdown() {
    if (backend != nullptr) backend->shutdown(backend->self, UINT64_MAX);
    backend = nullptr;
  }

  bp_stream* make_stream() {
    bp_stream* stream = nullptr;
    EXPECT_EQ(streams->create(streams->self, device, nullptr, &stream), BP_OK) << text;
    return stream;
  }
  bp_stream* default_stream() {
    bp_stream* stream = nullptr;
    EXPECT_EQ(streams->default_stream(streams->self, device, &stream), BP_OK) << text;
    return stream;
  }
  bp_event* make_event(bp_event_flags flags = 0) {
    const bp_event_desc desc{
        .struct_size = sizeof(desc), .struct_type = BP_STRUCT_EVENT_DESC, .flags = flags};
    bp_event* event = nullptr;
    EXPECT_EQ(events->create(events->self, device, &desc, &event), BP_OK) << text;
    return event;
  }
  bp_buffer* make_buffer(uint64_t size_bytes) {
    const bp_allocate_desc desc{.struct_size = sizeof(desc),
                                .struct_type = BP_STRUCT_ALLOCATE_DESC,
                                .size_bytes = size_bytes};
    bp_buffer* buffer = nullptr;
    EXPECT_EQ(allocator->allocate(allocator->self, device, &desc, &buffer), BP_OK) << text;
    return buffer;
  }

  // Returns the first kernel of `op`.
  const bp_kernel* kernel(uint32_t op) const {
    for (const bp_kernel* k : kernels) {
      if (k->op == op) return k;
    }
    throw std::runtime_error("no kernel of op " + std::to_string(op));
  }

  const bp_kernel* kernel(std::string_view name) const {
    for (const bp_kernel* k : kernels) {
      if (k->name == name) return k;
    }
    throw std::runtime_error("no kernel named " + std::string(name));
  }

  // Launches the first kernel of `op` on `stream`, with the workspace that it asks for.
  template <typename Args>
  bp_status launch(uint32_t op, const Args& args, bp_stream* stream) {
    return launch(kernel(op), args, stream);
  }
  // Launches `kernel` in the same way.
  template <typename Args>
  bp_status launch(const bp_kernel* k, Args args, bp_stream* stream) {
    args.struct_size = sizeof(Args);
    bp_launch launch{.device = device, .stream = stream};
    uint64_t required = 0, preferred = 0;
    if (k->workspace_size != nullptr) k->workspace_size(k, device, 0, &args, &required, &preferred);
    if (preferred > 0) launch.workspace = {make_buffer(preferred), 0, preferred};
    const bp_status status = k->launch(k, &launch, &args);
    allocator->deallocate(allocator->self, launch.workspace.buffer, stream);
    return status;
  }
  template <typename Args>
  bp_status launch(uint32_t op, const Args& args) {
    return launch(op, args, default_stream());
  }

  std::string text;                // The latest error text of any thread.
  std::function<void()> on_error;  // Runs whenever the backend tells the host of a failure.
  const bp_backend* backend = nullptr;
  const bp_device_ops* devices = nullptr;
  const bp_allocator_ops* allocator = nullptr;
  const bp_stream_ops* streams = nullptr;
  const bp_event_ops* events = nullptr;
  const bp_semaphore_ops* semaphores = nullptr;
  const bp_virtual_memory_ops* virtual_memory = nullptr;
  const bp_graph_ops* graphs = nullptr;
  const bp_layout_ops* layouts = nullptr;
  const bp_device_guard_ops* guard = nullptr;
  std::vector<const bp_process_group_ops*> process_groups;
  std::vector<const bp_kernel*> kernels;
  std::vector<bp_device*> all_devices;
  bp_device* device = nullptr;  // The first device; the functions use this one.
  std::string errors;           // The lines of level ERROR in the log.
  std::string warnings;         // The lines of level WARNING in the log.
  std::string details;          // The lines of level DEBUG in the log.

 private:
  struct Opened {
    void* library;
    bp_backend_entry_fn* entry;
  };

  static Opened open(const char* path) {
    void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(dlerror());
    return {library, reinterpret_cast<bp_backend_entry_fn*>(dlsym(library, "bp_backend_entry"))};
  }

  TestBackend(const Opened& opened, std::map<std::string, std::string> options)
      : library_(opened.library), options_(std::move(options)) {
    bp_backend_entry_fn* const entry = opened.entry;
    const bp_entry_request request{.struct_size = sizeof(request),
                                   .struct_type = BP_STRUCT_ENTRY_REQUEST,
                                   .abi_minor = BP_ABI_MINOR,
                                   .abi_minor_min = BP_ABI_MINOR,
                                   .host = &host_};
    bp_entry_reply reply{.struct_size = sizeof(reply), .struct_type = BP_STRUCT_ENTRY_REPLY};
    if (entry(&request, &reply) != BP_OK) throw std::runtime_error(text);
    backend = reply.backend;
    if (backend->register_all(backend->self, &registrar_) != BP_OK) throw std::runtime_error(text);
    uint64_t count = 0;
    devices->enumerate(devices->self, 0, nullptr, &count);
    all_devices.resize(count);
    devices->enumerate(devices->self, count, all_devices.data(), &count);
    if (count > 0) device = all_devices[0];
  }

  static TestBackend& self(void* self) { return *static_cast<TestBackend*>(self); }

  static bp_status set_error(void* it, bp_status status, const char* message) {
    {
      const std::lock_guard lock(self(it).mutex_);
      self(it).text = message;
    }
    if (self(it).on_error) self(it).on_error();
    return status;
  }
  static bp_status log(void* it, bp_log_level level, const char* message) {
    const std::lock_guard lock(self(it).mutex_);
    if (level == BP_LOG_ERROR) self(it).errors += std::string(message) + "\n";
    if (level == BP_LOG_WARNING) self(it).warnings += std::string(message) + "\n";
    if (level == BP_LOG_DEBUG) self(it).details += std::string(message) + "\n";
    return BP_OK;
  }
  static bp_status get_option(void* it, const char* key, const char** out_value) {
    const auto found = self(it).options_.find(key);
    if (found == self(it).options_.end()) return BP_NOT_FOUND;
    *out_value = found->second.c_str();
    return BP_OK;
  }
  static bp_status allocate(void*, uint64_t size_bytes, uint64_t alignment_bytes, void** out) {
    return posix_memalign(out, alignment_bytes, size_bytes) == 0 ? BP_OK : BP_OUT_OF_MEMORY;
  }
  static bp_status free_memory(void*, void* memory, uint64_t) {
    std::free(memory);
    return BP_OK;
  }

  static bp_status add_device(void* it, uint64_t, bp_device* const*, const bp_device_ops* ops,
                              bp_add_result*) {
    self(it).devices = ops;
    return BP_OK;
  }
  static bp_status add_allocator(void* it, uint64_t, bp_device* const*, const bp_allocator_ops* ops,
                                 bp_add_result*) {
    self(it).allocator = ops;
    return BP_OK;
  }
  static bp_status add_streams(void* it, uint64_t, bp_device* const*, const bp_stream_ops* streams,
                               const bp_event_ops* events, bp_add_result*) {
    self(it).streams = streams;
    self(it).events = events;
    return BP_OK;
  }
  static bp_status add_kernels(void* it, uint64_t, bp_device* const*, uint64_t count,
                               const bp_kernel* const* kernels, bp_add_result*) {
    self(it).kernels.insert(self(it).kernels.end(), kernels, kernels + count);
    return BP_OK;
  }

  static bp_status add_virtual_memory(void* it, uint64_t, bp_device* const*,
                                      const bp_virtual_memory_ops* ops, bp_add_result*) {
    self(it).virtual_memory = ops;
    return BP_OK;
  }

  static bp_status add_graph(void* it, uint64_t, bp_device* const*, const bp_graph_ops* ops,
                             bp_add_result*) {
    self(it).graphs = ops;
    return BP_OK;
  }
  static bp_status add_layout(void* it, uint64_t, bp_device* const*, const bp_layout_ops* ops,
                              bp_add_result*) {
    self(it).layouts = ops;
    return BP_OK;
  }
  static bp_status add_semaphore(void* it, uint64_t, bp_device* const*, const bp_semaphore_ops* ops,
                                 bp_add_result*) {
    self(it).semaphores = ops;
    return BP_OK;
  }
  static bp_status add_process_group(void* it, uint64_t, bp_device* const*,
                                     const bp_process_group_ops* ops, bp_add_result*) {
    self(it).process_groups.push_back(ops);
    return BP_OK;
  }
  static bp_status add_device_guard(void* it, uint64_t, bp_device* const*,
                                    const bp_device_guard_ops* ops, bp_add_result*) {
    self(it).guard = ops;
    return BP_OK;
  }

  std::mutex mutex_;  // It guards `text` and `errors`, which any thread of the backend sets.
  void* library_ = nullptr;
  std::map<std::string, std::string> options_;
  bp_host host_{.struct_size = sizeof(bp_host),
                .struct_type = BP_STRUCT_HOST,
                .self = this,
                .set_error = set_error,
                .log_line = log,
                .get_option = get_option,
                .allocate = allocate,
                .deallocate = free_memory};
  bp_registrar registrar_{.struct_size = sizeof(bp_registrar),
                          .struct_type = BP_STRUCT_REGISTRAR,
                          .self = this,
                          .add_device = add_device,
                          .add_allocator = add_allocator,
                          .add_streams = add_streams,
                          .add_kernels = add_kernels,
                          .add_device_guard = add_device_guard,
                          .add_virtual_memory = add_virtual_memory,
                          .add_layout = add_layout,
                          .add_graph = add_graph,
                          .add_process_group = add_process_group,
                          .add_semaphore = add_semaphore};
};

// A tensor in a buffer of its own. Its elements are read and written through host memory.
class TestTensor {
 public:
  // Makes a row-major tensor. Neighbouring elements are `gap` places apart.
  TestTensor(TestBackend& backend, bp_dtype dtype, std::vector<int64_t> shape, int64_t gap = 1)
      : backend_(backend), shape_(std::move(shape)), strides_(shape_.size()) {
    int64_t stride = gap;
    for (size_t i = shape_.size(); i-- > 0; stride *= shape_[i]) strides_[i] = stride;
    size_bytes_ = (static_cast<uint64_t>(stride * dtype_size_bits(dtype)) + 7) / 8;
    buffer_ = backend.make_buffer(size_bytes_);
    tensor_ = {.buffer = buffer_,
               .shape = shape_.data(),
               .strides = strides_.data(),
               .ndim = static_cast<uint32_t>(shape_.size()),
               .dtype = dtype};
  }
  TestTensor(const TestTensor&) = delete;
  ~TestTensor() { backend_.allocator->deallocate(backend_.allocator->self, buffer_, nullptr); }

  // Changes the order of the axes. The elements stay where they are.
  void permute(const std::vector<size_t>& order) {
    std::vector<int64_t> shape, strides;
    for (const size_t axis : order) shape.push_back(shape_[axis]);
    for (const size_t axis : order) strides.push_back(strides_[axis]);
    shape_ = shape;
    strides_ = strides;
    tensor_.shape = shape_.data();
    tensor_.strides = strides_.data();
  }

  // Repeats the one element of `axis` `extent` times.
  void expand(size_t axis, int64_t extent) {
    shape_[axis] = extent;
    strides_[axis] = 0;
  }

  const bp_tensor* operator&() const { return &tensor_; }
  int64_t size() const { return element_count(tensor_); }
  const std::vector<int64_t>& shape() const { return shape_; }

  // Returns the element with `index` in row-major order.
  template <typename T>
  T& at(int64_t index) {
    uint64_t address = 0;
    backend_.allocator->address(backend_.allocator->self, buffer_, &address);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the ABI has addresses as numbers.
    T* place = reinterpret_cast<T*>(address);
    for (size_t axis = shape_.size(); axis-- > 0; index /= shape_[axis]) {
      place += index % shape_[axis] * strides_[axis];
    }
    return *place;
  }

  template <typename T>
  void set(const std::vector<T>& values) {
    for (size_t i = 0; i < values.size(); ++i) at<T>(static_cast<int64_t>(i)) = values[i];
  }

  template <typename T>
  std::vector<T> get() {
    std::vector<T> values;
    for (int64_t i = 0; i < size(); ++i) values.push_back(at<T>(i));
    return values;
  }

 private:
  TestBackend& backend_;
  std::vector<int64_t> shape_, strides_;
  uint64_t size_bytes_ = 0;
  bp_buffer* buffer_ = nullptr;
  bp_tensor tensor_{};
};

}  // namespace bp
