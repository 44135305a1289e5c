#include "registry/dispatch/selection.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "registry/boundary/fail.hpp"
#include "registry/calls/claims.hpp"
#include "registry/calls/own_layouts.hpp"
#include "registry/calls/qualifiers.hpp"
#include "registry/dispatch/host_fallback.hpp"
#include "registry/dispatch/laying_out.hpp"
#include "registry/dispatch/other_dtypes.hpp"
#include "registry/dispatch/other_frame.hpp"
#include "registry/dispatch/packed_rows.hpp"
#include "registry/dispatch/realigning.hpp"
#include "registry/dispatch/reasons.hpp"
#include "registry/dispatch/widening.hpp"
#include "registry/services/decompose.hpp"

namespace bp::core {
namespace {

constexpr bp_supports_ignores kIgnoresAll =
    BP_SUPPORTS_IGNORES_SHAPE | BP_SUPPORTS_IGNORES_ATTRIBUTES | BP_SUPPORTS_IGNORES_ALIGNMENT;

// Returns whether the answer of supports() holds for every call with the same key. The answer must
// not depend on shapes, on attributes (the flags of the frame are attributes) or on alignment. A
// kernel that was written for another frame, or before values came, is asked about every call.
bool is_rememberable(const OpRow& row, const bp_kernel& kernel) {
  return kernel.args_size_bytes == row.frame_size_bytes && knows_all_values(row, kernel) &&
         (kernel.supports == nullptr || (kernel.supports_ignores & kIgnoresAll) == kIgnoresAll);
}

// Returns text like "a f32 rank 2 contiguous" for a tensor of a call.
std::string fact_text(const TensorArgument& argument, Fact fact) {
  std::string text = argument.name;
  if (!is_given(fact)) {
    return text + (argument.has_scalar() && is_inline(fact) ? " scalar" : " not given");
  }
  text += " " + dtype_text(dtype_of(fact)) + " rank " + std::to_string(rank_of(fact));
  for (bp_layout_flags bit = 1; bit <= kOpaqueClass; bit <<= 1) {
    if ((classes_of(fact) & bit) != 0) text += std::string(" ") + layout_name(bit);
  }
  return text;
}

std::string call_text(const Target& target, const OpRow& row, const Key& key) {
  std::string text = std::string(row.name) + "(";
  for (uint32_t i = 0; i < row.tensor_count; ++i) {
    text += (i == 0 ? "" : ", ") + fact_text(row.tensors[i], key.fact(i));
  }
  return text + ") on " + target.name;
}

// Returns why the host's own kernels, which know neither layouts of a backend nor links and flags
// of tensors, do not take the call, or "" if they do.
std::string own_kernels_refusal(const OpRow& row, const Key& key) {
  if (has_own_layouts(row, key)) return "it takes tensors by strides alone";
  return key.is_qualified() ? "it knows no flags of tensors, and no links that must be understood"
                            : "";
}

// Returns why the decomposition of the op is not a candidate, or "" if it is one.
std::string decomposition_refusal(const Target& target, const OpRow& row, const Key& key) {
  if (services::decomposition(row) == nullptr) return "the op has none";
  std::string refusal = own_kernels_refusal(row, key);
  if (!refusal.empty()) return refusal;
  const bool is_forbidden = (allowed_sources(target) & BP_KERNEL_DECOMPOSED) == 0;
  return is_forbidden ? "the flags of the registry forbid it" : "";
}

// Returns why the host does not run the call on other tensors: in another dtype or at other
// offsets, or "" if it does.
std::string copies_refusal(const Target& target, const OpRow& row, const Key& key) {
  std::string refusal = own_kernels_refusal(row, key);
  if (!refusal.empty()) return refusal;
  const bool is_forbidden = (allowed_sources(target) & BP_KERNEL_DECOMPOSED) == 0;
  return is_forbidden ? "the flags of the registry forbid it" : "";
}

// Returns why the host does not run the call in another dtype, for which other_dtypes.hpp has the
// refusal `own`, or "" if it does.
std::string dtype_refusal(const Target& target, const OpRow& row, const Key& key,
                          const std::string& own) {
  return own.empty() ? copies_refusal(target, row, key) : own;
}

// Returns why the host does not copy the tensors to aligned places, or "" if it does.
std::string realigning_refusal(const Target& target, const OpRow& row, const Key& key) {
  if (target.kernels.of(row).empty()) return "the device has no kernel for this op";
  return copies_refusal(target, row, key);
}

std::string host_fallback_refusal(const Target& target, const OpRow& row, const Key& key) {
  if (host_fallback(row) == nullptr) return "the op has none";
  std::string refusal = own_kernels_refusal(row, key);
  if (!refusal.empty()) return refusal;
  if ((allowed_sources(target) & BP_KERNEL_HOST_FALLBACK) == 0) {
    return "the flags of the registry forbid it";
  }
  const bp_target* host = host_target(target.registry);
  if (host == nullptr) {
    return "no device of class host is loaded; load a backend that has one, such as a CPU backend";
  }
  return host == &target ? "this is the host" : "";
}

// Returns why the kernel is not one of this op, or why its claims do not cover the call, or "". A
// kernel that was added before its op was described is judged here.
std::string kernel_refusal(const Target& target, const OpRow& row, const bp_kernel& kernel,
                           const Key& key) {
  std::string refusal = is_runtime_op(row) ? revision_defect(row, kernel) : "";
  if (refusal.empty()) refusal = claims_refusal(row, kernel, key);
  return refusal.empty() ? laying_out_refusal(target, row, kernel, key) : refusal;
}

// Returns the kernels of the device for an op in the order in which they are tried: those that take
// the tensors of the call as they lie come first.
std::vector<const bp_kernel*> ordered_kernels(const Target& target, const OpRow& row,
                                              const Key& key) {
  const auto& of_op = target.kernels.of(row);
  std::vector<const bp_kernel*> kernels(of_op.begin(), of_op.end());
  // clang 14 cannot compile std::ranges::stable_partition() of the library of g++ 12.
  std::stable_partition(kernels.begin(), kernels.end(),
                        [&](const bp_kernel* kernel) { return !needs_layouts(row, *kernel, key); });
  return kernels;
}

std::unique_ptr<const Choices> make_choices(const Target& target, const OpRow& row, const Key& key,
                                            const void* args) {
  auto choices = std::make_unique<Choices>();
  choices->key = key;
  choices->hash = key.hash(row.tensor_count);
  // The key says only that a tensor has a layout of the backend's own. It does not say which one,
  // so the kernel must be asked about every call.
  // The same holds for links that must be understood, and for flags of tensors.
  const bool has_unkeyed = has_own_layouts(row, key) || key.is_qualified();
  // The key does not have the values of scalars, on which it depends whether x can hold them.
  const bool is_narrow = has_narrow_operand(row, key);
  const bool is_misplaced = !offset_refusal(target, row, key).empty();
  for (const bp_kernel* kernel : ordered_kernels(target, row, key)) {
    if (is_misplaced || !kernel_refusal(target, row, *kernel, key).empty()) continue;
    const bool asks =
        has_unkeyed || !is_rememberable(row, *kernel) || (is_narrow && rounds_operands(*kernel));
    if (!asks && kernel->supports != nullptr &&
        !call_refusal(target, row, *kernel, key, args).empty()) {
      continue;
    }
    choices->candidates.push_back({kernel, BP_KERNEL_NATIVE, asks,
                                   needs_scalar_tensors(row, *kernel, key),
                                   has_reason(*kernel, BP_KERNEL_NATIVE)});
  }
  const auto add_service = [&](const bp_kernel* kernel, bp_kernel_sources source) {
    choices->candidates.push_back({kernel, source, !is_rememberable(row, *kernel),
                                   needs_scalar_tensors(row, *kernel, key), true});
  };
  if (is_misplaced && realigning_refusal(target, row, key).empty()) {
    add_service(realigning(row), BP_KERNEL_DECOMPOSED);
  }
  if (decomposition_refusal(target, row, key).empty()) {
    add_service(services::decomposition(row), BP_KERNEL_DECOMPOSED);
  }
  if (dtype_refusal(target, row, key, by_width_refusal(row, key)).empty()) {
    add_service(by_width(row), BP_KERNEL_DECOMPOSED);
  }
  if (dtype_refusal(target, row, key, by_bytes_refusal(row, key)).empty()) {
    add_service(by_bytes(row), BP_KERNEL_DECOMPOSED);
  }
  if (is_narrow && copies_refusal(target, row, key).empty()) {
    add_service(widening(row), BP_KERNEL_DECOMPOSED);
  }
  if (dtype_refusal(target, row, key, in_i32_refusal(row, key)).empty()) {
    add_service(in_i32(row), BP_KERNEL_DECOMPOSED);
  }
  if (dtype_refusal(target, row, key, cast_scalars_refusal(row, key)).empty()) {
    add_service(with_cast_scalars(row), BP_KERNEL_DECOMPOSED);
  }
  if (host_fallback_refusal(target, row, key).empty()) {
    add_service(host_fallback(row), BP_KERNEL_HOST_FALLBACK);
  }
  return choices;
}

// Adds the line of one candidate to an explanation. The first candidate without a refusal is the
// one that is taken. `note` says what the host does for it.
void add_line(std::string& text, const std::string& who, const std::string& refusal,
              bool& is_decided, const std::string& note = "") {
  const std::string taken = is_decided ? "not needed" : "taken" + note;
  if (refusal.empty()) is_decided = true;
  text += "\n  " + who + ": " + (refusal.empty() ? taken : refusal);
}

}  // namespace

const Choices* choose_anew(Target& target, const OpRow& row, const Key& key, uint64_t hash,
                           const void* args) {
  const uint64_t generation = target.selection.generation();
  return target.selection.insert(make_choices(target, row, key, args), hash, generation);
}

std::string call_refusal(const Target& target, const OpRow& row, const bp_kernel& kernel,
                         const Key& key, const void* args) {
  alignas(8) std::byte storage[kMaxFrameBytes];
  uint32_t offset = 0;
  const void* frame = fit_frame(row, args, kernel.args_size_bytes, storage, &offset);
  if (frame == nullptr) {
    return later_member_refusal(row, kernel, offset);
  }
  std::string refusal = later_value_refusal(row, kernel, frame);
  if (refusal.empty()) refusal = operand_value_refusal(row, kernel, frame);
  if (refusal.empty() && key.is_qualified()) refusal = qualifiers_refusal(row, kernel, frame);
  if (refusal.empty()) refusal = own_layouts_refusal(row, kernel, frame);
  return refusal.empty() ? supports_refusal(target, row, kernel, key.flags(), frame) : refusal;
}

bool accepts(const Target& target, const OpRow& row, const bp_kernel& kernel, const Key& key,
             const void* args) {
  return call_refusal(target, row, kernel, key, args).empty();
}

std::string explain(Target& target, const OpRow& row, const Key& key, const void* args) {
  std::string text = call_text(target, row, key);
  bool is_decided = false;
  const auto& kernels = target.kernels.of(row);
  if (target.is_compile_only) {
    return text + "\n  " + std::string(target.plugin->name) +
           ": the device runs compiled programs alone, and nothing is compiled unasked; prepare "
           "the call, compile a program, or make the registry with BP_REGISTRY_COMPILE_OPS";
  }
  if (kernels.empty()) {
    text += "\n  " + std::string(target.plugin->name) + ": has no kernel for this op";
  }
  const std::string misplaced = offset_refusal(target, row, key);
  for (const bp_kernel* kernel : ordered_kernels(target, row, key)) {
    std::string refusal = misplaced.empty() ? kernel_refusal(target, row, *kernel, key) : misplaced;
    if (refusal.empty()) refusal = call_refusal(target, row, *kernel, key, args);
    const std::string note =
        needs_layouts(row, *kernel, key) ? "; " + laying_out_text(row, *kernel, key) : "";
    add_line(text, std::string(target.plugin->name) + "/" + kernel->name, refusal, is_decided,
             note);
  }
  if (!misplaced.empty()) {
    add_line(text, "realigned", realigning_refusal(target, row, key), is_decided);
  }
  std::string undecomposed = decomposition_refusal(target, row, key);
  if (undecomposed.empty()) {
    undecomposed = call_refusal(target, row, *services::decomposition(row), key, args);
  }
  add_line(text, "decomposition", undecomposed, is_decided);
  if (row.moves != Moves::none) {
    add_line(text, "by width", dtype_refusal(target, row, key, by_width_refusal(row, key)),
             is_decided);
  }
  if (row.moves != Moves::none && is_packed(dtype_of(key.fact(root_of(row))))) {
    std::string refusal = dtype_refusal(target, row, key, by_bytes_refusal(row, key));
    if (refusal.empty()) refusal = call_refusal(target, row, *by_bytes(row), key, args);
    add_line(text, "by bytes", refusal, is_decided);
  }
  if (has_narrow_operand(row, key)) {
    add_line(text, "in f32", copies_refusal(target, row, key), is_decided);
  }
  if (const std::string own = in_i32_refusal(row, key); own.empty()) {
    add_line(text, "in i32", copies_refusal(target, row, key), is_decided);
  }
  if (const std::string own = cast_scalars_refusal(row, key); own.empty()) {
    add_line(text, "with cast scalars", copies_refusal(target, row, key), is_decided);
  }
  add_line(text, "host fallback", host_fallback_refusal(target, row, key), is_decided);
  return text;
}

}  // namespace bp::core
