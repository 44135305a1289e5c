// The host's side for C++: backplane/host.h with owners, and failures as values.
//
//   bp::Registry registry;
//   if (bp::Status status = registry.load("npu"); !status.ok()) std::puts(status.message.c_str());
//   const bp_target* target = nullptr;
//   bp::Status status = registry.find_target("npu:0", &target);
//   bp::BlockHandle block;
//   status = bp::allocate(*target, nullptr, 4096, &block);
//
// Everything is a thin layer over a C function of the same name, whose rules in host.h hold here
// too. Only headers: what is not wrapped is called in C.
#ifndef BACKPLANE_REGISTRY_HPP_
#define BACKPLANE_REGISTRY_HPP_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backplane/blocks.h"

namespace bp {

// An outcome with a message for a person. It is cheap for BP_OK, because the string stays empty.
struct [[nodiscard]] Status {
  bp_status code = BP_OK;
  std::string message;

  bool ok() const { return code == BP_OK; }
};

// Moves the calling thread's error text out of its slot. It is empty if no failure filled the slot
// since.
inline std::string take_error() {
  std::string text = bp_error_text();
  bp_error_clear();
  return text;
}

// Returns the outcome of a call that has just returned `code` on this thread.
inline Status status_of(bp_status code) {
  if (code == BP_OK) return {};
  return {code, take_error()};
}

// Destroys a handle through the table it came from. The status is lost, because a destructor cannot
// report it: synchronise first to learn of failed work.
template <typename Ops>
struct Destroy {
  const Ops* ops;

