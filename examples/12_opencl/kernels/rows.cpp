// Ops on rows: softmax, log_softmax and their gradients, layer_norm and rms_norm. A group of 64
// items computes one row.
#include <string>

#include "kernels/kernels.hpp"

namespace acme_opencl {
namespace {

// The tensors of both grids are y, a, b and c. `rows` has the first elements of the rows, and `row`
// the elements of one.
struct Rows {
  Grid rows, row;
};

Rows rows_of(std::initializer_list<const bp_tensor*> tensors, uint32_t first, uint32_t end) {
  const bp_tensor& y = **tensors.begin();
  Rows r{grid_at(tensors), {}};
  for (uint32_t axis = 0; axis < y.ndim; ++axis) {
    int64_t strides[4] = {};
    size_t k = 0;
    for (const bp_tensor* const t : tensors) strides[k++] = t == nullptr ? 0 : t->strides[axis];
    const bool is_inner = axis >= first && axis < end;
    add_axis(is_inner ? r.row : r.rows, y.shape[axis], strides);
  }
  return r;
}

constexpr const char* kSoftmax = R"(
kernel void rows(Grid rows, Grid row, global Y_T* y, global const Y_T* a, global const Y_T* b) {
  local float partial[64];
  const int me = get_local_id(0);
  const long n = get_group_id(0), to = place(&rows, n, 0), from = place(&rows, n, 1);
  float most = -INFINITY, sum = 0.0f;
  for (long k = me; k < row.count; k += 64) {
    most = larger(Y_LOAD(a, (from + place(&row, k, 1))), most);
  }
  most = largest_of_group(partial, most);
  for (long k = me; k < row.count; k += 64) {
    sum += exp(Y_LOAD(a, (from + place(&row, k, 1))) - most);
  }
  sum = sum_of_group(partial, sum);
  const float log_sum = log(sum);
  for (long k = me; k < row.count; k += 64) {
    const float shifted = Y_LOAD(a, (from + place(&row, k, 1))) - most;
    Y_STORE(y, (to + place(&row, k, 0)), IS_LOG ? shifted - log_sum : exp(shifted) / sum);
  }
}
)";

// a is grad_y, and b is the result of the op.
constexpr const char* kSoftmaxBackward = R"(
kernel void rows(Grid rows, Grid row, global Y_T* y, global const Y_T* a, global const Y_T* b) {
  local float partial[64];
  const int me = get_local_id(0);
  const long n = get_group_id(0), to = place(&rows, n, 0), from = place(&rows, n, 1),
             other = place(&rows, n, 2);
  float sum = 0.0f;
  for (long k = me; k < row.count; k += 64) {
    const float grad = Y_LOAD(a, (from + place(&row, k, 1)));
    sum += IS_LOG ? grad : grad * Y_LOAD(b, (other + place(&row, k, 2)));
  }
  sum = sum_of_group(partial, sum);
  for (long k = me; k < row.count; k += 64) {
    const float grad = Y_LOAD(a, (from + place(&row, k, 1)));
    const float value = Y_LOAD(b, (other + place(&row, k, 2)));
    Y_STORE(y, (to + place(&row, k, 0)), IS_LOG ? grad - exp(value) * sum : value * (grad - sum));
  }
}
)";

bp_status submit(const char* source, bool is_log, std::initializer_list<const bp_tensor*> tensors,
                 int32_t axis, Launch& launch) {
  const auto first = static_cast<uint32_t>(axis);
  const Rows r = rows_of(tensors, first, first + 1);
  Call call(prelude({{"Y", (*tensors.begin())->dtype}}) + "#define IS_LOG " + (is_log ? "1" : "0") +
                source,
            "rows");
  call.value(r.rows).value(r.row);
  for (const bp_tensor* const t : tensors) call.buffer(Launch::place(*t));
  if (tensors.size() == 2) call.buffer({});
  // A row without elements needs no group.
  call.groups(r.row.count == 0 ? 0 : r.rows.count, 1, 1, 64, 1);
  return launch.submit([call](CommandQueue& queue) { queue.run(call); });
}

template <typename Args, bool kIsLog>
bp_status softmax(const Args& args, Launch& launch) {
  return submit(kSoftmax, kIsLog, {args.y, args.x}, args.axis, launch);
}

template <typename Args, bool kIsLog>
bp_status softmax_backward(const Args& args, Launch& launch) {
  return submit(kSoftmaxBackward, kIsLog, {args.grad_x, args.grad_y, args.y}, args.axis, launch);
}

// ---- Norms --------------------------------------------------------------------------------------

