// Rounds are short: all memory that MPI takes for one is then reused. A round of 512 KiB took 12
// times as long, because the system gave new pages to each.
#include <algorithm>
#include <cstring>
#include <utility>

#include "backends/cpu/mpi/collective.hpp"
#include "backplane/shell/combine.hpp"

namespace bp::mpi {

using shm::gives_many;
using shm::kUnit;
using shm::rounded_up;

namespace {

constexpr uint64_t kRoundBytes = 64 << 10;  // That a rank sends or receives in a round.
constexpr size_t kRunning = 6;              // The rounds that run at a time.

Operation operation_of(bp_collective_kind kind) {
  switch (kind) {
    case BP_COLLECTIVE_ALL_REDUCE:
      return Operation::kAllReduce;
    case BP_COLLECTIVE_REDUCE:
      return Operation::kReduce;
    case BP_COLLECTIVE_BROADCAST:
      return Operation::kBroadcast;
    case BP_COLLECTIVE_ALL_GATHER:
      return Operation::kAllGather;
    case BP_COLLECTIVE_GATHER:
      return Operation::kGather;
    case BP_COLLECTIVE_SCATTER:
      return Operation::kScatter;
    default:
      return Operation::kAllToAll;
  }
}

// Returns whether MPI reduces in the operation itself. In reduce_scatter the pieces of all ranks
// come together, and are combined in the order of the ranks, which rounds once.
bool is_reduced_by_mpi(bp_collective_kind kind) {
  return kind == BP_COLLECTIVE_ALL_REDUCE || kind == BP_COLLECTIVE_REDUCE;
}

// Returns whether a rank gets a piece of each rank, not one alone.
bool gets_many(bp_collective_kind kind) {
  return kind == BP_COLLECTIVE_ALL_GATHER || kind == BP_COLLECTIVE_GATHER ||
         kind == BP_COLLECTIVE_REDUCE_SCATTER || kind == BP_COLLECTIVE_ALL_TO_ALL;
}

uint64_t total(const std::vector<Piece>& pieces) {
  uint64_t sum = 0;
  for (const Piece& piece : pieces) sum += piece.size_bytes;
  return sum;
}

// Writes where pieces that lie behind each other begin, and returns the place behind them.
int* list(const std::vector<Piece>& pieces, int* to, const int*& out_sizes,
          const int*& out_offsets) {
  int at = 0;
  int* const offsets = to + pieces.size();
  for (size_t i = 0; i < pieces.size(); ++i) {
    to[i] = static_cast<int>(pieces[i].size_bytes);
    offsets[i] = at;
    at += to[i];
  }
  out_sizes = to;
  out_offsets = offsets;
  return offsets + pieces.size();
}

}  // namespace

Rounds::Rounds(Channel& channel, const Job& job, uint64_t largest_bytes)
    : channel_(channel), job_(job) {
  const bp_collective_kind kind = job.call().kind;
  const uint64_t pieces = gives_many(kind) || gets_many(kind) ? channel.size : 1;
  slice_bytes_ = std::max(kRoundBytes / pieces / kUnit * kUnit, kUnit);
  count_ = (largest_bytes + slice_bytes_ - 1) / slice_bytes_;
}

Piece Rounds::slice(Piece piece, uint64_t index) const {
  const uint64_t at = std::min(index * slice_bytes_, piece.size_bytes);
  return {piece.bytes == nullptr ? nullptr : piece.bytes + at,
          std::min(slice_bytes_, piece.size_bytes - at)};
}

std::vector<Piece> Rounds::given(uint64_t index) const {
  const RankCall& call = job_.call();
  if (!gives_many(call.kind)) return {slice(job_.to(call.root), index)};
  std::vector<Piece> pieces;
  for (uint32_t peer = 0; peer < channel_.size; ++peer) {
    pieces.push_back(slice(job_.to(peer), index));
  }
  return pieces;
}

std::vector<Piece> Rounds::got(uint64_t index) const {
  const RankCall& call = job_.call();
  if (!gets_many(call.kind)) {
    return {slice(job_.from(is_reduced_by_mpi(call.kind) ? call.rank : call.root), index)};
  }
  std::vector<Piece> pieces;
  for (uint32_t peer = 0; peer < channel_.size; ++peer) {
    pieces.push_back(slice(job_.from(peer), index));
  }
  return pieces;
}

// The memory of a round is what is given, what is got, and the lists of their pieces. Open MPI
// takes an operation whose two ranges begin at one place as one in place, so they never do.
void Rounds::begin() {
  const RankCall& call = job_.call();
  const std::vector<Piece> out = given(next_), in = got(next_);
  const uint64_t got_at = rounded_up(total(out) + 1), lists_at = got_at + rounded_up(total(in));
  Block block = channel_.block(lists_at + 2 * (out.size() + in.size()) * sizeof(int));
  uint64_t at = 0;
  for (const Piece& piece : out) {
    job_.contribute(piece.bytes, piece.size_bytes, block.data() + at);
    at += piece.size_bytes;
  }
  RequestDesc desc{.operation = operation_of(call.kind),
                   .peer = static_cast<int>(call.root),
                   .send = block.data(),
                   .receive = block.data() + got_at,
                   .send_bytes = static_cast<int>(total(out)),
                   .receive_bytes = static_cast<int>(total(in)),
                   .count = static_cast<int>(total(out) / job_.item_bytes()),
                   .reduction = shm::step_of(call.reduction),
                   .dtype = call.dtype};
  if (call.kind == BP_COLLECTIVE_BROADCAST && job_.is_root()) {
    std::memcpy(desc.receive, desc.send, total(out));
  }
  int* const lists = reinterpret_cast<int*>(block.data() + lists_at);
  list(in, list(out, lists, desc.send_sizes, desc.send_offsets), desc.receive_sizes,
       desc.receive_offsets);
  running_.push_back(
      {next_, got_at, Pending(channel_.api, channel_.communicator, desc, std::move(block))});
  ++next_;
}

void Rounds::finish(const Round& round) {
  const RankCall& call = job_.call();
  const std::vector<Piece> in = got(round.index);
  const std::byte* from = round.operation.data() + round.got_at;
  if (call.kind == BP_COLLECTIVE_REDUCE_SCATTER) {
    std::vector<const std::byte*> pieces;
    for (const Piece& piece : in) {
      pieces.push_back(from);
      from += piece.size_bytes;
    }
    return job_.combine(pieces, in[0].size_bytes, in[0].bytes);
  }
  for (const Piece& piece : in) {
    if (piece.size_bytes != 0) std::memcpy(piece.bytes, from, piece.size_bytes);
    from += piece.size_bytes;
  }
  if (is_reduced_by_mpi(call.kind) && call.reduction == BP_REDUCTION_AVERAGE) {
    kernels::divide(call.dtype, in[0].bytes,
                    static_cast<int64_t>(in[0].size_bytes / job_.item_bytes()), channel_.size);
  }
}

bool Rounds::poll() {
  while (!running_.empty() && channel_.ends(running_.front().operation)) {
    finish(running_.front());
    channel_.spare.push_back(running_.front().operation.take_block());
    running_.pop_front();
  }
  while (next_ < count_ && running_.size() < kRunning) begin();
  return running_.empty() && next_ == count_;
}

}  // namespace bp::mpi
