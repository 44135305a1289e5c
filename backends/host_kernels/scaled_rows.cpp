// Computes y = a b^T for a b of codes, as many columns at a time as have their scales in the
// nearest caches. A row of codes is used for four rows of a while it is in registers.
//
// If a is i8, the products of a block are added up in i32, by vpdpbusd where the processor has
// AVX512_VNNI. One factor of that instruction has no sign: a signed code is stored as code + 128 or
// code + 8, and the sum of the elements of a, times this and the zero point, is taken off at the
// end. If a has floats, each code is turned into a float, and products are added up in f32.
#include <algorithm>
#include <numeric>

#include "kernel_env.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/scaled_rows.cpp"
// clang-format off: this header compiles the file once for each target, and comes first.
#include <hwy/foreach_target.h>
// clang-format on
#include <hwy/highway.h>

#include "backends/host_kernels/lines-inl.hpp"
#include "backends/host_kernels/scaled_dot-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels::HWY_NAMESPACE {
namespace {

bool is_compiled() { return HWY_TARGET != HWY_SCALAR; }

#if HWY_TARGET == HWY_SCALAR

constexpr const char* kNoVectors = "matmul_scaled: no vectors, and supports() has said so";

void run_rows(const ScaledProduct&, std::byte*, int) { throw StatusError(BP_INTERNAL, kNoVectors); }
void finish(const ScaledProduct&, const int32_t*, const float*, const int32_t*, int) {
  throw StatusError(BP_INTERNAL, kNoVectors);
}

#else

// Arranges a row of i8, and adds up the elements of each lane. Returns the sum of all.
template <int kBits>
int32_t arrange_integers(const ScaledProduct& p, const int8_t* from, int64_t stride, int8_t* to,
                         float* sums) {
  const int64_t chunk = chunk_elements<kBits>(), padded = round_up(p.depth, kMostChunk);
  int32_t total = 0;
  for (int64_t k = 0; k < padded; k += chunk) {
    for (int64_t at = 0; at < chunk; ++at) {
      const int8_t value = k + at < p.depth ? from[(k + at) * stride] : int8_t{0};
      to[k + arranged_place<kBits, true>(at)] = value;
      float& sum = sums[(k + at) / kPerLane<kBits>];
      sum = (at % kPerLane<kBits> == 0 ? 0 : sum) + static_cast<float>(value);
      total += value;
    }
  }
  return total;
}

template <int kBits>
void arrange_floats(const ScaledProduct& p, const std::byte* from, int64_t stride, float* to) {
  const int64_t chunk = chunk_elements<kBits>(), padded = round_up(p.depth, kMostChunk);
  HWY_ALIGN float line[kMostChunk];
  for (int64_t k = 0; k < padded; k += chunk) {
    const int64_t count = std::clamp<int64_t>(p.depth - k, 0, chunk);
    std::fill_n(line + count, chunk - count, 0.0F);
    with_element_of<float>(p.a_dtype, [&]<typename T>(T) {
      load_line(reinterpret_cast<const T*>(from) + k * stride, stride, count, line);
    });
    for (int64_t at = 0; at < chunk; ++at) to[k + arranged_place<kBits, false>(at)] = line[at];
  }
}

template <int kBits>
void arrange_row(const ScaledWork& work, int64_t row) {
  const ScaledProduct& p = work.product;
  int64_t index[BP_MAX_RANK] = {};
  const int64_t stride = p.a.strides[p.a.ndim - 1];
  const std::byte* const from =
      p.a.address + row_offset(p.a, row, index) * dtype_size_bytes(p.a_dtype);
  std::byte* const to = work.arranged + row * work.layout.row_bytes;
  if (!p.is_integer()) {
    work.factors[row] = {1, 0};
    return arrange_floats<kBits>(p, from, stride, reinterpret_cast<float*>(to));
  }
  const float scale = p.a_scale.at(p.a_scale.offset_of(index), CodeValues(p.a_scale.dtype));
  const int32_t sum = arrange_integers<kBits>(p, reinterpret_cast<const int8_t*>(from), stride,
                                              reinterpret_cast<int8_t*>(to),
                                              work.sums + row * work.layout.row_lanes);
  work.factors[row] = {scale, sum};
}

// Reads codes that lie behind each other.
template <int kBits>
void load_codes(const std::byte* from, int64_t count, const float* values, float* HWY_RESTRICT to) {
  constexpr int64_t kPerByte = 8 / kBits;
  for (int64_t i = 0; i < count; i += kPerByte, ++from) {
    const auto byte = static_cast<uint32_t>(*from);
    to[i] = values[byte & ((1u << kBits) - 1)];
    if constexpr (kBits == 4) to[i + 1] = values[byte >> 4];
  }
}

// Reads the numbers of `count` blocks of a row of b, which lie along the last axis of `from`.
void read_numbers(const BlockTensor& from, int64_t row, int64_t count, const CodeValues& values,
                  float* to) {
  const int64_t offset = row / from.blocks[0] * from.view.strides[0];
  const int64_t stride = from.view.strides[1];
  if (from.bits == 0) {
    with_element_of<float>(from.dtype, [&]<typename T>(T) {
      load_line(reinterpret_cast<const T*>(from.view.address) + offset, stride, count, to);
    });
    return;
  }
  const std::byte* const codes = from.view.address + offset * from.bits / 8;
  if (stride == 1 && offset * from.bits % 8 == 0 && count * from.bits % 8 == 0) {
    return from.bits == 8 ? load_codes<8>(codes, count, values.values, to)
                          : load_codes<4>(codes, count, values.values, to);
  }
  for (int64_t i = 0; i < count; ++i) {
    to[i] =
        values.values[read_code(from.view.address, (offset + i * stride) * from.bits, from.bits)];
  }
}

// Reads the scales and zero points of a column of y. For i8 a zero point has what is added to a
// code when it is stored without a sign.
BlockNumbers read_blocks(const ScaledWork& work, int64_t col, float* to,
                         const CodeValues& scale_values, const CodeValues& zero_values) {
  const ScaledProduct& p = work.product;
  const int64_t count = p.depth / p.block;
  float* const zeros = to + work.layout.numbers;
  read_numbers(p.b_scale, col, count, scale_values, to);
  const float factor = p.b_scale.factor();
  for (int64_t i = 0; i < count; ++i) to[i] *= factor;
  // Lanes behind the last block have sums of 0.
  std::fill_n(to + count, kMostLanes, 0.0F);
  if (p.has_zero) {
    read_numbers(p.b_zero, col, count, zero_values, zeros);
    std::fill_n(zeros + count, kMostLanes, 0.0F);
  }
  return {to, zeros};
}

// The results of some rows and columns, which their scales of a still lack.
struct Tile {
  HWY_ALIGN float results[kRowsAtOnce][kColsAtOnce];
};

void store_tile(const ScaledWork& work, int64_t row, int64_t rows, int64_t col, int64_t cols,
                Tile& tile) {
  const ScaledProduct& p = work.product;
  const int64_t stride = p.y.strides[p.y.ndim - 1];
  for (int64_t r = 0; r < rows; ++r) {
    int64_t index[BP_MAX_RANK];
    const int64_t offset = row_offset(p.y, row + r, index) + col * stride;
    float* const line = tile.results[r];
    for (int64_t i = 0; i < cols; ++i) line[i] *= work.factors[row + r].scale;
    with_element_of<float>(p.y_dtype, [&]<typename T>(T) {
      store_line(line, cols, reinterpret_cast<T*>(p.y.address) + offset, stride);
    });
  }
}

// Computes the columns [begin, end) of y.
template <int kBits, class Dot>
void multiply_columns(const ScaledWork& work, int64_t begin, int64_t end) {
  const ScaledProduct& p = work.product;
  const BlockLanes<kBits> lanes(p.block);
  const CodeValues scale_values(p.b_scale.dtype);
  CodeValues zero_values(p.b_dtype);
  for (float& value : zero_values.values) value += static_cast<float>(offset_of_codes(p));
  float* const numbers = work.numbers + thread_number() * 2 * kColsAtOnce * work.layout.numbers;
  BlockNumbers blocks[kColsAtOnce];
  for (int64_t first = begin; first < end; first += kColsAtOnce) {
    const int64_t count = std::min(kColsAtOnce, end - first);
    for (int64_t i = 0; i < count; ++i) {
      blocks[i] = read_blocks(work, first + i, numbers + i * 2 * work.layout.numbers, scale_values,
                              zero_values);
    }
    for (int64_t row = 0, height = 0; row < p.rows; row += height) {
      height = p.rows - row >= kRowsAtOnce ? kRowsAtOnce : 1;
      Tile tile;
      for (int64_t i = 0; i < count; ++i) {
        const ScaledFactors f = {work, row, p.b + (first + i) * p.b_row_bytes, blocks[i]};
        float results[kRowsAtOnce];
        if (height == 1) {
          Dot::template run<1>(f, lanes, results);
        } else {
          Dot::template run<kRowsAtOnce>(f, lanes, results);
        }
        for (int64_t r = 0; r < height; ++r) tile.results[r][i] = results[r];
      }
      store_tile(work, row, height, first, count, tile);
    }
  }
}

template <int kBits, class Dot>
void multiply(const ScaledWork& work, int thread_count) {
  constexpr int64_t kGrainProducts = 1 << 15;
  const ScaledProduct& p = work.product;
  const int64_t row_grain = std::max<int64_t>(1, kGrainProducts / 4 / p.depth);
  parallel_for(thread_count, p.rows, row_grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) arrange_row<kBits>(work, row);
  });
  const int64_t products = std::max<int64_t>(1, p.rows * p.depth);
  const int64_t grain = round_up(std::max<int64_t>(1, kGrainProducts / products), kColsAtOnce);
  parallel_for(thread_count, p.cols, grain,
               [&](int64_t begin, int64_t end) { multiply_columns<kBits, Dot>(work, begin, end); });
}

