// avg_pool and its gradient (pool.hpp). Outputs that lie side by side are one vector, which takes
// the window tap by tap. The gradient is computed from the other side: each row of the input takes
// the windows that cover it, so that its sums need no memory beyond a block.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/avg_pool.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "backends/cpu/kernels/pool.hpp"
#include "backends/cpu/kernels/taps-inl.hpp"

#ifndef BACKPLANE_CPU_AVG_POOL_PLAN
#define BACKPLANE_CPU_AVG_POOL_PLAN
namespace bp::kernels {
namespace {

struct AvgPool {
  Window window;
  Planes x, y;  // In the gradient these are grad_x and grad_y.
  bool counts_padding = false;
};

using PoolPlane = void(const AvgPool& pool, int64_t plane);

}  // namespace
}  // namespace bp::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

template <typename T>
struct Sums {
  using Value = Compute<T>;

  // The elements that output k of a row is divided by; `rows` are those of its window that count.
  static int64_t divisor(const AvgPool& p, int64_t rows, int64_t k) {
    if (p.counts_padding) return p.window.kernel[0] * p.window.kernel[1] * p.window.kernel[2];
    return rows * p.window.taps(2, k, p.x.extent[2]).size();
  }
  static int64_t rows_of(const AvgPool& p, int64_t i, int64_t j) {
    return p.window.taps(0, i, p.x.extent[0]).size() * p.window.taps(1, j, p.x.extent[1]).size();
  }

  void start(int64_t n) { std::fill_n(values, n, Value{0}); }

  // Adds n elements to the outputs from number `first` on, one to each.
  void add(const T* x, int64_t first, int64_t n) {
    const ComputeTag<T> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    Value* const to = values + first;
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) {
      hn::StoreU(hn::Add(hn::LoadU(d, to + i), load_lanes(d, x + i)), d, to + i);
    }
    for (; i < n; ++i) to[i] += widen(x[i]);
  }

  // Adds n elements to output 0.
  void add_run(const T* x, int64_t n) {
    const ComputeTag<T> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    auto sum = hn::Zero(d);
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) sum = hn::Add(sum, load_lanes(d, x + i));
    if (i < n) sum = hn::Add(sum, load_lanes_n(d, x + i, static_cast<size_t>(n - i)));
    values[0] += hn::GetLane(hn::SumOfLanes(d, sum));
  }

  // A window without elements has a sum of 0, which stays.
  void divide(const AvgPool& p, int64_t i, int64_t j, const ColumnBlock& block) {
    const int64_t rows = rows_of(p, i, j);
    const Range &columns = block.columns, &whole = block.whole;
    const auto divide_one = [&](int64_t k) {
      values[k - columns.begin] /= static_cast<Value>(std::max<int64_t>(1, divisor(p, rows, k)));
    };
    for (int64_t k = columns.begin; k < whole.begin; ++k) divide_one(k);
    if (whole.size() > 0) {  // One number divides all of them, in vectors.
      const auto count = static_cast<Value>(std::max<int64_t>(1, divisor(p, rows, whole.begin)));
      Value* const from = values + (whole.begin - columns.begin);
      for (int64_t k = 0; k < whole.size(); ++k) from[k] /= count;
    }
    for (int64_t k = whole.end; k < columns.end; ++k) divide_one(k);
  }

  void store(T* to, int64_t stride, int64_t n) const {
    const ComputeTag<T> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    int64_t i = 0;
    if (stride == 1) {
      for (; i + lanes <= n; i += lanes) store_lanes(hn::LoadU(d, values + i), d, to + i);
    }
    for (; i < n; ++i) to[i * stride] = narrow<T>(values[i]);
  }

  alignas(64) Value values[kOutputsAndVector];
};

// The outputs of a block in row (i, j) of a plane.
template <typename T>
void pool_block(const AvgPool& p, const T* from, int64_t i, int64_t j, const ColumnBlock& block,
                Sums<T>& sums) {
  const Window& w = p.window;
  T buffer[kOutputs];
  const int64_t first = block.columns.begin;
  sums.start(block.columns.size());
  for_each_covered_row(w, p.x, i, j, [&](int64_t depth, int64_t row) {
    const T* const line = from + depth * p.x.stride[0] + row * p.x.stride[1];
    if (block.columns.size() == 1 && p.x.stride[2] == 1) {  // As for the mean of a plane.
      const Range taps = w.taps(2, first, p.x.extent[2]);
      return sums.add_run(line + w.input_of(2, first, taps.begin), taps.size());
    }
    for (int64_t tap = 0; tap < w.kernel[2]; ++tap) {
      const auto [outputs, at] = block.tap(tap);
      if (outputs.size() == 0) continue;
      const T* const x = tap_elements(line + at * p.x.stride[2], w.stride[2] * p.x.stride[2],
                                      outputs.size(), buffer);
      sums.add(x, outputs.begin - first, outputs.size());
    }
  });
  sums.divide(p, i, j, block);
}

template <typename T>
void pool_plane(const AvgPool& p, int64_t plane) {
  const T* const from = reinterpret_cast<const T*>(p.x.plane(plane));
  T* const to = reinterpret_cast<T*>(p.y.plane(plane));
  Sums<T> sums;
  for (int64_t k = 0; k < p.y.extent[2]; k += kOutputs) {
    const ColumnBlock block(p.window, p.x.extent[2], {k, std::min(p.y.extent[2], k + kOutputs)});
    for (int64_t i = 0; i < p.y.extent[0]; ++i) {
      for (int64_t j = 0; j < p.y.extent[1]; ++j) {
        pool_block(p, from, i, j, block, sums);
        sums.store(to + i * p.y.stride[0] + j * p.y.stride[1] + k * p.y.stride[2], p.y.stride[2],
                   block.columns.size());
      }
    }
  }
}

