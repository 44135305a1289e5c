// Probes of accumulators and of products, through the ops that add up products.
//
// The width of an accumulator is that of the sums that it holds exactly. To probe b bits, large
// numbers add up to 2^(b-1), small odd numbers follow, and then the large numbers are subtracted
// again. Lanes and blocks that sum a part each see the same order.
#include <algorithm>
#include <cmath>

#include "conformance/cases/rules/declarations.hpp"

namespace bp::conformance {
namespace {

// Describes how an op adds up `terms` products in each of its outputs; the terms are single factors
// if it has no second one.
struct SumOp {
  uint32_t op;
  std::string_view values, factors;  // The terms lie along the last axis, or along one that only
                                     // axes of extent 1 follow.
  bool is_mean;
  OpCase (*make)(bp_dtype dtype, int64_t terms);
};

constexpr int64_t kOutputs = 4;

OpCase make_matmul(bp_dtype dtype, int64_t terms) {
  OpCase row = make_case(BP_OP_MATMUL, dtype, "", "", "dense");
  row.input("a", dtype, {kOutputs, terms}, {}).input("b", dtype, {terms, kOutputs}, {});
  row.output("y", dtype, {kOutputs, kOutputs});
  return row;
}

OpCase make_linear(bp_dtype dtype, int64_t terms) {
  OpCase row = make_case(BP_OP_LINEAR, dtype, "", "", "dense");
  row.input("x", dtype, {kOutputs, terms}, {}).input("weight", dtype, {kOutputs, terms}, {});
  row.output("y", dtype, {kOutputs, kOutputs});
  row.set("activation", int64_t{BP_LINEAR_ACTIVATION_NONE});
  return row;
}

OpCase make_reduction(uint32_t op, bp_dtype dtype, int64_t terms) {
  OpCase row = make_case(op, dtype, "", "", "dense");
  row.input("x", dtype, {kOutputs, terms}, {}).output("y", dtype, {kOutputs});
  row.set("axes", Shape{1}).set("keepdims", int64_t{0});
  return row;
}
OpCase make_sum(bp_dtype dtype, int64_t terms) { return make_reduction(BP_OP_SUM, dtype, terms); }
OpCase make_mean(bp_dtype dtype, int64_t terms) { return make_reduction(BP_OP_MEAN, dtype, terms); }

// A convolution with a kernel of one element adds up channels.
OpCase make_convolution(bp_dtype dtype, int64_t terms) {
  OpCase row = make_case(BP_OP_CONVOLUTION, dtype, "", "", "dense");
  row.input("x", dtype, {kOutputs, terms, 1, 1}, {});
  row.input("weight", dtype, {kOutputs, terms, 1, 1}, {});
  row.output("y", dtype, {kOutputs, kOutputs, 1, 1});
  row.set("stride", Shape{1, 1}).set("padding", Shape{0, 0, 0, 0});
  row.set("dilation", Shape{1, 1}).set("groups", int64_t{1});
  return row;
}

constexpr SumOp kSumOps[] = {
    {BP_OP_MATMUL, "a", "b", false, make_matmul},
    {BP_OP_LINEAR, "x", "weight", false, make_linear},
    {BP_OP_SUM, "x", "", false, make_sum},
    {BP_OP_MEAN, "x", "", true, make_mean},
    {BP_OP_CONVOLUTION, "x", "weight", false, make_convolution},
};

const SumOp& sum_op(const OpCase& row) { return *std::ranges::find(kSumOps, row.op, &SumOp::op); }

void fill_with(CallData& data, std::string_view name, const std::vector<double>& line) {
  HostTensor& tensor = data.tensor(name);
  for (size_t i = 0; i < tensor.data.size(); ++i) tensor.data[i] = line[i % line.size()];
}

// ---- acc --------------------------------------------------------------------------------------

constexpr int64_t kTerms = 256;  // A power of 2, so that a mean is exact too.

// Returns the k-th term of a sum that needs `bits` bits: the first quarter of the terms is large,
// and the last quarter subtracts it again.
double term(int bits, int64_t k) {
  const double large = std::ldexp(1.0, bits - 7);  // kTerms / 4 of these add up to 2^(bits - 1).
  if (k < kTerms / 4) return large;
  if (k >= 3 * kTerms / 4) return -large;
  // The terms that are not zero are odd, and so is their number.
  return k == kTerms / 4 ? 0 : k % 4 < 2 ? 1 : -1;
}

// If there is a second factor, each large term is a product of two powers of 2.
void set_terms(CallData& data, const SumOp& op, int bits) {
  const bool has_factor = !op.factors.empty();
  const int shift = has_factor ? (bits - 7) / 2 : 0;
  HostTensor& values = data.tensor(op.values);
  for (int64_t i = 0; i < static_cast<int64_t>(values.data.size()); ++i) {
    const double whole = term(bits, i % kTerms);
    const bool is_large = i % kTerms < kTerms / 4 || i % kTerms >= 3 * kTerms / 4;
    values.data[static_cast<size_t>(i)] = is_large ? std::ldexp(whole, -shift) : whole;
  }
  if (!has_factor) return;
  HostTensor& factors = data.tensor(op.factors);
  const int64_t count = static_cast<int64_t>(factors.data.size());
  const int64_t apart = factors.shape.front() == kTerms ? kOutputs : 1;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t k = i / apart % kTerms;
    const bool is_large = k < kTerms / 4 || k >= 3 * kTerms / 4;
    factors.data[static_cast<size_t>(i)] = is_large ? std::ldexp(1.0, shift) : 1.0;
  }
}

double exact_sum(const SumOp& op, int bits) {
  double total = 0;
  for (int64_t k = kTerms / 4; k < 3 * kTerms / 4; ++k) total += term(bits, k);
  return op.is_mean ? total / static_cast<double>(kTerms) : total;
}

// Returns the largest number of bits that data of the dtype can probe.
int widest_sum(const SumOp& op, bp_dtype dtype) {
  const FloatFormat& format = *float_format(dtype);
  const int reach = op.factors.empty() ? format.max_exponent : 2 * format.max_exponent;
  return std::min(7 + reach, 60);
}

void probe_acc(Context& t, const OpCase& row) {
  const SumOp& op = sum_op(row);
  const bp_dtype dtype = row.tensors.front().dtype;
  const int most = widest_sum(op, dtype);
  int exact = 0, declared = 0;
  std::string evidence;
  const int step = dtype == BP_F64 ? 5 : 1;
  for (int bits = 8; bits <= most && evidence.empty(); bits += step) {
    CallData data(row, t.seed());
    set_terms(data, op, bits);
    const Observation seen = observe_native(t, row, data);
    const double u = declared_numerics(seen).accumulator;
    declared = -std::ilogb(u);
    const double right = exact_sum(op, bits);
    for (const DoubleDouble& y : seen.outputs.front().value) {
      if (y.hi == right || !evidence.empty()) continue;
      evidence = "a sum that needs " + std::to_string(bits) + " bits is " + std::to_string(y.hi) +
                 ", not " + std::to_string(right);
    }
    if (evidence.empty()) exact = bits;
  }
  t.metric("acc_bits", exact);
  const std::string says = std::to_string(declared) + " bits";
  const std::string probed = (exact == most ? "at least " : "") + std::to_string(exact) + " bits";
  if (exact < std::min(declared, most)) {
    return report_false(t, "accumulator", says, probed, evidence);
  }
  report_true(t, says, probed);
}

// ---- mul_in -----------------------------------------------------------------------------------

const char* products_text(double product) {
  if (product == 0) return "native";
  if (product == 0x1p-10) return "tf32";
  return product == 0x1p-7 ? "bf16" : "bf16x3";
}

// Returns the kind of products whose error is at least `error`.
const char* products_of_error(double error, double native) {
  if (error <= native) return "native";
  if (error <= 0x1.8p-15 + native) return "bf16x3";
  return error <= 0x1p-10 + native ? "tf32" : "bf16";
}

// Returns the largest relative error of single products of odd integers of `bits` bits.
double product_error(Context& t, const OpCase& row, int bits, Numerics& out_declared) {
  const SumOp& op = sum_op(row);
  CallData data(row, t.seed());
  std::vector<double> values, factors;
  const double half = std::ldexp(1.0, bits - 1);
  for (int64_t i = 0; i < kOutputs; ++i) {
    const auto step = static_cast<double>(i + 1);
    values.push_back(2 * half - std::fmod(step * 38183, half / 2) * 2 - 1);
    factors.push_back(half + std::fmod(step * 30011, half / 2) * 2 + 1);
  }
  fill_with(data, op.values, values);
  fill_with(data, op.factors, factors);
  const Observation seen = observe_native(t, row, data);
  out_declared = declared_numerics(seen);
  double worst = 0;
  for (size_t i = 0; i < seen.outputs.front().value.size(); ++i) {
    const DoubleDouble right = two_product(values[i / kOutputs], factors[i % kOutputs]);
    const DoubleDouble y = seen.outputs.front().value[i];
    worst = std::fmax(worst, std::fabs((y - right).hi / right.hi));
  }
  return worst;
}

void probe_mul_in(Context& t, const OpCase& row) {
  const bp_dtype dtype = row.tensors.front().dtype;
  const int precision = float_format(dtype)->precision;
  const double native = float_format(dtype)->unit_roundoff();
  Numerics declared;
  double worst = 0;
  int worst_bits = 0;
  for (const int width : {5, 8, 11, 13, 24, 53}) {
    // Products of more than 16 bits overflow in f16.
    const int bits = dtype == BP_F16 ? std::min(width, 8) : std::min(width, precision);
    const double error = product_error(t, row, bits, declared);
    if (error > worst) worst = error, worst_bits = bits;
    t.metric("error_of_" + std::to_string(bits) + "_bits", error);
  }
  // A product is a sum of one term, so an accumulator of fewer bits rounds it too.
  const double rounding = std::max(native, declared.accumulator);
  const std::string says = products_text(declared.product);
  const std::string probed = products_of_error(worst, rounding);
  if (worst > declared.product + rounding) {
    return report_false(t, "products", says, probed,
                        "a product of numbers of " + std::to_string(worst_bits) +
                            " bits has the relative error 2^" + std::to_string(std::log2(worst)));
  }
  report_true(t, says, probed);
}

}  // namespace

void add_sum_probes(Probings& probes, const Group& group) {
  const OpCase& any = *group.front();
  const auto op = std::ranges::find(kSumOps, any.op, &SumOp::op);
  if (op == std::end(kSumOps)) return;
  const bp_dtype dtype = any.tensors.front().dtype;
  const bool is_uniform = std::ranges::all_of(
      any.tensors, [&](const TensorArgument& argument) { return argument.dtype == dtype; });
  if (!is_float(dtype) || !is_uniform) return;
  OpCase sum = op->make(dtype, kTerms);
  sum.is_smoke = any.is_smoke;
  const bool is_new = std::ranges::none_of(probes, [&](const Probing& other) {
    return other.row.op == sum.op && other.row.dtype == sum.dtype;
  });
  if (!is_new) return;
  if (!op->factors.empty()) {
    OpCase product = op->make(dtype, 1);
    product.is_smoke = any.is_smoke;
    probes.push_back({"mul_in", std::move(product), probe_mul_in});
  }
  probes.push_back({"acc", std::move(sum), probe_acc});
}

}  // namespace bp::conformance
