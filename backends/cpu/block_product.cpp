#include "backends/cpu/block_product.hpp"

#include <algorithm>

#include "backends/cpu/block_dot.hpp"
#include "backends/host_kernels/block_codec.hpp"
#include "backends/host_kernels/gemm.hpp"
#include "backplane/shell/workspace.hpp"

namespace bp::cpu {
namespace {

constexpr int64_t kLanes = 16;           // Independent sums, which the compiler puts into vectors.
constexpr int64_t kRows = kMostDotRows;  // The rows of x for which a block is decoded once.
// The most rows of x without panels. A block is decoded for each kRows of them.
constexpr int64_t kMostRowsOfVectors = 12;
constexpr int64_t kGrainWeights = 1 << 14;  // The least weights of a part of the columns.
// The weights that all rows of x use before others are read; their blocks stay in the nearest
// cache.
constexpr int64_t kWeightsAtOnce = 1 << 14;
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

// Writes the products of rows of x with a column, by decoding its blocks.
void decode_and_multiply(const BlockFormat& format, const std::byte* weight, int64_t blocks,
                         const DotRows& rows, float* results) {
  kernels::DecodeBlock* const decode = kernels::decoder_of(format);
  Sums sums;
  float decoded[kMostElements];
  for (int64_t block = 0; block < blocks; ++block) {
    decode(weight + block * format.bytes, decoded);
    for (int64_t row = 0; row < rows.count; ++row) {
      sums.add(row, decoded, rows.address + row * rows.row_stride + block * format.elements,
               format.elements);
    }
  }
  for (int64_t row = 0; row < rows.count; ++row) results[row] = sums.total(row);
}

// Writes the products of rows of x with columns.
void multiply_rows(const BlockFormat& format, const BlockVectors& vectors,
                   const DotColumns& columns, const DotRows& rows, const DotResults& results) {
  if (vectors.multiply != nullptr) return vectors.multiply(columns, rows, results);
  const int64_t column_bytes = columns.block_count * format.bytes;
  for (int64_t column = 0; column < columns.count; ++column) {
    float sums[kRows];
    decode_and_multiply(format, columns.blocks + column * column_bytes, columns.block_count, rows,
                        sums);
    for (int64_t row = 0; row < rows.count; ++row) {
      results.address[row * results.row_stride + column] = sums[row];
    }
  }
}

// Computes `count` columns of y from `column` on.
void multiply_columns(const Product& p, const BlockFormat& format, const BlockVectors& vectors,
                      int64_t column, int64_t count) {
  const int64_t blocks = p.a.cols / format.elements;
  const DotColumns columns{p.b.address + column * blocks * format.bytes, blocks, count};
  const auto* const x = reinterpret_cast<const float*>(p.a.address);
  float* const y = reinterpret_cast<float*>(p.y.address) + column;
  for (int64_t first = 0; first < p.y.rows; first += kRows) {
    const DotRows rows{x + first * p.a.row_stride, p.a.row_stride,
                       std::min(kRows, p.y.rows - first)};
    multiply_rows(format, vectors, columns, rows, {y + first * p.y.row_stride, p.y.row_stride});
  }
  if (!p.has_bias) return;
  const float* const bias = reinterpret_cast<const float*>(p.bias) + column;
  for (int64_t row = 0; row < p.y.rows; ++row) {
    for (int64_t i = 0; i < count; ++i) y[row * p.y.row_stride + i] += bias[i];
  }
}

bool has_panels(const Product& p, const BlockVectors& vectors) {
  return p.y.rows > (vectors.multiply == nullptr ? kRows : kMostRowsOfVectors) && p.a.cols > 0;
}

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

// Decodes `count` rows of the weight, each of `depth` elements.
void decode_panel(const BlockFormat& format, const BlockVectors& vectors, const std::byte* weight,
                  int64_t count, int64_t depth, float* panel, int thread_count) {
  if (vectors.decode == nullptr) {
    kernels::decode_blocks(format, weight, panel, count * depth, thread_count);
    return;
  }
  const int64_t blocks = depth / format.elements;
  const int64_t grain = std::max<int64_t>(1, kGrainWeights / depth);
  kernels::parallel_for(thread_count, count, grain, [&](int64_t begin, int64_t end) {
    vectors.decode(weight + begin * blocks * format.bytes, (end - begin) * blocks,
                   panel + begin * depth);
  });
}

// How panels are shared out: to `parts` that run beside each other, each with memory of its own and
// `threads` threads. Where there are fewer panels than threads, they take turns.
struct Sharing {
  int64_t panels, parts;
  int threads;
};

Sharing sharing_of(const Product& p, int thread_count) {
  const int64_t panels = kernels::ceil_div(p.y.cols, panel_cols(p));
  if (thread_count == 1 || panels < thread_count) return {panels, 1, thread_count};
  return {panels, thread_count, 1};
}

uint64_t part_bytes(const Product& p, const Sharing& sharing) {
  const kernels::Gemm gemm = gemm_of(p, nullptr, 0, panel_cols(p));
  const uint64_t size_bytes =
      panel_bytes(p) + kernels::gemm_workspace_size_bytes(gemm, sharing.threads);
  return (size_bytes + kWorkspaceAlignmentBytes - 1) / kWorkspaceAlignmentBytes *
         kWorkspaceAlignmentBytes;
}

void multiply_panel(const Product& p, const BlockFormat& format, const BlockVectors& vectors,
                    int64_t column, std::byte* workspace, int thread_count) {
  const int64_t depth = p.a.cols, row_bytes = depth / format.elements * format.bytes;
  const int64_t count = std::min(panel_cols(p), p.y.cols - column);
  decode_panel(format, vectors, p.b.address + column * row_bytes, count, depth,
               reinterpret_cast<float*>(workspace), thread_count);
  kernels::run_gemm(gemm_of(p, workspace, column, count), workspace + panel_bytes(p), thread_count);
}

void multiply_panels(const Product& p, const BlockFormat& format, const BlockVectors& vectors,
                     std::byte* workspace, int thread_count) {
  const Sharing sharing = sharing_of(p, thread_count);
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      std::byte* const own = workspace + static_cast<uint64_t>(part) * part_bytes(p, sharing);
      for (int64_t panel = part; panel < sharing.panels; panel += sharing.parts) {
        multiply_panel(p, format, vectors, panel * panel_cols(p), own, sharing.threads);
      }
    }
  };
  if (sharing.parts == 1) return run(0, 1);
  kernels::parallel_for(thread_count, sharing.parts, 1, run);
}

}  // namespace

uint64_t block_product_workspace_bytes(const Product& p, const BlockFormat& format,
                                       int thread_count) {
  if (!has_panels(p, block_vectors(format))) return 0;
  const Sharing sharing = sharing_of(p, thread_count);
  return static_cast<uint64_t>(sharing.parts) * part_bytes(p, sharing);
}

void multiply_blocks(const Product& p, const BlockFormat& format, std::byte* workspace,
                     int thread_count) {
  const BlockVectors vectors = block_vectors(format);
  if (has_panels(p, vectors)) {
    multiply_panels(p, format, vectors, workspace, thread_count);
    return;
  }
  const int64_t depth = std::max<int64_t>(p.a.cols, 1);
  const int64_t grain = std::max<int64_t>(1, kGrainWeights / depth);
  const int64_t at_once =
      p.y.rows <= kRows ? p.y.cols : std::max<int64_t>(2, kWeightsAtOnce / depth / 2 * 2);
  kernels::parallel_for(thread_count, p.y.cols, grain, [&](int64_t begin, int64_t end) {
    for (int64_t column = begin; column < end; column += at_once) {
      multiply_columns(p, format, vectors, column, std::min(at_once, end - column));
    }
  });
}

}  // namespace bp::cpu
