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
#include "backends/host_kernels/scaled_dot-inl.hpp"
#include "backends/host_kernels/scaled_pairs-inl.hpp"
#include "backends/host_kernels/scaled_reading-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels::HWY_NAMESPACE {
namespace {

bool is_compiled() { return HWY_TARGET != HWY_SCALAR; }
bool has_tables() { return HWY_TARGET == HWY_AVX3_DL; }

#if HWY_TARGET == HWY_SCALAR

constexpr const char* kNoVectors = "matmul_scaled: no vectors, and supports() has said so";

void run_rows(const ScaledProduct&, std::byte*, int) { throw StatusError(BP_INTERNAL, kNoVectors); }

#else

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
        to[k + arranged_place<kBits>(i)] = line[i];
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

template <int kBits, class Dot>
void arrange_float_row(const ScaledWork& work, int64_t row) {
  const ScaledProduct& p = work.product;
  const int64_t chunk = chunk_elements<kBits>(), padded = round_up(p.depth, kMostChunk);
  const CodeValues scales(p.a_scale.dtype), values(p.a_dtype);
  auto* const to =
      reinterpret_cast<typename Dot::Element*>(work.arranged + row * work.layout.row_bytes);
  int64_t places[kMostChunk];
  for (int64_t at = 0; at < chunk; ++at) places[at] = Dot::place(at);
  RowOfA from(p, row);
  work.factors[row] = {};
  for (int64_t k = 0; k < padded; k += chunk) {
    const int64_t count = std::clamp<int64_t>(p.depth - k, 0, chunk);
    HWY_ALIGN float line[kMostChunk] = {};
    if (count != 0) read_floats(p, scales, values, from, k, count, line);
    for (int64_t at = 0; at < chunk; ++at) to[k + places[at]] = Dot::element(line[at]);
  }
}

template <int kBits, class Dot>
void arrange_row(const ScaledWork& work, int64_t row) {
  if constexpr (Dot::kIsInteger) {
    arrange_integer_row<kBits>(work, row);
  } else {
    arrange_float_row<kBits, Dot>(work, row);
  }
}

// Reads the scales and zero points of a column of y. A zero point has what is added to a code when
// it is stored without a sign, or is turned into a number.
template <class Dot>
BlockNumbers read_blocks(const ScaledWork& work, const Dot& dot, int64_t col, float* to) {
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
  if constexpr (Dot::kHasByteZeros) {
    read_zero_bytes(p, col, count, zeros);
    std::fill_n(zeros + count, kMostLanes, 0.0F);
  } else if (p.has_zero) {
    read_numbers(p.b_zero, col, count, zeros);
    auto offset = static_cast<float>(offset_of_codes(p));
    if constexpr (requires { dot.raise(); }) offset += dot.raise();
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
      blocks[i] = read_blocks(work, dot, first + i, numbers + i * 2 * work.layout.numbers);
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
    for (int64_t row = begin; row < end; ++row) arrange_row<kBits, Dot>(work, row);
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
void multiply_by_decoder(const ScaledWork& work, int thread_count) {
  constexpr int kBits = kBitsInLane<kStored>;
  const ScaledProduct& p = work.product;
  const auto multiply_by = [&]<bool kHasZero>(std::bool_constant<kHasZero>) {
    with_decoder_of<kStored, kHasZero>(
        code_format(p.b_dtype), [&]<class Decoder>(const Decoder& decoder) {
          multiply<kBits>(work, DotFloats<kStored, Decoder, kHasZero>(work, decoder), thread_count);
        });
  };
  if constexpr (kStored != 6) {
    if (p.has_zero) return multiply_by(std::true_type());
  }
  multiply_by(std::false_type());
}

// Tables of bytes are faster than other decoders for every product by vdpbf16ps, and for f32 by
// floats of 6 and 8 bits.
template <int kStored>
void multiply_floats(const ScaledWork& work, int thread_count) {
#if HWY_TARGET == HWY_AVX3_DL
  constexpr int kBits = kBitsInLane<kStored>;
  const ScaledProduct& p = work.product;
  const bool is_byte_integer = kStored == 8 && code_format(p.b_dtype).is_integer();
  if (p.flushes_subnormals && !is_byte_integer) {
    if constexpr (kStored <= 4) {
      if (p.has_zero)
        return multiply<kBits>(work, DotPairs<kStored, true, true>(work), thread_count);
    }
    return multiply<kBits>(work, DotPairs<kStored, false, true>(work), thread_count);
  }
  if constexpr (kStored >= 6) {
    if (!is_byte_integer) {
      return multiply<kBits>(work, DotPairs<kStored, false, false>(work), thread_count);
    }
  }
#endif
  multiply_by_decoder<kStored>(work, thread_count);
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

#endif

}  // namespace
}  // namespace bp::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(has_tables);
HWY_EXPORT(is_compiled);
HWY_EXPORT(run_rows);

}  // namespace

bool has_byte_tables() { return HWY_DYNAMIC_DISPATCH(has_tables)(); }
bool has_scaled_rows() { return HWY_DYNAMIC_DISPATCH(is_compiled)(); }

uint64_t scaled_rows_workspace_size_bytes(const ScaledProduct& p, int thread_count) {
  return scaled_layout(p, thread_count).size_bytes;
}

void run_scaled_rows(const ScaledProduct& p, std::byte* workspace, int thread_count) {
  HWY_DYNAMIC_DISPATCH(run_rows)(p, workspace, thread_count);
}

}  // namespace bp::kernels
#endif
