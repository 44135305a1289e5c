// One message from each rank to each other one.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "backends/cpu/mpi/channel.hpp"

namespace bp::mpi {

class Exchange {
 public:
  // Gets ready for messages of up to `capacity` bytes.
  Exchange(Channel& channel, int tag, size_t capacity);

  // Sends what `message` begins with. It is called once for each other rank.
  void send(uint32_t peer, Block message, size_t size_bytes);

  // Returns whether all messages have come, and all have left.
  bool poll();

  bool awaits(uint32_t rank) const { return in_[rank].has_value() && !has_come_[rank]; }

  // Returns the message of another rank, which has come.
  const std::byte* from(uint32_t rank) const { return in_[rank]->data(); }

 private:
  Channel& channel_;
  const int tag_;
  std::vector<std::optional<Pending>> in_;  // By rank; nothing for this one.
  std::vector<bool> has_come_;
  std::vector<Pending> out_;
};

}  // namespace bp::mpi
