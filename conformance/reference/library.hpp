// Functions of the C++ library on the number types of oracles. In two doubles they are those of
// long double: 64 bits of significand on x86, and 113 on AArch64, with errors of a few units of the
// last place in glibc. Where long double is double, a result of f64 is judged by one that is off by
// half an ulp itself.
//
// kUlps is the error in ulps that a kernel may have, from "Relative error as ULPs" of the OpenCL C
// specification, where f32 and f64 have the same.
#pragma once

#include <algorithm>
#include <cmath>
#include <string_view>
#include <type_traits>

#include "conformance/numerics/bounded.hpp"
#include "conformance/numerics/double_double.hpp"
#include "conformance/numerics/dual.hpp"
#include "conformance/reference/functions.hpp"

namespace bp::conformance {

// ---- Number types -------------------------------------------------------------------------------

// Returns F of one number or of two.
template <class F>
double of_library(std::same_as<double> auto... x) {
  return F::value(x...);
}

// A sum would lose the sign of a zero.
inline long double to_long(DoubleDouble x) {
  return x.lo == 0 ? x.hi : static_cast<long double>(x.hi) + x.lo;
}

template <class F>
DoubleDouble of_library(std::same_as<DoubleDouble> auto... x) {
  const long double y = F::value(to_long(x)...);
  const auto high = static_cast<double>(y);
  return std::isfinite(high) ? DoubleDouble(high, static_cast<double>(y - high)) : high;
}

// Returns what an error of the argument x changes, for a function that is monotonic nearby.
template <class Call>
double carried_error(double value, double x, double error, const Call& call) {
  if (error == 0 || std::isinf(x)) return 0;
  const double off =
      std::max(std::fabs(call(x + error) - value), std::fabs(call(x - error) - value));
  return (std::isnan(off) ? HUGE_VAL : off) + 0x1p-51 * std::fabs(value);  // Doubles round as well.
}

template <class F, int kBits>
Bounded<kBits> of_library(Bounded<kBits> x) {
  const double value = F::value(x.value);
  const double carried =
      carried_error(value, x.value, x.error, [](double near) { return F::value(near); });
  return Bounded<kBits>::step(value, carried, F::kUlps);
}

template <class F, int kBits>
Bounded<kBits> of_library(Bounded<kBits> a, Bounded<kBits> b) {
  const double value = F::value(a.value, b.value);
  const double carried =
      carried_error(value, a.value, a.error, [&](double near) { return F::value(near, b.value); }) +
      carried_error(value, b.value, b.error, [&](double near) { return F::value(a.value, near); });
  return Bounded<kBits>::step(value, carried, F::kUlps);
}

template <class F, typename N>
Dual<N> of_library(Dual<N> x) {
  const N y = of_library<F>(x.value);
  return chained(x, y, F::slope(x.value, y));
}

template <class F, typename N>
Dual<N> of_library(Dual<N> a, Dual<N> b) {
  const N y = of_library<F>(a.value, b.value);
  return {y, F::slope_of_first(a.value, b.value, y) * a.slope +
                 F::slope_of_second(a.value, b.value, y) * b.slope};
}

template <typename N>
N root(N x) {
  using std::sqrt;
  return sqrt(x);
}
template <typename N>
N natural_logarithm(N x) {
  using std::log;
  return log(x);
}

// ---- Functions ----------------------------------------------------------------------------------

struct Cosine;
struct Cosh;

struct Exp2 {
  static constexpr double kUlps = 3;
  static auto value(auto x) { return std::exp2(x); }
  template <typename N>
  static N slope(N, N y) {
    return N(0.69314718055994530942) * y;
  }
};
struct Expm1 {
  static constexpr double kUlps = 3;
  static auto value(auto x) { return std::expm1(x); }
  template <typename N>
  static N slope(N, N y) {
    return y + N(1.0);
  }
};
struct Log2 {
  static constexpr double kUlps = 3;
  static auto value(auto x) { return std::log2(x); }
  template <typename N>
  static N slope(N x, N) {
    return N(1.4426950408889634074) / x;
  }
};
struct Log10 {
  static constexpr double kUlps = 3;
  static auto value(auto x) { return std::log10(x); }
  template <typename N>
  static N slope(N x, N) {
    return N(0.43429448190325182765) / x;
  }
};
struct Log1p {
  static constexpr double kUlps = 2;
  static auto value(auto x) { return std::log1p(x); }
  template <typename N>
  static N slope(N x, N) {
    return N(1.0) / (x + N(1.0));
  }
};
struct Sine {
  static constexpr double kUlps = 4;
  static auto value(auto x) { return std::sin(x); }
  template <typename N>
  static N slope(N x, N) {
    return of_library<Cosine>(x);
  }
};
struct Cosine {
  static constexpr double kUlps = 4;
  static auto value(auto x) { return std::cos(x); }
  template <typename N>
  static N slope(N x, N) {
    return -of_library<Sine>(x);
  }
};
struct Tangent {
  static constexpr double kUlps = 5;
  static auto value(auto x) { return std::tan(x); }
  template <typename N>
  static N slope(N, N y) {
    return N(1.0) + y * y;
  }
};
struct Arcsine {
  static constexpr double kUlps = 4;
  static auto value(auto x) { return std::asin(x); }
  template <typename N>
  static N slope(N x, N) {
    return N(1.0) / root((N(1.0) - x) * (N(1.0) + x));
  }
};
struct Arccosine {
  static constexpr double kUlps = 4;
  static auto value(auto x) { return std::acos(x); }
  template <typename N>
  static N slope(N x, N) {
    return -(N(1.0) / root((N(1.0) - x) * (N(1.0) + x)));
  }
};
struct Arctangent {
  static constexpr double kUlps = 5;
  static auto value(auto x) { return std::atan(x); }
  template <typename N>
  static N slope(N x, N) {
    return N(1.0) / (N(1.0) + x * x);
  }
};
struct Sinh {
  static constexpr double kUlps = 4;
  static auto value(auto x) { return std::sinh(x); }
  template <typename N>
  static N slope(N x, N) {
    return of_library<Cosh>(x);
  }
};
struct Cosh {
  static constexpr double kUlps = 4;
  static auto value(auto x) { return std::cosh(x); }
  template <typename N>
  static N slope(N x, N) {
    return of_library<Sinh>(x);
  }
};
struct Asinh {
  static constexpr double kUlps = 4;
  static auto value(auto x) { return std::asinh(x); }
  template <typename N>
  static N slope(N x, N) {
    return N(1.0) / root(N(1.0) + x * x);
  }
};
struct Acosh {
  static constexpr double kUlps = 4;
  static auto value(auto x) { return std::acosh(x); }
  template <typename N>
  static N slope(N x, N) {
    return N(1.0) / root((x - N(1.0)) * (x + N(1.0)));
  }
};
struct Atanh {
  static constexpr double kUlps = 5;
  static auto value(auto x) { return std::atanh(x); }
  template <typename N>
  static N slope(N x, N) {
    return N(1.0) / ((N(1.0) - x) * (N(1.0) + x));
  }
};

struct Power {
  static constexpr double kUlps = 16;
  static auto value(auto a, auto b) { return std::pow(a, b); }
  template <typename N>
  static N slope_of_first(N a, N b, N y) {
    return b * y / a;
  }
  template <typename N>
  static N slope_of_second(N a, N, N y) {
    return y * natural_logarithm(a);
  }
};
struct Angle {
  static constexpr double kUlps = 6;
  static auto value(auto a, auto b) { return std::atan2(a, b); }
  template <typename N>
  static N slope_of_first(N a, N b, N) {
    return b / (a * a + b * b);
  }
  template <typename N>
  static N slope_of_second(N a, N b, N) {
    return -(a / (a * a + b * b));
  }
};
struct Hypotenuse {
  static constexpr double kUlps = 4;
  static auto value(auto a, auto b) { return std::hypot(a, b); }
  template <typename N>
  static N slope_of_first(N a, N, N y) {
    return a / y;
  }
  template <typename N>
  static N slope_of_second(N, N b, N y) {
    return b / y;
  }
};

// Returns the error in ulps that a kernel may have in a primitive of the formulas, or 0 if the
// function is none of this header.
inline double library_ulps(std::string_view primitive) {
  struct Row {
    std::string_view primitive;
    double ulps;
  };
  constexpr Row kFunctions[] = {
      {"exp2", Exp2::kUlps},        {"expm1", Expm1::kUlps},     {"log2", Log2::kUlps},
      {"log10", Log10::kUlps},      {"log1p", Log1p::kUlps},     {"sin", Sine::kUlps},
      {"cos", Cosine::kUlps},       {"tan", Tangent::kUlps},     {"asin", Arcsine::kUlps},
      {"acos", Arccosine::kUlps},   {"atan", Arctangent::kUlps}, {"sinh", Sinh::kUlps},
      {"cosh", Cosh::kUlps},        {"asinh", Asinh::kUlps},     {"acosh", Acosh::kUlps},
      {"atanh", Atanh::kUlps},      {"pow", Power::kUlps},       {"atan2", Angle::kUlps},
      {"hypot", Hypotenuse::kUlps}, {"erf", kErfUlps<24>},       {"erfc", kErfUlps<24>}};
  const auto* const found = std::ranges::find(kFunctions, primitive, &Row::primitive);
  return found == std::end(kFunctions) ? 0 : found->ulps;
}

}  // namespace bp::conformance

