// Computes y = a x in one of two ways, which depends on the layout of a:
//
//   dense rows      several rows at a time, each times x
//   dense columns   eight columns at a time, added to the sums of a block of rows that stay in the
//                   nearest cache
//
// Several lines are read side by side, because the hardware prefetches in each of them. It stops at
// the end of a page, so rows are prefetched kAheadBytes further on too, into the second cache: a
// Zen 4 loses time where so much is prefetched into the first one. bf16 (4032, 4096) by (4096)
// reads memory there with 23 to 26 GB/s by eight rows on one thread, with 22 to 24 GB/s by four,
// and with 14 to 16 GB/s by four that are prefetched into the first cache.
//
// If y is short, its sums are divided along the depth into parts, and the parts are added in order.
// The extent of a part does not depend on the number of threads.
#include "backends/host_kernels/gemv.hpp"

#include <algorithm>

#include "backends/host_kernels/strided.hpp"
#include "kernel_env.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/gemv.cpp"
// clang-format off: this header compiles the file once for each target, and comes first.
#include <hwy/foreach_target.h>
// clang-format on
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "backends/host_kernels/activation-inl.hpp"
#include "backends/host_kernels/lines-inl.hpp"

#ifndef BACKPLANE_KERNELS_GEMV_PARTS
#define BACKPLANE_KERNELS_GEMV_PARTS
namespace bp::kernels {

constexpr int64_t kShortColumn = 256;  // With fewer elements of y the depth is divided.
constexpr int64_t kPartDepth = 16384;  // The depth of such a part.
constexpr int64_t kBlockSums = 2048;   // Elements of y that a thread computes at a time.
constexpr int64_t kRowDepth = 4096;    // Longer sums in vectors lose digits.
constexpr int64_t kColumnDepth = 256;  // Columns that are summed one by one.
constexpr int64_t kGrainProducts = 1 << 15;

// y (rows, 1) = a (rows, depth) by b (depth, 1), in parts of the depth.
struct GemvLayout {
  bool goes_by_rows = false;
  bool copies_b = false;  // To the workspace, dense and in the dtype of sums.
  int64_t parts = 1;
  uint64_t sums_offset = 0;  // (parts, rows), if there are several parts.
  uint64_t size_bytes = 0;
};

}  // namespace bp::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bp::kernels::HWY_NAMESPACE {
namespace {

// A row has two sums, and all sums stay in registers: AVX-512 and 64-bit Arm have 32 of them.
constexpr int64_t kRows = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64 ? 8 : 4;
constexpr int64_t kFewRows = 4, kCols = 8;
constexpr int64_t kAheadBytes = 2048;

HWY_INLINE void prefetch_to_second_cache(const void* from) {
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
  __builtin_prefetch(from, 0, 2);
#else
  hwy::Prefetch(static_cast<const char*>(from));
#endif
}

// Prefetches what lies kAheadBytes behind `count` elements, where there may be no memory.
template <typename T>
HWY_INLINE void prefetch_ahead(const T* from, int64_t count) {
  constexpr int64_t kLineBytes = 64;
  const auto at = reinterpret_cast<uintptr_t>(from) + static_cast<uintptr_t>(kAheadBytes);
  for (int64_t i = 0; i < count * static_cast<int64_t>(sizeof(T)); i += kLineBytes) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): there may be no object at the address.
    prefetch_to_second_cache(reinterpret_cast<const T*>(at + static_cast<uintptr_t>(i)));
  }
}

