// Layers with parameters, and ways to join layers into a model.
//
//   bp::DeviceGuard guard("npu");
//   auto model = bp::nn::Sequential({
//       std::make_shared<bp::nn::Linear>(64, 32), std::make_shared<bp::nn::Relu>(),
//       std::make_shared<bp::nn::Linear>(32, 10)});
//   bp::Tensor logits = model(x);
//
// Parameters are made in f32 on current_device(). Their first values come from its generator, in
// the distribution that the comment of each layer names. Modules are not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backplane/runtime/ops.hpp"
#include "backplane/runtime/safetensors.hpp"
#include "backplane/runtime/tensor.hpp"

namespace bp::nn {

// A layer, or a model of layers. A module owns its parameters and shares its layers.
class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // Callers use operator(), which runs the hooks of the module around forward().
  virtual Tensor forward(const Tensor& x) = 0;
  Tensor operator()(const Tensor& x) { return hooks_.empty() ? forward(x) : call_hooked(x); }

  // Returns ("layer.weight", tensor) for every parameter of this module and its layers, in the
  // order in which they were added.
  std::vector<std::pair<std::string, Tensor>> named_parameters() const;
  // Returns each parameter once, also if several layers share it.
  std::vector<Tensor> parameters() const;
  int64_t parameter_count() const;  // The number of elements of all parameters.

  // Returns ("layer", module) for every layer of this module and of its layers, in the order in
  // which they were added.
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> named_modules() const;

  // Returns the names of the ForwardHooks of this module, in the order of their calls.
  std::vector<std::string> hook_names() const;

  // Sets whether layers such as Dropout behave as in training, which is the default.
  void train(bool is_training = true);
  bool is_training() const { return is_training_; }

  // state_dict() returns the parameters by name, without a copy of their memory. load_state_dict()
  // copies the values of `state` into the parameters. If the names or shapes do not agree exactly,
  // it throws Error and changes nothing.
  TensorMap state_dict() const;
  void load_state_dict(const TensorMap& state);

 protected:
  // Makes `tensor` a parameter: a leaf that requires a gradient. A module uses each name once.
  Tensor add_parameter(std::string name, const Tensor& tensor);
  void add_module(std::string name, std::shared_ptr<Module> module);

 private:
  friend class ForwardHook;
  struct Hook {
    uint64_t id;
    std::string name;
    std::function<Tensor(const Tensor&)> before, after;
  };

  Tensor call_hooked(const Tensor& x);
  void check_name(const std::string& name) const;
  void collect(const std::string& prefix,
               std::vector<std::pair<std::string, Tensor>>& parameters) const;

  std::vector<std::pair<std::string, Tensor>> parameters_;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> modules_;
  std::vector<Hook> hooks_;
  bool is_training_ = true;
};

// Calls a function before and a function after each call of a module by its operator(). What
// `before` returns replaces the input, and what `after` returns replaces the result. Hooks of one
// module nest: the first that was made is called first before forward(), and last after it. If
// forward() throws, no `after` is called.
//
// A ForwardHook shares the module, and ends when it is destroyed. The module must not run while a
// hook is made or destroyed.
class ForwardHook {
 public:
  using Call = std::function<Tensor(const Tensor&)>;  // An empty one leaves the tensor as it is.
  ForwardHook(std::shared_ptr<Module> module, std::string name, Call before, Call after);
  ~ForwardHook();
  ForwardHook(ForwardHook&& other) noexcept = default;
  ForwardHook& operator=(ForwardHook&& other) noexcept;

 private:
  std::shared_ptr<Module> module_;  // Empty after a move.
  uint64_t id_;
};

// y = activation(x W^T + b) for x of shape (..., in_features). The weight (out_features,
// in_features) and the bias (out_features) begin uniform in +-1/sqrt(in_features).
class Linear : public Module {
 public:
  Linear(int64_t in_features, int64_t out_features, bool has_bias = true,
         Activation activation = Activation::kNone);
  Tensor forward(const Tensor& x) override;

 private:
  Activation activation_;
  Tensor weight_, bias_;
};

struct Conv2dOptions {
  int64_t stride = 1;
  int64_t padding = 0;  // On each side.
  int64_t dilation = 1;
  int64_t groups = 1;
  bool has_bias = true;
};

// Convolution of x (n, in_channels, h, w). The weight (out_channels, in_channels / groups, kernel,
// kernel) and the bias begin uniform in +-1/sqrt(in_channels / groups * kernel^2).
class Conv2d : public Module {
 public:
  Conv2d(int64_t in_channels, int64_t out_channels, int64_t kernel_size,
         const Conv2dOptions& options = {});
  Tensor forward(const Tensor& x) override;

