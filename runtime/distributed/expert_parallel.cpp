// A mixture of experts over ranks. Tokens are put into slots, of which each expert has `capacity`
// for each row of the batch, also where fewer tokens come.
//
// kPadded sends all slots. All shapes are known on the host, so that it never waits for the device,
// and all parts of the all-to-all are equal.
//
//   x            (rows, length, width)             what a rank has
//   dispatched   (rows, experts, capacity, width)  its slots; empty ones are zeros
//   sent         (experts, rows, capacity, width)  rank r gets the slots of its experts
//   received     (ranks, own experts, rows * capacity, width)
//
// kPacked sends the slots that have a token, behind their counts, which the host reads.
//
//   sent         (tokens, width)                   ordered by expert, row and place in the slots
//   received     (other tokens, width)             ordered by rank, then as each rank sent them
#include "backplane/runtime/distributed/expert_parallel.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "backplane/runtime/autograd.hpp"
#include "backplane/runtime/distributed/ddp.hpp"
#include "backplane/runtime/error.hpp"
#include "backplane/runtime/optim.hpp"
#include "runtime/distributed/token_exchange.hpp"

namespace bp::distributed {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw Error(BP_INVALID_ARGUMENT, "MixtureOfExperts: " + what);
}

void check(int64_t width, const MixtureOptions& o, const ProcessGroup& group) {
  if (width <= 0) fail("width is " + std::to_string(width) + "; allowed: 1 and more");
  if (o.expert_count <= 0 || o.expert_count % int64_t{group.size()} != 0) {
    fail("expert_count is " + std::to_string(o.expert_count) +
         "; allowed: multiples of the number of ranks, which is " + std::to_string(group.size()));
  }
  if (o.top_k < 1 || o.top_k > o.expert_count) {
    fail("top_k is " + std::to_string(o.top_k) + "; allowed: 1 to " +
         std::to_string(o.expert_count) + ", the number of experts");
  }
  if (!(o.capacity_factor > 0) || !std::isfinite(o.capacity_factor)) {
    fail("capacity_factor is " + std::to_string(o.capacity_factor) +
         "; allowed: finite numbers above 0");
  }
}

int64_t capacity_of(const MixtureOptions& o, int64_t length) {
  const double even = static_cast<double>(o.top_k * length) / static_cast<double>(o.expert_count);
  const double room = std::ceil(o.capacity_factor * even);
  return room < static_cast<double>(length) ? static_cast<int64_t>(room) : length;
}

// Returns x[row, indices[row, i]] as (rows, i, width), and zeros for the index x.shape[1].
Tensor rows_of(const Tensor& x, const Tensor& indices) {
  const int64_t rows = x.shape(0), count = x.shape(1) + 1, width = x.shape(2);
  const Tensor padded[] = {x, zeros({rows, 1, width}, x.dtype(), x.device())};
  const Tensor first = (arange(rows, BP_I64, x.device()) * count).unsqueeze(1);
  const Tensor taken =
      index_select(cat(padded, 1).flatten(0, 1), (indices + first).reshape({indices.numel()}), 0);
  return taken.view({rows, indices.shape(1), width});
}

// Returns whether the current stream captures. No stream of a device without captures does.
bool is_capturing(Device device) {
  const bp_target& target = device.target();
  bp_stream* const stream = current_stream(target);
  const bp_stream_ops& streams = *target.streams;
  uint32_t captures = 0;
  if (streams.is_capturing(streams.self, stream != nullptr ? stream : target.default_stream,
                           &captures) != BP_OK) {
    bp_error_clear();
  }
  return captures != 0;
}

Tensor balance_loss_of(const Tensor& probabilities, const Tensor& counts, int64_t choice_count) {
  const Tensor share = counts.to(BP_F32) / static_cast<double>(choice_count);
  const Tensor products = sum(share * mean(probabilities, {1}), {1});
  return mean(products) * static_cast<double>(counts.shape(1));
}

// The parameters of a model, each once.
struct Parameters {
  std::vector<Tensor> shared, of_experts;
};

