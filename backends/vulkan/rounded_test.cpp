// Tests the divisions and square roots of the shaders against those of the host's processor. The
// text of the shaders is compiled as C++, with approximations that are as bad as Vulkan allows.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

namespace bp::vulkan {
namespace {
namespace shader {

using std::floor;
using std::min;
using uint = uint32_t;

int findMSB(uint x) { return 31 - std::countl_zero(x); }
uint floatBitsToUint(float x) { return std::bit_cast<uint>(x); }
float uintBitsToFloat(uint bits) { return std::bit_cast<float>(bits); }
uint64_t bits_of_f64(double x) { return std::bit_cast<uint64_t>(x); }
double f64_of_bits(uint64_t bits) { return std::bit_cast<double>(bits); }
float quiet_nan() { return std::numeric_limits<float>::quiet_NaN(); }

// The error of the approximations, in ulp. Vulkan allows 2.5 of a quotient, and 2 more of a root.
int quotient_error = 0, root_error = 0;
float moved(float x, int ulps) {
  return x == 0 ? x : uintBitsToFloat(floatBitsToUint(x) + static_cast<uint>(ulps));
}
float quotient_near(float a, float b) { return moved(a / b, quotient_error); }
float root_near(float x) { return moved(std::sqrt(x), root_error); }

// The shaders convert without saying so.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wdouble-promotion"
#pragma GCC diagnostic ignored "-Wold-style-cast"
#include "backends/vulkan/kernels/rounded.glsl"
#include "backends/vulkan/kernels/rounded64.glsl"
#pragma GCC diagnostic pop

}  // namespace shader

constexpr int kErrors[] = {-8, -3, 0, 3, 8};
constexpr int kPairs = 2'000'000;  // For each error.

template <typename T>
using BitsOf = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;

template <typename T>
bool is_same(T x, T y) {
  return std::isnan(x) ? std::isnan(y) : std::bit_cast<BitsOf<T>>(x) == std::bit_cast<BitsOf<T>>(y);
}

float divide(float a, float b) { return shader::divide_f32(a, b); }
double divide(double a, double b) { return shader::divide_f64(a, b); }
float root(float x) { return shader::root_f32(x); }
double root(double x) { return shader::root_f64(x); }

// Counts the results that differ from those of the host, and shows the first ones.
template <typename T>
class Check {
 public:
  void quotient(T a, T b) { expect(divide(a, b), a / b, "/", a, b); }
  void square_root(T x) { expect(root(x), std::sqrt(x), "root", x, x); }

 private:
  void expect(T result, T wanted, const char* what, T a, T b) {
    if (is_same(result, wanted) || ++wrong_ > 5) return;
    ADD_FAILURE() << std::hexfloat << a << " " << what << " " << b << " is " << result << ", not "
                  << wanted << ", with errors of " << shader::quotient_error << " ulp";
  }

  int wrong_ = 0;
};

template <typename T>
class Rounded : public testing::Test {
 protected:
  void TearDown() override { shader::quotient_error = shader::root_error = 0; }

  using Bits = BitsOf<T>;
  static constexpr int kDigits = std::numeric_limits<T>::digits - 1;

  static T value(Bits bits) { return std::bit_cast<T>(bits); }

  // Returns each power of 2 with some last bits, subnormal numbers included, with both signs, and
  // what is no number.
  static std::vector<T> corners() {
    std::vector<T> values = {0, std::numeric_limits<T>::infinity()};
    const Bits infinite = std::bit_cast<Bits>(values[1]), one = 1;
    values.push_back(std::numeric_limits<T>::quiet_NaN());
    for (Bits exponent = 0; exponent < infinite; exponent += one << kDigits) {
      values.push_back(value(exponent + 1));
      if (exponent % (one << (kDigits + 3)) != 0 && sizeof(T) == 8) continue;
      values.insert(values.end(), {value(exponent), value(exponent + (one << kDigits) - 1)});
    }
    for (int k = 1; k < kDigits; ++k) values.push_back(value(one << k));
    const size_t count = values.size();
    for (size_t i = 0; i < count; ++i) values.push_back(-values[i]);
    return values;
  }

  void with_each_error(const std::function<void(Check<T>&)>& body) {
    for (const int error : kErrors) {
      shader::quotient_error = error;
      shader::root_error = error;
      Check<T> check;
      body(check);
    }
  }

  std::mt19937_64 random{7};
  Bits bits() { return static_cast<Bits>(random()); }
  // Returns a number from 1 to 2.
  T significand() {
    return value((bits() & ((Bits{1} << kDigits) - 1)) | std::bit_cast<Bits>(T{1}));
  }
};

using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Rounded, Types);

TYPED_TEST(Rounded, QuotientsOfCorners) {
  const std::vector<TypeParam> corners = this->corners();
  Check<TypeParam> check;
  for (const TypeParam a : corners) {
    for (const TypeParam b : corners) check.quotient(a, b);
  }
}

TYPED_TEST(Rounded, QuotientsOfAnyBits) {
  this->with_each_error([&](Check<TypeParam>& check) {
    for (int k = 0; k < kPairs; ++k) {
      check.quotient(this->value(this->bits()), this->value(this->bits()));
    }
  });
}

// Half of the quotients are subnormal.
TYPED_TEST(Rounded, QuotientsNearTheSmallest) {
  constexpr int kSpread = std::numeric_limits<TypeParam>::digits;
  constexpr int kLeast = std::numeric_limits<TypeParam>::min_exponent - 1;
  this->with_each_error([&](Check<TypeParam>& check) {
    for (int k = 0; k < kPairs; ++k) {
      const TypeParam a = std::ldexp(this->significand(), kLeast / 2 - k % (kSpread + 3));
      check.quotient(a, std::ldexp(this->significand(), k % kSpread - kLeast / 2));
    }
  });
}

// The quotient is a number with one bit more, which lies half-way between two, or next to one.
TYPED_TEST(Rounded, QuotientsNearHalfWay) {
  this->with_each_error([&](Check<TypeParam>& check) {
    for (int k = 0; k < kPairs; ++k) {
      const TypeParam b = this->significand(), wanted = this->significand();
      const TypeParam a = std::fma(wanted, b, b * std::numeric_limits<TypeParam>::epsilon() / 2);
      check.quotient(a, b);
    }
  });
}

TYPED_TEST(Rounded, RootsOfCornersAndAnyBits) {
  this->with_each_error([&](Check<TypeParam>& check) {
    for (const TypeParam x : this->corners()) check.square_root(x);
    for (int k = 0; k < kPairs; ++k) check.square_root(this->value(this->bits()));
  });
}

TYPED_TEST(Rounded, RootsNearSquares) {
  this->with_each_error([&](Check<TypeParam>& check) {
    for (int k = 0; k < kPairs; ++k) {
      const TypeParam x = this->significand();
      const auto bits = std::bit_cast<BitsOf<TypeParam>>(x * x);
      for (int step = -1; step <= 1; ++step) {
        check.square_root(this->value(bits + static_cast<BitsOf<TypeParam>>(step)));
      }
    }
  });
}

}  // namespace
}  // namespace bp::vulkan