// Computes sums[r] = row r of a by x, for kCount rows that lie `stride` elements apart.
template <int64_t kCount, typename T, typename Sum>
HWY_INLINE void multiply_rows(const T* a, int64_t stride, const Sum* HWY_RESTRICT x, int64_t depth,
                              Sum* HWY_RESTRICT sums) {
  const hn::ScalableTag<Sum> d;
  using Vector = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Vector even[kCount], odd[kCount];
  for (int64_t r = 0; r < kCount; ++r) even[r] = odd[r] = hn::Zero(d);
  int64_t k = 0;
  for (; k + 2 * lanes <= depth; k += 2 * lanes) {
    const Vector x0 = hn::LoadU(d, x + k), x1 = hn::LoadU(d, x + k + lanes);
    for (int64_t r = 0; r < kCount; ++r) {
      const T* const from = a + r * stride + k;
      prefetch_ahead(from, 2 * lanes);
      even[r] = hn::MulAdd(load_lanes(d, from), x0, even[r]);
      odd[r] = hn::MulAdd(load_lanes(d, from + lanes), x1, odd[r]);
    }
  }
  for (; k < depth; k += lanes) {
    const auto rest = static_cast<size_t>(std::min(lanes, depth - k));
    const bool is_whole = depth - k >= lanes;
    const Vector x0 = is_whole ? hn::LoadU(d, x + k) : load_lanes_n(d, x + k, rest);
    for (int64_t r = 0; r < kCount; ++r) {
      const T* const from = a + r * stride + k;
      const Vector v = is_whole ? load_lanes(d, from) : load_lanes_n(d, from, rest);
      even[r] = hn::MulAdd(v, x0, even[r]);
    }
  }
  for (int64_t r = 0; r < kCount; ++r) {
    sums[r] = hn::GetLane(hn::SumOfLanes(d, hn::Add(even[r], odd[r])));
  }
}

// Computes these sums for any depth.
template <int64_t kCount, typename T, typename Sum>
HWY_INLINE void multiply_long_rows(const T* a, int64_t stride, const Sum* x, int64_t depth,
                                   Sum* sums) {
  multiply_rows<kCount>(a, stride, x, std::min(depth, kRowDepth), sums);
  for (int64_t k = kRowDepth; k < depth; k += kRowDepth) {
    Sum more[kCount];
    multiply_rows<kCount>(a + k, stride, x + k, std::min(depth - k, kRowDepth), more);
    for (int64_t r = 0; r < kCount; ++r) sums[r] += more[r];
  }
}

template <typename T, typename Sum>
void multiply_by_rows(const Matrix& a, const Sum* x, Sum* sums) {
  const auto row = [&](int64_t r) { return reinterpret_cast<const T*>(a.at(r, 0)); };
  int64_t r = 0;
  for (; r + kRows <= a.rows; r += kRows) {
    multiply_long_rows<kRows>(row(r), a.row_stride, x, a.cols, sums + r);
  }
  if (r + kFewRows <= a.rows) {
    multiply_long_rows<kFewRows>(row(r), a.row_stride, x, a.cols, sums + r);
    r += kFewRows;
  }
  for (; r < a.rows; ++r) multiply_long_rows<1>(row(r), a.row_stride, x, a.cols, sums + r);
}

// Adds kCount columns of a, each times its element of x, to sums.
template <int64_t kCount, typename T, typename Sum>
HWY_INLINE void add_columns(const T* a, int64_t stride, const Sum* x, int64_t rows,
                            Sum* HWY_RESTRICT sums) {
  const hn::ScalableTag<Sum> d;
  using Vector = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Vector factors[kCount];
  for (int64_t c = 0; c < kCount; ++c) factors[c] = hn::Set(d, x[c]);
  for (int64_t r = 0; r < rows; r += lanes) {  // Whole vectors fit `sums`.
    const auto rest = static_cast<size_t>(std::min(lanes, rows - r));
    const bool is_whole = rows - r >= lanes;
    Vector sum = hn::LoadU(d, sums + r);
    for (int64_t c = 0; c < kCount; ++c) {
      const T* const from = a + c * stride + r;
      const Vector v = is_whole ? load_lanes(d, from) : load_lanes_n(d, from, rest);
      sum = hn::MulAdd(v, factors[c], sum);
    }
    hn::StoreU(sum, d, sums + r);
  }
}

