// max_pool and its gradient, plane by plane: one channel of one image is a plane, and threads share
// the planes, so that the gradient is summed in one order. oneDNN's pooling is not used: it never
// chooses NaN, which here is larger than every number, and it counts indices in a way of its own.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <limits>
#include <type_traits>

#include "backends/cpu/kernels/kernels.hpp"
#include "backends/cpu/kernels/strided.hpp"

namespace bp::kernels {
namespace {

// A tensor (batch, channels, spatial) with three spatial axes; those it lacks lead, with extent 1.
struct Planes {
  explicit Planes(const bp_tensor& tensor)
      : address(data<std::byte>(tensor)),
        channels(tensor.shape[1]),
        batch_stride(tensor.strides[0]),
        channel_stride(tensor.strides[1]) {
    const uint32_t axes = tensor.ndim - 2;
    for (uint32_t i = 0; i < axes; ++i) {
      extent[3 - axes + i] = tensor.shape[2 + i];
      stride[3 - axes + i] = tensor.strides[2 + i];
    }
  }

  int64_t size() const { return extent[0] * extent[1] * extent[2]; }

  template <typename T>
  T* plane(int64_t index) const {
    if (address == nullptr) return nullptr;  // There are no elements.
    return reinterpret_cast<T*>(address) + index / channels * batch_stride +
           index % channels * channel_stride;
  }

  std::byte* address;
  int64_t channels, batch_stride, channel_stride;
  std::array<int64_t, 3> extent = {1, 1, 1}, stride = {};
};

struct Window {
  explicit Window(const bp_max_pool_args& args) {
    const size_t axes = args.x->ndim - 2;
    for (size_t i = 0; i < axes; ++i) {
      const size_t at = 3 - axes + i;
      kernel[at] = args.kernel_size[i];
      stride[at] = args.stride[i];
      low[at] = args.padding[i];
      dilation[at] = args.dilation[i];
    }
  }

  std::array<int64_t, 3> kernel = {1, 1, 1}, stride = {1, 1, 1}, low = {}, dilation = {1, 1, 1};
};

// The positions of the input that the window of one output covers, along one axis.
struct Range {
  int64_t begin, end, step;
};

Range range_of(const Window& w, size_t axis, int64_t output, int64_t extent) {
  const int64_t step = w.dilation[axis];
  const int64_t first = output * w.stride[axis] - w.low[axis];
  const int64_t skipped = first < 0 ? (step - 1 - first) / step : 0;
  return {first + skipped * step, std::min(extent, first + w.kernel[axis] * step), step};
}

// The largest element so far, as bits: a choice by a mask costs the same for both outcomes, while
// which element is larger cannot be predicted.
template <typename T>
struct Best {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;

  void offer(T candidate, int64_t its_index) {
    const T value = std::bit_cast<T>(bits);
    const bool is_first_nan = (candidate != candidate) & (value == value);
    const bool is_better = (index < 0) | (candidate > value) | is_first_nan;
    const int64_t mask = -static_cast<int64_t>(is_better);
    const Bits bits_mask = static_cast<Bits>(mask);
    bits = (std::bit_cast<Bits>(candidate) & bits_mask) | (bits & ~bits_mask);
    index = (its_index & mask) | (index & ~mask);
  }

  Bits bits = std::bit_cast<Bits>(-std::numeric_limits<T>::infinity());
  int64_t index = -1;
};

// The best element of the window of output (i, j, k).
template <typename T>
Best<T> best_of(const T* plane, const Planes& x, const Range& depth, const Range& rows,
                const Range& cols) {
  Best<T> best;
  if (cols.begin >= cols.end) return best;  // Perhaps there are no elements at all.
  for (int64_t i = depth.begin; i < depth.end; i += depth.step) {
    for (int64_t j = rows.begin; j < rows.end; j += rows.step) {
      const T* const row = plane + i * x.stride[0] + j * x.stride[1];
      const int64_t index = (i * x.extent[1] + j) * x.extent[2];
      for (int64_t k = cols.begin; k < cols.end; k += cols.step) {
        best.offer(row[k * x.stride[2]], index + k);
      }
    }
  }
  return best;
}

template <typename T>
void pool_plane(const Window& w, const Planes& x, const Planes& y, const Planes* indices,
                int64_t index) {
  const T* const from = x.plane<const T>(index);
  T* const to = y.plane<T>(index);
  int64_t* const places = indices == nullptr ? nullptr : indices->plane<int64_t>(index);
  for (int64_t i = 0; i < y.extent[0]; ++i) {
    const Range depth = range_of(w, 0, i, x.extent[0]);
    for (int64_t j = 0; j < y.extent[1]; ++j) {
      const Range rows = range_of(w, 1, j, x.extent[1]);
      for (int64_t k = 0; k < y.extent[2]; ++k) {
        const Best<T> best = best_of(from, x, depth, rows, range_of(w, 2, k, x.extent[2]));
        to[i * y.stride[0] + j * y.stride[1] + k * y.stride[2]] = std::bit_cast<T>(best.bits);
        if (places == nullptr) continue;
        places[i * indices->stride[0] + j * indices->stride[1] + k * indices->stride[2]] =
            best.index;
      }
    }
  }
}

constexpr int64_t kGrainElements = 8192;  // Of the input, below which a team costs more.

int64_t grain_for(int64_t elements) {
  return std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, elements));
}

