// Memory of a device as a buffer of ggml. An address in it is the block's address plus an offset;
// addresses.h makes one up where the device has none.
#include <algorithm>

#include "backplane/addresses.h"
#include "backplane/transfers.h"
#include "device.h"
#include "host_memory.h"
#include "log.h"

namespace bpg {
namespace {

constexpr size_t kAlignment = 128;

struct Buffer {
  Device& device;
  bp_block* block;
  char* base;
  bool is_lent = false;  // Over memory of the program, at its address.
};

Buffer& buffer_of(ggml_backend_buffer_t buffer) { return *static_cast<Buffer*>(buffer->context); }

Device& device_of(ggml_backend_buffer_type_t type) { return *static_cast<Device*>(type->context); }

void free_buffer(ggml_backend_buffer_t buffer) {
  Buffer* const held = &buffer_of(buffer);
  if (held->is_lent) {
    end_host_block(held->device, held->block);  // The program unmaps the memory afterwards.
  } else {
    held->device.free_block(held->block);
    bp_cache_empty(held->device.target);
  }
  delete held;
}

void* base_of(ggml_backend_buffer_t buffer) { return buffer_of(buffer).base; }

// ggml's functions of buffers return nothing, so a failure is a line in the log. The stream keeps
// it as well if it came from the device, and the next graph then fails.
template <typename Fn>
bool try_to(const Buffer& buffer, const char* what, const Fn& fn) {
  try {
    fn();
    return true;
  } catch (const Failure& failure) {
    log_error("memory of " + buffer.device.name + " was not " + what + ": " + failure.what());
    return false;
  }
}

void wait(const Buffer& buffer) {
  const bp_target* const target = buffer.device.target;
  check(target->streams->synchronize(target->streams->self, target->default_stream, UINT64_MAX),
        "stream.synchronize");
}

uint64_t offset_of(const Buffer& buffer, const ggml_tensor* tensor, size_t offset) {
  return static_cast<uint64_t>(static_cast<char*>(tensor->data) - buffer.base) + offset;
}

void fill(const Buffer& buffer, uint64_t offset, uint64_t size, uint8_t value) {
  const bp_target* const target = buffer.device.target;
  const bp_buffer_ref range{buffer.block->ref.buffer, buffer.block->ref.byte_offset + offset, size};
  check(target->allocator->fill(target->allocator->self, target->default_stream, &range, &value, 1),
        "allocator.fill");
  wait(buffer);
}

void memset_tensor(ggml_backend_buffer_t buffer, ggml_tensor* tensor, uint8_t value, size_t offset,
                   size_t size) {
  const Buffer& held = buffer_of(buffer);
  try_to(held, "filled", [&] { fill(held, offset_of(held, tensor, offset), size, value); });
}

void set_tensor(ggml_backend_buffer_t buffer, ggml_tensor* tensor, const void* data, size_t offset,
                size_t size) {
  const Buffer& held = buffer_of(buffer);
  try_to(held, "written", [&] {
    check(bp_block_upload(held.block, offset_of(held, tensor, offset), data, size, nullptr, nullptr,
                          nullptr),
          "block_upload");
    wait(held);
  });
}

void get_tensor(ggml_backend_buffer_t buffer, const ggml_tensor* tensor, void* data, size_t offset,
                size_t size) {
  const Buffer& held = buffer_of(buffer);
  try_to(held, "read", [&] {
    check(bp_block_download(held.block, offset_of(held, tensor, offset), data, size, nullptr,
                            nullptr, nullptr),
          "block_download");
    wait(held);
  });
}

bool is_ours(ggml_backend_buffer_t buffer) {
  return buffer != nullptr && buffer->iface.free_buffer == free_buffer;
}

// Copies between buffers of one device, or of two devices of one plugin that reach each other.
bool cpy_tensor(ggml_backend_buffer_t, const ggml_tensor* src, ggml_tensor* dst) {
  const ggml_tensor* const owner = src->view_src != nullptr ? src->view_src : src;
  if (!is_ours(owner->buffer)) return false;
  const Buffer& from = buffer_of(owner->buffer);
  const Buffer& to = buffer_of(dst->view_src != nullptr ? dst->view_src->buffer : dst->buffer);
  if (&from.device != &to.device) return false;
  return try_to(to, "copied", [&] {
    bp_buffer_ref source = place_of(src), target = place_of(dst);
    source.size_bytes = target.size_bytes = ggml_nbytes(src);
    const bp_target* const device = to.device.target;
    check(
        device->allocator->copy(device->allocator->self, device->default_stream, &target, &source),
        "allocator.copy");
    wait(to);
  });
}

void clear(ggml_backend_buffer_t buffer, uint8_t value) {
  const Buffer& held = buffer_of(buffer);
  try_to(held, "cleared", [&] { fill(held, 0, buffer->size, value); });
}

constexpr ggml_backend_buffer_i kBufferFunctions = {
    .free_buffer = free_buffer,
    .get_base = base_of,
    .init_tensor = nullptr,
    .memset_tensor = memset_tensor,
    .set_tensor = set_tensor,
    .get_tensor = get_tensor,
    .set_tensor_2d = nullptr,
    .get_tensor_2d = nullptr,
    .cpy_tensor = cpy_tensor,
    .clear = clear,
    .reset = nullptr,
};

const char* type_name(ggml_backend_buffer_type_t type) { return device_of(type).name.c_str(); }

ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t type, size_t size) {
  Device& device = device_of(type);
  bp_block* block = nullptr;
  uint64_t address = 0;
  bp_status status = bp_block_allocate(device.target, nullptr, std::max<size_t>(size, 1), &block);
  if (status == BP_OK) status = bp_block_address(block, &address);
  if (status != BP_OK) {
    log_error(failure_text(
        status, "there is no buffer of " + std::to_string(size) + " bytes on " + device.name));
    bp_block_free(block);
    return nullptr;
  }
  auto* const held = new Buffer{device, block, reinterpret_cast<char*>(address)};
  return ggml_backend_buffer_init(type, kBufferFunctions, held, size);
}

size_t alignment(ggml_backend_buffer_type_t type) {
  const bp_heap& heap = device_of(type).target->properties->heaps[0];
  return std::max<size_t>(kAlignment, heap.tensor_offset_alignment_bytes);
}

size_t max_size(ggml_backend_buffer_type_t type) {
  return device_of(type).target->properties->heaps[0].max_allocation_bytes;
}

}  // namespace

