#include "runtime/bench/device/device_cases.hpp"

#include <cmath>

namespace bp::bench {
namespace {

struct Dtype {
  const char* name;
  bp_dtype dtype;
  double size_bytes;
};
constexpr Dtype kF32 = {"f32", BP_F32, 4}, kBf16 = {"bf16", BP_BF16, 2}, kF16 = {"f16", BP_F16, 2};

void add_memory_bound(std::vector<DeviceCase>& cases) {
  constexpr int64_t kBig = 1 << 26, kRows = 16384, kCols = 4096;
  cases.push_back({"copy f32 67108864", 8.0 * kBig, 0,
                   [] { return [x = input({kBig})] { return x.clone(); }; }});
  for (const Dtype& t : {kF32, kBf16}) {
    const std::string name = t.name;
    cases.push_back({"add " + name + " 67108864", 3 * t.size_bytes * kBig, kBig, [t] {
                       return [a = input({kBig}, 0, t.dtype), b = input({kBig}, 1, t.dtype)] {
                         return add(a, b);
                       };
                     }});
    const double both = 2 * t.size_bytes * kRows * kCols;
    cases.push_back({"softmax " + name + " 16384x4096", both, 5.0 * kRows * kCols, [t] {
                       return [x = input({kRows, kCols}, 0, t.dtype)] { return softmax(x, 1); };
                     }});
    cases.push_back({"layer_norm " + name + " 16384x4096", both, 8.0 * kRows * kCols, [t] {
                       return
                           [x = input({kRows, kCols}, 0, t.dtype),
                            gamma = input({kCols}, 1, t.dtype), beta = input({kCols}, 2, t.dtype)] {
                             return layer_norm(x, gamma, beta, 1, 1e-5);
                           };
                     }});
  }
}

void add_product(std::vector<DeviceCase>& cases, const std::string& name, const Dtype& t,
                 int64_t n) {
  const double size = static_cast<double>(n);
  cases.push_back({"matmul " + name + " " + std::to_string(n) + "^3",
                   3 * t.size_bytes * size * size, 2 * size * size * size, [t, n] {
                     return [a = input({n, n}, 0, t.dtype), b = input({n, n}, 1, t.dtype)] {
                       return matmul(a, b);
                     };
                   }});
}

void add_compute_bound(std::vector<DeviceCase>& cases) {
  add_product(cases, "f32", kF32, 4096);
  add_product(cases, "tf32", kF32, 4096);
  add_product(cases, "bf16", kBf16, 8192);
  add_product(cases, "f16", kF16, 8192);
  for (const Dtype& t : {kF32, kBf16}) {
    const double elements = 2.0 * 32 * 64 * 56 * 56 + 64.0 * 64 * 9;
    cases.push_back({std::string("convolution ") + t.name + " 32x64x56x56, 64 of 3x3",
                     t.size_bytes * elements, 2.0 * 32 * 64 * 56 * 56 * 64 * 9, [t] {
                       return [x = input({32, 64, 56, 56}, 0, t.dtype),
                               w = input({64, 64, 3, 3}, 1, t.dtype)] {
                         return convolution(x, w, {}, {1}, {1}, {1}, 1);
                       };
                     }});
  }
}

// Rows of the lengths of models. Both gradients of a norm's weights are sums over all rows.
void add_norms_and_losses(std::vector<DeviceCase>& cases) {
  constexpr int64_t kRows = 8192, kCols = 4096, kClasses = 32000;
  constexpr double kElements = 1.0 * kRows * kCols, kLogits = 1.0 * kRows * kClasses;
  cases.push_back({"rms_norm bf16 8192x4096", 4 * kElements, 5 * kElements, [] {
                     return [x = input({kRows, kCols}, 0, BP_BF16),
                             g = input({kCols}, 1, BP_BF16)] { return rms_norm(x, g); };
                   }});
  cases.push_back({"layer_norm backward f32 8192x4096", 12 * kElements, 14 * kElements, [] {
                     const Tensor x = input({kRows, kCols}), gamma = input({kCols}, 1);
                     Tensor mean, rstd;
                     layer_norm(x, gamma, {}, 1, 1e-5, &mean, &rstd);
                     return [=, g = input({kRows, kCols}, 3)] {
                       Tensor grad_gamma, grad_beta;
                       return layer_norm_backward(g, x, mean, rstd, gamma, 1, 1e-5, &grad_gamma,
                                                  &grad_beta);
                     };
                   }});
  cases.push_back({"softmax f32 8x1048576", 8.0 * 8 * 1048576, 5.0 * 8 * 1048576, [] {
                     return [x = input({8, 1048576})] { return softmax(x, 1); };
                   }});
  cases.push_back({"cross_entropy bf16 8192x32000", 2 * kLogits, 5 * kLogits, [] {
                     return [x = input({kRows, kClasses}, 0, BP_BF16),
                             t = indices({kRows}, kClasses)] { return cross_entropy(x, t); };
                   }});
}

void add_reductions_and_order(std::vector<DeviceCase>& cases) {
  constexpr int64_t kBig = 1 << 26, kRows = 16384, kCols = 4096;
  cases.push_back({"sum f32 67108864", 4.0 * kBig, kBig,
                   [] { return [x = input({kBig})] { return sum(x); }; }});
  cases.push_back({"sum f32 16384x4096, axis 0", 4.0 * kBig, kBig, [] {
                     return [x = input({kRows, kCols})] { return sum(x, {0}); };
                   }});
  cases.push_back({"transpose f32 16384x4096", 8.0 * kBig, 0, [] {
                     return [x = input({kRows, kCols})] { return x.transpose().contiguous(); };
                   }});
  cases.push_back({"sort f32 16777216", 16.0 * (1 << 24), 0, [] {
                     return [x = input({1 << 24})] {
                       Tensor places;
                       return sort(x, 0, false, &places);
                     };
                   }});
  cases.push_back({"topk f32 64x32000, 50", 4.0 * 64 * 32000, 0, [] {
                     return [x = input({64, 32000})] {
                       Tensor places;
                       return topk(x, 50, 1, true, &places);
                     };
                   }});
}

// Half of the tokens are the padding, so one row of the table collects half of all gradients.
Tensor padded_tokens(int64_t tokens, int64_t vocabulary) {
  std::vector<int64_t> values(static_cast<size_t>(tokens));
  for (int64_t i = 1; i < tokens; i += 2) {
    values[static_cast<size_t>(i)] = index_value(i, 0, vocabulary);
  }
  return from_host(values, {tokens});
}

void add_indices_and_updates(std::vector<DeviceCase>& cases) {
  constexpr int64_t kTokens = 32768, kWidth = 1024, kVocabulary = 32000, kBig = 1 << 25;
  cases.push_back({"embedding backward f32 32768x1024, half padding",
                   4.0 * kWidth * (kTokens + kVocabulary), 1.0 * kTokens * kWidth, [] {
                     return
                         [g = input({kTokens, kWidth}), t = padded_tokens(kTokens, kVocabulary)] {
                           return embedding_backward(g, t, kVocabulary);
                         };
                   }});
  cases.push_back({"dropout bf16 33554432", 4.0 * kBig, kBig, [] {
                     return [x = input({kBig}, 0, BP_BF16)] { return dropout(x, 1, 0, 0.5); };
                   }});
  cases.push_back({"adamw f32 8 of 4194304", 28.0 * kBig, 14.0 * kBig, [] {
                     std::vector<Tensor> p, g, m, v;
                     for (int64_t i = 0; i < 8; ++i) {
                       p.push_back(input({kBig / 8}, i));
                       g.push_back(input({kBig / 8}, i + 8));
                       m.push_back(zeros({kBig / 8}, BP_F32));
                       v.push_back(zeros({kBig / 8}, BP_F32));
                     }
                     return [=, step = int64_t{0}]() mutable {
                       adamw_step(p, g, m, v, 1e-3, ++step);
                       return p[0];
                     };
                   }});
}

// The products of a model: one token of a decoder, whose limit is reading the weight, and a layer
// with its activation.
void add_linear(std::vector<DeviceCase>& cases) {
  constexpr int64_t kWidth = 4096, kTokens = 8192;
  const auto product = [&cases](const std::string& name, int64_t rows, Activation activation) {
    const double count = static_cast<double>(rows);
    const double bytes = 2.0 * (1.0 * kWidth * kWidth + 2.0 * count * kWidth);
    cases.push_back({name, bytes, 2.0 * count * kWidth * kWidth, [rows, activation] {
                       return [=, x = input({rows, kWidth}, 0, BP_BF16),
                               w = input({kWidth, kWidth}, 1, BP_BF16),
                               b = input({kWidth}, 2, BP_BF16)] {
                         return linear(x, w, b, activation);
                       };
                     }});
  };
  product("linear bf16 1x4096x4096", 1, Activation::kNone);
  product("linear bf16 16x4096x4096", 16, Activation::kNone);
  product("linear gelu bf16 8192x4096x4096", kTokens, Activation::kGelu);
}

void add_elementwise(std::vector<DeviceCase>& cases) {
  constexpr int64_t kBig = 1 << 25, kTokens = 32768, kWidth = 1024, kVocabulary = 32000;
  cases.push_back({"gelu bf16 33554432", 4.0 * kBig, 8.0 * kBig,
                   [] { return [x = input({kBig}, 0, BP_BF16)] { return gelu(x); }; }});
  cases.push_back({"embedding bf16 32768x1024", 4.0 * kTokens * kWidth, 0, [] {
                     return [w = input({kVocabulary, kWidth}, 0, BP_BF16),
                             i = indices({kTokens}, kVocabulary)] { return embedding(w, i); };
                   }});
}

void add_attention(std::vector<DeviceCase>& cases) {
  constexpr int64_t kHeads = 32, kLength = 4096, kWidth = 128;
  const std::vector<int64_t> shape = {1, kHeads, kLength, kWidth};
  constexpr double kElements = 1.0 * kHeads * kLength * kWidth;
  constexpr double kFlops = 2.0 * kElements * kLength;  // Half of the scores are computed.
  const double scale = 1 / std::sqrt(1.0 * kWidth);
  for (const char* name :
       {"attention bf16 32x4096x128, causal", "attention cudnn bf16 32x4096x128, causal"}) {
    cases.push_back({name, 8 * kElements, kFlops, [=] {
                       return [=, q = input(shape, 0, BP_BF16), k = input(shape, 1, BP_BF16),
                               v = input(shape, 2, BP_BF16)] {
                         return sdpa(q, k, v, scale, {}, {}, Causal::kTopLeft);
                       };
                     }});
  }
  cases.push_back(
      {"attention backward bf16 32x4096x128, causal", 16 * kElements, 2.5 * kFlops, [=] {
         const Tensor q = input(shape, 0, BP_BF16), k = input(shape, 1, BP_BF16),
                      v = input(shape, 2, BP_BF16);
         Tensor lse;
         const Tensor y = sdpa(q, k, v, scale, {}, {}, Causal::kTopLeft, &lse);
         return [=, g = input(shape, 3, BP_BF16)] {
           Tensor grad_k, grad_v;
           return sdpa_backward(g, q, k, v, y, lse, scale, {}, {}, Causal::kTopLeft, &grad_k,
                                &grad_v);
         };
       }});
}

}  // namespace

std::vector<DeviceCase> device_cases() {
  std::vector<DeviceCase> cases;
  add_memory_bound(cases);
  add_compute_bound(cases);
  add_linear(cases);
  add_attention(cases);
  add_elementwise(cases);
  add_norms_and_losses(cases);
  add_reductions_and_order(cases);
  add_indices_and_updates(cases);
  cases.push_back({"eager add f32 64", 12.0 * 64, 64,
                   [] { return [a = input({64}, 0), b = input({64}, 1)] { return add(a, b); }; }});
  return cases;
}

}  // namespace bp::bench
