// Computes y = a b^T for a b of codes, as many columns at a time as have their scales in the
// nearest caches. A row of codes is used for four rows of a while it is in registers.
//
// The products of integers in a block are added up in i32, by vpdpbusd where the processor has
// AVX512_VNNI. One factor of that instruction has no sign: a signed code is stored as code + 128,
// code + 8 or code + 2, and the sum of the elements of a, times this and the zero point, is taken
// off at the end. In other products each code is turned into a float, and terms are added up in
// f32.
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
#include "backends/host_kernels/quantized_line.hpp"
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

// A row of a, along its last axis.
struct RowOfA {
  RowOfA(const ScaledProduct& p, int64_t row)
      : offset(row_offset(p.a, row, index)), stride(p.a.strides[p.a.ndim - 1]) {}
  int64_t index[BP_MAX_RANK] = {};
  int64_t offset, stride;
};

// Reads integers of up to 8 bits as i8. Those of u8 are lowered by 128.
void read_integers(const ScaledProduct& p, const RowOfA& row, int64_t begin, int64_t count,
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

// Puts a row of i8 into its place, and adds up the elements of each lane. `read(k, count, line)`
// gives the elements from k on. Returns the sum of all.
template <int kBits, typename Read>
int64_t arrange_integers(const ScaledWork& work, int64_t row, const Read& read) {
  auto* const to = reinterpret_cast<int8_t*>(work.arranged) + row * work.layout.row_bytes;
  float* const sums = work.sums + row * work.layout.row_lanes;
  const int64_t depth = work.product.depth, padded = round_up(depth, kMostChunk);
  const int64_t chunk = chunk_elements<kBits>();
  int64_t total = 0;
  for (int64_t k = 0; k < padded; k += chunk) {
    const int64_t count = std::clamp<int64_t>(depth - k, 0, chunk);
    HWY_ALIGN int8_t line[kMostChunk] = {};
    if (count != 0) read(k, count, line);
    for (int64_t at = 0; at < chunk; at += kPerLane<kBits>) {
      int32_t sum = 0;
      for (int64_t i = at; i < at + kPerLane<kBits>; ++i) {
        to[k + arranged_place<kBits, true>(i)] = line[i];
        sum += line[i];
      }
      sums[(k + at) / kPerLane<kBits>] = static_cast<float>(sum);
      total += sum;
    }
  }
  return total;
}

template <int kBits>
void arrange_integer_row(const ScaledWork& work, int64_t row) {
  const ScaledProduct& p = work.product;
  if (row == p.rows) {  // The row of ones.
    arrange_integers<kBits>(work, row, [](int64_t, int64_t count, int8_t* line) {
      std::fill_n(line, count, int8_t{1});
    });
    return;
  }
  const RowOfA from(p, row);
  RowFactors& factors = work.factors[row];
  factors = {p.a_scale.at(p.a_scale.offset_of(from.index), CodeValues(p.a_scale.dtype))};
  if (p.a_zero.view.address != nullptr) {
    factors.zero =
        static_cast<int32_t>(p.a_zero.at(p.a_zero.offset_of(from.index), CodeValues(p.a_dtype)));
  }
  if (p.a_dtype == BP_U8) factors.zero -= 128;
  factors.sum = arrange_integers<kBits>(work, row, [&](int64_t k, int64_t count, int8_t* line) {
    read_integers(p, from, k, count, line);
  });
}

// Reads elements of a as floats, block by block where a is quantised.
void read_floats(const ScaledProduct& p, const CodeValues& scales, const CodeValues& values,
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

template <int kBits>
void arrange_float_row(const ScaledWork& work, int64_t row) {
  const ScaledProduct& p = work.product;
  const int64_t chunk = chunk_elements<kBits>(), padded = round_up(p.depth, kMostChunk);
  const CodeValues scales(p.a_scale.dtype), values(p.a_dtype);
  auto* const to = reinterpret_cast<float*>(work.arranged + row * work.layout.row_bytes);
  RowOfA from(p, row);
  work.factors[row] = {};
  for (int64_t k = 0; k < padded; k += chunk) {
    const int64_t count = std::clamp<int64_t>(p.depth - k, 0, chunk);
    HWY_ALIGN float line[kMostChunk] = {};
    if (count != 0) read_floats(p, scales, values, from, k, count, line);
    for (int64_t at = 0; at < chunk; ++at) to[k + arranged_place<kBits, false>(at)] = line[at];
  }
}

// Reads the numbers of `count` blocks of a row of b, which lie along the last axis of `from`. It
// writes whole vectors.
void read_numbers(const BlockTensor& from, int64_t row, int64_t count, float* to) {
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

// Reads the scales and zero points of a column of y. A zero point has what is added to a code when
// it is stored without a sign.
BlockNumbers read_blocks(const ScaledWork& work, int64_t col, float* to) {
  const ScaledProduct& p = work.product;
  const int64_t count = p.depth / p.block;
  float* const zeros = to + work.layout.numbers;
  read_numbers(p.b_scale, col, count, to);
  const float factor = p.b_scale.factor();
  if (factor != 1) {
    for (int64_t i = 0; i < count; ++i) to[i] *= factor;
  }
  // Lanes behind the last block have sums of 0.
  std::fill_n(to + count, kMostLanes, 0.0F);
  if (p.has_zero) {
    read_numbers(p.b_zero, col, count, zeros);
    const auto offset = static_cast<float>(offset_of_codes(p));
    for (int64_t i = 0; i < count; ++i) zeros[i] += offset;
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
void multiply_columns(const ScaledWork& work, const Dot& dot, int64_t begin, int64_t end) {
  const ScaledProduct& p = work.product;
  const BlockLanes<kBits> lanes(p.block);
  float* const numbers = work.numbers + thread_number() * 2 * kColsAtOnce * work.layout.numbers;
  BlockNumbers blocks[kColsAtOnce];
  for (int64_t first = begin; first < end; first += kColsAtOnce) {
    const int64_t count = std::min(kColsAtOnce, end - first);
    for (int64_t i = 0; i < count; ++i) {
      blocks[i] = read_blocks(work, first + i, numbers + i * 2 * work.layout.numbers);
    }
    for (int64_t row = 0, height = 0; row < p.rows; row += height) {
      height = p.rows - row >= kRowsAtOnce ? kRowsAtOnce : 1;
      Tile tile;
      for (int64_t i = 0; i < count; ++i) {
        const ScaledFactors f = {row, p.b + (first + i) * p.b_row_bytes, blocks[i]};
        float results[kRowsAtOnce];
        if (height == 1) {
          dot.template run<1>(f, lanes, results);
        } else {
          dot.template run<kRowsAtOnce>(f, lanes, results);
        }
        for (int64_t r = 0; r < height; ++r) tile.results[r][i] = results[r];
      }
      store_tile(work, row, height, first, count, tile);
    }
  }
}

template <int kBits, class Dot>
void multiply(const ScaledWork& work, const Dot& dot, int thread_count) {
  constexpr int64_t kGrainProducts = 1 << 15;
  const ScaledProduct& p = work.product;
  const int64_t row_grain = std::max<int64_t>(1, kGrainProducts / 4 / p.depth);
  const int64_t rows = p.rows + (p.has_zero_of_a ? 1 : 0);
  parallel_for(thread_count, rows, row_grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      p.is_integer ? arrange_integer_row<kBits>(work, row) : arrange_float_row<kBits>(work, row);
    }
  });
  const int64_t products = std::max<int64_t>(1, p.rows * p.depth);
  const int64_t grain = round_up(std::max<int64_t>(1, kGrainProducts / products), kColsAtOnce);
  parallel_for(thread_count, p.cols, grain,
               [&](int64_t begin, int64_t end) { multiply_columns<kBits>(work, dot, begin, end); });
}

template <int kBits, bool kHasZeroOfA>
void multiply_integers(const ScaledWork& work, int thread_count) {
  const ScaledProduct& p = work.product;
  if (p.is_one_block()) {
    return multiply<kBits>(work, DotIntegers<kBits, kHasZeroOfA>(work), thread_count);
  }
  if (p.has_zero) {
    return multiply<kBits>(work, DotIntegerBlocks<kBits, true, kHasZeroOfA>(work), thread_count);
  }
  multiply<kBits>(work, DotIntegerBlocks<kBits, false, kHasZeroOfA>(work), thread_count);
}

template <int kStored>
void multiply_floats(const ScaledWork& work, int thread_count) {
  constexpr int kBits = kBitsInLane<kStored>;
  const ScaledProduct& p = work.product;
  with_decoder_of<kStored>(code_format(p.b_dtype), [&]<class Decoder>(const Decoder& decoder) {
    if (p.has_zero) {
      multiply<kBits>(work, DotFloats<kStored, Decoder, true>(work, decoder), thread_count);
    } else {
      multiply<kBits>(work, DotFloats<kStored, Decoder, false>(work, decoder), thread_count);
    }
  });
}

template <int kStored>
void multiply_codes(const ScaledWork& work, int thread_count) {
  if constexpr (kStored != 6) {
    const ScaledProduct& p = work.product;
    if (p.is_integer && p.has_zero_of_a)
      return multiply_integers<kStored, true>(work, thread_count);
    if (p.is_integer) return multiply_integers<kStored, false>(work, thread_count);
  }
  multiply_floats<kStored>(work, thread_count);
}

void run_rows(const ScaledProduct& p, std::byte* workspace, int thread_count) {
  const ScaledWork work(p, workspace, thread_count);
  switch (code_format(p.b_dtype).bits) {
    case 2:
      return multiply_codes<2>(work, thread_count);
    case 4:
      return multiply_codes<4>(work, thread_count);
    case 6:
      return multiply_codes<6>(work, thread_count);
    default:
      return multiply_codes<8>(work, thread_count);
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
