// A collective of one rank. Each rank first tells each other one what its call is, and with it its
// data, if that is little. If it is more, operations of MPI move it in rounds.
//
// A round has memory of its own, which is copied from the memory of the call and to it. So the
// memory of a call that has ended in time is not used any more, whatever MPI does. A round is so
// short that its memory stays in the cache.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "backends/cpu/mpi/exchange.hpp"
#include "backends/cpu/shm/pieces.hpp"

namespace bp::mpi {

using shm::Job;
using shm::Piece;

// Moves the data of a collective by operations of MPI. All ranks have the same rounds.
class Rounds {
 public:
  // `largest_bytes` is the largest piece of any two ranks.
  Rounds(Channel& channel, const Job& job, uint64_t largest_bytes);

  // Begins and ends rounds. Returns whether all are over.
  bool poll();
  bool has_begun_all() const { return next_ == count_; }

 private:
  struct Round {
    uint64_t index;
    uint64_t got_at;  // In the memory of the operation.
    Pending operation;
  };

  void begin();
  void finish(const Round& round);
  Piece slice(Piece piece, uint64_t index) const;
  std::vector<Piece> given(uint64_t index) const;
  std::vector<Piece> got(uint64_t index) const;

  Channel& channel_;
  const Job& job_;
  uint64_t slice_bytes_;  // Of a piece in a round.
  uint64_t count_, next_ = 0;
  std::deque<Round> running_;
};

class Collective final : public Activity {
 public:
  Collective(Channel& channel, const RankCall& call, uint64_t sequence);

  bool poll(bool is_its_turn) override;
  bool has_begun_all() const override;
  bool awaits(uint32_t rank) const override { return exchange_.awaits(rank); }

 private:
  void agree();
  void finish_small();

  Channel& channel_;
  const Job job_;
  std::vector<std::byte> own_;  // The piece of this rank for itself, if it is small.
  uint64_t largest_bytes_;
  Exchange exchange_;
  bool is_agreed_ = false, is_small_ = false;
  std::optional<Rounds> rounds_;
};

}  // namespace bp::mpi
