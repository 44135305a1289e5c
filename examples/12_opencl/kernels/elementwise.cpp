// Ops on elements: unary, binary, their gradients, comparisons, where, lerp, fill and copies. Each
// is an expression in OpenCL C.
#include <string>

#include "backplane/shell/scalar.hpp"
#include "kernels/kernels.hpp"

namespace acme_opencl {
namespace {

// A program of one op. `value` is an expression of a, b and c.
std::string source_of(const char* helpers, const char* value, bp_dtype y, const bp_tensor* a,
                      const bp_tensor* b, const bp_tensor* c) {
  const auto dtype = [](const bp_tensor* t, bp_dtype other) {
    return t == nullptr ? other : t->dtype;
  };
  const bp_dtype first = dtype(a, y);
  std::string text =
      prelude({{"Y", y}, {"A", first}, {"B", dtype(b, first)}, {"C", dtype(c, first)}});
  return text + helpers + R"(
kernel void elementwise(Grid grid, global Y_T* to, global const A_T* from_a,
                        global const B_T* from_b, global const C_T* from_c, A_A scalar) {
  const long i = get_global_id(0);
  if (i >= grid.count) return;
  const A_A a = A_LOAD(from_a, place(&grid, i, 1));
  const B_A b = )" +
         (b == nullptr ? "scalar" : "B_LOAD(from_b, place(&grid, i, 2))") + R"(;
  const C_A c = )" +
         (c == nullptr ? "scalar" : "C_LOAD(from_c, place(&grid, i, 3))") + R"(;
  Y_STORE(to, place(&grid, i, 0), )" +
         value + ");\n}\n";
}

// The operands of one call.
struct Operands {
  const bp_tensor *y, *a, *b = nullptr, *c = nullptr;
  const bp_scalar* scalar = nullptr;
};

bp_status submit(const Operands& o, const char* helpers, const char* value, Launch& launch) {
  const Grid grid = grid_of({o.y, o.a, o.b, o.c});
  Call call(source_of(helpers, value, o.y->dtype, o.a, o.b, o.c), "elementwise");
  const auto place = [](const bp_tensor* t) { return t == nullptr ? Place{} : Launch::place(*t); };
  call.value(grid).buffer(place(o.y)).buffer(place(o.a)).buffer(place(o.b)).buffer(place(o.c));
  const uint64_t bits = o.scalar == nullptr ? 0 : bp::convert_operand(*o.scalar, o.a->dtype);
  if (bp::acc_dtype(o.a->dtype) == BP_F32) {
    call.value(static_cast<uint32_t>(bits));
  } else {
    call.value(bits);
  }
  return launch.submit([call = call.over(grid.count)](CommandQueue& queue) { queue.run(call); });
}

// ---- Expressions --------------------------------------------------------------------------------

constexpr const char* kHelpers = R"(
float sigmoid_of(float x) { return 1.0f / (1.0f + exp(-x)); }
// Far below 0, exp(-x) overflows before the result is 0, and exp(x) has few bits.
float silu_of(float x) {
  if (x == -INFINITY) return -0.0f;
  if (x > -80.0f) return x / (1.0f + exp(-x));
  const float root = exp(0.5f * x);
  return x * root * root;
}
float gelu_of(float x) {
  return x == -INFINITY ? -0.0f : 0.5f * x * erfc(-x * 0.70710678118654752f);
}
float gelu_tanh_of(float x) {
  if (x == -INFINITY) return -0.0f;
  return x * sigmoid_of(1.5957691216057308f * (x + 0.044715f * x * x * x));
}
float gelu_slope(float x) {
  return 0.5f * erfc(-x * 0.70710678118654752f) + x * 0.39894228040143268f * exp(-0.5f * x * x);
}
float gelu_tanh_slope(float x) {
  const float u = 0.79788456080286536f * (x + 0.044715f * x * x * x);
  // 1 - tanh(u)^2 cancels far from 0, so e gives both.
  const float e = exp(-2.0f * fabs(u)), rest = 4.0f * e / ((1.0f + e) * (1.0f + e));
  const float t = copysign((1.0f - e) / (1.0f + e), u);
  const float slope = 0.79788456080286536f * (1.0f + 0.134145f * x * x);
  return 0.5f * (1.0f + t) + (rest == 0.0f ? 0.0f : 0.5f * x * rest * slope);
}
float silu_grad(float grad, float x) {
  if (x > -80.0f) return grad * sigmoid_of(x) * (1.0f + x * sigmoid_of(-x));
  const float root = exp(0.5f * x);
  return grad * root * (1.0f + x) * root;
}
float mish_of(float x) { return x == -INFINITY ? -0.0f : x * tanh(log1p(exp(x))); }
// With e of exp(-|x|), no step loses digits: 1 - t * t would, where t is nearly 1.
float mish_slope(float x) {
  const float root = exp(-0.5f * fabs(x)), e = root * root;
  const bool is_negative = signbit(x) != 0;
  const float part = is_negative ? root : 1.0f, tail = is_negative ? 1.0f : e * e;
  const float upper = is_negative ? e + 2.0f : fma(e, 2.0f, 1.0f);
  const float lower = is_negative ? fma(e, e + 2.0f, 2.0f) : fma(e + e, e + 1.0f, 1.0f);
  const float bend = part * tail * (e + 1.0f) * 4.0f / (lower * lower);
  return part * fma(x, bend, part * upper / lower);
}
)";

