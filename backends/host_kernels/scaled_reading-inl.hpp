// Reads the factors of products with a quantised weight: rows of a, and the scales and zero points
// of the rows of b.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_SCALED_READING_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_SCALED_READING_INL_HPP
#undef BACKPLANE_CPU_SCALED_READING_INL_HPP
#else
#define BACKPLANE_CPU_SCALED_READING_INL_HPP
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "backends/host_kernels/lines-inl.hpp"
#include "backends/host_kernels/quantized_line.hpp"
#include "backends/host_kernels/scaled_codes-inl.hpp"
#include "backends/host_kernels/scaled_work.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

// A row of a, along its last axis.
struct RowOfA {
  RowOfA(const ScaledProduct& p, int64_t row)
      : offset(row_offset(p.a, row, index)), stride(p.a.strides[p.a.ndim - 1]) {}
  int64_t index[BP_MAX_RANK] = {};
  int64_t offset, stride;
};

// Reads integers of up to 8 bits as i8. Those of u8 are lowered by 128.
inline void read_integers(const ScaledProduct& p, const RowOfA& row, int64_t begin, int64_t count,
                          int8_t* to) {
  const CodeFormat format = code_format(p.a_dtype);
  const int sign = 1 << (format.bits - 1), lowered = p.a_dtype == BP_U8 ? 128 : 0;
  HWY_ALIGN uint8_t codes[kMostChunk];
  read_codes(p.a.address, (row.offset + begin * row.stride) * format.bits, row.stride * format.bits,
             count, format.bits, codes);
  for (int64_t i = 0; i < count; ++i) {
    const int value = format.has_sign ? (codes[i] ^ sign) - sign : codes[i] - lowered;
    to[i] = static_cast<int8_t>(value);
  }
}

// Reads elements of a as floats, block by block where a is quantised.
inline void read_floats(const ScaledProduct& p, const CodeValues& scales, const CodeValues& values,
                        RowOfA& row, int64_t begin, int64_t count, float* to) {
  if (p.a_scale.view.address == nullptr) {
    return with_element_of<float>(p.a_dtype, [&]<typename T>(T) {
      const auto* const from = reinterpret_cast<const T*>(p.a.address) + row.offset;
      load_line(from + begin * row.stride, row.stride, count, to);
    });
  }
  const uint32_t axis = p.a.ndim - 1;
  const int64_t bits = values.format.bits;
  const int64_t block = p.a_scale.view.shape[axis] == 1 ? p.depth : p.a_scale.blocks[axis];
  for (int64_t at = begin; at < begin + count;) {
    row.index[axis] = at;
    const int64_t part = std::min(begin + count - at, block - at % block);
    const float scale = p.a_scale.at(p.a_scale.offset_of(row.index), scales);
    const float zero =
        p.a_zero.view.address == nullptr ? 0 : p.a_zero.at(p.a_zero.offset_of(row.index), values);
    dequantize_line({reinterpret_cast<std::byte*>(to + (at - begin)), BP_F32, 1, p.a.address,
                     (row.offset + at * row.stride) * bits, row.stride * bits, part, scale, zero},
                    values.format);
    at += part;
  }
}

// Reads the numbers of `count` blocks of a row of b, which lie along the last axis of `from`. It
// writes whole vectors.
inline void read_numbers(const BlockTensor& from, int64_t row, int64_t count, float* to) {
  constexpr int64_t kPart = 256;
  const int64_t offset = row / from.blocks[0] * from.view.strides[0];
  const int64_t stride = from.view.strides[1];
  if (from.bits == 0) {
    return with_element_of<float>(from.dtype, [&]<typename T>(T) {
      load_line(reinterpret_cast<const T*>(from.view.address) + offset, stride, count, to);
    });
  }
  const CodeFormat format = code_format(from.dtype);
  HWY_ALIGN uint8_t codes[kPart];
  for (int64_t begin = 0; begin < count; begin += kPart) {
    const int64_t part = std::min(kPart, count - begin);
    read_codes(from.view.address, (offset + begin * stride) * from.bits, stride * from.bits, part,
               from.bits, codes);
    numbers_of(format, part, codes, to + begin);
  }
}

// Reads the zero points of a row of b as codes without a sign, and puts each into all bytes of a
// lane.
inline void read_zero_bytes(const ScaledProduct& p, int64_t row, int64_t count, float* to) {
  constexpr int64_t kPart = 256;
  const BlockTensor& from = p.b_zero;
  const int64_t offset = row / from.blocks[0] * from.view.strides[0];
  const int64_t stride = from.view.strides[1];
  const auto sign = hn::Set(Words(), sign_flip(p.b_dtype) & ((1u << from.bits) - 1));
  const auto all_bytes = hn::Set(Words(), 0x01010101);
  const hn::Rebind<uint8_t, Words> byte_d;
  HWY_ALIGN uint8_t codes[kPart];
  for (int64_t begin = 0; begin < count; begin += kPart) {
    const int64_t part = std::min(kPart, count - begin);
    read_codes(from.view.address, (offset + begin * stride) * from.bits, stride * from.bits, part,
               from.bits, codes);
    for (int64_t i = 0; i < part; i += lane_count()) {
      const auto code = hn::Xor(hn::PromoteTo(Words(), hn::Load(byte_d, codes + i)), sign);
      hn::StoreU(hn::BitCast(Floats(), hn::Mul(code, all_bytes)), Floats(), to + begin + i);
    }
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_SCALED_READING_INL_HPP