Parameters parameters_by_kind(const nn::Module& model) {
  std::set<const void*> own;
  for (const MixtureOfExperts* mixture : mixtures_of(model)) {
    for (const auto& expert : mixture->experts()) {
      for (const Tensor& tensor : expert->parameters()) own.insert(tensor.impl());
    }
  }
  Parameters parameters;
  for (const Tensor& tensor : model.parameters()) {
    (own.contains(tensor.impl()) ? parameters.of_experts : parameters.shared).push_back(tensor);
  }
  return parameters;
}

}  // namespace

// Which token a slot has, and which slot a choice has. Choices have the shape (rows, k * length):
// first choices of all tokens come first.
struct MixtureOfExperts::Plan {
  Tensor tokens;  // (rows, experts * capacity). `length` stands for an empty slot.
  Tensor slots;   // (rows, k * length). experts * capacity stands for a dropped choice.
  Tensor counts;  // (rows, experts): how many choices fell on each expert.
};

// A stable sort by expert keeps the order of the choices, so the place of a choice behind the first
// one of its expert is its place in the queue of the expert.
MixtureOfExperts::Plan MixtureOfExperts::make_plan(const Tensor& chosen, int64_t expert_count,
                                                   int64_t capacity) {
  const int64_t rows = chosen.shape(0), length = chosen.shape(1), k = chosen.shape(2);
  const int64_t count = k * length, slot_count = expert_count * capacity;
  const Device device = chosen.device();
  const Tensor choices = chosen.permute({0, 2, 1}).contiguous().view({rows, count});
  const Tensor experts = arange(expert_count, BP_I64, device);
  Tensor order;
  const Tensor sorted = sort(choices, 1, false, &order, BP_I64);
  const Tensor first = sum(lt(choices.unsqueeze(2), experts).to(BP_I64), {1});
  const Tensor place = arange(count, BP_I64, device) - gather(first, sorted, 1);
  const Tensor slot = where(lt(place, capacity), sorted * capacity + place, slot_count);
  const Tensor all = arange(length, BP_I64, device).expand({rows, k, length});
  const Tensor token = gather(all.reshape({rows, count}), order, 1);
  // The last slot takes what is dropped, and goes.
  const Tensor empty_slots = full({rows, slot_count + 1}, length, BP_I64, device);
  return {.tokens = scatter(empty_slots, slot, token, 1).narrow(1, 0, slot_count),
          .slots = scatter(zeros({rows, count}, BP_I64, device), order, slot, 1),
          .counts = sum(eq(choices.unsqueeze(2), experts).to(BP_I64), {1})};
}

MixtureOfExperts::MixtureOfExperts(int64_t width, const ExpertMaker& make_expert,
                                   const ProcessGroup& group, const MixtureOptions& options)
    : width_(width), group_(group), options_(options) {
  check(width, options, group);
  router_ = std::make_shared<nn::Linear>(width, options.expert_count, false);
  add_module("router", router_);
  const int64_t count = options.expert_count / int64_t{group.size()};
  const int64_t begin = count * int64_t{group.rank()};
  for (int64_t i = 0; i < options.expert_count; ++i) {
    const std::shared_ptr<nn::Module> expert = make_expert(i);
    if (i < begin || i >= begin + count) continue;
    add_module("experts." + std::to_string(i), expert);
    experts_.push_back(expert);
  }
}

Tensor MixtureOfExperts::forward(const Tensor& x) {
  if (x.ndim() != 3 || x.shape(2) != width_ || x.numel() == 0) {
    fail("x has the shape " + to_string(x.shape()) + "; allowed: (batch, length, " +
         std::to_string(width_) + "), with tokens");
  }
  const int64_t rows = x.shape(0), length = x.shape(1), k = options_.top_k;
  const int64_t capacity = capacity_of(options_, length);
  const Tensor probabilities = softmax((*router_)(x).to(BP_F32), 2);
  Tensor chosen;
  Plan plan;
  {
    const NoGradGuard no_grad;
    topk(probabilities.detach(), k, 2, true, &chosen, BP_I64);
    plan = make_plan(chosen, options_.expert_count, capacity);
    statistics_.chosen = sum(plan.counts, {0});
    statistics_.dropped = sum(maximum(plan.counts - capacity, 0), {0});
  }
  statistics_.balance_loss = balance_loss_of(probabilities, plan.counts, k * length);
  Tensor weights = gather(probabilities, chosen, 2);
  if (k > 1) weights = weights / sum(weights, {2}, true);
  const Tensor picked =
      (options_.exchange == MixtureExchange::kPacked ? run_packed(x, plan, capacity)
                                                     : run_padded(x, plan, capacity))
          .view({rows, k, length, width_});
  return sum(picked * weights.permute({0, 2, 1}).unsqueeze(-1).to(x.dtype()), {1});
}

