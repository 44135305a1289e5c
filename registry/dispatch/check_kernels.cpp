// Finds the kernels of a call and of all its parts, without a launch: a decomposition runs as it
// would on a stream, but asks for a kernel where it would launch one.
#include <string>

#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/fail.hpp"
#include "registry/boundary/guard.hpp"
#include "registry/dispatch/host_fallback.hpp"
#include "registry/dispatch/selection.hpp"
#include "registry/dispatch/submit.hpp"
#include "registry/services/decompose.hpp"

namespace bp::core {
namespace {

class Question final : public services::DecompositionPlace {
 public:
  Question(const bp_target& target, bp_launch_flags flags, bp_kernel_sources sources)
      : target_(target), flags_(flags), sources_(sources) {}

  // The tensor has no buffer, as those of the call need none.
  void place(bp_tensor&) override {}
  void launch(uint32_t op, const void* args) override {
    const bp_status status = bp_op_check_kernels(&target_, flags_, sources_, op, args);
    if (status != BP_OK) throw services::Failed{status};
  }

 private:
  const bp_target& target_;
  bp_launch_flags flags_;
  bp_kernel_sources sources_;
};

// Asks for the kernels that a candidate needs besides itself.
bp_status ask(Target& target, bp_launch_flags flags, bp_kernel_sources sources,
              const Candidate& candidate, const Reading& r) {
  if (candidate.source == BP_KERNEL_NATIVE) return BP_OK;
  if (candidate.source == BP_KERNEL_HOST_FALLBACK) {
    const bp_target* const host = host_target(target.registry);
    if (host == nullptr || host == &target) {
      return fail(
          BP_UNSUPPORTED,
          std::string(r.row->name) + ": no other device of class host is loaded, for the fallback");
    }
    return bp_op_check_kernels(host, flags, BP_KERNEL_NATIVE | BP_KERNEL_DECOMPOSED, r.row->op,
                               r.frame);
  }
  Question question(target, flags, sources);
  const services::PlaceLink link(target, question);
  Launch l{target, nullptr, flags, *r.row, *candidate.kernel, candidate.source};
  l.place = &link;
  return submit(l, candidate.needs_scalar_tensors, r.frame);
}

}  // namespace
}  // namespace bp::core

// NOLINTNEXTLINE(google-build-using-namespace): the function below is of the namespace's C API.
using namespace bp::core;
using bp::fail;

bp_status bp_op_check_kernels(const bp_target* target, bp_launch_flags flags,
                              bp_kernel_sources sources, uint32_t op, const void* args) {
  return guarded([&]() -> bp_status {
    Reading r;
    if (const bp_status status = read(target, flags, op, args, r); status != BP_OK) return status;
    Target& t = impl(target);
    if (sources == 0) sources = allowed_sources(t);
    std::string missing;
    for (const Candidate& candidate : choose(t, *r.row, r.key, r.frame)->candidates) {
      if (!is_taken(t, *r.row, candidate, sources, r.key, r.frame)) continue;
      const bp_status status = ask(t, flags, sources, candidate, r);
      if (status != BP_UNSUPPORTED) return status;
      missing = take_error();
    }
    if (missing.empty()) return nothing_left(t, r, false);
    return fail(BP_UNSUPPORTED, std::string(r.row->name) +
                                    " runs as other ops, and one has no kernel:\n" + missing);
  });
}
