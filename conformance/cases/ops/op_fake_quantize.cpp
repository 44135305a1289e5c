// Cases of fake_quantize. Cases of layouts follow by rule.
#include <cmath>

#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/reference/quantization.hpp"

namespace bp::conformance {
namespace {

using enum Layout;

// A range of codes, and whether zero points move it.
struct Codes {
  const char* name;
  int64_t low, high;
  bool has_zero;
};
constexpr Codes kCodes[] = {
    {"i8", -128, 127, false}, {"u8_zero", 0, 255, true}, {"i4_zero", -8, 7, true},
    {"one", 3, 3, true},      {"binary", -1, 1, false},
};

// Kernels divide with an error of a few units, so a quotient this close to the middle of two
// integers may be rounded to either of them.
bool is_near_middle(double quotient, bp_dtype wide) {
  const double unit = wide == BP_F64 ? 0x1p-53 : 0x1p-24;
  const double distance = std::fabs(quotient - std::floor(quotient) - 0.5);
  return distance > 0 && distance <= 8 * unit * std::fabs(quotient);
}

std::vector<Expected> expected_fake(const CallData& data, const Numerics&) {
  const HostTensor& x = data.tensor("x");
  const Array<double> scale = data.array<double>("scale");
  const auto limit = [&](int64_t i, double rounded) {
    const double zero = data.has("zero") ? data.array<double>("zero")[i] : 0;
    return reference::limited_code(rounded, zero, static_cast<double>(data.integer("low")),
                                   static_cast<double>(data.integer("high")));
  };
  Array<double> kept(x.shape), others(x.shape);  // How many scales the results are.
  std::vector<bool> is_open;                     // Whether the other result is right too.
  for (int64_t i = 0; i < kept.size(); ++i) {
    const double quotient = x.data[static_cast<size_t>(i)].hi / scale[i];
    const double rounded = std::nearbyint(quotient);
    is_open.push_back(is_near_middle(quotient, data.tensor("scale").dtype));
    kept[i] = limit(i, rounded);
    others[i] = limit(i, std::floor(quotient) + std::ceil(quotient) - rounded);
  }
  const auto run = [&]<typename N>(N) {
    Array<N> y(x.shape);
    for (int64_t i = 0; i < y.size(); ++i) y[i] = N(kept[i]) * N(scale[i]);
    return std::vector{y};
  };
  Known known = steps(x.dtype, run);
  known.outputs[0].also_right = [others, scale, is_open, dtype = x.dtype](int64_t i,
                                                                          DoubleDouble y) {
    if (!is_open[static_cast<size_t>(i)]) return false;
    const double other = round_to(dtype, DoubleDouble(others[i]) * DoubleDouble(scale[i]));
    return y.hi == other;
  };
  return judged(data, std::move(known));
}

OpCase make_row(const Shape& shape, const Codes& codes, bp_dtype dtype, const std::string& name,
                const Fill& x) {
  OpCase made =
      make_case(BP_OP_FAKE_QUANTIZE, dtype, name, shape_text(shape) + "_" + codes.name, "dense");
  made.input("x", dtype, shape, x);
  made.input("scale", accumulator_of(dtype), shape, {FillKind::kUniform, 0.01, 0.05});
  if (codes.has_zero) made.input("zero", BP_I32, shape, {FillKind::kUniform, -5, 6});
  made.output("y", dtype, shape);
  made.set("low", codes.low).set("high", codes.high).reference = expected_fake;
  made.is_smoke = is_smoke_dtype(dtype);
  made.varies = false;  // All codes may be limited to one.
  return made;
}

}  // namespace

void add_fake_quantize(OpCases& cases) {
  const std::vector<Shape> shapes = {{}, {17}, {1031}, {5, 7}, {2, 3, 4, 5}, {3, 0}};
  for (const bp_dtype dtype : kFloats) {
    for (const Codes& codes : kCodes) {
      for (const Shape& shape : shapes) {
        cases.push_back(make_row(shape, codes, dtype, "random", {FillKind::kUniform, -5, 5}));
      }
    }
    cases.push_back(make_row({129}, kCodes[1], dtype, "special", kSpecial));
    // One scale for each row, as a view with strides of 0.
    OpCase rows = make_row({5, 7}, kCodes[1], dtype, "random", {FillKind::kUniform, -5, 5});
    for (TensorArgument& argument : rows.tensors) {
      if (argument.name == "scale" || argument.name == "zero") argument.layout = kBroadcastLast;
    }
    rows.layout = "scale_for_each_row";
    cases.push_back(std::move(rows));
    // Quotients in the middle of two integers are rounded to the even one.
    OpCase ties = make_row({64}, kCodes[0], dtype, "ties", kRandom);
    ties.derive = [](CallData& data) {
      for (size_t i = 0; i < 64; ++i) {
        data.tensor("x").data[i] = (static_cast<double>(i) - 32.5) * 0.25;
        data.tensor("scale").data[i] = 0.25;
      }
    };
    cases.push_back(std::move(ties));
  }
}

}  // namespace bp::conformance
