// A line is worked on in parts, whose last vector may lie partly behind the elements. The floats of
// a part are gathered and widened, and its codes are bytes before they are packed, so that vectors
// compute every layout.
#include "backends/host_kernels/quantized_line.hpp"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/quantized_line.cpp"
// clang-format off: this header compiles the file once for each target, and comes first.
#include <hwy/foreach_target.h>
// clang-format on
#include <hwy/highway.h>

#include "backends/host_kernels/codes-inl.hpp"
#include "backends/host_kernels/lines-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels::HWY_NAMESPACE {
namespace {

constexpr int64_t kPart = 256;  // An even number, so that parts of whole bytes end at one.

// Returns whether `count` codes from `bit` on are whole bytes that lie behind each other.
bool fills_bytes(const QuantizedLine& line, int64_t bit, int64_t count, int bits) {
  return line.bit_stride == bits && bit % 8 == 0 && count * bits % 8 == 0;
}

// Packs the codes of a part.
void write_codes(const QuantizedLine& line, int64_t begin, int64_t count, int bits,
                 const uint8_t* HWY_RESTRICT codes) {
  const int64_t bit = line.bit + begin * line.bit_stride;
  if (bits == 4 && fills_bytes(line, bit, count, bits)) {
    auto* const HWY_RESTRICT to = reinterpret_cast<uint8_t*>(line.codes + bit / 8);
    for (int64_t i = 0; i < count / 2; ++i) {
      to[i] = static_cast<uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
    }
  } else if (bits == 8 && line.bit_stride == 8) {
    std::memcpy(line.codes + bit / 8, codes, static_cast<size_t>(count));
  } else {
    for (int64_t i = 0; i < count; ++i) {
      write_code(line.codes, bit + i * line.bit_stride, bits, codes[i]);
    }
  }
}

// The scales and the zeros of a part of a line, as vectors.
class PartScales {
 public:
  PartScales(const QuantizedLine& line, int64_t begin)
      : scales_(line.scales == nullptr ? nullptr : line.scales + begin),
        zeros_(line.scales == nullptr ? nullptr : line.zeros + begin),
        scale_(hn::Set(Floats(), line.scale)),
        zero_(hn::Set(Floats(), line.zero)) {}

  hn::Vec<Floats> scale(int64_t i) const {
    return scales_ == nullptr ? scale_ : hn::LoadU(Floats(), scales_ + i);
  }
  hn::Vec<Floats> zero(int64_t i) const {
    return zeros_ == nullptr ? zero_ : hn::LoadU(Floats(), zeros_ + i);
  }

 private:
  const float *const scales_, *const zeros_;
  const hn::Vec<Floats> scale_, zero_;
};

// Does what code_of_integer() does, with vectors. `numbers` and `codes` have room for whole ones.
void round_to_integers(const CodeFormat& format, const PartScales& scales, int64_t count,
                       const float* numbers, uint8_t* codes) {
  constexpr float kBeyond = 1024, kRounding = 0x1.8p23F;
  const Floats d;
  const hn::RebindToSigned<Floats> integer_d;
  const hn::Rebind<uint8_t, Floats> byte_d;
  const auto rounding = hn::Set(d, kRounding), beyond = hn::Set(d, kBeyond);
  const auto low = hn::Set(d, static_cast<float>(format.low()));
  const auto high = hn::Set(d, static_cast<float>(format.high()));
  const auto mask = hn::Set(integer_d, (1 << format.bits) - 1);
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(hn::Lanes(d))) {
    const auto quotient = hn::Div(hn::Load(d, numbers + i), scales.scale(i));
    const auto number = hn::IfThenElseZero(hn::Eq(quotient, quotient), quotient);
    const auto limited = hn::Min(hn::Max(number, hn::Neg(beyond)), beyond);
    const auto sum = hn::Add(hn::Sub(hn::Add(limited, rounding), rounding), scales.zero(i));
    const auto stored = hn::ConvertTo(integer_d, hn::Min(hn::Max(sum, low), high));
    hn::StoreU(hn::DemoteTo(byte_d, hn::And(stored, mask)), byte_d, codes + i);
  }
}

void quantize(const QuantizedLine& line, const CodeFormat& format) {
  HWY_ALIGN float numbers[kPart];
  HWY_ALIGN uint8_t codes[kPart];
  for (int64_t begin = 0; begin < line.count; begin += kPart) {
    const int64_t count = std::min(kPart, line.count - begin);
    with_element_of<float>(line.float_dtype, [&]<typename T>(T) {
      load_line(reinterpret_cast<const T*>(line.floats) + begin * line.float_stride,
                line.float_stride, count, numbers);
    });
    if (format.is_integer()) {
      round_to_integers(format, PartScales(line, begin), count, numbers, codes);
    } else {
      for (int64_t i = 0; i < count; ++i) {
        const float scale = line.scales == nullptr ? line.scale : line.scales[begin + i];
        codes[i] = static_cast<uint8_t>(code_of_float(format, numbers[i] / scale));
      }
    }
    write_codes(line, begin, count, format.bits, codes);
  }
}

void dequantize(const QuantizedLine& line, const CodeFormat& format) {
  const Floats d;
  HWY_ALIGN float numbers[kPart];
  HWY_ALIGN uint8_t codes[kPart];
  for (int64_t begin = 0; begin < line.count; begin += kPart) {
    const int64_t count = std::min(kPart, line.count - begin);
    const PartScales scales(line, begin);
    read_codes(line.codes, line.bit + begin * line.bit_stride, line.bit_stride, count, format.bits,
               codes);
    numbers_of(format, count, codes, numbers);
    for (int64_t i = 0; i < count; i += static_cast<int64_t>(hn::Lanes(d))) {
      const auto distance = hn::Sub(hn::Load(d, numbers + i), scales.zero(i));
      hn::Store(hn::Mul(distance, scales.scale(i)), d, numbers + i);
    }
    with_element_of<float>(line.float_dtype, [&]<typename T>(T) {
      store_line(numbers, count, reinterpret_cast<T*>(line.floats) + begin * line.float_stride,
                 line.float_stride);
    });
  }
}

}  // namespace
}  // namespace bp::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(dequantize);
HWY_EXPORT(quantize);

}  // namespace

void quantize_line(const QuantizedLine& line, const CodeFormat& format) {
  HWY_DYNAMIC_DISPATCH(quantize)(line, format);
}

void dequantize_line(const QuantizedLine& line, const CodeFormat& format) {
  HWY_DYNAMIC_DISPATCH(dequantize)(line, format);
}

}  // namespace bp::kernels
#endif
