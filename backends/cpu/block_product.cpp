#include "backends/cpu/block_product.hpp"

#include <algorithm>

#include "backends/cpu/block_dot.hpp"
#include "backends/host_kernels/block_codec.hpp"
#include "backends/host_kernels/gemm.hpp"
#include "backplane/shell/workspace.hpp"

namespace bp::cpu {
namespace {

constexpr int64_t kLanes = 16;  // Independent sums, which the compiler puts into vectors.
constexpr int64_t kRows =
    kMostDotRows;  // The most rows of x for which a block is decoded where it is used.
constexpr int64_t kGrainWeights = 1 << 14;  // The least weights of a part of the columns.
constexpr int64_t kPanelWeights = 1 << 20;  // The decoded weights of a panel: 4 MiB.
constexpr int64_t kMostElements = 256;      // The elements of the largest block.

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

// Writes the products of the rows of x with a column, by decoding its blocks.
void decode_and_multiply(const Product& p, const BlockFormat& format, const std::byte* weight,
                         float* results) {
  const int64_t blocks = p.a.cols / format.elements;
  const auto* const x = reinterpret_cast<const float*>(p.a.address);
  kernels::DecodeBlock* const decode = kernels::decoder_of(format);
  Sums sums;
  float decoded[kMostElements];
  for (int64_t block = 0; block < blocks; ++block) {
    decode(weight + block * format.bytes, decoded);
    for (int64_t row = 0; row < p.y.rows; ++row) {
      sums.add(row, decoded, x + row * p.a.row_stride + block * format.elements, format.elements);
    }
  }
  for (int64_t row = 0; row < p.y.rows; ++row) results[row] = sums.total(row);
}

// Computes one column of y. `dot` may be NULL.
void multiply_column(const Product& p, const BlockFormat& format, DotBlocks* dot, int64_t column) {
  const int64_t blocks = p.a.cols / format.elements;
  const std::byte* const weight = p.b.address + column * blocks * format.bytes;
  float results[kRows];
  if (dot == nullptr) {
    decode_and_multiply(p, format, weight, results);
  } else {
    const auto* const x = reinterpret_cast<const float*>(p.a.address);
    dot(weight, blocks, {x, p.a.row_stride, p.y.rows}, results);
  }
  auto* const y = reinterpret_cast<float*>(p.y.address);
  const float bias = p.has_bias ? reinterpret_cast<const float*>(p.bias)[column] : 0;
  for (int64_t row = 0; row < p.y.rows; ++row) {
    y[row * p.y.row_stride + column] = results[row] + bias;
  }
}

bool has_panels(const Product& p) { return p.y.rows > kRows && p.a.cols > 0; }

int64_t panel_cols(const Product& p) {
  return std::clamp<int64_t>(kPanelWeights / p.a.cols, 1, p.y.cols);
}

uint64_t panel_bytes(const Product& p) {
  const uint64_t size_bytes = static_cast<uint64_t>(panel_cols(p) * p.a.cols) * sizeof(float);
  return (size_bytes + kWorkspaceAlignmentBytes - 1) / kWorkspaceAlignmentBytes *
         kWorkspaceAlignmentBytes;
}

// Returns the product of x and the panel of `count` columns from `column` on.
kernels::Gemm gemm_of(const Product& p, std::byte* panel, int64_t column, int64_t count) {
  const kernels::Matrix y{p.y.address, BP_F32, p.y.rows, p.y.cols, p.y.row_stride, 1};
  kernels::Gemm gemm;
  gemm.a = {p.a.address, BP_F32, p.a.rows, p.a.cols, p.a.row_stride, 1};
  gemm.b = {panel, BP_F32, p.a.cols, count, 1, p.a.cols};
  gemm.y = y.part(0, y.rows, column, count);
  if (!p.has_bias) return gemm;
  const kernels::Matrix bias{p.bias, BP_F32, y.rows, y.cols, 0, 1};
  gemm.bias = bias.part(0, y.rows, column, count);
  return gemm;
}

void multiply_panels(const Product& p, const BlockFormat& format, std::byte* workspace,
                     int thread_count) {
  const int64_t depth = p.a.cols, row_bytes = depth / format.elements * format.bytes;
  for (int64_t column = 0; column < p.y.cols; column += panel_cols(p)) {
    const int64_t count = std::min(panel_cols(p), p.y.cols - column);
    kernels::decode_blocks(format, p.b.address + column * row_bytes,
                           reinterpret_cast<float*>(workspace), count * depth, thread_count);
    kernels::run_gemm(gemm_of(p, workspace, column, count), workspace + panel_bytes(p),
                      thread_count);
  }
}

}  // namespace

uint64_t block_product_workspace_bytes(const Product& p, int thread_count) {
  if (!has_panels(p)) return 0;
  const kernels::Gemm gemm = gemm_of(p, nullptr, 0, panel_cols(p));
  return panel_bytes(p) + kernels::gemm_workspace_size_bytes(gemm, thread_count);
}

void multiply_blocks(const Product& p, const BlockFormat& format, std::byte* workspace,
                     int thread_count) {
  if (has_panels(p)) {
    multiply_panels(p, format, workspace, thread_count);
    return;
  }
  DotBlocks* const dot = p.y.rows == 0 ? nullptr : dot_of(format);
  const int64_t grain = std::max<int64_t>(1, kGrainWeights / std::max<int64_t>(p.a.cols, 1));
  kernels::parallel_for(thread_count, p.y.cols, grain, [&](int64_t begin, int64_t end) {
    for (int64_t column = begin; column < end; ++column) multiply_column(p, format, dot, column);
  });
}

}  // namespace bp::cpu
