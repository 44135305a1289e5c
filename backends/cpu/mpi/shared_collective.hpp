// A collective of ranks on one machine: it goes through the memory that they share, and not through
// MPI, which would have to copy the data once more.
#pragma once

#include "backends/cpu/mpi/channel.hpp"
#include "backends/cpu/shm/call.hpp"

namespace bp::mpi {

class SharedCollective final : public Activity {
 public:
  SharedCollective(Channel& channel, const RankCall& call, uint64_t sequence)
      : channel_(channel), call_(*channel.lanes, call, sequence) {}

  bool poll(bool /*is_its_turn*/) override {
    if (!call_.poll()) return false;
    ++channel_.events;
    return true;
  }
  bool has_begun() const override { return call_.has_begun(); }
  bool awaits(uint32_t rank) const override { return call_.awaits(rank); }

 private:
  Channel& channel_;
  shm::Call call_;
};

}  // namespace bp::mpi
