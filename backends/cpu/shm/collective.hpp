// A collective of one rank through shared memory.
//
// In its first step each rank says what its call is, with its data, if that is little. Further
// steps move the data in slices. An all_reduce takes two steps for a slice: each rank reduces one
// part of it, and then all ranks read the results of the others. So every element is reduced at one
// place, in the order of the ranks, and all ranks get the same bits.
//
// Only the calling thread uses the memory of the call, so a call can be given up at any moment.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cpu/shm/pieces.hpp"
#include "backends/cpu/shm/slots.hpp"

namespace bp::shm {

class Collective {
 public:
  // The call begins after all earlier calls of the rank are over. The arguments must live as long.
  Collective(Slots& slots, const RankCall& call);

  // Goes on as far as it can without waiting, and returns whether the call is over. Throws
  // StatusError if another rank calls something else; the slots cannot be used any more then.
  bool poll();

  // Returns the step that is read next.
  uint64_t reading() const { return first_ + read_; }

  // Returns a number that grows while the call goes on.
  uint64_t progress() const { return written_ + read_; }

 private:
  // What a step moves: a slice of each piece, or the results of a slice of an all_reduce.
  struct Move {
    uint64_t at, size_bytes;  // The slice.
    bool is_result;
  };

  bool is_small() const;
  bool has_results() const;
  uint64_t step_count() const;
  Move move_of(uint64_t index) const;
  bool may_write() const;
  bool have_all_posted(uint64_t step) const;
  void write(uint64_t step) const;
  void read(uint64_t step);

  void write_head(std::byte* to) const;
  void check_heads();

  static Piece slice_of(const Piece& piece, const Move& move);
  Piece part_of(const Piece& slice, uint32_t rank) const;
  bool reads_own_slot() const;
  const std::byte* given_by(uint32_t peer, const Piece& own, uint64_t offset, uint64_t step) const;
  void write_pieces(const Move& move, std::byte* data) const;
  void read_pieces(const Move& move, uint64_t step) const;
  void combine(const Piece& to, const Piece& own, uint64_t offset, uint64_t step) const;
  void write_parts(const Move& move, std::byte* data) const;
  void reduce_part(const Move& move, uint64_t step) const;
  void read_results(const Move& move, uint64_t step) const;

  Slots& slots_;
  const Job job_;
  const uint64_t first_;  // Its first step.
  uint64_t largest_bytes_;
  const uint64_t slice_bytes_;
  bool is_agreed_ = false;
  uint64_t written_ = 0, read_ = 0;  // Steps of this call.
};

}  // namespace bp::shm
