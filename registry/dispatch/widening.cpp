#include "registry/dispatch/widening.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "registry/boundary/fail.hpp"
#include "registry/boundary/guard.hpp"
#include "registry/calls/call.hpp"
#include "registry/services/decompose.hpp"

namespace bp::core {
namespace {

using services::Evaluator;

bool has_operand(const OpRow& row) {
  return std::any_of(row.tensors.begin(), row.tensors.begin() + row.tensor_count,
                     [](const TensorArgument& a) { return a.kind == Kind::operand; });
}

bp_op_output in_f32(const bp_tensor& x) {
  bp_op_output made{};
  made.dtype = BP_F32;
  made.ndim = x.ndim;
  std::copy_n(x.shape, x.ndim, made.shape);
  return made;
}

// An op with an operand has no lists, and its tensors of 16-bit floats all have the dtype of x.
void run(Evaluator& e, const OpRow& row, const void* args) {
  alignas(8) std::array<std::byte, kMaxFrameBytes> frame;
  std::memcpy(frame.data(), args, row.frame_size_bytes);
  std::vector<std::pair<const bp_tensor*, const bp_tensor*>> results;  // In f32, and the caller's.
  for (uint32_t i = 0; i < row.tensor_count; ++i) {
    const TensorArgument& argument = row.tensors[i];
    const bp_tensor* const given = tensor_at(args, argument);
    if (given == nullptr || !is_narrow(given->dtype)) continue;
    const bp_tensor* const wide =
        argument.is_output() ? e.make(in_f32(*given)) : e.cast(given, BP_F32);
    if (argument.is_output()) results.emplace_back(wide, given);
    std::memcpy(frame.data() + argument.offset, &wide, sizeof(const bp_tensor*));
  }
  e.launch(row.op, frame.data());
  for (const auto& [wide, given] : results) e.store(wide, given);
}

bp_status launch(const bp_kernel* self, const bp_launch* launch, const void* args) {
  const auto* target = static_cast<const bp_target*>(launch->next);
  if (target == nullptr) return fail(BP_INVALID_ARGUMENT, "in f32: the launch has no target");
  return guarded([&]() -> bp_status {
    try {
      Evaluator e(*target, launch->stream, launch->flags);
      run(e, *static_cast<const OpRow*>(self->state), args);
      return BP_OK;
    } catch (const services::Failed& failed) {
      return failed.status;
    }
  });
}

// Makes a kernel for each op, in the order of op_rows().
std::vector<bp_kernel> make_kernels() {
  std::vector<bp_kernel> kernels;
  for (const OpRow& row : op_rows()) {
    bp_kernel kernel{};
    kernel.struct_size = sizeof(bp_kernel);
    kernel.struct_type = BP_STRUCT_KERNEL;
    kernel.state = const_cast<OpRow*>(&row);  // Nobody writes to it.
    kernel.name = "in_f32";
    kernel.op = row.op;
    kernel.spec_revision = BP_OPS_REVISION;
    kernel.args_size_bytes = row.frame_size_bytes;
    kernel.flags = BP_KERNEL_IN_PLACE | BP_KERNEL_TAKES_SCALAR | BP_KERNEL_DETERMINISTIC;
    kernel.layouts = BP_LAYOUT_ANY;
    kernel.launch = launch;
    kernels.push_back(kernel);
  }
  return kernels;
}

}  // namespace

const bp_kernel* widening(uint32_t op) {
  static const std::vector<bp_kernel> kernels = make_kernels();
  const OpRow* const row = find_op(op);
  return row == nullptr || !has_operand(*row) ? nullptr : &kernels[row->index];
}

}  // namespace bp::core
