// Steps of training, of the domain ai.onnx.preview.training. The inputs are the rate, the number of
// the step, and then one list behind the other: parameters, gradients and states.
#include <cmath>

#include "runtime/io/onnx/composed.hpp"
#include "runtime/io/onnx/op_table.hpp"

namespace bp::onnx {
namespace {

// The lists of one call, each with one tensor for each parameter.
class Lists {
 public:
  Lists(const Call& call, size_t lists) : call_(call) {
    const size_t given = call.input_count();
    if (given < 2 + lists || (given - 2) % lists != 0) {
      call.refuse("there are " + std::to_string(given) + " inputs; allowed: 2, and " +
                  std::to_string(lists) + " for each parameter");
    }
    count_ = (given - 2) / lists;
  }
  size_t count() const { return count_; }
  double rate() const { return call_.number(0); }
  int64_t step() const { return call_.integer(1); }
  Tensor at(size_t list, size_t i) const { return call_.input(2 + list * count_ + i); }

  // Returns the gradient with the part of weight decay.
  Tensor gradient(size_t i) const {
    const double norm = call_.number("norm_coefficient", 0);
    return norm == 0 ? at(1, i) : at(1, i) + at(0, i) * norm;
  }

 private:
  const Call& call_;
  size_t count_;
};

// Puts lists of results behind each other.
Values joined(std::initializer_list<Values> lists) {
  Values all;
  for (const Values& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

Values adagrad(const Call& call) {
  const Lists lists(call, 3);
  const double decay = call.number("decay_factor", 0);
  const double rate = lists.rate() / (1 + static_cast<double>(lists.step()) * decay);
  Values parameters, sums;
  for (size_t i = 0; i < lists.count(); ++i) {
    const Tensor g = lists.gradient(i);
    const Tensor total = lists.at(2, i) + square(g);
    parameters.emplace_back(lists.at(0, i) -
                            g * rate / (sqrt(total) + call.number("epsilon", 1e-6)));
    sums.emplace_back(total);
  }
  return joined({parameters, sums});
}

Values adam(const Call& call) {
  const Lists lists(call, 4);
  const double alpha = call.number("alpha", 0.9), beta = call.number("beta", 0.999);
  const auto step = static_cast<double>(lists.step());
  const double rate = lists.step() > 0 ? lists.rate() * std::sqrt(1 - std::pow(beta, step)) /
                                             (1 - std::pow(alpha, step))
                                       : lists.rate();
  const double shrink = 1 - call.number("norm_coefficient_post", 0);
  Values parameters, means, squares;
  for (size_t i = 0; i < lists.count(); ++i) {
    const Tensor g = lists.gradient(i);
    const Tensor mean = lists.at(2, i) * alpha + g * (1 - alpha);
    const Tensor variance = lists.at(3, i) * beta + square(g) * (1 - beta);
    const Tensor change = mean * rate / (sqrt(variance) + call.number("epsilon", 1e-6));
    parameters.emplace_back((lists.at(0, i) - change) * shrink);
    means.emplace_back(mean);
    squares.emplace_back(variance);
  }
  return joined({parameters, means, squares});
}

Values momentum(const Call& call) {
  const Lists lists(call, 3);
  const double alpha = call.number("alpha", 0);
  const double beta = lists.step() > 0 ? call.number("beta", 0) : 1;
  const std::string mode = call.text("mode", "standard");
  if (mode != "standard" && mode != "nesterov") call.refuse("attribute 'mode' is '" + mode + "'");
  Values parameters, states;
  for (size_t i = 0; i < lists.count(); ++i) {
    const Tensor g = lists.gradient(i);
    const Tensor state = lists.at(2, i) * alpha + g * beta;
    const Tensor change = mode == "standard" ? state : g + state * alpha;
    parameters.emplace_back(lists.at(0, i) - change * lists.rate());
    states.emplace_back(state);
  }
  return joined({parameters, states});
}

constexpr const char* kDomain = "ai.onnx.preview.training";

constexpr OpRow kRows[] = {
    {"Adagrad", 1, adagrad, "decay_factor epsilon norm_coefficient", OnnxRoute::kComposed, kDomain},
    {"Adam", 1, adam, "alpha beta epsilon norm_coefficient norm_coefficient_post",
     OnnxRoute::kComposed, kDomain},
    {"Momentum", 1, momentum, "alpha beta mode norm_coefficient", OnnxRoute::kComposed, kDomain},
};

}  // namespace

std::span<const OpRow> optimizer_ops() { return kRows; }

}  // namespace bp::onnx
