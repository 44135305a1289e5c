// Tests the functions of element-wise kernels of one plugin against MPFR, for each value of the
// 16-bit floats and many values of f32 and f64. BACKEND_PATH names the plugin.
#include <mpfr.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <random>

#include "backends/shell/numerics_test.hpp"
#include "backplane/shell/narrow.hpp"

namespace bp {
namespace {

using kernels::BFloat16;
using kernels::Float16;

// ---- Exact values -------------------------------------------------------------------------------

// An MPFR number with twice the digits of f64.
class Exact {
 public:
  explicit Exact(double x = 0) {
    mpfr_init2(value, 120);
    mpfr_set_d(value, x, MPFR_RNDN);
  }
  ~Exact() { mpfr_clear(value); }
  Exact(const Exact&) = delete;
  Exact& operator=(const Exact&) = delete;

  double nearest() const { return mpfr_get_d(value, MPFR_RNDN); }

  // Returns y minus this number, in units of `ulp`.
  double distance(double y, double ulp) const {
    Exact difference(y);
    mpfr_sub(difference.value, difference.value, value, MPFR_RNDN);
    return difference.nearest() / ulp;
  }

  mpfr_t value;
};

// Computes erfinv(x) with Newton's method on erf(), or on erfc() if erf() is near 1.
void exact_erfinv(Exact& y, double x) {
  const double magnitude = std::fabs(x);
  if (!(magnitude < 1) || x == 0) {
    mpfr_set_d(y.value, magnitude == 1 ? x * HUGE_VAL : x == 0 ? x : NAN, MPFR_RNDN);
    return;
  }
  const double w = std::log1p(-magnitude * magnitude), half = 4.33 + w / 2;
  const double first = magnitude < 0.01 ? magnitude * 0.8862  // sqrt(pi) / 2
                                        : std::sqrt(std::sqrt(half * half - w / 0.147) - half);
  mpfr_set_d(y.value, first, MPFR_RNDN);
  Exact off, slope, root_pi;
  mpfr_const_pi(root_pi.value, MPFR_RNDN);
  mpfr_sqrt(root_pi.value, root_pi.value, MPFR_RNDN);
  for (int step = 0; step < 9; ++step) {
    if (magnitude < 0.5) {
      mpfr_erf(off.value, y.value, MPFR_RNDN);
      mpfr_sub_d(off.value, off.value, magnitude, MPFR_RNDN);
    } else {
      mpfr_erfc(off.value, y.value, MPFR_RNDN);
      mpfr_d_sub(off.value, 1 - magnitude, off.value, MPFR_RNDN);
    }
    mpfr_sqr(slope.value, y.value, MPFR_RNDN);
    mpfr_exp(slope.value, slope.value, MPFR_RNDN);
    mpfr_mul(slope.value, slope.value, root_pi.value, MPFR_RNDN);
    mpfr_mul(off.value, off.value, slope.value, MPFR_RNDN);
    mpfr_div_ui(off.value, off.value, 2, MPFR_RNDN);
    mpfr_sub(y.value, y.value, off.value, MPFR_RNDN);
  }
  if (x < 0) mpfr_neg(y.value, y.value, MPFR_RNDN);
}

template <int (*kFunction)(mpfr_t, const mpfr_t, mpfr_rnd_t)>
void exact_of(Exact& y, double x) {
  const Exact argument(x);
  kFunction(y.value, argument.value, MPFR_RNDN);
}

// Computes 1 / sqrt(x), which has the sign of a zero. mpfr_rec_sqrt() gives +inf for -0.
void exact_rsqrt(Exact& y, double x) {
  mpfr_set_d(y.value, x, MPFR_RNDN);
  mpfr_sqrt(y.value, y.value, MPFR_RNDN);
  mpfr_ui_div(y.value, 1, y.value, MPFR_RNDN);
}

// Calls mpfr_sqrt(), which may be a macro.
int root(mpfr_t y, const mpfr_t x, mpfr_rnd_t mode) { return mpfr_sqrt(y, x, mode); }

// ---- Functions ----------------------------------------------------------------------------------

struct Function {
  const char* name;
  uint32_t op;
  void (*exact)(Exact& y, double x);
  double f32_ulps, f64_ulps;  // The bounds of conformance/numerics/bounds.hpp.
  double low_f32, high_f32;   // The range of random f32 arguments.
  double low_f64, high_f64;   // The range of random f64 arguments.
  bool are_exponents;         // The limits are exponents of 2.
};

const Function kFunctions[] = {
    {"exp", BP_OP_EXP, exact_of<mpfr_exp>, 3, 2, -87, 89, -708, 710, false},
    {"log", BP_OP_LOG, exact_of<mpfr_log>, 3, 2, -126, 128, -1022, 1024, true},
    {"log near 1", BP_OP_LOG, exact_of<mpfr_log>, 3, 2, 0.5, 2, 0.5, 2, false},
    {"sqrt", BP_OP_SQRT, exact_of<root>, 2.5, 0.5, -126, 128, -1022, 1024, true},
    {"tanh", BP_OP_TANH, exact_of<mpfr_tanh>, 5, 4, -30, 4, -60, 5, true},
    {"erfinv", BP_OP_ERFINV, exact_erfinv, 8, 8, -1, 1, -1, 1, false},
    {"erfinv near 0", BP_OP_ERFINV, exact_erfinv, 8, 8, -100, 0, -900, 0, true},
    {"rsqrt", BP_OP_RSQRT, exact_rsqrt, 4, 2, -126, 128, -1022, 1024, true},
    {"exp2", BP_OP_EXP2, exact_of<mpfr_exp2>, 3, 3, -126, 128, -1022, 1024, false},
    {"expm1", BP_OP_EXPM1, exact_of<mpfr_expm1>, 3, 3, -30, 6, -60, 9, true},
    {"log2", BP_OP_LOG2, exact_of<mpfr_log2>, 3, 3, -126, 128, -1022, 1024, true},
    {"log2 near 1", BP_OP_LOG2, exact_of<mpfr_log2>, 3, 3, 0.5, 2, 0.5, 2, false},
    {"log10", BP_OP_LOG10, exact_of<mpfr_log10>, 3, 3, -126, 128, -1022, 1024, true},
    {"log10 near 1", BP_OP_LOG10, exact_of<mpfr_log10>, 3, 3, 0.5, 2, 0.5, 2, false},
    {"log1p", BP_OP_LOG1P, exact_of<mpfr_log1p>, 2, 2, -1, 9, -1, 9, false},
    {"log1p near 0", BP_OP_LOG1P, exact_of<mpfr_log1p>, 2, 2, -30, -1, -60, -1, true},
    {"sin", BP_OP_SIN, exact_of<mpfr_sin>, 4, 4, -30, 100, -60, 1000, true},
    {"cos", BP_OP_COS, exact_of<mpfr_cos>, 4, 4, -30, 100, -60, 1000, true},
    {"tan", BP_OP_TAN, exact_of<mpfr_tan>, 5, 5, -30, 100, -60, 1000, true},
    {"asin", BP_OP_ASIN, exact_of<mpfr_asin>, 4, 4, -1, 1, -1, 1, false},
    {"acos", BP_OP_ACOS, exact_of<mpfr_acos>, 4, 4, -1, 1, -1, 1, false},
    {"atan", BP_OP_ATAN, exact_of<mpfr_atan>, 5, 5, -30, 30, -60, 60, true},
    {"sinh", BP_OP_SINH, exact_of<mpfr_sinh>, 4, 4, -30, 6, -60, 9, true},
    {"cosh", BP_OP_COSH, exact_of<mpfr_cosh>, 4, 4, -30, 6, -60, 9, true},
    {"asinh", BP_OP_ASINH, exact_of<mpfr_asinh>, 4, 4, -30, 128, -60, 1024, true},
    {"acosh", BP_OP_ACOSH, exact_of<mpfr_acosh>, 4, 4, 1, 9, 1, 9, false},
    {"atanh", BP_OP_ATANH, exact_of<mpfr_atanh>, 5, 5, -1, 1, -1, 1, false},
    {"erf", BP_OP_ERF, exact_of<mpfr_erf>, 16, 16, -30, 3, -60, 3, true},
    {"erfc", BP_OP_ERFC, exact_of<mpfr_erfc>, 16, 16, -5, 10, -5, 27, false},
};

// Returns the distance of neighbours of the size of x. Below `smallest`, digits may be lost.
double ulp_of(double x, int digits, double smallest) {
  return std::ldexp(1.0, std::ilogb(std::fmax(std::fabs(x), smallest)) - digits + 1);
}

class Primitives : public Numerics, public testing::WithParamInterface<Function> {
 protected:
  template <typename T>
  std::vector<T> results(bp_dtype dtype, const std::vector<T>& values) {
    TestTensor x(b, dtype, {static_cast<int64_t>(values.size())});
    TestTensor y(b, dtype, {static_cast<int64_t>(values.size())});
    put(x, values);
    run(GetParam().op, bp_exp_args{.x = &x, .y = &y});  // The frames of these ops are alike.
    return get<T>(y);
  }

