// The cases of element-wise functions, of rounding and of rectifiers.
#include "backplane/runtime/ops.hpp"
#include "runtime/autograd/gradient_cases.hpp"

namespace bp {
namespace {

using Inputs = std::span<const Tensor>;

std::vector<GradientCase> function_cases() {
  return {
      {"square", {{2, 3}}, [](Inputs x) { return square(x[0] - 1); }},
      {"rsqrt", {{4}}, [](Inputs x) { return rsqrt(x[0]); }},
      {"reciprocal", {{4}}, [](Inputs x) { return reciprocal(x[0]); }},
      {"exp2", {{4}}, [](Inputs x) { return exp2(x[0] - 1); }},
      {"expm1", {{4}}, [](Inputs x) { return expm1(x[0] - 1); }},
      {"log2", {{4}}, [](Inputs x) { return log2(x[0]); }},
      {"log10", {{4}}, [](Inputs x) { return log10(x[0]); }},
      {"log1p", {{4}}, [](Inputs x) { return log1p(x[0] - 1); }},
      {"sin", {{4}}, [](Inputs x) { return sin(x[0] * 3); }},
      {"cos", {{4}}, [](Inputs x) { return cos(x[0] * 3); }},
      {"tan", {{4}}, [](Inputs x) { return tan(x[0] - 1); }},
      {"asin", {{6}}, [](Inputs x) { return asin(x[0] * 0.5 - 0.4); }},
      {"acos", {{6}}, [](Inputs x) { return acos(x[0] * 0.5 - 0.4); }},
      {"atan", {{6}}, [](Inputs x) { return atan(x[0] - 1); }},
      {"sinh", {{6}}, [](Inputs x) { return sinh(x[0] - 1); }},
      {"cosh", {{6}}, [](Inputs x) { return cosh(x[0] - 1); }},
      {"asinh", {{6}}, [](Inputs x) { return asinh(x[0] - 1); }},
      {"acosh", {{6}}, [](Inputs x) { return acosh(x[0] + 1); }},
      {"atanh", {{6}}, [](Inputs x) { return atanh(x[0] * 0.5 - 0.4); }},
      {"erf", {{6}}, [](Inputs x) { return erf(x[0] - 1); }},
      {"erfc", {{6}}, [](Inputs x) { return erfc(x[0] - 1); }},
      {"pow", {{2, 3}, {3}}, [](Inputs x) { return pow(x[0], x[1]); }},
      {"pow, to a number", {{4}}, [](Inputs x) { return pow(x[0] - 1, 3); }},
      {"pow, of a number", {{4}}, [](Inputs x) { return pow(2, x[0]); }},
      {"atan2", {{2, 3}, {3}}, [](Inputs x) { return atan2(x[0] - 1, x[1] - 1.1); }},
      {"hypot", {{2, 3}, {3}}, [](Inputs x) { return hypot(x[0] - 1, x[1]); }},
  };
}

// What rounds has no slope between two steps, and is multiplied to have a second derivative.
std::vector<GradientCase> rounding_cases() {
  return {
      {"sign", {{6}}, [](Inputs x) { return sign(x[0] - 1) * x[0]; }},
      {"floor", {{6}}, [](Inputs x) { return floor(x[0] * 2) * x[0]; }},
      {"ceil", {{6}}, [](Inputs x) { return ceil(x[0] * 2) * x[0]; }},
      {"trunc", {{6}}, [](Inputs x) { return trunc(x[0] * 2 - 2) * x[0]; }},
      {"round", {{6}}, [](Inputs x) { return round(x[0] * 2) * x[0]; }},
      {"frac", {{6}}, [](Inputs x) { return frac(x[0] * 2 - 2) * x[0]; }},
      {"fmod", {{2, 3}, {3}}, [](Inputs x) { return fmod(x[0] * 3 - 2, x[1]) * x[1]; }},
      {"remainder", {{2, 3}, {3}}, [](Inputs x) { return remainder(x[0] * 3 - 2, x[1]) * x[1]; }},
      {"floor_divide",
       {{2, 3}, {3}},
       [](Inputs x) { return floor_divide(x[0] * 3 - 2, x[1]) * x[0] * x[1]; }},
      {"fmax", {{2, 3}, {3}}, [](Inputs x) { return fmax(x[0], x[1]) * x[0]; }},
      {"fmin", {{2, 3}, {3}}, [](Inputs x) { return fmin(x[0], x[1]) * x[0]; }},
      {"clamp", {{2, 3}, {3}, {2, 1}}, [](Inputs x) { return clamp(x[0], x[1] - 0.4, x[2]); }},
      // The steps are too fine for central differences to see, and numbers above 1 have no code.
      {"fake_quantize",
       {{6}},
       [](Inputs x) {
         const Tensor scale = full({6}, 0x1p-46, BP_F64), zero = full({6}, int64_t{3}, BP_I32);
         return fake_quantize(x[0], scale, zero, 0, int64_t{1} << 46) * x[0];
       }},
      {"clamp, to a number", {{6}, {6}}, [](Inputs x) { return clamp(x[0], x[1], 1.2); }},
  };
}

std::vector<GradientCase> rectifier_cases() {
  return {
      {"relu6", {{8}}, [](Inputs x) { return relu6(x[0] * 8 - 4); }},
      {"relu6_backward",
       {{8}},
       [](Inputs x) { return relu6_backward(x[0], gradient_sample({8}, 9) * 8 - 4); }},
      {"leaky_relu", {{2, 3}, {3}}, [](Inputs x) { return leaky_relu(x[0] - 1, x[1]); }},
      {"leaky_relu, with a number", {{6}}, [](Inputs x) { return leaky_relu(x[0] - 1, 0.2); }},
      {"leaky_relu_backward",
       {{6}, {6}},
       [](Inputs x) { return leaky_relu_backward(x[0], gradient_sample({6}, 9) - 1, x[1]); }},
      {"hardsigmoid", {{8}}, [](Inputs x) { return hardsigmoid(x[0] * 8 - 8); }},
      {"hardsigmoid_backward",
       {{8}},
       [](Inputs x) { return hardsigmoid_backward(x[0], gradient_sample({8}, 9) * 8 - 8); }},
      {"hardswish", {{8}}, [](Inputs x) { return hardswish(x[0] * 8 - 8); }},
      {"hardswish_backward",
       {{8}, {8}},
       [](Inputs x) { return hardswish_backward(x[0], x[1] * 8 - 8); }},
      {"elu", {{2, 3}, {3}}, [](Inputs x) { return elu(x[0] - 1, x[1]); }},
      {"elu, with a number", {{6}}, [](Inputs x) { return elu(x[0] - 1, 0.7); }},
      {"elu_backward",
       {{6}, {6}, {6}},
       [](Inputs x) { return elu_backward(x[0], x[1] - 1, x[2]); }},
      {"selu", {{6}}, [](Inputs x) { return selu(x[0] - 1); }},
      {"celu", {{2, 3}, {3}}, [](Inputs x) { return celu(x[0] - 1, x[1]); }},
      {"log_sigmoid", {{6}}, [](Inputs x) { return log_sigmoid(x[0] - 1); }},
      {"softplus", {{6}}, [](Inputs x) { return softplus(x[0] - 1); }},
      {"softsign", {{6}}, [](Inputs x) { return softsign(x[0] - 1); }},
  };
}

}  // namespace

std::vector<GradientCase> function_gradient_cases() {
  std::vector<GradientCase> cases = function_cases();
  for (const auto further : {rounding_cases, rectifier_cases}) {
    for (GradientCase& item : further()) cases.push_back(std::move(item));
  }
  return cases;
}

}  // namespace bp
