// Tracks what the work since the last barrier reads and writes, so that barriers are recorded only
// where work conflicts.
//
// Ranges are device addresses, because two buffers may lie over the same memory. A range that is
// only read conflicts with ranges that are written. A range that is written conflicts with all.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace bp::vulkan {

struct AddressRange {
  uint64_t begin = 0, end = 0;  // Device addresses.
  bool is_written = false;
};

class Hazards {
 public:
  // Returns whether one of `ranges` conflicts with a range that was added since clear().
  bool meet(std::span<const AddressRange> ranges) const {
    return std::ranges::any_of(ranges, [&](const AddressRange& range) {
      return std::ranges::any_of(open_, [&](const AddressRange& other) {
        return (range.is_written || other.is_written) && range.begin < range.end &&
               range.begin < other.end && other.begin < range.end;
      });
    });
  }

  void add(std::span<const AddressRange> ranges) {
    for (const AddressRange& range : ranges) {
      if (range.begin < range.end) open_.push_back(range);
    }
  }

  // Returns whether there are so many ranges that a barrier costs less than more comparisons.
  bool is_full() const { return open_.size() >= kMostRanges; }

  void clear() { open_.clear(); }

 private:
  static constexpr size_t kMostRanges = 96;

  std::vector<AddressRange> open_;
};

}  // namespace bp::vulkan
