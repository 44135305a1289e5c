// The gradient of max_pool (pool.hpp). The gradient of an output goes to the element that the
// output's index names. All outputs of a plane may name the same element, so sums are kept in f64
// and rounded once. In f32 they are first added where they are to be, and the outputs that name
// each element are counted: few terms lose no digits.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/max_pool_backward.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include <array>
#include <type_traits>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/indices.hpp"
#include "backends/host_kernels/lanes-inl.hpp"
#include "backends/host_kernels/pool.hpp"

#ifndef BACKPLANE_CPU_MAX_POOL_BACKWARD_PLAN
#define BACKPLANE_CPU_MAX_POOL_BACKWARD_PLAN
namespace bp::kernels {
namespace {

struct MaxPoolBackward {
  Planes grad_y, indices, grad_x;
  Bounds bounds;  // Of a plane of grad_x.
};

// Scatters one plane. Remembers an index that is out of range. `sums` has room for a plane.
using ScatterPlane = void(const MaxPoolBackward& pool, int64_t plane, double* sums,
                          WrongIndex& wrong);

}  // namespace
}  // namespace bp::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

template <typename T>
void store_row(const double* from, T* to, int64_t stride, int64_t n) {
  if (stride != 1) {
    for (int64_t i = 0; i < n; ++i) to[i * stride] = narrow<T>(static_cast<Compute<T>>(from[i]));
    return;
  }
  const ComputeTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  HWY_ALIGN Compute<T> part[hn::MaxLanes(ComputeTag<T>())];
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    for (int64_t k = 0; k < lanes; ++k) part[k] = static_cast<Compute<T>>(from[i + k]);
    store_lanes(hn::Load(d, part), d, to + i);
  }
  for (; i < n; ++i) to[i] = narrow<T>(static_cast<Compute<T>>(from[i]));
}

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

// Adds the gradients to the sums that the indices name.
template <typename T, typename Index>
void add_to_plane(const MaxPoolBackward& p, int64_t plane, double* sums, WrongIndex& wrong) {
  const auto* const from = reinterpret_cast<const T*>(p.grad_y.plane(plane));
  const auto* const indices = reinterpret_cast<const Index*>(p.indices.plane(plane));
  for_each_position(p.grad_y, [&](int64_t at, int64_t i, int64_t j, int64_t k) {
    const auto& strides = p.indices.stride;
    const Index* const place = indices + i * strides[0] + j * strides[1] + k * strides[2];
    if (*place == -1) return;
    const int64_t index = p.bounds.acting(*place);
    if (!p.bounds.contains(index)) return wrong.set(place);
    sums[index] += static_cast<double>(widen(from[at]));
  });
}

// Adds the gradients where they are to be, if nothing has gaps. Returns false if so many name one
// element that a sum in f32 loses digits. `counters` has a byte for each element.
template <typename T, typename Index>
bool add_in_place(const MaxPoolBackward& p, int64_t plane, uint8_t* HWY_RESTRICT counters,
                  WrongIndex& wrong) {
  if (!p.grad_x.is_dense() || !p.grad_y.is_dense() || !p.indices.is_dense()) return false;
  const auto* const HWY_RESTRICT from = reinterpret_cast<const T*>(p.grad_y.plane(plane));
  const auto* const HWY_RESTRICT indices = reinterpret_cast<const Index*>(p.indices.plane(plane));
  T* const HWY_RESTRICT to = reinterpret_cast<T*>(p.grad_x.plane(plane));
  const int64_t count = p.grad_y.size();
  std::fill_n(to, p.grad_x.size(), T{0});
  std::fill_n(counters, p.grad_x.size(), uint8_t{0});
  bool is_long = false;
  for (int64_t i = 0; i < count; ++i) {
    if (indices[i] == -1) continue;
    const int64_t index = p.bounds.acting(indices[i]);
    if (!p.bounds.contains(index)) {
      wrong.set(indices + i);
      continue;
    }
    to[index] += from[i];
    is_long |= ++counters[index] == 0;
  }
  return !is_long;
}

template <typename T, typename Index>
void scatter_plane(const MaxPoolBackward& p, int64_t plane, double* sums, WrongIndex& wrong) {
  T* const to = reinterpret_cast<T*>(p.grad_x.plane(plane));
  const Planes& x = p.grad_x;
  if constexpr (std::is_same_v<T, float>) {
    if (add_in_place<T, Index>(p, plane, reinterpret_cast<uint8_t*>(sums), wrong)) return;
  }
  std::fill_n(sums, x.size(), 0.0);
  add_to_plane<T, Index>(p, plane, sums, wrong);
  int64_t next = 0;
  for (int64_t i = 0; i < x.extent[0]; ++i) {
    for (int64_t j = 0; j < x.extent[1]; ++j, next += x.extent[2]) {
      store_row(sums + next, to + i * x.stride[0] + j * x.stride[1], x.stride[2], x.extent[2]);
    }
  }
}

ScatterPlane* find_scatter_plane(bp_dtype dtype, bool is_i64) {
  return with_float(dtype, [=]<typename T>(T) -> ScatterPlane* {
    return is_i64 ? scatter_plane<T, int64_t> : scatter_plane<T, int32_t>;
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(find_scatter_plane);

// Returns the number of threads. Each has its own plane of sums.
int64_t sum_slots(const bp_max_pool_backward_args& args, const Env& env) {
  return std::min<int64_t>(env.thread_count(), args.grad_x->shape[0] * args.grad_x->shape[1]);
}

uint64_t max_pool_backward_workspace(const bp_max_pool_backward_args& args, const Env& env) {
  const int64_t elements = sum_slots(args, env) * plane_size(*args.grad_x);
  return static_cast<uint64_t>(elements) * sizeof(double);
}

bp_status max_pool_backward_launch(const bp_max_pool_backward_args& args, Launch& launch) {
  MaxPoolBackward pool = {Planes(*args.grad_y), Planes(*args.indices), Planes(*args.grad_x), {}};
  pool.bounds = Bounds(pool.grad_x.size(), args.bounds);
  const IndexTensor indices(*args.indices);
  ScatterPlane* const run =
      HWY_DYNAMIC_DISPATCH(find_scatter_plane)(args.grad_y->dtype, indices.is_i64);
  const int64_t planes = args.grad_x->shape[0] * args.grad_x->shape[1];
  const int64_t size = pool.grad_x.size();
  const int64_t slots = planes < 2 * plane_grain(size) ? 1 : sum_slots(args, launch);
  return launch.submit([=, threads = launch.thread_count(), sums = launch.workspace<double>()] {
    WrongIndex wrong;
    parallel_for(threads, slots, 1, [&](int64_t first, int64_t last) {
      for (int64_t slot = first; slot < last; ++slot) {
        for (int64_t plane = planes * slot / slots; plane < planes * (slot + 1) / slots; ++plane) {
          run(pool, plane, sums + slot * size, wrong);
        }
      }
    });
    wrong.check("max_pool_backward", indices, size, " and not -1");
  });
}

constexpr auto kDtypes = with_indices(kFloatDtypes);

}  // namespace

extern constinit const bp_kernel kMaxPoolBackward =
    make_kernel<bp_max_pool_backward_args, max_pool_backward_launch, nullptr,
                max_pool_backward_workspace>(
        kernel_row("max_pool_backward", BP_OP_MAX_POOL_BACKWARD, {kDtypes, 2}));

}  // namespace bp::kernels
#endif  // HWY_ONCE
