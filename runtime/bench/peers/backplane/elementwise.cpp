#include "runtime/bench/peers/backplane/suite.hpp"

namespace bp::bench {
namespace {

using Unary = Tensor (*)(const Tensor&);
using Binary = Tensor (*)(const Operand&, const Operand&);

// Adds a function of one tensor, or of two, of n elements. The second tensor of a division is
// positive.
void add_unary(Suite& s, const std::string& op, Unary run, bp_dtype dtype, int64_t n) {
  const auto elements = static_cast<double>(n);
  s.add(op + " " + dtype_text(dtype) + " " + std::to_string(n), 2 * width_of(dtype) * elements,
        elements, [=] { return [x = input({n}, 0, dtype), run] { return run(x); }; });
}

void add_binary(Suite& s, const std::string& op, Binary run, bp_dtype dtype, int64_t n,
                bool is_division = false) {
  const auto elements = static_cast<double>(n);
  s.add(op + " " + dtype_text(dtype) + " " + std::to_string(n), 3 * width_of(dtype) * elements,
        elements, [=] {
          return [a = input({n}, 0, dtype),
                  b = is_division ? positive({n}, 1, dtype) : input({n}, 1, dtype),
                  run] { return run(a, b); };
        });
}

// Adds a function of two integers, the first from 0 to n - 1 and the second from 1 to `high`.
void add_integer(Suite& s, const std::string& op, Binary run, bp_dtype dtype, int64_t n,
                 int64_t high) {
  const auto elements = static_cast<double>(n);
  s.add(op + " " + dtype_text(dtype) + " " + std::to_string(n), 3 * width_of(dtype) * elements,
        elements, [=] {
          return [a = indices({n}, n).to(dtype), b = add(indices({n}, high, 1), 1).to(dtype), run] {
            return run(a, b);
          };
        });
}

void add_functions(Suite& s) {
  add_unary(s, "erf", erf, BP_F32, kMany);
  add_unary(s, "sin", sin, BP_F32, kMany);
  add_unary(s, "log1p", log1p, BP_F32, kMany);
  add_unary(s, "sigmoid", sigmoid, BP_F32, kMany);
  add_unary(s, "mish", mish, BP_F32, kMany);
  add_unary(s, "softplus", softplus, BP_F32, kMany);
  add_unary(s, "hardswish", hardswish, BP_F32, kMany);
  add_unary(s, "floor", floor, BP_F32, kOdd);
  add_unary(s, "exp", exp, BP_F64, 1 << 20);
  add_unary(s, "tanh", tanh, BP_F64, 1 << 20);
  add_unary(s, "sigmoid", sigmoid, BP_BF16, kMany);
  add_unary(s, "exp", exp, BP_BF16, kMany);
  add_unary(s, "hardswish", hardswish, BP_F16, kMany);
  add_unary(s, "abs", abs, BP_F16, kOdd);
}

void add_arithmetic(Suite& s) {
  add_binary(s, "mul", mul, BP_BF16, kOdd);
  add_binary(s, "sub", sub, BP_F16, kMany);
  add_binary(s, "maximum", maximum, BP_F32, kOdd);
  add_binary(s, "atan2", atan2, BP_F32, 1 << 20);
  add_binary(s, "add", add, BP_F64, 1 << 20);
  add_binary(s, "div", div, BP_F32, kMany, true);
  add_binary(s, "fmod", fmod, BP_F32, 1 << 20, true);
  add_binary(s, "remainder", remainder, BP_F32, 1 << 20, true);
  s.add("pow f32 1048576", 12.0 * (1 << 20), 1 << 20,
        [] { return [a = positive({1 << 20}), b = input({1 << 20}, 1)] { return pow(a, b); }; });
  add_integer(s, "add", add, BP_I32, kMany, 1000);
  add_integer(s, "mul", mul, BP_I64, kOdd, 1000);
  add_integer(s, "remainder", remainder, BP_I64, kOdd, 1000);
  add_integer(s, "floor_divide", floor_divide, BP_I32, kOdd, 1000);
  add_integer(s, "bitwise_xor", bitwise_xor, BP_I32, kMany, 1000);
  add_integer(s, "shift_left", shift_left, BP_I64, kOdd, 20);
}

void add_comparisons_and_ternaries(Suite& s) {
  s.add("lt f32 into bool 4194304", 9.0 * kMany, kMany,
        [] { return [a = input({kMany}), b = input({kMany}, 1)] { return lt(a, b); }; });
  s.add("eq i64 into bool 1000003", 17.0 * kOdd, kOdd,
        [] { return [a = indices({kOdd}, 7), b = indices({kOdd}, 5)] { return eq(a, b); }; });
  s.add("logical_and bool 16777216", 3.0 * (1 << 24), 1 << 24, [] {
    return [a = lt(input({1 << 24}), 0.2), b = lt(input({1 << 24}, 1), 0.7)] {
      return logical_and(a, b);
    };
  });
  s.add("clamp f32 4194304", 8.0 * kMany, 2.0 * kMany, [] {
    return [x = input({kMany}), low = scalar(0.1, BP_F32)] { return clamp(x, low, 0.9); };
  });
  s.add("lerp f32 4194304", 12.0 * kMany, 3.0 * kMany,
        [] { return [a = input({kMany}), b = input({kMany}, 1)] { return lerp(a, b, 0.3); }; });
  s.add("lerp bf16 1000003", 6.0 * kOdd, 3.0 * kOdd, [] {
    return
        [a = input({kOdd}, 0, BP_BF16), b = input({kOdd}, 1, BP_BF16)] { return lerp(a, b, 0.3); };
  });
  s.add("addcmul f32 1000003", 16.0 * kOdd, 2.0 * kOdd, [] {
    return [a = input({kOdd}), b = input({kOdd}, 1), c = input({kOdd}, 2)] {
      return addcmul(a, b, c);
    };
  });
  s.add("mul f32 4194304 by a number", 8.0 * kMany, kMany,
        [] { return [x = input({kMany})] { return mul(x, 0.3); }; });
}

void add_strided(Suite& s) {
  s.add("add f32 1000003x3 + 3", 24.0 * kOdd, 3.0 * kOdd, [] {
    return [a = input({kOdd, 3}), b = input({3}, 1)] { return add(a, b); };
  });
  s.add("add f32 1023x1025 + transposed", 12.0 * 1023 * 1025, 1023.0 * 1025, [] {
    return [a = input({1023, 1025}), b = input({1025, 1023}, 1).transpose()] { return add(a, b); };
  });
  s.add("mul f32 every second column", 12.0 * 2048 * 1024, 2048.0 * 1024, [] {
    return [a = input({2048, 2048}).slice(1, 0, 2048, 2), b = input({2048, 1024}, 1)] {
      return mul(a, b);
    };
  });
  s.add("mul bf16 4096x1024 * 4096x1", 4.0 * kMany, kMany, [] {
    return [a = input(kSquare, 0, BP_BF16), b = input({4096, 1}, 1, BP_BF16)] { return mul(a, b); };
  });
}

void add_gradients_and_gates(Suite& s) {
  s.add("silu backward bf16 4194304", 6.0 * kMany, 8.0 * kMany, [] {
    return [g = input({kMany}, 1, BP_BF16), x = input({kMany}, 0, BP_BF16)] {
      return silu_backward(g, x);
    };
  });
  s.add("sigmoid backward f32 4194304", 12.0 * kMany, 3.0 * kMany, [] {
    return [g = input({kMany}, 1), y = sigmoid(input({kMany}))] { return sigmoid_backward(g, y); };
  });
  const Shape wide = {1024, 5504};
  s.add("swiglu bf16 1024x5504", 6 * size_of(wide), 6 * size_of(wide), [=] {
    return [a = input(wide, 0, BP_BF16), b = input(wide, 1, BP_BF16)] { return swiglu(a, b); };
  });
  s.add("geglu f32 1024x5504", 12 * size_of(wide), 9 * size_of(wide),
        [=] { return [a = input(wide), b = input(wide, 1)] { return geglu(a, b); }; });
  s.add_backward("swiglu backward f32 1024x5504", 20 * size_of(wide), 10 * size_of(wide), [=] {
    const Tensor gate = leaf(wide), up = leaf(wide, 1);
    return Recorded{{gate, up}, swiglu(gate, up)};
  });
}

}  // namespace

void add_elementwise(Suite& s) {
  constexpr int64_t kBig = 1 << 24;
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
  add_functions(s);
  add_arithmetic(s);
  add_comparisons_and_ternaries(s);
  add_strided(s);
  add_gradients_and_gates(s);
}

}  // namespace bp::bench
