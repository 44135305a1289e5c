// What is alive, by handle, and how what is not alive any more ended.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backplane/backend.h"
#include "registry/layers/site.hpp"

namespace bp::layers {

enum class HandleKind : uint8_t { buffer, stream, event, plan, graph, instance, group };

struct Handle {
  bp_device* device = nullptr;
  uint64_t size_bytes = UINT64_MAX;  // Of a buffer; UINT64_MAX: not known.
  uint32_t flags = 0;                // Of an event.
  bool is_mapped = false;            // Of a buffer.
  bool is_concurrent = false;        // Of a buffer: the host may touch it at any time.
  bool is_lent = false;              // The default stream.
  bool has_happened = false;         // Of an event: recorded or signalled.
  uint64_t constant_args = 0;        // Of a plan: bit i is tensor argument i.
  bp_buffer_ref packed{};            // Of a plan, once something was packed.
};

// Not thread-safe.
class Handles {
 public:
  void add(HandleKind kind, const void* handle, const Handle& facts);

  // NULL if it is not alive.
  Handle* find(HandleKind kind, const void* handle);

  // `how` is the call that ended it: "memory.free".
  void end(HandleKind kind, const void* handle, const char* how, const Site& site);

  // Ends everything of a device.
  void end_all(bp_device* device, const char* how, const Site& site);

  // What is wrong with a handle that is not alive: "[MEMORY-5] buffer 0x55 was ended before, by
  // memory.free from ...".
  std::string defect(HandleKind kind, const void* handle) const;

  void add_device(bp_device* device) { devices_.insert(device); }
  bool has_device(bp_device* device) const { return devices_.count(device) != 0; }

 private:
  using Key = std::pair<HandleKind, const void*>;
  struct End {
    const char* how;
    Site site;
    uint64_t number;  // In the order of ends.
  };

  static constexpr size_t kMostEnded = 4096;  // The latest are remembered.

  std::set<bp_device*> devices_;
  std::map<Key, Handle> alive_;
  std::map<Key, End> ended_;
  std::deque<std::pair<Key, uint64_t>> ended_order_;  // With their numbers.
  uint64_t end_count_ = 0;
};

}  // namespace bp::layers