template <int kBits>
void multiply_codes(const ScaledWork& work, int thread_count) {
  const ScaledProduct& p = work.product;
  if (p.is_integer()) {
    if (p.is_one_block()) return multiply<kBits, DotIntegers<kBits> >(work, thread_count);
    return p.has_zero ? multiply<kBits, DotIntegerBlocks<kBits, true> >(work, thread_count)
                      : multiply<kBits, DotIntegerBlocks<kBits, false> >(work, thread_count);
  }
  const bool has_sign = code_format(p.b_dtype).has_sign;
  if (p.has_zero) {
    return has_sign ? multiply<kBits, DotFloats<kBits, true, true> >(work, thread_count)
                    : multiply<kBits, DotFloats<kBits, false, true> >(work, thread_count);
  }
  return has_sign ? multiply<kBits, DotFloats<kBits, true, false> >(work, thread_count)
                  : multiply<kBits, DotFloats<kBits, false, false> >(work, thread_count);
}

void run_rows(const ScaledProduct& p, std::byte* workspace, int thread_count) {
  const ScaledWork work(p, workspace, thread_count);
  if (code_format(p.b_dtype).bits == 8) {
    multiply_codes<8>(work, thread_count);
  } else {
    multiply_codes<4>(work, thread_count);
  }
}

