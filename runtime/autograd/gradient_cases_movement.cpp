// The cases of ops that move, reduce, multiply and slide over elements.
#include "backplane/runtime/ops.hpp"
#include "runtime/autograd/gradient_cases.hpp"

namespace bp {
namespace {

using Inputs = std::span<const Tensor>;

Tensor indices(const std::vector<int64_t>& values, IntList shape) {
  return from_host<int64_t>(values, shape);
}
Tensor indices(const std::vector<int64_t>& values) {
  return indices(values, {static_cast<int64_t>(values.size())});
}

}  // namespace

std::vector<GradientCase> movement_gradient_cases() {
  return {
      {"copy", {{3}}, [](Inputs x) { return copy(x[0].slice(0, 0, 3, 2), BP_F64); }},
      {"sum",
       {{2, 3, 2}},
       [](Inputs x) {
         return sum(x[0], {0, 2});
       }},
      {"sum, keepdims", {{2, 3}}, [](Inputs x) { return sum(x[0], {1}, true); }},
      {"mean", {{2, 3, 2}}, [](Inputs x) { return mean(x[0], {1}); }},
      {"amax", {{2, 3}}, [](Inputs x) { return amax(x[0], {1}); }},
      {"amin", {{2, 3}}, [](Inputs x) { return amin(x[0], {1}); }},
      {"prod",
       {{2, 3, 2}},
       [](Inputs x) {
         return prod(x[0], {0, 2});
       }},
      {"prod, keepdims", {{2, 3}}, [](Inputs x) { return prod(x[0], {1}, true); }},
      {"var",
       {{2, 3, 2}},
       [](Inputs x) {
         return var(x[0], {0, 2});
       }},
      {"var, keepdims", {{2, 3}}, [](Inputs x) { return var(x[0], {1}, true, 0); }},
      {"cumsum", {{2, 3, 2}}, [](Inputs x) { return cumsum(x[0], 1); }},
      {"cumsum, exclusive", {{2, 3}}, [](Inputs x) { return cumsum(x[0], 1, true); }},
      {"cumsum, reverse", {{2, 3}}, [](Inputs x) { return cumsum(x[0], 0, false, true); }},
      {"cumprod", {{2, 3, 2}}, [](Inputs x) { return cumprod(x[0], 1); }},
      {"cumprod, exclusive and reverse",
       {{2, 4}},
       [](Inputs x) { return cumprod(x[0], 1, true, true); }},
      {"logsumexp", {{2, 3}}, [](Inputs x) { return logsumexp(x[0], {1}); }},
      {"embedding",
       {{4, 2}},
       [](Inputs x) {
         return embedding(x[0], indices({1, 3, 1}));
       }},
      {"embedding_backward",
       {{3, 2}},
       [](Inputs x) {
         return embedding_backward(x[0], indices({1, 3, 1}), 4);
       }},
      {"cat", {{2, 3}, {2, 1}, {2, 2}}, [](Inputs x) { return cat(x, 1); }},
      {"cat, of one tensor twice",
       {{2, 2}, {1, 2}},
       [](Inputs x) {
         const std::vector<Tensor> list{x[0], x[1], x[0], gradient_sample({3, 2}, 4)};
         return cat(list, 0);
       }},
      {"cat, of many tensors",
       {{12}},
       [](Inputs x) {
         std::vector<Tensor> list;
         for (int64_t i = 11; i >= 0; --i) list.push_back(x[0].narrow(0, i, 1));
         return cat(list, 0);
       }},
      {"gather",
       {{2, 3}},
       [](Inputs x) {
         return gather(x[0], indices({2, 0, 0, 1, 1, 1, 2, 0}, {2, 4}), 1);
       }},
      {"scatter",
       {{2, 4}, {2, 2}},
       [](Inputs x) {
         return scatter(x[0], indices({3, 0, 1, 2}, {2, 2}), x[1], 1);
       }},
      {"scatter_reduce",
       {{3, 2}, {2, 2}},
       [](Inputs x) {
         return scatter_reduce(x[0], indices({2, 0, 2, 1}, {2, 2}), x[1], 0);
       }},
      {"index_select",
       {{2, 3, 2}},
       [](Inputs x) {
         return index_select(x[0], indices({2, 0, 2}), 1);
       }},
      {"topk", {{2, 5}}, [](Inputs x) { return topk(x[0], 2, 1); }},
      {"sort", {{4, 2}}, [](Inputs x) { return sort(x[0], 0, true); }},
      {"flip", {{2, 3}}, [](Inputs x) { return flip(x[0], 1); }},
      {"roll", {{2, 5}}, [](Inputs x) { return roll(x[0], -7, 1); }},
      {"tril", {{2, 3, 4}}, [](Inputs x) { return tril(x[0], -1); }},
      {"triu", {{2, 3, 4}}, [](Inputs x) { return triu(x[0], 1); }},
      {"pad", {{3, 2}}, [](Inputs x) { return pad(x[0], 2, 0, 1, 2); }},
      {"pad, reflect", {{2, 4}}, [](Inputs x) { return pad(x[0], 0, 1, 3, 2, PadMode::kReflect); }},
      {"pad, replicate",
       {{3, 2}},
       [](Inputs x) { return pad(x[0], 0, 0, 2, 4, PadMode::kReplicate); }},
      {"masked_fill",
       {{2, 3}},
       [](Inputs x) {
         return masked_fill(x[0], indices({1, 0, 0, 1, 0, 1}, {2, 3}) == 1, 2);
       }},
      {"tile", {{2, 3, 2}}, [](Inputs x) { return tile(x[0], 3, 1); }},
      {"views",
       {{4, 6}},
       [](Inputs x) {
         return x[0].slice(1, 1, 6, 2)
                    .transpose()
                    .reshape({2, 6})
                    .narrow(1, 1, 3)
                    .expand({3, 2, 3}) *
                x[0].select(0, 2).narrow(0, 0, 3);
       }},
  };
}

std::vector<GradientCase> matrix_gradient_cases() {
  const auto linear_with = [](Activation activation) {
    return [activation](Inputs x) { return linear(x[0], x[1] - 1, x[2], activation); };
  };
  return {
      {"matmul", {{2, 3}, {3, 4}}, [](Inputs x) { return matmul(x[0], x[1]); }},
      {"matmul, batched",
       {{2, 1, 2, 3}, {3, 3, 2}},
       [](Inputs x) { return matmul(x[0], x[1].unsqueeze(0)); }},
      {"matmul, scaled and added to",
       {{2, 3}, {3, 4}, {2, 4}},
       [](Inputs x) { return matmul(x[0], x[1], 0, x[2], 0.5, -2); }},
      {"linear, scaled and added to",
       {{2, 3}, {4, 3}, {4}, {2, 4}},
       [](Inputs x) {
         return linear(x[0], x[1] - 1, x[2], Activation::kSilu, 0, nullptr, x[3], 0.5, -2);
       }},
      {"linear", {{2, 2, 3}, {4, 3}, {4}}, [](Inputs x) { return linear(x[0], x[1], x[2]); }},
      {"linear, without bias", {{2, 3}, {4, 3}}, [](Inputs x) { return linear(x[0], x[1]); }},
      {"linear, relu", {{2, 3}, {4, 3}, {4}}, linear_with(Activation::kRelu)},
      {"linear, gelu", {{2, 3}, {4, 3}, {4}}, linear_with(Activation::kGelu)},
      {"linear, silu", {{2, 3}, {4, 3}, {4}}, linear_with(Activation::kSilu)},
      {"linear, with its preactivation",
       {{2, 3}, {4, 3}, {4}},
       [](Inputs x) {
         Tensor before;
         const Tensor y = linear(x[0], x[1] - 1, x[2], Activation::kGelu, 0, &before);
         return gradient_mix({y, before});
       }},
      {"linear, its preactivation alone",
       {{2, 3}, {4, 3}},
       [](Inputs x) {
         Tensor before;
         linear(x[0], x[1] - 1, {}, Activation::kRelu, 0, &before);
         return before * before;
       }},
  };
}

std::vector<GradientCase> window_gradient_cases() {
  return {
      {"convolution",
       {{2, 2, 4, 3}, {3, 2, 2, 2}, {3}},
       [](Inputs x) {
         return convolution(x[0], x[1], x[2], {2, 1}, {1, 0, 0, 1});
       }},
      {"convolution, grouped",
       {{1, 4, 5}, {4, 2, 2}},
       [](Inputs x) { return convolution(x[0], x[1], {}, {}, {}, {2}, 2); }},
      {"convolution_backward_input",
       {{1, 2, 3}, {2, 1, 2}},
       [](Inputs x) { return convolution_backward_input(x[0], x[1], {4}); }},
      {"convolution_backward_weight",
       {{1, 2, 3}, {1, 1, 4}},
       [](Inputs x) { return convolution_backward_weight(x[0], x[1], {2}); }},
      {"convolution_backward_bias",
       {{2, 3, 2}},
       [](Inputs x) { return convolution_backward_bias(x[0]); }},
      {"convolution_transpose",
       {{2, 3, 2, 3}, {3, 2, 2, 2}, {2}},
       [](Inputs x) {
         return convolution_transpose(x[0], x[1], x[2], {2, 1}, {1, 0, 0, 1}, {1, 0});
       }},
      {"convolution_transpose, grouped",
       {{1, 4, 3}, {4, 1, 2}},
       [](Inputs x) { return convolution_transpose(x[0], x[1], {}, {}, {}, {}, {2}, 2); }},
      {"max_pool", {{1, 2, 4, 4}}, [](Inputs x) { return max_pool(x[0], {2}); }},
      {"max_pool_backward",
       {{1, 1, 2, 2}},
       [](Inputs x) {
         Tensor chosen;
         max_pool(gradient_sample({1, 1, 4, 4}, 5), {2}, {}, {}, {}, &chosen);
         return max_pool_backward(x[0], chosen, {4, 4});
       }},
      {"avg_pool", {{1, 2, 4, 4}}, [](Inputs x) { return avg_pool(x[0], {2}); }},
      {"avg_pool, padded and overlapping",
       {{1, 1, 3, 4}},
       [](Inputs x) {
         return avg_pool(x[0], {2, 3}, {1, 2}, {1, 0, 0, 1}, false);
       }},
      {"avg_pool_backward",
       {{1, 1, 3}},
       [](Inputs x) {
         return avg_pool_backward(x[0], {5}, {3}, {2}, {1, 1});
       }},
      {"adaptive_avg_pool",
       {{1, 2, 5, 3}},
       [](Inputs x) {
         return adaptive_avg_pool(x[0], {3, 4});
       }},
      {"adaptive_avg_pool_backward",
       {{1, 2, 3}},
       [](Inputs x) { return adaptive_avg_pool_backward(x[0], {7}); }},
      {"interpolate",
       {{1, 2, 3, 4}},
       [](Inputs x) {
         return interpolate(x[0], {5, 2});
       }},
      {"interpolate, linear",
       {{1, 1, 2, 3, 2}},
       [](Inputs x) {
         return interpolate(x[0], {3, 2, 5}, Interpolation::kLinear);
       }},
      {"interpolate, linear with aligned corners",
       {{1, 1, 4, 3}},
       [](Inputs x) {
         return interpolate(x[0], {3, 7}, Interpolation::kLinear, Coordinates::kAlignCorners);
       }},
      {"interpolate_backward",
       {{1, 2, 5}},
       [](Inputs x) { return interpolate_backward(x[0], {3}, Interpolation::kLinear); }},
  };
}

}  // namespace bp
