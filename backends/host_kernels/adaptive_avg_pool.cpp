// adaptive_avg_pool and its gradient. Both add elements that lie side by side: the rows of them are
// added in a line, and the elements of a row of the result are sums over parts of the line. The
// gradient divides the terms by the sizes of their windows, the forward direction divides the sums.
// A row of the result that consists of the same rows as the one before is copied from it. If a
// dense plane has only one window, its elements are added as one row. One thread computes a plane.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/adaptive_avg_pool.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include <algorithm>
#include <array>
#include <type_traits>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/pool_line-inl.hpp"
#include "backends/host_kernels/strided.hpp"
#include "backends/host_kernels/sums-inl.hpp"
#include "backplane/shell/sampling.hpp"

#ifndef BACKPLANE_CPU_ADAPTIVE_AVG_POOL_PLAN
#define BACKPLANE_CPU_ADAPTIVE_AVG_POOL_PLAN
namespace bp::kernels {
namespace {

struct AdaptivePool {
  AdaptivePool(const bp_tensor& its_from, const bp_tensor& its_to, bool its_is_backward)
      : from(its_from), to(its_to), is_backward(its_is_backward) {
    for (size_t i = 0; i < bins.size(); ++i) bins[i] = {from.extent[i], to.extent[i]};
  }

  // Returns the size of a window along an axis, and 1 if it is empty.
  int64_t window_size(size_t axis, int64_t output) const {
    const Bins windows = is_backward ? Bins{bins[axis].outputs, bins[axis].inputs} : bins[axis];
    return std::max<int64_t>(1, windows.size(output));
  }
  // Returns whether two rows of a plane of `to` consist of the same rows of `from`.
  bool has_rows_of(int64_t row, int64_t other) const {
    return bins[1].begin(row) == bins[1].begin(other) && bins[1].end(row) == bins[1].end(other);
  }
  // Returns the elements of an array with a value for each column of `from` or of `to`.
  int64_t line_elements() const { return std::max(from.extent[2], to.extent[2]) + 17; }

  Planes from, to;           // x and y, or in the gradient grad_y and grad_x.
  std::array<Bins, 3> bins;  // The elements of `from` that an element of `to` consists of.
  bool is_backward;
};

// The memory of a thread. The vectors of a line may end 16 elements behind it. Indices have the
// size of a Value, so that vectors of both have as many lanes.
template <typename Value>
struct AdaptiveMemory {
  using Index = std::conditional_t<sizeof(Value) == 4, int32_t, int64_t>;

  AdaptiveMemory(const AdaptivePool& p, std::byte* memory)
      : line(reinterpret_cast<Value*>(memory)),
        earlier(line + p.line_elements()),
        results(earlier + p.line_elements()),
        sizes(results + p.line_elements()),
        first(reinterpret_cast<Index*>(sizes + p.line_elements())),
        end(first + p.line_elements()) {
    const int64_t outputs = p.is_backward ? p.from.extent[2] : p.to.extent[2];
    std::fill_n(sizes, p.line_elements(), Value{1});
    for (int64_t k = 0; k < outputs; ++k) sizes[k] = static_cast<Value>(p.window_size(2, k));
    std::fill_n(first, 2 * p.line_elements(), Index{0});
    for (int64_t k = 0; k < p.to.extent[2]; ++k) {
      first[k] = static_cast<Index>(p.bins[2].begin(k));
      end[k] = static_cast<Index>(p.bins[2].end(k));
      most_terms = std::max(most_terms, end[k] - first[k]);
    }
  }
  static int64_t elements(const AdaptivePool& p) { return 6 * p.line_elements(); }

  Value *line, *earlier, *results, *sizes;
  Index *first, *end;    // The part of the line that each result is the sum of.
  Index most_terms = 0;  // The elements of the longest of these parts.
};

// Computes the planes [begin, end) with the memory of a thread.
using AdaptivePlanes = void(const AdaptivePool& p, int64_t begin, int64_t end, std::byte* memory);

}  // namespace
}  // namespace bp::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

