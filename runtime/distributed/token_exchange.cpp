#include "runtime/distributed/token_exchange.hpp"

#include <numeric>

#include "backplane/runtime/autograd.hpp"
#include "backplane/runtime/runtime.hpp"

namespace bp::distributed {
namespace {

using Counts = std::vector<uint64_t>;

// Exchanges parts along axis 0 of so many rows each. Without counts all parts are equal.
Tensor exchanged(const Tensor& x, const ProcessGroup& group, const Counts& sent,
                 const Counts& received) {
  const NoGradGuard no_grad;
  const Tensor input = x.detach().contiguous();
  std::vector<int64_t> shape = input.shape().to_vector();
  uint64_t row = 1;
  for (size_t i = 1; i < shape.size(); ++i) row *= static_cast<uint64_t>(shape[i]);
  if (!received.empty()) {
    shape[0] = static_cast<int64_t>(std::accumulate(received.begin(), received.end(), uint64_t{0}));
  }
  Tensor output = empty(shape, input.dtype(), input.device());
  Collective call = Collective::all_to_all(output, input);
  for (const uint64_t count : sent) call.counts.push_back(count * row);
  for (const uint64_t count : received) call.receive_counts.push_back(count * row);
  group.submit(call).join();
  return output;
}

Tensor exchange(const Tensor& x, const ProcessGroup& group, const Counts& sent,
                const Counts& received) {
  if (group.size() == 1) return x;
  return with_gradient("exchange_tokens", {&x, 1}, exchanged(x, group, sent, received),
                       [group, sent, received](const Tensor& gradient) {
                         return std::vector<Tensor>{exchanged(gradient, group, received, sent)};
                       });
}

// Returns the sums of the parts of a list that has one of `count` numbers for each rank.
Counts sums_of(const int64_t* numbers, uint32_t ranks, size_t count) {
  Counts sums;
  for (uint32_t rank = 0; rank < ranks; ++rank, numbers += count) {
    sums.push_back(static_cast<uint64_t>(std::accumulate(numbers, numbers + count, int64_t{0})));
  }
  return sums;
}

}  // namespace

Tensor exchange_slots(const Tensor& x, const ProcessGroup& group) {
  return exchange(x, group, {}, {});
}

// A stable sort of the slots by whether they have no token brings those with one to the front, in
// their order.
TokenRoutes make_routes(const Tensor& counts, int64_t capacity, const ProcessGroup& group) {
  const NoGradGuard no_grad;
  const Device device = counts.device();
  const int64_t rows = counts.shape(0), experts = counts.shape(1);
  const int64_t slot_count = experts * rows * capacity;
  const Tensor kept = minimum(counts, capacity).transpose(0, 1).contiguous();  // (e, rows)
  const Tensor is_empty = lt(kept.unsqueeze(2), arange(capacity, BP_I64, device) + 1).to(BP_I64);
  TokenRoutes routes;
  Tensor order;
  sort(is_empty.view({slot_count}), 0, false, &order, BP_I64);
  routes.places =
      scatter(zeros({slot_count}, BP_I64, device), order, arange(slot_count, BP_I64, device), 0);
  const Tensor own = sum(kept, {1});
  const Tensor both[] = {own, exchange_slots(own, group)};
  const std::vector<int64_t> numbers = cat(both, 0).to_vector<int64_t>();
  const auto all = static_cast<size_t>(experts);
  routes.sent = sums_of(numbers.data(), group.size(), all / group.size());
  routes.received = sums_of(numbers.data() + all, group.size(), all / group.size());
  routes.of_experts.assign(numbers.begin() + experts, numbers.end());
  const uint64_t total = std::accumulate(routes.sent.begin(), routes.sent.end(), uint64_t{0});
  routes.slots = order.narrow(0, 0, static_cast<int64_t>(total));
  return routes;
}

Tensor send_tokens(const Tensor& tokens, const TokenRoutes& routes, const ProcessGroup& group) {
  return exchange(tokens, group, routes.sent, routes.received);
}

Tensor send_back(const Tensor& tokens, const TokenRoutes& routes, const ProcessGroup& group) {
  return exchange(tokens, group, routes.received, routes.sent);
}

ExpertOrder order_by_expert(const std::vector<int64_t>& counts, size_t own_experts) {
  ExpertOrder order{.counts = std::vector<int64_t>(own_experts), .sorted = {}, .back = {}};
  for (size_t i = 0; i < counts.size(); ++i) order.counts[i % own_experts] += counts[i];
  std::vector<int64_t> next(own_experts);
  std::exclusive_scan(order.counts.begin(), order.counts.end(), next.begin(), int64_t{0});
  order.sorted.resize(
      static_cast<size_t>(std::accumulate(counts.begin(), counts.end(), int64_t{0})));
  for (size_t i = 0; i < counts.size(); ++i) {
    for (int64_t token = 0; token < counts[i]; ++token) {
      const int64_t place = next[i % own_experts]++;
      order.sorted[static_cast<size_t>(place)] = static_cast<int64_t>(order.back.size());
      order.back.push_back(place);
    }
  }
  return order;
}

}  // namespace bp::distributed
