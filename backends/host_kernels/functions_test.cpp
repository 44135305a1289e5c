// Tests the functions of vectors against MPFR, on every target that runs on this machine, for
// numbers of all sizes and near the points where digits cancel. The bounds are those of
// conformance/docs/error_classes.md.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/functions_test.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include "backends/host_kernels/arc-inl.hpp"
#include "backends/host_kernels/error_function-inl.hpp"
#include "backends/host_kernels/exponential-inl.hpp"
#include "backends/host_kernels/hyperbolic-inl.hpp"
#include "backends/host_kernels/logarithm-inl.hpp"
#include "backends/host_kernels/power-inl.hpp"
#include "backends/host_kernels/remainder-inl.hpp"
#include "backends/host_kernels/trigonometric-inl.hpp"
#include "hwy/highway.h"

// The functions of one number, and of two. clang-format never comes to an end with these lists.
// clang-format off
#define BP_TEST_FUNCTIONS(F)                                              \
  F(exp2) F(expm1) F(log2) F(log10) F(log1p) F(sin) F(cos) F(tan) F(asin) \
  F(acos) F(atan) F(sinh) F(cosh) F(asinh) F(acosh) F(atanh) F(erf) F(erfc)
#define BP_TEST_FUNCTIONS_OF_TWO(F) F(pow) F(atan2) F(hypot) F(fmod)
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

// `n` is a multiple of the lanes of every target.
#define BP_TEST_FUNCTION(name)                                                                    \
  template <typename T>                                                                           \
  void run_##name(const T* a, const T*, T* y, size_t n) {                                         \
    const hn::ScalableTag<T> d;                                                                   \
    for (size_t i = 0; i < n; i += hn::Lanes(d)) {                                                \
      hn::StoreU(name(d, hn::LoadU(d, a + i)), d, y + i);                                         \
    }                                                                                             \
  }                                                                                               \
  void f32_##name(const float* a, const float* b, float* y, size_t n) { run_##name(a, b, y, n); } \
  void f64_##name(const double* a, const double* b, double* y, size_t n) { run_##name(a, b, y, n); }
#define BP_TEST_FUNCTION_OF_TWO(name)                                                             \
  template <typename T>                                                                           \
  void run_##name(const T* a, const T* b, T* y, size_t n) {                                       \
    const hn::ScalableTag<T> d;                                                                   \
    for (size_t i = 0; i < n; i += hn::Lanes(d)) {                                                \
      hn::StoreU(name(d, hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, y + i);                    \
    }                                                                                             \
  }                                                                                               \
  void f32_##name(const float* a, const float* b, float* y, size_t n) { run_##name(a, b, y, n); } \
  void f64_##name(const double* a, const double* b, double* y, size_t n) { run_##name(a, b, y, n); }
