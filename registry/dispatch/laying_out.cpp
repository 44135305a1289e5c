#include "registry/dispatch/laying_out.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "backplane/layout.h"
#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/fail.hpp"
#include "registry/boundary/plugin_text.hpp"
#include "registry/calls/own_layouts.hpp"
#include "registry/dispatch/reasons.hpp"
#include "registry/tensors/strides.hpp"

namespace bp::core {
namespace {

bool is_by_strides(const bp_tensor* tensor) { return tensor != nullptr && !tensor->layout; }

// Returns whether argument i reaches the kernel as a tensor by strides.
bool comes_by_strides(const OpRow& row, const bp_kernel& kernel, const Key& key, uint32_t i) {
  const Fact fact = key.fact(i);
  if (is_given(fact)) return (classes_of(fact) & ~kOpaqueClass) != 0;
  return row.tensors[i].has_scalar() && is_inline(fact) &&
         (kernel.flags & BP_KERNEL_TAKES_SCALAR) == 0;
}

// Returns the claim that takes argument i in its layouts alone, for a call that gives the argument
// by strides; NULL if the argument may stay as it is.
const bp_layout_claim* claim_for(const OpRow& row, const bp_kernel& kernel, const Key& key,
                                 uint32_t i) {
  if (row.tensors[i].offset >= kernel.args_size_bytes) return nullptr;
  if (!comes_by_strides(row, kernel, key, i)) return nullptr;
  return required_claim(kernel, i);
}

// Returns the description of the layout that `claim` asks for, for a tensor. `block` is its memory.
bp_layout_desc describe_for(const bp_layout_claim& claim, const bp_tensor& tensor,
                            std::array<int64_t, BP_MAX_RANK>& block) {
  block.fill(1);
  const uint32_t shared = std::min(claim.block_ndim, tensor.ndim);
  std::copy_n(claim.block_shape + (claim.block_ndim - shared), shared,
              block.begin() + (tensor.ndim - shared));
  return {.struct_size = sizeof(bp_layout_desc),
          .struct_type = BP_STRUCT_LAYOUT_DESC,
          .next = nullptr,
          .shape = tensor.shape,
          .block_shape = block.data(),
          .ndim = tensor.ndim,
          .kind = claim.kind,
          .dtype = tensor.dtype,
          .scale_dtype = 0,
          .format_name = nullptr};
}

// References to layouts, which end with this object.
struct HeldLayouts {
  explicit HeldLayouts(const bp_layout_ops& its_ops) : ops(its_ops) {}
  HeldLayouts(const HeldLayouts&) = delete;
  ~HeldLayouts() {
    for (const bp_layout* layout : layouts) static_cast<void>(ops.release(ops.self, layout));
  }

  const bp_layout_ops& ops;
  std::deque<const bp_layout*> layouts;
};

// A copy of a frame whose tensors by strides are in the layouts that the kernel takes. While it
// lives, it holds the layouts, and the memory of the tensors.
class LaidFrame {
 public:
  LaidFrame(const Target& target, const OpRow& row, const bp_kernel& kernel)
      : layouts_(target.own_tables.layouts), target_(target), row_(row), kernel_(kernel) {}
  LaidFrame(const LaidFrame&) = delete;

  // Makes the layouts of a frame that fits the kernel. The new tensors have no memory of their own
  // yet.
  bp_status read(const void* frame) {
    std::memcpy(frame_.data(), frame, kernel_.args_size_bytes);
    for (uint32_t i = 0; i < row_.tensor_count; ++i) {
      const TensorArgument& argument = row_.tensors[i];
      if (argument.offset >= kernel_.args_size_bytes) continue;
      const bp_layout_claim* const claim = required_claim(kernel_, i);
      if (claim == nullptr) continue;
      const bp_status status = argument.is_list() ? read_list(argument, *claim, frame)
                                                  : read_tensor(argument, *claim, frame);
      if (status != BP_OK) return status;
    }
    return BP_OK;
  }

  bool is_changed() const { return !laid_.empty(); }
  const void* data() const { return frame_.data(); }

  // The references to the layouts of the frame.
  const std::shared_ptr<HeldLayouts>& held() const { return held_; }

  // Takes memory for the tensors, and converts what the kernel reads.
  bp_status convert_inputs(const Launch& l) {
    for (Laid& each : laid_) {
      if (tensors::element_count(each.tensor) == 0) continue;
      bp_status status = take_memory(l, each);
      if (status == BP_OK && each.is_read) status = convert(l, each, each.tensor, *each.given);
      if (status != BP_OK) return status;
    }
    return BP_OK;
  }