// ---- The gradient -------------------------------------------------------------------------------

// Adds what the outputs of row (i, j) give to the inputs `columns` of a row that they cover.
template <typename T>
void add_shares(const AvgPool& p, const T* grad_y, int64_t i, int64_t j, const Range& columns,
                Sums<T>& sums) {
  using Value = typename Sums<T>::Value;
  const Window& w = p.window;
  const int64_t rows = Sums<T>::rows_of(p, i, j);
  const T* const line = grad_y + i * p.y.stride[0] + j * p.y.stride[1];
  for (int64_t tap = 0; tap < w.kernel[2]; ++tap) {
    const Range outputs = w.outputs(2, tap, columns, {0, p.y.extent[2]});
    for (int64_t k = outputs.begin; k < outputs.end; ++k) {
      sums.values[w.input_of(2, k, tap) - columns.begin] +=
          widen(line[k * p.y.stride[2]]) / static_cast<Value>(Sums<T>::divisor(p, rows, k));
    }
  }
}

// The outputs along one axis whose windows cover a position of the input.
Range outputs_over(const AvgPool& p, size_t axis, int64_t position) {
  const Window& w = p.window;
  const int64_t first = position + w.low[axis] - w.kernel[axis] + 1;
  return {std::max<int64_t>(0, divide_up(first, w.stride[axis])),
          std::min(p.y.extent[axis], (position + w.low[axis]) / w.stride[axis] + 1)};
}

template <typename T>
void spread_plane(const AvgPool& p, int64_t plane) {
  const T* const from = reinterpret_cast<const T*>(p.y.plane(plane));
  T* const to = reinterpret_cast<T*>(p.x.plane(plane));
  Sums<T> sums;
  for (int64_t a = 0; a < p.x.extent[0]; ++a) {
    const Range depth = outputs_over(p, 0, a);
    for (int64_t b = 0; b < p.x.extent[1]; ++b) {
      const Range rows = outputs_over(p, 1, b);
      for (int64_t c = 0; c < p.x.extent[2]; c += kOutputs) {
        const Range columns = {c, std::min(p.x.extent[2], c + kOutputs)};
        sums.start(columns.size());
        for (int64_t i = depth.begin; i < depth.end; ++i) {
          for (int64_t j = rows.begin; j < rows.end; ++j) {
            add_shares(p, from, i, j, columns, sums);
          }
        }
        sums.store(to + a * p.x.stride[0] + b * p.x.stride[1] + c * p.x.stride[2], p.x.stride[2],
                   columns.size());
      }
    }
  }
}

template <typename T>
PoolPlane* plane_of(bool is_backward) {
  return is_backward ? spread_plane<T> : pool_plane<T>;
}

PoolPlane* find_plane(bp_dtype dtype, bool is_backward) {
  switch (dtype) {
    case BP_F16:
      return plane_of<Float16>(is_backward);
    case BP_BF16:
      return plane_of<BFloat16>(is_backward);
    case BP_F32:
      return plane_of<float>(is_backward);
    default:
      return plane_of<double>(is_backward);
  }
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
bp_status submit_pool(const Args& args, const bp_tensor& x, const bp_tensor& y, bool is_backward,
                      const Launch& launch) {
  AvgPool pool;
  pool.window = Window(x.ndim - 2, args.kernel_size, args.stride, args.padding, nullptr);
  pool.x = Planes(x);
  pool.y = Planes(y);
  pool.counts_padding = args.counts_padding != 0;
  PoolPlane* const run = HWY_DYNAMIC_DISPATCH(find_plane)(x.dtype, is_backward);
  const bool is_empty = element_count(is_backward ? x : y) == 0;
  const int64_t planes = is_empty ? 0 : x.shape[0] * x.shape[1];
  const int64_t work = std::max(pool.x.size(), pool.y.size());
  return launch.submit([=, threads = launch.thread_count()] {
    parallel_for(threads, planes, plane_grain(work), [&](int64_t begin, int64_t end) {
      for (int64_t plane = begin; plane < end; ++plane) run(pool, plane);
    });
  });
}

bp_status avg_pool_launch(const bp_avg_pool_args& args, Launch& launch) {
  return submit_pool(args, *args.x, *args.y, false, launch);
}

bp_status avg_pool_backward_launch(const bp_avg_pool_backward_args& args, Launch& launch) {
  return submit_pool(args, *args.grad_x, *args.grad_y, true, launch);
}

constexpr bp_dtype kDtypes[] = {BP_F16, BP_BF16, BP_F32, BP_F64};

constexpr bp_kernel avg_pool_row(const char* name, uint32_t op) {
  return {
      .name = name,
      .op = op,
      .flags = BP_KERNEL_DETERMINISTIC,
      .dtype_rows = kDtypes,
      .dtype_row_count = std::size(kDtypes),
      .dtype_count = 1,
      .layouts = BP_LAYOUT_ANY,
  };
}

}  // namespace

constinit const bp_kernel kAvgPool =
    make_kernel<bp_avg_pool_args, avg_pool_launch>(avg_pool_row("avg_pool", BP_OP_AVG_POOL));
constinit const bp_kernel kAvgPoolBackward =
    make_kernel<bp_avg_pool_backward_args, avg_pool_backward_launch>(
        avg_pool_row("avg_pool_backward", BP_OP_AVG_POOL_BACKWARD));

}  // namespace bp::kernels
#endif  // HWY_ONCE