// A string as a template argument.
template <size_t kSize>
struct Text {
  constexpr Text(const char (&text)[kSize]) { std::copy_n(text, kSize, value); }  // NOLINT
  char value[kSize];
};

template <typename Args, Text kValue>
bp_status unary(const Args& args, Launch& launch) {
  return submit({args.y, args.x}, kHelpers, kValue.value, launch);
}

template <typename Args, Text kValue>
bp_status binary(const Args& args, Launch& launch) {
  const bp_scalar* const scalar = args.b == nullptr ? &args.b_scalar : nullptr;
  return submit({args.y, args.a, args.b, nullptr, scalar}, "", kValue.value, launch);
}

// A gradient of grad_y and of what the member names.
template <typename Args, const bp_tensor* Args::*kOther, Text kValue>
bp_status gradient(const Args& args, Launch& launch) {
  return submit({args.grad_x, args.grad_y, args.*kOther}, kHelpers, kValue.value, launch);
}

bp_status gelu(const bp_gelu_args& args, Launch& launch) {
  const bool is_exact = args.approximation == BP_GELU_APPROXIMATION_NONE;
  return submit({args.y, args.x}, kHelpers, is_exact ? "gelu_of(a)" : "gelu_tanh_of(a)", launch);
}

bp_status gelu_backward(const bp_gelu_backward_args& args, Launch& launch) {
  const bool is_exact = args.approximation == BP_GELU_BACKWARD_APPROXIMATION_NONE;
  return submit({args.grad_x, args.grad_y, args.x}, kHelpers,
                is_exact ? "a * gelu_slope(b)" : "a * gelu_tanh_slope(b)", launch);
}

bp_status where(const bp_where_args& args, Launch& launch) {
  return submit({args.y, args.a, args.b, args.condition}, "", "c != 0 ? a : b", launch);
}

bp_status lerp(const bp_lerp_args& args, Launch& launch) {
  const bp_scalar* const scalar = args.weight == nullptr ? &args.weight_scalar : nullptr;
  return submit({args.y, args.a, args.b, args.weight, scalar}, "",
                "c < 0.5f ? fma(c, b - a, a) : fma(c - 1.0f, b - a, b)", launch);
}

// ---- Moved elements -----------------------------------------------------------------------------

bp_status copy(const bp_copy_args& args, Launch& launch) {
  const bool is_bool = args.y->dtype == BP_BOOL;
  return submit({args.y, args.x}, "", is_bool ? "a != 0" : "a", launch);
}