// Adds up the rows that a row of the result consists of.
template <typename T>
void add_rows(const AdaptivePool& p, int64_t plane, const OutputRow& row,
              const AdaptiveMemory<Compute<T>>& memory) {
  using Value = Compute<T>;
  const ComputeTag<T> d;
  const T* const from = reinterpret_cast<const T*>(p.from.plane(plane));
  const int64_t n = p.from.extent[2];
  PartSums<Value> sums(memory.line, memory.earlier, n);
  for (int64_t a = p.bins[0].begin(row.i); a < p.bins[0].end(row.i); ++a) {
    for (int64_t b = p.bins[1].begin(row.j); b < p.bins[1].end(row.j); ++b) {
      const T* const at = from + a * p.from.stride[0] + b * p.from.stride[1];
      if (p.is_backward) {
        const auto size = static_cast<Value>(p.window_size(0, a) * p.window_size(1, b));
        add_row(at, p.from.stride[2], n, memory.line,
                [=](auto v) HWY_ATTR { return hn::Div(v, hn::Set(d, size)); });
      } else {
        add_row(at, p.from.stride[2], n, memory.line, [](auto v) HWY_ATTR { return v; });
      }
      sums.count_term();
    }
  }
  sums.finish();
}

// Divides n numbers by `divisor` times the sizes of windows along a row.
template <typename Value>
void divide_line(Value* numbers, int64_t n, Value divisor, const Value* sizes) {
  const hn::ScalableTag<Value> d;
  for_each_vector(d, n, [&](int64_t k, auto) HWY_ATTR {
    const auto size = hn::Mul(hn::LoadU(d, sizes + k), hn::Set(d, divisor));
    hn::StoreU(hn::Div(hn::LoadU(d, numbers + k), size), d, numbers + k);
  });
}

// Computes the sums of the parts of the line. Gathers take longer than single loads if there are
// fewer parts than lanes.
template <typename Value>
void add_parts(const AdaptiveMemory<Value>& memory, int64_t count) {
  const hn::ScalableTag<Value> d;
  const bool is_short = count < static_cast<int64_t>(hn::Lanes(d));
  if (is_short || memory.most_terms > kSummedPart) {
    for (int64_t k = 0; k < count; ++k) {
      memory.results[k] = sum_of(memory.line + memory.first[k], memory.end[k] - memory.first[k]);
    }
    return;
  }
  for_each_vector(d, count, [&](int64_t k, auto) HWY_ATTR {
    hn::StoreU(sums_of_parts(d, memory.line, memory.first + k, memory.end + k, memory.most_terms),
               d, memory.results + k);
  });
}

template <typename T>
void adaptive_row(const AdaptivePool& p, int64_t plane, const OutputRow& row,
                  const AdaptiveMemory<Compute<T>>& memory) {
  using Value = Compute<T>;
  const ComputeTag<T> d;
  add_rows<T>(p, plane, row, memory);
  if (p.is_backward) divide_line(memory.line, p.from.extent[2], Value{1}, memory.sizes);
  const int64_t count = p.to.extent[2];
  add_parts(memory, count);
  if (!p.is_backward) {
    const int64_t size = p.window_size(0, row.i) * p.window_size(1, row.j);
    divide_line(memory.results, count, static_cast<Value>(size), memory.sizes);
  }
  T* const to = reinterpret_cast<T*>(p.to.plane(plane)) + row.offset_in(p.to);
  for_each_vector(d, count, [&](int64_t k, auto whole) HWY_ATTR {
    store_outputs<whole>(hn::LoadU(d, memory.results + k), d, to + k * p.to.stride[2],
                         p.to.stride[2], count - k);
  });
}

// Computes planes whose only window is the whole plane.
template <typename T>
void average_planes(const AdaptivePool& p, int64_t begin, int64_t end) {
  const int64_t n = p.from.size();
  for (int64_t plane = begin; plane < end; ++plane) {
    const T* const from = reinterpret_cast<const T*>(p.from.plane(plane));
    const Compute<T> sum =
        sum_of_terms<T>(n, [from](const auto& lanes) HWY_ATTR { return lanes.load(from); });
    *reinterpret_cast<T*>(p.to.plane(plane)) = narrow<T>(sum / static_cast<Compute<T>>(n));
  }
}