BP_TEST_FUNCTIONS(BP_TEST_FUNCTION)
BP_TEST_FUNCTIONS_OF_TWO(BP_TEST_FUNCTION_OF_TWO)

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <gtest/gtest.h>
#include <mpfr.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace bp::kernels {
namespace {

#define BP_TEST_EXPORT(name) \
  HWY_EXPORT(f32_##name);    \
  HWY_EXPORT(f64_##name);
BP_TEST_FUNCTIONS(BP_TEST_EXPORT)
BP_TEST_FUNCTIONS_OF_TWO(BP_TEST_EXPORT)

struct Function {
  const char* name;
  void (*f32)(const float* a, const float* b, float* y, size_t n);
  void (*f64)(const double* a, const double* b, double* y, size_t n);
  int (*exact)(mpfr_t y, const mpfr_t x, mpfr_rnd_t);
  int (*exact_of_two)(mpfr_t y, const mpfr_t a, const mpfr_t b, mpfr_rnd_t);
  double (*library)(double a, double b);  // It knows the special values.
  double ulps;
};

#define BP_TEST_CALLS(name)                                       \
  [](const float* a, const float* b, float* y, size_t n) {        \
    HWY_DYNAMIC_DISPATCH(f32_##name)(a, b, y, n);                 \
  },                                                              \
      [](const double* a, const double* b, double* y, size_t n) { \
        HWY_DYNAMIC_DISPATCH(f64_##name)(a, b, y, n);             \
      }
#define BP_TEST_ROW(name, ulps)                             \
  {                                                         \
#name, BP_TEST_CALLS(name), mpfr_##name, nullptr,       \
        [](double a, double) { return std::name(a); }, ulps \
  }
#define BP_TEST_ROW_OF_TWO(name, ulps)                           \
  {                                                              \
#name, BP_TEST_CALLS(name), nullptr, mpfr_##name,            \
        [](double a, double b) { return std::name(a, b); }, ulps \
  }

const Function kFunctions[] = {
    BP_TEST_ROW(exp2, 3),        BP_TEST_ROW(expm1, 3),        BP_TEST_ROW(log2, 3),
    BP_TEST_ROW(log10, 3),       BP_TEST_ROW(log1p, 2),        BP_TEST_ROW(sin, 4),
    BP_TEST_ROW(cos, 4),         BP_TEST_ROW(tan, 5),          BP_TEST_ROW(asin, 4),
    BP_TEST_ROW(acos, 4),        BP_TEST_ROW(atan, 5),         BP_TEST_ROW(sinh, 4),
    BP_TEST_ROW(cosh, 4),        BP_TEST_ROW(asinh, 4),        BP_TEST_ROW(acosh, 4),
    BP_TEST_ROW(atanh, 5),       BP_TEST_ROW(erf, 16),         BP_TEST_ROW(erfc, 16),
    BP_TEST_ROW_OF_TWO(pow, 16), BP_TEST_ROW_OF_TWO(atan2, 6), BP_TEST_ROW_OF_TWO(hypot, 4),
    BP_TEST_ROW_OF_TWO(fmod, 0)};

// Computes exact values with twice the digits of f64.
class Exact {
 public:
  Exact() { mpfr_inits2(160, a_, b_, y_, static_cast<mpfr_ptr>(nullptr)); }
  ~Exact() { mpfr_clears(a_, b_, y_, static_cast<mpfr_ptr>(nullptr)); }
  Exact(const Exact&) = delete;

  // Returns how many ulps y is off. Where the exact value is a NaN, infinite or 0, y has to be so.
  template <typename T>
  double error(const Function& f, T a, T b, T y) {
    mpfr_set_d(a_, static_cast<double>(a), MPFR_RNDN);
    mpfr_set_d(b_, static_cast<double>(b), MPFR_RNDN);
    f.exact != nullptr ? f.exact(y_, a_, MPFR_RNDN) : f.exact_of_two(y_, a_, b_, MPFR_RNDN);
    const auto nearest = static_cast<T>(mpfr_get_d(y_, MPFR_RNDN));
    if (std::isnan(nearest) || std::isnan(y)) return std::isnan(nearest) == std::isnan(y) ? 0 : 1e9;
    // Where the result overflows, the largest numbers are near.
    if (std::isinf(nearest) || std::isinf(y)) {
      return nearest == y || std::fabs(std::isinf(y) ? nearest : y) > kHuge<T> ? 0 : 1e9;
    }
    const double size = std::fmax(std::fabs(static_cast<double>(nearest)),
                                  static_cast<double>(std::numeric_limits<T>::min()));
    const double ulp = std::ldexp(1.0, std::ilogb(size) - std::numeric_limits<T>::digits + 1);
    mpfr_sub_d(y_, y_, static_cast<double>(y), MPFR_RNDN);
    return std::fabs(mpfr_get_d(y_, MPFR_RNDN)) / ulp;
  }

 private:
  template <typename T>
  static constexpr T kHuge = std::numeric_limits<T>::max() * T(0.999999);

  mpfr_t a_, b_, y_;
};

// Returns numbers of all bits, of usual sizes, and near 1 and multiples of pi / 2.
template <typename T>
std::vector<T> numbers(uint32_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> unit(-1, 1);
  std::vector<T> found;
  for (int i = 0; i < 3072; ++i) {
    const uint64_t bits = random();
    T any;
    std::memcpy(&any, &bits, sizeof(any));
    const double near = std::ldexp(unit(random), -static_cast<int>(random() % 40));
    const double turns = std::floor(unit(random) * 1000) * M_PI_2;
    for (const double x : {unit(random), 8 * unit(random), 90 * unit(random), 750 * unit(random),
                           near, 1 + near, turns}) {
      found.push_back(static_cast<T>(x));
    }
    found.push_back(any);
  }
  return found;
}

class Functions : public testing::TestWithParam<Function> {
 protected:
  static void run(const Function& f, const float* a, const float* b, float* y, size_t n) {
    f.f32(a, b, y, n);
  }
  static void run(const Function& f, const double* a, const double* b, double* y, size_t n) {
    f.f64(a, b, y, n);
  }

  template <typename T>
  static void expect_near(const Function& f, const char* target) {
    const std::vector<T> a = numbers<T>(1), b = numbers<T>(2);
    std::vector<T> y(a.size());
    run(f, a.data(), b.data(), y.data(), a.size());
    Exact exact;
    double worst = 0;
    size_t at = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      const double error = exact.error(f, a[i], b[i], y[i]);
      if (error > worst) worst = error, at = i;
    }
    EXPECT_LE(worst, f.ulps) << target << ": " << f.name << "(" << a[at] << ", " << b[at] << ") is "
                             << y[at];
  }

  template <typename T>
  static void expect_special(const Function& f, const char* target) {
    using Limits = std::numeric_limits<T>;
    const T list[] = {0, Limits::denorm_min(), Limits::min(),     T(0.5), 1, 2,
                      3, Limits::max(),        Limits::infinity()};
    std::vector<T> all = {Limits::quiet_NaN()};
    for (const T x : list) all.insert(all.end(), {x, -x});
    std::vector<T> a, b;
    for (const T x : all) {
      for (const T z : all) a.push_back(x), b.push_back(z);
    }
    while (a.size() % 64 != 0) a.push_back(1), b.push_back(1);
    std::vector<T> y(a.size());
    run(f, a.data(), b.data(), y.data(), a.size());
    for (size_t i = 0; i < a.size(); ++i) {
      const auto wanted = static_cast<T>(f.library(a[i], b[i]));
      const bool is_special = std::isnan(wanted) || std::isinf(wanted) || wanted == 0;
      if (!is_special) continue;
      const bool is_right = std::isnan(wanted)
                                ? std::isnan(y[i])
                                : y[i] == wanted && std::signbit(y[i]) == std::signbit(wanted);
      // A result that rounds to 0 or infinity may also be its neighbour.
      const bool is_edge = std::isfinite(a[i]) && std::isfinite(b[i]) && a[i] != 0 && b[i] != 0 &&
                           (wanted == 0 ? std::fabs(y[i]) <= 2 * Limits::denorm_min()
                                        : std::fabs(y[i]) > Limits::max() * T(0.999999));
      EXPECT_TRUE(is_right || is_edge) << target << ": " << f.name << "(" << a[i] << ", " << b[i]
                                       << ") is " << y[i] << ", not " << wanted;
    }
  }
};

TEST_P(Functions, AreNearTheExactValueOnEachTarget) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    expect_near<float>(GetParam(), hwy::TargetName(target));
    expect_near<double>(GetParam(), hwy::TargetName(target));
    expect_special<float>(GetParam(), hwy::TargetName(target));
    expect_special<double>(GetParam(), hwy::TargetName(target));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

INSTANTIATE_TEST_SUITE_P(All, Functions, testing::ValuesIn(kFunctions),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace bp::kernels
#endif  // HWY_ONCE
