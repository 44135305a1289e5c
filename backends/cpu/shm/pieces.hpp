// What a rank gives to each other rank in a collective, and what it gets, as ranges of its memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backplane/shell/rank_call.hpp"

namespace bp::shm {

struct Piece {
  std::byte* bytes = nullptr;
  uint64_t size_bytes = 0;
};

// A collective that runs, with its memory.
class Job {
 public:
  explicit Job(const RankCall& call);

  const RankCall& call() const { return call_; }
  uint64_t item_bytes() const { return item_bytes_; }
  bool is_root() const { return call_.rank == call_.root; }
  std::byte* send() const { return send_; }
  std::byte* receive() const { return receive_.address(); }

  // Returns what the rank gives to `peer`, which may be the rank itself. In a reduction that is
  // not scaled yet.
  Piece to(uint32_t peer) const;

  // Returns where the piece of `peer` goes. In a reduction the pieces of all ranks are combined
  // there.
  Piece from(uint32_t peer) const;

  // Returns the bytes of the largest piece of any two ranks, as far as this rank knows.
  uint64_t largest_bytes() const;

  // Writes a part of a piece that the rank gives, as it is sent.
  void contribute(const std::byte* from, uint64_t size_bytes, std::byte* out) const;

  // Combines the pieces of all ranks, which contribute() has written.
  void combine(const std::vector<const std::byte*>& pieces, uint64_t size_bytes,
               std::byte* out) const;

 private:
  uint64_t offset(const std::vector<uint64_t>& counts, uint32_t peer) const;

  const RankCall& call_;
  const uint64_t item_bytes_;
  const OpenedMemory opened_send_, receive_;
  std::vector<std::byte> copy_;  // Of what is sent, if what is received would be written over it.
  std::byte* send_;
};

// Slices of pieces begin at multiples of it, which are multiples of the size of every element.
constexpr uint64_t kUnit = 16;

inline uint64_t rounded_up(uint64_t size_bytes) { return (size_bytes + kUnit - 1) / kUnit * kUnit; }

// Returns whether a rank gives a piece of its own to each rank, not one to all.
bool gives_many(bp_collective_kind kind);

// Returns what ranks do with two partial results. An average is divided at the end, and elements of
// a scaled sum are scaled before.
bp_reduction step_of(bp_reduction reduction);

}  // namespace bp::shm
