// convolution and its gradients, by direct loops: one item for each element of the result.
#include <string>

#include "kernels/window.hpp"

namespace acme_opencl {
namespace {

constexpr const char* kSource = R"(
kernel void forward(Window w, long outputs, Strides ys, Strides xs, Strides ws, Strides bs,
                    global Y_T* y, global const X_T* x, global const W_T* weight,
                    global const Y_T* bias) {
  long index = get_global_id(0);
  if (index >= w.batch * outputs * w.out[0] * w.out[1] * w.out[2]) return;
  const long k = next(&index, w.out[2]), j = next(&index, w.out[1]), i = next(&index, w.out[0]);
  const long o = next(&index, outputs), n = index;
  const long inputs = w.channels / w.groups, first = o / (outputs / w.groups) * inputs;
  float sum = 0.0f;
  for (long c = 0; c < inputs; ++c) {
    for (long di = 0; di < w.kernel_size[0]; ++di) {
      const long at_i = i * w.stride[0] - w.padding[0] + di * w.dilation[0];
      if (at_i < 0 || at_i >= w.in[0]) continue;
      for (long dj = 0; dj < w.kernel_size[1]; ++dj) {
        const long at_j = j * w.stride[1] - w.padding[1] + dj * w.dilation[1];
        if (at_j < 0 || at_j >= w.in[1]) continue;
        for (long dk = 0; dk < w.kernel_size[2]; ++dk) {
          const long at_k = k * w.stride[2] - w.padding[2] + dk * w.dilation[2];
          if (at_k < 0 || at_k >= w.in[2]) continue;
          sum += X_LOAD(x, place5(&xs, n, first + c, at_i, at_j, at_k)) *
                 W_LOAD(weight, place5(&ws, o, c, di, dj, dk));
        }
      }
    }
  }
  if (HAS_BIAS) sum += Y_LOAD(bias, (bs.offset + o * bs.at[0]));
  Y_STORE(y, place5(&ys, n, o, i, j, k), sum);
}

// y is grad_x, and x is grad_y.
kernel void backward_input(Window w, long outputs, Strides ys, Strides xs, Strides ws, Strides bs,
                           global Y_T* y, global const X_T* x, global const W_T* weight,
                           global const Y_T* bias) {
  long index = get_global_id(0);
  if (index >= w.batch * w.channels * w.in[0] * w.in[1] * w.in[2]) return;
  const long k = next(&index, w.in[2]), j = next(&index, w.in[1]), i = next(&index, w.in[0]);
  const long c = next(&index, w.channels), n = index;
  const long inputs = w.channels / w.groups, outs = outputs / w.groups, group = c / inputs;
  float sum = 0.0f;
  for (long o = group * outs; o < (group + 1) * outs; ++o) {
    for (long di = 0; di < w.kernel_size[0]; ++di) {
      const long from_i = i + w.padding[0] - di * w.dilation[0], to_i = from_i / w.stride[0];
      if (from_i < 0 || from_i % w.stride[0] != 0 || to_i >= w.out[0]) continue;
      for (long dj = 0; dj < w.kernel_size[1]; ++dj) {
        const long from_j = j + w.padding[1] - dj * w.dilation[1], to_j = from_j / w.stride[1];
        if (from_j < 0 || from_j % w.stride[1] != 0 || to_j >= w.out[1]) continue;
        for (long dk = 0; dk < w.kernel_size[2]; ++dk) {
          const long from_k = k + w.padding[2] - dk * w.dilation[2], to_k = from_k / w.stride[2];
          if (from_k < 0 || from_k % w.stride[2] != 0 || to_k >= w.out[2]) continue;
          sum += X_LOAD(x, place5(&xs, n, o, to_i, to_j, to_k)) *
                 W_LOAD(weight, place5(&ws, o, c % inputs, di, dj, dk));
        }
      }
    }
  }
  Y_STORE(y, place5(&ys, n, c, i, j, k), sum);
}

// y is grad_weight, x is grad_y, and weight is the input. A group of 64 items adds the terms of one
// element.
kernel void backward_weight(Window w, long outputs, Strides ys, Strides xs, Strides ws, Strides bs,
                            global Y_T* y, global const X_T* x, global const W_T* weight,
                            global const Y_T* bias) {
  local float partial[64];
  const long inputs = w.channels / w.groups;
  long index = get_group_id(0);
  const long dk = next(&index, w.kernel_size[2]), dj = next(&index, w.kernel_size[1]),
             di = next(&index, w.kernel_size[0]);
  const long c = next(&index, inputs), o = index;
  const long from_c = o / (outputs / w.groups) * inputs + c;
  const long count = w.batch * w.out[0] * w.out[1] * w.out[2];
  float sum = 0.0f;
  for (long term = get_local_id(0); term < count; term += 64) {
    long rest = term;
    const long k = next(&rest, w.out[2]), j = next(&rest, w.out[1]), i = next(&rest, w.out[0]);
    const long at_i = i * w.stride[0] - w.padding[0] + di * w.dilation[0];
    const long at_j = j * w.stride[1] - w.padding[1] + dj * w.dilation[1];
    const long at_k = k * w.stride[2] - w.padding[2] + dk * w.dilation[2];
    if (at_i < 0 || at_i >= w.in[0] || at_j < 0 || at_j >= w.in[1] || at_k < 0 || at_k >= w.in[2]) {
      continue;
    }
    sum += X_LOAD(x, place5(&xs, rest, o, i, j, k)) *
           W_LOAD(weight, place5(&ws, rest, from_c, at_i, at_j, at_k));
  }
  sum = sum_of_group(partial, sum);
  if (get_local_id(0) == 0) Y_STORE(y, place5(&ys, o, c, di, dj, dk), sum);
}
)";

struct Tensors {
  const bp_tensor *y, *x, *weight, *bias = nullptr;
};

Call call_of(const char* kernel, const Tensors& t, const Window& w, int64_t outputs) {
  Call call(prelude({{"Y", t.y->dtype}, {"X", t.x->dtype}, {"W", t.weight->dtype}}) +
                "#define HAS_BIAS " + (t.bias == nullptr ? "0" : "1") + kWindowSource + kSource,
            kernel);
  call.value(w).value(outputs);
  for (const bp_tensor* const tensor : {t.y, t.x, t.weight, t.bias}) call.value(strides_of(tensor));
  for (const bp_tensor* const tensor : {t.y, t.x, t.weight, t.bias}) {
    call.buffer(tensor == nullptr ? Place{} : Launch::place(*tensor));
  }
  return call;
}

bp_status run(Call call, Launch& launch) {
  return launch.submit([call = std::move(call)](CommandQueue& queue) { queue.run(call); });
}

bp_status convolution(const bp_convolution_args& args, Launch& launch) {
  const bp_tensor &x = *args.x, &y = *args.y, &weight = *args.weight;
  Window w = window_of(args, x, y, {weight.shape + 2, weight.ndim - 2});
  w.groups = args.groups;
  Call call = call_of("forward", {&y, &x, &weight, args.bias}, w, y.shape[1]);
  return run(call.over(bp::element_count(y)), launch);
}

bp_status backward_input(const bp_convolution_backward_input_args& args, Launch& launch) {
  const bp_tensor &y = *args.grad_x, &x = *args.grad_y, &weight = *args.weight;
  Window w = window_of(args, y, x, {weight.shape + 2, weight.ndim - 2});
  w.groups = args.groups;
  Call call = call_of("backward_input", {&y, &x, &weight}, w, x.shape[1]);
  return run(call.over(bp::element_count(y)), launch);
}

bp_status backward_weight(const bp_convolution_backward_weight_args& args, Launch& launch) {
  const bp_tensor &y = *args.grad_weight, &x = *args.grad_y, &input = *args.x;
  Window w = window_of(args, input, x, {y.shape + 2, y.ndim - 2});
  w.groups = args.groups;
  Call call = call_of("backward_weight", {&y, &x, &input}, w, x.shape[1]);
  return run(call.groups(bp::element_count(y), 1, 1, 64, 1), launch);
}

bp_status backward_bias(const bp_convolution_backward_bias_args& args, Launch& launch) {
  const bp_tensor &x = *args.grad_y, &y = *args.grad_bias;
  Grid outer = grid_at({&y, &x}), inner;
  add_axis(outer, x.shape[1], {y.strides[0], x.strides[1], 0, 0});
  for (uint32_t axis = 0; axis < x.ndim; ++axis) {
    if (axis != 1) add_axis(inner, x.shape[axis], {0, x.strides[axis], 0, 0});
  }
  Call call(prelude({{"X", x.dtype}, {"Y", y.dtype}}) + R"(
kernel void backward_bias(Grid outer, Grid inner, global Y_T* y, global const X_T* x) {
  local float partial[64];
  float sum = 0.0f;
  const long from = place(&outer, get_group_id(0), 1);
  for (long k = get_local_id(0); k < inner.count; k += 64) {
    sum += X_LOAD(x, (from + place(&inner, k, 1)));
  }
  sum = sum_of_group(partial, sum);
  if (get_local_id(0) == 0) Y_STORE(y, place(&outer, get_group_id(0), 0), sum);
})",
            "backward_bias");
  call.value(outer).value(inner).buffer(Launch::place(y)).buffer(Launch::place(x));
  return run(call.groups(outer.count, 1, 1, 64, 1), launch);
}

}  // namespace

constinit const bp_kernel kConvolution = make_kernel<bp_convolution_args, convolution>(
    bp::kernel_row("convolution", BP_OP_CONVOLUTION, {kFloatTriples, 3}));
constinit const bp_kernel kConvolutionBackwardInput =
    make_kernel<bp_convolution_backward_input_args, backward_input>(bp::kernel_row(
        "convolution_backward_input", BP_OP_CONVOLUTION_BACKWARD_INPUT, {kFloatTriples, 3}));
constinit const bp_kernel kConvolutionBackwardWeight =
    make_kernel<bp_convolution_backward_weight_args, backward_weight>(bp::kernel_row(
        "convolution_backward_weight", BP_OP_CONVOLUTION_BACKWARD_WEIGHT, {kFloatTriples, 3}));
constinit const bp_kernel kConvolutionBackwardBias =
    make_kernel<bp_convolution_backward_bias_args, backward_bias>(bp::kernel_row(
        "convolution_backward_bias", BP_OP_CONVOLUTION_BACKWARD_BIAS, {kFloatPairs, 2}));

}  // namespace acme_opencl