template <typename T>
void adaptive_planes(const AdaptivePool& p, int64_t begin, int64_t end, std::byte* of_thread) {
  if (!p.is_backward && p.to.size() == 1 && p.from.is_dense() && p.from.size() > 0) {
    return average_planes<T>(p, begin, end);
  }
  const AdaptiveMemory<Compute<T>> memory(p, of_thread);
  for (int64_t plane = begin; plane < end; ++plane) {
    for (int64_t i = 0; i < p.to.extent[0]; ++i) {
      for (int64_t j = 0; j < p.to.extent[1]; ++j) {
        if (j == 0 || p.to.stride[2] != 1 || !p.has_rows_of(j, j - 1)) {
          adaptive_row<T>(p, plane, {i, j}, memory);
          continue;
        }
        T* const to = reinterpret_cast<T*>(p.to.plane(plane)) + OutputRow{i, j}.offset_in(p.to);
        std::copy_n(to - p.to.stride[1], p.to.extent[2], to);
      }
    }
  }
}

AdaptivePlanes* find_adaptive_planes(bp_dtype dtype) {
  return with_float(dtype, []<typename T>(T) -> AdaptivePlanes* { return adaptive_planes<T>; });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(find_adaptive_planes);

uint64_t thread_bytes(const AdaptivePool& p, bp_dtype dtype) {
  return plane_memory_bytes(AdaptiveMemory<float>::elements(p), dtype);
}

bp_status submit_adaptive(const AdaptivePool& p, const bp_tensor& result, const Launch& launch) {
  AdaptivePlanes* const run = HWY_DYNAMIC_DISPATCH(find_adaptive_planes)(result.dtype);
  return submit_planes(
      launch, result, std::max(p.from.size(), p.to.size()), thread_bytes(p, result.dtype),
      [=](int64_t begin, int64_t end, std::byte* memory) { run(p, begin, end, memory); });
}

bp_reason adaptive_supports(const bp_adaptive_avg_pool_args& args) {
  return sampling_reason(*args.x, *args.y);
}

uint64_t adaptive_workspace(const bp_adaptive_avg_pool_args& args, const Env& env) {
  return static_cast<uint64_t>(env.thread_count()) *
         thread_bytes(AdaptivePool(*args.x, *args.y, false), args.x->dtype);
}

bp_status adaptive_launch(const bp_adaptive_avg_pool_args& args, Launch& launch) {
  return submit_adaptive(AdaptivePool(*args.x, *args.y, false), *args.y, launch);
}

bp_reason adaptive_backward_supports(const bp_adaptive_avg_pool_backward_args& args) {
  return sampling_reason(*args.grad_x, *args.grad_y);
}

uint64_t adaptive_backward_workspace(const bp_adaptive_avg_pool_backward_args& args,
                                     const Env& env) {
  return static_cast<uint64_t>(env.thread_count()) *
         thread_bytes(AdaptivePool(*args.grad_y, *args.grad_x, true), args.grad_x->dtype);
}

bp_status adaptive_backward_launch(const bp_adaptive_avg_pool_backward_args& args, Launch& launch) {
  return submit_adaptive(AdaptivePool(*args.grad_y, *args.grad_x, true), *args.grad_x, launch);
}

}  // namespace

extern constinit const bp_kernel kAdaptiveAvgPool =
    make_kernel<bp_adaptive_avg_pool_args, adaptive_launch, adaptive_supports, adaptive_workspace>(
        kernel_row("adaptive_avg_pool", BP_OP_ADAPTIVE_AVG_POOL, kFloatDtypes));
extern constinit const bp_kernel kAdaptiveAvgPoolBackward =
    make_kernel<bp_adaptive_avg_pool_backward_args, adaptive_backward_launch,
                adaptive_backward_supports, adaptive_backward_workspace>(
        kernel_row("adaptive_avg_pool_backward", BP_OP_ADAPTIVE_AVG_POOL_BACKWARD, kFloatDtypes));

}  // namespace bp::kernels
#endif  // HWY_ONCE
