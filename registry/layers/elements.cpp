#include "registry/layers/elements.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "backplane/host.h"

namespace bp::layers {
namespace {

// IEEE 754 binary16.
double half(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const double fraction = bits & 1023;
  const double size = exponent == 0    ? std::ldexp(fraction, -24)
                      : exponent == 31 ? (fraction == 0 ? INFINITY : NAN)
                                       : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -size : size;
}

template <typename T>
T load(const unsigned char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

bool is_float(bp_dtype dtype) {
  return dtype == BP_F16 || dtype == BP_BF16 || dtype == BP_F32 || dtype == BP_F64;
}

double value_of(bp_dtype dtype, const unsigned char* bytes) {
  switch (dtype) {
    case BP_F16:
      return half(load<uint16_t>(bytes));
    case BP_BF16:
      return std::bit_cast<float>(static_cast<uint32_t>(load<uint16_t>(bytes)) << 16);
    case BP_F32:
      return load<float>(bytes);
    default:
      return load<double>(bytes);
  }
}

std::string element_words(bp_dtype dtype, const unsigned char* bytes, uint64_t size) {
  char text[64];
  if (is_float(dtype)) {
    std::snprintf(text, sizeof(text), "%.9g", value_of(dtype, bytes));
    return text;
  }
  std::string hex = "0x";
  for (uint64_t i = size; i > 0; --i) {
    std::snprintf(text, sizeof(text), "%02x", static_cast<unsigned>(bytes[i - 1]));
    hex += text;
  }
  return hex;
}

bool are_alike(bp_dtype dtype, const unsigned char* a, const unsigned char* b, uint64_t size,
               double bound) {
  if (std::memcmp(a, b, size) == 0) return true;
  if (bound < 0 || !is_float(dtype)) return false;
  const double x = value_of(dtype, a), y = value_of(dtype, b);
  if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
  if (x == y) return true;
  return std::abs(x - y) <= bound * std::max({1.0, std::abs(x), std::abs(y)});
}

}  // namespace

std::string first_difference(const Elements& a, const Elements& b, double bound) {
  const bp_tensor& t = *a.tensor;
  const uint64_t size = std::max(1u, bp_dtype_bits(t.dtype) / 8);
  int64_t index[BP_MAX_RANK] = {};
  std::string first;
  uint64_t count = 0, differing = 0;
  for (bool is_done = std::find(t.shape, t.shape + t.ndim, 0) != t.shape + t.ndim; !is_done;) {
    int64_t element = 0;
    for (uint32_t i = 0; i < t.ndim; ++i) element += index[i] * t.strides[i];
    const uint64_t offset = t.byte_offset + static_cast<uint64_t>(element) * size - a.begin;
    ++count;
    if (!are_alike(t.dtype, a.bytes + offset, b.bytes + offset, size, bound)) {
      ++differing;
      if (first.empty()) {
        first = "element [";
        for (uint32_t i = 0; i < t.ndim; ++i) {
          first += (i == 0 ? "" : ", ") + std::to_string(index[i]);
        }
        first += "]: " + element_words(t.dtype, a.bytes + offset, size) + " and " +
                 element_words(t.dtype, b.bytes + offset, size);
      }
    }
    is_done = true;
    for (uint32_t i = t.ndim; i > 0 && is_done; --i) {
      is_done = ++index[i - 1] == t.shape[i - 1];
      if (is_done) index[i - 1] = 0;
    }
  }
  if (first.empty()) return "";
  return first + ", " + std::to_string(differing) + " of " + std::to_string(count) +
         " elements differ";
}

}  // namespace bp::layers
