#include "conformance/mutants/values.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "registry/tensors/floats.hpp"

namespace bp::mutants {
namespace {

struct Format {
  int significand_bits;  // The bits without the hidden one.
  int exponent_bits;
};

Format format_of(bp_dtype dtype) {
  if (dtype == BP_F16) return {10, 5};
  if (dtype == BP_BF16) return {7, 8};
  return {23, 8};
}

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

template <typename T>
double read_as(const std::byte* from) {
  return static_cast<double>(load<T>(from));
}

double read_element(const std::byte* from, bp_dtype dtype) {
  switch (dtype) {
    case BP_F64:
      return read_as<double>(from);
    case BP_F32:
      return read_as<float>(from);
    case BP_F16:
      return tensors::f16_value(load<uint16_t>(from));
    case BP_BF16:
      return tensors::bf16_value(load<uint16_t>(from));
    case BP_I64:
      return read_as<int64_t>(from);
    case BP_I32:
      return read_as<int32_t>(from);
    case BP_I16:
      return read_as<int16_t>(from);
    case BP_I8:
      return read_as<int8_t>(from);
    default:
      return read_as<uint8_t>(from);
  }
}

template <typename T>
void write_as(std::byte* to, double value) {
  const auto converted = static_cast<T>(value);
  std::memcpy(to, &converted, sizeof(converted));
}

void write_element(std::byte* to, bp_dtype dtype, double value, bool rounds) {
  switch (dtype) {
    case BP_F64:
      return write_as<double>(to, value);
    case BP_F32:
    case BP_F16:
    case BP_BF16: {
      const uint64_t bits = to_bits(value, dtype, rounds);
      std::memcpy(to, &bits, dtype == BP_F32 ? 4 : 2);  // The bytes are little-endian, as on all
                                                        // hosts of bp_mutant.
      return;
    }
    case BP_I64:
      return write_as<int64_t>(to, value);
    case BP_I32:
      return write_as<int32_t>(to, value);
    case BP_I16:
      return write_as<int16_t>(to, value);
    case BP_I8:
      return write_as<int8_t>(to, value);
    default:
      return write_as<uint8_t>(to, value);
  }
}

bool is_same(double a, double b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0;  // -0 differs from 0, and a NaN equals itself.
}

}  // namespace

double rounded(double value, int bits) {
  if (value == 0 || !std::isfinite(value)) return value;
  int exponent;
  const double fraction = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, bits)), exponent - bits);
}

uint64_t to_bits(double value, bp_dtype dtype, bool rounds) {
  const Format format = format_of(dtype);
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const uint64_t sign =
      std::signbit(value) ? uint64_t{1} << (format.significand_bits + format.exponent_bits) : 0;
  const uint64_t infinity = ((uint64_t{1} << format.exponent_bits) - 1) << format.significand_bits;
  if (std::isnan(value)) return sign | infinity | uint64_t{1} << (format.significand_bits - 1);
  if (std::isinf(value)) return sign | infinity;
  if (value == 0) return sign;
  // Returns the unit of the last place: of the value's own binade, or of the subnormals.
  const int exponent = std::max(std::ilogb(value), 1 - bias);
  const double units = std::ldexp(std::fabs(value), format.significand_bits - exponent);
  const auto whole = static_cast<uint64_t>(rounds ? std::nearbyint(units) : std::floor(units));
  // Addition also handles a carry into the next binade, and from subnormal to normal.
  const uint64_t hidden = uint64_t{1} << format.significand_bits;
  const uint64_t bits =
      whole < hidden
          ? whole
          : (static_cast<uint64_t>(exponent + bias) << format.significand_bits) + (whole - hidden);
  return sign | std::min(bits, infinity);
}

Values::Values(const Call& call, const bp_tensor& tensor)
    : call_(call),
      tensor_(tensor),
      item_bytes_(static_cast<size_t>(View(tensor).item_size_bytes())) {
  find_places();
  if (places_.empty()) return;
  bytes_.resize(range_.size_bytes);
  const bp_allocator_ops& allocator = *call.wrapped.allocator;
  status_ = allocator.copy_to_host(allocator.self, call.launch->stream, bytes_.data(), &range_,
                                   BP_BORROW_DURING_CALL, UINT64_MAX);
  for (const size_t place : places_) {
    values_.push_back(read_element(bytes_.data() + place, tensor.dtype));
  }
  read_ = values_;
}

void Values::find_places() {
  const View view(tensor_);
  const int64_t count = view.element_count();
  std::vector<int64_t> offsets(static_cast<size_t>(count), 0);
  for (size_t i = 0; i < offsets.size(); ++i) {
    auto rest = static_cast<int64_t>(i);
    for (uint32_t axis = tensor_.ndim; axis-- > 0;) {
      offsets[i] += rest % tensor_.shape[axis] * tensor_.strides[axis];
      rest /= tensor_.shape[axis];
    }
  }
  if (offsets.empty()) return;
  const auto [low, high] = std::ranges::minmax(offsets);
  const auto item = static_cast<int64_t>(item_bytes_);
  range_.buffer = tensor_.buffer;
  range_.byte_offset = tensor_.byte_offset + static_cast<uint64_t>(low * item);
  range_.size_bytes = static_cast<uint64_t>((high - low + 1) * item);
  for (const int64_t offset : offsets) {
    places_.push_back(static_cast<size_t>((offset - low) * item));
  }
}

uint64_t Values::bits(size_t i) const {
  uint64_t result = 0;
  std::memcpy(&result, bytes_.data() + places_[i], item_bytes_);
  return result;
}

void Values::set_bits(size_t i, uint64_t bits) {
  std::memcpy(bytes_.data() + places_[i], &bits, item_bytes_);
}

bp_status Values::write(bool rounds) {
  if (places_.empty() || status_ != BP_OK) return status_;
  for (size_t i = 0; i < places_.size(); ++i) {
    if (is_same(values_[i], read_[i])) continue;
    write_element(bytes_.data() + places_[i], tensor_.dtype, values_[i], rounds);
  }
  const bp_allocator_ops& allocator = *call_.wrapped.allocator;
  return allocator.copy_from_host(allocator.self, call_.launch->stream, &range_, bytes_.data(),
                                  BP_BORROW_DURING_CALL);
}

bp_status first_failure(std::initializer_list<const Values*> reads) {
  for (const Values* const read : reads) {
    if (read->status() != BP_OK) return read->status();
  }
  return BP_OK;
}

}  // namespace bp::mutants
