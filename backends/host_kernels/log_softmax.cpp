// log_softmax along an axis:  y = x - max(x) - log(sum(exp(x - max(x))))  (softmax_rows.cpp)
#include "backends/host_kernels/kernels.hpp"
#include "backends/host_kernels/softmax.hpp"

namespace bp::kernels {
namespace {

uint64_t log_softmax_workspace(const bp_log_softmax_args& args, const Env&) {
  return softmax_workspace_size_bytes(*args.x, *args.y, args.axis);
}

bp_status log_softmax_launch(const bp_log_softmax_args& args, Launch& launch) {
  return submit_softmax(*args.x, *args.y, args.axis, launch, log_softmax_dense);
}

}  // namespace

extern constinit const bp_kernel kLogSoftmax =
    make_kernel<bp_log_softmax_args, log_softmax_launch, nullptr, log_softmax_workspace>(
        kernel_row("log_softmax", BP_OP_LOG_SOFTMAX, kFloatDtypes, BP_KERNEL_IN_PLACE));

}  // namespace bp::kernels
