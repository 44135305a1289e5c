#include "backplane/shell/combine.hpp"

#include <cmath>
#include <cstring>
#include <type_traits>

#include "backplane/shell/narrow.hpp"

namespace bp::kernels {
namespace {

template <typename T>
constexpr bool kIsFloat =
    std::is_floating_point_v<T> || std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

template <typename T>
T load(const std::byte* elements, int64_t i) {
  T value;
  std::memcpy(&value, elements + static_cast<size_t>(i) * sizeof(T), sizeof(T));
  return value;
}

// The type in which elements of T are reduced. Integers are reduced as unsigned ones, which wrap.
template <typename T>
auto to_wide(T x) {
  if constexpr (kIsFloat<T>) {
    return widen(x);
  } else if constexpr (sizeof(T) < sizeof(uint32_t)) {
    return static_cast<uint32_t>(x);
  } else {
    return static_cast<std::make_unsigned_t<T>>(x);
  }
}

template <typename T, typename Wide>
T from_wide(Wide x) {
  if constexpr (kIsFloat<T>) {
    return narrow<T>(x);
  } else {
    return static_cast<T>(x);
  }
}

template <typename T, typename Wide>
Wide larger(Wide a, Wide b) {
  if constexpr (kIsFloat<T>) {
    if (std::isnan(a)) return a;
    return std::isnan(b) || b > a ? b : a;
  } else {
    return static_cast<T>(b) > static_cast<T>(a) ? b : a;
  }
}

template <typename T, typename Wide>
Wide smaller(Wide a, Wide b) {
  if constexpr (kIsFloat<T>) {
    if (std::isnan(a)) return a;
    return std::isnan(b) || b < a ? b : a;
  } else {
    return static_cast<T>(b) < static_cast<T>(a) ? b : a;
  }
}

// Combines two contributions. Compilers turn this loop into vector instructions, and not that over
// any number of contributions.
template <typename T, typename Join>
void fold_two(const std::byte* first, const std::byte* second, std::byte* result, int64_t count,
              const Join& join) {
  for (int64_t i = 0; i < count; ++i) {
    const auto a = to_wide(load<T>(first, i)), b = to_wide(load<T>(second, i));
    const T value = from_wide<T>(static_cast<decltype(to_wide(T{}))>(join(a, b)));
    std::memcpy(result + static_cast<size_t>(i) * sizeof(T), &value, sizeof(T));
  }
}

// Combines the contributions one after the other.
template <typename T, typename Join>
void fold(std::span<const Contribution> from, std::byte* result, int64_t count, const Join& join) {
  if (from.size() == 2) {
    return fold_two<T>(from[0].elements, from[1].elements, result, count, join);
  }
  for (int64_t i = 0; i < count; ++i) {
    auto sum = to_wide(load<T>(from[0].elements, i));
    for (const Contribution& c : from.subspan(1)) {
      sum = static_cast<decltype(sum)>(join(sum, to_wide(load<T>(c.elements, i))));
    }
    const T value = from_wide<T>(sum);
    std::memcpy(result + static_cast<size_t>(i) * sizeof(T), &value, sizeof(T));
  }
}

// Sums floats and divides the sum by `divisor`. If `scales` is true, each contribution is first
// multiplied by its scale.
template <typename T>
void scaled_sum(std::span<const Contribution> from, std::byte* result, int64_t count, bool scales,
                double divisor) {
  using Wide = decltype(to_wide(T{}));
  for (int64_t i = 0; i < count; ++i) {
    Wide sum = 0;
    for (const Contribution& c : from) {
      const Wide x = to_wide(load<T>(c.elements, i));
      sum += scales ? x * static_cast<Wide>(c.scale) : x;
    }
    const T value = from_wide<T>(sum / static_cast<Wide>(divisor));
    std::memcpy(result + static_cast<size_t>(i) * sizeof(T), &value, sizeof(T));
  }
}

template <typename T>
void divide_as(std::byte* elements, int64_t count, double divisor) {
  const auto wide = static_cast<decltype(to_wide(T{}))>(divisor);
  for (int64_t i = 0; i < count; ++i) {
    const T value = from_wide<T>(to_wide(load<T>(elements, i)) / wide);
    std::memcpy(elements + static_cast<size_t>(i) * sizeof(T), &value, sizeof(T));
  }
}

template <typename T>
void combine_as(bp_reduction reduction, std::span<const Contribution> from, std::byte* result,
                int64_t count) {
  using Wide = decltype(to_wide(T{}));
  const auto run = [&](const auto& join) { fold<T>(from, result, count, join); };
  switch (reduction) {
    case BP_REDUCTION_SUM:
      return run([](Wide a, Wide b) { return a + b; });
    case BP_REDUCTION_PRODUCT:
      return run([](Wide a, Wide b) { return a * b; });
    case BP_REDUCTION_MIN:
      return run([](Wide a, Wide b) { return smaller<T>(a, b); });
    case BP_REDUCTION_MAX:
      return run([](Wide a, Wide b) { return larger<T>(a, b); });
    default:
      break;
  }
  if constexpr (kIsFloat<T>) {
    const bool is_average = reduction == BP_REDUCTION_AVERAGE;
    scaled_sum<T>(from, result, count, !is_average,
                  is_average ? static_cast<double>(from.size()) : 1.0);
  }
}

bool is_float(bp_dtype dtype) {
  return dtype == BP_F16 || dtype == BP_BF16 || dtype == BP_F32 || dtype == BP_F64;
}

bool is_integer(bp_dtype dtype) { return dtype >= BP_I8 && dtype <= BP_U64; }

}  // namespace

bool can_combine(bp_reduction reduction, bp_dtype dtype) {
  switch (reduction) {
    case BP_REDUCTION_SUM:
    case BP_REDUCTION_PRODUCT:
    case BP_REDUCTION_MIN:
    case BP_REDUCTION_MAX:
      return is_float(dtype) || is_integer(dtype);
    case BP_REDUCTION_AVERAGE:
    case BP_REDUCTION_SCALED_SUM:
      return is_float(dtype);
    default:
      return false;
  }
}

void combine(bp_reduction reduction, bp_dtype dtype, std::span<const Contribution> from,
             std::byte* result, int64_t count) {
  switch (dtype) {
    case BP_I8:
      return combine_as<int8_t>(reduction, from, result, count);
    case BP_I16:
      return combine_as<int16_t>(reduction, from, result, count);
    case BP_I32:
      return combine_as<int32_t>(reduction, from, result, count);
    case BP_I64:
      return combine_as<int64_t>(reduction, from, result, count);
    case BP_U8:
      return combine_as<uint8_t>(reduction, from, result, count);
    case BP_U16:
      return combine_as<uint16_t>(reduction, from, result, count);
    case BP_U32:
      return combine_as<uint32_t>(reduction, from, result, count);
    case BP_U64:
      return combine_as<uint64_t>(reduction, from, result, count);
    case BP_F16:
      return combine_as<Float16>(reduction, from, result, count);
    case BP_BF16:
      return combine_as<BFloat16>(reduction, from, result, count);
    case BP_F32:
      return combine_as<float>(reduction, from, result, count);
    default:
      return combine_as<double>(reduction, from, result, count);
  }
}

void divide(bp_dtype dtype, std::byte* elements, int64_t count, double divisor) {
  switch (dtype) {
    case BP_F16:
      return divide_as<Float16>(elements, count, divisor);
    case BP_BF16:
      return divide_as<BFloat16>(elements, count, divisor);
    case BP_F32:
      return divide_as<float>(elements, count, divisor);
    default:
      return divide_as<double>(elements, count, divisor);
  }
}

}  // namespace bp::kernels