ggml_backend_buffer_type_i buffer_type_functions() {
  return {
      .get_name = type_name,
      .alloc_buffer = alloc_buffer,
      .alloc_buffer_n = nullptr,
      .get_alignment = alignment,
      .get_max_size = max_size,
      .get_alloc_size = nullptr,
      .get_alloc_size_n = nullptr,
      .is_host = nullptr,
  };
}

ggml_backend_buffer_t buffer_over(Device& device, void* memory, size_t size) {
  bp_block* const block = lend_host_memory(device, memory, size);
  if (block == nullptr) return nullptr;
  auto* const held = new Buffer{device, block, static_cast<char*>(memory), true};
  return ggml_backend_buffer_init(&device.buffer_type, kBufferFunctions, held, size);
}

bp_block* block_of(const ggml_tensor* tensor, uint64_t* out_offset) {
  ggml_backend_buffer_t owner =
      tensor->view_src != nullptr ? tensor->view_src->buffer : tensor->buffer;
  if (!is_ours(owner)) {
    bp_error_clear();
    throw Failure(BP_INVALID_ARGUMENT,
                  std::string("the tensor ") + tensor->name + " is in no buffer of this backend");
  }
  const Buffer& held = buffer_of(owner);
  *out_offset = offset_of(held, tensor, 0);
  return held.block;
}

bp_buffer_ref place_of(const ggml_tensor* tensor) {
  uint64_t offset = 0;
  const bp_block* const block = block_of(tensor, &offset);
  return {block->ref.buffer, block->ref.byte_offset + offset, ggml_nbytes(tensor)};
}

}  // namespace bpg
