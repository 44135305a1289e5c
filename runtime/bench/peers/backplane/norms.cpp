#include "runtime/bench/peers/backplane/suite.hpp"

namespace bp::bench {
namespace {

void add_more_softmax(Suite& s) {
  const Shape scores = {4, 12, 512, 512}, words = {32, 128256}, narrow = {100000, 10};
  s.add("softmax f16 4x12x512x512", 4 * size_of(scores), 5 * size_of(scores),
        [=] { return [x = input(scores, 0, BP_F16)] { return softmax(x, 3); }; });
  s.add("softmax bf16 32x128256", 4 * size_of(words), 5 * size_of(words),
        [=] { return [x = input(words, 0, BP_BF16)] { return softmax(x, 1); }; });
  s.add("softmax f32 100000x10", 8 * size_of(narrow), 5 * size_of(narrow),
        [=] { return [x = input(narrow)] { return softmax(x, 1); }; });
  s.add("softmax backward bf16 4096x1024", 6.0 * kMany, 4.0 * kMany, [] {
    return [g = input(kSquare, 1, BP_BF16), y = softmax(input(kSquare, 0, BP_BF16), 1)] {
      return softmax_backward(g, y, 1);
    };
  });
  s.add("log_softmax backward f32 4096x1024", 12.0 * kMany, 5.0 * kMany, [] {
    return [g = input(kSquare, 1), y = log_softmax(input(kSquare), 1)] {
      return log_softmax_backward(g, y, 1);
    };
  });
}

void add_row_norms(Suite& s) {
  s.add("layer_norm f32 1x4096", 16.0 * 4096, 8.0 * 4096, [] {
    return [x = input({1, 4096}), g = input({4096}, 1), b = input({4096}, 2)] {
      return layer_norm(x, g, b);
    };
  });
  s.add("rms_norm bf16 4096x1024", 4.0 * kMany, 5.0 * kMany, [] {
    return
        [x = input(kSquare, 0, BP_BF16), g = input({1024}, 1, BP_BF16)] { return rms_norm(x, g); };
  });
  s.add("rms_norm bf16 1x4096", 6.0 * 4096, 5.0 * 4096, [] {
    return [x = input({1, 4096}, 0, BP_BF16), g = input({4096}, 1, BP_BF16)] {
      return rms_norm(x, g);
    };
  });
  s.add_backward("layer_norm backward bf16 4096x1024", 6.0 * kMany, 14.0 * kMany, [] {
    const Tensor x = leaf(kSquare, 0, BP_BF16), gamma = leaf({1024}, 1, BP_BF16),
                 beta = leaf({1024}, 2, BP_BF16);
    return Recorded{{x, gamma, beta}, layer_norm(x, gamma, beta)};
  });
  s.add_backward("rms_norm backward f32 4096x1024", 12.0 * kMany, 11.0 * kMany, [] {
    const Tensor x = leaf(kSquare), gamma = leaf({1024}, 1);
    return Recorded{{x, gamma}, rms_norm(x, gamma)};
  });
}

// The norms of images.
void add_channel_norms(Suite& s) {
  const Shape image = {8, 64, 56, 56};
  const double n = size_of(image);
  using Norm = Tensor (*)(const Tensor& x, const Tensor& gamma, const Tensor& beta);
  const std::pair<const char*, Norm> rows[] = {
      {"group_norm",
       [](const Tensor& x, const Tensor& g, const Tensor& b) { return group_norm(x, 32, g, b); }},
      {"batch_norm_training", [](const Tensor& x, const Tensor& g,
                                 const Tensor& b) { return batch_norm_training(x, g, b); }},
      {"instance_norm",
       [](const Tensor& x, const Tensor& g, const Tensor& b) { return instance_norm(x, g, b); }},
  };
  for (const auto& [name, run] : rows) {
    const std::string text =
        " f32 " + text_of(image) + (run == rows[0].second ? ", 32 groups" : "");
    s.add(name + text, 8 * n, 8 * n, [image, op = run] {
      return [x = input(image), g = input({64}, 1), b = input({64}, 2), op] { return op(x, g, b); };
    });
    s.add_backward(std::string(name) + " backward" + text, 12 * n, 14 * n, [image, op = run] {
      const Tensor x = leaf(image), gamma = leaf({64}, 1), beta = leaf({64}, 2);
      return Recorded{{x, gamma, beta}, op(x, gamma, beta)};
    });
  }
  s.add("group_norm bf16 8x320x32x32, 32 groups", 4.0 * 8 * 320 * 1024, 8.0 * 8 * 320 * 1024, [] {
    return [x = input({8, 320, 32, 32}, 0, BP_BF16), g = input({320}, 1, BP_BF16),
            b = input({320}, 2, BP_BF16)] { return group_norm(x, 32, g, b); };
  });
  s.add("batch_norm_inference f32 8x64x56x56", 8 * n, 2 * n, [=] {
    return
        [x = input(image), mean = input({64}, 1), variance = positive({64}, 2), g = input({64}, 3),
         b = input({64}, 4)] { return batch_norm_inference(x, mean, variance, g, b); };
  });
}

}  // namespace

void add_norms(Suite& s) {
  constexpr double kElements = kMany;
  s.add("softmax f32 4096x1024", 8 * kElements, 5 * kElements,
        [] { return [x = input(kSquare)] { return softmax(x, 1); }; });
  s.add("softmax bf16 4096x1024", 4 * kElements, 5 * kElements,
        [] { return [x = input(kSquare, 0, BP_BF16)] { return softmax(x, 1); }; });
  s.add("softmax f32 1023x999", 8.0 * 1023 * 999, 5.0 * 1023 * 999, [] {
    return [x = input({1023, 999})] { return softmax(x, 1); };
  });
  s.add("softmax f32 4096x1024, axis 0", 8 * kElements, 5 * kElements,
        [] { return [x = input(kSquare)] { return softmax(x, 0); }; });
  s.add("softmax backward f32 4096x1024", 12 * kElements, 4 * kElements, [=] {
    return [g = input(kSquare, 1), y = softmax(input(kSquare), 1)] {
      return softmax_backward(g, y, 1);
    };
  });
  s.add("log_softmax f32 4096x1024", 8 * kElements, 5 * kElements,
        [] { return [x = input(kSquare)] { return log_softmax(x, 1); }; });
  s.add("layer_norm f32 4096x1024", 8 * kElements, 8 * kElements, [=] {
    return [x = input(kSquare), g = input({1024}, 1), b = input({1024}, 2)] {
      return layer_norm(x, g, b);
    };
  });
  s.add("layer_norm bf16 4096x1024", 4 * kElements, 8 * kElements, [=] {
    return [x = input(kSquare, 0, BP_BF16), g = input({1024}, 1, BP_BF16),
            b = input({1024}, 2, BP_BF16)] { return layer_norm(x, g, b); };
  });
  s.add("layer_norm backward f32 4096x1024", 12 * kElements, 14 * kElements, [=] {
    const Tensor x = input(kSquare), gamma = input({1024}, 1);
    Tensor mean, rstd;
    layer_norm(x, gamma, {}, 1, 1e-5, &mean, &rstd);
    return [=, g = input(kSquare, 3)] {
      Tensor grad_gamma, grad_beta;
      return layer_norm_backward(g, x, mean, rstd, gamma, 1, 1e-5, &grad_gamma, &grad_beta);
    };
  });
  s.add("rms_norm f32 4096x1024", 8 * kElements, 5 * kElements,
        [] { return [x = input(kSquare), g = input({1024}, 1)] { return rms_norm(x, g); }; });
  add_more_softmax(s);
  add_row_norms(s);
  add_channel_norms(s);
}

}  // namespace bp::bench