  bp_status convert_outputs(const Launch& l) const {
    for (const Laid& each : laid_) {
      if (!each.is_written || tensors::element_count(each.tensor) == 0) continue;
      const bp_status status = convert(l, each, *each.given, each.tensor);
      if (status != BP_OK) return status;
    }
    return BP_OK;
  }

 private:
  struct Laid {
    bp_tensor tensor;  // In a layout.
    const bp_tensor* given;
    bool is_read, is_written;
    const TensorArgument* argument;
    int64_t place;  // In a list; -1: the argument is none.
    BlockHandle block{};
  };

  bp_status read_tensor(const TensorArgument& argument, const bp_layout_claim& claim,
                        const void* frame) {
    const bp_tensor* tensor = tensor_at(frame, argument);
    if (!is_by_strides(tensor)) return BP_OK;
    const bp_status status = lay_out(argument, -1, claim, tensor);
    // NOLINTNEXTLINE(bugprone-sizeof-expression): the pointer itself is written.
    std::memcpy(frame_.data() + argument.offset, &tensor, sizeof(tensor));
    return status;
  }

  bp_status read_list(const TensorArgument& argument, const bp_layout_claim& claim,
                      const void* frame) {
    const TensorList given = list_at(frame, argument);
    std::vector<const bp_tensor*>& items =
        lists_.emplace_back(given.items, given.items + given.count);
    for (size_t i = 0; i < items.size(); ++i) {
      if (!is_by_strides(items[i])) continue;
      const bp_status status = lay_out(argument, static_cast<int64_t>(i), claim, items[i]);
      if (status != BP_OK) return status;
    }
    const bp_tensor* const* const data = items.data();
    // NOLINTNEXTLINE(bugprone-sizeof-expression): the pointer itself is written.
    std::memcpy(frame_.data() + argument.offset, &data, sizeof(data));
    return BP_OK;
  }

  // Replaces `tensor` by one in the layout of the claim.
  bp_status lay_out(const TensorArgument& argument, int64_t place, const bp_layout_claim& claim,
                    const bp_tensor*& tensor) {
    const std::string subject = call_text() + argument.name + ": ";
    if (!is_described(claim))
      return fail(BP_UNSUPPORTED, subject + strides_refusal(kernel_, claim));
    std::array<int64_t, BP_MAX_RANK> block;
    const bp_layout_desc desc = describe_for(claim, *tensor, block);
    if (held_ == nullptr) held_ = std::make_shared<HeldLayouts>(layouts_);
    const bp_layout*& layout = held_->layouts.emplace_back();
    const bp_status status = layouts_.from_desc(layouts_.self, target_.device, &desc, &layout);
    if (status != BP_OK) return fail(status, subject + take_error());
    const bool is_output = argument.is_output() || argument.kind == Kind::out_list;
    const bool is_inout = argument.kind == Kind::inout || argument.kind == Kind::inout_list;
    Laid& laid = laid_.emplace_back(
        Laid{*tensor, tensor, !is_output, is_output || is_inout, &argument, place});
    laid.tensor.layout = layout;
    tensors::set_contiguous_strides(tensor->ndim, tensor->shape, strides_.emplace_back().data());
    laid.tensor.strides = strides_.back().data();
    laid.tensor.byte_offset = 0;
    tensor = &laid.tensor;
    return BP_OK;
  }

  static bp_status take_memory(const Launch& l, Laid& laid) {
    const bp_layout& layout = *laid.tensor.layout;
    const uint64_t alignment = std::max(layout.alignment_bytes, services::kRounding);
    const uint64_t size_bytes = layout.physical_size_bytes + alignment - services::kRounding;
    bp_block* block = nullptr;
    const bp_status status = l.target.cache->allocate(l.stream, size_bytes, &block);
    if (status != BP_OK) return status;
    laid.block.reset(block);
    laid.tensor.buffer = block->ref.buffer;
    laid.tensor.byte_offset = services::round_up(block->ref.byte_offset, alignment);
    return BP_OK;
  }

  std::string call_text() const {
    return std::string(row_.name) + " by " + clean_name(kernel_.name) + ": ";
  }

