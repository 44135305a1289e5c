// Conversions of f32 from and to the blocks of a file. To strides, a thread decodes an element. To
// blocks, a thread encodes a block of 32 elements, from strides or from other blocks, in the steps
// of the formats' authors: the scale comes from the element of the largest magnitude or from the
// range, and each quotient is rounded to the nearest code. A conversion between equal layouts
// copies bytes.
#include <algorithm>
#include <iterator>
#include <string>

#include "backends/cuda/backend.hpp"
#include "backends/cuda/kernels/blocks.cuh"
#include "backends/cuda/kernels/blocks.hpp"
#include "backends/cuda/kernels/kernels.hpp"
#include "backends/cuda/kernels/movement.hpp"
#include "backplane/shell/layout.hpp"

namespace bp::cuda {
namespace {

// The formats that are encoded, all with blocks of 32 elements.
constexpr uint32_t kEncoded[] = {kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0};
constexpr int kElements = 32;

struct BlocksPlan {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  uint32_t from_format = 0, to_format = 0;  // 0: the side lies by strides.
  uint32_t count = 0;  // The elements that are decoded, or the blocks that are encoded.
  Axes<1> axes;        // Of the side by strides, in row-major order.
};

__device__ __forceinline__ float load_element(const BlocksPlan& plan, uint32_t i) {
  if (plan.from_format != 0) return number_in_blocks(plan.from_format, plan.from, i);
  return reinterpret_cast<const float*>(plan.from)[plan.axes.offset(i)];
}

__global__ void __launch_bounds__(kBlockThreads) decode_kernel(BlocksPlan plan) {
  const uint32_t i = blockIdx.x * kBlockThreads + threadIdx.x;
  if (i < plan.count)
    reinterpret_cast<float*>(plan.to)[plan.axes.offset(i)] = load_element(plan, i);
}

// ---- Encoders -----------------------------------------------------------------------------------

__device__ __forceinline__ float inverse(float d) { return d == 0 ? 0 : 1 / d; }

// Returns x cut to an integer from 0 to `most`. NaN gives 0.
__device__ __forceinline__ uint32_t cut(float x, uint32_t most) {
  if (!(x > 0)) return 0;
  return x < static_cast<float>(most) ? static_cast<uint32_t>(x) : most;
}

// Returns a b + c, with two roundings.
__device__ __forceinline__ float scaled_sum(float a, float b, float c) {
  return difference_of(product_of(a, b), -c);
}

__device__ __forceinline__ void put_half(std::byte* block, uint32_t at, float x) {
  *reinterpret_cast<Float16*>(block + at) = narrow<Float16>(x);
}

// Writes codes of four or five bits. The fifth bits lie in front of the others.
__device__ void put_codes(std::byte* at, const uint32_t (&codes)[kElements], bool has_fifth) {
  if (has_fifth) {
    for (int byte = 0; byte < 4; ++byte) {
      uint32_t fifths = 0;
      for (int i = 0; i < 8; ++i) fifths |= codes[8 * byte + i] >> 4 << i;
      *at++ = static_cast<std::byte>(fifths);
    }
  }
  for (int i = 0; i < kElements / 2; ++i) {
    at[i] = static_cast<std::byte>((codes[i] & 15u) | (codes[i + kElements / 2] & 15u) << 4);
  }
}

// The element of the largest magnitude becomes the lowest code.
__device__ void encode_signed(std::byte* block, const float (&x)[kElements], bool has_fifth) {
  const uint32_t middle = has_fifth ? 16 : 8;
  float extreme = x[0];
  for (int i = 1; i < kElements; ++i) {
    if (fabs(x[i]) > fabs(extreme)) extreme = x[i];
  }
  const float d = extreme / -static_cast<float>(middle), inverted = inverse(d);
  uint32_t codes[kElements];
  for (int i = 0; i < kElements; ++i) {
    codes[i] = cut(scaled_sum(x[i], inverted, static_cast<float>(middle) + 0.5f), 2 * middle - 1);
  }
  put_half(block, 0, d);
  put_codes(block + 2, codes, has_fifth);
}

// The codes reach from the least element to the largest.
__device__ void encode_range(std::byte* block, const float (&x)[kElements], bool has_fifth) {
  const uint32_t most = has_fifth ? 31 : 15;
  float least = x[0], largest = x[0];
  for (int i = 1; i < kElements; ++i) {
    if (x[i] < least) least = x[i];
    if (x[i] > largest) largest = x[i];
  }
  const float d = (largest - least) / static_cast<float>(most), inverted = inverse(d);
  uint32_t codes[kElements];
  for (int i = 0; i < kElements; ++i) {
    codes[i] = cut(scaled_sum(x[i] - least, inverted, 0.5f), most);
  }
  put_half(block, 0, d);
  put_half(block, 2, least);
  put_codes(block + 4, codes, has_fifth);
}

// A quotient in the middle between two codes becomes the one farther from 0.
__device__ void encode_bytes(std::byte* block, const float (&x)[kElements]) {
  float most = 0;
  for (int i = 0; i < kElements; ++i) {
    if (fabs(x[i]) > most) most = fabs(x[i]);
  }
  const float d = most / 127, inverted = inverse(d);
  for (int i = 0; i < kElements; ++i) {
    const float quotient = product_of(x[i], inverted);
    const auto magnitude = static_cast<int>(cut(roundf(fabs(quotient)), 127));
    block[2 + i] = static_cast<std::byte>(quotient < 0 ? -magnitude : magnitude);
  }
  put_half(block, 0, d);
}

__global__ void __launch_bounds__(kBlockThreads) encode_kernel(BlocksPlan plan) {
  const uint32_t number = blockIdx.x * kBlockThreads + threadIdx.x;
  if (number >= plan.count) return;
  float x[kElements];
  for (uint32_t i = 0; i < kElements; ++i) x[i] = load_element(plan, number * kElements + i);
  const uint32_t format = plan.to_format;
  std::byte* const block = plan.to + int64_t{number} * size_of_block(format).bytes;
  if (format == kQ8_0) {
    encode_bytes(block, x);
  } else if (format == kQ4_1 || format == kQ5_1) {
    encode_range(block, x, format == kQ5_1);
  } else {
    encode_signed(block, x, format == kQ5_0);
  }
}

// ---- The host's side ----------------------------------------------------------------------------

bool is_encoded(uint32_t number) {
  return std::ranges::find(kEncoded, number) != std::end(kEncoded);
}

uint32_t number_of(const std::optional<LayoutForm>& form) { return form ? form->variant : 0; }

// Returns the axes of a tensor in row-major order, with its strides.
Axes<1> row_major_axes(const bp_tensor& t) {
  Axes<1> axes;
  axes.rank = static_cast<int>(std::max(t.ndim, 1u));
  for (uint32_t i = 0; i < t.ndim; ++i) {
    const uint32_t axis = t.ndim - 1 - i;
    axes.extents[i] = Divider(static_cast<uint32_t>(t.shape[axis]));
    axes.strides[0][i] = t.strides[axis];
  }
  return axes;
}

bp_status submit_strided(Launch& launch, const Conversion& conversion) {
  const Loop loop = make_loop(conversion.dst.ndim, conversion.dst.shape,
                              {operand(&conversion.dst), operand(&conversion.src)});
  return submit_copy(launch, loop, dtype_size_bytes(conversion.dst.dtype));
}

// Copies the bytes of a tensor in blocks.
bp_status submit_bytes(Launch& launch, const Conversion& conversion) {
  const auto size = static_cast<int64_t>(block_facts(*conversion.src_form).physical_size_bytes);
  const int64_t one = 1;
  const Loop loop = make_loop(1, &size,
                              {{data<const std::byte>(conversion.dst), &one, 1},
                               {data<const std::byte>(conversion.src), &one, 1}});
  return submit_copy(launch, loop, 1);
}

}  // namespace

const BlockFormat* format_of(const Env& env, const bp_tensor& tensor) {
  if (tensor.layout == nullptr) return nullptr;
  try {
    const LayoutForm form = env.instance().layouts->form_of(tensor, "launch: the weight");
    return form.kind == BP_LAYOUT_KIND_QUANTIZED ? find_block_format(form.variant) : nullptr;
  } catch (const StatusError&) {
    return nullptr;  // The caller refuses the call in words.
  }
}

void check_encodes(const Conversion& conversion) {
  const uint32_t number = number_of(conversion.dst_form);
  if (number == 0 || conversion.dst_form == conversion.src_form || is_encoded(number)) return;
  std::string names;
  for (const BlockFormat& each : block_formats()) {
    if (is_encoded(each.number)) names += (names.empty() ? "" : ", ") + std::string(each.name);
  }
  throw StatusError(BP_UNSUPPORTED,
                    "layout.convert: dst: " + std::string(find_block_format(number)->name) +
                        " is decoded, and not encoded; encoded are " + names);
}

bp_status submit_conversion(Launch& launch, const Conversion& conversion) {
  const auto& [dst, src, dst_form, src_form] = conversion;
  const int64_t count = element_count(dst);
  if (count == 0) return BP_OK;
  if (!dst_form && !src_form) return submit_strided(launch, conversion);
  if (dst_form == src_form) return submit_bytes(launch, conversion);
  if (count > INT32_MAX) {
    return launch.refuse(BP_UNSUPPORTED,
                         "layout.convert: a tensor has more than 2^31 - 1 elements");
  }
  BlocksPlan plan;
  plan.from = data<const std::byte>(src);
  plan.to = data<std::byte>(dst);
  plan.from_format = number_of(src_form);
  plan.to_format = number_of(dst_form);
  if (!dst_form || !src_form) plan.axes = row_major_axes(dst_form ? src : dst);
  plan.count = static_cast<uint32_t>(dst_form ? count / kElements : count);
  const unsigned blocks = blocks_for(plan.count, kBlockThreads);
  return dst_form ? run<encode_kernel>(launch, blocks, kBlockThreads, 0, plan)
                  : run<decode_kernel>(launch, blocks, kBlockThreads, 0, plan);
}

}  // namespace bp::cuda
