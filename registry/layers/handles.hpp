// Knows which handles are alive, which were lost by a reset, and how each of the others ended.
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

enum class HandleKind : uint8_t { buffer, stream, event, semaphore, plan, graph, instance, group };

struct Handle {
  bp_device* device = nullptr;
  uint64_t size_bytes = UINT64_MAX;  // For a buffer; UINT64_MAX: not known.
  uint32_t flags = 0;                // For an event.
  std::vector<void*> maps;           // For a buffer: what map() gave and unmap() has not ended.
  bool is_concurrent = false;        // For a buffer: the host may touch it at any time.
  bool is_lent = false;              // Set for the default stream.
  bool has_happened = false;         // For an event: recorded or signalled.
  std::vector<uint32_t> constants;   // For a plan: numbers of tensors of the frame.
  bp_buffer_ref packed{};            // For a plan, once something was packed.
};

// Not thread-safe.
class Handles {
 public:
  void add(HandleKind kind, const void* handle, const Handle& facts);

  // Returns NULL if the handle is not alive.
  Handle* find(HandleKind kind, const void* handle);

  // `how` is the call that ended it: "memory.deallocate".
  void end(HandleKind kind, const void* handle, const char* how, const Site& site);

  // Takes note that a device was reset: its handles are not alive, and may be ended.
  void lose_all(bp_device* device);
  bool is_lost(HandleKind kind, const void* handle) const { return lost_.contains({kind, handle}); }

  // Returns what is wrong with a handle that is not alive: "[MEMORY-5] buffer 0x55 was ended
  // before, by memory.deallocate from ...".
  std::string defect(HandleKind kind, const void* handle) const;

  void add_device(bp_device* device) { devices_.insert(device); }
  bool has_device(bp_device* device) const { return devices_.count(device) != 0; }

 private:
  using Key = std::pair<HandleKind, const void*>;
  struct End {
    const char* how;
    Site site;
    uint64_t number;  // Counts ends in their order.
  };

  static constexpr size_t kMostEnded = 4096;  // Only the latest are remembered.

  std::set<bp_device*> devices_;
  std::map<Key, Handle> alive_;
  std::set<Key> lost_;
  std::map<Key, End> ended_;
  std::deque<std::pair<Key, uint64_t>> ended_order_;  // With the numbers of the ends.
  uint64_t end_count_ = 0;
};

}  // namespace bp::layers
