// Mutants whose numbers are wrong. They compute or change results on the host.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "backplane/ops.h"
#include "conformance/mutants/products.hpp"
#include "registry/tensors/floats.hpp"

namespace bp::mutants {
namespace {

constexpr uint32_t kMatmul[] = {BP_OP_MATMUL};
constexpr uint32_t kCopy[] = {BP_OP_COPY};
constexpr uint32_t kExtremes[] = {BP_OP_MAXIMUM, BP_OP_RELU};
constexpr uint32_t kSoftmax[] = {BP_OP_SOFTMAX};
constexpr uint32_t kLayerNorm[] = {BP_OP_LAYER_NORM};
constexpr uint32_t kExp[] = {BP_OP_EXP};
constexpr uint32_t kScaling[] = {BP_OP_MUL};
constexpr uint32_t kSum[] = {BP_OP_SUM};
constexpr uint32_t kArgmax[] = {BP_OP_ARGMAX};
constexpr uint32_t kGather[] = {BP_OP_GATHER};
constexpr uint32_t kNeg[] = {BP_OP_NEG};
constexpr uint32_t kSgd[] = {BP_OP_SGD_STEP};

// 3: keeps sums of f32 products in bf16, although f32 is declared. Subtle: in f16.
bp_status sum_in_bf16(const Call& call, std::string_view strength, const void* args) {
  const int bits = strength == "subtle" ? 11 : 8;
  return multiply(call, args, [bits](const Terms& terms) { return sum_in_bits(terms, bits); });
}

// 4: rounds operands of f32 products to the 11 bits of TF32, although native products are declared.
bp_status multiply_tf32(const Call& call, std::string_view, const void* args) {
  return multiply(call, args, [](const Terms& terms) { return sum_of_short(terms, 11); });
}

// 5: conversions to a narrower float truncate instead of rounding to nearest even. NaN: those of
// f32 to bf16 cut the payloads of NaN off.
bp_status cut_casts_off(const Call& call, std::string_view strength, const void* args) {
  const auto& frame = *static_cast<const bp_copy_args*>(args);
  if (const bp_status status = call.run(args); status != BP_OK) return status;
  const bp_dtype to = frame.y->dtype, from = frame.x->dtype;
  if (!tensors::is_plain_float(from) || (to != BP_F32 && to != BP_F16 && to != BP_BF16) ||
      from == to) {
    return BP_OK;
  }
  const Values x(call, *frame.x);
  Values y(call, *frame.y);
  const bool cuts_nan = strength == "nan" && from == BP_F32 && to == BP_BF16;
  for (size_t i = 0; i < y.size(); ++i) {
    const bool is_cut = strength.empty() && std::isfinite(x[i]) && std::isfinite(y[i]);
    if (is_cut) y.set_bits(i, to_bits(x[i], to, false));
    if (cuts_nan && std::isnan(x[i])) y.set_bits(i, x.bits(i) >> 16);
  }
  return y.write();
}

// 17: loses NaN: relu gives 0, and the maximum of a number and NaN is the number.
bp_status drop_nan(const Call& call, std::string_view, const void* args) {
  if (const bp_status status = call.run(args); status != BP_OK) return status;
  const bool is_relu = call.wrapped.kernel.op == BP_OP_RELU;
  Values y(call, is_relu ? *static_cast<const bp_relu_args*>(args)->y
                         : *static_cast<const bp_maximum_args*>(args)->y);
  for (size_t i = 0; i < y.size(); ++i) {
    if (std::isnan(y[i])) y.set(i, 0);
  }
  return y.write();
}

// 18: computes softmax without subtracting the maximum. Subtle: it subtracts the maximum of the
// absolute values.
bp_status softmax_without_maximum(const Call& call, std::string_view strength, const void* args) {
  const auto& frame = *static_cast<const bp_softmax_args*>(args);
  const Values x(call, *frame.x);
  if (const bp_status status = call.run(args); status != BP_OK || frame.x->dtype == BP_F64) {
    return status;
  }
  Values y(call, *frame.y);
  size_t inner = 1;
  for (uint32_t i = static_cast<uint32_t>(frame.axis) + 1; i < frame.x->ndim; ++i) {
    inner *= static_cast<size_t>(frame.x->shape[i]);
  }
  const size_t n = frame.x->ndim == 0 ? 1 : static_cast<size_t>(frame.x->shape[frame.axis]);
  for (size_t first = 0; first < y.size(); ++first) {
    if (first / inner % n != 0) continue;  // The element does not begin a line.
    float shift = 0, total = 0;
    for (size_t i = 0; i < n && strength == "subtle"; ++i) {
      shift = std::max(shift, static_cast<float>(std::fabs(x[first + i * inner])));
    }
    const auto term = [&](size_t i) {
      return std::exp(static_cast<float>(x[first + i * inner]) - shift);
    };
    for (size_t i = 0; i < n; ++i) total += term(i);
    for (size_t i = 0; i < n; ++i) y.set(first + i * inner, term(i) / total);
  }
  return y.write();
}

struct Statistics {
  float mean, rstd;
};

// Returns the statistics of one row in f32. "" computes the variance as a difference of means, in
// one pass.
Statistics statistics(const Values& x, size_t first, size_t n, float eps,
                      std::string_view strength) {
  float sum = 0, squares = 0;
  for (size_t i = 0; i < n; ++i) {
    const auto value = static_cast<float>(x[first + i]);
    sum += value;
    squares += value * value;
  }
  const auto count = static_cast<float>(n);
  const float mean = sum / count;
  if (strength.empty()) return {mean, 1 / std::sqrt(squares / count - mean * mean + eps)};
  float spread = 0;
  for (size_t i = 0; i < n; ++i) {
    const float distance = static_cast<float>(x[first + i]) - mean;
    spread += distance * distance;
  }
  if (strength == "eps") return {mean, 1 / (std::sqrt(spread / count) + eps)};
  return {mean, 1 / std::sqrt(spread / std::max(count - 1, 1.0F) + eps)};  // This is the formula of
                                                                           // "unbiased".
}

// 19: computes layer norm with a one-pass variance, with eps outside the root, or with the unbiased
// variance.
bp_status normalize_badly(const Call& call, std::string_view strength, const void* args) {
  const auto& frame = *static_cast<const bp_layer_norm_args*>(args);
  const Values x(call, *frame.x);
  if (const bp_status status = call.run(args); status != BP_OK || frame.x->dtype != BP_F32) {
    return status;
  }
  Values y(call, *frame.y);
  size_t n = 1;
  for (uint32_t i = frame.x->ndim - static_cast<uint32_t>(frame.normalized_ndim); i < frame.x->ndim;
       ++i) {
    n *= static_cast<size_t>(frame.x->shape[i]);
  }
  std::vector<double> gamma(n, 1), beta(n, 0);
  const auto read = [&](const bp_tensor* tensor, std::vector<double>& into) {
    if (tensor == nullptr) return;
    const Values values(call, *tensor);
    for (size_t i = 0; i < n; ++i) into[i] = values[i];
  };
  read(frame.gamma, gamma);
  read(frame.beta, beta);
  for (size_t first = 0; n != 0 && first < y.size(); first += n) {
    const auto [mean, rstd] = statistics(x, first, n, static_cast<float>(frame.eps), strength);
    for (size_t i = 0; i < n; ++i) {
      const float unit = (static_cast<float>(x[first + i]) - mean) * rstd;
      y.set(first + i, static_cast<float>(unit * gamma[i] + beta[i]));
    }
  }
  return y.write();
}

// 20: computes exp with a weak built-in function, whose result is wrong by 2^-18. Gross: by 2^-9.
bp_status weak_exp(const Call& call, std::string_view strength, const void* args) {
  if (const bp_status status = call.run(args); status != BP_OK) return status;
  const auto& frame = *static_cast<const bp_exp_args*>(args);
  if (frame.y->dtype != BP_F32) return BP_OK;
  Values y(call, *frame.y);
  const double factor = 1 + std::ldexp(1, strength == "subtle" ? -18 : -9);
  for (size_t i = 0; i < y.size(); ++i) {
    if (std::isnormal(y[i])) y.set(i, y[i] * factor);
  }
  return y.write();
}

double smallest_normal(bp_dtype dtype) {
  return dtype == BP_F64 ? std::numeric_limits<double>::min()
                         : std::ldexp(1, dtype == BP_F16 ? -14 : -126);
}

bp_status flush(const Call& call, const void* args, bool leaves_tail) {
  if (const bp_status status = call.run(args); status != BP_OK) return status;
  const bp_tensor& tensor = *static_cast<const bp_mul_args*>(args)->y;
  if (!tensors::is_plain_float(tensor.dtype)) return BP_OK;
  Values y(call, tensor);
  const size_t count = leaves_tail ? y.size() - y.size() % 8 : y.size();
  for (size_t i = 0; i < count; ++i) {
    if (y[i] != 0 && std::fabs(y[i]) < smallest_normal(tensor.dtype)) {
      y.set(i, std::copysign(0.0, y[i]));
    }
  }
  return y.write();
}

// 21: flushes subnormal results to zero, although the kernel declares to keep them. Subtle: only in
// whole vectors of 8.
bp_status flush_undeclared(const Call& call, std::string_view strength, const void* args) {
  return flush(call, args, strength == "subtle");
}

// 22: conversions of floats to integers round to the nearest, halves up, instead of dropping the
// fraction. Subtle: conversions of integers to narrower ones saturate instead of wrapping.
bp_status convert_badly(const Call& call, std::string_view strength, const void* args) {
  const auto& frame = *static_cast<const bp_copy_args*>(args);
  const Values x(call, *frame.x);
  if (const bp_status status = call.run(args); status != BP_OK) return status;
  const bp_dtype from = frame.x->dtype, to = frame.y->dtype;
  if (tensors::is_plain_float(to) || to == BP_BOOL ||
      tensors::is_plain_float(from) != strength.empty())
    return BP_OK;
  Values y(call, *frame.y);
  const double most = std::ldexp(1, static_cast<int>(8 * View(*frame.y).item_size_bytes()) - 1) - 1;
  for (size_t i = 0; i < y.size(); ++i) {
    if (strength.empty() && std::fabs(x[i]) < most) y.set(i, std::floor(x[i] + 0.5));
    if (!strength.empty() && to != BP_U8) y.set(i, std::clamp(x[i], -most - 1, most));
  }
  return y.write();
}

// 46: rounds an inline operand to the dtype of x.
bp_status round_operand(const Call& call, std::string_view, const void* args) {
  bp_mul_args frame = *static_cast<const bp_mul_args*>(args);
  const bool is_half = frame.a->dtype == BP_F16;
  if (frame.b != nullptr || frame.b_scalar.dtype != BP_F64) return call.run(args);
  if (!is_half && frame.a->dtype != BP_BF16) return call.run(args);
  const double value = rounded(std::bit_cast<double>(frame.b_scalar.bits), is_half ? 11 : 8);
  frame.b_scalar.bits = std::bit_cast<uint64_t>(value);
  return call.run(&frame);
}

// 48: its kernel says that it knows a link which nobody has, and does not look for it. Hint:
// another link, which may be ignored, changes the result.
bp_status misread_links(const Call& call, std::string_view strength, const void* args) {
  const auto& frame = *static_cast<const bp_neg_args*>(args);
  if (const bp_status status = call.run(args); status != BP_OK) return status;
  if (strength != "hint" || frame.x->next == nullptr) return BP_OK;
  Values y(call, *frame.y);
  for (size_t i = 0; i < y.size(); ++i) y.set(i, y[i] + 1);
  return y.write();
}

// Benign: flushes subnormal results to zero and declares it.
bp_status flush_declared(const Call& call, std::string_view, const void* args) {
  return flush(call, args, false);
}

constexpr bp_numerics kFlushes = {.struct_size = sizeof(bp_numerics),
                                  .struct_type = BP_STRUCT_NUMERICS,
                                  .flush = BP_FLUSH_OUTPUTS};

// Benign: gives NaN another sign and payload.
bp_status other_nan(const Call& call, std::string_view, const void* args) {
  if (const bp_status status = call.run(args); status != BP_OK) return status;
  const bp_tensor& tensor = *static_cast<const bp_mul_args*>(args)->y;
  if (tensor.dtype != BP_F32) return BP_OK;
  Values y(call, tensor);
  for (size_t i = 0; i < y.size(); ++i) {
    if (std::isnan(y[i])) y.set_bits(i, 0xFFC12345);
  }
  return y.write();
}

// Benign: adds pairs of elements first, then pairs of pairs.
bp_status pairwise_sum(const Call& call, std::string_view, const void* args) {
  const auto& frame = *static_cast<const bp_sum_args*>(args);
  if (const bp_status status = call.run(args); status != BP_OK) return status;
  const bool is_total = frame.axes_count == frame.x->ndim;
  if (!is_total || frame.x->dtype != BP_F32 || frame.y->dtype != BP_F32) return BP_OK;
  const Values x(call, *frame.x);
  Values y(call, *frame.y);
  std::vector<float> sums;
  for (size_t i = 0; i < x.size(); ++i) sums.push_back(static_cast<float>(x[i]));
  while (sums.size() > 1) {
    for (size_t i = 0; i < sums.size() / 2; ++i) sums[i] = sums[2 * i] + sums[2 * i + 1];
    if (sums.size() % 2 != 0) sums[sums.size() / 2] = sums.back();
    sums.resize((sums.size() + 1) / 2);
  }
  if (!sums.empty()) y.set(0, sums[0]);
  return y.write();
}

// Benign: if several elements are the largest, gives the index of the last one, and declares that
// any is allowed.
bp_status last_of_ties(const Call& call, std::string_view, const void* args) {
  const auto& frame = *static_cast<const bp_argmax_args*>(args);
  if (const bp_status status = call.run(args); status != BP_OK) return status;
  if (!tensors::is_plain_float(frame.x->dtype)) return BP_OK;  // An i64 may not fit a double.
  const Values x(call, *frame.x);
  Values y(call, *frame.y);
  size_t inner = 1;
  for (uint32_t i = static_cast<uint32_t>(frame.axis) + 1; i < frame.x->ndim; ++i) {
    inner *= static_cast<size_t>(frame.x->shape[i]);
  }
  const size_t n = frame.x->ndim == 0 ? 1 : static_cast<size_t>(frame.x->shape[frame.axis]);
  for (size_t at = 0; at < y.size(); ++at) {
    const size_t first = at / inner * n * inner + at % inner;
    const double largest = x[first + static_cast<size_t>(y[at]) * inner];
    for (size_t i = 0; i < n; ++i) {
      if (x[first + i * inner] == largest) y.set(at, static_cast<double>(i));
    }
  }
  return y.write();
}

// 55: where a gather clamps, gives 0 for an index out of range. Subtle: only behind the end.
bp_status zeros_in_place_of_clamping(const Call& call, std::string_view strength,
                                     const void* args) {
  const auto& frame = *static_cast<const bp_gather_args*>(args);
  if (const bp_status status = call.run(args); status != BP_OK) return status;
  if (frame.bounds != BP_GATHER_BOUNDS_CLAMP) return BP_OK;
  const Values indices(call, *frame.indices);
  Values y(call, *frame.y);
  const int64_t extent = frame.x->ndim == 0 ? 1 : frame.x->shape[frame.axis];
  for (size_t i = 0; i < y.size(); ++i) {
    const bool is_before = indices[i] < 0 && strength != "subtle";
    if (is_before || indices[i] >= static_cast<double>(extent)) y.set(i, 0);
  }
  return y.write();
}

// 60: reads the rate of a step as an f64, also where its tensor holds an f32.
bp_status misread_rate(const Call& call, std::string_view, const void* args) {
  auto frame = *static_cast<const bp_sgd_step_args*>(args);
  if (frame.lr == nullptr) return call.run(args);
  bp_tensor rate = *frame.lr;
  rate.dtype = BP_F64;
  frame.lr = &rate;
  return call.run(&frame);
}

constexpr bp_numerics kAnyTie = {
    .struct_size = sizeof(bp_numerics), .struct_type = BP_STRUCT_NUMERICS, .tie = BP_TIE_ANY};

constexpr Mutant kTable[] = {
    {"3", kMatmul, sum_in_bf16},
    {"4", kMatmul, multiply_tf32},
    {"5", kCopy, cut_casts_off},
    {"17", kExtremes, drop_nan},
    {"18", kSoftmax, softmax_without_maximum},
    {"19", kLayerNorm, normalize_badly},
    {"20", kExp, weak_exp},
    {"21", kScaling, flush_undeclared},
    {"22", kCopy, convert_badly},
    {"46", kScaling, round_operand},
    {"55", kGather, zeros_in_place_of_clamping},
    {"60", kSgd, misread_rate},
    {.id = "48", .ops = kNeg, .launch = misread_links, .link_type = 0x7fff0000},
    {.id = "benign_flush_declared",
     .ops = kScaling,
     .launch = flush_declared,
     .numerics = &kFlushes},
    {"benign_other_nan", kScaling, other_nan},
    {"benign_pairwise_sum", kSum, pairwise_sum},
    {.id = "benign_any_tie", .ops = kArgmax, .launch = last_of_ties, .numerics = &kAnyTie},
};

}  // namespace

std::span<const Mutant> arithmetic_mutants() { return kTable; }

}  // namespace bp::mutants