// Computes a row of y from its sums. `zeros` is NULL if there are none.
void finish_row(const ScaledProduct& p, int64_t row, const int32_t* sums, const float* scales,
                const int32_t* zeros) {
  constexpr int64_t kPart = 256;
  int64_t index[BP_MAX_RANK] = {};
  const int64_t a_offset = row_offset(p.a, row, index);
  const auto row_scale =
      hn::Set(Floats(), p.a_scale.at(p.a_scale.offset_of(index), CodeValues(p.a_scale.dtype)));
  const auto* const a = reinterpret_cast<const int8_t*>(p.a.address) + a_offset;
  const auto total = hn::Set(Sums(), zeros == nullptr ? 0 : std::accumulate(a, a + p.depth, 0));
  const int64_t stride = p.y.strides[p.y.ndim - 1], y_offset = row_offset(p.y, row, index);
  HWY_ALIGN float line[kPart];
  for (int64_t col = 0; col < p.cols; col += kPart) {
    const int64_t count = std::min(kPart, p.cols - col);
    HWY_ALIGN int32_t last[kPart];
    const int32_t* from = sums + col;
    if (count < kPart) from = std::copy_n(from, count, last) - count;
    for (int64_t i = 0; i < count; i += lane_count()) {
      auto sum = hn::LoadU(Sums(), from + i);
      if (zeros != nullptr) {
        sum = hn::Sub(sum, hn::Mul(hn::LoadU(Sums(), zeros + col + i), total));
      }
      const auto scaled =
          hn::Mul(hn::ConvertTo(Floats(), sum), hn::LoadU(Floats(), scales + col + i));
      hn::Store(hn::Mul(scaled, row_scale), Floats(), line + i);
    }
    with_element_of<float>(p.y_dtype, [&]<typename T>(T) {
      store_line(line, count, reinterpret_cast<T*>(p.y.address) + y_offset + col * stride, stride);
    });
  }
}

