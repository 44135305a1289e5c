// Collectives run on Gloo's own algorithms where it has them. It has none for uneven parts of
// gather, scatter and reduce_scatter: the first two send each part to its rank, and the third
// exchanges all parts and reduces them in the order of the ranks, which rounds once.
//
// Each rank sends a description of its call to all others, and looks at theirs before it waits for
// any data. So ranks that disagree are told, and no rank uses the data of another call. The
// exchange also shows which ranks have not come, and is all of a barrier.
#include "backends/cpu/groups/collectives.hpp"

#include <gloo/allgatherv.h>
#include <gloo/alltoallv.h>
#include <gloo/broadcast.h>
#include <gloo/reduce.h>
#include <gloo/types.h>

#include <cstring>
#include <numeric>
#include <string>

#include "backends/cpu/groups/job.hpp"
#include "backends/cpu/shm/pieces.hpp"

namespace bp::cpu {
namespace {

using kernels::Contribution;

// Returns the sizes of parts in bytes.
template <typename Size>
std::vector<Size> sizes_of(const std::vector<uint64_t>& counts, uint64_t item) {
  std::vector<Size> sizes;
  sizes.reserve(counts.size());
  for (const uint64_t count : counts) sizes.push_back(static_cast<Size>(count * item));
  return sizes;
}

uint64_t total(const std::vector<uint64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

// Returns the bytes before part `index`.
uint64_t offset(const Job& job, uint32_t index) {
  const auto& counts = job.call.send_counts;
  return std::accumulate(counts.begin(), counts.begin() + index, uint64_t{0}) * job.item();
}

// ---- Reductions ---------------------------------------------------------------------------------

void conclude(const Job& job, std::byte* elements, uint64_t count) {
  if (job.call.reduction != BP_REDUCTION_AVERAGE) return;
  kernels::divide(job.call.dtype, elements, static_cast<int64_t>(count), job.call.world_size);
}

auto reducer_of(const Job& job) {
  return [step = shm::step_of(job.call.reduction), dtype = job.call.dtype](
             void* result, const void* first, const void* second, size_t count) {
    const Contribution both[] = {{static_cast<const std::byte*>(first), 1.0},
                                 {static_cast<const std::byte*>(second), 1.0}};
    kernels::combine(step, dtype, both, static_cast<std::byte*>(result),
                     static_cast<int64_t>(count));
  };
}

// Calls body with an unsigned integer of `item` bytes. Gloo takes the size of elements from a type.
template <typename Body>
void with_item(uint64_t item, const Body& body) {
  switch (item) {
    case 1:
      return body(uint8_t{});
    case 2:
      return body(uint16_t{});
    case 4:
      return body(uint32_t{});
    default:
      return body(uint64_t{});
  }
}

void reduce(const Job& job) {
  const uint64_t count = job.call.count;
  std::vector<std::byte> own;  // Gloo needs room for the result on every rank.
  if (!job.is_root()) own.resize(count * job.item());
  std::byte* const result = job.is_root() ? job.receive : own.data();
  contribute(job, result, count);
  with_item(job.item(), [&]<typename T>(T) {
    gloo::ReduceOptions options(job.context);
    options.setOutput<T>(job.buffer(result, count * sizeof(T)));
    options.setReduceFunction(reducer_of(job));
    options.setRoot(job.root());
    options.setTag(job.tag());
    gloo::reduce(options);
  });
  if (job.is_root()) conclude(job, result, count);
}

void exchange_parts(const Job& job, std::byte* from, std::byte* to,
                    const std::vector<uint64_t>& receive_counts) {
  gloo::AlltoallvOptions options(job.context);
  options.setInput<uint8_t>(job.buffer(from, total(job.call.send_counts) * job.item()),
                            sizes_of<int64_t>(job.call.send_counts, job.item()));
  options.setOutput<uint8_t>(job.buffer(to, total(receive_counts) * job.item()),
                             sizes_of<int64_t>(receive_counts, job.item()));
  options.setTag(job.tag());
  gloo::alltoallv(options);
}

void reduce_scatter(const Job& job) {
  const RankCall& call = job.call;
  const uint64_t part = call.send_counts[call.rank], all = total(call.send_counts);
  std::vector<std::byte> scaled;
  std::byte* from = job.send;
  if (call.reduction == BP_REDUCTION_SCALED_SUM) {
    scaled.resize(all * job.item());
    from = scaled.data();
    contribute(job, from, all);
  }
  std::vector<std::byte> parts(part * job.item() * call.world_size);
  exchange_parts(job, from, parts.data(), std::vector<uint64_t>(call.world_size, part));
  if (part == 0) return;
  std::vector<Contribution> contributions;
  for (uint32_t rank = 0; rank < call.world_size; ++rank) {
    contributions.push_back({parts.data() + rank * part * job.item(), 1.0});
  }
  kernels::combine(after_scaling(call.reduction), call.dtype, contributions, job.receive,
                   static_cast<int64_t>(part));
}

// ---- Collectives that move elements -------------------------------------------------------------

void broadcast(const Job& job) {
  const uint64_t size_bytes = job.call.count * job.item();
  if (job.is_root()) move_bytes(job.receive, job.send, size_bytes);
  gloo::BroadcastOptions options(job.context);
  options.setOutput<uint8_t>(job.buffer(job.receive, size_bytes));
  options.setRoot(job.root());
  options.setTag(job.tag());
  gloo::broadcast(options);
}

void all_gather(const Job& job) {
  const RankCall& call = job.call;
  move_bytes(job.receive + offset(job, call.rank), job.send,
             call.send_counts[call.rank] * job.item());
  gloo::AllgathervOptions options(job.context);
  options.setOutput<uint8_t>(job.buffer(job.receive, total(call.send_counts) * job.item()),
                             sizes_of<size_t>(call.send_counts, job.item()));
  options.setTag(job.tag());
  gloo::allgatherv(options);
}

void all_to_all(const Job& job) {
  const RankCall& call = job.call;
  const uint64_t sent = total(call.send_counts) * job.item();
  const uint64_t received = total(call.receive_counts) * job.item();
  const bool is_apart = job.send + sent <= job.receive || job.receive + received <= job.send;
  std::vector<std::byte> copy;  // In place, a part may arrive before the one under it has left.
  if (!is_apart) copy.assign(job.send, job.send + sent);
  exchange_parts(job, is_apart ? job.send : copy.data(), job.receive, call.receive_counts);
}

// Moves all parts between the root, which has them in `whole`, and the ranks, each with its own in
// `part`.
void move_parts(const Job& job, std::byte* whole, std::byte* part, bool is_gather) {
  const RankCall& call = job.call;
  const uint64_t slot = slot_of(Topic::kPart, job.sequence);
  const uint64_t own_bytes = call.send_counts[call.rank] * job.item();
  const uint64_t whole_bytes = job.is_root() ? total(call.send_counts) * job.item() : 0;
  const BufferPointer buffer =
      job.is_root() ? job.buffer(whole, whole_bytes) : job.buffer(part, own_bytes);
  int messages = 0;
  const auto post = [&](uint32_t peer, uint64_t at, uint64_t size_bytes) {
    if (size_bytes == 0) return;
    ++messages;
    if (is_gather == job.is_root()) {
      buffer->recv(static_cast<int>(peer), slot, at, size_bytes);
    } else {
      buffer->send(static_cast<int>(peer), slot, at, size_bytes);
    }
  };
  if (job.is_root()) {
    std::byte* const own = whole + offset(job, call.rank);
    is_gather ? move_bytes(own, part, own_bytes) : move_bytes(part, own, own_bytes);
    for (uint32_t rank = 0; rank < call.world_size; ++rank) {
      if (rank != call.rank) post(rank, offset(job, rank), call.send_counts[rank] * job.item());
    }
  } else {
    post(call.root, 0, own_bytes);
  }
  for (; messages > 0; --messages) {
    is_gather == job.is_root() ? buffer->waitRecv() : buffer->waitSend();
  }
}

// ---- Letters ------------------------------------------------------------------------------------

struct LetterHeader {
  uint64_t count;
  uint64_t dtype;
};

void send_letter(const Job& job) {
  const int peer = job.root();
  LetterHeader header{job.call.count, job.call.dtype};
  const BufferPointer announced = job.buffer(reinterpret_cast<std::byte*>(&header), sizeof(header));
  const BufferPointer elements = job.buffer(job.send, job.call.count * job.item());
  announced->send(peer, slot_of(Topic::kLetterHeader, job.sequence));
  elements->send(peer, slot_of(Topic::kLetter, job.sequence));
  announced->waitSend();
  elements->waitSend();
}

void receive_letter(const Job& job) {
  const RankCall& call = job.call;
  LetterHeader header{};
  const BufferPointer announced = job.buffer(reinterpret_cast<std::byte*>(&header), sizeof(header));
  announced->recv(job.root(), slot_of(Topic::kLetterHeader, job.sequence));
  announced->waitRecv();
  if (header.count != call.count || header.dtype != call.dtype) {
    refuse(BP_INVALID_ARGUMENT,
           "rank " + std::to_string(call.root) + " sends " + std::to_string(header.count) +
               " elements of dtype " + std::to_string(header.dtype) + ", rank " +
               std::to_string(call.rank) + " receives " + std::to_string(call.count) +
               " of dtype " + std::to_string(call.dtype));
  }
  const BufferPointer elements = job.buffer(job.receive, call.count * job.item());
  elements->recv(job.root(), slot_of(Topic::kLetter, job.sequence));
  elements->waitRecv();
}

// ---- Runs a call --------------------------------------------------------------------------------

void run_collective(const Job& job) {
  switch (job.call.kind) {
    case BP_COLLECTIVE_ALL_REDUCE:
      return all_reduce(job);
    case BP_COLLECTIVE_REDUCE:
      return reduce(job);
    case BP_COLLECTIVE_BROADCAST:
      return broadcast(job);
    case BP_COLLECTIVE_ALL_GATHER:
      return all_gather(job);
    case BP_COLLECTIVE_REDUCE_SCATTER:
      return reduce_scatter(job);
    case BP_COLLECTIVE_ALL_TO_ALL:
      return all_to_all(job);
    case BP_COLLECTIVE_GATHER:
      return move_parts(job, job.receive, job.send, true);
    case BP_COLLECTIVE_SCATTER:
      return move_parts(job, job.send, job.receive, false);
    case BP_COLLECTIVE_SEND:
      return send_letter(job);
    case BP_COLLECTIVE_RECEIVE:
      return receive_letter(job);
    default:
      return;
  }
}

// Returns whether no rank has elements to move. In all_to_all a rank sees only its own.
bool is_empty(const RankCall& call) {
  if (call.kind == BP_COLLECTIVE_ALL_TO_ALL) return false;
  return total(call.send_counts) == 0;
}

}  // namespace

uint64_t slot_of(Topic topic, uint64_t sequence) {
  return gloo::Slot::build(static_cast<uint8_t>(topic), static_cast<uint32_t>(sequence));
}

BegunCall::BegunCall(const std::shared_ptr<gloo::Context>& mesh, Waits& waits, const RankCall& call,
                     uint64_t sequence)
    : mesh_(mesh),
      waits_(waits),
      context_(endable_context(mesh, waits)),
      send_(call.send.get()),
      receive_(call.receive.get()),
      job_{context_, call, sequence, send_.address(), receive_.address()} {
  if (!is_between_peers(call.kind)) agreement_.emplace(job_);
}

void BegunCall::run() {
  if (!agreement_) return run_collective(job_);
  if (Agreement::has_all_data(job_.call)) {
    agreement_->reduce();
  } else if (!is_empty(job_.call)) {
    const auto settled = endable_context(mesh_, waits_, [this] { agreement_->settle(); });
    run_collective({settled, job_.call, job_.sequence, job_.send, job_.receive});
  }
  agreement_->finish();
}

}  // namespace bp::cpu