  template <typename Handle>
  void operator()(Handle* handle) const {
    static_cast<void>(ops->destroy(ops->self, handle));
  }
};

using StreamHandle = std::unique_ptr<bp_stream, Destroy<bp_stream_ops>>;
using EventHandle = std::unique_ptr<bp_event, Destroy<bp_event_ops>>;

// Frees a buffer. All its uses must have completed.
struct FreeBuffer {
  const bp_allocator_ops* ops;
  void operator()(bp_buffer* buffer) const {
    static_cast<void>(ops->deallocate(ops->self, buffer, nullptr));
  }
};
using BufferHandle = std::unique_ptr<bp_buffer, FreeBuffer>;

struct FreeBlock {
  void operator()(bp_block* block) const { static_cast<void>(bp_block_free(block)); }
};
using BlockHandle = std::unique_ptr<bp_block, FreeBlock>;

// Takes a block from the cache of `target` for use on `stream`; NULL is the default stream.
inline Status allocate(const bp_target& target, bp_stream* stream, uint64_t size_bytes,
                       BlockHandle* out_block) {
  if (out_block == nullptr) return {BP_INVALID_ARGUMENT, "out_block is NULL"};
  bp_block* block = nullptr;
  const bp_status code = bp_block_allocate(&target, stream, size_bytes, &block);
  if (code == BP_OK) out_block->reset(block);
  return status_of(code);
}

// Takes a block of the heap, usage and pool that `desc` asks for. Its header is set here.
inline Status allocate(const bp_target& target, bp_stream* stream, bp_block_desc desc,
                       BlockHandle* out_block) {
  if (out_block == nullptr) return {BP_INVALID_ARGUMENT, "out_block is NULL"};
  desc.struct_size = sizeof(desc);
  desc.struct_type = BP_STRUCT_BLOCK_DESC;
  bp_block* block = nullptr;
  const bp_status code = bp_block_allocate_with(&target, stream, &desc, &block);
  if (code == BP_OK) out_block->reset(block);
  return status_of(code);
}

struct DestroyPool {
  void operator()(bp_pool* pool) const { static_cast<void>(bp_pool_destroy(pool)); }
};
using PoolHandle = std::unique_ptr<bp_pool, DestroyPool>;

// Makes a private pool; `name` may be NULL.
inline Status create_pool(const bp_target& target, const char* name, PoolHandle* out_pool) {
  if (out_pool == nullptr) return {BP_INVALID_ARGUMENT, "out_pool is NULL"};
  const bp_pool_desc desc{sizeof(desc), BP_STRUCT_POOL_DESC, nullptr, name};
  bp_pool* pool = nullptr;
  const bp_status code = bp_pool_create(&target, &desc, &pool);
  if (code == BP_OK) out_pool->reset(pool);
  return status_of(code);
}

inline Status create_stream(const bp_target& target, const bp_stream_desc* desc,
                            StreamHandle* out_stream) {
  if (out_stream == nullptr) return {BP_INVALID_ARGUMENT, "out_stream is NULL"};
  bp_stream* stream = nullptr;
  const bp_stream_ops& ops = *target.streams;
  const bp_status code = ops.create(ops.self, target.device, desc, &stream);
  if (code == BP_OK) *out_stream = StreamHandle(stream, {&ops});
  return status_of(code);
}

inline Status create_event(const bp_target& target, const bp_event_desc* desc,
                           EventHandle* out_event) {
  if (out_event == nullptr) return {BP_INVALID_ARGUMENT, "out_event is NULL"};
  bp_event* event = nullptr;
  const bp_event_ops& ops = *target.events;
  const bp_status code = ops.create(ops.self, target.device, desc, &event);
  if (code == BP_OK) *out_event = EventHandle(event, {&ops});
  return status_of(code);
}

// Returns the text of bp_kernel_explain(). If that fails, returns why.
inline std::string explain(const bp_target& target, bp_launch_flags flags, uint32_t op,
                           const void* args) {
  uint64_t size = 0;
  if (bp_kernel_explain(&target, flags, op, args, 0, nullptr, &size) != BP_OK) return take_error();
  std::string text(size, '\0');
  if (bp_kernel_explain(&target, flags, op, args, size, text.data(), &size) != BP_OK) {
    return take_error();
  }
  text.resize(std::char_traits<char>::length(text.c_str()));
  return text;
}

// Returns the JSON of bp_memory_snapshot(). If that fails, returns why.
inline std::string memory_snapshot(const bp_target& target) {
  std::string text;
  for (uint64_t size = 0;;) {
    if (bp_memory_snapshot(&target, text.size(), text.data(), &size) != BP_OK) return take_error();
    if (size <= text.size()) break;
    text.resize(size + size / 8);  // Other threads allocate meanwhile.
  }
  text.resize(std::char_traits<char>::length(text.c_str()));
  return text;
}

// Owns a bp_registry. No handle of its backends may be in use when it ends.
class Registry {
 public:
  // Makes a registry without backends. If that fails, it is empty and get() is NULL.
  explicit Registry(const bp_registry_desc* desc = nullptr) {
    bp_registry* registry = nullptr;
    if (bp_registry_create(desc, &registry) == BP_OK) registry_.reset(registry);
  }

  bp_registry* get() const { return registry_.get(); }

  Status load(const std::string& name, const std::vector<bp_option>& options = {},
              const bp_plugin** out_plugin = nullptr) {
    return status_of(
        bp_registry_load(get(), name.c_str(), options.size(), options.data(), out_plugin));
  }

  Status unload(const bp_plugin* plugin, uint64_t timeout_ns = UINT64_MAX) {
    return status_of(bp_registry_unload(get(), plugin, timeout_ns));
  }

  Status find_target(const std::string& name, const bp_target** out_target) const {
    return status_of(bp_registry_find_target(get(), name.c_str(), out_target));
  }

  // Returns the devices of all loaded backends.
  std::vector<const bp_target*> targets() const {
    std::vector<const bp_target*> targets;
    for (uint64_t i = 0; i < bp_registry_target_count(get()); ++i) {
      targets.push_back(bp_registry_target(get(), i));
    }
    return targets;
  }

 private:
  struct End {
    void operator()(bp_registry* registry) const {
      static_cast<void>(bp_registry_destroy(registry));
    }
  };
  std::unique_ptr<bp_registry, End> registry_;
};

}  // namespace bp

#endif  // BACKPLANE_REGISTRY_HPP_
