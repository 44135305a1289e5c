// The communicator of a group, as the thread sees it that runs the calls of the group.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/cpu/mpi/operation.hpp"
#include "backends/cpu/shm/lanes.hpp"

namespace bp::mpi {

// What a message is for.
enum class Topic : int {
  kNotice = 1,  // A rank leaves, or its group has ended.
  kAgreement,   // Before the data of a collective, or with it.
  kSplit,
  kLetter,
};

// Returns the tag of messages about a topic. Messages of one tag between two ranks arrive in their
// order. Even the smallest MPI has 28 bits for tags of its users.
inline int tag_of(Topic topic, uint64_t sequence) {
  constexpr int kBits = 24;
  return static_cast<int>(topic) << kBits |
         static_cast<int>(sequence & ((uint64_t{1} << kBits) - 1));
}

struct Channel {
  const Api& api;
  Communicator* communicator;
  uint32_t rank, size;
  uint64_t events = 0;  // The operations that have ended. It tells the thread that there is work.
  std::vector<Block> spare = {};  // Memory of rounds that are over. The system gives memory slowly.

  // Set if all ranks are on this machine.
  std::unique_ptr<shm::Lanes> lanes = nullptr;

  // Returns memory for a round.
  Block block(size_t size_bytes) {
    if (spare.empty()) return Block(size_bytes);
    Block last = std::move(spare.back());
    spare.pop_back();
    return last.size_bytes() >= size_bytes ? std::move(last) : Block(size_bytes);
  }

  Pending send(uint32_t peer, int tag, Block block, size_t size_bytes) {
    RequestDesc desc{.operation = Operation::kSend, .peer = static_cast<int>(peer), .tag = tag};
    desc.send = block.data();
    desc.send_bytes = static_cast<int>(size_bytes);
    return {api, communicator, desc, std::move(block)};
  }

  // Receives a message of up to `capacity` bytes from `peer`, or from any rank if it is -1.
  Pending receive(int peer, int tag, size_t capacity) {
    Block block(capacity);
    RequestDesc desc{.operation = Operation::kReceive, .peer = peer, .tag = tag};
    desc.receive = block.data();
    desc.receive_bytes = static_cast<int>(capacity);
    return {api, communicator, desc, std::move(block)};
  }

  // Tests an operation that was not over yet, and counts it if it is.
  bool ends(Pending& operation) {
    if (!operation.is_done()) return false;
    ++events;
    return true;
  }
};

// The work of one call. One thread uses it.
class Activity {
 public:
  virtual ~Activity() = default;

  // Goes on as far as it can without waiting, and returns whether the work is over. Throws
  // StatusError. If `is_its_turn`, no earlier call has operations to begin which all ranks must
  // begin in one order.
  virtual bool poll(bool is_its_turn) = 0;

  // Returns whether it does not wait for an earlier call to be over.
  virtual bool has_begun() const { return true; }

  // Returns whether later calls need not wait any more for operations that this one begins.
  virtual bool has_begun_all() const { return true; }

  // Returns whether a message of `rank` has still to come.
  virtual bool awaits(uint32_t rank) const = 0;
};

}  // namespace bp::mpi
