#include "registry/dispatch/widening.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "registry/calls/call.hpp"
#include "registry/services/decompose.hpp"
#include "registry/services/service_kernels.hpp"

namespace bp::core {
namespace {

using services::Evaluator;

bool has_operand(const OpRow& row) {
  return std::any_of(row.tensors.begin(), row.tensors.begin() + row.tensor_count,
                     [](const TensorArgument& a) { return a.kind == Kind::operand; });
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
        argument.is_output() ? e.make_like(*given, BP_F32) : e.cast(given, BP_F32);
    if (argument.is_output()) results.emplace_back(wide, given);
    std::memcpy(frame.data() + argument.offset, &wide, sizeof(const bp_tensor*));
  }
  e.launch(row.op, frame.data());
  for (const auto& [wide, given] : results) e.store(wide, given);
}

bp_status launch(const bp_kernel* self, const bp_launch* launch, const void* args) {
  const auto& row = *static_cast<const OpRow*>(self->state);
  return services::evaluate(*launch, self->name, [&](Evaluator& e) { run(e, row, args); });
}

}  // namespace

const bp_kernel* widening(const OpRow& row) {
  static services::ServiceKernels kernels("in_f32", launch);
  return has_operand(row) ? kernels.of(row) : nullptr;
}

}  // namespace bp::core
