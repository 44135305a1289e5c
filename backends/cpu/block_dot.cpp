// Each block is decoded to its elements. The product of a scale with a sum of codes and x would
// take less, but the sum may overflow where the result does not, and the product of a minimum with
// a sum of x would lose the digits of elements that lie near 0.
//
// The blocks are asked for before they are used, and columns that are far apart are read beside
// each other. On a virtual machine whose memory the processor reads ahead badly (a Sapphire
// Rapids), one thread multiplies 15.7 instead of 5.8 G weights/s of q8_0, and 13.3 instead of 3.7
// of q5_0.
#include "backends/cpu/block_dot.hpp"

#include <hwy/cache_control.h>

#include <algorithm>
#include <string_view>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/block_dot.cpp"
// clang-format off: this header compiles the file once for each target, and comes first.
#include <hwy/foreach_target.h>
// clang-format on
#include <hwy/highway.h>

#include "backends/cpu/block_formats-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::cpu::HWY_NAMESPACE {
namespace {

// ---- Rows of blocks -----------------------------------------------------------------------------

constexpr int64_t kBytesAhead = 4096, kLineBytes = 64;

// Asks for the bytes that follow a block by kBytesAhead. They may lie behind the weight.
template <class Format>
HWY_INLINE void read_ahead(const uint8_t* block) {
  for (int64_t i = 0; i < Format::kBytes; i += kLineBytes) {
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
    __builtin_prefetch(block + kBytesAhead + i, 0, 2);  // Into the second cache.
#else
    hwy::Prefetch(block + kBytesAhead + i);
#endif
  }
}

// Writes the products of kRows rows of x with kStreams columns, of which each is `stream_bytes`
// behind the one before.
template <class Format, int64_t kRows, int64_t kStreams>
HWY_INLINE void multiply_streams(const uint8_t* first, int64_t stream_bytes, int64_t block_count,
                                 const DotRows& rows, const DotResults& results,
                                 int64_t result_step) {
  const uint8_t* blocks[kStreams];
  for (int64_t i = 0; i < kStreams; ++i) blocks[i] = first + i * stream_bytes;
  hn::Vec<Floats> sums[kStreams][kRows];
  for (int64_t i = 0; i < kStreams; ++i) std::fill_n(sums[i], kRows, hn::Zero(Floats()));
  const float* x = rows.address;
  for (int64_t block = 0; block < block_count; ++block) {
    typename Format::Scales scales;
    scales.template load<kStreams>(blocks);
    for (int64_t stream = 0; stream < kStreams; ++stream) {
      read_ahead<Format>(blocks[stream]);
      Format::for_each_vector(
          blocks[stream], scales, stream, [&](int64_t i, hn::Vec<Floats> elements) HWY_ATTR {
            for (int64_t row = 0; row < kRows; ++row) {
              const auto factors = hn::LoadU(Floats(), x + row * rows.row_stride + i);
              sums[stream][row] = hn::MulAdd(elements, factors, sums[stream][row]);
            }
          });
      blocks[stream] += Format::kBytes;
    }
    x += Format::kElements;
  }
  for (int64_t i = 0; i < kStreams; ++i) {
    for (int64_t row = 0; row < kRows; ++row) {
      results.address[row * results.row_stride + i * result_step] =
          hn::GetLane(hn::SumOfLanes(Floats(), sums[i][row]));
    }
  }
}

// The columns are kStreams parts, which are read beside each other: more is on the way from memory
// then, and the sums of several columns do not wait for each other.
template <class Format, int64_t kRows, int64_t kStreams>
void multiply_rows(const DotColumns& columns, const DotRows& rows, const DotResults& results) {
  const auto* const blocks = reinterpret_cast<const uint8_t*>(columns.blocks);
  const int64_t column_bytes = columns.block_count * Format::kBytes;
  const int64_t part = columns.count / kStreams;
  for (int64_t column = 0; column < part; ++column) {
    multiply_streams<Format, kRows, kStreams>(blocks + column * column_bytes, part * column_bytes,
                                              columns.block_count, rows,
                                              {results.address + column, results.row_stride}, part);
  }
  for (int64_t column = part * kStreams; column < columns.count; ++column) {
    multiply_streams<Format, kRows, 1>(blocks + column * column_bytes, 0, columns.block_count, rows,
                                       {results.address + column, results.row_stride}, 0);
  }
}

template <class Format>
void multiply(const DotColumns& columns, const DotRows& rows, const DotResults& results) {
  if (rows.count == 1) return multiply_rows<Format, 1, kMostStreams>(columns, rows, results);
  if (rows.count == 2) return multiply_rows<Format, 2, 2>(columns, rows, results);
  if (rows.count == 3) return multiply_rows<Format, 3, 2>(columns, rows, results);
  multiply_rows<Format, 4, 2>(columns, rows, results);
}

template <class Format>
void decode(const std::byte* blocks, int64_t block_count, float* elements) {
  const auto* block = reinterpret_cast<const uint8_t*>(blocks);
  for (int64_t count = 0; count < block_count; ++count) {
    typename Format::Scales scales;
    scales.template load<1>(&block);
    Format::for_each_vector(block, scales, 0, [&](int64_t i, hn::Vec<Floats> vector) HWY_ATTR {
      hn::StoreU(vector, Floats(), elements + i);
    });
    block += Format::kBytes;
    elements += Format::kElements;
  }
}

template <class Format>
constexpr BlockVectors vectors_of() {
  return {multiply<Format>, decode<Format>};
}

BlockVectors find_vectors(std::string_view format) {
  if (format == "ggml.q4_0") return vectors_of<Nibbles<4, false>>();
  if (format == "ggml.q4_1") return vectors_of<Nibbles<4, true>>();
  if (format == "ggml.q5_0") return vectors_of<Nibbles<5, false>>();
  if (format == "ggml.q5_1") return vectors_of<Nibbles<5, true>>();
  if (format == "ggml.q8_0") return vectors_of<SignedBytes>();
  if (format == "ggml.q4_k") return vectors_of<NibblesOfParts<4>>();
  if (format == "ggml.q5_k") return vectors_of<NibblesOfParts<5>>();
  if (format == "ggml.q6_k") return vectors_of<SixBits>();
  return {};
}

}  // namespace
}  // namespace bp::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::cpu {
namespace {

HWY_EXPORT(find_vectors);

}  // namespace

BlockVectors block_vectors(const BlockFormat& format) {
  return HWY_DYNAMIC_DISPATCH(find_vectors)(format.name);
}

}  // namespace bp::cpu
#endif
