// How the tokens of a mixture of experts go to the ranks of their experts and back.
//
// Here e is the number of all experts, c the slots of an expert in a row of the batch, and rank r
// has the experts [r * e / n, (r + 1) * e / n). All slots stand in the order (e, rows, c), and
// tokens fill the first slots of a row and expert.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backplane/runtime/distributed/process_group.hpp"

namespace bp::distributed {

// Sends part i along axis 0 to rank i, and returns what the ranks sent. Its gradient goes back.
Tensor exchange_slots(const Tensor& x, const ProcessGroup& group);

// Which tokens go where if the slots without a token stay at home. `sent` and `received` tokens are
// ordered by rank, then by the expert of the rank that computes.
struct TokenRoutes {
  Tensor slots;   // (sent) in i64: the slot of each token that is sent.
  Tensor places;  // (e * rows * c) in i64: the place of each slot among those that are sent, and
                  // of the slots without a token behind them.
  std::vector<uint64_t> sent, received;  // Tokens to and from each rank.
  std::vector<int64_t> of_experts;       // Received tokens: (n, own experts).
};

// Tells all ranks how many tokens come. `counts` (rows, e) in i64 says how many tokens each row
// has for each expert; those behind the first `capacity` are dropped. Every rank calls it. It waits
// for the other ranks and for the device.
TokenRoutes make_routes(const Tensor& counts, int64_t capacity, const ProcessGroup& group);

// Sends tokens (sent, width) along the routes, and returns those that come. Its gradient goes back.
// send_back() takes what send_tokens() has returned back to where it came from.
Tensor send_tokens(const Tensor& tokens, const TokenRoutes& routes, const ProcessGroup& group);
Tensor send_back(const Tensor& tokens, const TokenRoutes& routes, const ProcessGroup& group);

// Where tokens that stand by rank and expert stand by expert, and by rank within an expert.
struct ExpertOrder {
  std::vector<int64_t> counts;        // Of each own expert.
  std::vector<int64_t> sorted, back;  // Place i of the new order has token sorted[i], and the old
                                      // place i is back[i] in the new order.
};

// `counts` are those of TokenRoutes::of_experts.
ExpertOrder order_by_expert(const std::vector<int64_t>& counts, size_t own_experts);

}  // namespace bp::distributed
