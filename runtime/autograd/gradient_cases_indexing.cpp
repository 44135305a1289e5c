// The cases of ops that choose elements, run along lines, or measure them.
#include <cmath>

#include "backplane/runtime/ops.hpp"
#include "runtime/autograd/gradient_cases.hpp"

namespace bp {
namespace {

using Inputs = std::span<const Tensor>;

Tensor indices(const std::vector<int64_t>& values, IntList shape) {
  return from_host<int64_t>(values, shape);
}

// A norm of order below 1 has no slope at 0, which some of x - 1 are close to.
TensorFunction norm_of(double p) {
  return [p](Inputs x) { return norm(p < 1 ? x[0] : x[0] - 1, {1}, p); };
}

}  // namespace

std::vector<GradientCase> indexing_gradient_cases() {
  return {
      {"masked_select",
       {{2, 3}},
       [](Inputs x) {
         return masked_select(x[0], indices({1, 0, 0, 1, 0, 1}, {2, 3}) == 1);
       }},
      {"index_add",
       {{2, 3}, {2, 4}},
       [](Inputs x) {
         return index_add(x[0], indices({2, 0, 2, 1}, {4}), x[1], 1);
       }},
      {"index_put",
       {{2, 3, 2}, {2, 2}},
       [](Inputs x) {
         return index_put(x[0], indices({5, 1}, {2}), x[1], 2);
       }},
      {"index_put, accumulating",
       {{3, 2}, {2, 2, 2}},
       [](Inputs x) {
         return index_put(x[0], indices({2, 0, 2, 2}, {2, 2}), x[1], 1, true);
       }},
      {"cummax", {{2, 5}}, [](Inputs x) { return cummax(x[0], 1); }},
      {"cummin", {{4, 3}}, [](Inputs x) { return cummin(x[0], 0); }},
      {"logcumsumexp", {{2, 4}}, [](Inputs x) { return logcumsumexp(x[0], 1); }},
      {"logcumsumexp, reverse", {{3, 2}}, [](Inputs x) { return logcumsumexp(x[0], 0, true); }},
      {"norm", {{2, 3}}, norm_of(2)},
      {"norm, keepdims",
       {{2, 3, 2}},
       [](Inputs x) {
         return norm(x[0], {0, 2}, 2, true);
       }},
      {"norm, of order 1", {{2, 3}}, norm_of(1)},
      {"norm, of order 3", {{2, 3}}, norm_of(3)},
      {"norm, of order 0.5", {{2, 3}}, norm_of(0.5)},
      {"norm, of order -1", {{2, 3}}, norm_of(-1)},
      {"norm, the largest", {{2, 3}}, norm_of(HUGE_VAL)},
      {"norm, the smallest", {{2, 3}}, norm_of(-HUGE_VAL)},
      {"adaptive_max_pool",
       {{1, 2, 5, 3}},
       [](Inputs x) {
         return adaptive_max_pool(x[0], {3, 2});
       }},
      {"unfold",
       {{1, 2, 3, 4}},
       [](Inputs x) {
         return unfold(x[0], {2, 2}, {1, 2}, {0, 1, 1, 0});
       }},
      {"fold",
       {{1, 8, 6}},
       [](Inputs x) {
         return fold(x[0], {3, 4}, {2, 2}, {1, 2}, {0, 1, 1, 0});
       }},
  };
}

}  // namespace bp
