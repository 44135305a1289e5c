// max_pool and its gradient (pool.hpp). oneDNN's pooling is not used: it never chooses NaN, which
// here is larger than every number, and it counts indices in a way of its own.
//
// Outputs that lie side by side are one vector, which takes the window tap by tap: in the order of
// the indices, so that the first of equal elements stays.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/max_pool.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include <array>
#include <atomic>
#include <limits>

#include "backends/cpu/kernels/pool.hpp"
#include "backends/cpu/kernels/taps-inl.hpp"

#ifndef BACKPLANE_CPU_MAX_POOL_PLAN
#define BACKPLANE_CPU_MAX_POOL_PLAN
namespace bp::kernels {
namespace {

struct MaxPool {
  Window window;
  Planes x, y, indices;
  bool has_indices = false;
};

struct MaxPoolBackward {
  Planes grad_y, indices, grad_x;
};

// Pools one plane.
using PoolPlane = void(const MaxPool& pool, int64_t plane);

// Scatters one plane; returns an index that is out of range, or -1. Sums of 16-bit floats are kept
// in `sums`, which has room for a plane.
using ScatterPlane = int64_t(const MaxPoolBackward& pool, int64_t plane, float* sums);

}  // namespace
}  // namespace bp::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

// The largest elements so far of neighbouring outputs, and the numbers of their inputs.
template <typename T>
struct Best {
  using Value = Compute<T>;
  using Index = std::conditional_t<sizeof(Value) == 4, int32_t, int64_t>;

  void start(int64_t n) {
    std::fill_n(values, n, -std::numeric_limits<Value>::infinity());
    std::fill_n(indices, n, Index{-1});
  }

  // Offers n elements to the outputs from number `first` on. `index` is that of the first of them.
  void offer(const T* x, int64_t first, int64_t n, int64_t index, int64_t index_step) {
    const ComputeTag<T> d;
    const hn::RebindToSigned<decltype(d)> index_d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto step = hn::Set(index_d, static_cast<Index>(index_step * lanes));
    auto candidate_index =
        hn::Add(hn::Set(index_d, static_cast<Index>(index)),
                hn::Mul(hn::Iota(index_d, 0), hn::Set(index_d, static_cast<Index>(index_step))));
    for (int64_t i = 0; i < n; i += lanes) {
      const bool is_whole = i + lanes <= n;
      const auto rest = static_cast<size_t>(is_whole ? lanes : n - i);
      const auto candidate = is_whole ? load_lanes(d, x + i) : load_lanes_n(d, x + i, rest);
      Value* const value = values + first + i;
      Index* const place = indices + first + i;
      const auto best = hn::LoadU(d, value);
      const auto best_index = hn::LoadU(index_d, place);
      // Unordered is larger, unless the best is NaN itself; what has no index yet takes anything.
      const auto is_larger =
          hn::AndNot(hn::Or(hn::Le(candidate, best), hn::IsNaN(best)), hn::FirstN(d, rest));
      const auto is_first = hn::RebindMask(d, hn::Lt(best_index, hn::Zero(index_d)));
      const auto is_better = hn::Or(is_larger, hn::And(is_first, hn::FirstN(d, rest)));
      hn::StoreU(hn::IfThenElse(is_better, candidate, best), d, value);
      hn::StoreU(hn::IfThenElse(hn::RebindMask(index_d, is_better), candidate_index, best_index),
                 index_d, place);
      candidate_index = hn::Add(candidate_index, step);
    }
  }

