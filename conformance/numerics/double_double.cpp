#include "conformance/numerics/double_double.hpp"

#include <limits>

namespace bp::conformance {
namespace {

constexpr DoubleDouble kLn2(0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56);

// Returns hi + lo for |lo| far below |hi|. It keeps the sign of a zero, which an addition would
// lose.
DoubleDouble normalized(double hi, double lo) {
  if (lo == 0 || !std::isfinite(hi)) return {hi, 0};
  const double sum = hi + lo;
  if (!std::isfinite(sum)) return {sum, 0};
  return {sum, lo - (sum - hi)};
}

DoubleDouble scaled(DoubleDouble x, int exponent) {
  return normalized(std::ldexp(x.hi, exponent), std::ldexp(x.lo, exponent));
}

// Returns exp(x) - 1 for |x| <= 0.5: the series at x / 256, doubled eight times.
DoubleDouble small_expm1(DoubleDouble x) {
  const DoubleDouble r = scaled(x, -8);
  DoubleDouble term = r;
  DoubleDouble sum = r;
  for (int n = 2; n <= 11; ++n) {
    term = term * r / DoubleDouble(n);
    sum = sum + term;
  }
  for (int i = 0; i < 8; ++i) sum = sum + sum + sum * sum;
  return sum;
}

// Returns log(m) = 2 * artanh((m - 1) / (m + 1)) for m near 1, where a sum with an exponential
// would lose the digits of the result.
DoubleDouble log_near_one(DoubleDouble m) {
  const DoubleDouble s = (m - DoubleDouble(1)) / (m + DoubleDouble(1)), square = s * s;
  DoubleDouble power = s, sum = s;
  for (int n = 3; n <= 25; n += 2) {
    power = power * square;
    sum = sum + power / DoubleDouble(n);
  }
  return sum + sum;
}

}  // namespace

DoubleDouble DoubleDouble::from_int64(int64_t value) {
  const auto bits = static_cast<uint64_t>(value);
  const double low = static_cast<double>(bits & 0xffffffffu);
  const double high = static_cast<double>(static_cast<int32_t>(bits >> 32)) * 0x1p32;
  return two_sum(high, low);
}

DoubleDouble two_sum(double a, double b) {
  const double sum = a + b;
  if (!std::isfinite(sum)) return {sum, 0};
  const double b_part = sum - a;
  return {sum, (a - (sum - b_part)) + (b - b_part)};
}

DoubleDouble two_product(double a, double b) {
  const double product = a * b;
  if (product == 0 || !std::isfinite(product)) return {product, 0};
  return {product, std::fma(a, b, -product)};
}

DoubleDouble operator-(DoubleDouble a) { return {-a.hi, -a.lo}; }

DoubleDouble operator+(DoubleDouble a, DoubleDouble b) {
  const DoubleDouble high = two_sum(a.hi, b.hi);
  const DoubleDouble low = two_sum(a.lo, b.lo);
  const DoubleDouble sum = normalized(high.hi, high.lo + low.hi);
  return normalized(sum.hi, sum.lo + low.lo);
}

DoubleDouble operator-(DoubleDouble a, DoubleDouble b) { return a + -b; }

DoubleDouble operator*(DoubleDouble a, DoubleDouble b) {
  const DoubleDouble product = two_product(a.hi, b.hi);
  if (product.hi == 0 || !std::isfinite(product.hi)) return product;
  return normalized(product.hi, product.lo + (a.hi * b.lo + a.lo * b.hi));
}

DoubleDouble operator/(DoubleDouble a, DoubleDouble b) {
  const double first = a.hi / b.hi;
  if (first == 0 || !std::isfinite(first) || !std::isfinite(b.hi)) return first;
  // b * first would overflow.
  if (std::fabs(a.hi) > 0x1p1000) return scaled(scaled(a, -100) / b, 100);
  const DoubleDouble rest = a - b * DoubleDouble(first);
  const double second = rest.hi / b.hi;
  const double third = (rest - b * DoubleDouble(second)).hi / b.hi;
  // `first` is the correctly rounded quotient of two doubles; a sum could round it once more.
  if (a.lo == 0 && b.lo == 0) return {first, second + third};
  const DoubleDouble sum = normalized(first, second);
  return normalized(sum.hi, sum.lo + third);
}

bool operator<(DoubleDouble a, DoubleDouble b) {
  return a.hi < b.hi || (a.hi == b.hi && a.lo < b.lo);
}

bool operator==(DoubleDouble a, DoubleDouble b) { return a.hi == b.hi && a.lo == b.lo; }

DoubleDouble abs(DoubleDouble x) { return std::signbit(x.hi) ? -x : x; }

DoubleDouble sqrt(DoubleDouble x) {
  const double root = std::sqrt(x.hi);
  if (root == 0 || !std::isfinite(root)) return root;
  const DoubleDouble rest = x - two_product(root, root);
  const double correction = rest.hi / (2 * root);
  return x.lo == 0 ? DoubleDouble(root, correction) : normalized(root, correction);
}

DoubleDouble exp(DoubleDouble x) {
  if (std::isnan(x.hi) || x.hi > 710 || x.hi < -746) return std::exp(x.hi);
  const double k = std::nearbyint(x.hi / kLn2.hi);
  const DoubleDouble rest = x - kLn2 * DoubleDouble(k);
  return scaled(DoubleDouble(1) + small_expm1(rest), static_cast<int>(k));
}

// One Newton step on exp(y) = m doubles the 53 bits of std::log. m lies in [0.75, 1.5), so that
// k * ln2 never cancels log(m).
DoubleDouble log(DoubleDouble x) {
  if (!(x.hi > 0) || !std::isfinite(x.hi)) return std::log(x.hi);
  int k = 0;
  if (std::frexp(x.hi, &k) < 0.75) k -= 1;
  const DoubleDouble m = scaled(x, -k);
  if (k == 0 && std::fabs(m.hi - 1) < 0.0625) return log_near_one(m);
  DoubleDouble y = std::log(m.hi);
  y = y + (m * exp(-y) - DoubleDouble(1));
  return y + kLn2 * DoubleDouble(k);
}

bool isnan(DoubleDouble x) { return std::isnan(x.hi); }

int64_t to_int64(DoubleDouble x) {
  const auto part = [](double value) {
    constexpr double kLimit = 0x1p63;
    if (value >= kLimit) return static_cast<uint64_t>(value - kLimit) + (uint64_t{1} << 63);
    return static_cast<uint64_t>(static_cast<int64_t>(value));
  };
  return static_cast<int64_t>(part(x.hi) + part(x.lo));
}

}  // namespace bp::conformance
