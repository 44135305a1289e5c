// Mutants of functions and of reductions that make the mistakes which kernels really make: a
// formula that cancels or overflows, an argument that is reduced in f32, the other rule where
// libraries differ, a special value that is lost.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <span>
#include <string_view>
#include <vector>

#include "backplane/ops.h"
#include "conformance/faults/ops.hpp"
#include "conformance/mutants/mistakes.hpp"

namespace bp::mutants {
namespace {

// The wrong result for the element `a` of the first input, and `b` of the second if there is one.
// NaN stands for it where there is none.
struct WrongFunction {
  std::string_view strength;
  uint32_t op;
  double (*value)(double a, double b);
};

float narrow(double value) { return static_cast<float>(value); }

// Returns a - 2 pi n in f32, with 2 pi rounded to f32.
float without_turns(double a) {
  constexpr auto kTurn = static_cast<float>(2 * std::numbers::pi);
  const float x = narrow(a);
  return x - std::nearbyint(x / kTurn) * kTurn;
}

// Abramowitz and Stegun, 7.1.26. Its error is at most 1.5e-7, which is much where erf is small.
float absolute_erf(float x) {
  const float t = 1 / (1 + 0.3275911F * std::fabs(x));
  const float terms =
      ((((1.061405429F * t - 1.453152027F) * t + 1.421413741F) * t - 0.284496736F) * t +
       0.254829592F) *
      t;
  return std::copysign(1 - terms * std::exp(-x * x), x);
}

// An estimate from the bits, and two steps of Newton's method.
float estimated_rsqrt(float x) {
  auto y = std::bit_cast<float>(0x5F3759DFU - (std::bit_cast<uint32_t>(x) >> 1));
  for (int step = 0; step < 2; ++step) y *= 1.5F - 0.5F * x * y * y;
  return y;
}

double logical_shift(double a, double b) {
  if (b < 0 || b > 31) return 0;
  return static_cast<double>(static_cast<uint32_t>(static_cast<int32_t>(a)) >>
                             static_cast<uint32_t>(b));
}

// As x86 shifts: it takes the amount modulo 32.
double wrapped_shift(double a, double b) {
  const auto amount = static_cast<uint32_t>(static_cast<int32_t>(b)) & 31U;
  return static_cast<int32_t>(static_cast<uint32_t>(static_cast<int32_t>(a)) << amount);
}

constexpr WrongFunction kFunctions[] = {
    {"sin", BP_OP_SIN, [](double a, double) -> double { return std::sin(without_turns(a)); }},
    {"tan", BP_OP_TAN, [](double a, double) -> double { return std::tan(without_turns(a)); }},
    {"exp2", BP_OP_EXP2,
     [](double a, double) -> double { return std::exp(narrow(a) * std::numbers::ln2_v<float>); }},
    {"expm1", BP_OP_EXPM1, [](double a, double) -> double { return std::exp(narrow(a)) - 1; }},
    {"log1p", BP_OP_LOG1P, [](double a, double) -> double { return std::log(1 + narrow(a)); }},
    {"asin", BP_OP_ASIN,
     [](double a, double) -> double {
       const float x = narrow(a);
       return std::atan(x / std::sqrt(1 - x * x));
     }},
    {"acos", BP_OP_ACOS,
     [](double a, double) -> double {
       return std::numbers::pi_v<float> / 2 - std::asin(narrow(a));
     }},
    {"asinh", BP_OP_ASINH,
     [](double a, double) -> double {
       const float x = narrow(a);
       return std::log(x + std::sqrt(x * x + 1));
     }},
    {"acosh", BP_OP_ACOSH,
     [](double a, double) -> double {
       const float x = narrow(a);
       return std::log(x + std::sqrt(x * x - 1));
     }},
    {"atanh", BP_OP_ATANH,
     [](double a, double) -> double {
       const float x = narrow(a);
       return 0.5F * std::log((1 + x) / (1 - x));
     }},
    {"sinh", BP_OP_SINH,
     [](double a, double) -> double { return (std::exp(narrow(a)) - std::exp(-narrow(a))) / 2; }},
    {"erf", BP_OP_ERF, [](double a, double) -> double { return absolute_erf(narrow(a)); }},
    {"erfc", BP_OP_ERFC, [](double a, double) -> double { return 1 - std::erf(narrow(a)); }},
    {"rsqrt", BP_OP_RSQRT, [](double a, double) -> double { return estimated_rsqrt(narrow(a)); }},
    {"round", BP_OP_ROUND, [](double a, double) { return std::round(a); }},
    {"frac", BP_OP_FRAC, [](double a, double) { return a - std::floor(a); }},
    {"sign", BP_OP_SIGN, [](double a, double) -> double { return (a > 0) - (a < 0); }},
    {"softplus", BP_OP_SOFTPLUS,
     [](double a, double) -> double { return std::log(1 + std::exp(narrow(a))); }},
    {"hardsigmoid", BP_OP_HARDSIGMOID,
     [](double a, double) { return std::isnan(a) ? a : std::clamp(0.2 * a + 0.5, 0.0, 1.0); }},
    {"relu6", BP_OP_RELU6, [](double a, double) { return std::fmin(std::fmax(a, 0), 6); }},
    {"isfinite", BP_OP_ISFINITE, [](double a, double) -> double { return !std::isnan(a); }},
    // Compares with the NaN that computations give.
    {"isnan", BP_OP_ISNAN,
     [](double a, double) -> double {
       return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(double{NAN});
     }},
    {"isinf", BP_OP_ISINF, [](double a, double) -> double { return a > 0 && std::isinf(a); }},
    {"atan2", BP_OP_ATAN2, [](double a, double b) { return std::atan(a / b); }},
    {"hypot", BP_OP_HYPOT,
     [](double a, double b) -> double {
       const float x = narrow(a), y = narrow(b);
       return std::sqrt(x * x + y * y);
     }},
    {"pow", BP_OP_POW,
     [](double a, double b) -> double { return std::exp(narrow(b) * std::log(narrow(a))); }},
    {"fmod", BP_OP_FMOD, [](double a, double b) { return a - b * std::floor(a / b); }},
    {"remainder", BP_OP_REMAINDER, [](double a, double b) { return std::fmod(a, b); }},
    {"floor_divide", BP_OP_FLOOR_DIVIDE, [](double a, double b) { return std::trunc(a / b); }},
    {"fmax", BP_OP_FMAX, [](double a, double b) { return std::isnan(a) ? a
                                                         : a < b       ? b
                                                                       : a; }},
    {"lt", BP_OP_LT, [](double a, double b) -> double { return a <= b; }},
    {"ge", BP_OP_GE, [](double a, double b) -> double { return !(a < b); }},
    {"ne", BP_OP_NE, [](double a, double b) -> double { return a < b || a > b; }},
    {"logical_xor", BP_OP_LOGICAL_XOR, [](double a, double b) -> double { return a != b; }},
    {"bitwise_not", BP_OP_BITWISE_NOT, [](double a, double) { return -a; }},
    {"shift_left", BP_OP_SHIFT_LEFT, wrapped_shift},
    {"shift_right", BP_OP_SHIFT_RIGHT, logical_shift},
};

using Group = std::vector<double>;  // The elements of one result, in row-major order.

// The wrong result of a reduction of some elements.
struct WrongReduction {
  std::string_view strength;
  uint32_t op;
  double (*value)(const Group& x);
};

double smallest_number(const Group& x) {
  double least = INFINITY;
  for (size_t i = 0; i < x.size(); ++i) least = std::fmin(least, x[i]);
  return least;
}

// Multiplies in f32, but by way of logarithms, as if the factors were probabilities.
double product_by_logarithms(const Group& x) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += std::log(std::fabs(x[i]));
  return std::exp(sum);
}

// Counts what is not 0 as an integer.
double count_of_whole(const Group& x) {
  double count = 0;
  for (size_t i = 0; i < x.size(); ++i) count += std::trunc(x[i]) != 0;
  return count;
}

double is_any_above(const Group& x) {
  bool any = false;
  for (size_t i = 0; i < x.size(); ++i) any |= x[i] > 0;
  return any;
}

double are_all_but_the_last(const Group& x) {
  bool all = true;
  for (size_t i = 0; i + 1 < x.size(); ++i) all &= x[i] != 0;
  return all;
}

constexpr WrongReduction kReductions[] = {
    {"amin", BP_OP_AMIN, smallest_number},
    {"prod", BP_OP_PROD, product_by_logarithms},
    {"count_nonzero", BP_OP_COUNT_NONZERO, count_of_whole},
    {"any", BP_OP_ANY, is_any_above},
    {"all", BP_OP_ALL, are_all_but_the_last},
};

bool is_same_shape(const bp_tensor& a, const bp_tensor& b) {
  return std::ranges::equal(std::span(a.shape, a.ndim), std::span(b.shape, b.ndim));
}

// The tensors of a frame with one output.
struct Frame {
  std::vector<const bp_tensor*> inputs;
  const bp_tensor* output = nullptr;
  bool has_all_inputs = false;  // No input is a number in the frame.
};

Frame frame_of(const Call& call, const void* args) {
  const faults::Op& op = *faults::find_op(call.wrapped.kernel.op);
  Frame frame;
  for (const faults::Argument& argument : faults::tensors_of(op, args)) {
    if (argument.member->is_output()) {
      frame.output = argument.tensor;
    } else {
      frame.inputs.push_back(argument.tensor);
    }
  }
  const auto count = std::ranges::count_if(op.members, &faults::Member::is_input);
  frame.has_all_inputs = frame.inputs.size() == static_cast<size_t>(count);
  return frame;
}

// 87: computes a function of one or two numbers wrongly. Calls with other shapes or with a number
// in the frame are right.
bp_status compute_wrongly(const Call& call, std::string_view strength, const void* args) {
  const Frame frame = frame_of(call, args);
  const WrongFunction& wrong = *find(kFunctions, strength);
  if (!frame.has_all_inputs) return call.run(args);
  std::vector<Values> inputs;
  for (const bp_tensor* const input : frame.inputs) {
    if (!is_same_shape(*input, *frame.output)) return call.run(args);
    inputs.emplace_back(call, *input);
    if (inputs.back().status() != BP_OK) return inputs.back().status();
  }
  if (const bp_status status = call.run(args); status != BP_OK) return status;
  Values y(call, *frame.output);
  for (size_t i = 0; i < y.size(); ++i) {
    y.set(i, wrong.value(inputs[0][i], inputs.size() > 1 ? inputs[1][i] : NAN));
  }
  return y.write();
}

// These ops have frames alike.
using ReductionArgs = bp_amin_args;
template <typename... Args>
constexpr bool kAreAlike = ((sizeof(Args) == sizeof(ReductionArgs) &&
                             offsetof(Args, axes) == offsetof(ReductionArgs, axes)) &&
                            ...);
static_assert(kAreAlike<bp_prod_args, bp_count_nonzero_args, bp_any_args, bp_all_args>);

// Returns the elements of x of each result, in row-major order of the results.
std::vector<Group> groups_of(const ReductionArgs& args, const Values& x, size_t count) {
  std::vector<Group> groups(count);
  const std::span<const int64_t> axes(args.axes, args.axes_count);
  for (size_t i = 0; i < x.size(); ++i) {
    auto rest = static_cast<int64_t>(i);
    int64_t target = 0, step = 1;
    for (uint32_t axis = args.x->ndim; axis-- > 0;) {
      const int64_t extent = args.x->shape[axis];
      if (std::ranges::count(axes, int64_t{axis}) == 0) {
        target += rest % extent * step;
        step *= extent;
      }
      rest /= extent;
    }
    groups[static_cast<size_t>(target)].push_back(x[i]);
  }
  return groups;
}

// 88: reduces wrongly.
bp_status reduce_wrongly(const Call& call, std::string_view strength, const void* args) {
  const auto& frame = *static_cast<const ReductionArgs*>(args);
  const Values x(call, *frame.x);
  if (x.status() != BP_OK) return x.status();
  if (const bp_status status = call.run(args); status != BP_OK) return status;
  Values y(call, *frame.y);
  const std::vector<Group> groups = groups_of(frame, x, y.size());
  for (size_t i = 0; i < y.size(); ++i) y.set(i, find(kReductions, strength)->value(groups[i]));
  return y.write();
}

constexpr Mutant kTable[] = {
    {.id = "87", .ops = {}, .launch = compute_wrongly, .replaces = has_row<kFunctions>},
    {.id = "88", .ops = {}, .launch = reduce_wrongly, .replaces = has_row<kReductions>},
};

}  // namespace

std::span<const Mutant> function_mutants() { return kTable; }

}  // namespace bp::mutants
