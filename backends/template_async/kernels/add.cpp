// The first kernel: add for contiguous f32 tensors of one shape. Its claims say which calls it
// takes. The host runs all other calls, and all other ops, until there are kernels for them.
#include "kernels/kernels.hpp"

namespace acme_async {
namespace {

constexpr bp_dtype kDtypes[] = {BP_F32};

bp_status launch_add(const bp_add_args& args, Launch& launch) {
  const Place a = Launch::place(*args.a), b = Launch::place(*args.b), y = Launch::place(*args.y);
  const int64_t count = bp::element_count(*args.y);
  return launch.submit([=](CommandQueue& queue) {
    if (count == 0) return;
    queue.run([=] {
      const auto floats = [](const Place& place) {
        return reinterpret_cast<float*>(place.memory->bytes() + place.byte_offset);
      };
      const float *from = floats(a), *more = floats(b);
      float* const to = floats(y);
      for (int64_t at = 0; at < count; ++at) to[at] = from[at] + more[at];
    });
  });
}

constexpr bp_kernel row() {
  bp_kernel row = bp::kernel_row("add.contiguous", BP_OP_ADD, kDtypes, BP_KERNEL_IN_PLACE);
  row.layouts = BP_LAYOUT_CONTIGUOUS;
  return row;
}

}  // namespace

constinit const bp_kernel kAdd = make_kernel<bp_add_args, launch_add>(row());

}  // namespace acme_async
