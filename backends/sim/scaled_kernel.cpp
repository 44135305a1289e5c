// A kernel that understands a link: neg of tensors with a scale of tests (backplane/test_link.h).
// Every other kernel is not offered such a call.
#include "backends/host_kernels/kernels.hpp"
#include "backends/sim/backend.hpp"
#include "backplane/shell/boundary.hpp"
#include "backplane/shell/dtypes.hpp"
#include "backplane/test_link.h"

namespace bp::sim {
namespace {

constexpr uint32_t kLinkTypes[] = {BP_STRUCT_TEST_SCALE};
constexpr bp_dtype kF32[] = {BP_F32};

double scale_of(const bp_tensor& tensor, const char* name) {
  const void* const theirs = bp_link_find(tensor.next, BP_STRUCT_TEST_SCALE);
  if (theirs == nullptr) return 1;
  bp_test_scale ours{};
  uint32_t offset = 0;
  const bp_status status =
      bp_struct_read_linked(theirs, sizeof(ours), &ours, sizeof(ours), kLinkTypes, 1, &offset);
  if (status == BP_OK) return ours.scale;
  throw StatusError(status, std::string("neg: the scale of ") + name + ": at byte " +
                                std::to_string(offset) +
                                " it differs from what this backend can read");
}

bp_status launch_scaled_neg(const bp_neg_args& args, kernels::Launch& launch) {
  const double factor = -scale_of(*args.x, "x") / scale_of(*args.y, "y");
  const int64_t count = element_count(*args.y);
  if (count == 0) return launch.submit([] {});
  return launch.submit(
      [=, x = kernels::data<const float>(*args.x), y = kernels::data<float>(*args.y)] {
        for (int64_t i = 0; i < count; ++i) y[i] = static_cast<float>(factor * double{x[i]});
      });
}

// Every other kernel of neg is tried first.
constexpr bp_kernel scaled_row() {
  bp_kernel row = kernel_row("neg.scaled", BP_OP_NEG, kF32, BP_KERNEL_IN_PLACE);
  row.priority = -1;
  row.layouts = BP_LAYOUT_CONTIGUOUS;
  row.link_types = kLinkTypes;
  row.link_type_count = 1;
  return row;
}

}  // namespace

constinit const bp_kernel kScaledNeg =
    kernels::make_kernel<bp_neg_args, launch_scaled_neg>(scaled_row());

}  // namespace bp::sim
