// Expert parallelism: a mixture of experts whose experts are shared out over the ranks of a group.
// Each rank has tokens of its own, and sends each token to the ranks of the experts that it chose.
//
//   auto mixture = std::make_shared<bd::MixtureOfExperts>(
//       width, [&](int64_t) { return std::make_shared<bp::nn::Linear>(width, width); }, group,
//       bd::MixtureOptions{.expert_count = 8, .top_k = 2});
//   bp::Tensor y = (*mixture)(x);  // (batch, length, width) of this rank.
//   (loss_of(y) + 0.01 * mixture->statistics().balance_loss).backward();
//   bd::average_mixture_gradients(*model, group);
//
// With x (batch, length, width), e experts and k choices, each row of the batch is a group of
// tokens in the sense of Lepikhin et al. 2020 ("GShard", section 2.2):
//
//   p = softmax(x W^T) over the experts, in f32. A token chooses its k most probable experts.
//   The weights of its choices are p for k = 1, so that the router gets a gradient (Fedus et al.
//   2021, "Switch Transformer"), and p divided by its sum over the choices for k > 1 (GShard).
//   Each expert takes at most c = ceil(capacity_factor * k * length / e) tokens of a row, and never
//   more than length. First choices go before second ones, and earlier tokens before later ones.
//   A choice beyond that is dropped: it adds nothing to y. The rest of the token stays as it is.
//   y is the sum of the weighted results of the experts.
//
// Rows do not depend on each other, so the result is that of one device with all experts, but for
// the order of sums, however the batch is cut over the ranks.
//
// Rules for everything here:
//   Threads    As for modules and groups: one thread at a time on each rank.
//   Blocking   Nothing waits for other ranks or for the device on the host but forward() with
//              MixtureExchange::kPacked.
//   Errors     Throws bp::Error, which names the layer, what was given and what is allowed.
//   Ownership  A layer shares the group and its experts.
//   Order      All ranks run the same layers in the same order with x of one shape, forward and
//              backward.
//   Gradients  Of the first order only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backplane/runtime/distributed/process_group.hpp"
#include "backplane/runtime/nn.hpp"

namespace bp::distributed {

// What travels between ranks.
enum class MixtureExchange {
  // The slots of all experts, also those that no token has: capacity_factor * top_k times the
  // tokens. The host does not wait.
  kPadded,
  // The tokens that have found room. Ranks exchange their numbers first, and the host waits for
  // these in each forward(), so captures refuse it. It sends less, and experts compute less, if
  // rooms are large or choices uneven.
  kPacked,
};

struct MixtureOptions {
  int64_t expert_count = 0;       // Of all ranks: a multiple of their number.
  int64_t top_k = 1;              // The experts that each token chooses: 1 to expert_count.
  double capacity_factor = 1.25;  // Above 0. With 1 there is just enough room if choices are even.
  // All ranks give the same. The results are equal, but for the order of sums within experts.
  MixtureExchange exchange = MixtureExchange::kPadded;
};

// What the latest forward() of a mixture did with the tokens of this rank.
struct MixtureStatistics {
  // e * sum over experts of f * P, averaged over the rows: f is the share of all choices of the row
  // that fell on the expert, and P its mean probability (Fedus et al. 2021, eq. 4 to 6; with k > 1
  // all choices count). It is 1 if both are even, has no axes, and has a gradient for the router.
  // It keeps the graph of that forward() until the next one.
  Tensor balance_loss;
  Tensor chosen;   // (experts) in i64: how many tokens chose each expert.
  Tensor dropped;  // (experts) in i64: how many of these found no room.
};

class MixtureOfExperts : public nn::Module {
 public:
  // Makes expert `index` of all experts. An expert maps (n, width) to the same shape, row by row.
  using ExpertMaker = std::function<std::shared_ptr<nn::Module>(int64_t index)>;

  // Rank r of n has the experts [r * e / n, (r + 1) * e / n), under the names "experts.INDEX", and
  // the whole router, a Linear without bias. Every rank makes all experts one after the other, and
  // keeps its own: if the generators of all ranks have one state, the first values are those of a
  // single device.
  MixtureOfExperts(int64_t width, const ExpertMaker& make_expert, const ProcessGroup& group,
                   const MixtureOptions& options);
  Tensor forward(const Tensor& x) override;

  // Throws before the first forward().
  const MixtureStatistics& statistics() const;

  const std::vector<std::shared_ptr<nn::Module>>& experts() const { return experts_; }

 private:
  struct Plan;
  static Plan make_plan(const Tensor& chosen, int64_t expert_count, int64_t capacity);
  Tensor run_padded(const Tensor& x, const Plan& plan, int64_t capacity) const;
  Tensor run_packed(const Tensor& x, const Plan& plan, int64_t capacity) const;
  Tensor run_experts(const Tensor& dispatched) const;
  Tensor run_received(const Tensor& received, const std::vector<int64_t>& counts) const;
  Tensor run_expert(size_t own_index, const Tensor& tokens) const;

  int64_t width_;
  ProcessGroup group_;
  MixtureOptions options_;
  std::shared_ptr<nn::Linear> router_;
  std::vector<std::shared_ptr<nn::Module>> experts_;  // Of this rank.
  MixtureStatistics statistics_;
};

// A TransformerBlock with a mixture in place of `up` and `down`, under the name "mixture". Each
// expert is a Sequential of two Linear, the first with the activation.
class MixtureTransformerBlock : public nn::Module {
 public:
  MixtureTransformerBlock(int64_t width, int64_t head_count, const ProcessGroup& group,
                          const MixtureOptions& mixture,
                          const nn::TransformerBlockOptions& options = {});
  Tensor forward(const Tensor& x) override;

 private:
  std::shared_ptr<nn::LayerNorm> attention_norm_, hidden_norm_;
  std::shared_ptr<nn::MultiHeadAttention> attention_;
  std::shared_ptr<MixtureOfExperts> mixture_;
  std::shared_ptr<nn::Dropout> dropout_;
};

// Returns the mixtures of a model, which may be one itself, in the order of its layers. The model
// owns them.
std::vector<const MixtureOfExperts*> mixtures_of(const nn::Module& model);

// Makes the gradients those of the mean loss over the ranks, behind a backward of the loss of each
// rank: it averages the gradients of what all ranks have, and divides those of experts, to which
// all ranks have added, by the number of ranks. All parameters need gradients. The mixtures of the
// model have the group `group`.
void average_mixture_gradients(const nn::Module& model, const ProcessGroup& group);

// Returns the sum of the squares of all gradients over the group, for scale_grads_to_norm(). Every
// rank calls it, behind average_mixture_gradients().
Tensor mixture_squared_grad_norm(const nn::Module& model, const ProcessGroup& group);

}  // namespace bp::distributed