// Sets sums to the sum of the columns [begin, end) of a, each times its element of x.
template <typename T, typename Sum>
void multiply_columns(const Matrix& a, int64_t begin, int64_t end, const Sum* x, Sum* sums) {
  std::fill_n(sums, a.rows, Sum{0});
  const auto column = [&](int64_t c) { return reinterpret_cast<const T*>(a.at(0, c)); };
  int64_t c = begin;
  for (; c + kCols <= end; c += kCols) {
    add_columns<kCols>(column(c), a.col_stride, x + c, a.rows, sums);
  }
  for (; c < end; ++c) add_columns<1>(column(c), a.col_stride, x + c, a.rows, sums);
}

template <typename T, typename Sum>
void multiply_by_columns(const Matrix& a, const Sum* x, Sum* sums) {
  multiply_columns<T>(a, 0, std::min(a.cols, kColumnDepth), x, sums);
  HWY_ALIGN Sum more[kBlockSums];
  for (int64_t c = kColumnDepth; c < a.cols; c += kColumnDepth) {
    multiply_columns<T>(a, c, std::min(a.cols, c + kColumnDepth), x, more);
    for (int64_t r = 0; r < a.rows; ++r) sums[r] += more[r];
  }
}

// Computes sums of at most kBlockSums rows of a. `sums` has room for that many.
template <typename Sum>
void multiply_block(const Matrix& a, bool goes_by_rows, const Sum* x, Sum* sums) {
  with_element_of<Sum>(a.dtype, [&]<typename T>(T) {
    if (goes_by_rows) {
      multiply_by_rows<T>(a, x, sums);
    } else {
      multiply_by_columns<T>(a, x, sums);
    }
  });
}

// Copies a column to `to`, without gaps.
template <typename Sum>
void load_column(const Matrix& from, Sum* to) {
  with_element_of<Sum>(from.dtype, [&]<typename T>(T) {
    load_line(reinterpret_cast<const T*>(from.data), from.row_stride, from.rows, to);
  });
}

template <typename Sum>
void store_column(const Sum* from, const Matrix& to) {
  with_element_of<Sum>(to.dtype, [&]<typename T>(T) {
    store_line(from, to.rows, reinterpret_cast<T*>(to.data), to.row_stride);
  });
}

template <typename Sum>
void add_column(const Matrix& from, Sum* sums) {
  if (from.data == nullptr) return;
  HWY_ALIGN Sum terms[kBlockSums];
  load_column(from, terms);
  for (int64_t i = 0; i < from.rows; ++i) sums[i] += terms[i];
}

// Computes the elements [row, row + count) of y from their sums.
template <typename Sum>
void finish_block(const Gemm& g, int64_t row, int64_t count, Sum* sums) {
  const Matrix y = g.y.part(row, count, 0, 1);
  if (g.accumulates) add_column(y, sums);
  add_column(g.bias.part(row, count, 0, 1), sums);
  const Matrix preactivation = g.preactivation.part(row, count, 0, 1);
  if (preactivation.data != nullptr) store_column(sums, preactivation);
  activate_line(g.activation, count, sums);
  store_column(sums, y);
}

template <typename Sum>
void multiply_whole(const Gemm& g, const Sum* x, const GemvLayout& layout, int thread_count) {
  const int64_t grain = std::max<int64_t>(64, kGrainProducts / std::max<int64_t>(1, g.a.cols));
  parallel_for(thread_count, g.y.rows, grain, [&](int64_t begin, int64_t end) {
    HWY_ALIGN Sum sums[kBlockSums];
    for (int64_t row = begin; row < end; row += kBlockSums) {
      const int64_t count = std::min(kBlockSums, end - row);
      multiply_block(g.a.part(row, count, 0, g.a.cols), layout.goes_by_rows, x, sums);
      finish_block(g, row, count, sums);
    }
  });
}

