// What a collective call takes as a whole, and which of its plans is taken.
//
// The choice: the plan that takes the least time on an idle network. Of equal ones the first one of
// make_plans() is taken. So small tensors take few rounds, large ones little volume, and the sizes
// where this changes follow from latency and bandwidth.
//
// A cost is an approximation of the messages: rounds do not overlap. A round takes the greatest
// latency of its messages, and then as long as the link that carries the most for its bandwidth.
//
//   Exact      if all messages of a round have the same size and latency, and all members begin
//              and end rounds together: rings, exchanges and trees on a symmetric network.
//   Too long   for rings with a slow link, and for trees over ways of unequal length: members who
//              are done with a round early begin the next one.
//   Too short  for all-to-all where some members are nearer than others: early messages of the next
//              round slow late ones of this round. Its messages take up to 1.4 times as long.
//
// The messages of a round have one size in all plans, so no other link can end later: if the
// messages on the most loaded link share it equally, they end together, and the others go faster.
// simulate_test.cpp compares costs with simulations of all messages.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "simulation/network.hpp"
#include "simulation/plans.hpp"
#include "simulation/transfers.hpp"

namespace bp::simulate {

struct CallCost {
  const char* algorithm = "";
  double latency_s = 0;     // Of all rounds. Nothing moves meanwhile.
  double transfer_s = 0;    // Of all rounds, on an idle network.
  std::vector<Load> loads;  // All bytes on each link.
  double seconds() const { return latency_s + transfer_s; }
};

// Ranks that make calls together, in ascending order.
struct Group {
  std::vector<uint32_t> ranks;
  // Other groups of the same size that make the same calls at the same time, and whose ranks are
  // not simulated. Their messages are on the links as well.
  std::vector<std::vector<uint32_t>> beside;
};

class Costs {
 public:
  // `network` must live as long as this object.
  explicit Costs(const Network& network) : network_(network), bytes_of_(bandwidth_count()) {}

  // Returns the plan that the group takes. The reference is valid until forget_plans().
  const Plan& plan(const Call& call, const Group& group);

  // Returns what the plan costs, with the messages of the groups beside it.
  CallCost cost(const Call& call, const Group& group);

  // There is a plan for each size, kind and group that was asked for.
  size_t plan_count() const { return plans_.size(); }
  void forget_plans() { plans_.clear(); }

 private:
  size_t bandwidth_count() const { return network_.bandwidths().size(); }
  void add_messages(const Round& round, const std::vector<uint32_t>& ranks, double& latency_s);
  CallCost cost_of(const Plan& plan, const std::vector<const std::vector<uint32_t>*>& groups);

  using Key = std::tuple<CallKind, double, uint32_t, uint32_t, std::vector<uint32_t>>;
  const Network& network_;
  std::map<Key, std::unique_ptr<Plan>> plans_;
  std::vector<double> bytes_of_;   // Of each link, in the round that is looked at.
  std::vector<uint32_t> touched_;  // The links for which this is not 0.
};

}  // namespace bp::simulate