bp_status fill(const bp_fill_args& args, Launch& launch) {
  const Grid grid = grid_of({args.y, nullptr});
  const bp_dtype dtype = args.y->dtype;
  // The bits of a float are moved as an integer, because not every device has arithmetic of it.
  bp_dtype moved = dtype;
  if (dtype == BP_F16) moved = BP_I16;
  if (dtype == BP_F64) moved = BP_I64;
  Grid from = grid_at({nullptr, args.value});
  Call call(prelude({{"Y", moved}}) + R"(
kernel void fill_all(Grid grid, Grid from, global Y_T* to, global const Y_T* value, ulong bits) {
  const long i = get_global_id(0);
  if (i >= grid.count) return;
  if (from.reserved != 0) to[place(&grid, i, 0)] = ((Y_T*)&bits)[0];
  else to[place(&grid, i, 0)] = value[from.offset[1]];
})",
            "fill_all");
  const bool is_scalar = args.value == nullptr;
  from.reserved = is_scalar ? 1 : 0;
  const uint64_t bits = is_scalar ? bp::convert_scalar(args.value_scalar, dtype) : 0;
  call.value(grid)
      .value(from)
      .buffer(Launch::place(*args.y))
      .buffer(is_scalar ? Place{} : Launch::place(*args.value))
      .value(bits);
  return launch.submit([call = call.over(grid.count)](CommandQueue& queue) { queue.run(call); });
}

// A float of 16 bits takes floats alone, because f32 between it and an integer would round twice.
constexpr bp_dtype kCopied[] = {
    BP_F32,  BP_F32,  BP_F32, BP_F16, BP_F32,  BP_BF16, BP_F32,  BP_I64,  BP_F32,  BP_I32,
    BP_F32,  BP_BOOL, BP_F16, BP_F32, BP_BF16, BP_F32,  BP_F16,  BP_BF16, BP_BF16, BP_F16,
    BP_F16,  BP_F16,  BP_I64, BP_F32, BP_I64,  BP_I64,  BP_I64,  BP_I32,  BP_I64,  BP_BOOL,
    BP_I32,  BP_F32,  BP_I32, BP_I64, BP_I32,  BP_I32,  BP_BOOL, BP_F32,  BP_BOOL, BP_I64,
    BP_U8,   BP_F32,  BP_U8,  BP_U8,  BP_U8,   BP_I64,  BP_I8,   BP_F32,  BP_BOOL, BP_BOOL,
    BP_BOOL, BP_I32,  BP_I8,  BP_I64, BP_I16,  BP_F32,  BP_I16,  BP_I64,  BP_BF16, BP_BF16};

constexpr bp_dtype kCompared[] = {BP_F32, BP_F16, BP_BF16, BP_I64, BP_I32,
                                  BP_I16, BP_I8,  BP_U8,   BP_BOOL};
constexpr bp_dtype kAdded[] = {BP_F32, BP_F16, BP_BF16, BP_I64, BP_I32, BP_I16, BP_I8, BP_U8};

constexpr bp_kernel row(const char* name, uint32_t op, bp::DtypeRows dtypes,
                        bp_kernel_flags flags) {
  return bp::kernel_row(name, op, dtypes, flags);
}

constexpr bp_kernel_flags kOperand =
    BP_KERNEL_IN_PLACE | BP_KERNEL_TAKES_SCALAR | BP_KERNEL_TAKES_ACC_OPERAND;
constexpr bp_kernel_flags kComparison = BP_KERNEL_TAKES_SCALAR | BP_KERNEL_TAKES_ACC_OPERAND;

}  // namespace