  // Returns arguments between the limits, and one step inside each limit.
  std::vector<double> arguments(double low, double high, size_t count) {
    std::mt19937_64 random(7);
    std::uniform_real_distribution<double> uniform(low, high);
    std::vector<double> values;
    while (values.size() < count) {
      const double x = uniform(random);
      const bool takes_negative = GetParam().op != BP_OP_LOG && GetParam().op != BP_OP_SQRT;
      const double sign = takes_negative && values.size() % 2 == 1 ? -1 : 1;
      values.push_back(GetParam().are_exponents ? sign * std::exp2(x) : x);
    }
    // Rounding to fewer digits may move a number near the end of the interval out of it.
    if (GetParam().op == BP_OP_ERFINV) {
      for (int bits = 2; bits < 54; ++bits) values.push_back(1 - std::ldexp(1.0, -bits));
    }
    return values;
  }

  template <typename T>
  void expect_within(bp_dtype dtype, const std::vector<T>& x, double ulps, double smallest) {
    const std::vector<T> y = results(dtype, x);
    double most = 0, at = 0;
    Exact exact;
    for (size_t i = 0; i < x.size(); ++i) {
      const auto argument = static_cast<double>(x[i]);
      GetParam().exact(exact, argument);
      const double nearest = exact.nearest();
      if (!std::isfinite(static_cast<T>(nearest))) {
        // If the exact value rounds to infinity, the result is infinity or the largest number.
        const auto result = static_cast<double>(y[i]);
        EXPECT_TRUE(std::isnan(nearest) ? std::isnan(result)
                                        : std::fabs(result) >= std::numeric_limits<T>::max() / 2)
            << GetParam().name << "(" << argument << ") is " << result;
        continue;
      }
      const double ulp = ulp_of(nearest, std::numeric_limits<T>::digits, smallest);
      const double off = std::fabs(exact.distance(static_cast<double>(y[i]), ulp));
      if (!(off <= most)) most = off, at = argument;
    }
    std::printf("%s of %s: at most %.2f ulp off, at %.17g\n", GetParam().name,
                dtype == BP_F32 ? "f32" : "f64", most, at);
    EXPECT_LE(most, ulps) << GetParam().name << "(" << at << ")";
  }
};

TEST_P(Primitives, OfF32) {
  std::vector<float> x;
  for (const double value : arguments(GetParam().low_f32, GetParam().high_f32, 40000)) {
    x.push_back(static_cast<float>(value));
  }
  expect_within(BP_F32, x, GetParam().f32_ulps, 0x1p-126);
}

TEST_P(Primitives, OfF64) {
  if (!claims(GetParam().op, BP_F64)) GTEST_SKIP() << "the backend does not claim f64";
  const std::vector<double> x = arguments(GetParam().low_f64, GetParam().high_f64, 10000);
  expect_within(BP_F64, x, GetParam().f64_ulps, 0x1p-1022);
}

// Returns all numbers of a 16-bit float.
template <typename T>
struct Narrow {
  static double value(uint16_t bits) { return static_cast<double>(T{bits}.to_f32()); }
  static double round(double x) { return value(T::from_f64(x).bits); }
};

template <typename T>
void expect_each(const Function& f, const std::vector<uint16_t>& x,
                 const std::vector<uint16_t>& y) {
  Exact exact;
  int wrong = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    f.exact(exact, Narrow<T>::value(x[i]));
    const double r = exact.nearest(), result = Narrow<T>::value(y[i]);
    if (std::isnan(r) && std::isnan(result)) continue;
    // All digits of a number that is subnormal in f32 may be lost.
    const double lost = std::fabs(r) < 0x1p-126 ? 0x1p-126 : 0;
    const double allowed = std::isinf(r) ? 0 : f.f32_ulps * ulp_of(r, 24, 0x1p-126) + lost;
    const double low = Narrow<T>::round(r - allowed), high = Narrow<T>::round(r + allowed);
    if (low <= result && result <= high) continue;
    if (++wrong < 6) {
      ADD_FAILURE() << f.name << "(" << Narrow<T>::value(x[i]) << ") is " << result << ", not from "
                    << low << " to " << high;
    }
  }
  EXPECT_EQ(wrong, 0) << f.name;
}

TEST_P(Primitives, OfEachValueOf16Bits) {
  std::vector<uint16_t> x(65536);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint16_t>(i);
  expect_each<Float16>(GetParam(), x, results(BP_F16, x));
  expect_each<BFloat16>(GetParam(), x, results(BP_BF16, x));
}

INSTANTIATE_TEST_SUITE_P(All, Primitives, testing::ValuesIn(kFunctions), [](const auto& tested) {
  std::string name = tested.param.name;
  std::erase(name, ' ');
  return name;
});

}  // namespace
}  // namespace bp
