// Tests Fourier transforms against their definition, and against results worked out by hand.
#include "conformance/reference/spectral.hpp"

#include <gtest/gtest.h>

#include <complex>

namespace bp::conformance::reference {
namespace {

using Values = std::vector<double>;

// Returns numbers without a pattern that a transform could show.
Array<double> numbers(Shape shape) {
  Array<double> x(std::move(shape));
  for (int64_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>((i * i * 7 + 3 * i) % 19) - 8;
  return x;
}

Array<double> array(Shape shape, Values values) {
  Array<double> x(std::move(shape));
  x.data = std::move(values);
  return x;
}

TEST(Fourier, EveryLengthIsTheDefinition) {
  for (int64_t n = 1; n <= 40; ++n) {
    const Array<double> x = numbers({n, 2});
    for (const bool is_inverse : {false, true}) {
      const Array<double> y = fourier(x, {n, 2}, {.length = n, .is_inverse = is_inverse}).y;
      for (int64_t k = 0; k < n; ++k) {
        std::complex<double> sum;
        for (int64_t j = 0; j < n; ++j) {
          const double turns = static_cast<double>(j * k % n) / static_cast<double>(n);
          sum += std::complex(x[2 * j], x[2 * j + 1]) *
                 std::polar(1.0, (is_inverse ? 2 : -2) * M_PI * turns);
        }
        EXPECT_NEAR(y[2 * k], sum.real(), 1e-11) << n << " " << k;
        EXPECT_NEAR(y[2 * k + 1], sum.imag(), 1e-11) << n << " " << k;
      }
    }
  }
}

TEST(Fourier, AQuarterOfATurnIsExact) {
  const Array<double> x = array({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(fourier(x, {4, 2}, {.length = 4}).y.data, (Values{16, 20, -8, 0, -4, -4, 0, -8}));
}

TEST(Fourier, TransformsAlongItsAxis) {
  const Array<double> x = array({2, 2, 2}, {1, 0, 2, 0, 3, 0, 5, 0});
  const Array<double> first = fourier(x, x.shape, {.axis = 0, .length = 2}).y;
  EXPECT_EQ(first.data, (Values{4, 0, 7, 0, -2, 0, -3, 0}));
  const Array<double> second = fourier(x, x.shape, {.axis = 1, .length = 2}).y;
  EXPECT_EQ(second.data, (Values{3, 0, -1, 0, 8, 0, -2, 0}));
}

TEST(Fourier, OfRealNumbersIsTheFirstHalf) {
  for (const int64_t n : {1, 2, 5, 6, 9, 12}) {
    const Array<double> x = numbers({n});
    Array<double> with_zeros({n, 2});
    for (int64_t i = 0; i < n; ++i) with_zeros[2 * i] = x[i];
    const Array<double> half = fourier(x, {n / 2 + 1, 2}, {.length = n, .has_real_x = true}).y;
    const Array<double> whole = fourier(with_zeros, {n, 2}, {.length = n}).y;
    for (int64_t i = 0; i < half.size(); ++i) EXPECT_EQ(half[i], whole[i]) << n << " " << i;
    EXPECT_EQ(half[1], 0) << n;
    if (n % 2 == 0) {
      EXPECT_EQ(half[half.size() - 1], 0) << n;
    }
  }
}

TEST(Fourier, RealNumbersComeBack) {
  for (const int64_t n : {1, 2, 5, 6, 9, 12}) {
    const Array<double> x = numbers({3, n});
    const Shape half = {3, n / 2 + 1, 2};
    Fourier f{.axis = 1, .length = n, .has_real_x = true};
    const Array<double> bins = fourier(x, half, f).y;
    f = {.axis = 1, .length = n, .is_inverse = true, .has_real_y = true};
    f.divisor = Divisor::kLength;
    const Array<double> again = fourier(bins, x.shape, f).y;
    for (int64_t i = 0; i < x.size(); ++i) EXPECT_NEAR(again[i], x[i], 1e-13) << n << " " << i;
  }
}

// The first bin, and the last one of an even length, have imaginary parts that no real numbers
// have.
TEST(Fourier, ImaginaryPartsThatAreTheirOwnConjugatesDoNotCount) {
  const Fourier even{.length = 2, .is_inverse = true, .has_real_y = true};
  EXPECT_EQ(fourier(array({2, 2}, {3, 100, 1, 100}), {2}, even).y.data, (Values{4, 2}));
  const Fourier odd{.length = 3, .is_inverse = true, .has_real_y = true};
  const Array<double> y = fourier(array({2, 2}, {0, 100, 0, 1}), {3}, odd).y;
  EXPECT_EQ(y[0], 0);
  EXPECT_NEAR(y[1], -std::sqrt(3.0), 1e-15);
  EXPECT_NEAR(y[2], std::sqrt(3.0), 1e-15);
}

TEST(Fourier, DividesAsItIsTold) {
  const Array<double> x = array({4, 2}, {1, 0, 1, 0, 1, 0, 1, 0});
  Fourier f{.length = 4};
  for (const auto& [divisor, first] :
       {std::pair{Divisor::kNone, 4}, {Divisor::kRoot, 2}, {Divisor::kLength, 1}}) {
    f.divisor = divisor;
    EXPECT_EQ(fourier(x, x.shape, f).y[0], first);
  }
}

TEST(Fourier, TwoDoublesHoldMoreDigitsThanOne) {
  constexpr int64_t kLength = 12;
  Array<DoubleDouble> x({kLength, 2});
  for (int64_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i) * 0.1;
  const Array<DoubleDouble> y = fourier(x, x.shape, {.length = kLength}).y;
  Fourier back{.length = kLength, .is_inverse = true};
  back.divisor = Divisor::kLength;
  const Array<DoubleDouble> again = fourier(y, x.shape, back).y;
  for (int64_t i = 0; i < x.size(); ++i) {
    EXPECT_LT(std::fabs((again[i] - x[i]).hi), 1e-29) << i;
  }
}

TEST(Fourier, MagnitudesAreThoseOfTheWholeLine) {
  const Array<double> x = array({2, 2}, {1, -2, 3, 100});
  EXPECT_EQ(fourier(x, {2, 2}, {.length = 2}).magnitudes, Values(4, 106));
  const Fourier even{.length = 2, .is_inverse = true, .has_real_y = true};
  EXPECT_EQ(fourier(x, {2}, even).magnitudes, Values(2, 4));
  const Fourier odd{.length = 3, .is_inverse = true, .has_real_y = true};
  EXPECT_EQ(fourier(x, {3}, odd).magnitudes, Values(3, 207));
}

TEST(Fourier, KnowsWhichImaginaryPartsAreZero) {
  const auto zeros_of = [](int64_t n) {
    return fourier(numbers({n}), {n / 2 + 1, 2}, {.length = n, .has_real_x = true}).is_zero;
  };
  EXPECT_EQ(zeros_of(1), (std::vector<bool>{false, true}));
  EXPECT_EQ(zeros_of(3), (std::vector<bool>{false, true, false, false}));
  EXPECT_EQ(zeros_of(4), (std::vector<bool>{false, true, false, false, false, true}));
}

TEST(Fourier, TheBoundGrowsWithTheLengthAndIsDivided) {
  const Fourier small{.length = 16}, large{.length = 4096};
  EXPECT_LT(fourier_bound(1, small, {}), fourier_bound(1, large, {}));
  EXPECT_LT(fourier_bound(1, large, {}), 1e-4);
  EXPECT_LT(fourier_bound(1, small, {}), fourier_bound(1, small, {.relaxed = true}));
  Fourier divided = large;
  divided.divisor = Divisor::kRoot;
  EXPECT_NEAR(fourier_bound(1, divided, {}) * 64, fourier_bound(1, large, {}), 1e-12);
}

}  // namespace
}  // namespace bp::conformance::reference
