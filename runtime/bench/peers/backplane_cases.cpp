// The cases as a user of the runtime writes them. They run on the cpu backend through the registry.
#include <limits>

#include "runtime/bench/peers/inputs.hpp"

namespace bp::bench {
namespace {

using Op = std::function<Tensor()>;

constexpr double kNotCompared = std::numeric_limits<double>::quiet_NaN();

class Suite {
 public:
  // Adds a case. `setup` makes the inputs and returns the op over them.
  void add(std::string name, double bytes, double flops, std::function<Op()> setup) {
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

  // Adds an update in place. Its result depends on how often it ran.
  void add_update(std::string name, double bytes, double flops,
                  std::function<std::function<void()>()> setup) {
    cases_.push_back({std::move(name), bytes, flops, [setup = std::move(setup)] {
                        return Ready{setup(), [] { return kNotCompared; }};
                      }});
  }

  std::vector<Case> take() { return std::move(cases_); }

 private:
  std::vector<Case> cases_;
};

void add_elementwise(Suite& s) {
  constexpr int64_t kBig = 1 << 24, kOdd = 1000003;
  s.add("add f32 16777216", 12.0 * kBig, kBig,
        [] { return [a = input({kBig}, 0), b = input({kBig}, 1)] { return add(a, b); }; });
  s.add("add f32 1000003", 12.0 * kOdd, kOdd,
        [] { return [a = input({kOdd}, 0), b = input({kOdd}, 1)] { return add(a, b); }; });
  s.add("add bf16 4194304", 6.0 * (1 << 22), 1 << 22, [] {
    return
        [a = input({1 << 22}, 0, BP_BF16), b = input({1 << 22}, 1, BP_BF16)] { return add(a, b); };
  });
  s.add("add f32 64", 12.0 * 64, 64,
        [] { return [a = input({64}, 0), b = input({64}, 1)] { return add(a, b); }; });
  s.add("add f32 4096x1024 + 1024", 8.0 * (1 << 22), 1 << 22, [] {
    return [a = input({4096, 1024}), b = input({1024}, 1)] { return add(a, b); };
  });
  s.add("mul f32 4096x1024 * 4096x1", 8.0 * (1 << 22), 1 << 22, [] {
    return [a = input({4096, 1024}), b = input({4096, 1}, 1)] { return mul(a, b); };
  });
  s.add("gelu f32 16777216", 8.0 * kBig, 8.0 * kBig,
        [] { return [x = input({kBig})] { return gelu(x); }; });
  s.add("gelu f16 4194304", 4.0 * (1 << 22), 8.0 * (1 << 22),
        [] { return [x = input({1 << 22}, 0, BP_F16)] { return gelu(x); }; });
  s.add("gelu backward f32 4194304", 12.0 * (1 << 22), 12.0 * (1 << 22), [] {
    return [x = input({1 << 22}), g = input({1 << 22}, 1)] { return gelu_backward(g, x); };
  });
  s.add("silu bf16 4194304", 4.0 * (1 << 22), 5.0 * (1 << 22),
        [] { return [x = input({1 << 22}, 0, BP_BF16)] { return silu(x); }; });
  s.add("exp f32 4194304", 8.0 * (1 << 22), 1 << 22,
        [] { return [x = input({1 << 22})] { return exp(x); }; });
  s.add("tanh f32 4194304", 8.0 * (1 << 22), 1 << 22,
        [] { return [x = input({1 << 22})] { return tanh(x); }; });
  s.add("relu f32 4194304", 8.0 * (1 << 22), 1 << 22,
        [] { return [x = input({1 << 22})] { return relu(x); }; });
}

void add_movement(Suite& s) {
  constexpr double kSquare = 1 << 22;
  s.add("copy f32 transposed 4096x1024", 8 * kSquare, 0, [] {
    return [x = input({4096, 1024}).transpose()] { return x.clone(); };
  });
  s.add("copy bf16 transposed 4096x1024", 4 * kSquare, 0, [] {
    return [x = input({4096, 1024}, 0, BP_BF16).transpose()] { return x.clone(); };
  });
  s.add("copy f32 8x512x12x64 to heads", 8.0 * 8 * 512 * 12 * 64, 0, [] {
    return [x = input({8, 512, 12, 64}).permute({0, 2, 1, 3})] { return x.clone(); };
  });
  s.add("copy f32 every second column", 8.0 * 2048 * 1024, 0, [] {
    return [x = input({2048, 2048}).slice(1, 0, 2048, 2)] { return x.clone(); };
  });
  s.add("cast f32 to bf16 4194304", 6 * kSquare, 0,
        [] { return [x = input({1 << 22})] { return copy(x, BP_BF16); }; });
  s.add("cat f32 8 of 1024x128, axis 1", 8.0 * (1 << 20), 0, [] {
    std::vector<Tensor> xs;
    for (int64_t i = 0; i < 8; ++i) xs.push_back(input({1024, 128}, i));
    return [xs] { return cat(xs, 1); };
  });
  s.add("cat f32 4 of 1000x333, axis 0", 8.0 * 4 * 333000, 0, [] {
    std::vector<Tensor> xs;
    for (int64_t i = 0; i < 4; ++i) xs.push_back(input({1000, 333}, i));
    return [xs] { return cat(xs, 0); };
  });
  s.add("gather f32 4096x1024, axis 1", 16 * kSquare, 0, [] {
    return [x = input({4096, 1024}), i = indices({4096, 1024}, 1024)] { return gather(x, i, 1); };
  });
  s.add("index_select f32 4096x1024, 2048 rows", 8.0 * 2048 * 1024, 0, [] {
    return [x = input({4096, 1024}), i = indices({2048}, 4096)] { return index_select(x, i, 0); };
  });
  s.add("embedding f32 32000x512, 8192", 8.0 * 8192 * 512, 0, [] {
    return [w = input({32000, 512}), i = indices({8192}, 32000)] { return embedding(w, i); };
  });
  s.add("embedding backward f32 8000x512, 8192", 4.0 * (8192 + 8000) * 512, 8192.0 * 512, [] {
    return [g = input({8192, 512}), i = indices({8192}, 8000)] {
      return embedding_backward(g, i, 8000);
    };
  });
  s.add("where f32 4096x1024", 13 * kSquare, 0, [] {
    return [a = input({4096, 1024}), b = input({4096, 1024}, 1),
            c = lt(input({4096, 1024}, 2), 0)] { return where(c, a, b); };
  });
}

void add_reductions(Suite& s) {
  constexpr double kSquare = 1 << 22;
  s.add("sum f32 16777216", 4.0 * (1 << 24), 1 << 24,
        [] { return [x = input({1 << 24})] { return sum(x); }; });
  for (const int64_t axis : {0, 1}) {
    s.add("sum f32 4096x1024, axis " + std::to_string(axis), 4 * kSquare, kSquare, [axis] {
      return [x = input({4096, 1024}), axis] { return sum(x, {axis}); };
    });
  }
  s.add("mean f32 64x128x512, axis 1", 4 * kSquare, kSquare, [] {
    return [x = input({64, 128, 512})] { return mean(x, {1}); };
  });
  s.add("sum f32 4096x1024 transposed, axis 1", 4 * kSquare, kSquare, [] {
    return [x = input({1024, 4096}).transpose()] { return sum(x, {1}); };
  });
  s.add("amax f32 4096x1024, axis 0", 4 * kSquare, kSquare, [] {
    return [x = input({4096, 1024})] { return amax(x, {0}); };
  });
  for (const int64_t axis : {0, 1}) {
    const std::string name = "logsumexp f32 4096x1024, axis " + std::to_string(axis);
    s.add(name, 4 * kSquare, 4 * kSquare, [axis] {
      return [x = input({4096, 1024}), axis] { return logsumexp(x, {axis}); };
    });
  }
  s.add("argmax f32 4096x1024, axis 1", 4 * kSquare, kSquare, [] {
    return [x = input({4096, 1024})] { return argmax(x, 1); };
  });
  s.add("sort f32 1000x1000", 16e6, 16e6, [] {
    return [x = input({1000, 1000})] {
      Tensor places;
      return sort(x, 1, false, &places);
    };
  });
  s.add("sort f32 1000003", 16.0 * 1000003, 16.0 * 1000003, [] {
    return [x = input({1000003})] {
      Tensor places;
      return sort(x, 0, false, &places);
    };
  });
  s.add("topk f32 4096x1024, 10", 4 * kSquare, 8 * kSquare, [] {
    return [x = input({4096, 1024})] {
      Tensor places;
      return topk(x, 10, 1, true, &places);
    };
  });
}

void add_norms(Suite& s) {
  constexpr double kSquare = 1 << 22;
  const Shape square = {4096, 1024};
  s.add("softmax f32 4096x1024", 8 * kSquare, 5 * kSquare,
        [=] { return [x = input(square)] { return softmax(x, 1); }; });
  s.add("softmax bf16 4096x1024", 4 * kSquare, 5 * kSquare,
        [=] { return [x = input(square, 0, BP_BF16)] { return softmax(x, 1); }; });
  s.add("softmax f32 1023x999", 8.0 * 1023 * 999, 5.0 * 1023 * 999, [] {
    return [x = input({1023, 999})] { return softmax(x, 1); };
  });
  s.add("softmax f32 4096x1024, axis 0", 8 * kSquare, 5 * kSquare,
        [=] { return [x = input(square)] { return softmax(x, 0); }; });
  s.add("softmax backward f32 4096x1024", 12 * kSquare, 4 * kSquare, [=] {
    return
        [g = input(square, 1), y = softmax(input(square), 1)] { return softmax_backward(g, y, 1); };
  });
  s.add("log_softmax f32 4096x1024", 8 * kSquare, 5 * kSquare,
        [=] { return [x = input(square)] { return log_softmax(x, 1); }; });
  s.add("layer_norm f32 4096x1024", 8 * kSquare, 8 * kSquare, [=] {
    return [x = input(square), g = input({1024}, 1), b = input({1024}, 2)] {
      return layer_norm(x, g, b);
    };
  });
  s.add("layer_norm bf16 4096x1024", 4 * kSquare, 8 * kSquare, [=] {
    return [x = input(square, 0, BP_BF16), g = input({1024}, 1, BP_BF16),
            b = input({1024}, 2, BP_BF16)] { return layer_norm(x, g, b); };
  });
  s.add("layer_norm backward f32 4096x1024", 12 * kSquare, 14 * kSquare, [=] {
    const Tensor x = input(square), gamma = input({1024}, 1);
    Tensor mean, rstd;
    layer_norm(x, gamma, {}, 1, 1e-5, &mean, &rstd);
    return [=, g = input(square, 3)] {
      Tensor grad_gamma, grad_beta;
      return layer_norm_backward(g, x, mean, rstd, gamma, 1, 1e-5, &grad_gamma, &grad_beta);
    };
  });
  s.add("rms_norm f32 4096x1024", 8 * kSquare, 5 * kSquare,
        [=] { return [x = input(square), g = input({1024}, 1)] { return rms_norm(x, g); }; });
  s.add("cross_entropy f32 4096x1000", 4.0 * 4096 * 1000, 5.0 * 4096 * 1000, [] {
    return [x = input({4096, 1000}), t = indices({4096}, 1000)] { return cross_entropy(x, t); };
  });
  s.add("cross_entropy backward f32 4096x1000", 8.0 * 4096 * 1000, 5.0 * 4096 * 1000, [] {
    const Tensor x = input({4096, 1000}), t = indices({4096}, 1000);
    Tensor lse;
    cross_entropy(x, t, -100, 0, Reduction::kMean, &lse);
    return [=, g = fill({}, BP_F32, "cpu", 1.0)] { return cross_entropy_backward(g, x, t, lse); };
  });
}

void add_product(Suite& s, const std::string& name, const Shape& a, const Shape& b,
                 bp_dtype dtype = BP_F32, bool is_transposed = false) {
  const double width = static_cast<double>(bp_dtype_bits(dtype)) / 8;
  const int64_t n = b.back();
  const int64_t rows = count(a) / a.back();
  const auto y = static_cast<double>(rows * n);
  const double bytes = width * (static_cast<double>(count(a) + count(b)) + y);
  s.add(name, bytes, 2 * y * static_cast<double>(a.back()), [=] {
    const Tensor left = input(a, 0, dtype);
    if (is_transposed) {
      return Op([left, right = input({n, a.back()}, 1, dtype).transpose()] {
        return matmul(left, right);
      });
    }
    return Op([left, right = input(b, 1, dtype)] { return matmul(left, right); });
  });
}

void add_products(Suite& s) {
  add_product(s, "matmul f32 1024^3", {1024, 1024}, {1024, 1024});
  add_product(s, "matmul f32 1024^3, b transposed", {1024, 1024}, {1024, 1024}, BP_F32, true);
  s.add("matmul f32 256x1024x1024, a transposed", 4 * (2 * 256 * 1024 + 1024 * 1024),
        2.0 * 256 * 1024 * 1024, [] {
          return [left = input({1024, 256}).transpose(), right = input({1024, 1024}, 1)] {
            return matmul(left, right);
          };
        });
  add_product(s, "matmul f32 1023x1025x1021", {1023, 1025}, {1025, 1021});
  add_product(s, "matmul f32 128^3", {128, 128}, {128, 128});
  add_product(s, "matmul f32 8x4096x4096", {8, 4096}, {4096, 4096});
  add_product(s, "matmul f32 4096x4096x1", {4096, 4096}, {4096, 1});
  add_product(s, "matmul f32 1x4096x4096", {1, 4096}, {4096, 4096});
  add_product(s, "matmul bf16 4096x4096x1", {4096, 4096}, {4096, 1}, BP_BF16);
  add_product(s, "matmul f32 64 of 128x64x128", {64, 128, 64}, {64, 64, 128});
  add_product(s, "matmul bf16 1024^3", {1024, 1024}, {1024, 1024}, BP_BF16);
  add_product(s, "matmul f16 1024^3", {1024, 1024}, {1024, 1024}, BP_F16);
  add_product(s, "matmul f64 512^3", {512, 512}, {512, 512}, BP_F64);
  const double y = 1024.0 * 1024;
  s.add("linear gelu f32 1024x256x1024", 4 * (1024 * 256 * 2 + y), 2 * y * 256, [] {
    return [x = input({1024, 256}), w = input({1024, 256}, 1), b = input({1024}, 2)] {
      return linear(x, w, b, Activation::kGelu);
    };
  });
}

struct Convolution {
  Shape x, weight;
  int64_t stride, padding;
};

void add_convolutions(Suite& s) {
  const std::pair<const char*, Convolution> rows[] = {
      {"convolution f32 8x3x224x224, 64 of 7x7, stride 2", {{8, 3, 224, 224}, {64, 3, 7, 7}, 2, 3}},
      {"convolution f32 8x64x56x56, 64 of 3x3", {{8, 64, 56, 56}, {64, 64, 3, 3}, 1, 1}},
      {"convolution f32 8x256x56x56, 64 of 1x1", {{8, 256, 56, 56}, {64, 256, 1, 1}, 1, 0}},
      {"convolution f32 8x128x28x28, 128 of 3x3", {{8, 128, 28, 28}, {128, 128, 3, 3}, 1, 1}},
      {"convolution f32 8x512x7x7, 512 of 3x3", {{8, 512, 7, 7}, {512, 512, 3, 3}, 1, 1}},
  };
  for (const auto& [name, c] : rows) {
    const int64_t out = (c.x[2] + 2 * c.padding - c.weight[2]) / c.stride + 1;
    const Shape y = {c.x[0], c.weight[0], out, out};
    const int64_t sum_terms = count(c.weight) / c.weight[0];
    const double flops = 2.0 * static_cast<double>(count(y) * sum_terms);
    const double bytes = 4.0 * static_cast<double>(count(c.x) + count(c.weight) + count(y));
    const Convolution row = c;
    s.add(name, bytes, flops, [row] {
      return [x = input(row.x), w = input(row.weight, 1), row] {
        return convolution(x, w, {}, {row.stride}, {row.padding}, {1}, 1);
      };
    });
    if (row.stride != 1 || row.weight[2] != 3 || row.x[2] != 28) continue;
    s.add(std::string(name) + ", for x", bytes, flops, [row, y] {
      return [g = input(y), w = input(row.weight, 1), row] {
        return convolution_backward_input(g, w, {row.x[2], row.x[3]}, {1}, {row.padding}, {1}, 1);
      };
    });
    s.add(std::string(name) + ", for weight", bytes, flops, [row, y] {
      return [g = input(y), x = input(row.x, 1), row] {
        return convolution_backward_weight(g, x, {3, 3}, {1}, {row.padding}, {1}, 1);
      };
    });
  }
  s.add("max_pool f32 8x64x112x112, 3x3, stride 2", 4.0 * 8 * 64 * (112 * 112 + 56 * 56),
        9.0 * 8 * 64 * 56 * 56, [] {
          return [x = input({8, 64, 112, 112})] { return max_pool(x, {3}, {2}, {1}); };
        });
  s.add("avg_pool f32 8x64x56x56, 2x2", 4.0 * 8 * 64 * (56 * 56 + 28 * 28), 4.0 * 8 * 64 * 28 * 28,
        [] {
          return [x = input({8, 64, 56, 56})] { return avg_pool(x, {2}, {2}); };
        });
}

void add_attention(Suite& s) {
  const Shape shape = {1, 8, 1024, 64};
  const double full = 4.0 * 8 * 1024 * 1024 * 64, bytes = 16.0 * 8 * 1024 * 64;
  const auto forward = [=](Causal causal, bp_dtype dtype) {
    return [=] {
      return [=, q = input(shape, 0, dtype), k = input(shape, 1, dtype),
              v = input(shape, 2, dtype)] { return sdpa(q, k, v, 0.125, {}, {}, causal); };
    };
  };
  s.add("attention f32 8x1024x64, causal", bytes, full / 2, forward(Causal::kTopLeft, BP_F32));
  s.add("attention f32 8x1024x64", bytes, full, forward(Causal::kNone, BP_F32));
  s.add("attention bf16 8x1024x64, causal", bytes / 2, full / 2,
        forward(Causal::kTopLeft, BP_BF16));
  s.add("attention backward f32 8x1024x64, causal", 2 * bytes, full / 2 * 2.5, [=] {
    const Tensor q = input(shape, 0), k = input(shape, 1), v = input(shape, 2);
    Tensor lse;
    const Tensor y = sdpa(q, k, v, 0.125, {}, {}, Causal::kTopLeft, &lse);
    return [=, g = input(shape, 3)] {
      Tensor grad_k, grad_v;
      return sdpa_backward(g, q, k, v, y, lse, 0.125, {}, {}, Causal::kTopLeft, &grad_k, &grad_v);
    };
  });
  s.add("rope f32 8x12x512x64", 8.0 * 8 * 12 * 512 * 64, 3.0 * 8 * 12 * 512 * 64, [] {
    const Shape x = {8, 12, 512, 64}, angles = {8, 12, 512, 32};
    return [x = input(x), c = input({512, 32}, 1).expand(angles),
            t = input({512, 32}, 2).expand(angles)] { return rope(x, c, t); };
  });
}

void add_random_and_optimizers(Suite& s) {
  constexpr double kN = 1 << 22;
  s.add("dropout f32 4194304", 8 * kN, kN,
        [] { return [x = input({1 << 22})] { return dropout(x, 1, 0, 0.5); }; });
  s.add_update("adamw f32 8 of 524288", 28 * kN, 14 * kN, [] {
    std::vector<Tensor> p, g, m, v;
    for (int64_t i = 0; i < 8; ++i) {
      p.push_back(input({524288}, i));
      g.push_back(input({524288}, i + 8));
      m.push_back(zeros({524288}, BP_F32));
      v.push_back(zeros({524288}, BP_F32));
    }
    return std::function<void()>([=, step = int64_t{0}]() mutable {
      adamw_step(p, g, m, v, 1e-3, ++step);
      p[0].device().synchronize();
    });
  });
}

}  // namespace

std::vector<Case> backplane_cases() {
  static const DeviceGuard guard(Device("cpu"));
  Suite suite;
  add_elementwise(suite);
  add_movement(suite);
  add_reductions(suite);
  add_norms(suite);
  add_products(suite);
  add_convolutions(suite);
  add_attention(suite);
  add_random_and_optimizers(suite);
  std::vector<Case> cases = suite.take();
  add_prepared_cases(cases);
  add_quantized_cases(cases);
  return cases;
}

}  // namespace bp::bench
