// Which of many ranges of addresses an address lies in. The ranges do not overlap.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>

namespace bp {

template <typename Owner>
class AddressMap {
 public:
  // False if the range would overlap another, and nothing is added. One of 0 bytes holds no
  // address: there is nothing to add.
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

  // NULL for an address in no range.
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
  std::map<uint64_t, Range> ranges_;  // By the first address.
};

}  // namespace bp
