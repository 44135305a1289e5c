// A send or a receive between two ranks. The first message says what is sent, and has the elements
// if they are few. Further messages have the rest.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "backends/cpu/mpi/channel.hpp"
#include "backends/cpu/shm/pieces.hpp"

namespace bp::mpi {

class Letter final : public Activity {
 public:
  // `sequence` is the number of the letter among those between the two ranks in its direction.
  Letter(Channel& channel, const RankCall& call, uint64_t sequence);

  bool poll(bool is_its_turn) override;
  bool awaits(uint32_t rank) const override;

 private:
  struct Part {
    uint64_t size_bytes;
    Pending operation;
  };

  void begin_part();
  void finish_part(const Part& part);

  Channel& channel_;
  const RankCall& call_;
  const OpenedMemory memory_;
  const bool is_send_;
  const int tag_;
  const uint64_t size_bytes_;
  uint64_t begun_ = 0, ended_ = 0;  // In bytes.
  bool has_header_ = false;
  std::deque<Part> parts_;
};

}  // namespace bp::mpi
