// Finds and launches kernels.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "registry/boundary/fail.hpp"
#include "registry/boundary/guard.hpp"
#include "registry/boundary/out_struct.hpp"
#include "registry/boundary/out_text.hpp"
#include "registry/boundary/plugin_text.hpp"
#include "registry/boundary/prefix.hpp"
#include "registry/boundary/tables.hpp"
#include "registry/calls/claims.hpp"
#include "registry/calls/own_layouts.hpp"
#include "registry/calls/qualifiers.hpp"
#include "registry/dispatch/host_fallback.hpp"
#include "registry/dispatch/other_dtypes.hpp"
#include "registry/dispatch/packed_rows.hpp"
#include "registry/dispatch/realigning.hpp"
#include "registry/dispatch/reasons.hpp"
#include "registry/dispatch/selection.hpp"
#include "registry/dispatch/submit.hpp"
#include "registry/dispatch/widening.hpp"
#include "registry/services/decompose.hpp"
#include "registry/state/program_refusal.hpp"

namespace bp::core {
namespace {

// The size of the struct in the first release. It stays the same when members are added.
constexpr uint32_t kFirstStatistics =
    offsetof(bp_dispatch_statistics, laid_out_count) + sizeof(uint64_t);

bool is_kernel(const bp_kernel& kernel) {
  return kernel.struct_type == BP_STRUCT_KERNEL && kernel.struct_size >= kFirstKernel &&
         kernel.struct_size <= kMaxStructBytes && kernel.launch != nullptr &&
         kernel.name != nullptr &&
         (kernel.next == nullptr || struct_defect(&kernel, BP_STRUCT_KERNEL, kFirstKernel).empty());
}

bp_status not_a_kernel(const bp_kernel& kernel) {
  const std::string defect = struct_defect(&kernel, BP_STRUCT_KERNEL, kFirstKernel);
  if (defect.empty()) return fail(BP_INVALID_ARGUMENT, "kernel: its launch or its name is NULL");
  return fail(BP_INCOMPATIBLE, "kernel: " + defect);
}

bp_kernel_sources source_of(const bp_kernel& kernel) {
  const OpRow* const row = find_op(kernel.op);  // Kernels of the host have the number of their op.
  if (row == nullptr) return BP_KERNEL_NATIVE;
  if (&kernel == services::decomposition(*row)) return BP_KERNEL_DECOMPOSED;
  if (&kernel == widening(*row)) return BP_KERNEL_DECOMPOSED;
  if (&kernel == by_width(*row) || &kernel == in_i32(*row)) return BP_KERNEL_DECOMPOSED;
  if (&kernel == by_bytes(*row) || &kernel == with_cast_scalars(*row)) return BP_KERNEL_DECOMPOSED;
  if (&kernel == realigning(*row)) return BP_KERNEL_DECOMPOSED;
  if (&kernel == host_fallback(*row)) return BP_KERNEL_HOST_FALLBACK;
  return BP_KERNEL_NATIVE;
}

bp_status undescribed(const bp_kernel& kernel) {
  return fail(BP_NOT_FOUND, clean_name(kernel.name) + ": nobody has described its op, " +
                                clean_name(kernel.op_name));
}

// Refuses a launch of a kernel that does not take the layouts, flags or links of the call.
bp_status check_unkeyed(const OpRow& row, const bp_kernel& kernel, const void* args) {
  alignas(8) std::byte storage[kMaxFrameBytes];
  uint32_t offset = 0;
  const void* const frame = fit_frame(row, args, kernel.args_size_bytes, storage, &offset);
  if (frame == nullptr) return BP_OK;  // submit() refuses such a frame, with a text.
  std::string refusal = qualifiers_refusal(row, kernel, frame);
  if (refusal.empty()) refusal = own_layouts_refusal(row, kernel, frame);
  if (refusal.empty()) return BP_OK;
  return fail(BP_UNSUPPORTED,
              std::string(row.name) + " by " + kernel.name + ": argument " + refusal);
}

void add_counts(const Target& target, const OpRow& row, bp_dispatch_statistics& sum) {
  const DispatchCounts& counts = target.counts[row.index];
  sum.native_count += counts.native;
  sum.decomposed_count += counts.decomposed;
  sum.host_fallback_count += counts.host_fallback;
  sum.copied_scalar_count += counts.copied_scalars;
  sum.realigned_count += counts.realigned;
  sum.laid_out_count += counts.laid_out;
  if (target.compiled == nullptr) return;
  sum.compiled_count += target.compiled->launch_count(row);
}

// Gives what the capture of the host keeps to which `stream` belongs, or NULL. Launches of a
// capture of the backend need kernels that can be captured.
bp_status find_capture(const Target& target, bp_stream* stream,
                       std::shared_ptr<services::CaptureParts>& out_parts) {
  const services::Captures& captures = target.caches->captures();
  if (!captures.any()) [[likely]] {
    return BP_OK;
  }
  return captures.find(stream, out_parts);
}

bool is_capturable(const Candidate& candidate) {
  return candidate.source != BP_KERNEL_NATIVE ||
         (candidate.kernel->flags & BP_KERNEL_CAPTURABLE) != 0;
}

bp_status launch_op(Target& target, bp_stream* stream, bp_launch_flags flags, const Reading& r) {
  const bp_kernel_sources sources = allowed_sources(target);
  if (stream == nullptr) stream = target.default_stream;
  bool was_tried = false;
  std::shared_ptr<services::CaptureParts> capture;
  const bp_status known = find_capture(target, stream, capture);
  if (known != BP_OK) return known;
  const bool is_captured = capture != nullptr;
  if (is_captured && capture->recorder() != nullptr) {
    return capture->recorder()->launch(*r.row, flags, r.frame);
  }
  const bp_kernel* passed_over = nullptr;
  for (const Candidate& candidate : choose(target, *r.row, r.key, r.frame)->candidates) {
    if (!is_taken(target, *r.row, candidate, sources, r.key, r.frame)) continue;
    if (is_captured && !is_capturable(candidate)) {
      passed_over = candidate.kernel;
      continue;
    }
    const Launch l{target, stream, flags, *r.row, *candidate.kernel, candidate.source};
    bp_status status = submit(l, candidate.needs_scalar_tensors, r.frame);
    if (status == BP_OK) [[likely]] {
      count(target, *r.row, candidate.source);
      if (candidate.has_reason) [[unlikely]] {
        const char* const refusal = was_tried ? bp_error_text() : nullptr;
        count_call(reason_of(target, r, *candidate.kernel, candidate.source, refusal));
      }
      return BP_OK;
    }
    if (classify(target, status) != BP_UNSUPPORTED) return status;
    was_tried = true;
  }
  if (passed_over != nullptr) {
    return fail(BP_INVALID_ARGUMENT,
                std::string(r.row->name) + ": the stream captures, and " + passed_over->name +
                    " has no BP_KERNEL_CAPTURABLE; no other kernel serves this call, so submit it "
                    "before or after the capture");
  }
  return nothing_left(target, r, was_tried);
}

}  // namespace
}  // namespace bp::core

