// max_pool and its gradient. cuDNN's pooling is not used, because it treats NaN and indices
// differently from the op, and its gradient needs the window, which the op does not have.
//
// The gradient adds to each element of grad_x the elements of grad_y whose index names it. Each
// output is first put at the head of a list of its element, in any order of the threads. Then each
// element walks its list repeatedly, and adds the outputs in ascending order. A list has as many
// outputs as windows overlap. If a list has more than 64 outputs, which windows cannot cause, its
// element searches all outputs of its plane instead.
#include <algorithm>
#include <limits>

#include "backends/cuda/kernels/grid.cuh"
#include "backends/cuda/kernels/list.hpp"

namespace bp::cuda {
namespace {

struct PoolPlan {
  Grid x, y, indices;  // `indices` has no address if not wanted.
  bool has_indices = false, is_i64 = false;
  GridWindow window;
};

template <typename T>
__host__ __device__ __forceinline__ void pool_element(const PoolPlan& p, int64_t index) {
  const GridAt output = position(p.y, index);
  const int64_t plane = index / p.y.size();
  const T* const x = reinterpret_cast<const T*>(p.x.address);
  Compute<T> best = -infinity<Compute<T>>();
  int64_t best_index = -1;
  GridAt from, tap;
  for (tap.at[0] = 0; tap.at[0] < p.window.kernel[0]; ++tap.at[0]) {
    for (tap.at[1] = 0; tap.at[1] < p.window.kernel[1]; ++tap.at[1]) {
      for (tap.at[2] = 0; tap.at[2] < p.window.kernel[2]; ++tap.at[2]) {
        bool is_inside = true;
        for (int i = 0; i < kGridAxes; ++i) {
          from.at[i] =
              output.at[i] * p.window.step[i] - p.window.low[i] + tap.at[i] * p.window.dilation[i];
          is_inside = is_inside && from.at[i] >= 0 && from.at[i] < p.x.extent[i];
        }
        if (!is_inside) continue;
        const Compute<T> value = widen(x[offset(p.x, plane / p.x.inner, plane % p.x.inner, from)]);
        if (best_index >= 0 && !is_larger(best, value)) continue;
        best = value;
        best_index = (from.at[0] * p.x.extent[1] + from.at[1]) * p.x.extent[2] + from.at[2];
      }
    }
  }
  reinterpret_cast<T*>(p.y.address)[offset(p.y, index)] = narrow<T>(best);
  if (p.has_indices) {
    store_index(p.indices.address, offset(p.indices, index), p.is_i64, best_index);
  }
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads) pool_kernel(PoolPlan p, int64_t count) {
  for_elements(count, [&](int64_t i) { pool_element<T>(p, i); });
}

bp_reason max_pool_supports(const bp_max_pool_args& args) {
  return index_reason(args.indices, element_count(args.x->ndim - 2, args.x->shape + 2));
}

bp_status max_pool_launch(const bp_max_pool_args& args, Launch& launch) {
  PoolPlan plan;
  plan.x = grid_of(*args.x);
  plan.y = grid_of(*args.y);
  plan.has_indices = args.indices != nullptr;
  if (plan.has_indices) {
    plan.indices = grid_of(*args.indices);
    plan.is_i64 = is_i64_index(args.indices->dtype);
  }
  plan.window =
      window_of(args.x->ndim - 2, args.kernel_size, args.stride, args.padding, args.dilation);
  return with_float(args.x->dtype, [&]<typename T>(T) {
    return run_elements<pool_kernel<T>>(launch, plan.y.count(), plan);
  });
}

// ---- The gradient -------------------------------------------------------------------------------

constexpr int kLongList = 64;

// `heads` has, for each element of grad_x, the output at the head of its list, or -1. `next` has,
// for each output, the next one in its list.
struct ScatterPlan {
  Grid grad_y, indices, grad_x;
  Bounds bounds;  // Of a plane of grad_x.
  bool is_i64 = false;
  int32_t* heads = nullptr;
  int32_t* next = nullptr;
};

__device__ __forceinline__ const std::byte* place_of(const ScatterPlan& p, int64_t output) {
  return p.indices.address + offset(p.indices, output) * (p.is_i64 ? 8 : 4);
}

// Returns the index of an output, or -1 if it names no element.
__device__ __forceinline__ int64_t index_of(const ScatterPlan& p, int64_t output) {
  const std::byte* const place = place_of(p, output);
  const int64_t index = p.is_i64 ? *reinterpret_cast<const int64_t*>(place)
                                 : *reinterpret_cast<const int32_t*>(place);
  return index == -1 ? index : p.bounds.acting(index);
}

__global__ void __launch_bounds__(kBlockThreads)
    list_kernel(ScatterPlan p, Reporter reporter, int64_t count) {
  for_elements(count, [&](int64_t output) {
    const int64_t index = index_of(p, output), size = p.grad_x.size();
    if (index == -1) return;
    if (!p.bounds.contains(index)) return report(reporter, index, place_of(p, output));
    int32_t* const head = p.heads + output / p.grad_y.size() * size + index;
    p.next[output] = atomicExch(head, static_cast<int32_t>(output));
  });
}

template <typename T>
__device__ __forceinline__ Compute<T> sum_of_list(const ScatterPlan& p, int32_t head) {
  const T* const grad_y = reinterpret_cast<const T*>(p.grad_y.address);
  Compute<T> sum = 0;
  for (int32_t last = -1;;) {
    int32_t least = std::numeric_limits<int32_t>::max();
    for (int32_t at = head; at >= 0; at = p.next[at]) {
      if (at > last && at < least) least = at;
    }
    if (least == std::numeric_limits<int32_t>::max()) return sum;
    sum += widen(grad_y[offset(p.grad_y, least)]);
    last = least;
  }
}

template <typename T>
__device__ __forceinline__ Compute<T> sum_of_plane(const ScatterPlan& p, int64_t element) {
  const T* const grad_y = reinterpret_cast<const T*>(p.grad_y.address);
  const int64_t outputs = p.grad_y.size(), size = p.grad_x.size();
  const int64_t first = element / size * outputs, index = element % size;
  LongSum<Compute<T>> sum;
  for (int64_t output = first; output < first + outputs; ++output) {
    if (index_of(p, output) == index) sum.add(widen(grad_y[offset(p.grad_y, output)]));
  }
  return sum.total();
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads) gather_kernel(ScatterPlan p, int64_t count) {
  for_elements(count, [&](int64_t element) {
    const int32_t head = p.heads[element];
    int length = 0;
    for (int32_t at = head; at >= 0 && length <= kLongList; at = p.next[at]) ++length;
    const Compute<T> sum =
        length > kLongList ? sum_of_plane<T>(p, element) : sum_of_list<T>(p, head);
    reinterpret_cast<T*>(p.grad_x.address)[offset(p.grad_x, element)] = narrow<T>(sum);
  });
}

bp_reason max_pool_backward_supports(const bp_max_pool_backward_args& args) {
  const bool is_small = element_count(*args.grad_y) <= INT32_MAX - 1;
  return is_small ? nullptr : "grad_y: there are more than 2^31 - 2 elements";
}

uint64_t max_pool_backward_workspace(const bp_max_pool_backward_args& args, const Env&) {
  return static_cast<uint64_t>(element_count(*args.grad_x) + element_count(*args.grad_y)) *
         sizeof(int32_t);
}

bp_status max_pool_backward_launch(const bp_max_pool_backward_args& args, Launch& launch) {
  if (const bp_reason reason = max_pool_backward_supports(args)) {
    return launch.refuse(BP_UNSUPPORTED, std::string("max_pool_backward: ") + reason);
  }
  ScatterPlan plan;
  plan.grad_y = grid_of(*args.grad_y);
  plan.indices = grid_of(*args.indices);
  plan.grad_x = grid_of(*args.grad_x);
  plan.bounds = {plan.grad_x.size(), args.bounds};
  plan.is_i64 = is_i64_index(args.indices->dtype);
  const int64_t count = plan.grad_x.count(), outputs = plan.grad_y.count();
  plan.heads = launch.workspace<int32_t>();
  plan.next = plan.heads + count;
  bp_status status = launch.fill(plan.heads, 0xFF, static_cast<size_t>(count) * sizeof(int32_t));
  if (status == BP_OK) {
    const Reporter reporter = launch.reporter(*args.indices, "indices", plan.grad_x.size());
    status = run_elements<list_kernel>(launch, outputs, plan, reporter);
  }
  if (status != BP_OK) return status;
  return with_float(args.grad_y->dtype, [&]<typename T>(T) {
    return run_elements<gather_kernel<T>>(launch, count, plan);
  });
}

constexpr auto kDtypes = with_indices(kFloatDtypes);

}  // namespace

constinit const bp_kernel kMaxPool =
    make_kernel<bp_max_pool_args, max_pool_launch, max_pool_supports>(
        kernel_row("max_pool", BP_OP_MAX_POOL, {kDtypes, 2}));
constinit const bp_kernel kMaxPoolBackward =
    make_kernel<bp_max_pool_backward_args, max_pool_backward_launch, max_pool_backward_supports,
                max_pool_backward_workspace>(
        kernel_row("max_pool_backward", BP_OP_MAX_POOL_BACKWARD, {kDtypes, 2}));

}  // namespace bp::cuda
