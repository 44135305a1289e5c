#include "runtime/bench/peers/backplane/suite.hpp"

namespace bp::bench {
namespace {

using Loss = Tensor (*)(const Tensor& x, const Tensor& target);

// Adds a mean over kMany elements and its gradient. The runtime composes the gradients of losses
// from other ops.
void add_loss(Suite& s, const std::string& name, double flops, Loss loss, Tensor (*make_x)(),
              Tensor (*make_target)()) {
  const std::string text = " f32 " + text_of(kSquare);
  s.add(name + text, 8.0 * kMany, flops * kMany,
        [=] { return [x = make_x(), t = make_target(), loss] { return loss(x, t); }; });
  s.add_backward(name + " backward" + text, 12.0 * kMany, flops * kMany, [=] {
    const Tensor x = make_x().detach();
    x.set_requires_grad();
    return Recorded{{x}, loss(x, make_target())};
  });
}

void add_dense_losses(Suite& s) {
  constexpr auto kX = [] { return input(kSquare); };
  constexpr auto kTarget = [] { return input(kSquare, 1); };
  add_loss(
      s, "mse_loss", 3, [](const Tensor& x, const Tensor& t) { return mse_loss(x, t); }, kX,
      kTarget);
  add_loss(
      s, "smooth_l1_loss", 5, [](const Tensor& x, const Tensor& t) { return smooth_l1_loss(x, t); },
      kX, kTarget);
  add_loss(
      s, "bce_with_logits_loss", 6,
      [](const Tensor& x, const Tensor& t) { return bce_with_logits_loss(x, t); }, kX,
      [] { return sigmoid(input(kSquare, 1)); });
  add_loss(
      s, "kl_div_loss", 4, [](const Tensor& x, const Tensor& t) { return kl_div_loss(x, t); },
      [] { return log_softmax(input(kSquare), 1); }, [] { return softmax(input(kSquare, 1), 1); });
}

void add_more_classes(Suite& s) {
  const Shape wide = {4096, 1000}, words = {512, 32000};
  s.add("nll_loss f32 4096x1000", 12.0 * 4096, 4096, [=] {
    return [x = log_softmax(input(wide), 1), t = indices({4096}, 1000)] { return nll_loss(x, t); };
  });
  s.add_backward("nll_loss backward f32 4096x1000", 4 * size_of(wide), 4096, [=] {
    const Tensor x = log_softmax(input(wide), 1).detach();
    x.set_requires_grad();
    return Recorded{{x}, nll_loss(x, indices({4096}, 1000))};
  });
  s.add("cross_entropy bf16 4096x1000", 2 * size_of(wide), 5 * size_of(wide), [=] {
    return [x = input(wide, 0, BP_BF16), t = indices({4096}, 1000)] { return cross_entropy(x, t); };
  });
  s.add_backward("cross_entropy backward bf16 4096x1000", 4 * size_of(wide), 5 * size_of(wide),
                 [=] {
                   const Tensor x = leaf(wide, 0, BP_BF16);
                   return Recorded{{x}, cross_entropy(x, indices({4096}, 1000))};
                 });
  s.add("cross_entropy f32 512x32000, smoothing 0.1", 4 * size_of(words), 6 * size_of(words), [=] {
    return [x = input(words), t = indices({512}, 32000)] { return cross_entropy(x, t, -100, 0.1); };
  });
}

}  // namespace

void add_losses(Suite& s) {
  s.add("cross_entropy f32 4096x1000", 4.0 * 4096 * 1000, 5.0 * 4096 * 1000, [] {
    return [x = input({4096, 1000}), t = indices({4096}, 1000)] { return cross_entropy(x, t); };
  });
  s.add("cross_entropy backward f32 4096x1000", 8.0 * 4096 * 1000, 5.0 * 4096 * 1000, [] {
    const Tensor x = input({4096, 1000}), t = indices({4096}, 1000);
    Tensor lse;
    cross_entropy(x, t, -100, 0, Reduction::kMean, &lse);
    return [=, g = fill({}, BP_F32, "cpu", 1.0)] { return cross_entropy_backward(g, x, t, lse); };
  });
  add_dense_losses(s);
  add_more_classes(s);
}

}  // namespace bp::bench
