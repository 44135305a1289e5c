// Benign variants of arithmetic: right backends that compute f32 in another order, more exactly, or
// less exactly as they declare. No case may fail on them.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "backplane/ops.h"
#include "conformance/mutants/lines.hpp"
#include "conformance/mutants/products.hpp"

namespace bp::mutants {
namespace {

constexpr uint32_t kMatmul[] = {BP_OP_MATMUL};
constexpr uint32_t kMul[] = {BP_OP_MUL};
constexpr uint32_t kMean[] = {BP_OP_MEAN};
constexpr uint32_t kSoftmax[] = {BP_OP_SOFTMAX};
constexpr uint32_t kLayerNorm[] = {BP_OP_LAYER_NORM};
constexpr uint32_t kExp[] = {BP_OP_EXP};
constexpr uint32_t kFunctions[] = {BP_OP_EXP,  BP_OP_LOG,     BP_OP_TANH,
                                   BP_OP_SQRT, BP_OP_SIGMOID, BP_OP_SILU};

// What is computed on the host cannot be captured.
void drop_capture(bp_kernel& kernel) { kernel.flags &= ~uint32_t{BP_KERNEL_CAPTURABLE}; }

// ---- Products -----------------------------------------------------------------------------------

// Four parts of K are summed apart, as threads do, and then together.
bp_status split_k(const Call& call, std::string_view, const void* args) {
  return multiply(call, args, [](const Terms& terms) {
    float total = 0;
    for (size_t part = 0; part < 4; ++part) {
      float sum = 0;
      for (size_t i = terms.count * part / 4; i < terms.count * (part + 1) / 4; ++i) {
        sum += terms.left(i) * terms.right(i);
      }
      total += sum;
    }
    return total;
  });
}

bp_status reverse_k(const Call& call, std::string_view, const void* args) {
  return multiply(call, args, [](const Terms& terms) {
    float sum = 0;
    for (size_t i = terms.count; i-- > 0;) sum += terms.left(i) * terms.right(i);
    return sum;
  });
}

bp_status fused_k(const Call& call, std::string_view, const void* args) {
  return multiply(call, args, [](const Terms& terms) {
    float sum = 0;
    for (size_t i = 0; i < terms.count; ++i) sum = std::fma(terms.left(i), terms.right(i), sum);
    return sum;
  });
}

bp_status wide_k(const Call& call, std::string_view, const void* args) {
  return multiply(call, args, [](const Terms& terms) {
    double sum = 0;
    for (size_t i = 0; i < terms.count; ++i) {
      sum += static_cast<double>(terms.left(i)) * terms.right(i);
    }
    return sum;
  });
}

template <int bits>
bp_status short_sums(const Call& call, std::string_view, const void* args) {
  return multiply(call, args, [](const Terms& terms) { return sum_in_bits(terms, bits); });
}

template <int bits>
bp_status short_operands(const Call& call, std::string_view, const void* args) {
  return multiply(call, args, [](const Terms& terms) { return sum_of_short(terms, bits); });
}

// Makes a product of three products of bf16.
bp_status three_products(const Call& call, std::string_view, const void* args) {
  return multiply(call, args, [](const Terms& terms) {
    float sum = 0;
    for (size_t i = 0; i < terms.count; ++i) {
      const double a = terms.left(i), b = terms.right(i);
      const double large_a = rounded(a, 8), large_b = rounded(b, 8);
      const double small_a = rounded(a - large_a, 8), small_b = rounded(b - large_b, 8);
      sum += static_cast<float>(large_a * small_b);
      sum += static_cast<float>(small_a * large_b);
      sum += static_cast<float>(large_a * large_b);
    }
    return sum;
  });
}

// ---- Functions ----------------------------------------------------------------------------------

// Computes y from x, element by element, if both are f32.
template <typename Frame, typename Function>
bp_status map(const Call& call, const void* args, Function function) {
  const auto& frame = *static_cast<const Frame*>(args);
  if (!are_f32({frame.x, frame.y})) return call.run(args);
  const Values x(call, *frame.x);
  Values y(call, *frame.y);
  if (x.status() != BP_OK) return x.status();
  if (y.status() != BP_OK) return y.status();
  for (size_t i = 0; i < y.size(); ++i) y.set(i, function(x[i]));
  return y.write();
}

double exact(uint32_t op, double x) {
  if (op == BP_OP_EXP) return std::exp(x);
  if (op == BP_OP_LOG) return std::log(x);
  if (op == BP_OP_TANH) return std::tanh(x);
  if (op == BP_OP_SQRT) return std::sqrt(x);
  if (op == BP_OP_SIGMOID) return 1 / (1 + std::exp(-x));
  return x == -HUGE_VAL ? -0.0 : x / (1 + std::exp(-x));
}

// Computes elementary functions in f64. All these ops have the same frame.
bp_status exact_functions(const Call& call, std::string_view, const void* args) {
  const uint32_t op = call.wrapped.kernel.op;
  return map<bp_exp_args>(call, args, [op](double x) { return exact(op, x); });
}

// As exact as SPIR-V asks for: 3 + 2 abs(x) units in the last place.
bp_status relaxed_exp(const Call& call, std::string_view, const void* args) {
  return map<bp_exp_args>(call, args, [](double x) {
    const double y = std::exp(x);
    const bool is_normal = y > std::numeric_limits<float>::min() * 2 && std::isfinite(y);
    return is_normal ? y * (1 + (1 + std::fabs(x)) * 0x1p-24) : y;
  });
}

bp_status truncate_products(const Call& call, std::string_view, const void* args) {
  const auto& frame = *static_cast<const bp_mul_args*>(args);
  if (frame.b == nullptr || !are_f32({frame.a, frame.b, frame.y})) return call.run(args);
  const Values a(call, *frame.a), b(call, *frame.b);
  Values y(call, *frame.y);
  const bp_status read = first_failure({&a, &b, &y});
  if (read != BP_OK) return read;
  for (size_t i = 0; i < y.size(); ++i) {
    const double product = a[i] * b[i];
    auto result = static_cast<float>(product);
    const bool is_inexact = std::isfinite(result) && std::fabs(result) > std::fabs(product);
    y.set(i, is_inexact ? std::nextafter(result, 0.0F) : result);
  }
  return y.write();
}

bp_status saturate_products(const Call& call, std::string_view, const void* args) {
  const auto& frame = *static_cast<const bp_mul_args*>(args);
  if (frame.b == nullptr || !are_f32({frame.a, frame.b, frame.y})) return call.run(args);
  const Values a(call, *frame.a), b(call, *frame.b);
  if (const bp_status status = call.run(args); status != BP_OK) return status;
  Values y(call, *frame.y);
  for (size_t i = 0; i < y.size(); ++i) {
    const bool is_overflow = std::isinf(y[i]) && std::isfinite(a[i]) && std::isfinite(b[i]);
    if (is_overflow) y.set(i, std::copysign(std::numeric_limits<float>::max(), y[i]));
  }
  return y.write();
}

// ---- Rows ---------------------------------------------------------------------------------------

template <typename Function>
bp_status normalize_lines(const Call& call, const void* args, Function function) {
  const auto& frame = *static_cast<const bp_softmax_args*>(args);
  if (!are_f32({frame.x, frame.y})) return call.run(args);
  const Values x(call, *frame.x);
  Values y(call, *frame.y);
  if (x.status() != BP_OK) return x.status();
  if (y.status() != BP_OK) return y.status();
  for_each_line(x, *frame.x, frame.axis, [&](const Line& line) { function(line, y); });
  return y.write();
}

// Finds maximum and sum in one pass: the sum is scaled when the maximum grows.
bp_status online_softmax(const Call& call, std::string_view, const void* args) {
  return normalize_lines(call, args, [](const Line& line, Values& y) {
    float largest = -HUGE_VALF;
    double total = 0;
    for (size_t i = 0; i < line.count; ++i) {
      if (line[i] == -HUGE_VALF) continue;
      const float next = std::isnan(line[i]) ? line[i] : std::max(largest, line[i]);
      if (next != largest) total *= std::exp(largest - next);
      largest = next;
      total += std::exp(line[i] - largest);
    }
    for (size_t i = 0; i < line.count; ++i) {
      y.set(line.first + i * line.step, std::exp(line[i] - largest) / static_cast<float>(total));
    }
  });
}

// Computes exponentials by exp2, and multiplies by the reciprocal of the sum.
bp_status exp2_softmax(const Call& call, std::string_view, const void* args) {
  return normalize_lines(call, args, [](const Line& line, Values& y) {
    constexpr float kLog2E = 1.44269504F;
    float largest = line[0];
    double total = 0;
    for (size_t i = 1; i < line.count; ++i) {
      if (!(line[i] <= largest)) largest = line[i];
      if (std::isnan(largest)) break;
    }
    for (size_t i = 0; i < line.count; ++i) total += std::exp2((line[i] - largest) * kLog2E);
    const float scale = 1 / static_cast<float>(total);
    for (size_t i = 0; i < line.count; ++i) {
      y.set(line.first + i * line.step, std::exp2((line[i] - largest) * kLog2E) * scale);
    }
  });
}

// The mean and the variance by Welford's updates.
bp_status welford(const Call& call, std::string_view, const void* args) {
  const auto& frame = *static_cast<const bp_layer_norm_args*>(args);
  const bool is_plain = frame.gamma == nullptr && frame.beta == nullptr && frame.mean == nullptr &&
                        frame.rstd == nullptr;
  if (!is_plain || !are_f32({frame.x, frame.y})) return call.run(args);
  const Values x(call, *frame.x);
  Values y(call, *frame.y);
  if (x.status() != BP_OK) return x.status();
  if (y.status() != BP_OK) return y.status();
  size_t n = 1;
  for (uint32_t i = frame.x->ndim - static_cast<uint32_t>(frame.normalized_ndim); i < frame.x->ndim;
       ++i) {
    n *= static_cast<size_t>(frame.x->shape[i]);
  }
  for (size_t first = 0; n != 0 && first < x.size(); first += n) {
    const Line line{x, first, 1, n};
    float mean = 0, spread = 0;
    for (size_t i = 0; i < n; ++i) {
      const float distance = line[i] - mean;
      mean += distance / static_cast<float>(i + 1);
      spread += distance * (line[i] - mean);
    }
    const float rstd =
        1 / std::sqrt(spread / static_cast<float>(n) + static_cast<float>(frame.eps));
    for (size_t i = 0; i < n; ++i) y.set(first + i, (line[i] - mean) * rstd);
  }
  return y.write();
}

// Multiplies the sum by the reciprocal of the count.
bp_status reciprocal_mean(const Call& call, std::string_view, const void* args) {
  const auto& frame = *static_cast<const bp_mean_args*>(args);
  if (!are_f32({frame.x, frame.y}) || frame.axes_count != frame.x->ndim) return call.run(args);
  const Values x(call, *frame.x);
  Values y(call, *frame.y);
  if (x.status() != BP_OK) return x.status();
  if (y.status() != BP_OK) return y.status();
  if (x.size() == 0) return call.run(args);
  float sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += static_cast<float>(x[i]);
  y.set(0, sum * (1 / static_cast<float>(x.size())));
  return y.write();
}

// ---- Declarations -------------------------------------------------------------------------------

constexpr bp_numerics declared(uint32_t products, bp_dtype accumulator, uint32_t bits) {
  return {.struct_size = sizeof(bp_numerics),
          .struct_type = BP_STRUCT_NUMERICS,
          .accumulator = accumulator,
          .accumulator_bits = bits,
          .products = products};
}
constexpr bp_numerics kTf32 = declared(BP_PRODUCTS_TF32, 0, 0);
constexpr bp_numerics kBf16 = declared(BP_PRODUCTS_BF16, 0, 0);
constexpr bp_numerics kBf16x3 = declared(BP_PRODUCTS_BF16X3, 0, 0);
constexpr bp_numerics kF16Sums = declared(BP_PRODUCTS_NATIVE, BP_F16, 0);
constexpr bp_numerics k13Bits = declared(BP_PRODUCTS_NATIVE, BP_F32, 13);
constexpr bp_numerics kFaithful = {.struct_size = sizeof(bp_numerics),
                                   .struct_type = BP_STRUCT_NUMERICS,
                                   .rounding = BP_ROUNDING_FAITHFUL};
constexpr bp_numerics kSaturating = {.struct_size = sizeof(bp_numerics),
                                     .struct_type = BP_STRUCT_NUMERICS,
                                     .overflow = BP_OVERFLOW_SATURATE};
constexpr bp_numerics kRelaxed = {
    .struct_size = sizeof(bp_numerics), .struct_type = BP_STRUCT_NUMERICS, .math = BP_MATH_RELAXED};

constexpr Mutant variant(std::string_view id, std::span<const uint32_t> ops,
                         bp_status (*launch)(const Call&, std::string_view, const void*),
                         const bp_numerics* numerics = nullptr) {
  return {.id = id, .ops = ops, .launch = launch, .numerics = numerics, .declare = drop_capture};
}

constexpr Mutant kTable[] = {
    variant("benign_split_k", kMatmul, split_k),
    variant("benign_reverse_k", kMatmul, reverse_k),
    variant("benign_fused_k", kMatmul, fused_k),
    variant("benign_wide_k", kMatmul, wide_k),
    variant("benign_f16_sums", kMatmul, short_sums<11>, &kF16Sums),
    variant("benign_13_bits", kMatmul, short_sums<13>, &k13Bits),
    variant("benign_tf32", kMatmul, short_operands<11>, &kTf32),
    variant("benign_bf16", kMatmul, short_operands<8>, &kBf16),
    variant("benign_bf16x3", kMatmul, three_products, &kBf16x3),
    variant("benign_exact_functions", kFunctions, exact_functions),
    variant("benign_relaxed_exp", kExp, relaxed_exp, &kRelaxed),
    variant("benign_faithful", kMul, truncate_products, &kFaithful),
    variant("benign_saturating", kMul, saturate_products, &kSaturating),
    variant("benign_online_softmax", kSoftmax, online_softmax),
    variant("benign_exp2_softmax", kSoftmax, exp2_softmax, &kRelaxed),
    variant("benign_welford", kLayerNorm, welford),
    variant("benign_reciprocal_mean", kMean, reciprocal_mean),
};

}  // namespace

std::span<const Mutant> benign_algorithms() { return kTable; }

}  // namespace bp::mutants
