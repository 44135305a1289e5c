// avg_pool and its gradient (pool.hpp). Small windows are added in bands of rows
// (window_band-inl.hpp), larger ones in lines (pool_line-inl.hpp). The gradient is computed for
// each row of the input: the rows of outputs whose windows cover it are added in a line, and the
// line is spread over the taps.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/avg_pool.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/pool.hpp"
#include "backends/host_kernels/pool_line-inl.hpp"
#include "backends/host_kernels/strided.hpp"
#include "backends/host_kernels/window_band-inl.hpp"

#ifndef BACKPLANE_CPU_AVG_POOL_PLAN
#define BACKPLANE_CPU_AVG_POOL_PLAN
namespace bp::kernels {
namespace {

struct AvgPool {
  Window window;
  Planes x, y;  // In the gradient these are grad_x and grad_y.
  bool counts_padding = false;
};

// The number of input columns that the gradient computes together.
constexpr int64_t kGradColumns = 512;

int64_t grad_outputs(const AvgPool& p) {
  const int64_t covering = (kGradColumns + p.window.kernel[2]) / p.window.stride[2] + 2;
  return std::min(covering, p.y.extent[2]);
}

// The workspace of a thread, which has two lines, and two values for each output of a block.
struct AvgPoolSizes {
  explicit AvgPoolSizes(const AvgPool& p, bool is_backward)
      : line(is_backward ? kGradColumns + 2 * p.window.kernel[2] + 2 * kSpare
             : BandSizes::is_fitting(p.window)
                 ? std::max(line_elements(p.window, p.y.extent[2]),
                            BandSizes(p.window, p.y.extent).elements() + kSpare)
                 : line_elements(p.window, p.y.extent[2])),
        outputs((is_backward ? grad_outputs(p) : block_outputs(p.window, p.y.extent[2])) + kSpare) {
  }
  int64_t elements() const { return 2 * line + 2 * outputs; }

  static constexpr int64_t kSpare = 16;  // A vector may end behind the line.
  int64_t line, outputs;
};

template <typename Value>
struct AvgPoolMemory {
  AvgPoolMemory(const AvgPoolSizes& sizes, std::byte* memory)
      : line(reinterpret_cast<Value*>(memory)),
        earlier(line + sizes.line),
        columns(earlier + sizes.line),
        shares(columns + sizes.outputs) {}
  Value *line, *earlier, *columns, *shares;
};

// Computes one plane of the result or of the gradient. `memory` is the thread's own.
using PoolPlane = void(const AvgPool& pool, int64_t plane, std::byte* memory);

}  // namespace
}  // namespace bp::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

// ---- The means ----------------------------------------------------------------------------------

struct Sum {
  template <typename Value>
  static constexpr Value identity() {
    return 0;
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> join(D, hn::Vec<D> a, hn::Vec<D> b) {
    return hn::Add(a, b);
  }
};

// Returns the number of elements of a window that count along one axis, at least 1. The sum of no
// elements is 0, and stays 0.
int64_t divisor_of(const AvgPool& p, size_t axis, int64_t output) {
  if (p.counts_padding) return p.window.kernel[axis];
  return std::max<int64_t>(1, p.window.taps(axis, output, p.x.extent[axis]).size());
}

// The divisor of the outputs of a row is `rows` times `columns`, or one number for all outputs if
// `columns` is NULL. If the divisor is a power of two, a multiplication gives the same result. A
// division takes as long as ten multiplications.
template <typename Value>
struct Divisor {
  int64_t rows;
  const Value* columns;

