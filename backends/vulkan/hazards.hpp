// What work since the last barrier reads and writes, so that barriers stand only where work meets.
//
// Ranges are device addresses: two buffers may show the same memory. A range that is only read
// meets those that are written, one that is written meets all.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace bp::vulkan {

struct AddressRange {
  uint64_t begin = 0, end = 0;  // Of device addresses.
  bool is_written = false;
};

class Hazards {
 public:
  // Whether one of `ranges` meets what was added since clear().
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

  // A barrier costs less than comparing with ever more ranges.
  bool is_full() const { return open_.size() >= kMostRanges; }

  void clear() { open_.clear(); }

 private:
  static constexpr size_t kMostRanges = 96;

  std::vector<AddressRange> open_;
};

}  // namespace bp::vulkan