template <typename Sum>
void multiply_in_parts(const Gemm& g, const Sum* x, const GemvLayout& layout, std::byte* workspace,
                       int thread_count) {
  const int64_t rows = g.y.rows;
  Sum* const part_sums = reinterpret_cast<Sum*>(workspace + layout.sums_offset);
  parallel_for(thread_count, layout.parts, 1, [&](int64_t begin, int64_t end) {
    HWY_ALIGN Sum sums[kShortColumn];
    for (int64_t part = begin; part < end; ++part) {
      const int64_t k = part * kPartDepth;
      multiply_block(g.a.part(0, rows, k, kPartDepth), layout.goes_by_rows, x + k, sums);
      std::copy_n(sums, rows, part_sums + part * rows);
    }
  });
  HWY_ALIGN Sum sums[kShortColumn] = {};
  for (int64_t part = 0; part < layout.parts; ++part) {
    for (int64_t i = 0; i < rows; ++i) sums[i] += part_sums[part * rows + i];
  }
  finish_block(g, 0, rows, sums);
}

template <typename Sum>
void multiply(const Gemm& g, const GemvLayout& layout, std::byte* workspace, int thread_count) {
  const Sum* x = reinterpret_cast<const Sum*>(g.b.data);
  if (layout.copies_b) {
    Sum* const copy = reinterpret_cast<Sum*>(workspace);
    parallel_for(thread_count, g.b.rows, kGrainProducts, [&](int64_t begin, int64_t end) {
      load_column(g.b.part(begin, end - begin, 0, 1), copy + begin);
    });
    x = copy;
  }
  if (layout.parts == 1) return multiply_whole(g, x, layout, thread_count);
  multiply_in_parts(g, x, layout, workspace, thread_count);
}

void multiply_f32(const Gemm& g, const GemvLayout& layout, std::byte* workspace, int thread_count) {
  multiply<float>(g, layout, workspace, thread_count);
}

void multiply_f64(const Gemm& g, const GemvLayout& layout, std::byte* workspace, int thread_count) {
  multiply<double>(g, layout, workspace, thread_count);
}

}  // namespace
}  // namespace bp::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(multiply_f32);
HWY_EXPORT(multiply_f64);

constexpr int64_t kShortestLine = 16;

// Returns the product whose result is a column.
Gemm as_column(const Gemm& g) { return g.y.cols == 1 ? g : g.transposed(); }

bool has_long_rows(const Matrix& a) { return a.col_stride == 1 && a.cols >= kShortestLine; }

GemvLayout gemv_layout(const Gemm& g) {
  const bp_dtype sum_dtype = g.y.dtype == BP_F64 ? BP_F64 : BP_F32;
  const auto size_bytes = static_cast<uint64_t>(dtype_size_bytes(sum_dtype));
  GemvLayout layout;
  layout.goes_by_rows = has_long_rows(g.a);
  layout.copies_b = g.b.dtype != sum_dtype || g.b.row_stride != 1;
  if (layout.copies_b) {
    reserve_bytes(static_cast<uint64_t>(g.a.cols) * size_bytes, layout.size_bytes);
  }
  if (g.y.rows > kShortColumn || g.a.cols < 2 * kPartDepth) return layout;
  layout.parts = (g.a.cols + kPartDepth - 1) / kPartDepth;
  layout.sums_offset =
      reserve_bytes(static_cast<uint64_t>(layout.parts * g.y.rows) * size_bytes, layout.size_bytes);
  return layout;
}

}  // namespace

bool is_gemv(const Gemm& gemm) {
  if (gemm.y.cols != 1 && gemm.y.rows != 1) return false;
  const Matrix a = as_column(gemm).a;
  return has_long_rows(a) || (a.row_stride == 1 && a.rows >= kShortestLine);
}

uint64_t gemv_workspace_size_bytes(const Gemm& gemm) {
  return gemv_layout(as_column(gemm)).size_bytes;
}

void run_gemv(const Gemm& gemm, std::byte* workspace, int thread_count) {
  const Gemm g = as_column(gemm);
  const GemvLayout layout = gemv_layout(g);
  if (g.y.dtype == BP_F64) {
    return HWY_DYNAMIC_DISPATCH(multiply_f64)(g, layout, workspace, thread_count);
  }
  HWY_DYNAMIC_DISPATCH(multiply_f32)(g, layout, workspace, thread_count);
}

}  // namespace bp::kernels
#endif
