#include "simulation/costs.hpp"

#include <algorithm>

namespace bp::simulate {

void Costs::add_messages(const Round& round, const std::vector<uint32_t>& ranks,
                         double& latency_s) {
  Route route;
  for (const Message& message : round.messages) {
    network_.route(ranks[message.source], ranks[message.target], route);
    latency_s = std::max(latency_s, route.latency_s);
    for (const uint32_t link : route.links) {
      if (bytes_of_[link] == 0 && message.bytes > 0) touched_.push_back(link);
      bytes_of_[link] += message.bytes;
    }
  }
}

CallCost Costs::cost_of(const Plan& plan, const std::vector<const std::vector<uint32_t>*>& groups) {
  CallCost cost{.algorithm = plan.algorithm};
  std::map<uint32_t, double> loads;
  for (const Round& round : plan.rounds) {
    double latency_s = 0, seconds = 0;
    for (const auto* ranks : groups) add_messages(round, *ranks, latency_s);
    for (const uint32_t link : touched_) {
      seconds = std::max(seconds, bytes_of_[link] / network_.bandwidths()[link]);
      loads[link] += bytes_of_[link] * round.repeat;
      bytes_of_[link] = 0;
    }
    touched_.clear();
    cost.latency_s += latency_s * round.repeat;
    cost.transfer_s += seconds * round.repeat;
  }
  for (const auto& [link, bytes] : loads) cost.loads.push_back({link, bytes});
  return cost;
}

const Plan& Costs::plan(const Call& call, const Group& group) {
  const Key key{call.kind, call.bytes, call.source, call.target, group.ranks};
  std::unique_ptr<Plan>& known = plans_[key];
  if (known != nullptr) return *known;
  std::vector<uint32_t> nodes;
  for (const uint32_t rank : group.ranks) nodes.push_back(network_.node_of(rank));
  double least = kNever;
  for (Plan& plan : make_plans(call, nodes)) {
    const double seconds = cost_of(plan, {&group.ranks}).seconds();
    if (known != nullptr && seconds >= least) continue;
    least = seconds;
    known = std::make_unique<Plan>(std::move(plan));
  }
  return *known;
}

CallCost Costs::cost(const Call& call, const Group& group) {
  const Plan& chosen = plan(call, group);
  std::vector<const std::vector<uint32_t>*> groups{&group.ranks};
  for (const auto& ranks : group.beside) groups.push_back(&ranks);
  return cost_of(chosen, groups);
}

}  // namespace bp::simulate
