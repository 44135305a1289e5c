// All ranks are connected to all others, so no data passes through a third rank. A short call sends
// all elements to all ranks at once. In a longer one each rank owns a part of the elements: it gets
// the contributions of the others to its part, reduces them, and sends the result to all. That
// moves as many bytes as a ring, 2 (n - 1) / n of the tensor for each rank, in 2 steps and not in
// 2 (n - 1) (Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in
// MPICH, 2005). Parts move in pieces, so that reducing and moving overlap.
//
// Both reduce in the order of the ranks. So all ranks get the same bits, and 16-bit elements are
// rounded once.
#include <algorithm>
#include <utility>
#include <vector>

#include "backends/cpu/groups/job.hpp"

namespace bp::cpu {
namespace {

using kernels::Contribution;

// The most that a rank sends in a short call. Between two processes of one machine 64 KiB took 0.22
// ms at once and 0.25 ms by parts, and 1 MiB 0.76 and 0.61 ms.
constexpr uint64_t kShortBytes = 128 << 10;

// The size of a piece, of which so many are under way from each rank. Each piece wakes threads:
// those of 64 KiB took twice as long. Those of 128 to 512 KiB take about as long as each other.
constexpr uint64_t kPieceBytes = 256 << 10;
constexpr uint64_t kWindow = 2;

// Returns what the rank contributes. Elements of a scaled sum are scaled into `scaled`.
std::byte* contributed(const Job& job, std::byte* scaled) {
  if (job.call.reduction != BP_REDUCTION_SCALED_SUM) return job.send;
  contribute(job, scaled, job.call.count);
  return scaled;
}

void all_reduce_short(const Job& job) {
  const RankCall& call = job.call;
  const uint64_t size_bytes = call.count * job.item(), slot = slot_of(Topic::kAll, job.sequence);
  const std::unique_ptr<std::byte[]> parts(new std::byte[call.world_size * size_bytes]);
  const auto part = [&](uint32_t rank) { return parts.get() + rank * size_bytes; };
  std::byte* const own = contributed(job, part(call.rank));
  const BufferPointer sent = job.buffer(own, size_bytes);
  std::vector<BufferPointer> others;
  std::vector<Contribution> contributions(call.world_size);
  contributions[call.rank] = {own, 1.0};
  for (uint32_t step = 1; step < call.world_size; ++step) {
    const uint32_t previous = (call.rank + call.world_size - step) % call.world_size;
    others.push_back(job.buffer(part(previous), size_bytes));
    others.back()->recv(static_cast<int>(previous), slot);
    sent->send(static_cast<int>((call.rank + step) % call.world_size), slot);
    contributions[previous] = {part(previous), 1.0};
  }
  for (const BufferPointer& other : others) other->waitRecv();
  // The result may replace what is sent.
  for (uint32_t step = 1; step < call.world_size; ++step) sent->waitSend();
  kernels::combine(after_scaling(call.reduction), call.dtype, contributions, job.receive,
                   static_cast<int64_t>(call.count));
}

// The elements that a rank owns, and their pieces.
struct Part {
  uint64_t begin_bytes = 0, size_bytes = 0;

  uint64_t pieces() const { return (size_bytes + kPieceBytes - 1) / kPieceBytes; }
  uint64_t offset(uint64_t piece) const { return begin_bytes + piece * kPieceBytes; }
  uint64_t size(uint64_t piece) const {
    return std::min(kPieceBytes, size_bytes - piece * kPieceBytes);
  }
};

class PartwiseAllReduce {
 public:
  explicit PartwiseAllReduce(const Job& job)
      : job_(job),
        rank_(job.call.rank),
        world_size_(job.call.world_size),
        from_(contributed(job, job.receive)),
        contributions_(job.buffer(from_, total_bytes())),
        results_(job.buffer(job.receive, total_bytes())),
        own_(part(rank_)),
        windows_(new std::byte[kWindow * (world_size_ - 1) * kPieceBytes]) {}

  void run() {
    ask_for_results();
    for (uint64_t piece = 0; piece < std::min(kWindow, own_.pieces()); ++piece) ask(piece);
    send_contributions();
    for (uint64_t piece = 0; piece < own_.pieces(); ++piece) {
      reduce(piece);
      send_result(piece);
      if (piece + kWindow < own_.pieces()) ask(piece + kWindow);
    }
    wait_for_results();
    for (; contributions_sent_ > 0; --contributions_sent_) contributions_->waitSend();
    for (uint64_t sent = own_.pieces() * (world_size_ - 1); sent > 0; --sent) results_->waitSend();
  }

