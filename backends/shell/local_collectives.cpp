// The work that each kind of collective does on the memory of its ranks. All input is read before
// any output is written, so calls in place need no special case.
#include <cstring>
#include <numeric>

#include "backplane/shell/combine.hpp"
#include "backplane/shell/local_group.hpp"
#include "backplane/shell/shape.hpp"

namespace bp {
namespace {

using Calls = std::vector<const RankCall*>;
using Bytes = std::vector<std::byte>;

// Returns the number of elements before part `index`.
uint64_t offset(const std::vector<uint64_t>& counts, uint32_t index) {
  return std::accumulate(counts.begin(), counts.begin() + index, uint64_t{0});
}

uint64_t item(const RankCall& call) { return static_cast<uint64_t>(dtype_size_bytes(call.dtype)); }

// Returns a copy of what a rank sends.
Bytes read_sent(const RankCall& call) {
  Bytes bytes(sent_elements(call) * item(call));
  if (bytes.empty()) return bytes;
  const OpenedMemory memory(call.send.get());
  std::memcpy(bytes.data(), memory.address(), bytes.size());
  return bytes;
}

void write_received(const RankCall& call, const std::byte* from, uint64_t first_element,
                    uint64_t elements) {
  if (elements == 0) return;
  const OpenedMemory memory(call.receive.get());
  std::memcpy(memory.address() + first_element * item(call), from, elements * item(call));
}

// Returns the reduction of all that the ranks send.
Bytes reduced(const Calls& calls) {
  std::vector<Bytes> sent;
  std::vector<kernels::Contribution> contributions;
  for (const RankCall* call : calls) sent.push_back(read_sent(*call));
  for (size_t i = 0; i < calls.size(); ++i) {
    contributions.push_back({sent[i].data(), calls[i]->scale});
  }
  const RankCall& first = *calls[0];
  Bytes result(sent[0].size());
  if (result.empty()) return result;
  kernels::combine(first.reduction, first.dtype, contributions, result.data(),
                   static_cast<int64_t>(sent_elements(first)));
  return result;
}

// Returns what the ranks send, one part after the other.
Bytes gathered(const Calls& calls) {
  Bytes all;
  for (const RankCall* call : calls) {
    const Bytes part = read_sent(*call);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

void write_to_all(const Calls& calls, const Bytes& bytes) {
  for (const RankCall* call : calls) {
    write_received(*call, bytes.data(), 0, bytes.size() / item(*call));
  }
}

void write_parts(const Calls& calls, const Bytes& bytes) {
  for (const RankCall* call : calls) {
    const uint64_t first = offset(call->send_counts, call->rank);
    write_received(*call, bytes.data() + first * item(*call), 0, call->send_counts[call->rank]);
  }
}

void write_to_root(const Calls& calls, const Bytes& bytes) {
  const RankCall& root = *calls[calls[0]->root];
  write_received(root, bytes.data(), 0, bytes.size() / item(root));
}

void exchange(const Calls& calls) {
  std::vector<Bytes> sent;
  for (const RankCall* call : calls) sent.push_back(read_sent(*call));
  for (const RankCall* to : calls) {
    for (const RankCall* from : calls) {
      const uint64_t first = offset(from->send_counts, to->rank);
      write_received(*to, sent[from->rank].data() + first * item(*to),
                     offset(to->receive_counts, from->rank), to->receive_counts[from->rank]);
    }
  }
}

}  // namespace

void run_collective(const Calls& calls) {
  switch (calls[0]->kind) {
    case BP_COLLECTIVE_ALL_REDUCE:
      return write_to_all(calls, reduced(calls));
    case BP_COLLECTIVE_REDUCE:
      return write_to_root(calls, reduced(calls));
    case BP_COLLECTIVE_BROADCAST:
    case BP_COLLECTIVE_ALL_GATHER:
      return write_to_all(calls, gathered(calls));
    case BP_COLLECTIVE_REDUCE_SCATTER:
      return write_parts(calls, reduced(calls));
    case BP_COLLECTIVE_ALL_TO_ALL:
      return exchange(calls);
    case BP_COLLECTIVE_GATHER:
      return write_to_root(calls, gathered(calls));
    case BP_COLLECTIVE_SCATTER:
      return write_parts(calls, gathered(calls));
    case BP_COLLECTIVE_SEND:
      return write_received(*calls[1], read_sent(*calls[0]).data(), 0, calls[0]->count);
    default:
      return;
  }
}

}  // namespace bp