  // The same for values alone: the largest, and NaN once there is one.
  void offer_values(const T* x, int64_t first, int64_t n) {
    const ComputeTag<T> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto offer_lanes = [&](hn::Vec<decltype(d)> candidate, Value* value) HWY_ATTR {
      const auto best = hn::LoadU(d, value);
      const auto is_larger = hn::Or(hn::Lt(best, candidate), hn::IsNaN(candidate));
      hn::StoreU(hn::IfThenElse(is_larger, candidate, best), d, value);
    };
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) offer_lanes(load_lanes(d, x + i), values + first + i);
    if (i == n) return;
    const auto rest = static_cast<size_t>(n - i);
    const auto lowest = hn::Set(d, -std::numeric_limits<Value>::infinity());
    offer_lanes(hn::IfThenElse(hn::FirstN(d, rest), load_lanes_n(d, x + i, rest), lowest),
                values + first + i);
  }

  alignas(64) Value values[kOutputsAndVector];
  alignas(64) Index indices[kOutputsAndVector];
};

template <typename Value, typename T>
void store_row(const Value* from, T* to, int64_t stride, int64_t n) {
  int64_t i = 0;
  if (stride == 1 && !std::is_integral_v<T>) {
    if constexpr (!std::is_integral_v<T>) {
      const ComputeTag<T> d;
      const auto lanes = static_cast<int64_t>(hn::Lanes(d));
      for (; i + lanes <= n; i += lanes) store_lanes(hn::LoadU(d, from + i), d, to + i);
    }
  }
  for (; i < n; ++i) {
    if constexpr (std::is_integral_v<T>) {
      to[i * stride] = static_cast<T>(from[i]);
    } else {
      to[i * stride] = narrow<T>(from[i]);
    }
  }
}

// The outputs of a block in row (i, j) of a plane.
template <typename T>
void pool_block(const MaxPool& p, const T* from, int64_t i, int64_t j, const ColumnBlock& block,
                Best<T>& best) {
  const Window& w = p.window;
  T buffer[kOutputs];
  best.start(block.columns.size());
  for_each_covered_row(w, p.x, i, j, [&](int64_t depth, int64_t row) {
    const T* const line = from + depth * p.x.stride[0] + row * p.x.stride[1];
    const int64_t line_index = (depth * p.x.extent[1] + row) * p.x.extent[2];
    for (int64_t tap = 0; tap < w.kernel[2]; ++tap) {
      const auto [outputs, at] = block.tap(tap);
      if (outputs.size() == 0) continue;
      const T* const x = tap_elements(line + at * p.x.stride[2], w.stride[2] * p.x.stride[2],
                                      outputs.size(), buffer);
      const int64_t first = outputs.begin - block.columns.begin;
      if (p.has_indices) {
        best.offer(x, first, outputs.size(), line_index + at, w.stride[2]);
      } else {
        best.offer_values(x, first, outputs.size());
      }
    }
  });
}

template <typename T>
void pool_plane(const MaxPool& p, int64_t plane) {
  const T* const from = reinterpret_cast<const T*>(p.x.plane(plane));
  T* const to = reinterpret_cast<T*>(p.y.plane(plane));
  auto* const places = p.has_indices ? reinterpret_cast<int64_t*>(p.indices.plane(plane)) : nullptr;
  Best<T> best;
  const auto row_of = [](const Planes& t, int64_t i, int64_t j, int64_t k) {
    return i * t.stride[0] + j * t.stride[1] + k * t.stride[2];
  };
  for (int64_t k = 0; k < p.y.extent[2]; k += kOutputs) {
    const ColumnBlock block(p.window, p.x.extent[2], {k, std::min(p.y.extent[2], k + kOutputs)});
    const int64_t n = block.columns.size();
    for (int64_t i = 0; i < p.y.extent[0]; ++i) {
      for (int64_t j = 0; j < p.y.extent[1]; ++j) {
        pool_block(p, from, i, j, block, best);
        store_row(best.values, to + row_of(p.y, i, j, k), p.y.stride[2], n);
        if (places == nullptr) continue;
        store_row(best.indices, places + row_of(p.indices, i, j, k), p.indices.stride[2], n);
      }
    }
  }
}

PoolPlane* find_pool_plane(bp_dtype dtype) {
  switch (dtype) {
    case BP_F16:
      return pool_plane<Float16>;
    case BP_BF16:
      return pool_plane<BFloat16>;
    case BP_F32:
      return pool_plane<float>;
    default:
      return pool_plane<double>;
  }
}

