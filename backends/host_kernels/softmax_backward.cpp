// The gradients of softmax,  grad_x = y * (grad_y - sum(grad_y * y)),  and of log_softmax,
// grad_x = grad_y - exp(y) * sum(grad_y),  along an axis (softmax_backward_rows.cpp)
#include <array>

#include "backends/host_kernels/kernels.hpp"
#include "backends/host_kernels/softmax.hpp"

namespace bp::kernels {
namespace {

// The operands grad_y, y and grad_x, and copies of the operands that are not dense.
struct Operands {
  std::array<View, 3> views;
  std::array<DenseCopy, 3> copies;
  uint32_t axis = 0;
  bp_dtype dtype = 0;
  uint64_t workspace_size_bytes = 0;
};

template <typename Args>
Operands operands_of(const Args& args) {
  Operands o;
  o.views = {view_of(*args.grad_y), view_of(*args.y), view_of(*args.grad_x)};
  o.dtype = args.grad_x->dtype;
  o.axis = order_axes(o.views, static_cast<uint32_t>(args.axis));
  for (size_t i = 0; i < o.views.size(); ++i) {
    if (!is_contiguous(o.views[i])) o.copies[i] = {o.views[i], o.dtype, o.dtype};
    o.copies[i].offset = reserve_bytes(o.copies[i].size_bytes(), o.workspace_size_bytes);
  }
  return o;
}

// Returns the address of the dense elements of an operand. It may be the address of a copy that is
// not yet written.
std::byte* place(Operands& o, size_t operand, std::byte* workspace) {
  DenseCopy& copy = o.copies[operand];
  if (!copy.is_needed) return o.views[operand].address;
  return copy.dense.address = workspace + copy.offset;
}

template <typename Dense>
bp_status submit(const Operands& operands, Launch& launch, Dense dense) {
  return launch.submit([o = operands, dense, workspace = launch.workspace(),
                        thread_count = launch.thread_count()]() mutable {
    if (element_count(o.views[2]) == 0) return;
    const std::byte* const grad_y = place(o, 0, workspace);
    const std::byte* const y = place(o, 1, workspace);
    std::byte* const grad_x = place(o, 2, workspace);
    if (o.copies[0].is_needed) o.copies[0].fetch(thread_count);
    if (o.copies[1].is_needed) o.copies[1].fetch(thread_count);
    dense(o.dtype, grad_y, y, grad_x, softmax_extents(o.views[2], o.axis), thread_count);
    if (o.copies[2].is_needed) o.copies[2].store(thread_count);
  });
}

uint64_t softmax_workspace(const bp_softmax_backward_args& args, const Env&) {
  return operands_of(args).workspace_size_bytes;
}
uint64_t log_softmax_workspace(const bp_log_softmax_backward_args& args, const Env&) {
  return operands_of(args).workspace_size_bytes;
}

bp_status softmax_launch(const bp_softmax_backward_args& args, Launch& launch) {
  return submit(operands_of(args), launch, softmax_backward_dense);
}
bp_status log_softmax_launch(const bp_log_softmax_backward_args& args, Launch& launch) {
  return submit(operands_of(args), launch, log_softmax_backward_dense);
}

}  // namespace

extern constinit const bp_kernel kSoftmaxBackward =
    make_kernel<bp_softmax_backward_args, softmax_launch, nullptr, softmax_workspace>(
        kernel_row("softmax_backward", BP_OP_SOFTMAX_BACKWARD, kFloatDtypes, BP_KERNEL_IN_PLACE));

extern constinit const bp_kernel kLogSoftmaxBackward =
    make_kernel<bp_log_softmax_backward_args, log_softmax_launch, nullptr, log_softmax_workspace>(
        kernel_row("log_softmax_backward", BP_OP_LOG_SOFTMAX_BACKWARD, kFloatDtypes,
                   BP_KERNEL_IN_PLACE));

}  // namespace bp::kernels
