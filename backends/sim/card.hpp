// The simulated hardware of one device, which all instances of this library in one process share.
// Only this object is not part of an instance.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "backplane/shell/address_map.hpp"
#include "backplane/shell/shared_card.hpp"

namespace bp::sim {

class Device;
class Memory;

constexpr size_t kMaxHeaps = 2;

class Card : public SharedCard<Device> {
 public:
  // Takes size_bytes of a heap that has capacity_bytes. Returns false if there is no room.
  bool take(size_t heap, uint64_t size_bytes, uint64_t capacity_bytes);
  void give_back(size_t heap, uint64_t size_bytes) { used_bytes_[heap] -= size_bytes; }
  uint64_t used_bytes(size_t heap) const { return used_bytes_[heap]; }

  // add() and remove() keep the memory of the card, and find() returns the memory at an address.
  void add(Memory& memory);
  void remove(Memory& memory);
  std::shared_ptr<Memory> find(uint64_t address);

 private:
  std::array<std::atomic<uint64_t>, kMaxHeaps> used_bytes_{};
  std::mutex memory_mutex_;  // It guards `memories_`.
  AddressMap<Memory> memories_;
};

// The heap in which memory is allocated.
struct Place {
  std::shared_ptr<Card> card;
  size_t heap;
  uint64_t capacity_bytes;
  bool is_protected;  // The host cannot access it unless work needs it.
};

// A part of a heap that is taken until end().
class Room {
 public:
  // Takes taken_bytes for the asked_bytes of `call`. Throws StatusError of BP_OUT_OF_MEMORY if the
  // heap has less.
  Room(const char* call, const Place& place, uint64_t asked_bytes, uint64_t taken_bytes);
  ~Room() { end(); }
  Room(const Room&) = delete;

  void end();

 private:
  const std::shared_ptr<Card> card_;
  const size_t heap_;
  const uint64_t size_bytes_;
  std::atomic<bool> has_ended_ = false;
};

// Returns the card in slot `index` of the machine. A card keeps its state while an instance has it.
std::shared_ptr<Card> card_in_slot(uint32_t index);

}  // namespace bp::sim