 private:
  Conv2dOptions options_;
  Tensor weight_, bias_;
};

// Looks up the row of a table (num_embeddings, width) for each index. The table begins uniform with
// the standard deviation `deviation`.
class Embedding : public Module {
 public:
  Embedding(int64_t num_embeddings, int64_t width, double deviation = 1);
  Tensor forward(const Tensor& indices) override;

 private:
  Tensor weight_;
};

// In training, sets elements to zero with the probability `p` and scales the others by 1 / (1 - p).
class Dropout : public Module {
 public:
  explicit Dropout(double p);
  Tensor forward(const Tensor& x) override;

 private:
  double p_;
};

class Relu : public Module {
 public:
  Tensor forward(const Tensor& x) override;
};

// y = x * P(x), where P is the distribution function of the normal distribution, or y = the tanh
// approximation of this product.
class Gelu : public Module {
 public:
  explicit Gelu(GeluApproximation approximation = GeluApproximation::kNone)
      : approximation_(approximation) {}
  Tensor forward(const Tensor& x) override;

 private:
  GeluApproximation approximation_;
};

// y = x * sigmoid(x).
class Silu : public Module {
 public:
  Tensor forward(const Tensor& x) override;
};

// Normalizes the last axis of x, which has `width` elements, to mean 0 and variance 1. The result
// is scaled by the weight, which begins as 1, and shifted by the bias, which begins as 0.
class LayerNorm : public Module {
 public:
  explicit LayerNorm(int64_t width, double eps = 1e-5, bool has_bias = true);
  Tensor forward(const Tensor& x) override;

 private:
  double eps_;
  Tensor weight_, bias_;
};

// Divides the last axis of x by its root mean square, and scales it by the weight, which begins as
// 1.
class RmsNorm : public Module {
 public:
  explicit RmsNorm(int64_t width, double eps = 1e-5);
  Tensor forward(const Tensor& x) override;

 private:
  double eps_;
  Tensor weight_;
};

struct AttentionOptions {
  // Heads of keys and values. Each of them serves several heads of queries. 0 stands for
  // one head of keys and values per head of queries.
  int64_t key_head_count = 0;
  Causal causal = Causal::kNone;  // Otherwise no position sees a later one.
  bool has_bias = true;
};

// Attention of each position of x (batch, length, width) to the others. The projections "query",
// "key" and "value" lead into head_count heads, scaled dot products follow, and the projection
// "out" leads back to `width`.
class MultiHeadAttention : public Module {
 public:
  MultiHeadAttention(int64_t width, int64_t head_count, const AttentionOptions& options = {});
  Tensor forward(const Tensor& x) override;

 private:
  int64_t head_count_, key_head_count_, head_width_;
  Causal causal_;
  std::shared_ptr<Linear> query_, key_, value_, out_;
};

struct TransformerBlockOptions {
  AttentionOptions attention;
  int64_t hidden_width = 0;  // The width between `up` and `down`. 0 stands for 4 * width.
  Activation activation = Activation::kGelu;
  double dropout = 0;  // Applied to what attention, and the layers behind it, add to x.
};

// Computes x += attention(norm(x)), then x += down(activation(up(norm(x)))), for x of shape (batch,
// length, width).
class TransformerBlock : public Module {
 public:
  TransformerBlock(int64_t width, int64_t head_count, const TransformerBlockOptions& options = {});
  Tensor forward(const Tensor& x) override;

 private:
  std::shared_ptr<LayerNorm> attention_norm_, hidden_norm_;
  std::shared_ptr<MultiHeadAttention> attention_;
  std::shared_ptr<Linear> up_, down_;
  std::shared_ptr<Dropout> dropout_;
};

// Takes the largest element of each window of kernel_size^2. The windows lie side by side.
class MaxPool2d : public Module {
 public:
  explicit MaxPool2d(int64_t kernel_size) : kernel_size_(kernel_size) {}
  Tensor forward(const Tensor& x) override;

 private:
  int64_t kernel_size_;
};

// Reshapes (n, ...) to (n, product of the other extents).
class Flatten : public Module {
 public:
  Tensor forward(const Tensor& x) override { return x.flatten(1); }
};

// Runs the layers one after the other; they are named "0", "1", ...
class Sequential : public Module {
 public:
  explicit Sequential(std::vector<std::shared_ptr<Module>> layers);
  Tensor forward(const Tensor& x) override;

 private:
  std::vector<std::shared_ptr<Module>> layers_;
};

}  // namespace bp::nn
