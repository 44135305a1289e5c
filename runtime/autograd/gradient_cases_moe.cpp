// The cases of gated activations and of mixtures of experts.
#include "backplane/runtime/ops.hpp"
#include "runtime/autograd/gradient_cases.hpp"

namespace bp {
namespace {

using Inputs = std::span<const Tensor>;

// Rows 1 and 2 are of group 0, and row 3 of group 2. The others are of none.
Tensor group_offsets() { return from_host<int64_t>({1, 3, 3, 4}, {4}); }

// Each of three tokens has two experts of two; one choice of token 1 was dropped.
Tensor chosen_experts() { return from_host<int64_t>({1, 0, 1, -1, 0, 1}, {3, 2}); }

Tensor places() { return from_host<int64_t>({3, 0, 4, -1, 1, 9}, {3, 2}); }

// Four tokens have eight choices, of which three experts of capacity 2 take six at most.
Tensor routed(Inputs x, Scoring scoring, bool renormalize, int64_t capacity) {
  return moe_route(x[0], 2, {}, scoring, renormalize, capacity);
}

}  // namespace

std::vector<GradientCase> moe_gradient_cases() {
  const std::vector<std::vector<int64_t>> gates{{2, 3}, {2, 3}}, gradients{{2, 3}, {2, 3}, {2, 3}};
  return {
      {"swiglu", gates, [](Inputs x) { return swiglu(x[0], x[1]); }},
      {"swiglu_backward", gradients, [](Inputs x) { return swiglu_backward(x[0], x[1], x[2]); }},
      {"geglu", gates, [](Inputs x) { return geglu(x[0], x[1]); }},
      {"geglu_backward", gradients, [](Inputs x) { return geglu_backward(x[0], x[1], x[2]); }},
      {"moe_route", {{4, 3}}, [](Inputs x) { return routed(x, Scoring::kSoftmax, false, 0); }},
      {"moe_route, shares",
       {{4, 3}},
       [](Inputs x) { return routed(x, Scoring::kSoftmax, true, 0); }},
      {"moe_route, shares with a capacity",
       {{4, 3}},
       [](Inputs x) { return routed(x, Scoring::kSoftmax, true, 2); }},
      {"moe_route, sigmoid",
       {{4, 3}},
       [](Inputs x) { return routed(x, Scoring::kSigmoid, false, 2); }},
      {"moe_route, sigmoid with shares",
       {{4, 3}},
       [](Inputs x) { return routed(x, Scoring::kSigmoid, true, 0); }},
      {"moe_permute", {{3, 2}}, [](Inputs x) { return moe_permute(x[0], chosen_experts(), 2); }},
      {"moe_unpermute",
       {{6, 2}, {3, 2}},
       [](Inputs x) { return moe_unpermute(x[0], places(), x[1]); }},
      {"moe_unpermute, without weights",
       {{6, 2}},
       [](Inputs x) { return moe_unpermute(x[0], places()); }},
      {"grouped_matmul",
       {{5, 2}, {3, 2, 4}},
       [](Inputs x) { return grouped_matmul(x[0], x[1], group_offsets()); }},
      {"grouped_matmul_backward_b",
       {{5, 4}, {5, 2}},
       [](Inputs x) { return grouped_matmul_backward_b(x[0], x[1], group_offsets()); }},
  };
}

}  // namespace bp
