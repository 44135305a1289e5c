#include "backends/cpu/block_product.hpp"

#include <algorithm>

#include "backends/host_kernels/block_codec.hpp"

namespace bp::cpu {
namespace {

constexpr int64_t kLanes = 16;  // Independent sums, which the compiler puts into vectors.
constexpr int64_t kRows = 16;   // Rows of x that share a decoded block.
constexpr int64_t kGrainWeights = 1 << 14;
constexpr int64_t kMostElements = 256;  // Of a block.

// The sums of one column of y, for some rows.
struct Sums {
  float lanes[kRows][kLanes] = {};

  void add(int64_t row, const float* w, const float* x, int64_t count) {
    for (int64_t i = 0; i < count; i += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) lanes[row][lane] += w[i + lane] * x[i + lane];
    }
  }

  float total(int64_t row) const {
    float sums[kLanes];
    std::copy_n(lanes[row], kLanes, sums);
    for (int64_t width = kLanes / 2; width > 0; width /= 2) {
      for (int64_t lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
    }
    return sums[0];
  }
};

// Computes one column of y for the rows [first, first + count).
void multiply_column(const Product& p, const BlockFormat& format, int64_t column, int64_t first,
                     int64_t count) {
  const int64_t depth = p.a.cols, blocks = depth / format.elements;
  const std::byte* const weight = p.b.address + column * blocks * format.bytes;
  const auto* const x = reinterpret_cast<const float*>(p.a.address) + first * p.a.row_stride;
  kernels::DecodeBlock* const decode = kernels::decoder_of(format);
  Sums sums;
  float decoded[kMostElements];
  for (int64_t block = 0; block < blocks; ++block) {
    decode(weight + block * format.bytes, decoded);
    for (int64_t row = 0; row < count; ++row) {
      sums.add(row, decoded, x + row * p.a.row_stride + block * format.elements, format.elements);
    }
  }
  auto* const y = reinterpret_cast<float*>(p.y.address) + first * p.y.row_stride;
  const float bias = p.has_bias ? reinterpret_cast<const float*>(p.bias)[column] : 0;
  for (int64_t row = 0; row < count; ++row) {
    y[row * p.y.row_stride + column] = sums.total(row) + bias;
  }
}

}  // namespace

void multiply_blocks(const Product& p, const BlockFormat& format, int thread_count) {
  const int64_t grain = std::max<int64_t>(1, kGrainWeights / std::max<int64_t>(p.a.cols, 1));
  kernels::parallel_for(thread_count, p.y.cols, grain, [&](int64_t begin, int64_t end) {
    for (int64_t column = begin; column < end; ++column) {
      for (int64_t row = 0; row < p.y.rows; row += kRows) {
        multiply_column(p, format, column, row, std::min(kRows, p.y.rows - row));
      }
    }
  });
}

}  // namespace bp::cpu
