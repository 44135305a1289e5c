// Optimizers: they change parameters in place by the gradients that backward() left in them.
//
//   bp::AdamW optimizer(model.parameters(), {.lr = 1e-3});
//   optimizer.zero_grad();
//   loss.backward();
//   optimizer.step();
//
// All parameters are updated by one call of a multi-tensor op. Parameters without a gradient are
// left alone. Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "backplane/runtime/safetensors.hpp"
#include "backplane/runtime/tensor.hpp"

namespace bp {

class Optimizer {
 public:
  explicit Optimizer(std::vector<Tensor> parameters);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  virtual void step() = 0;

  // Takes the gradients away, so that the next backward() begins anew.
  void zero_grad();

 protected:
  std::vector<Tensor> parameters_;
};

struct SgdOptions {
  double lr = 1e-2;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;  // Added to the gradient, times the parameter.
  bool nesterov = false;
};

// Stochastic gradient descent with momentum, as the op sgd_step defines it.
class Sgd : public Optimizer {
 public:
  Sgd(std::vector<Tensor> parameters, const SgdOptions& options = {});
  void step() override;

 private:
  SgdOptions options_;
  std::vector<Tensor> momentum_buffers_;  // Empty without momentum.
  std::vector<int64_t> step_counts_;
};

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;  // Decoupled from the gradient.
};

// AdamW (Loshchilov and Hutter 2019), as the op adamw_step defines it.
class AdamW : public Optimizer {
 public:
  AdamW(std::vector<Tensor> parameters, const AdamWOptions& options = {});
  void step() override;

  double lr() const { return options_.lr; }
  void set_lr(double lr);  // For schedules: from the next step on.

  // What steps go by besides the parameters, which are counted in their order: to continue bit for
  // bit. Loading copies; names, shapes and dtypes must agree, else it throws Error.
  TensorMap state_dict() const;
  void load_state_dict(const TensorMap& state);

 private:
  AdamWOptions options_;
  std::vector<Tensor> exp_avg_, exp_avg_sq_;
  std::vector<int64_t> step_counts_;
};

// A learning rate that rises in equal parts from 0 to `peak` over `warmup` steps and then falls as
// half a cosine to `least`, which it has from step `total` on. Steps count from 1.
struct CosineSchedule {
  double peak = 1e-3;
  double least = 0;
  int64_t warmup = 0;
  int64_t total = 1;

  double lr(int64_t step) const;
};

// Scales the gradients down, all by one factor, so that their norm, as of one long vector, is at
// most `most`. Gives the norm that they had; blocks for it.
double clip_grad_norm(const std::vector<Tensor>& parameters, double most);

}  // namespace bp