  // A refusal of the backend speaks of dst and src, and the caller knows the tensor of its call.
  bp_status convert(const Launch& l, const Laid& laid, const bp_tensor& dst,
                    const bp_tensor& src) const {
    const bp_status status = layouts_.convert(layouts_.self, l.stream, &dst, &src);
    if (status == BP_OK || status == BP_STREAM_FAILED) return status;
    std::string name = laid.argument->name;
    if (laid.place >= 0) name += "[" + std::to_string(laid.place) + "]";
    return fail(status, call_text() + "tensor " + name + ": " + take_error());
  }

  const bp_layout_ops& layouts_;
  const Target& target_;
  const OpRow& row_;
  const bp_kernel& kernel_;
  alignas(8) std::array<std::byte, kMaxFrameBytes> frame_;
  std::shared_ptr<HeldLayouts> held_;  // NULL as long as there are none.
  std::deque<Laid> laid_;              // A deque does not move its elements.
  std::deque<std::array<int64_t, BP_MAX_RANK>> strides_;
  std::deque<std::vector<const bp_tensor*>> lists_;
};

// Converts the results of a kernel that was submitted. If it has failed already, because of bad
// data, its stream says so, and the launch stands.
bp_status results_of(const LaidFrame& laid, const Launch& l) {
  const bp_status status = laid.convert_outputs(l);
  if (status != BP_STREAM_FAILED) return status;
  static_cast<void>(take_error());
  return BP_OK;
}

}  // namespace

bool needs_layouts(const OpRow& row, const bp_kernel& kernel, const Key& key) {
  if (!requires_layouts(kernel)) return false;
  for (uint32_t i = 0; i < row.tensor_count; ++i) {
    if (claim_for(row, kernel, key, i) != nullptr) return true;
  }
  return false;
}

std::string laying_out_refusal(const Target& target, const OpRow& row, const bp_kernel& kernel,
                               const Key& key) {
  if (!requires_layouts(kernel)) return "";
  for (uint32_t i = 0; i < row.tensor_count; ++i) {
    const bp_layout_claim* const claim = claim_for(row, kernel, key, i);
    if (claim == nullptr || (is_described(*claim) && target.has_table(BP_STRUCT_LAYOUT_OPS))) {
      continue;
    }
    return std::string(row.tensors[i].name) + ": " + strides_refusal(kernel, *claim);
  }
  return "";
}

std::string laying_out_text(const OpRow& row, const bp_kernel& kernel, const Key& key) {
  std::vector<std::string> names;
  std::string layouts;
  for (uint32_t i = 0; i < row.tensor_count; ++i) {
    const bp_layout_claim* const claim = claim_for(row, kernel, key, i);
    if (claim == nullptr) continue;
    names.emplace_back(row.tensors[i].name);
    const std::string layout = claim_text(*claim);
    if (layouts.find(layout) == std::string::npos)
      layouts += (layouts.empty() ? "" : ", ") + layout;
  }
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  }
  return text + (names.size() == 1 ? " is" : " are") + " converted to " + layouts;
}

std::string supports_refusal(const Target& target, const OpRow& row, const bp_kernel& kernel,
                             bp_launch_flags flags, const void* frame) {
  if (kernel.supports == nullptr) return "";
  LaidFrame laid(target, row, kernel);
  if (requires_layouts(kernel)) {
    if (laid.read(frame) != BP_OK) return take_error();
    frame = laid.data();
  }
  const bp_reason reason = kernel.supports(&kernel, target.device, flags, frame);
  // An empty text is a refusal too.
  return reason == nullptr ? ""
         : *reason == '\0' ? "it refuses without a reason"
                           : clean_text(reason, LineBreaks::kIndent);
}

bp_status call_with_layouts(const Launch& l, const void* frame) {
  LaidFrame laid(l.target, l.row, l.kernel);
  bp_status status = laid.read(frame);
  if (status != BP_OK) return status;
  if (!laid.is_changed()) return call_in_place(l, frame);
  status = check_not_capturing(l, "its tensors in other layouts");
  if (status == BP_OK) status = laid.convert_inputs(l);
  if (status == BP_OK) status = call_in_place(l, laid.data());
  if (status == BP_OK) status = results_of(laid, l);
  if (status != BP_OK) return status;
  l.target.counts[l.row.index].laid_out.fetch_add(1, std::memory_order_relaxed);
  count_call(reason_of_layouts(l.target, l.row, l.kernel));
  const services::Captures& captures = l.target.caches->captures();
  return captures.any() ? captures.keep(l.stream, laid.held()) : BP_OK;
}

}  // namespace bp::core
