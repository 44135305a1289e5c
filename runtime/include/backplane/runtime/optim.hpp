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

 private:
  AdamWOptions options_;
  std::vector<Tensor> exp_avg_, exp_avg_sq_;
  std::vector<int64_t> step_counts_;
};

}  // namespace bp