// Returns the results of all choices: (rows, k * length, width), with zeros for dropped ones.
Tensor MixtureOfExperts::run_padded(const Tensor& x, const Plan& plan, int64_t capacity) const {
  const Tensor dispatched = rows_of(x, plan.tokens);
  const Tensor results =
      run_experts(dispatched.view({x.shape(0), options_.expert_count, capacity, width_}));
  return rows_of(results, plan.slots);
}

// Does the same, and sends no empty slots.
Tensor MixtureOfExperts::run_packed(const Tensor& x, const Plan& plan, int64_t capacity) const {
  const Device device = x.device();
  if (is_capturing(device)) {
    fail(
        "kPacked reads counts of tokens on the host, which a capture cannot do; allowed: "
        "kPacked outside of captures");
  }
  const int64_t rows = x.shape(0), length = x.shape(1), experts = options_.expert_count;
  const TokenRoutes routes = make_routes(plan.counts, capacity, group_);
  Tensor tokens, places;
  {
    const NoGradGuard no_grad;
    const Tensor row = arange(rows, BP_I64, device).unsqueeze(1);
    // Slots of a row have the order (experts, capacity), and those of the routes (experts, rows,
    // capacity).
    const Tensor all = (plan.tokens + row * length).view({rows, experts, capacity});
    tokens =
        index_select(all.transpose(0, 1).reshape({experts * rows * capacity}), routes.slots, 0);
    const Tensor of_rows =
        routes.places.view({experts, rows, capacity}).transpose(0, 1).reshape({rows, -1});
    const Tensor none = full({rows, 1}, routes.slots.numel(), BP_I64, device);
    const Tensor padded[] = {of_rows, none};
    places = gather(cat(padded, 1), plan.slots, 1).view({1, plan.slots.numel()});
  }
  const Tensor sent = index_select(x.flatten(0, 1), tokens, 0);
  const Tensor results =
      send_back(run_received(send_tokens(sent, routes, group_), routes.of_experts), routes, group_);
  return rows_of(results.unsqueeze(0), places);
}

Tensor MixtureOfExperts::run_expert(size_t own_index, const Tensor& tokens) const {
  const Tensor y = (*experts_[own_index])(tokens);
  if (y.shape() != tokens.shape() || y.dtype() != tokens.dtype()) {
    fail("an expert made the shape " + to_string(y.shape()) + " of " + to_string(tokens.shape()) +
         "; allowed: the same shape and dtype");
  }
  return y;
}

// Takes tokens by rank and expert, of which there are counts (ranks, own experts), and returns
// their results in this order. An expert without tokens computes a row of zeros, so that the
// parameters get gradients, which are zeros, and the exchange of the gradients takes place.
Tensor MixtureOfExperts::run_received(const Tensor& received,
                                      const std::vector<int64_t>& counts) const {
  const ExpertOrder order = order_by_expert(counts, experts_.size());
  const int64_t total = received.shape(0);
  const auto reordered = [&](const Tensor& x, const std::vector<int64_t>& indices) {
    if (experts_.size() == 1 || total == 0) return x;
    return index_select(x, from_host(indices, {total}, x.device()), 0);
  };
  Tensor tokens = reordered(received, order.sorted);
  if (std::ranges::find(order.counts, 0) != order.counts.end()) {
    const Tensor row = zeros({1, width_}, tokens.dtype(), tokens.device());
    const Tensor both[] = {tokens, row};
    tokens = cat(both, 0);
  }
  std::vector<Tensor> results;
  int64_t first = 0;
  for (size_t i = 0; i < experts_.size(); ++i) {
    const int64_t count = order.counts[i];
    const Tensor y =
        run_expert(i, count > 0 ? tokens.narrow(0, first, count) : tokens.narrow(0, total, 1));
    results.push_back(y.narrow(0, 0, count));
    first += count;
  }
  return reordered(cat(results, 0), order.back);
}

