// adamw_step and sgd_step. Each tensor of the lists is one call.
#include <string>

#include "backplane/shell/scalar.hpp"
#include "kernels/kernels.hpp"

namespace acme_opencl {
namespace {

constexpr const char* kSource = R"(
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef struct {
  double lr, beta1, beta2, eps, weight_decay, momentum, dampening;
  long step, lr_at, step_at;
  int has_lr, has_step, nesterov, reserved;
} Step;

// The tensors of the grid are p, g, m and v.
kernel void adamw(Grid grid, Step s, global P_T* p, global const P_T* g, global P_T* m,
                  global P_T* v, global const L_T* lr_tensor, global const long* step_tensor) {
  const long i = get_global_id(0);
  if (i >= grid.count) return;
  const double lr = s.has_lr ? (double)lr_tensor[s.lr_at] : s.lr;
  const long step = s.has_step ? step_tensor[s.step_at] : s.step;
  const float rest1 = (float)(1.0 - pow(s.beta1, (double)step));
  const float rest2 = (float)(1.0 - pow(s.beta2, (double)step));
  const float grad = P_LOAD(g, place(&grid, i, 1));
  const float old = P_LOAD(p, place(&grid, i, 0));
  const float mean =
      (float)s.beta1 * P_LOAD(m, place(&grid, i, 2)) + (float)(1.0 - s.beta1) * grad;
  const float square =
      (float)s.beta2 * P_LOAD(v, place(&grid, i, 3)) + (float)(1.0 - s.beta2) * (grad * grad);
  P_STORE(m, place(&grid, i, 2), mean);
  P_STORE(v, place(&grid, i, 3), square);
  const float decayed = old - (float)lr * (float)s.weight_decay * old;
  const float change =
      (float)lr * (mean / rest1) / (sqrt(square / rest2) + (float)s.eps);
  P_STORE(p, place(&grid, i, 0), decayed - change);
}

kernel void sgd(Grid grid, Step s, global P_T* p, global const P_T* g, global P_T* m,
                global P_T* v, global const L_T* lr_tensor, global const long* step_tensor) {
  const long i = get_global_id(0);
  if (i >= grid.count) return;
  const double lr = s.has_lr ? (double)lr_tensor[s.lr_at] : s.lr;
  const long step = s.has_step ? step_tensor[s.step_at] : s.step;
  const float old = P_LOAD(p, place(&grid, i, 0));
  float grad = P_LOAD(g, place(&grid, i, 1));
  grad += (float)s.weight_decay * old;  // This is NaN where old is infinite.
  if (HAS_BUFFERS) {
    float kept = grad;
    if (step != 1) {
      kept = (float)s.momentum * P_LOAD(m, place(&grid, i, 2)) + (float)(1.0 - s.dampening) * grad;
    }
    P_STORE(m, place(&grid, i, 2), kept);
    grad = s.nesterov ? grad + (float)s.momentum * kept : kept;
  }
  P_STORE(p, place(&grid, i, 0), old - (float)lr * grad);
}
)";

struct Step {
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0, momentum = 0, dampening = 0;
  int64_t step = 0, lr_at = 0, step_at = 0;
  int32_t has_lr = 0, has_step = 0, nesterov = 0, reserved = 0;
};

template <typename Args>
Step step_of(const Args& args) {
  Step s{.weight_decay = args.weight_decay};
  s.has_lr = args.lr != nullptr ? 1 : 0;
  s.has_step = args.step != nullptr ? 1 : 0;
  if (args.lr != nullptr) {
    s.lr_at = grid_at({args.lr}).offset[0];
  } else {
    const uint64_t bits = bp::convert_scalar(args.lr_scalar, BP_F64);
    std::memcpy(&s.lr, &bits, sizeof(s.lr));
  }
  if (args.step != nullptr) {
    s.step_at = grid_at({args.step}).offset[0];
  } else {
    s.step = static_cast<int64_t>(bp::convert_scalar(args.step_scalar, BP_I64));
  }
  return s;
}

// Submits one call for each tensor. m and v are the state of each parameter, or NULL.
template <typename Args>
bp_status submit(const char* kernel, const Args& args, const Step& s, const bp_tensor* const* m,
                 const bp_tensor* const* v, Launch& launch) {
  std::vector<Call> calls;
  for (uint64_t k = 0; k < args.params_count; ++k) {
    const bp_tensor *const p = args.params[k], *const g = args.grads[k];
    const bp_tensor* const m_k = m == nullptr ? nullptr : m[k];
    const bp_tensor* const v_k = v == nullptr ? nullptr : v[k];
    const Grid grid = grid_of({p, g, m_k, v_k});
    Call call(
        prelude({{"P", p->dtype}, {"L", args.lr == nullptr ? bp_dtype{BP_F64} : args.lr->dtype}}) +
            "#define HAS_BUFFERS " + (m == nullptr ? "0" : "1") + kSource,
        kernel);
    call.value(grid).value(s);
    for (const bp_tensor* const t : {p, g, m_k, v_k, args.lr, args.step}) {
      call.buffer(t == nullptr ? Place{} : Launch::place(*t));
    }
    calls.push_back(call.over(grid.count));
  }
  return launch.submit([calls = std::move(calls)](CommandQueue& queue) {
    for (const Call& call : calls) queue.run(call);
  });
}

bp_status adamw(const bp_adamw_step_args& args, Launch& launch) {
  Step s = step_of(args);
  s.beta1 = args.beta1, s.beta2 = args.beta2, s.eps = args.eps;
  return submit("adamw", args, s, args.exp_avg, args.exp_avg_sq, launch);
}

bp_status sgd(const bp_sgd_step_args& args, Launch& launch) {
  Step s = step_of(args);
  s.momentum = args.momentum, s.dampening = args.dampening, s.nesterov = args.nesterov;
  return submit("sgd", args, s, args.momentum_buffers_count == 0 ? nullptr : args.momentum_buffers,
                nullptr, launch);
}

template <typename Args>
bp_reason supports(const Args&, const Env& env) {
  return env.device().card().info().has_f64 ? nullptr : "the device has no f64, which rates need";
}

constexpr auto kRows = bp::pairs_of(kFloats, bp::kRateDtypes);

}  // namespace

constinit const bp_kernel kAdamwStep =
    make_kernel<bp_adamw_step_args, adamw, supports<bp_adamw_step_args>>(
        bp::kernel_row("adamw_step", BP_OP_ADAMW_STEP, {kRows, 2}, BP_KERNEL_TAKES_SCALAR));
constinit const bp_kernel kSgdStep = make_kernel<bp_sgd_step_args, sgd, supports<bp_sgd_step_args>>(
    bp::kernel_row("sgd_step", BP_OP_SGD_STEP, {kRows, 2}, BP_KERNEL_TAKES_SCALAR));

}  // namespace acme_opencl
