// The set of bytes of a buffer that have been written. All other bytes may have any value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

namespace bp::conformance {

class ByteSet {
 public:
  using Range = std::pair<uint64_t, uint64_t>;  // The range [first, second).

  void insert(uint64_t begin, uint64_t end) {
    if (begin >= end) return;
    auto next = ranges_.upper_bound(begin);
    if (next != ranges_.begin() && std::prev(next)->second >= begin) {
      --next;
      begin = next->first;
    }
    while (next != ranges_.end() && next->first <= end) {
      end = std::max(end, next->second);
      next = ranges_.erase(next);
    }
    ranges_.emplace(begin, end);
  }

  void erase(uint64_t begin, uint64_t end) {
    for (const auto& [first, last] : within(begin, end)) {
      auto found = std::prev(ranges_.upper_bound(first));
      const Range whole = *found;
      ranges_.erase(found);
      if (whole.first < first) ranges_.emplace(whole.first, first);
      if (last < whole.second) ranges_.emplace(last, whole.second);
    }
  }

  // Returns the parts of [begin, end) that are in the set, in order.
  std::vector<Range> within(uint64_t begin, uint64_t end) const {
    std::vector<Range> parts;
    auto next = ranges_.upper_bound(begin);
    if (next != ranges_.begin()) --next;
    for (; next != ranges_.end() && next->first < end; ++next) {
      const Range part(std::max(begin, next->first), std::min(end, next->second));
      if (part.first < part.second) parts.push_back(part);
    }
    return parts;
  }

 private:
  std::map<uint64_t, uint64_t> ranges_;  // The ranges do not touch each other.
};

}  // namespace bp::conformance
