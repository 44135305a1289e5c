// max_pool and avg_pool, and their gradients.
#include <string>

#include "kernels/window.hpp"

namespace acme_opencl {
namespace {

constexpr const char* kSource = R"(
kernel void max_pool(Window w, Strides ys, Strides is, Strides xs, global Y_T* y,
                     global I_T* indices, global const X_T* x) {
  long index = get_global_id(0);
  if (index >= w.batch * w.channels * w.out[0] * w.out[1] * w.out[2]) return;
  const long k = next(&index, w.out[2]), j = next(&index, w.out[1]), i = next(&index, w.out[0]);
  const long c = next(&index, w.channels), n = index;
  float most = -INFINITY;
  long best = -1;
  for (long di = 0; di < w.kernel_size[0]; ++di) {
    const long at_i = i * w.stride[0] - w.padding[0] + di * w.dilation[0];
    if (at_i < 0 || at_i >= w.in[0]) continue;
    for (long dj = 0; dj < w.kernel_size[1]; ++dj) {
      const long at_j = j * w.stride[1] - w.padding[1] + dj * w.dilation[1];
      if (at_j < 0 || at_j >= w.in[1]) continue;
      for (long dk = 0; dk < w.kernel_size[2]; ++dk) {
        const long at_k = k * w.stride[2] - w.padding[2] + dk * w.dilation[2];
        if (at_k < 0 || at_k >= w.in[2]) continue;
        const float value = X_LOAD(x, place5(&xs, n, c, at_i, at_j, at_k));
        if (best >= 0 && (most != most || !(value != value || value > most))) continue;
        most = value;
        best = (at_i * w.in[1] + at_j) * w.in[2] + at_k;
      }
    }
  }
  Y_STORE(y, place5(&ys, n, c, i, j, k), most);
  if (HAS_INDICES) I_STORE(indices, place5(&is, n, c, i, j, k), best);
}

// y is grad_x, and x is grad_y. One item adds all terms of one channel, in order, so the sums are
// the same each time.
kernel void max_pool_backward(Window w, Strides ys, Strides is, Strides xs, global Y_T* y,
                              global const I_T* indices, global const X_T* x, global float* sums,
                              long sums_at, int bounds, global int* failure, int number) {
  const long channel = get_global_id(0), inputs = w.in[0] * w.in[1] * w.in[2];
  if (channel >= w.batch * w.channels) return;
  const long n = channel / w.channels, c = channel % w.channels;
  global float* const sum = sums + sums_at / 4 + channel * inputs;
  for (long k = 0; k < inputs; ++k) sum[k] = 0.0f;
  for (long i = 0; i < w.out[0]; ++i) {
    for (long j = 0; j < w.out[1]; ++j) {
      for (long k = 0; k < w.out[2]; ++k) {
        const long at = place5(&is, n, c, i, j, k);
        long to = I_LOAD(indices, at);
        if (to == -1) continue;
        if (to < 0 || to >= inputs) {
          if (bounds == 0) report(failure, number, at - is.offset, to);
          if (bounds != 1) continue;
          to = to < 0 ? 0 : inputs - 1;
        }
        sum[to] += X_LOAD(x, place5(&xs, n, c, i, j, k));
      }
    }
  }
  for (long k = 0; k < inputs; ++k) {
    long rest = k;
    const long c2 = next(&rest, w.in[2]), c1 = next(&rest, w.in[1]);
    Y_STORE(y, place5(&ys, n, c, rest, c1, c2), sum[k]);
  }
}

// Returns the number by which the sum of a window is divided.
long divisor(const Window* w, long i, long j, long k, int counts_padding) {
  const long index[3] = {i, j, k};
  long count = 1;
  for (int axis = 0; axis < 3; ++axis) {
    long first = index[axis] * w->stride[axis] - w->padding[axis];
    long last = first + w->kernel_size[axis];
    if (!counts_padding) {
      first = max(first, 0L);
      last = min(last, w->in[axis]);
    }
    count *= max(last - first, 0L);
  }
  return count;
}

kernel void avg_pool(Window w, Strides ys, Strides xs, global Y_T* y, global const X_T* x,
                     int counts_padding) {
  long index = get_global_id(0);
  if (index >= w.batch * w.channels * w.out[0] * w.out[1] * w.out[2]) return;
  const long k = next(&index, w.out[2]), j = next(&index, w.out[1]), i = next(&index, w.out[0]);
  const long c = next(&index, w.channels), n = index;
  float sum = 0.0f;
  for (long at_i = i * w.stride[0] - w.padding[0], di = 0; di < w.kernel_size[0]; ++di, ++at_i) {
    if (at_i < 0 || at_i >= w.in[0]) continue;
    for (long at_j = j * w.stride[1] - w.padding[1], dj = 0; dj < w.kernel_size[1]; ++dj, ++at_j) {
      if (at_j < 0 || at_j >= w.in[1]) continue;
      for (long at_k = k * w.stride[2] - w.padding[2], dk = 0; dk < w.kernel_size[2];
           ++dk, ++at_k) {
        if (at_k >= 0 && at_k < w.in[2]) sum += X_LOAD(x, place5(&xs, n, c, at_i, at_j, at_k));
      }
    }
  }
  const long count = divisor(&w, i, j, k, counts_padding);
  Y_STORE(y, place5(&ys, n, c, i, j, k), count == 0 ? 0.0f : sum / (float)count);
}

// y is grad_x, and x is grad_y.
kernel void avg_pool_backward(Window w, Strides ys, Strides xs, global Y_T* y, global const X_T* x,
                              int counts_padding) {
  long index = get_global_id(0);
  if (index >= w.batch * w.channels * w.in[0] * w.in[1] * w.in[2]) return;
  const long k = next(&index, w.in[2]), j = next(&index, w.in[1]), i = next(&index, w.in[0]);
  const long c = next(&index, w.channels), n = index;
  float sum = 0.0f;
  for (long di = 0; di < w.kernel_size[0]; ++di) {
    const long from_i = i + w.padding[0] - di, to_i = from_i / w.stride[0];
    if (from_i < 0 || from_i % w.stride[0] != 0 || to_i >= w.out[0]) continue;
    for (long dj = 0; dj < w.kernel_size[1]; ++dj) {
      const long from_j = j + w.padding[1] - dj, to_j = from_j / w.stride[1];
      if (from_j < 0 || from_j % w.stride[1] != 0 || to_j >= w.out[1]) continue;
      for (long dk = 0; dk < w.kernel_size[2]; ++dk) {
        const long from_k = k + w.padding[2] - dk, to_k = from_k / w.stride[2];
        if (from_k < 0 || from_k % w.stride[2] != 0 || to_k >= w.out[2]) continue;
        sum += X_LOAD(x, place5(&xs, n, c, to_i, to_j, to_k)) /
               (float)divisor(&w, to_i, to_j, to_k, counts_padding);
      }
    }
  }
  Y_STORE(y, place5(&ys, n, c, i, j, k), sum);
}
)";

Call call_of(const char* kernel, const bp_tensor& y, const bp_tensor* indices, const bp_tensor& x) {
  return {prelude({{"Y", y.dtype},
                   {"I", indices == nullptr ? bp_dtype{BP_I64} : indices->dtype},
                   {"X", x.dtype}}) +
              "#define HAS_INDICES " + (indices == nullptr ? "0" : "1") + kWindowSource + kSource,
          kernel};
}

bp_status run(Call call, Launch& launch) {
  return launch.submit([call = std::move(call)](CommandQueue& queue) { queue.run(call); });
}

bp_status max_pool(const bp_max_pool_args& args, Launch& launch) {
  const bp_tensor &x = *args.x, &y = *args.y;
  const Window w = window_of(args, x, y, {args.kernel_size, args.kernel_size_count});
  Call call = call_of("max_pool", y, args.indices, x);
  call.value(w).value(strides_of(&y)).value(strides_of(args.indices)).value(strides_of(&x));
  call.buffer(Launch::place(y))
      .buffer(args.indices == nullptr ? Place{} : Launch::place(*args.indices))
      .buffer(Launch::place(x));
  return run(call.over(bp::element_count(y)), launch);
}

bp_reason max_pool_supports(const bp_max_pool_args& args) {
  int64_t extent = 1;
  for (uint32_t axis = 2; axis < args.x->ndim; ++axis) extent *= args.x->shape[axis];
  return bp::index_reason(args.indices, extent);
}

uint64_t max_pool_workspace(const bp_max_pool_backward_args& args, const Env&) {
  return static_cast<uint64_t>(bp::element_count(*args.grad_x)) * sizeof(float);
}

bp_status max_pool_backward(const bp_max_pool_backward_args& args, Launch& launch) {
  const bp_tensor &x = *args.grad_y, &y = *args.grad_x;
  Window w{.batch = y.shape[0], .channels = y.shape[1], .groups = 1};
  spread({y.shape + 2, y.ndim - 2}, w.in, 1);
  spread({x.shape + 2, x.ndim - 2}, w.out, 1);
  const int64_t inputs = w.in[0] * w.in[1] * w.in[2];
  Call call = call_of("max_pool_backward", y, args.indices, x);
  call.value(w).value(strides_of(&y)).value(strides_of(args.indices)).value(strides_of(&x));
  call.buffer(Launch::place(y)).buffer(Launch::place(*args.indices)).buffer(Launch::place(x));
  const Place sums = launch.workspace();
  call.buffer(sums).value(static_cast<int64_t>(sums.byte_offset)).value(args.bounds);
  call.checked([inputs](int64_t position, int64_t index) {
    return bp::bad_index_text("max_pool_backward", "indices", position, index, inputs);
  });
  return run(call.over(w.batch * w.channels), launch);
}

bp_status avg_pool(const bp_avg_pool_args& args, Launch& launch) {
  const bp_tensor &x = *args.x, &y = *args.y;
  const Window w = window_of(args, x, y, {args.kernel_size, args.kernel_size_count});
  Call call = call_of("avg_pool", y, nullptr, x);
  call.value(w).value(strides_of(&y)).value(strides_of(&x));
  call.buffer(Launch::place(y)).buffer(Launch::place(x)).value(args.counts_padding);
  return run(call.over(bp::element_count(y)), launch);
}

bp_status avg_pool_backward(const bp_avg_pool_backward_args& args, Launch& launch) {
  const bp_tensor &x = *args.grad_y, &y = *args.grad_x;
  const Window w = window_of(args, y, x, {args.kernel_size, args.kernel_size_count});
  Call call = call_of("avg_pool_backward", y, nullptr, x);
  call.value(w).value(strides_of(&y)).value(strides_of(&x));
  call.buffer(Launch::place(y)).buffer(Launch::place(x)).value(args.counts_padding);
  return run(call.over(bp::element_count(y)), launch);
}

}  // namespace

constinit const bp_kernel kMaxPool = make_kernel<bp_max_pool_args, max_pool, max_pool_supports>(
    bp::kernel_row("max_pool", BP_OP_MAX_POOL, {kFloatsWithIndices, 2}));
constinit const bp_kernel kMaxPoolBackward =
    make_kernel<bp_max_pool_backward_args, max_pool_backward, nullptr, max_pool_workspace>(
        bp::kernel_row("max_pool_backward", BP_OP_MAX_POOL_BACKWARD, {kFloatsWithIndices, 2}));
constinit const bp_kernel kAvgPool =
    make_kernel<bp_avg_pool_args, avg_pool>(bp::kernel_row("avg_pool", BP_OP_AVG_POOL, kFloats));
constinit const bp_kernel kAvgPoolBackward =
    make_kernel<bp_avg_pool_backward_args, avg_pool_backward>(
        bp::kernel_row("avg_pool_backward", BP_OP_AVG_POOL_BACKWARD, kFloats));

}  // namespace acme_opencl