// All tensors are contiguous. `at` has the offsets of y, x, gamma, beta, mean and rstd.
constexpr const char* kNorm = R"(
typedef struct { long count, rows; long at[6]; float eps; } Norm;
kernel void norm(Norm n, global Y_T* y, global const Y_T* x, global const Y_T* gamma,
                 global const Y_T* beta, global float* mean_of, global float* rstd_of) {
  local float partial[64];
  const int me = get_local_id(0);
  const long first = get_group_id(0) * n.count;
  float mean = 0.0f;
  if (!IS_RMS) {
    for (long k = me; k < n.count; k += 64) mean += Y_LOAD(x, (n.at[1] + first + k));
    mean = sum_of_group(partial, mean) / (float)n.count;
  }
  float square = 0.0f, rest = 0.0f;
  for (long k = me; k < n.count; k += 64) {
    const float d = Y_LOAD(x, (n.at[1] + first + k)) - mean;
    square += d * d;
    rest += d;
  }
  square = sum_of_group(partial, square);
  if (!IS_RMS) {
    // What the rounding of the mean left (Chan, Golub and LeVeque, 1983).
    rest = sum_of_group(partial, rest);
    square -= rest * rest / (float)n.count;
  }
  const float rstd = 1.0f / sqrt(square / (float)n.count + n.eps);
  for (long k = me; k < n.count; k += 64) {
    float value = (Y_LOAD(x, (n.at[1] + first + k)) - mean) * rstd;
    if (HAS_GAMMA) value *= Y_LOAD(gamma, (n.at[2] + k));
    if (HAS_BETA) value += Y_LOAD(beta, (n.at[3] + k));
    Y_STORE(y, (n.at[0] + first + k), value);
  }
  if (me != 0) return;
  if (HAS_MEAN) mean_of[n.at[4] + get_group_id(0)] = mean;
  if (HAS_RSTD) rstd_of[n.at[5] + get_group_id(0)] = rstd;
}
)";

struct Norm {
  int64_t count = 1, rows = 1;
  int64_t at[6] = {};
  float eps = 0;
};

struct NormTensors {
  const bp_tensor *y, *x, *gamma, *beta, *mean, *rstd;
};

bp_status submit_norm(const NormTensors& t, int32_t normalized_ndim, double eps, bool is_rms,
                      Launch& launch) {
  const auto define = [](const char* name, bool value) {
    return std::string("#define ") + name + (value ? " 1\n" : " 0\n");
  };
  Norm n{.eps = static_cast<float>(eps)};
  const uint32_t outer = t.x->ndim - static_cast<uint32_t>(normalized_ndim);
  for (uint32_t axis = 0; axis < t.x->ndim; ++axis) {
    (axis < outer ? n.rows : n.count) *= t.x->shape[axis];
  }
  const bp_tensor* const tensors[] = {t.y, t.x, t.gamma, t.beta, t.mean, t.rstd};
  for (size_t k = 0; k < 6; ++k) {
    if (tensors[k] != nullptr) n.at[k] = grid_at({tensors[k]}).offset[0];
  }
  Call call(prelude({{"Y", t.y->dtype}}) + define("IS_RMS", is_rms) +
                define("HAS_GAMMA", t.gamma != nullptr) + define("HAS_BETA", t.beta != nullptr) +
                define("HAS_MEAN", t.mean != nullptr) + define("HAS_RSTD", t.rstd != nullptr) +
                kNorm,
            "norm");
  call.value(n);
  for (const bp_tensor* const at : tensors) {
    call.buffer(at == nullptr ? Place{} : Launch::place(*at));
  }
  call.groups(n.count == 0 && t.rstd == nullptr && t.mean == nullptr ? 0 : n.rows, 1, 1, 64, 1);
  return launch.submit([call](CommandQueue& queue) { queue.run(call); });
}

bp_status layer_norm(const bp_layer_norm_args& args, Launch& launch) {
  return submit_norm({args.y, args.x, args.gamma, args.beta, args.mean, args.rstd},
                     args.normalized_ndim, args.eps, false, launch);
}

bp_status rms_norm(const bp_rms_norm_args& args, Launch& launch) {
  return submit_norm({args.y, args.x, args.gamma, nullptr, nullptr, args.rstd},
                     args.normalized_ndim, args.eps, true, launch);
}

constexpr bp_kernel norm_row(const char* name, uint32_t op) {
  bp_kernel row = bp::kernel_row(name, op, kFloats, BP_KERNEL_IN_PLACE);
  row.layouts = BP_LAYOUT_CONTIGUOUS;
  return row;
}

}  // namespace

constinit const bp_kernel kSoftmaxKernel =
    make_kernel<bp_softmax_args, softmax<bp_softmax_args, false>>(
        bp::kernel_row("softmax", BP_OP_SOFTMAX, kFloats, BP_KERNEL_IN_PLACE));
constinit const bp_kernel kLogSoftmax =
    make_kernel<bp_log_softmax_args, softmax<bp_log_softmax_args, true>>(
        bp::kernel_row("log_softmax", BP_OP_LOG_SOFTMAX, kFloats, BP_KERNEL_IN_PLACE));
constinit const bp_kernel kSoftmaxBackwardKernel =
    make_kernel<bp_softmax_backward_args, softmax_backward<bp_softmax_backward_args, false>>(
        bp::kernel_row("softmax_backward", BP_OP_SOFTMAX_BACKWARD, kFloats, BP_KERNEL_IN_PLACE));
constinit const bp_kernel kLogSoftmaxBackward =
    make_kernel<bp_log_softmax_backward_args, softmax_backward<bp_log_softmax_backward_args, true>>(
        bp::kernel_row("log_softmax_backward", BP_OP_LOG_SOFTMAX_BACKWARD, kFloats,
                       BP_KERNEL_IN_PLACE));
constinit const bp_kernel kLayerNorm =
    make_kernel<bp_layer_norm_args, layer_norm>(norm_row("layer_norm", BP_OP_LAYER_NORM));
constinit const bp_kernel kRmsNorm =
    make_kernel<bp_rms_norm_args, rms_norm>(norm_row("rms_norm", BP_OP_RMS_NORM));

}  // namespace acme_opencl
