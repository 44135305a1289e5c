#include "train_gpt/expert_strategy.hpp"

#include <stdexcept>

#include "train_gpt/model.hpp"
#include "train_gpt/steps.hpp"

namespace {

namespace bd = bp::distributed;

constexpr double kBalanceFactor = 0.01;  // Fedus et al. 2021, section 2.2.

std::shared_ptr<Gpt> make_model(int64_t vocabulary, const Options& o, const bd::ProcessGroup& ranks,
                                const bd::MixtureOptions& mixture) {
  return std::make_shared<Gpt>(vocabulary, o, [&] {
    return std::make_shared<bd::MixtureTransformerBlock>(
        o.width, o.heads, ranks, mixture,
        bp::nn::TransformerBlockOptions{.attention = {.causal = bp::Causal::kTopLeft},
                                        .dropout = o.dropout});
  });
}

bd::MixtureExchange exchange_of(const std::string& name) {
  if (name.empty() || name == "padded") return bd::MixtureExchange::kPadded;
  if (name == "packed") return bd::MixtureExchange::kPacked;
  throw std::runtime_error("--expert-exchange is '" + name + "'; allowed: padded, packed");
}

std::vector<std::string> names_of(const bp::nn::Module& model) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : model.named_parameters()) names.push_back(name);
  return names;
}

// Every rank has some experts of each block, the whole of the other layers, and a part of each
// batch. The names of all parameters are those of the model on one rank.
class Experts : public Strategy {
 public:
  Experts(int64_t vocabulary, const Options& options, const bd::DeviceMesh& mesh,
          const bd::MixtureOptions& mixture)
      : ranks_(mesh.group("expert")),
        model_(make_model(vocabulary, options, ranks_, mixture)),
        layout_(*model_, names_of(*make_model(vocabulary, options, mesh.group("alone"), mixture)),
                ranks_, true) {}

  bp::nn::Module& model() override { return *model_; }
  std::vector<bp::Tensor> parameters() override { return model_->parameters(); }
  bp::Tensor loss(const Windows& windows) override { return loss_of(*model_, windows); }
  bp::Tensor loss_and_gradients(const Windows& windows) override {
    const bp::Tensor mean = loss(windows);
    bp::Tensor total = mean;
    for (const bd::MixtureOfExperts* mixture : bd::mixtures_of(*model_)) {
      total = total + mixture->statistics().balance_loss * kBalanceFactor;
    }
    total.backward();
    bd::average_mixture_gradients(*model_, ranks_);
    return mean.detach();
  }
  void clip(double most) override {
    const bp::Tensor squares = bd::mixture_squared_grad_norm(*model_, ranks_);
    bp::scale_grads_to_norm(parameters(), squares, most);
  }
  bool runs_together() const override { return true; }
  uint32_t data_rank() const override { return ranks_.rank(); }
  uint32_t data_size() const override { return ranks_.size(); }
  Checkpoint checkpoint(const bp::AdamW& optimizer, int64_t step) override {
    return {layout_.whole(model_->state_dict()), layout_.whole(optimizer.state_dict()), step};
  }
  void load(const Checkpoint& checkpoint, bp::AdamW& optimizer) override {
    model_->load_state_dict(layout_.part(checkpoint.weights));
    optimizer.load_state_dict(layout_.part(checkpoint.state));
  }
  std::vector<bd::Piece> pieces(const bp::TensorMap& state) override {
    return with_prefixes(layout_.place(bd::pieces_of(model_->state_dict())),
                         layout_.place(bd::pieces_of(state)));
  }

 private:
  const bd::ProcessGroup ranks_;
  const std::shared_ptr<Gpt> model_;
  const bd::PipelineLayout layout_;
};

}  // namespace

std::unique_ptr<Strategy> make_expert_strategy(const StrategyChoice& choice, int64_t vocabulary,
                                               const Options& options,
                                               const bd::ProcessGroup& group) {
  const uint32_t experts = experts_of(choice), top_k = top_k_experts_of(choice);
  if (experts % group.size() != 0) {
    throw std::runtime_error("--experts is " + std::to_string(experts) + ", for " +
                             std::to_string(group.size()) +
                             " ranks; allowed: multiples of their number");
  }
  if (top_k > experts) {
    throw std::runtime_error("--top-k-experts is " + std::to_string(top_k) + "; allowed: 1 to " +
                             std::to_string(experts) + ", the number of experts");
  }
  const bd::MixtureOptions mixture{
      .expert_count = experts, .top_k = top_k, .exchange = exchange_of(choice.expert_exchange)};
  const bd::DeviceMesh mesh(group, {{"expert", group.size()}, {"alone", 1}});
  return std::make_unique<Experts>(vocabulary, options, mesh, mixture);
}