// ---- The gradient -------------------------------------------------------------------------------

// Calls fn(offset, i, j, k) for each position of a plane, in row-major order.
template <typename Fn>
void for_each_position(const Planes& p, Fn&& fn) {
  for (int64_t i = 0; i < p.extent[0]; ++i) {
    for (int64_t j = 0; j < p.extent[1]; ++j) {
      for (int64_t k = 0; k < p.extent[2]; ++k) {
        fn(i * p.stride[0] + j * p.stride[1] + k * p.stride[2], i, j, k);
      }
    }
  }
}

// Adds to the places that the indices name; place(index) is where the sum of one is.
template <typename T, typename Place>
int64_t add_to_plane(const MaxPoolBackward& p, int64_t plane, const Place& place) {
  const auto* const from = reinterpret_cast<const T*>(p.grad_y.plane(plane));
  const auto* const indices = reinterpret_cast<const int64_t*>(p.indices.plane(plane));
  const int64_t size = p.grad_x.size();
  int64_t wrong = -1;
  for_each_position(p.grad_y, [&](int64_t at, int64_t i, int64_t j, int64_t k) {
    const auto& strides = p.indices.stride;
    const int64_t index = indices[i * strides[0] + j * strides[1] + k * strides[2]];
    if (index >= 0 && index < size) {
      place(index) += widen(from[at]);
    } else if (index != -1) {
      wrong = index;
    }
  });
  return wrong;
}

template <typename T>
int64_t scatter_plane(const MaxPoolBackward& p, int64_t plane, float* sums) {
  T* const to = reinterpret_cast<T*>(p.grad_x.plane(plane));
  const Planes& x = p.grad_x;
  if constexpr (kIsNarrow<T>) {
    std::fill_n(sums, x.size(), 0.0f);
    const int64_t wrong =
        add_to_plane<T>(p, plane, [&](int64_t index) -> float& { return sums[index]; });
    int64_t next = 0;
    for (int64_t i = 0; i < x.extent[0]; ++i) {
      for (int64_t j = 0; j < x.extent[1]; ++j, next += x.extent[2]) {
        store_row(sums + next, to + i * x.stride[0] + j * x.stride[1], x.stride[2], x.extent[2]);
      }
    }
    return wrong;
  } else {
    for_each_position(x, [&](int64_t at, int64_t, int64_t, int64_t) { to[at] = 0; });
    if (x.is_dense()) {
      return add_to_plane<T>(p, plane, [&](int64_t index) -> T& { return to[index]; });
    }
    return add_to_plane<T>(p, plane, [&](int64_t index) -> T& {
      const int64_t row = index / x.extent[2];
      return to[row / x.extent[1] * x.stride[0] + row % x.extent[1] * x.stride[1] +
                index % x.extent[2] * x.stride[2]];
    });
  }
}

