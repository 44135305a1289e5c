#include "train_gpt/server_strategy.hpp"

#include <stdexcept>

#include "train_gpt/model.hpp"
#include "train_gpt/saves.hpp"
#include "train_gpt/steps.hpp"

namespace {

namespace bd = bp::distributed;

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

// Workers have the whole model and a part of each batch, and take steps at their own pace. Servers
// have the state of the optimizer, and the newest parameters.
class Served : public Strategy {
 public:
  Served(const std::shared_ptr<Gpt>& model, const Options& options, uint32_t servers,
         uint64_t staleness, const bd::ProcessGroup& group)
      : model_(model),
        server_(model, group,
                {.servers = servers,
                 .staleness = staleness,
                 .make_optimizer =
                     [&](const std::vector<bp::Tensor>& parameters) {
                       optimizer_ = std::make_shared<bp::AdamW>(
                           parameters, bp::AdamWOptions{.lr = options.lr,
                                                        .weight_decay = options.weight_decay});
                       return optimizer_;
                     },
                 .before_step =
                     [this](const bd::PushedStep& push) {
                       optimizer_->set_lr(schedule_.lr(done_ + static_cast<int64_t>(push.step)));
                     }}) {}

  bp::nn::Module& model() override { return *model_; }
  std::vector<bp::Tensor> parameters() override { return model_->parameters(); }
  std::shared_ptr<bp::AdamW> make_optimizer(const bp::AdamWOptions&) override { return optimizer_; }
  bool computes() const override { return !server_.is_server(); }
  void begin(const bp::CosineSchedule& schedule, int64_t done) override {
    schedule_ = schedule;
    done_ = done;
  }
  bp::Tensor loss(const Windows& windows) override { return loss_of(*model_, windows); }
  void clip(double most) override { bp::clip_grad_norm_on_device(parameters(), most); }
  void update(bp::AdamW*, double) override {
    server_.push();
    server_.pull();
  }
  bool steps_together() const override { return false; }
  void meet() override { server_.is_server() ? server_.serve() : server_.finish(); }
  bool runs_together() const override { return false; }
  uint32_t data_rank() const override { return server_.is_server() ? 0 : server_.group().rank(); }
  uint32_t data_size() const override { return server_.worker_count(); }
  Checkpoint checkpoint(const bp::AdamW&, int64_t) override { fail_without_folder(); }
  void load(const Checkpoint&, bp::AdamW&) override { fail_without_folder(); }
  std::vector<bd::Piece> pieces(const bp::TensorMap& state) override {
    return with_prefixes(server_.pieces(), server_.optimizer_pieces(state));
  }

  [[noreturn]] static void fail_without_folder() {
    fail("--strategy ps has no rank with the whole state; allowed: --checkpoint FOLDER/");
  }

 private:
  const std::shared_ptr<Gpt> model_;
  bp::CosineSchedule schedule_;
  int64_t done_ = 0;                      // Steps before this run.
  std::shared_ptr<bp::AdamW> optimizer_;  // On a server.
  bd::ParameterServer server_;
};

}  // namespace

std::unique_ptr<Strategy> make_server_strategy(const StrategyChoice& choice, int64_t vocabulary,
                                               const Options& options,
                                               const bd::ProcessGroup& group) {
  const uint32_t servers = number_of("--servers", choice.servers, 1);
  const uint32_t staleness = number_of("--staleness", choice.staleness, 0, 0);
  if (servers >= group.size()) {
    fail("--servers is " + std::to_string(servers) + ", of " + std::to_string(group.size()) +
         " ranks; allowed: fewer, since the others work");
  }
  if (!options.checkpoint.empty() && !is_folder(options.checkpoint)) Served::fail_without_folder();
  return std::make_unique<Served>(std::make_shared<Gpt>(vocabulary, options), options, servers,
                                  staleness, group);
}
