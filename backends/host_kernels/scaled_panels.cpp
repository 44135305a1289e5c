// A panel has about 4 MiB, which stay in a cache while run_gemm() packs them. Rows of a that are
// not f32 become f32 too, some at a time, so that the workspace does not grow with their number.
#include "backends/host_kernels/scaled_panels.hpp"

#include <algorithm>
#include <optional>

#include "backends/host_kernels/gemm.hpp"
#include "kernel_env.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/scaled_panels.cpp"
// clang-format off: this header compiles the file once for each target, and comes first.
#include <hwy/foreach_target.h>
// clang-format on
#include <hwy/highway.h>

#include "backends/host_kernels/scaled_reading-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels::HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_SCALAR

constexpr const char* kNoVectors = "matmul_scaled: no vectors, and supports() has said so";

void widen_rows(const ScaledProduct&, int64_t, int64_t, float*) {
  throw StatusError(BP_INTERNAL, kNoVectors);
}
void widen_column(const ScaledProduct&, int64_t, float*, float*) {
  throw StatusError(BP_INTERNAL, kNoVectors);
}

#else

constexpr int64_t kPart = 256;

// Turns `count` rows of a from `first` on into dense rows of floats.
void widen_rows(const ScaledProduct& p, int64_t first, int64_t count, float* to) {
  const CodeValues scales(p.a_scale.dtype), values(p.a_dtype);
  for (int64_t row = first; row < first + count; ++row, to += p.depth) {
    RowOfA from(p, row);
    for (int64_t k = 0; k < p.depth; k += kPart) {
      const int64_t part = std::min(kPart, p.depth - k);
      HWY_ALIGN float line[kPart];  // Whole vectors are written.
      read_floats(p, scales, values, from, k, part, line);
      std::copy_n(line, part, to + k);
    }
  }
}

// Multiplies the numbers of a part of a row of b, less their zero points, by their scales. Every
// vector lies in one block. `scales` and `zeros` begin at block 0 of the row.
void scale_part(const ScaledProduct& p, int64_t begin, int64_t count, const float* scales,
                const float* zeros, float* HWY_RESTRICT numbers) {
  for (int64_t at = 0; at < count;) {
    const int64_t block = (begin + at) / p.block;
    const int64_t end = std::min(count, (block + 1) * p.block - begin);
    const auto scale = hn::Set(Floats(), scales[block]);
    const auto zero = hn::Set(Floats(), p.has_zero ? zeros[block] : 0.0F);
    for (; at < end; at += lane_count()) {
      const auto number = hn::Sub(hn::Load(Floats(), numbers + at), zero);
      hn::Store(hn::Mul(number, scale), Floats(), numbers + at);
    }
    at = end;
  }
}

// Turns row `col` of b into floats. `numbers` has room for two numbers of each block, and for a
// vector behind either.
void widen_column(const ScaledProduct& p, int64_t col, float* numbers, float* to) {
  const int64_t block_count = p.depth / p.block;
  float* const zeros = numbers + block_count + kMostLanes;
  read_numbers(p.b_scale, col, block_count, numbers);
  const float factor = p.b_scale.factor();
  for (int64_t i = 0; i < block_count; ++i) numbers[i] *= factor;
  if (p.has_zero) read_numbers(p.b_zero, col, block_count, zeros);
  const CodeFormat format = code_format(p.b_dtype);
  const std::byte* const codes_of_row = p.b + col * p.b_row_bytes;
  for (int64_t k = 0; k < p.depth; k += kPart) {
    const int64_t part = std::min(kPart, p.depth - k);
    HWY_ALIGN uint8_t codes[kPart];
    HWY_ALIGN float line[kPart];
    read_codes(codes_of_row, k * format.bits, format.bits, part, format.bits, codes);
    numbers_of(format, part, codes, line);
    scale_part(p, k, part, numbers, zeros, line);
    std::copy_n(line, part, to + k);
  }
}

#endif

}  // namespace
}  // namespace bp::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(widen_column);
HWY_EXPORT(widen_rows);

constexpr int64_t kPanelElements = 1 << 20;
constexpr int64_t kMostRows = 256;  // The rows of a for which a panel is made.

