// Optimizers change parameters in place by the gradients that backward() left in the parameters.
//
//   bp::AdamW optimizer(model.parameters(), {.lr = 1e-3});
//   optimizer.zero_grad();
//   loss.backward();
//   optimizer.step();
//
// One call of a multi-tensor op updates all parameters. A parameter without a gradient does not
// change. Optimizers are not thread-safe.
#pragma once

#include <cstdint>
#include <string>
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

  // Removes the gradients, so that the next backward() begins from none.
  void zero_grad();

 protected:
  std::vector<Tensor> parameters_;
};

struct SgdOptions {
  double lr = 1e-2;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;  // The gradient grows by this factor times the parameter.
  bool nesterov = false;
};

// Stochastic gradient descent with momentum, as the op sgd_step defines it.
class Sgd : public Optimizer {
 public:
  Sgd(std::vector<Tensor> parameters, const SgdOptions& options = {});
  void step() override;

 private:
  SgdOptions options_;
  std::vector<Tensor> momentum_buffers_;  // Empty if there is no momentum.
  std::vector<int64_t> step_counts_;
};

// What optimizers with moving averages have in common: a rate that schedules set, the number of
// steps of each parameter, and a state that can be saved.
class AveragingOptimizer : public Optimizer {
 public:
  void step() override;

  // Takes a step whose rate (f64 or f32) and number (i64, from 1) are read from tensors of one
  // element when the work runs, so that a captured step can be replayed with others. It does not
  // count the step: after `count` steps of this kind, replays included, call count_steps(count).
  // Every parameter with a gradient must have taken as many steps.
  void step(const Tensor& lr, const Tensor& step);
  void count_steps(int64_t count);

  double lr() const { return lr_; }
  void set_lr(double lr);  // Sets the rate from the next step on, for schedules.

  // state_dict() returns the state that steps need besides the parameters, so that training can
  // continue bit for bit. The names in it count the parameters in their order. load_state_dict()
  // copies the state. If names, shapes or dtypes do not agree, it throws Error.
  TensorMap state_dict() const;
  void load_state_dict(const TensorMap& state);

 protected:
  // `name` is that of the optimizer in error texts, and `averages` are the names of its averages.
  AveragingOptimizer(const char* name, std::vector<Tensor> parameters, double lr,
                     std::vector<std::string> averages);

  // The tensors of the parameters that take a step together.
  struct Group {
    std::vector<Tensor> parameters, gradients;
    std::vector<std::vector<Tensor>> averages;  // In the order of their names.
  };
  virtual void update(const Group& group, const Operand& lr, const Operand& step) = 0;

 private:
  struct Average {
    std::string name;
    std::vector<Tensor> tensors;  // Of the parameters.
  };
  Group group_of(const std::vector<size_t>& indices) const;

  const char* const name_;
  double lr_;
  std::vector<Average> averages_;
  std::vector<int64_t> step_counts_;
};

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;  // Decoupled: not part of the gradient.
};

// AdamW (Loshchilov and Hutter 2019), as the op adamw_step defines it.
class AdamW : public AveragingOptimizer {
 public:
  AdamW(std::vector<Tensor> parameters, const AdamWOptions& options = {});

 private:
  void update(const Group& group, const Operand& lr, const Operand& step) override;
  AdamWOptions options_;
};

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;  // The gradient grows by this factor times the parameter.
};

// Adam (Kingma and Ba 2015), as the op adam_step defines it.
class Adam : public AveragingOptimizer {
 public:
  Adam(std::vector<Tensor> parameters, const AdamOptions& options = {});

 private:
  void update(const Group& group, const Operand& lr, const Operand& step) override;
  AdamOptions options_;
};

struct LionOptions {
  double lr = 1e-4;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0;  // Decoupled: not part of the gradient.
};

// Lion (Chen et al. 2023), as the op lion_step defines it. It does not use the number of a step.
class Lion : public AveragingOptimizer {
 public:
  Lion(std::vector<Tensor> parameters, const LionOptions& options = {});

 private:
  void update(const Group& group, const Operand& lr, const Operand& step) override;
  LionOptions options_;
};

// A learning rate that rises linearly from 0 to `peak` over `warmup` steps and then falls along
// half a cosine to `least`. From step `total` on the rate is `least`. Steps count from 1.
struct CosineSchedule {
  double peak = 1e-3;
  double least = 0;
  int64_t warmup = 0;
  int64_t total = 1;

  double lr(int64_t step) const;
};

// Scales all gradients by one factor, so that their norm is at most `most`. The norm is that of one
// vector with the elements of all gradients. Returns the norm before the scaling, and blocks for
// it.
double clip_grad_norm(const std::vector<Tensor>& parameters, double most);

// Does the same on the device, without blocking, so that it can be captured. Returns the norm
// before the scaling as a tensor without axes, or an empty one if no parameter has a gradient. The
// norm and the factor are rounded to its dtype: f64 if a gradient is f64, else f32.
Tensor clip_grad_norm_on_device(const std::vector<Tensor>& parameters, double most);

// The two parts of clip_grad_norm_on_device(), for gradients of which other ranks have a part.
// squared_grad_norm() returns the sum of the squares of all gradients, as a tensor without axes, or
// an empty one. scale_grads_to_norm() takes such a sum, and returns the norm before the scaling.
Tensor squared_grad_norm(const std::vector<Tensor>& parameters);
Tensor scale_grads_to_norm(const std::vector<Tensor>& parameters, const Tensor& squares,
                           double most);

}  // namespace bp
