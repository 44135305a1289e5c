// cross_entropy and its gradient.
#include <string>

#include "kernels/kernels.hpp"

namespace acme_opencl {
namespace {

constexpr const char* kSource = R"(
typedef struct {
  long rows, classes, x_row, x_class, target_row, y_row, lse_row, g_row, g_class;
  long x_at, target_at, y_at, lse_at, g_at;
  long ignored;
  float smoothing;
  int reduction, bounds;
} Loss;

// Returns the class of a row, or -1 for a row that is ignored. *is_bad says that the class is out
// of range.
long class_of(const Loss* l, global const T_T* target, long row, bool* is_bad) {
  long t = T_LOAD(target, (l->target_at + row * l->target_row));
  *is_bad = false;
  if (t == l->ignored) return -1;
  if (t >= 0 && t < l->classes) return t;
  if (l->bounds != 1) {
    *is_bad = true;
    return -1;
  }
  t = t < 0 ? 0 : l->classes - 1;
  return t == l->ignored ? -1 : t;
}

// Without a reduction, each item has one row. With one, there is one group, which goes through all
// rows.
kernel void forward(Loss l, global X_T* y, global const X_T* x, global const T_T* target,
                    global float* lse_of, global int* failure, int number) {
  local float partial[64];
  float total = 0.0f, counted = 0.0f;
  for (long row = get_global_id(0); row < l.rows; row += get_global_size(0)) {
    float most = -INFINITY, sum = 0.0f, values = 0.0f;
    const long from = l.x_at + row * l.x_row;
    for (long c = 0; c < l.classes; ++c) most = larger(X_LOAD(x, (from + c * l.x_class)), most);
    const float base = isfinite(most) ? most : 0.0f;
    // The sums of blocks are added, so that the error of many classes stays small.
    for (long first = 0; first < l.classes; first += 256) {
      float sum_of_block = 0.0f, values_of_block = 0.0f;
      for (long c = first; c < min(first + 256, l.classes); ++c) {
        const float value = X_LOAD(x, (from + c * l.x_class)) - base;
        sum_of_block += exp(value);
        values_of_block += value;
      }
      sum += sum_of_block;
      values += values_of_block;
    }
    const float log_sum = log(sum), lse = base + log_sum;
    if (HAS_LSE) lse_of[l.lse_at + row * l.lse_row] = lse;
    bool is_bad;
    const long t = class_of(&l, target, row, &is_bad);
    if (is_bad && l.bounds == 0) {
      report(failure, number, row * l.target_row,
             T_LOAD(target, (l.target_at + row * l.target_row)));
    }
    float loss = 0.0f;
    if (t >= 0) {
      const float own = log_sum - (X_LOAD(x, (from + t * l.x_class)) - base);
      loss = own;
      if (l.smoothing != 0.0f) {
        const float other = log_sum - values / (float)l.classes;
        loss = (1.0f - l.smoothing) * own + l.smoothing * other;
      }
      counted += 1.0f;
    }
    if (l.reduction == 1) X_STORE(y, (l.y_at + row * l.y_row), loss);
    total += loss;
  }
  if (l.reduction == 1) return;
  total = sum_of_group(partial, total);
  counted = sum_of_group(partial, counted);
  if (get_local_id(0) != 0) return;
  X_STORE(y, l.y_at, l.reduction == 2 ? total / counted : total);
}

// y is grad_x, and g is grad_y. One group has one row.
kernel void backward(Loss l, global X_T* y, global const X_T* x, global const T_T* target,
                     global const float* lse_of, global const X_T* g, global int* failure,
                     int number) {
  local float partial[64];
  const int me = get_local_id(0);
  const long row = get_group_id(0);
  bool is_bad;
  float counted = 0.0f;
  if (l.reduction == 2) {
    for (long k = me; k < l.rows; k += 64) {
      counted += class_of(&l, target, k, &is_bad) >= 0 ? 1.0f : 0.0f;
    }
    counted = sum_of_group(partial, counted);
  }
  const long t = class_of(&l, target, row, &is_bad);
  if (is_bad && l.bounds == 0 && me == 0) {
    report(failure, number, row * l.target_row, T_LOAD(target, (l.target_at + row * l.target_row)));
  }
  float scale = X_LOAD(g, (l.reduction == 1 ? l.g_at + row * l.g_row : l.g_at));
  if (l.reduction == 2) scale /= counted;
  const float lse = lse_of[l.lse_at + row * l.lse_row];
  for (long c = me; c < l.classes; c += 64) {
    float grad = 0.0f;
    if (t >= 0) {
      grad = exp(X_LOAD(x, (l.x_at + row * l.x_row + c * l.x_class)) - lse);
      if (c == t) grad -= 1.0f - l.smoothing;
      grad = scale * (grad - l.smoothing / (float)l.classes);
    }
    X_STORE(y, (l.y_at + row * l.y_row + c * l.g_class), grad);
  }
}
)";

struct Loss {
  int64_t rows, classes, x_row, x_class, target_row, y_row, lse_row, g_row, g_class;
  int64_t x_at, target_at, y_at, lse_at, g_at;
  int64_t ignored;
  float smoothing;
  int32_t reduction, bounds;
};

// What both have in common.
template <typename Args>
Loss loss_of(const Args& args) {
  Loss l{.rows = args.x->shape[0], .classes = args.x->shape[1]};
  l.x_row = args.x->strides[0], l.x_class = args.x->strides[1];
  l.target_row = args.target->strides[0];
  l.x_at = grid_at({args.x}).offset[0], l.target_at = grid_at({args.target}).offset[0];
  if (args.lse != nullptr) {
    l.lse_row = args.lse->strides[0];
    l.lse_at = grid_at({args.lse}).offset[0];
  }
  l.ignored = args.ignore_index;
  l.smoothing = static_cast<float>(args.label_smoothing);
  l.reduction = static_cast<int32_t>(args.reduction);
  l.bounds = static_cast<int32_t>(args.bounds);
  return l;
}

template <typename Args>
Call call_of(const char* kernel, const char* op, const Args& args, const bp_tensor& y,
             const Loss& l) {
  Call call(prelude({{"X", args.x->dtype}, {"T", args.target->dtype}}) + "#define HAS_LSE " +
                (args.lse == nullptr ? "0" : "1") + kSource,
            kernel);
  call.value(l).buffer(Launch::place(y)).buffer(Launch::place(*args.x));
  call.buffer(Launch::place(*args.target));
  call.buffer(args.lse == nullptr ? Place{} : Launch::place(*args.lse));
  call.checked([op, classes = l.classes](int64_t position, int64_t index) {
    return bp::bad_index_text(op, "target", position, index, classes);
  });
  return call;
}

bp_status cross_entropy(const bp_cross_entropy_args& args, Launch& launch) {
  Loss l = loss_of(args);
  const bool is_reduced = args.reduction != BP_CROSS_ENTROPY_REDUCTION_NONE;
  l.y_at = grid_at({args.y}).offset[0];
  l.y_row = is_reduced ? 0 : args.y->strides[0];
  Call call = call_of("forward", "cross_entropy", args, *args.y, l);
  if (is_reduced) {
    call.groups(1, 1, 1, 64, 1);
  } else {
    call.over(l.rows);
  }
  return launch.submit([call](CommandQueue& queue) { queue.run(call); });
}

bp_status backward(const bp_cross_entropy_backward_args& args, Launch& launch) {
  Loss l = loss_of(args);
  const bool is_reduced = args.reduction != BP_CROSS_ENTROPY_BACKWARD_REDUCTION_NONE;
  l.y_at = grid_at({args.grad_x}).offset[0];
  l.y_row = args.grad_x->strides[0], l.g_class = args.grad_x->strides[1];
  l.g_at = grid_at({args.grad_y}).offset[0];
  l.g_row = is_reduced ? 0 : args.grad_y->strides[0];
  Call call = call_of("backward", "cross_entropy_backward", args, *args.grad_x, l);
  call.buffer(Launch::place(*args.grad_y)).groups(l.rows, 1, 1, 64, 1);
  return launch.submit([call](CommandQueue& queue) { queue.run(call); });
}

// Where a class is out of range and there is no class, it cannot be clamped.
template <typename Args>
bp_reason supports(const Args& args) {
  const bool is_empty = args.x->shape[1] == 0 && args.x->shape[0] != 0;
  return is_empty ? "x has no classes" : nullptr;
}

}  // namespace

constinit const bp_kernel kCrossEntropy =
    make_kernel<bp_cross_entropy_args, cross_entropy, supports<bp_cross_entropy_args>>(
        bp::kernel_row("cross_entropy", BP_OP_CROSS_ENTROPY, {kFloatsWithIndices, 2}));
constinit const bp_kernel kCrossEntropyBackward =
    make_kernel<bp_cross_entropy_backward_args, backward, supports<bp_cross_entropy_backward_args>>(
        bp::kernel_row("cross_entropy_backward", BP_OP_CROSS_ENTROPY_BACKWARD,
                       {kFloatsWithIndices, 2}, BP_KERNEL_IN_PLACE));

}  // namespace acme_opencl