// Returns the stride from one row of a view to the next, where the rows lie along its last axis.
// Returns nothing if they have no common stride.
std::optional<int64_t> row_stride_of(const View& view) {
  std::optional<int64_t> stride;
  int64_t next = 0;  // The stride that the next axis has to have.
  for (int64_t axis = int64_t{view.ndim} - 2; axis >= 0; --axis) {
    if (view.shape[axis] == 1) continue;
    if (!stride.has_value()) {
      stride = view.strides[axis];
    } else if (view.strides[axis] != next) {
      return std::nullopt;
    }
    next = view.strides[axis] * view.shape[axis];
  }
  return stride.value_or(0);
}

struct Panels {
  Panels(const ScaledProduct& p, int thread_count)
      : rows(std::min(kMostRows, p.rows)),
        cols(std::clamp<int64_t>(kPanelElements / p.depth, 1, p.cols)),
        numbers_count(2 * (p.depth / p.block + kMostLanes)) {
    constexpr auto kFloatBytes = static_cast<uint64_t>(sizeof(float));
    const auto reserve = [&](int64_t count) {
      return reserve_bytes(static_cast<uint64_t>(count) * kFloatBytes, size_bytes);
    };
    a = reserve(rows * p.depth);
    panel = reserve(cols * p.depth);
    numbers = reserve(thread_count * numbers_count);
    gemm = size_bytes;
    size_bytes += gemm_workspace_size_bytes(gemm_of(p, nullptr, 0, rows, 0, cols), thread_count);
  }

  // Returns the product of some rows and columns, whose factors have become floats.
  Gemm gemm_of(const ScaledProduct& p, std::byte* workspace, int64_t row, int64_t row_count,
               int64_t col, int64_t col_count) const {
    const Matrix y{p.y.address, p.y_dtype,           p.rows,
                   p.cols,      *row_stride_of(p.y), p.y.strides[p.y.ndim - 1]};
    Gemm made;
    made.a = {workspace + a, BP_F32, row_count, p.depth, p.depth, 1};
    made.b = {workspace + panel, BP_F32, p.depth, col_count, 1, p.depth};
    made.y = y.part(row, row_count, col, col_count);
    return made;
  }

  int64_t rows, cols, numbers_count;
  uint64_t a = 0, panel = 0, numbers = 0, gemm = 0, size_bytes = 0;
};

}  // namespace

const char* scaled_panels_refusal(const ScaledProduct& p) {
  return row_stride_of(p.y).has_value() ? nullptr : "the rows of y have no common stride";
}

uint64_t scaled_panels_workspace_size_bytes(const ScaledProduct& p, int thread_count) {
  return p.rows == 0 || p.cols == 0 ? 0 : Panels(p, thread_count).size_bytes;
}

void run_scaled_panels(const ScaledProduct& p, std::byte* workspace, int thread_count) {
  constexpr int64_t kGrainElements = 1 << 14;
  const Panels panels(p, thread_count);
  const int64_t grain = std::max<int64_t>(1, kGrainElements / p.depth);
  auto* const a = reinterpret_cast<float*>(workspace + panels.a);
  auto* const panel = reinterpret_cast<float*>(workspace + panels.panel);
  auto* const numbers = reinterpret_cast<float*>(workspace + panels.numbers);
  for (int64_t row = 0; row < p.rows; row += panels.rows) {
    const int64_t row_count = std::min(panels.rows, p.rows - row);
    parallel_for(thread_count, row_count, grain, [&](int64_t begin, int64_t end) {
      HWY_DYNAMIC_DISPATCH(widen_rows)(p, row + begin, end - begin, a + begin * p.depth);
    });
    for (int64_t col = 0; col < p.cols; col += panels.cols) {
      const int64_t col_count = std::min(panels.cols, p.cols - col);
      parallel_for(thread_count, col_count, grain, [&](int64_t begin, int64_t end) {
        float* const own = numbers + thread_number() * panels.numbers_count;
        for (int64_t at = begin; at < end; ++at) {
          HWY_DYNAMIC_DISPATCH(widen_column)(p, col + at, own, panel + at * p.depth);
        }
      });
      run_gemm(panels.gemm_of(p, workspace, row, row_count, col, col_count),
               workspace + panels.gemm, thread_count);
    }
  }
}

}  // namespace bp::kernels
#endif
