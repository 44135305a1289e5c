// The cases as a user of the runtime writes them. They run on the cpu backend through the registry.
#include "runtime/bench/peers/backplane/suite.hpp"

namespace bp::bench {
namespace {

constexpr double kNotCompared = std::numeric_limits<double>::quiet_NaN();

// The state of a gradient through the graph. The graph stays, so that it can run again.
struct Gradient {
  explicit Gradient(Recorded made) : recorded(std::move(made)) {
    const Tensor& y = recorded.y;
    grad_y = y.ndim() == 0 ? full({}, 1.0, y.dtype()) : input(y.shape().to_vector(), 7, y.dtype());
  }
  void run() {
    result = grad({&recorded.y, 1}, recorded.leaves, {&grad_y, 1}, {.retain_graph = true})[0];
    result.device().synchronize();
  }

  Recorded recorded;
  Tensor grad_y, result;
};

Gradient recorded_by(const std::function<Recorded()>& setup) {
  const GradModeGuard guard(true);
  return Gradient(setup());
}

}  // namespace

void Suite::add(std::string name, double bytes, double flops, std::function<Op()> setup) {
  cases_.push_back({std::move(name), bytes, flops, [setup = std::move(setup)] {
                      auto result = std::make_shared<Tensor>();
                      return Ready{[result, op = setup()] {
                                     const NoGradGuard no_grad;
                                     *result = op();
                                     result->device().synchronize();
                                   },
                                   [result] { return mean_abs(*result); }};
                    }});
}

void Suite::add_backward(std::string name, double bytes, double flops,
                         std::function<Recorded()> setup) {
  cases_.push_back({std::move(name), bytes, flops, [setup = std::move(setup)] {
                      auto gradient = std::make_shared<Gradient>(recorded_by(setup));
                      return Ready{[gradient] { gradient->run(); },
                                   [gradient] { return mean_abs(gradient->result); }};
                    }});
}

void Suite::add_update(std::string name, double bytes, double flops,
                       std::function<std::function<void()>()> setup) {
  cases_.push_back({std::move(name), bytes, flops, [setup = std::move(setup)] {
                      return Ready{setup(), [] { return kNotCompared; }};
                    }});
}

std::vector<Case> backplane_cases() {
  static const DeviceGuard guard(Device("cpu"));
  Suite suite;
  add_elementwise(suite);
  add_movement(suite);
  add_reductions(suite);
  add_norms(suite);
  add_losses(suite);
  add_products(suite);
  add_convolutions(suite);
  add_pooling(suite);
  add_attention(suite);
  add_layers(suite);
  add_training(suite);
  std::vector<Case> cases = suite.take();
  add_prepared_cases(cases);
  add_quantized_cases(cases);
  return cases;
}

}  // namespace bp::bench
