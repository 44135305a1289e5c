// The devices of the loaded plugins, as ggml sees them.
//
// They are found once, when ggml loads this library, and live until the process ends: ggml has no
// call that ends a backend, and its buffers may be freed after static objects.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "backplane/host.h"
#include "ggml-backend-impl.h"

namespace bpg {

// A format of blocks that both ggml and Backplane have; the numbers are those of ggml_type.
struct BlockFormat {
  int number;
  const char* name;
  int64_t elements;
  int64_t bytes;
};

// Returns NULL for a type that is not one of blocks, and for blocks that Backplane does not know.
const BlockFormat* block_format(ggml_type type);

class Device {
 public:
  explicit Device(const bp_target* target);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const bp_target* target;
  std::string name;         // "backplane.vulkan:0".
  std::string description;  // The name of the device for people.
  std::string pinned_name;  // "backplane.vulkan:0 pinned".
  bool takes_host_memory;   // Both are the plugin's claims (host_memory.h).
  bool has_pinned_memory;
  ggml_backend_buffer_type buffer_type{};
  ggml_backend_buffer_type pinned_type{};
  ggml_backend_device ggml{};

  // Lends the layout of `shape` in blocks. It is made once. Throws Refusal if the device has no
  // such layout, or if the rows are no whole blocks.
  const bp_layout* blocks(const BlockFormat& format, const std::vector<int64_t>& shape);
  // True if the device turns f32 into the blocks. A conversion of one block is the question.
  bool can_encode(const BlockFormat& format);

  // The streams that may use memory of the device.
  void add_stream(bp_stream* stream);
  void remove_stream(bp_stream* stream);
  // Waits for the work of these streams, and of the default one. Failures stay with their streams.
  void synchronize();
  // Frees a block that work of these streams may still use.
  void free_block(bp_block* block);

 private:
  bool try_encode(const BlockFormat& format);

  std::mutex mutex_;
  std::map<std::pair<int, std::vector<int64_t>>, const bp_layout*> layouts_;
  std::map<int, bool> encodes_;
  std::vector<bp_stream*> streams_;
};

inline Device& device_of(ggml_backend_dev_t device) {
  return *static_cast<Device*>(device->context);
}

// Loads the plugins and lists their devices. It fills the list that devices() gives.
void find_devices();
std::vector<std::unique_ptr<Device>>& devices();

// The tables of functions, in buffer.cpp, backend.cpp and registry.cpp.
ggml_backend_buffer_type_i buffer_type_functions();
ggml_backend_buffer_t buffer_over(Device& device, void* memory, size_t size);
ggml_backend_device_i device_functions();
ggml_backend_reg_t registration();
ggml_backend_t new_backend(Device& device);

// Gives the place of a tensor in a buffer of this library, and its block with the offset of the
// tensor in it. Both throw Failure for a buffer of another backend.
bp_buffer_ref place_of(const ggml_tensor* tensor);
bp_block* block_of(const ggml_tensor* tensor, uint64_t* out_offset);

}  // namespace bpg
