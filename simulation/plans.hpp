// The messages of collective calls.
//
// A plan is a list of rounds. In a round some members of the group send a message. A member begins
// its next round when its messages of this round have left and those to it have come. Members are
// numbers in the group, from 0.
//
// `bytes` of a call is the size of the whole tensor: what all_reduce, broadcast, reduce and send
// carry, what all_gather and gather make, what reduce_scatter and scatter divide, and what each
// rank gives to all_to_all. A barrier has 0.
//
// The algorithms are those of Thakur, Rabenseifner and Gropp, "Optimization of collective
// communication operations in MPICH" (2005), for n members and a tensor of M bytes:
//
//   ring              all_reduce: 2 (n - 1) rounds of M / n; all_gather and reduce_scatter: n - 1.
//                     Its volume is the least possible (Patarasuk and Yuan, "Bandwidth optimal
//                     all-reduce algorithms for clusters of workstations", 2009).
//   halving_doubling  log2 n rounds of M / 2, M / 4, ... and, for all_reduce, the same back.
//                     all_gather has the second half, reduce_scatter the first. n is a power of 2.
//   tree              broadcast and reduce: log2 n rounds of M. all_reduce and barrier: both.
//   pairwise          all_to_all: n - 1 rounds of M / n; in round k member i sends to i + k.
//   direct            gather, scatter and send: one round.
//   hierarchical_*    For groups with the same number of ranks, above 1, on each of several nodes.
//                     Rings inside the nodes, and the named algorithm between nodes, by all ranks
//                     of a node at once, each with its part of the tensor.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bp::simulate {

enum class CallKind : uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kBroadcast,
  kReduce,
  kGather,
  kScatter,
  kBarrier,
  kSend,
};

// Returns the name, such as "all_reduce".
const char* call_name(CallKind kind);

// Returns the kind of a name. Throws NetworkError for another text.
CallKind call_kind(std::string_view name);

struct Message {
  uint32_t source = 0, target = 0;
  double bytes = 0;
};

struct Round {
  std::vector<Message> messages;
  uint32_t repeat = 1;  // How many rounds in a row have these messages.
};

struct Plan {
  const char* algorithm = "";
  std::vector<Round> rounds;
};

// What a plan is for. Members are sorted by rank, and nodes[i] is the node of member i.
struct Call {
  CallKind kind = CallKind::kAllReduce;
  double bytes = 0;
  uint32_t source = 0;  // The root of broadcast, reduce, gather and scatter; the sender of send.
  uint32_t target = 0;  // The receiver of send.
};

// Returns all plans for the call, at least one. A group of one member has a plan without rounds.
std::vector<Plan> make_plans(const Call& call, const std::vector<uint32_t>& nodes);

}  // namespace bp::simulate