// Takes (rows, experts, capacity, width), and returns (rows, experts * capacity, width).
Tensor MixtureOfExperts::run_experts(const Tensor& dispatched) const {
  const int64_t rows = dispatched.shape(0), capacity = dispatched.shape(2);
  const int64_t ranks = group_.size(), own = static_cast<int64_t>(experts_.size());
  const Tensor received = exchange_slots(dispatched.transpose(0, 1).contiguous(), group_)
                              .view({ranks, own, rows * capacity, width_});
  std::vector<Tensor> results;
  for (int64_t i = 0; i < own; ++i) {
    const Tensor tokens = received.select(1, i).reshape({ranks * rows * capacity, width_});
    const Tensor y = run_expert(static_cast<size_t>(i), tokens);
    results.push_back(y.view({ranks, 1, rows * capacity, width_}));
  }
  const Tensor sent = cat(results, 1).view({ranks * own, rows, capacity, width_});
  const Tensor back = exchange_slots(sent, group_);
  return back.transpose(0, 1).reshape({rows, ranks * own * capacity, width_});
}

const MixtureStatistics& MixtureOfExperts::statistics() const {
  if (!statistics_.balance_loss) fail("there are no statistics before the first forward()");
  return statistics_;
}

MixtureTransformerBlock::MixtureTransformerBlock(int64_t width, int64_t head_count,
                                                 const ProcessGroup& group,
                                                 const MixtureOptions& mixture,
                                                 const nn::TransformerBlockOptions& options) {
  const int64_t hidden = options.hidden_width == 0 ? 4 * width : options.hidden_width;
  add_module("attention_norm", attention_norm_ = std::make_shared<nn::LayerNorm>(width));
  attention_ = std::make_shared<nn::MultiHeadAttention>(width, head_count, options.attention);
  add_module("attention", attention_);
  add_module("hidden_norm", hidden_norm_ = std::make_shared<nn::LayerNorm>(width));
  const auto make_expert = [&](int64_t) {
    return std::make_shared<nn::Sequential>(std::vector<std::shared_ptr<nn::Module>>{
        std::make_shared<nn::Linear>(width, hidden, true, options.activation),
        std::make_shared<nn::Linear>(hidden, width)});
  };
  mixture_ = std::make_shared<MixtureOfExperts>(width, make_expert, group, mixture);
  add_module("mixture", mixture_);
  add_module("dropout", dropout_ = std::make_shared<nn::Dropout>(options.dropout));
}

Tensor MixtureTransformerBlock::forward(const Tensor& x) {
  const Tensor attended = x + (*dropout_)((*attention_)((*attention_norm_)(x)));
  return attended + (*dropout_)((*mixture_)((*hidden_norm_)(attended)));
}

std::vector<const MixtureOfExperts*> mixtures_of(const nn::Module& model) {
  std::vector<const MixtureOfExperts*> mixtures;
  const auto note = [&](const nn::Module& module) {
    const auto* mixture = dynamic_cast<const MixtureOfExperts*>(&module);
    if (mixture != nullptr) mixtures.push_back(mixture);
  };
  note(model);
  for (const auto& [name, layer] : model.named_modules()) note(*layer);
  return mixtures;
}

void average_mixture_gradients(const nn::Module& model, const ProcessGroup& group) {
  const NoGradGuard no_grad;
  const Parameters parameters = parameters_by_kind(model);
  for (const Tensor& tensor : parameters.of_experts) {
    if (!tensor.grad()) fail("a parameter of an expert has no gradient; call backward() first");
    tensor.set_grad(tensor.grad() / static_cast<double>(group.size()));
  }
  average_gradients(parameters.shared, group);
}

Tensor mixture_squared_grad_norm(const nn::Module& model, const ProcessGroup& group) {
  const NoGradGuard no_grad;
  const Parameters parameters = parameters_by_kind(model);
  const Tensor squares = squared_grad_norm(parameters.of_experts);
  group.all_reduce(squares).join();
  return squares + squared_grad_norm(parameters.shared);
}

}  // namespace bp::distributed
