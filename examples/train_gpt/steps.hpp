// Steps of training, one op at a time or as replays of a captured step.
#pragma once

#include <optional>

#include "backplane/runtime/runtime.hpp"
#include "train_gpt/options.hpp"
#include "train_gpt/text.hpp"

// Returns the loss of the model for windows of the text.
bp::Tensor loss_of(bp::nn::Module& model, const Windows& windows);

class Steps {
 public:
  // With options.capture the steps behind the first two replay one captured graph.
  Steps(bp::nn::Module& model, bp::AdamW& optimizer, const Options& options)
      : model_(model), optimizer_(optimizer), options_(options) {}

  // Takes step number `step` with the rate `lr`, and returns its loss. The seed of the dropout
  // depends only on the number of the step.
  double take(const Tokens& tokens, int64_t step, double lr);

  // Returns the pieces of work that the latest step has submitted: launches, or nodes of the graph.
  uint64_t work_count() const { return work_count_; }

  bool is_captured() const { return graph_.has_value(); }

  // Returns how many steps pass before all steps are alike.
  int64_t warm_count() const { return kEagerSteps + (options_.capture ? 1 : 0); }

 private:
  static constexpr int64_t kEagerSteps = 2;

  double eager(const Windows& windows, uint64_t seed, double lr);
  void capture(const Windows& windows);
  double replay(const Tokens& tokens, uint64_t seed, int64_t step, double lr);

  bp::nn::Module& model_;
  bp::AdamW& optimizer_;
  const Options& options_;
  int64_t taken_ = 0;
  uint64_t work_count_ = 0;

  // What the captured step reads and writes. The graph is declared behind it, so it ends first.
  struct Inputs {
    Windows windows;
    bp::Tensor seed, lr, step;
  };
  std::optional<Inputs> inputs_;
  bp::Tensor loss_;
  std::optional<bp::CapturedGraph> graph_;
};