  template <class D>
  HWY_INLINE hn::Vec<D> divide(D d, hn::Vec<D> sums, int64_t first) const {
    const Value divisor = static_cast<Value>(rows);
    if (columns != nullptr) {
      return hn::Div(sums, hn::Mul(hn::Set(d, divisor), hn::LoadU(d, columns + first)));
    }
    if ((rows & (rows - 1)) == 0) return hn::Mul(sums, hn::Set(d, 1 / divisor));
    return hn::Div(sums, hn::Set(d, divisor));
  }
};

// Computes one row of outputs of a block. `columns` are their divisors along the row, or NULL.
template <typename T>
void pool_row(const AvgPool& p, int64_t plane, const OutputRow& place, const LineBlock& block,
              const AvgPoolMemory<Compute<T>>& memory) {
  using Value = Compute<T>;
  const T* const from = reinterpret_cast<const T*>(p.x.plane(plane));
  T* const to = reinterpret_cast<T*>(p.y.plane(plane)) + place.offset_in(p.y) +
                block.outputs.begin * p.y.stride[2];
  const bool has_columns = block.has_padding() && !p.counts_padding;
  const int64_t rows = divisor_of(p, 0, place.i) * divisor_of(p, 1, place.j);
  const Divisor<Value> divisor = {has_columns ? rows : rows * p.window.kernel[2],
                                  has_columns ? memory.columns : nullptr};
  join_rows<Sum>(p.window, p.x, from, place, block, memory.line, memory.earlier, [](auto) {});
  for_each_output<Sum>(p.window, block, memory.line,
                       [&](auto sums, int64_t first, int64_t count, auto whole) HWY_ATTR {
                         const ComputeTag<T> d;
                         store_outputs<whole>(divisor.divide(d, sums, first), d,
                                              to + first * p.y.stride[2], p.y.stride[2], count);
                       });
}

// Computes a band of a slice of a plane, whose first output is `to`. `columns` are the divisors
// along a row, or NULL.
template <typename T>
void pool_band(const AvgPool& p, const Band<Compute<T>>& band, T* to, const Compute<T>* columns) {
  using Value = Compute<T>;
  const ComputeTag<T> d;
  const auto start = hn::Set(d, static_cast<Value>(-0.0));  // It changes no sum.
  for_each_window_sum(
      d, p.window, band, start,
      [](auto sum, auto elements, int64_t) HWY_ATTR { return hn::Add(sum, elements); },
      [&](auto sums, int64_t row, int64_t first, int64_t count, auto whole) HWY_ATTR {
        const int64_t rows = divisor_of(p, 1, row);
        const Divisor<Value> divisor = {columns == nullptr ? rows * p.window.kernel[2] : rows,
                                        columns};
        store_outputs<whole>(divisor.divide(d, sums, first), d,
                             to + row * p.y.stride[1] + (band.cols.begin + first) * p.y.stride[2],
                             p.y.stride[2], count);
      });
}

// Computes a plane whose windows are small. An output row may lie in the padding behind axis 0.
template <typename T>
void pool_bands(const AvgPool& p, int64_t plane, const AvgPoolMemory<Compute<T>>& memory) {
  for (int64_t i = 0; i < p.y.extent[0]; ++i) {
    Planes x = p.x;
    const int64_t depth = p.window.input_of(0, i, 0);
    if (depth >= x.extent[0]) x.extent[1] = 0;
    const T* const from = reinterpret_cast<const T*>(x.plane(plane)) + depth * x.stride[0];
    T* const to = reinterpret_cast<T*>(p.y.plane(plane)) + i * p.y.stride[0];
    for_each_band(p.window, x, from, p.y.extent, memory.line, [&](const Band<Compute<T>>& band) {
      const LineBlock block(p.window, x.extent[2], band.cols);
      const bool has_columns = block.has_padding() && !p.counts_padding;
      for (int64_t k = 0; has_columns && k < band.cols.size(); ++k) {
        memory.columns[k] = static_cast<Compute<T>>(divisor_of(p, 2, band.cols.begin + k));
      }
      pool_band<T>(p, band, to, has_columns ? memory.columns : nullptr);
    });
  }
}

template <typename T>
void pool_plane(const AvgPool& p, int64_t plane, std::byte* of_thread) {
  const AvgPoolMemory<Compute<T>> memory(AvgPoolSizes(p, false), of_thread);
  if (BandSizes::is_fitting(p.window)) return pool_bands<T>(p, plane, memory);
  for_each_block<Sum>(p.window, p.x, p.y, memory.line, [&](const LineBlock& block) {
    for (int64_t k = 0; k < block.outputs.size(); ++k) {
      memory.columns[k] = static_cast<Compute<T>>(divisor_of(p, 2, block.outputs.begin + k));
    }
    for (int64_t i = 0; i < p.y.extent[0]; ++i) {
      for (int64_t j = 0; j < p.y.extent[1]; ++j) pool_row<T>(p, plane, {i, j}, block, memory);
    }
  });
}

// ---- The gradient -------------------------------------------------------------------------------

// Returns the outputs along one axis whose windows cover a position of the input.
Range outputs_over(const AvgPool& p, size_t axis, int64_t position) {
  const Window& w = p.window;
  const int64_t first = position + w.low[axis] - w.kernel[axis] + 1;
  return {std::max<int64_t>(0, divide_up(first, w.stride[axis])),
          std::min(p.y.extent[axis], (position + w.low[axis]) / w.stride[axis] + 1)};
}

// Some columns of grad_x, and the outputs whose windows cover any of them.
struct GradBlock {
  GradBlock(const AvgPool& p, int64_t begin)
      : columns{begin, std::min(p.x.extent[2], begin + kGradColumns)},
        outputs{outputs_over(p, 2, begin).begin, outputs_over(p, 2, columns.end - 1).end} {}
  Range columns, outputs;
};

// Computes row (a, b) of a block of grad_x.
template <typename T>
void spread_row(const AvgPool& p, int64_t plane, int64_t a, int64_t b, const GradBlock& block,
                const AvgPoolMemory<Compute<T>>& memory) {
  using Value = Compute<T>;
  const Window& w = p.window;
  const ComputeTag<T> d;
  const int64_t n = block.outputs.size(), before = w.kernel[2] - 1;
  const Range depth = outputs_over(p, 0, a), rows = outputs_over(p, 1, b);
  PartSums<Value> shares(memory.shares, memory.earlier, n);
  for (int64_t i = depth.begin; i < depth.end; ++i) {
    for (int64_t j = rows.begin; j < rows.end; ++j) {
      const T* const from = reinterpret_cast<const T*>(p.y.plane(plane)) + i * p.y.stride[0] +
                            j * p.y.stride[1] + block.outputs.begin * p.y.stride[2];
      const Divisor<Value> share = {divisor_of(p, 0, i) * divisor_of(p, 1, j), nullptr};
      add_row(from, p.y.stride[2], n, memory.shares,
              [&](auto v) HWY_ATTR { return share.divide(d, v, 0); });
      shares.count_term();
    }
  }
  shares.finish();
  // Windows may begin before the block, and end behind it.
  PartSums<Value> line(memory.line, memory.earlier, block.columns.size() + 2 * before);
  Value* const first =
      memory.line + before + w.input_of(2, block.outputs.begin, 0) - block.columns.begin;
  for (int64_t k = 0; k < n; ++k) memory.shares[k] /= memory.columns[k];
  for (int64_t tap = 0; tap < w.kernel[2]; ++tap) {
    for (int64_t k = 0; k < n; ++k) first[k * w.stride[2] + tap] += memory.shares[k];
    line.count_term();
  }
  line.finish();
  T* const to = reinterpret_cast<T*>(p.x.plane(plane)) + a * p.x.stride[0] + b * p.x.stride[1] +
                block.columns.begin * p.x.stride[2];
  const int64_t count = block.columns.size();
  for_each_vector(d, count, [&](int64_t c, auto whole) HWY_ATTR {
    store_outputs<whole>(hn::LoadU(d, memory.line + before + c), d, to + c * p.x.stride[2],
                         p.x.stride[2], count - c);
  });
}

template <typename T>
void spread_plane(const AvgPool& p, int64_t plane, std::byte* of_thread) {
  const AvgPoolMemory<Compute<T>> memory(AvgPoolSizes(p, true), of_thread);
  for (int64_t begin = 0; begin < p.x.extent[2]; begin += kGradColumns) {
    const GradBlock block(p, begin);
    for (int64_t k = 0; k < block.outputs.size(); ++k) {
      memory.columns[k] = static_cast<Compute<T>>(divisor_of(p, 2, block.outputs.begin + k));
    }
    for (int64_t a = 0; a < p.x.extent[0]; ++a) {
      for (int64_t b = 0; b < p.x.extent[1]; ++b) spread_row<T>(p, plane, a, b, block, memory);
    }
  }
}

template <typename T>
PoolPlane* plane_of(bool is_backward) {
  return is_backward ? spread_plane<T> : pool_plane<T>;
}

PoolPlane* find_plane(bp_dtype dtype, bool is_backward) {
  return with_float(dtype, [=]<typename T>(T) { return plane_of<T>(is_backward); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(find_plane);

template <typename Args>
AvgPool pool_of(const Args& args, const bp_tensor& x, const bp_tensor& y) {
  AvgPool pool;
  pool.window = Window(x.ndim - 2, args.kernel_size, args.stride, args.padding, nullptr);
  pool.x = Planes(x);
  pool.y = Planes(y);
  pool.counts_padding = args.counts_padding != 0;
  return pool;
}

uint64_t thread_bytes(const AvgPool& pool, bp_dtype dtype, bool is_backward) {
  return plane_memory_bytes(AvgPoolSizes(pool, is_backward).elements(), dtype);
}

bp_status submit_pool(const AvgPool& pool, const bp_tensor& result, bool is_backward,
                      const Launch& launch) {
  PoolPlane* const run = HWY_DYNAMIC_DISPATCH(find_plane)(result.dtype, is_backward);
  return submit_planes(launch, result, std::max(pool.x.size(), pool.y.size()),
                       thread_bytes(pool, result.dtype, is_backward),
                       [=](int64_t begin, int64_t end, std::byte* memory) {
                         for (int64_t plane = begin; plane < end; ++plane) run(pool, plane, memory);
                       });
}

uint64_t avg_pool_workspace(const bp_avg_pool_args& args, const Env& env) {
  return static_cast<uint64_t>(env.thread_count()) *
         thread_bytes(pool_of(args, *args.x, *args.y), args.x->dtype, false);
}

bp_status avg_pool_launch(const bp_avg_pool_args& args, Launch& launch) {
  return submit_pool(pool_of(args, *args.x, *args.y), *args.y, false, launch);
}

uint64_t avg_pool_backward_workspace(const bp_avg_pool_backward_args& args, const Env& env) {
  return static_cast<uint64_t>(env.thread_count()) *
         thread_bytes(pool_of(args, *args.grad_x, *args.grad_y), args.grad_x->dtype, true);
}

bp_status avg_pool_backward_launch(const bp_avg_pool_backward_args& args, Launch& launch) {
  return submit_pool(pool_of(args, *args.grad_x, *args.grad_y), *args.grad_x, true, launch);
}

}  // namespace

extern constinit const bp_kernel kAvgPool =
    make_kernel<bp_avg_pool_args, avg_pool_launch, nullptr, avg_pool_workspace>(
        kernel_row("avg_pool", BP_OP_AVG_POOL, kFloatDtypes));
extern constinit const bp_kernel kAvgPoolBackward =
    make_kernel<bp_avg_pool_backward_args, avg_pool_backward_launch, nullptr,
                avg_pool_backward_workspace>(
        kernel_row("avg_pool_backward", BP_OP_AVG_POOL_BACKWARD, kFloatDtypes));

}  // namespace bp::kernels
#endif  // HWY_ONCE
