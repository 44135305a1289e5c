// log_softmax along an axis:  y = x - max(x) - log(sum(exp(x - max(x))))  (softmax_rows.cpp)
#include "backends/host_kernels/dtypes.hpp"
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

constinit const bp_kernel kLogSoftmax =
    make_kernel<bp_log_softmax_args, log_softmax_launch, nullptr, log_softmax_workspace>({
        .name = "log_softmax",
        .op = BP_OP_LOG_SOFTMAX,
        .flags = BP_KERNEL_DETERMINISTIC | BP_KERNEL_IN_PLACE,
        .dtype_rows = kFloatDtypes,
        .dtype_row_count = std::size(kFloatDtypes),
        .dtype_count = 1,
        .layouts = BP_LAYOUT_ANY,
    });

}  // namespace bp::kernels
