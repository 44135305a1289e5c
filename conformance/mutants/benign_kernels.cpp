// Benign variants of kernels: right backends whose claims, flags and declarations are unusual. No
// case may fail on them.
#include "conformance/mutants/mutant.hpp"

namespace bp::mutants {
namespace {

bp_status run_good(const Call& call, std::string_view, const void* args) { return call.run(args); }

constexpr bp_kernel_flags kAllFlags = BP_KERNEL_CAPTURABLE | BP_KERNEL_DETERMINISTIC |
                                      BP_KERNEL_IN_PLACE | BP_KERNEL_TAKES_SCALAR |
                                      BP_KERNEL_TAKES_ACC_OPERAND;

void take_dense_tensors(bp_kernel& kernel) { kernel.layouts = BP_LAYOUT_CONTIGUOUS; }
void be_asked_always(bp_kernel& kernel) { kernel.supports_ignores = 0; }
void come_last(bp_kernel& kernel) { kernel.priority = INT32_MIN; }
void drop_capture(bp_kernel& kernel) { kernel.flags &= ~uint32_t{BP_KERNEL_CAPTURABLE}; }
void drop_order(bp_kernel& kernel) { kernel.flags &= ~uint32_t{BP_KERNEL_DETERMINISTIC}; }
void drop_in_place(bp_kernel& kernel) { kernel.flags &= ~uint32_t{BP_KERNEL_IN_PLACE}; }
void drop_every_flag(bp_kernel& kernel) { kernel.flags &= ~kAllFlags; }

// A later release may have this flag, and 8 bytes more.
void come_from_a_later_release(bp_kernel& kernel) {
  kernel.flags |= 1u << 30;
  kernel.supports_ignores |= 1u << 30;
  kernel.struct_size += 8;  // What lies behind is not zero.
}

void drop_scalars(bp_kernel& kernel) {
  kernel.flags &= ~(uint32_t{BP_KERNEL_TAKES_SCALAR} | uint32_t{BP_KERNEL_TAKES_ACC_OPERAND});
}

constexpr Mutant every_kernel(std::string_view id, void (*declare)(bp_kernel&)) {
  return {.id = id, .ops = {}, .launch = run_good, .declare = declare};
}

constexpr Mutant kTable[] = {
    every_kernel("benign_dense", take_dense_tensors),
    every_kernel("benign_asked", be_asked_always),
    every_kernel("benign_priority", come_last),
    every_kernel("benign_no_capture", drop_capture),
    every_kernel("benign_any_order", drop_order),
    every_kernel("benign_not_in_place", drop_in_place),
    every_kernel("benign_no_scalars", drop_scalars),
    every_kernel("benign_no_flags", drop_every_flag),
    every_kernel("benign_later_release", come_from_a_later_release),
    {.id = "benign_page_offsets", .ops = {}, .launch = run_good, .alignment_bytes = 4096},
    {.id = "benign_workspace", .ops = {}, .launch = run_good, .extra_workspace_bytes = 65536},
};

}  // namespace

std::span<const Mutant> benign_kernels() { return kTable; }

}  // namespace bp::mutants