void finish(const ScaledProduct& p, const int32_t* sums, const float* scales, const int32_t* zeros,
            int thread_count) {
  constexpr int64_t kGrainElements = 32768;
  parallel_for(thread_count, p.rows, ceil_div(kGrainElements, p.cols),
               [&](int64_t begin, int64_t end) {
                 for (int64_t row = begin; row < end; ++row) {
                   finish_row(p, row, sums + row * p.cols, scales, zeros);
                 }
               });
}

#endif

}  // namespace
}  // namespace bp::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(finish);
HWY_EXPORT(is_compiled);
HWY_EXPORT(run_rows);

}  // namespace

bool has_scaled_rows() { return HWY_DYNAMIC_DISPATCH(is_compiled)(); }

uint64_t scaled_rows_workspace_size_bytes(const ScaledProduct& p, int thread_count) {
  return scaled_layout(p, thread_count).size_bytes;
}

void run_scaled_rows(const ScaledProduct& p, std::byte* workspace, int thread_count) {
  HWY_DYNAMIC_DISPATCH(run_rows)(p, workspace, thread_count);
}

uint64_t scaled_columns_size_bytes(const ScaledProduct& p) {
  return 2 * sizeof(float) * static_cast<uint64_t>(round_up(p.cols, kMostLanes));
}

void finish_scaled_sums(const ScaledProduct& p, const int32_t* sums, std::byte* columns,
                        int thread_count) {
  auto* const scales = reinterpret_cast<float*>(columns);
  auto* const zeros = reinterpret_cast<int32_t*>(scales + round_up(p.cols, kMostLanes));
  const CodeValues scale_values(p.b_scale.dtype), zero_values(p.b_dtype);
  for (int64_t col = 0; col < p.cols; ++col) {
    const int64_t index[] = {col, 0};
    scales[col] = p.b_scale.at(p.b_scale.offset_of(index), scale_values);
    if (p.has_zero) {
      zeros[col] = static_cast<int32_t>(p.b_zero.at(p.b_zero.offset_of(index), zero_values));
    }
  }
  HWY_DYNAMIC_DISPATCH(finish)(p, sums, scales, p.has_zero ? zeros : nullptr, thread_count);
}

}  // namespace bp::kernels
#endif
