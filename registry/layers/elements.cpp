#include "registry/layers/elements.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "backplane/host.h"
#include "registry/boundary/number_text.hpp"
#include "registry/tensors/floats.hpp"
#include "registry/tensors/strides.hpp"

namespace bp::layers {
namespace {

using tensors::is_plain_float;

template <typename T>
T load(const unsigned char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

double value_of(bp_dtype dtype, const unsigned char* bytes) {
  switch (dtype) {
    case BP_F16:
      return tensors::f16_value(load<uint16_t>(bytes));
    case BP_BF16:
      return tensors::bf16_value(load<uint16_t>(bytes));
    case BP_F32:
      return load<float>(bytes);
    default:
      return load<double>(bytes);
  }
}

uint64_t element_bytes(bp_dtype dtype) { return std::max(1u, bp_dtype_bits(dtype) / 8); }

std::string number_words(double value, int digits) { return short_text(value, digits); }

std::string element_words(bp_dtype dtype, const unsigned char* bytes) {
  if (is_plain_float(dtype)) return number_words(value_of(dtype, bytes), dtype == BP_F64 ? 17 : 9);
  std::string hex = "0x";
  for (uint64_t i = element_bytes(dtype); i > 0; --i) {
    char text[8];
    std::snprintf(text, sizeof(text), "%02x", static_cast<unsigned>(bytes[i - 1]));
    hex += text;
  }
  return hex;
}

// Two elements of different bits, and the difference that is allowed.
struct Pair {
  bp_dtype dtype;
  const unsigned char *a, *b;
  double allowed;  // For floats. 0 allows no difference of bits.

  bool are_alike() const {
    if (!is_plain_float(dtype)) return false;
    const double x = value_of(dtype, a), y = value_of(dtype, b);
    if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
    return allowed > 0 && (x == y || std::abs(x - y) <= allowed);
  }

  std::string words() const {
    std::string values = element_words(dtype, a) + " and " + element_words(dtype, b);
    if (!is_plain_float(dtype)) return values;
    const double distance = std::abs(value_of(dtype, a) - value_of(dtype, b));
    return values + " are " + number_words(distance, 3) + " apart, allowed are " +
           number_words(allowed, 3);
  }
};

Pair make_pair(bp_dtype dtype, const unsigned char* a, const unsigned char* b,
               const Tolerance& tolerance, const unsigned char* sum) {
  Pair pair{dtype, a, b, 0};
  if (!is_plain_float(dtype) || tolerance.relative <= 0) return pair;
  double scale = tolerance.scale;
  for (const unsigned char* each : {a, b, sum}) {
    const double value = each == nullptr ? 0 : std::abs(value_of(dtype, each));
    if (std::isfinite(value)) scale = std::max(scale, value);
  }
  pair.allowed = tolerance.relative * scale;
  return pair;
}

// Calls body(index, offset in bits behind byte `begin`) for each element. The last axis moves
// first.
template <typename Body>
void for_each(const bp_tensor& t, uint64_t begin, Body&& body) {
  const auto bits = static_cast<int64_t>(bp_dtype_bits(t.dtype));
  int64_t index[BP_MAX_RANK] = {};
  for (bool is_done = !tensors::has_elements(t); !is_done;) {
    int64_t element = 0;
    for (uint32_t i = 0; i < t.ndim; ++i) element += index[i] * t.strides[i];
    body(index, 8 * (t.byte_offset - begin) + static_cast<uint64_t>(element * bits));
    is_done = true;
    for (uint32_t i = t.ndim; i > 0 && is_done; --i) {
      is_done = ++index[i - 1] == t.shape[i - 1];
      if (is_done) index[i - 1] = 0;
    }
  }
}

// Returns the bytes of an element. Those of a packed one are its code, in `code`.
const unsigned char* element_at(bp_dtype dtype, const unsigned char* bytes, uint64_t bit,
                                unsigned char& code) {
  const uint32_t width = bp_dtype_bits(dtype);
  if (width % 8 == 0) return bytes + bit / 8;
  uint32_t word = bytes[bit / 8];
  if (bit % 8 + width > 8) word |= uint32_t{bytes[bit / 8 + 1]} << 8;
  code = static_cast<unsigned char>(word >> bit % 8 & ((1u << width) - 1));
  return &code;
}

}  // namespace

std::string first_difference(const Elements& a, const Elements& b, const Tolerance& tolerance) {
  const bp_tensor& t = *a.tensor;
  const uint64_t size = element_bytes(t.dtype);
  std::string first;
  uint64_t count = 0, differing = 0;
  for_each(t, a.begin, [&](const int64_t* index, uint64_t bit) {
    ++count;
    unsigned char code_a = 0, code_b = 0;
    const unsigned char* const of_a = element_at(t.dtype, a.bytes, bit, code_a);
    const unsigned char* const of_b = element_at(t.dtype, b.bytes, bit, code_b);
    if (std::memcmp(of_a, of_b, size) == 0) return;
    const unsigned char* sum = tolerance.sums == nullptr ? nullptr : tolerance.sums + bit / 8;
    const Pair pair = make_pair(t.dtype, of_a, of_b, tolerance, sum);
    if (pair.are_alike()) return;
    if (++differing > 1) return;
    first = "element [";
    for (uint32_t i = 0; i < t.ndim; ++i) first += (i == 0 ? "" : ", ") + std::to_string(index[i]);
    first += "]: " + pair.words();
  });
  if (first.empty()) return "";
  return first + "; " + std::to_string(differing) + " of " + std::to_string(count) +
         " elements differ";
}

double largest_magnitude(const Elements& a) {
  double largest = 0;
  if (!is_plain_float(a.tensor->dtype)) return largest;
  for_each(*a.tensor, a.begin, [&](const int64_t*, uint64_t bit) {
    const double value = std::abs(value_of(a.tensor->dtype, a.bytes + bit / 8));
    if (std::isfinite(value)) largest = std::max(largest, value);
  });
  return largest;
}

bool make_absolute(const bp_tensor& tensor, unsigned char* bytes, uint64_t begin) {
  if (!is_plain_float(tensor.dtype)) return false;
  const uint64_t last = element_bytes(tensor.dtype) - 1;  // The last byte has the sign.
  for_each(tensor, begin, [&](const int64_t*, uint64_t bit) {
    unsigned char& highest = bytes[bit / 8 + last];
    highest = static_cast<unsigned char>(highest & 0x7F);
  });
  return true;
}

}  // namespace bp::layers