 private:
  uint64_t total_bytes() const { return job_.call.count * job_.item(); }
  uint32_t next(uint32_t step) const { return (rank_ + step) % world_size_; }
  uint32_t previous(uint32_t step) const { return (rank_ + world_size_ - step) % world_size_; }

  Part part(uint32_t rank) const {
    const uint64_t begin = job_.call.count * rank / world_size_;
    const uint64_t end = job_.call.count * (rank + 1) / world_size_;
    return {begin * job_.item(), (end - begin) * job_.item()};
  }

  std::byte* window(uint64_t piece, uint32_t step) const {
    return windows_.get() + (piece % kWindow * (world_size_ - 1) + step - 1) * kPieceBytes;
  }

  // A result may come as soon as its owner has the piece of this rank, also where that piece was.
  void ask_for_results() {
    for (uint32_t step = 1; step < world_size_; ++step) {
      const Part theirs = part(previous(step));
      asked_results_.push_back(job_.buffer(job_.receive, total_bytes()));
      for (uint64_t piece = 0; piece < theirs.pieces(); ++piece) {
        asked_results_.back()->recv(static_cast<int>(previous(step)),
                                    slot_of(Topic::kResult, job_.sequence), theirs.offset(piece),
                                    theirs.size(piece));
      }
    }
  }

  void wait_for_results() {
    for (uint32_t step = 1; step < world_size_; ++step) {
      for (uint64_t left = part(previous(step)).pieces(); left > 0; --left)
        asked_results_[step - 1]->waitRecv();
    }
  }

  // Asks all ranks for their contributions to a piece of this rank.
  void ask(uint64_t piece) {
    for (uint32_t step = 1; step < world_size_; ++step) {
      BufferPointer buffer = job_.buffer(window(piece, step), own_.size(piece));
      buffer->recv(static_cast<int>(previous(step)), slot_of(Topic::kAll, job_.sequence));
      asked_[piece % kWindow].push_back(std::move(buffer));
    }
  }

  void send_contributions() {
    uint64_t most = 0;
    for (uint32_t rank = 0; rank < world_size_; ++rank) most = std::max(most, part(rank).pieces());
    for (uint64_t piece = 0; piece < most; ++piece) {
      for (uint32_t step = 1; step < world_size_; ++step) {
        const Part theirs = part(next(step));
        if (piece >= theirs.pieces()) continue;
        contributions_->send(static_cast<int>(next(step)), slot_of(Topic::kAll, job_.sequence),
                             theirs.offset(piece), theirs.size(piece));
        ++contributions_sent_;
      }
    }
  }

  void send_result(uint64_t piece) {
    for (uint32_t step = 1; step < world_size_; ++step) {
      results_->send(static_cast<int>(next(step)), slot_of(Topic::kResult, job_.sequence),
                     own_.offset(piece), own_.size(piece));
    }
  }

  void reduce(uint64_t piece) {
    std::vector<Contribution> all(world_size_);
    all[rank_] = {from_ + own_.offset(piece), 1.0};
    for (uint32_t step = 1; step < world_size_; ++step) {
      asked_[piece % kWindow][step - 1]->waitRecv();
      all[previous(step)] = {window(piece, step), 1.0};
    }
    asked_[piece % kWindow].clear();
    kernels::combine(after_scaling(job_.call.reduction), job_.call.dtype, all,
                     job_.receive + own_.offset(piece),
                     static_cast<int64_t>(own_.size(piece) / job_.item()));
  }

  const Job& job_;
  const uint32_t rank_, world_size_;
  std::byte* const from_;
  const BufferPointer contributions_, results_;  // That this rank sends.
  const Part own_;
  const std::unique_ptr<std::byte[]> windows_;  // For the contributions of others.
  uint64_t contributions_sent_ = 0;
  std::vector<BufferPointer> asked_[kWindow];  // For the pieces under way, by step.
  std::vector<BufferPointer> asked_results_;   // By step.
};

}  // namespace

void all_reduce(const Job& job) {
  const uint64_t sent = job.call.count * job.item() * (job.call.world_size - 1);
  if (sent <= kShortBytes) return all_reduce_short(job);
  PartwiseAllReduce(job).run();
}

}  // namespace bp::cpu
