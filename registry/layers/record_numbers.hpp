// Numbers the handles of a recording, and keeps what the layer knows of the memory behind them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "backplane/memory.h"

namespace bp::layers {

// A part of a buffer that the host reads and writes without calls.
struct HostView {
  const unsigned char* bytes = nullptr;
  uint64_t byte_offset = 0, size_bytes = 0;
  std::string seen;  // The SHA-256 of the content that was recorded last.
};

struct RecordedBuffer {
  uint64_t number = 0;
  uint64_t size_bytes = 0;
  bool is_written = false;  // Whether the device has written to it, so that its content is defined.
  std::vector<HostView> views;  // Registered memory, and the open maps in their order.

  // Ends the last map that gave `pointer`.
  void end_map(const void* pointer) {
    const auto is_its = [&](const HostView& view) { return view.bytes == pointer; };
    const auto last = std::find_if(views.rbegin(), views.rend(), is_its);
    if (last != views.rend()) views.erase(std::prev(last.base()));
  }
};

struct RecordedStream {
  uint64_t number = 0;
  bp_device* device = nullptr;
  bool is_lent = false;  // It is a default stream.
};

struct RecordedEvent {
  uint64_t number = 0;
};

struct RecordedSemaphore {
  uint64_t number = 0;
  uint64_t seen = 0;  // The highest value that a query has given.
};

// Gives the handles of one kind numbers from 1 on. No number is given twice, although backends give
// handles again. Not thread-safe.
template <typename Handle, typename Facts>
class Numbers {
 public:
  Facts& add(const Handle* handle) {
    Facts& facts = alive_[handle];
    facts = Facts{};
    facts.number = ++last_;
    return facts;
  }

  // Returns NULL if the handle is not known.
  Facts* find(const Handle* handle) {
    const auto found = alive_.find(handle);
    return found == alive_.end() ? nullptr : &found->second;
  }

  // Returns 0 if the handle is not known.
  uint64_t number(const Handle* handle) {
    const Facts* facts = find(handle);
    return facts == nullptr ? 0 : facts->number;
  }

  // Removes a handle before the call that ends it, after which another thread may get the same
  // handle. Returns its number, or 0 if it is not known.
  uint64_t take(const Handle* handle) {
    const uint64_t ended = number(handle);
    alive_.erase(handle);
    return ended;
  }

  void clear() { alive_.clear(); }

  // Removes all handles but those for which is_kept(facts) is true.
  template <typename IsKept>
  void keep_if(const IsKept& is_kept) {
    std::erase_if(alive_, [&](const auto& entry) { return !is_kept(entry.second); });
  }

 private:
  std::map<const Handle*, Facts> alive_;
  uint64_t last_ = 0;
};

}  // namespace bp::layers
