#include "registry/dispatch/reasons.hpp"

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "registry/boundary/fail.hpp"
#include "registry/boundary/guard.hpp"
#include "registry/boundary/out_struct.hpp"
#include "registry/calls/own_layouts.hpp"
#include "registry/dispatch/selection.hpp"

namespace bp::core {
namespace {

constexpr uint32_t kFirstReason = offsetof(bp_dispatch_reason, source) + sizeof(bp_kernel_sources);

// Returns a hash of what the kernels of the device answer to the call, for those that are asked
// about each call. Reasons of kernels are static strings, so their addresses tell them apart.
uint64_t hash_refusals(const Target& target, const Choices& choices, const Reading& r) {
  uint64_t hash = 0;
  for (const Candidate& candidate : choices.candidates) {
    const bp_kernel& kernel = *candidate.kernel;
    if (candidate.source != BP_KERNEL_NATIVE || !candidate.asks_supports) continue;
    bp_reason answer = nullptr;
    if (kernel.supports != nullptr && frame_size(r.frame) == kernel.args_size_bytes) {
      answer = kernel.supports(&kernel, target.device, r.key.flags(), r.frame);
    }
    hash = hash * 0x9E3779B97F4A7C15u + std::hash<const void*>{}(answer);
  }
  return hash;
}

// Returns whether bp_kernel_find() chooses `kernel` for the call.
bool is_chosen(Target& target, const Choices& choices, const Reading& r, const bp_kernel& kernel) {
  const bp_kernel_sources sources = allowed_sources(target);
  for (const Candidate& candidate : choices.candidates) {
    if (!is_taken(target, *r.row, candidate, sources, r.key, r.frame)) continue;
    return candidate.kernel == &kernel;
  }
  return false;
}

// What a reason is made of.
struct Served {
  const Reading& call;
  const bp_kernel& kernel;
  bp_kernel_sources source;
  const char* refusal;
};

std::string text_of(Target& target, const Choices& choices, const Served& s) {
  const Reading& r = s.call;
  const std::string call = std::string(r.row->name) + " on " + target.name;
  if (s.refusal != nullptr) {
    return call + ": " + s.kernel.name +
           " is next to a kernel that refused the launch: " + s.refusal;
  }
  if (s.source == BP_KERNEL_NATIVE) {
    return call +
           ": compiled as a program of one op, because no other kernel of the device takes the "
           "call";
  }
  if (is_chosen(target, choices, r, s.kernel)) return explain(target, *r.row, r.key, r.frame);
  return call + ": the caller named " + s.kernel.name + ", which is not the first choice";
}

}  // namespace

Reason& reason_of(Target& target, const Reading& r, const bp_kernel& kernel,
                  bp_kernel_sources source, const char* refusal) {
  const Choices* const choices = choose(target, *r.row, r.key, r.frame);
  const uint64_t refusals = refusal == nullptr ? hash_refusals(target, *choices, r)
                                               : std::hash<std::string_view>{}(refusal);
  const Reasons::Cause cause{choices, &kernel, refusals};
  Reason* const known = target.reasons.find(cause);
  if (known != nullptr) return *known;
  return target.reasons.add(cause, r.row->op, source,
                            text_of(target, *choices, {r, kernel, source, refusal}));
}

Reason& reason_of_scalar(Target& target, const OpRow& row, const bp_kernel& kernel,
                         uint32_t index) {
  const TensorArgument& argument = row.tensors[index];
  const Reasons::Cause cause{&argument, &kernel};
  Reason* const known = target.reasons.find(cause);
  if (known != nullptr) return *known;
  return target.reasons.add(cause, row.op, BP_KERNEL_NATIVE,
                            std::string(row.name) + " on " + target.name + ": " + kernel.name +
                                " takes " + argument.name +
                                " as a tensor alone, which is made of each inline value");
}

Reason& reason_of_layouts(Target& target, const OpRow& row, const bp_kernel& kernel) {
  const Reasons::Cause cause{&row, &kernel};
  Reason* const known = target.reasons.find(cause);
  if (known != nullptr) return *known;
  return target.reasons.add(
      cause, row.op, BP_KERNEL_NATIVE,
      std::string(row.name) + " on " + target.name + ": " + kernel.name + " takes " +
          required_text(row, kernel) +
          " alone, so tensors by strides are converted for each call, and results back; lay them "
          "out once to avoid this (api/docs/layouts.md)");
}

}  // namespace bp::core

// NOLINTNEXTLINE(google-build-using-namespace): the functions below are the namespace's C API.
using namespace bp::core;
using bp::fail;
using bp::is_null;

uint64_t bp_target_reason_count(const bp_target* target) {
  return target == nullptr ? 0 : impl(target).reasons.count();
}

bp_status bp_target_reason(const bp_target* target, uint64_t index,
                           bp_dispatch_reason* out_reason) {
  return guarded([&]() -> bp_status {
    if (target == nullptr) return is_null("target");
    if (out_reason == nullptr) return is_null("out_reason");
    const Reason* const reason = impl(target).reasons.at(index);
    if (reason == nullptr) {
      return fail(BP_NOT_FOUND, "target.reason: index is " + std::to_string(index) +
                                    ", and there are " +
                                    std::to_string(bp_target_reason_count(target)) + " reasons");
    }
    const bp_dispatch_reason found{
        .text = reason->text.c_str(),
        .call_count = reason->call_count.load(std::memory_order_relaxed),
        .op = reason->op,
        .source = reason->source,
    };
    return write_out(found, out_reason, kFirstReason, "out_reason");
  });
}
