#include "backends/cpu/shm/collective.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "backends/cpu/shm/head.hpp"
#include "backplane/shell/entry.hpp"

namespace bp::shm {
namespace {

// Returns the bytes of pieces that go with the heads. A rank reads them of all other ranks.
uint64_t small_bytes(uint32_t world_size) {
  constexpr uint64_t kOfRank = Slots::kDataBytes / 2;
  return kOfRank / std::max<uint32_t>(world_size - 1, 1) / kUnit * kUnit;
}

void move_bytes(std::byte* to, const std::byte* from, uint64_t size_bytes) {
  if (to != from && size_bytes != 0) std::memmove(to, from, size_bytes);
}

}  // namespace

Collective::Collective(Slots& slots, const RankCall& call)
    : slots_(slots),
      job_(call),
      first_(slots.next_step),
      largest_bytes_(job_.largest_bytes()),
      slice_bytes_(Slots::kDataBytes / (gives_many(call.kind) ? call.world_size : 1) / kUnit *
                   kUnit) {}

bool Collective::poll() {
  for (bool has_moved = true; has_moved;) {
    has_moved = false;
    if (written_ < step_count() && may_write()) {
      write(first_ + written_);
      slots_.post(first_ + written_++);
      has_moved = true;
    }
    if (read_ < written_ && have_all_posted(first_ + read_)) {
      read(first_ + read_);
      slots_.release(first_ + read_++);
      has_moved = true;
    }
  }
  if (!is_agreed_ || read_ < step_count()) return false;
  slots_.next_step = first_ + read_;
  return true;
}

// ---- Steps --------------------------------------------------------------------------------------

bool Collective::is_small() const { return largest_bytes_ <= small_bytes(slots_.world_size()); }

bool Collective::has_results() const { return job_.call().kind == BP_COLLECTIVE_ALL_REDUCE; }

uint64_t Collective::step_count() const {
  if (!is_agreed_ || is_small()) return 1;
  const uint64_t slices = (largest_bytes_ + slice_bytes_ - 1) / slice_bytes_;
  return 1 + slices * (has_results() ? 2 : 1);
}

// Step 0 has the heads. The results of a slice follow the next slice, so that no rank waits for
// them: slices 0, 1, results 0, slice 2, results 1, and so on.
Collective::Move Collective::move_of(uint64_t index) const {
  if (index == 0) return {0, small_bytes(slots_.world_size()), false};
  const uint64_t at = index - 1;
  if (!has_results()) return {at * slice_bytes_, slice_bytes_, false};
  const uint64_t last = step_count() - 2;
  const bool is_result = at == last || (at != 0 && at % 2 == 0);
  const uint64_t slice = at == last ? last / 2 : is_result ? at / 2 - 1 : (at + 1) / 2;
  return {slice * slice_bytes_, slice_bytes_, is_result};
}

bool Collective::may_write() const {
  if (!slots_.may_write(first_ + written_)) return false;
  if (written_ == 0 || !move_of(written_).is_result) return true;
  const uint64_t slice = move_of(written_).at / slice_bytes_;
  return read_ > (slice == 0 ? 1 : 2 * slice);  // Its slice has been reduced.
}

bool Collective::have_all_posted(uint64_t step) const {
  for (uint32_t peer = 0; peer < slots_.world_size(); ++peer) {
    if (!slots_.has_posted(peer, step)) return false;
  }
  return true;
}

void Collective::write(uint64_t step) const {
  std::byte* const data = slots_.data(slots_.rank(), step);
  const Move move = move_of(written_);
  if (written_ == 0) {
    write_head(slots_.head(slots_.rank(), step));
    if (is_small()) write_pieces(move, data);
  } else if (!has_results()) {
    write_pieces(move, data);
  } else if (move.is_result) {
    const Piece own = part_of(slice_of(job_.from(slots_.rank()), move), slots_.rank());
    move_bytes(data, own.bytes, own.size_bytes);
  } else {
    write_parts(move, data);
  }
}

void Collective::read(uint64_t step) {
  const Move move = move_of(read_);
  if (read_ == 0) {
    check_heads();
    if (is_small()) read_pieces(move, step);
  } else if (!has_results()) {
    read_pieces(move, step);
  } else if (move.is_result) {
    read_results(move, step);
  } else {
    reduce_part(move, step);
  }
}

// ---- Heads --------------------------------------------------------------------------------------

void Collective::write_head(std::byte* to) const {
  const RankCall& call = job_.call();
  Head head{signature_of(call, call.rank), largest_bytes_};
  head.signature.sent = head.signature.received = 0;
  std::memcpy(to, &head, sizeof(head));
  if (call.kind != BP_COLLECTIVE_ALL_TO_ALL) return;
  for (uint32_t peer = 0; peer < call.world_size; ++peer) {
    const PairCounts counts{call.send_counts[peer], call.receive_counts[peer]};
    std::memcpy(to + sizeof(head) + peer * sizeof(counts), &counts, sizeof(counts));
  }
}

void Collective::check_heads() {
  const RankCall& call = job_.call();
  for (uint32_t peer = 0; peer < call.world_size; ++peer) {
    if (peer == call.rank) continue;
    const std::byte* const from = slots_.head(peer, first_);
    Head theirs{};
    std::memcpy(&theirs, from, sizeof(theirs));
    if (theirs.signature.kind == BP_COLLECTIVE_ALL_TO_ALL) {
      PairCounts counts{};
      std::memcpy(&counts, from + sizeof(theirs) + call.rank * sizeof(counts), sizeof(counts));
      theirs.signature.sent = counts.sent;
      theirs.signature.received = counts.received;
    }
    const std::string problem =
        difference(theirs.signature, peer, signature_of(call, peer), call.rank);
    if (!problem.empty()) refuse(BP_INVALID_ARGUMENT, problem);
    largest_bytes_ = std::max(largest_bytes_, theirs.largest_bytes);
  }
  is_agreed_ = true;
}

// ---- Pieces -------------------------------------------------------------------------------------

Piece Collective::slice_of(const Piece& piece, const Move& move) {
  const uint64_t at = std::min(move.at, piece.size_bytes);
  return {piece.bytes == nullptr ? nullptr : piece.bytes + at,
          std::min(move.size_bytes, piece.size_bytes - at)};
}

// Returns the part of a slice of an all_reduce that `rank` reduces.
Piece Collective::part_of(const Piece& slice, uint32_t rank) const {
  const uint64_t part_bytes =
      rounded_up((slice.size_bytes + slots_.world_size() - 1) / slots_.world_size());
  return slice_of(slice, {rank * part_bytes, part_bytes, false});
}

// Returns whether this rank reads its own data from its own slot, where it is scaled.
bool Collective::reads_own_slot() const { return job_.call().reduction == BP_REDUCTION_SCALED_SUM; }

// Returns what `peer` gives in a step: the own memory of this rank, or a place in a slot.
const std::byte* Collective::given_by(uint32_t peer, const Piece& own, uint64_t offset,
                                      uint64_t step) const {
  if (peer == slots_.rank() && !reads_own_slot()) return own.bytes;
  return slots_.data(peer, step) + offset;
}

void Collective::write_pieces(const Move& move, std::byte* data) const {
  const RankCall& call = job_.call();
  if (!gives_many(call.kind)) {
    const bool is_for_itself =
        job_.is_root() && (call.kind == BP_COLLECTIVE_REDUCE || call.kind == BP_COLLECTIVE_GATHER);
    if (is_for_itself && !reads_own_slot()) return;
    const Piece piece = slice_of(job_.to(call.root), move);
    return job_.contribute(piece.bytes, piece.size_bytes, data);
  }
  for (uint32_t peer = 0; peer < call.world_size; ++peer) {
    if (peer == call.rank && !reads_own_slot()) continue;
    const Piece piece = slice_of(job_.to(peer), move);
    job_.contribute(piece.bytes, piece.size_bytes, data + peer * move.size_bytes);
  }
}

void Collective::read_pieces(const Move& move, uint64_t step) const {
  const RankCall& call = job_.call();
  const Piece own = slice_of(job_.to(call.rank), move);
  const uint64_t offset = gives_many(call.kind) ? call.rank * move.size_bytes : 0;
  if (reduces(call.kind)) {
    return combine(slice_of(job_.from(call.rank), move), own, offset, step);
  }
  for (uint32_t peer = 0; peer < call.world_size; ++peer) {
    const Piece to = slice_of(job_.from(peer), move);
    move_bytes(to.bytes, given_by(peer, own, offset, step), to.size_bytes);
  }
}

void Collective::combine(const Piece& to, const Piece& own, uint64_t offset, uint64_t step) const {
  if (to.size_bytes == 0) return;
  std::vector<const std::byte*> pieces;
  pieces.reserve(slots_.world_size());
  for (uint32_t peer = 0; peer < slots_.world_size(); ++peer) {
    pieces.push_back(given_by(peer, own, offset, step));
  }
  job_.combine(pieces, to.size_bytes, to.bytes);
}

// ---- Slices of an all_reduce --------------------------------------------------------------------

void Collective::write_parts(const Move& move, std::byte* data) const {
  const Piece slice = slice_of(job_.to(slots_.rank()), move);
  for (uint32_t peer = 0; peer < slots_.world_size(); ++peer) {
    if (peer == slots_.rank() && !reads_own_slot()) continue;
    const Piece part = part_of(slice, peer);
    job_.contribute(part.bytes, part.size_bytes, data + (part.bytes - slice.bytes));
  }
}

void Collective::reduce_part(const Move& move, uint64_t step) const {
  const uint32_t rank = slots_.rank();
  const Piece slice = slice_of(job_.to(rank), move), own = part_of(slice, rank);
  const Piece to = part_of(slice_of(job_.from(rank), move), rank);
  combine(to, own, static_cast<uint64_t>(own.bytes - slice.bytes), step);
}

void Collective::read_results(const Move& move, uint64_t step) const {
  const Piece slice = slice_of(job_.from(slots_.rank()), move);
  for (uint32_t peer = 0; peer < slots_.world_size(); ++peer) {
    if (peer == slots_.rank()) continue;
    const Piece part = part_of(slice, peer);
    move_bytes(part.bytes, slots_.data(peer, step), part.size_bytes);
  }
}

}  // namespace bp::shm