ScatterPlane* find_scatter_plane(bp_dtype dtype) {
  switch (dtype) {
    case BP_F16:
      return scatter_plane<Float16>;
    case BP_BF16:
      return scatter_plane<BFloat16>;
    case BP_F32:
      return scatter_plane<float>;
    default:
      return scatter_plane<double>;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(find_pool_plane);
HWY_EXPORT(find_scatter_plane);

// Indices of 4-byte elements are counted in 32 bits.
bp_reason max_pool_supports(const bp_max_pool_args& args) {
  if (args.x->dtype == BP_F64) return nullptr;
  const bool is_small = Planes(*args.x).size() <= std::numeric_limits<int32_t>::max();
  return is_small ? nullptr : "x: a channel has more than 2^31 - 1 elements";
}

bp_status max_pool_launch(const bp_max_pool_args& args, Launch& launch) {
  MaxPool pool;
  pool.window =
      Window(args.x->ndim - 2, args.kernel_size, args.stride, args.padding, args.dilation);
  pool.x = Planes(*args.x);
  pool.y = Planes(*args.y);
  pool.has_indices = args.indices != nullptr;
  if (pool.has_indices) pool.indices = Planes(*args.indices);
  PoolPlane* const run = HWY_DYNAMIC_DISPATCH(find_pool_plane)(args.x->dtype);
  const int64_t planes = element_count(*args.y) == 0 ? 0 : args.y->shape[0] * args.y->shape[1];
  return launch.submit([=, threads = launch.thread_count()] {
    parallel_for(threads, planes, plane_grain(pool.x.size()), [&](int64_t begin, int64_t end) {
      for (int64_t plane = begin; plane < end; ++plane) run(pool, plane);
    });
  });
}

// Threads that have a plane of sums of their own.
int64_t sum_slots(const bp_max_pool_backward_args& args, const Env& env) {
  return std::min<int64_t>(env.thread_count(), args.grad_x->shape[0] * args.grad_x->shape[1]);
}

uint64_t max_pool_backward_workspace(const bp_max_pool_backward_args& args, const Env& env) {
  if (dtype_size_bytes(args.grad_y->dtype) > 2) return 0;
  const int64_t elements = sum_slots(args, env) * Planes(*args.grad_x).size();
  return static_cast<uint64_t>(elements) * sizeof(float);
}

bp_status max_pool_backward_launch(const bp_max_pool_backward_args& args, Launch& launch) {
  const MaxPoolBackward pool = {Planes(*args.grad_y), Planes(*args.indices), Planes(*args.grad_x)};
  ScatterPlane* const run = HWY_DYNAMIC_DISPATCH(find_scatter_plane)(args.grad_y->dtype);
  const int64_t planes = args.grad_x->shape[0] * args.grad_x->shape[1];
  const int64_t size = pool.grad_x.size();
  const int64_t slots = planes < 2 * plane_grain(size) ? 1 : sum_slots(args, launch);
  return launch.submit([=, threads = launch.thread_count(), sums = launch.workspace<float>()] {
    std::atomic<int64_t> wrong = -1;
    parallel_for(threads, slots, 1, [&](int64_t first, int64_t last) {
      for (int64_t slot = first; slot < last; ++slot) {
        for (int64_t plane = planes * slot / slots; plane < planes * (slot + 1) / slots; ++plane) {
          const int64_t index = run(pool, plane, sums == nullptr ? nullptr : sums + slot * size);
          if (index != -1) wrong = index;
        }
      }
    });
    if (wrong == -1) return;
    throw StatusError(BP_INVALID_ARGUMENT, "max_pool_backward: an index is " +
                                               std::to_string(wrong.load()) + ", not below " +
                                               std::to_string(size) + " and not -1");
  });
}

constexpr bp_dtype kDtypes[] = {BP_F16, BP_BF16, BP_F32, BP_F64};

}  // namespace

constinit const bp_kernel kMaxPool =
    make_kernel<bp_max_pool_args, max_pool_launch, max_pool_supports>({
        .name = "max_pool",
        .op = BP_OP_MAX_POOL,
        .flags = BP_KERNEL_DETERMINISTIC,
        .dtype_rows = kDtypes,
        .dtype_row_count = std::size(kDtypes),
        .dtype_count = 1,
        .layouts = BP_LAYOUT_ANY,
    });

constinit const bp_kernel kMaxPoolBackward =
    make_kernel<bp_max_pool_backward_args, max_pool_backward_launch, nullptr,
                max_pool_backward_workspace>({
        .name = "max_pool_backward",
        .op = BP_OP_MAX_POOL_BACKWARD,
        .flags = BP_KERNEL_DETERMINISTIC,
        .dtype_rows = kDtypes,
        .dtype_row_count = std::size(kDtypes),
        .dtype_count = 1,
        .layouts = BP_LAYOUT_ANY,
    });

}  // namespace bp::kernels
#endif  // HWY_ONCE
