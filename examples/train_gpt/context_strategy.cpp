#include "train_gpt/context_strategy.hpp"

#include <stdexcept>

#include "train_gpt/model.hpp"

namespace {

namespace bd = bp::distributed;

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

bd::ContextKind kind_of(const std::string& name) {
  if (name.empty() || name == "ring") return bd::ContextKind::kRing;
  if (name == "all-to-all") return bd::ContextKind::kAllToAll;
  fail("--context-kind is '" + name + "'; allowed: ring, all-to-all");
}

std::shared_ptr<Gpt> make_model(int64_t vocabulary, const Options& o, const bd::ProcessGroup& ranks,
                                bd::ContextKind kind) {
  return std::make_shared<Gpt>(vocabulary, o, [&] {
    return std::make_shared<bd::ContextParallelTransformerBlock>(
        o.width, o.heads, ranks, kind,
        bp::nn::TransformerBlockOptions{.attention = {.causal = bp::Causal::kTopLeft},
                                        .dropout = o.dropout});
  });
}

// Every rank has the whole model and a part of each sequence. Gradients have a group of their own,
// so that they travel beside blocks of keys and values.
class Context : public Strategy {
 public:
  Context(int64_t vocabulary, const Options& options, const bd::DeviceMesh& mesh,
          bd::ContextKind kind)
      : length_(options.context),
        ranks_(mesh.group("context")),
        model_(make_model(vocabulary, options, ranks_, kind)),
        ddp_(model_, mesh.world()) {}

  bp::nn::Module& model() override { return *model_; }
  std::vector<bp::Tensor> parameters() override { return model_->parameters(); }
  bp::Tensor loss(const Windows& windows) override {
    bp::Tensor mean = own_loss(windows).detach().clone();
    ranks_.all_reduce(mean, bd::Reduction::kAverage).join();
    return mean;
  }
  bp::Tensor loss_and_gradients(const Windows& windows) override {
    // The ranks drop out different elements.
    bp::Generator& generator = ranks_.device().generator();
    generator.set_seed(hashed(generator.state().seed, ranks_.rank()));
    const bp::Tensor own = own_loss(windows);
    ddp_.prepare_backward({&own, 1});
    own.backward();
    return own.detach();
  }
  void clip(double most) override { bp::clip_grad_norm_on_device(parameters(), most); }
  bool runs_together() const override { return true; }
  uint32_t data_rank() const override { return 0; }
  uint32_t data_size() const override { return 1; }
  Checkpoint checkpoint(const bp::AdamW& optimizer, int64_t step) override {
    return {model_->state_dict(), optimizer.state_dict(), step};
  }
  void load(const Checkpoint& checkpoint, bp::AdamW& optimizer) override {
    model_->load_state_dict(checkpoint.weights);
    optimizer.load_state_dict(checkpoint.state);
  }
  std::vector<bd::Piece> pieces(const bp::TensorMap& state) override {
    return with_prefixes(bd::pieces_of(model_->state_dict()), bd::pieces_of(state));
  }

 private:
  // Returns the mean loss of the positions of this rank. All ranks have as many.
  bp::Tensor own_loss(const Windows& windows) {
    const auto own = [&](const bp::Tensor& whole) { return bd::cut_sequence(whole, 1, ranks_); };
    const bp::Tensor tokens = own(windows.inputs);
    const bp::Tensor targets = own(windows.targets.view({-1, length_})).flatten();
    const bp::Tensor places = own(bp::arange(length_, BP_I64, tokens.device()).unsqueeze(0));
    const bp::Tensor logits = model_->forward(tokens, places);
    return bp::cross_entropy(logits.flatten(0, 1), targets);
  }

  const int64_t length_;
  const bd::ProcessGroup ranks_;
  const std::shared_ptr<Gpt> model_;
  bd::DistributedDataParallel ddp_;
};

}  // namespace

std::unique_ptr<Strategy> make_context_strategy(const StrategyChoice& choice, int64_t vocabulary,
                                                const Options& options,
                                                const bd::ProcessGroup& group) {
  const bd::ContextKind kind = kind_of(choice.context_kind);
  const int64_t chunks = 2 * int64_t{group.size()};
  if (options.context % chunks != 0) {
    fail("--context is " + std::to_string(options.context) + ", for " +
         std::to_string(group.size()) + " ranks; allowed: multiples of " + std::to_string(chunks));
  }
  const bd::DeviceMesh mesh(group, {{"context", group.size()}});
  return std::make_unique<Context>(vocabulary, options, mesh, kind);
}