// As ops_spec/primitives.py names them.
namespace bp::conformance::primitive {

template <typename N>
N erf(N x) {
  using conformance::erf;
  using std::erf;
  return erf(x);
}
template <typename N>
N erfc(N x) {
  using conformance::erfc;
  using std::erfc;
  return erfc(x);
}
template <typename N>
N exp2(N x) {
  return of_library<Exp2>(x);
}
template <typename N>
N expm1(N x) {
  return of_library<Expm1>(x);
}
template <typename N>
N log2(N x) {
  return of_library<Log2>(x);
}
template <typename N>
N log10(N x) {
  return of_library<Log10>(x);
}
template <typename N>
N log1p(N x) {
  return of_library<Log1p>(x);
}
template <typename N>
N sin(N x) {
  return of_library<Sine>(x);
}
template <typename N>
N cos(N x) {
  return of_library<Cosine>(x);
}
template <typename N>
N tan(N x) {
  return of_library<Tangent>(x);
}
template <typename N>
N asin(N x) {
  return of_library<Arcsine>(x);
}
template <typename N>
N acos(N x) {
  return of_library<Arccosine>(x);
}
template <typename N>
N atan(N x) {
  return of_library<Arctangent>(x);
}
template <typename N>
N sinh(N x) {
  return of_library<Sinh>(x);
}
template <typename N>
N cosh(N x) {
  return of_library<Cosh>(x);
}
template <typename N>
N asinh(N x) {
  return of_library<Asinh>(x);
}
template <typename N>
N acosh(N x) {
  return of_library<Acosh>(x);
}
template <typename N>
N atanh(N x) {
  return of_library<Atanh>(x);
}
template <typename N>
N pow(N a, N b) {
  return of_library<Power>(a, b);
}
template <typename N>
N atan2(N a, N b) {
  return of_library<Angle>(a, b);
}
template <typename N>
N hypot(N a, N b) {
  return of_library<Hypotenuse>(a, b);
}

}  // namespace bp::conformance::primitive
