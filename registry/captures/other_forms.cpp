#include "registry/captures/other_forms.hpp"

#include <memory>

#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/fail.hpp"
#include "registry/dispatch/selection.hpp"
#include "registry/dispatch/submit.hpp"
#include "registry/services/decompose.hpp"
#include "registry/tensors/strides.hpp"

namespace bp::core {
namespace {

// Where such a kernel writes into the recorder. Its tensors have no memory: they are temporaries of
// the program.
class RecordedPlace final : public services::DecompositionPlace {
 public:
  RecordedPlace(services::LaunchRecorder& recorder, bp_launch_flags flags)
      : recorder_(recorder), flags_(flags) {}

  void place(bp_tensor& tensor) override {
    const auto count = static_cast<uint64_t>(tensors::element_count(tensor));
    const uint64_t size_bytes = tensors::packed_bytes(count, bp_dtype_bits(tensor.dtype));
    tensor.buffer = recorder_.make_buffer(size_bytes);
    tensor.byte_offset = 0;
  }
  void launch(uint32_t op, const void* args) override {
    const bp_status status = recorder_.launch(*find_op(op), flags_, args);
    if (status != BP_OK) throw services::Failed{status};
  }

 private:
  services::LaunchRecorder& recorder_;
  bp_launch_flags flags_;
};

}  // namespace

bp_status record_other_form(Target& target, services::LaunchRecorder& recorder, const OpRow& row,
                            bp_launch_flags flags, const void* frame) {
  Reading r;
  const bp_status status = read(&target, flags, row.op, frame, r);
  if (status != BP_OK) return status;
  for (const Candidate& candidate : choose(target, row, r.key, r.frame)->candidates) {
    // The compiler was asked for the decomposition. A scalar as a tensor has no memory here.
    const bool is_form = candidate.source == BP_KERNEL_DECOMPOSED &&
                         candidate.kernel != services::decomposition(row) &&
                         !candidate.needs_scalar_tensors;
    if (!is_form || !is_taken(target, row, candidate, BP_KERNEL_DECOMPOSED, r.key, r.frame)) {
      continue;
    }
    RecordedPlace place(recorder, flags);
    const services::PlaceLink link(target, place);
    Launch l{target, nullptr, flags, row, *candidate.kernel, candidate.source};
    l.place = &link;
    const bp_status recorded = submit(l, false, r.frame);
    if (recorded != BP_UNSUPPORTED) return recorded;
    static_cast<void>(take_error());
  }
  return BP_UNSUPPORTED;
}

}  // namespace bp::core
