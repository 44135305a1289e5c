#include "runtime/autograd/gradient_cases.hpp"

#include <set>

#include "backplane/runtime/autograd.hpp"
#include "backplane/runtime/ops.hpp"
#include "runtime/autograd/record.hpp"

namespace bp {
namespace {

using Inputs = std::span<const Tensor>;

}  // namespace

Tensor gradient_sample(IntList shape, size_t salt) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  std::vector<double> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    const double turn = 0.7548776662466927 * static_cast<double>(i + 1) +
                        0.5698402909980532 * static_cast<double>(salt + 1);
    values[i] = 0.3 + 1.4 * (turn - static_cast<double>(static_cast<int64_t>(turn)));
  }
  return from_host<double>(values, shape);
}

Tensor gradient_mix(const std::vector<Tensor>& tensors) {
  Tensor total = zeros({}, BP_F64);
  for (size_t i = 0; i < tensors.size(); ++i) {
    total = total + sum(tensors[i] * gradient_sample(tensors[i].shape(), i + 20));
  }
  return total;
}

std::string GradientCase::op() const {
  const std::string full = name;
  return full.substr(0, full.find(", "));
}

std::vector<Tensor> GradientCase::leaves() const {
  std::vector<Tensor> inputs;
  for (const std::vector<int64_t>& shape : shapes) {
    inputs.push_back(gradient_sample(shape, inputs.size()).set_requires_grad());
  }
  return inputs;
}

const std::vector<GradientCase>& gradient_cases() {
  static const std::vector<GradientCase> all = [] {
    std::vector<GradientCase> cases;
    for (const auto family :
         {elementwise_gradient_cases, function_gradient_cases, movement_gradient_cases,
          indexing_gradient_cases, matrix_gradient_cases, window_gradient_cases,
          normalization_gradient_cases, channel_norm_gradient_cases, loss_gradient_cases,
          attention_gradient_cases, moe_gradient_cases, recurrent_gradient_cases,
          spectral_gradient_cases}) {
      for (GradientCase& item : family()) cases.push_back(std::move(item));
    }
    return cases;
  }();
  return all;
}

std::vector<std::string> ops_without_gradient_case() {
  std::set<std::string> covered;
  for (const GradientCase& item : gradient_cases()) covered.insert(item.op());
  std::vector<std::string> missing;
  for (const char* op : detail::kOpsWithGradient) {
    if (!covered.contains(op)) missing.emplace_back(op);
  }
  return missing;
}

// ---- Elementwise -------------------------------------------------------------------------------

std::vector<GradientCase> elementwise_gradient_cases() {
  constexpr auto kTanh = GeluApproximation::kTanh;
  return {
      {"neg", {{3}}, [](Inputs x) { return neg(x[0]); }},
      {"exp", {{2, 3}}, [](Inputs x) { return exp(x[0]); }},
      {"log", {{4}}, [](Inputs x) { return log(x[0]); }},
      {"sqrt", {{4}}, [](Inputs x) { return sqrt(x[0]); }},
      {"abs", {{6}}, [](Inputs x) { return abs(x[0] - 1); }},
      {"tanh", {{4}}, [](Inputs x) { return tanh(x[0]); }},
      {"tanh_backward", {{4}, {4}}, [](Inputs x) { return tanh_backward(x[0], x[1]); }},
      {"sigmoid", {{4}}, [](Inputs x) { return sigmoid(x[0] - 1); }},
      {"sigmoid_backward", {{4}, {4}}, [](Inputs x) { return sigmoid_backward(x[0], x[1]); }},
      {"relu", {{6}}, [](Inputs x) { return relu(x[0] - 1); }},
      {"relu_backward",
       {{6}},
       [](Inputs x) { return relu_backward(x[0], gradient_sample({6}, 9) - 1); }},
      {"gelu", {{6}}, [](Inputs x) { return gelu(x[0] - 1); }},
      {"gelu, tanh", {{6}}, [](Inputs x) { return gelu(x[0] - 1, kTanh); }},
      {"gelu_backward", {{6}, {6}}, [](Inputs x) { return gelu_backward(x[0], x[1] - 1); }},
      {"gelu_backward, tanh",
       {{6}, {6}},
       [](Inputs x) { return gelu_backward(x[0], x[1] - 1, kTanh); }},
      {"silu", {{6}}, [](Inputs x) { return silu(x[0] - 1); }},
      {"silu_backward", {{6}, {6}}, [](Inputs x) { return silu_backward(x[0], x[1] - 1); }},
      {"mish", {{6}}, [](Inputs x) { return mish(x[0] - 1); }},
      {"mish_backward", {{6}, {6}}, [](Inputs x) { return mish_backward(x[0], x[1] - 1); }},
      {"erfinv", {{6}}, [](Inputs x) { return erfinv(x[0] * 0.5 - 0.4); }},
      {"add", {{2, 3}, {3}}, [](Inputs x) { return add(x[0], x[1]); }},
      {"sub", {{2, 1}, {3}}, [](Inputs x) { return sub(x[0], x[1]); }},
      {"sub, from a number", {{3}}, [](Inputs x) { return sub(2, x[0]); }},
      {"mul", {{2, 3}, {2, 1}}, [](Inputs x) { return mul(x[0], x[1]); }},
      {"mul, by itself", {{3}}, [](Inputs x) { return mul(x[0], x[0]); }},
      {"div", {{2, 3}, {1, 3}}, [](Inputs x) { return div(x[0], x[1]); }},
      {"div, of a number", {{3}}, [](Inputs x) { return div(2, x[0]); }},
      {"maximum", {{2, 3}, {3}}, [](Inputs x) { return maximum(x[0], x[1]); }},
      {"maximum, with a number", {{6}}, [](Inputs x) { return maximum(x[0], 1); }},
      {"minimum", {{2, 3}, {3}}, [](Inputs x) { return minimum(x[0], x[1]); }},
      {"minimum, with a number", {{6}}, [](Inputs x) { return minimum(x[0], 1); }},
      {"where",
       {{2, 3}, {3}},
       [](Inputs x) {
         return where(lt(gradient_sample({2, 1}, 3), 1), x[0], x[1]);
       }},
      {"where, with a number",
       {{3}},
       [](Inputs x) {
         return where(lt(gradient_sample({2, 3}, 3), 1), x[0], 0);
       }},
      {"lerp", {{2, 3}, {3}, {2, 1}}, [](Inputs x) { return lerp(x[0], x[1], x[2] - 0.5); }},
      {"addcmul", {{2, 3}, {3}, {2, 1}}, [](Inputs x) { return addcmul(x[0], x[1], x[2]); }},
      {"addcmul, by a number", {{3}, {3}}, [](Inputs x) { return addcmul(x[0], x[1], 0.7); }},
      {"addcdiv", {{2, 3}, {3}, {2, 1}}, [](Inputs x) { return addcdiv(x[0], x[1], x[2]); }},
      {"addcdiv, by a number", {{3}, {3}}, [](Inputs x) { return addcdiv(x[0], x[1], 0.7); }},
      {"lerp, by a number", {{3}, {3}}, [](Inputs x) { return lerp(x[0], x[1], 0.7); }},
      {"dropout", {{10}}, [](Inputs x) { return dropout(x[0], 11, 0, 0.4); }},
      {"dropout_backward", {{10}}, [](Inputs x) { return dropout_backward(x[0], 11, 0, 0.4); }},
  };
}

}  // namespace bp