#define ACME_UNARY(Name, name, NAME, expression)                          \
  constinit const bp_kernel k##Name =                                     \
      make_kernel<bp_##name##_args, unary<bp_##name##_args, expression>>( \
          row(#name, BP_OP_##NAME, kFloats, BP_KERNEL_IN_PLACE));
ACME_UNARY(Neg, neg, NEG, "-a")
ACME_UNARY(Exp, exp, EXP, "exp(a)")
ACME_UNARY(Log, log, LOG, "log(a)")
ACME_UNARY(Sqrt, sqrt, SQRT, "sqrt(a)")
ACME_UNARY(Relu, relu, RELU, "a < 0.0f ? 0.0f : a")
ACME_UNARY(Abs, abs, ABS, "fabs(a)")
ACME_UNARY(Tanh, tanh, TANH, "tanh(a)")
ACME_UNARY(Sigmoid, sigmoid, SIGMOID, "sigmoid_of(a)")
ACME_UNARY(Silu, silu, SILU, "silu_of(a)")
ACME_UNARY(Mish, mish, MISH, "mish_of(a)")
#undef ACME_UNARY

constinit const bp_kernel kGelu =
    make_kernel<bp_gelu_args, gelu>(row("gelu", BP_OP_GELU, kFloats, BP_KERNEL_IN_PLACE));
constinit const bp_kernel kGeluBackward = make_kernel<bp_gelu_backward_args, gelu_backward>(
    row("gelu_backward", BP_OP_GELU_BACKWARD, kFloats, BP_KERNEL_IN_PLACE));

#define ACME_GRADIENT(Name, name, NAME, other, expression)                                 \
  constinit const bp_kernel k##Name##Backward = make_kernel<                               \
      bp_##name##_backward_args,                                                           \
      gradient<bp_##name##_backward_args, &bp_##name##_backward_args::other, expression>>( \
      row(#name "_backward", BP_OP_##NAME##_BACKWARD, kFloats, BP_KERNEL_IN_PLACE));
ACME_GRADIENT(Relu, relu, RELU, y, "b <= 0.0f ? 0.0f : a")
ACME_GRADIENT(Tanh, tanh, TANH, y, "a * (1.0f - b * b)")
ACME_GRADIENT(Sigmoid, sigmoid, SIGMOID, y, "a * b * (1.0f - b)")
ACME_GRADIENT(Silu, silu, SILU, x, "silu_grad(a, b)")
ACME_GRADIENT(Mish, mish, MISH, x, "a * mish_slope(b)")
#undef ACME_GRADIENT

#define ACME_BINARY(Name, name, NAME, dtypes, flags, expression)           \
  constinit const bp_kernel k##Name =                                      \
      make_kernel<bp_##name##_args, binary<bp_##name##_args, expression>>( \
          row(#name, BP_OP_##NAME, dtypes, flags));
ACME_BINARY(Add, add, ADD, kAdded, kOperand, "a + b")
ACME_BINARY(Sub, sub, SUB, kAdded, kOperand, "a - b")
ACME_BINARY(Mul, mul, MUL, kAdded, kOperand, "a * b")
ACME_BINARY(Div, div, DIV, kFloats, kOperand, "a / b")
ACME_BINARY(Maximum, maximum, MAXIMUM, kCompared, kOperand, "a != a || a > b ? a : b")
ACME_BINARY(Minimum, minimum, MINIMUM, kCompared, kOperand, "a != a || a < b ? a : b")
ACME_BINARY(Eq, eq, EQ, kCompared, kComparison, "a == b")
ACME_BINARY(Lt, lt, LT, kCompared, kComparison, "a < b")
#undef ACME_BINARY

constinit const bp_kernel kWhere =
    make_kernel<bp_where_args, where>(row("where", BP_OP_WHERE, kFloats, BP_KERNEL_IN_PLACE));
constinit const bp_kernel kLerp =
    make_kernel<bp_lerp_args, lerp>(row("lerp", BP_OP_LERP, kFloats, kOperand));
constinit const bp_kernel kCopy =
    make_kernel<bp_copy_args, copy>(row("copy", BP_OP_COPY, {kCopied, 2}, 0));
constinit const bp_kernel kFill = make_kernel<bp_fill_args, fill>(
    row("fill", BP_OP_FILL, bp::kAnyDtypes, BP_KERNEL_TAKES_SCALAR));

}  // namespace acme_opencl
