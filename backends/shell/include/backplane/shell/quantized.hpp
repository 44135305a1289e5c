// What kernels of quantised tensors claim, and how scales lie over the tensors that they scale.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "backplane/shell/shape.hpp"
#include "backplane/tensor.h"

namespace bp {

// The dtypes of codes and of scales, and of the tensors of floats that are quantised.
inline constexpr bp_dtype kCodeDtypes[] = {BP_I8,     BP_U8,     BP_I4,       BP_U4,
                                           BP_I2,     BP_U2,     BP_F8E4M3FN, BP_F8E5M2,
                                           BP_F6E2M3, BP_F6E3M2, BP_F4E2M1};
inline constexpr bp_dtype kScaleDtypes[] = {BP_F32, BP_F16, BP_BF16, BP_F8E8M0FNU, BP_F8E4M3FN};
inline constexpr bp_dtype kScaledDtypes[] = {BP_F32, BP_F16, BP_BF16};

// How the scales of a tensor lie along one of its axes: `block` elements share a scale, and
// `stride` is the way to the next one, in elements. If there is one scale, the stride is 0.
struct BlockAxis {
  uint32_t block = 1;
  int64_t stride = 0;
};

inline BlockAxis block_axis(const bp_tensor& of, const bp_tensor& scale, uint32_t axis) {
  if (scale.shape[axis] <= 1) return {};
  return {static_cast<uint32_t>(of.shape[axis] / scale.shape[axis]), scale.strides[axis]};
}

// ---- Rows of dtypes -----------------------------------------------------------------------------

// Returns the rows of quantize or dequantize, which claim each of `first` with each scale and each
// of `last`.
template <size_t kFirst, size_t kLast>
constexpr auto scaled_rows(const bp_dtype (&first)[kFirst], const bp_dtype (&last)[kLast]) {
  std::array<bp_dtype, 3 * std::size(kScaleDtypes) * kFirst * kLast> rows{};
  size_t at = 0;
  for (const bp_dtype a : first) {
    for (const bp_dtype scale : kScaleDtypes) {
      for (const bp_dtype b : last) {
        for (const bp_dtype dtype : {a, scale, b}) rows[at++] = dtype;
      }
    }
  }
  return rows;
}
inline constexpr auto kQuantizeDtypes = scaled_rows(kScaledDtypes, kCodeDtypes);
inline constexpr auto kDequantizeDtypes = scaled_rows(kCodeDtypes, kScaledDtypes);

// Returns the rows of matmul_scaled: the dtypes of (a, b, b_scale, a_scale, y). An a of floats has
// no scale, and one row fits that.
// NOLINTNEXTLINE(readability-function-cognitive-complexity): the loops are one product of lists.
constexpr auto scaled_product_rows() {
  constexpr size_t kFloats = std::size(kScaledDtypes), kCodes = std::size(kCodeDtypes);
  constexpr size_t kScales = std::size(kScaleDtypes);
  std::array<bp_dtype, 5 * (kFloats + kCodes * kScales) * kCodes * kScales * kFloats> rows{};
  size_t at = 0;
  const auto add = [&](bp_dtype a, bp_dtype a_scale) {
    for (const bp_dtype b : kCodeDtypes) {
      for (const bp_dtype b_scale : kScaleDtypes) {
        for (const bp_dtype y : kScaledDtypes) {
          for (const bp_dtype dtype : {a, b, b_scale, a_scale, y}) rows[at++] = dtype;
        }
      }
    }
  };
  for (const bp_dtype a : kScaledDtypes) add(a, BP_F32);
  for (const bp_dtype a : kCodeDtypes) {
    for (const bp_dtype a_scale : kScaleDtypes) add(a, a_scale);
  }
  return rows;
}
inline constexpr auto kScaledProductDtypes = scaled_product_rows();

// Every dtype of integers for each of a, b and y of matmul.
inline constexpr bp_dtype kProductIntegers[] = {BP_I8, BP_U8, BP_I16, BP_I32, BP_I64};
inline constexpr auto kIntegerProductDtypes = [] {
  constexpr size_t kCount = std::size(kProductIntegers);
  std::array<bp_dtype, 3 * kCount * kCount * kCount> rows{};
  size_t at = 0;
  for (const bp_dtype a : kProductIntegers) {
    for (const bp_dtype b : kProductIntegers) {
      for (const bp_dtype y : kProductIntegers) {
        for (const bp_dtype dtype : {a, b, y}) rows[at++] = dtype;
      }
    }
  }
  return rows;
}();

}  // namespace bp