template <typename T>
bp_status submit_pool(const bp_max_pool_args& args, const Launch& launch) {
  const Window window(args);
  const Planes x(*args.x), y(*args.y), indices(args.indices ? *args.indices : *args.y);
  const bool has_indices = args.indices != nullptr;
  const int64_t planes = element_count(*args.y) == 0 ? 0 : args.y->shape[0] * args.y->shape[1];
  return launch.submit([=, thread_count = launch.thread_count()] {
    parallel_for(thread_count, planes, grain_for(x.size()), [&](int64_t begin, int64_t end) {
      for (int64_t plane = begin; plane < end; ++plane) {
        pool_plane<T>(window, x, y, has_indices ? &indices : nullptr, plane);
      }
    });
  });
}

bp_status max_pool_launch(const bp_max_pool_args& args, Launch& launch) {
  return args.x->dtype == BP_F32 ? submit_pool<float>(args, launch)
                                 : submit_pool<double>(args, launch);
}

// Calls fn(offset) for each position of a plane, in row-major order.
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

// Returns an index that is out of range, or -1.
template <typename T>
int64_t scatter_plane(const Planes& grad_y, const Planes& indices, const Planes& grad_x,
                      int64_t plane) {
  T* const to = grad_x.plane<T>(plane);
  for_each_position(grad_x, [&](int64_t at, int64_t, int64_t, int64_t) { to[at] = 0; });
  const T* const from = grad_y.plane<const T>(plane);
  const int64_t* const places = indices.plane<const int64_t>(plane);
  const int64_t size = grad_x.size();
  int64_t wrong = -1;
  for_each_position(grad_y, [&](int64_t at, int64_t i, int64_t j, int64_t k) {
    const int64_t index =
        places[i * indices.stride[0] + j * indices.stride[1] + k * indices.stride[2]];
    if (index == -1) return;
    if (index < 0 || index >= size) {
      wrong = index;
      return;
    }
    const int64_t row = index / grad_x.extent[2];
    to[row / grad_x.extent[1] * grad_x.stride[0] + row % grad_x.extent[1] * grad_x.stride[1] +
       index % grad_x.extent[2] * grad_x.stride[2]] += from[at];
  });
  return wrong;
}

template <typename T>
bp_status submit_scatter(const bp_max_pool_backward_args& args, const Launch& launch) {
  const Planes grad_y(*args.grad_y), indices(*args.indices), grad_x(*args.grad_x);
  const int64_t planes = args.grad_x->shape[0] * args.grad_x->shape[1];
  return launch.submit([=, thread_count = launch.thread_count()] {
    std::atomic<int64_t> wrong = -1;
    parallel_for(thread_count, planes, grain_for(grad_x.size()), [&](int64_t begin, int64_t end) {
      for (int64_t plane = begin; plane < end; ++plane) {
        const int64_t index = scatter_plane<T>(grad_y, indices, grad_x, plane);
        if (index != -1) wrong = index;
      }
    });
    if (wrong == -1) return;
    throw StatusError(BP_INVALID_ARGUMENT, "max_pool_backward: an index is " +
                                               std::to_string(wrong.load()) + ", not below " +
                                               std::to_string(grad_x.size()) + " and not -1");
  });
}

bp_status max_pool_backward_launch(const bp_max_pool_backward_args& args, Launch& launch) {
  return args.grad_y->dtype == BP_F32 ? submit_scatter<float>(args, launch)
                                      : submit_scatter<double>(args, launch);
}

constexpr bp_dtype kDtypes[] = {BP_F32, BP_F64};

}  // namespace

constinit const bp_kernel kMaxPool = make_kernel<bp_max_pool_args, max_pool_launch>({
    .name = "max_pool",
    .op = BP_OP_MAX_POOL,
    .flags = BP_KERNEL_DETERMINISTIC,
    .dtype_rows = kDtypes,
    .dtype_row_count = std::size(kDtypes),
    .dtype_count = 1,
    .layouts = BP_LAYOUT_ANY,
});

constinit const bp_kernel kMaxPoolBackward =
    make_kernel<bp_max_pool_backward_args, max_pool_backward_launch>({
        .name = "max_pool_backward",
        .op = BP_OP_MAX_POOL_BACKWARD,
        .flags = BP_KERNEL_DETERMINISTIC,
        .dtype_rows = kDtypes,
        .dtype_row_count = std::size(kDtypes),
        .dtype_count = 1,
        .layouts = BP_LAYOUT_ANY,
    });

}  // namespace bp::kernels