// NOLINTNEXTLINE(google-build-using-namespace): the functions below are the namespace's C API.
using namespace bp::core;
using bp::is_null;

bp_status bp_kernel_find(const bp_target* target, bp_launch_flags flags, bp_kernel_sources sources,
                         uint32_t op, const void* args, bp_kernel_choice* out_choice) {
  return guarded([&]() -> bp_status {
    if (out_choice == nullptr) return is_null("out_choice");
    Reading r;
    if (const bp_status status = read(target, flags, op, args, r); status != BP_OK) return status;
    if (sources == 0) sources = allowed_sources(impl(target));
    for (const Candidate& candidate : choose(impl(target), *r.row, r.key, r.frame)->candidates) {
      if (!is_taken(impl(target), *r.row, candidate, sources, r.key, r.frame)) continue;
      *out_choice = {candidate.kernel, candidate.source, 0};
      return BP_OK;
    }
    return nothing_left(impl(target), r, false);
  });
}

// NOLINTNEXTLINE(readability-function-size): host.h has these arguments.
bp_status bp_kernel_explain(const bp_target* target, bp_launch_flags flags, uint32_t op,
                            const void* args, uint64_t capacity, char* text, uint64_t* out_size) {
  return guarded([&]() -> bp_status {
    Reading r;
    if (const bp_status status = read(target, flags, op, args, r); status != BP_OK) return status;
    return write_text(explain(impl(target), *r.row, r.key, r.frame), capacity, text, out_size);
  });
}

bp_status bp_op_launch(const bp_target* target, bp_stream* stream, bp_launch_flags flags,
                       uint32_t op, const void* args) {
  return guarded([&]() -> bp_status {
    Reading r;
    const bp_status status = read_to_launch(target, flags, op, args, r);
    if (status != BP_OK) return status;
    return launch_op(impl(target), stream, flags, r);
  });
}

bp_status bp_kernel_launch(const bp_target* target, bp_stream* stream, bp_launch_flags flags,
                           const bp_kernel* kernel, const void* args) {
  return guarded([&]() -> bp_status {
    if (kernel == nullptr) return is_null("kernel");
    if (!is_kernel(*kernel)) return not_a_kernel(*kernel);
    Reading r;
    const uint32_t op = op_of(*kernel);
    if (op == 0 && names_its_op(*kernel)) return undescribed(*kernel);
    const bp_status status = read_to_launch(target, flags, op, args, r);
    if (status != BP_OK) return status;
    Target& t = impl(target);
    const bp_status refused = refuse_in_program(t, stream, kernel->name);
    if (refused != BP_OK) return refused;
    if (r.key.is_qualified() || has_own_layouts(*r.row, r.key)) [[unlikely]] {
      const bp_status taken = check_unkeyed(*r.row, *kernel, r.frame);
      if (taken != BP_OK) return taken;
    }
    const bp_kernel_sources source = source_of(*kernel);
    const Launch l{t,     stream == nullptr ? t.default_stream : stream, flags, *r.row, *kernel,
                   source};
    const bp_status launched = submit(l, needs_scalar_tensors(*r.row, *kernel, r.key), r.frame);
    if (launched != BP_OK) return launched;
    count(t, *r.row, source);
    if (has_reason(*kernel, source)) count_call(reason_of(t, r, *kernel, source));
    return BP_OK;
  });
}

bp_status bp_target_statistics(const bp_target* target, uint32_t op,
                               bp_dispatch_statistics* out_statistics) {
  if (target == nullptr) return is_null("target");
  if (op != 0 && find_op(op) == nullptr) return unknown_op(op);
  bp_dispatch_statistics sum{};
  for (const OpRow& each : op_rows()) {
    if (op == 0 || each.op == op) add_counts(impl(target), each, sum);
  }
  for (const OpRow* each : runtime_op_rows()) {
    if (op == 0 || each->op == op) add_counts(impl(target), *each, sum);
  }
  return write_out(sum, out_statistics, kFirstStatistics, "out_statistics");
}
