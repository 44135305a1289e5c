// A map that finds the range that an address lies in. The ranges do not overlap.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>

namespace bp {

template <typename Owner>
class AddressMap {
 public:
  // Adds a range. Returns false, and adds nothing, if the range would overlap another one. A range
  // of 0 bytes holds no address, so add() ignores it and returns true.
  bool add(uint64_t address, uint64_t size_bytes, Owner* owner) {
    if (size_bytes == 0) return true;
    const auto next = ranges_.lower_bound(address);
    if (next != ranges_.end() && next->first - address < size_bytes) return false;
    if (next != ranges_.begin()) {
      const auto before = std::prev(next);
      if (address - before->first < before->second.size_bytes) return false;
    }
    ranges_.emplace_hint(next, address, Range{size_bytes, owner});
    return true;
  }

  // Removes the range of `owner` that begins at `address`, if there is one.
  void remove(uint64_t address, const Owner* owner) {
    const auto found = ranges_.find(address);
    if (found != ranges_.end() && found->second.owner == owner) ranges_.erase(found);
  }

  // Returns the owner of the range that holds `address`, or NULL if no range does.
  Owner* find(uint64_t address) const {
    const auto next = ranges_.upper_bound(address);
    if (next == ranges_.begin()) return nullptr;
    const auto& [begin, range] = *std::prev(next);
    return address - begin < range.size_bytes ? range.owner : nullptr;
  }

 private:
  struct Range {
    uint64_t size_bytes;
    Owner* owner;
  };
  std::map<uint64_t, Range> ranges_;  // The key is the first address.
};

}  // namespace bp
