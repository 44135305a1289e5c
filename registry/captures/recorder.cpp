#include "registry/captures/recorder.hpp"

#include <algorithm>
#include <optional>
#include <tuple>

#include "backplane/host.h"
#include "backplane/ops.h"
#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/fail.hpp"
#include "registry/calls/call.hpp"
#include "registry/calls/one_node.hpp"
#include "registry/captures/other_forms.hpp"
#include "registry/captures/refused_node.hpp"
#include "registry/tensors/strides.hpp"

namespace bp::core {
namespace {

// From here on a value is a range of outside_, before finish().
constexpr uint32_t kFirstOutside = 1u << 31;

// Sorts ranges, and joins those that overlap.
std::vector<ByteRange> joined(std::vector<ByteRange> ranges) {
  const auto place = [](const ByteRange& r) {
    return std::make_tuple(reinterpret_cast<uintptr_t>(r.buffer), r.begin, r.end);
  };
  std::ranges::sort(ranges, {}, place);
  std::vector<ByteRange> all;
  for (const ByteRange& range : ranges) {
    if (all.empty() || !all.back().overlaps(range)) {
      all.push_back(range);
    } else {
      all.back().end = std::max(all.back().end, range.end);
    }
  }
  return all;
}

}  // namespace

void ProgramRecorder::hand_out(const bp_buffer_ref& ref) {
  if (ref.size_bytes == 0) return;
  const std::lock_guard lock(mutex_);
  const ByteRange range{ref.buffer, ref.byte_offset, ref.byte_offset + ref.size_bytes};
  std::erase_if(current_,
                [&](const auto& each) { return sources_[each.second].range.overlaps(range); });
  current_[{range.buffer, range.begin}] = static_cast<uint32_t>(sources_.size());
  sources_.push_back({range, false, false});
}

bp_status ProgramRecorder::check_tensor(const OpRow& row, const bp_tensor& tensor) const {
  const char* what = nullptr;
  if (tensor.layout != nullptr) what = "a tensor in a layout";
  if (tensor.flags != 0) what = "a tensor with flags";
  if (what == nullptr) return BP_OK;
  return fail(BP_UNSUPPORTED, std::string(row.name) + ": the stream captures a program, and " +
                                  what + " is not recorded in one");
}

bp_status ProgramRecorder::find_value(const OpRow& row, const bp_tensor& tensor,
                                      uint32_t& out_value) {
  if (const bp_status status = check_tensor(row, tensor); status != BP_OK) return status;
  out_value = kEmpty;
  if (!tensors::has_elements(tensor)) return BP_OK;
  const ByteRange range = range_of(tensor);
  // Blocks do not overlap, so the last one that begins before the end of the tensor has all of it,
  // or the tensor is in no block.
  const auto next = current_.lower_bound({range.buffer, range.end});
  if (next != current_.begin()) {
    const uint32_t value = std::prev(next)->second;
    if (sources_[value].range.contains(range)) {
      out_value = value;
      return BP_OK;
    }
    if (sources_[value].range.overlaps(range)) {
      return fail(BP_INVALID_ARGUMENT, std::string(row.name) +
                                           ": the stream captures a program, and a tensor leaves "
                                           "the block of the capture in which it lies");
    }
  }
  out_value = kFirstOutside + static_cast<uint32_t>(outside_.size());
  outside_.push_back(range);
  return BP_OK;
}

bp_status ProgramRecorder::check_compiler(const OpRow& row, bp_launch_flags flags,
                                          const void* frame) const {
  const OneNode node(row, frame, tensors_of(row, frame));
  const bp_compile_desc desc = node.desc(flags);
  DecomposedHandle decomposed;
  const bp_compile_desc* whole = nullptr;
  const bp_status status = decompose(target_, desc, decomposed, whole);
  if (status != BP_OK) return status;
  const std::string refusal = refused_node(target_, *whole, *decomposed);
  if (refusal.empty()) return BP_OK;
  return fail(BP_UNSUPPORTED, std::string(row.name) +
                                  ": the stream captures a program, and the "
                                  "compiler of " +
                                  target_.name + " does not take this launch: " + refusal);
}

bp_status ProgramRecorder::launch(const OpRow& row, bp_launch_flags flags, const void* frame) {
  if (const bp_status status = bp_op_check(row.op, frame); status != BP_OK) return status;
  flags &= ~bp_launch_flags{BP_LAUNCH_DEVICE_CURRENT};
  const bp_status status = check_compiler(row, flags, frame);
  if (status == BP_OK) return append(row, flags, frame);
  if (status != BP_UNSUPPORTED) return status;
  const std::string words = take_error();
  const uint64_t count = node_count();
  const bp_status in_other_form = record_other_form(target_, *this, row, flags, frame);
  if (in_other_form != BP_UNSUPPORTED) return in_other_form;
  const std::lock_guard lock(mutex_);
  nodes_.erase(nodes_.begin() + static_cast<ptrdiff_t>(count), nodes_.end());
  return fail(status, words);
}

bp_buffer* ProgramRecorder::make_buffer(uint64_t size_bytes) {
  bp_buffer* buffer = nullptr;
  {
    const std::lock_guard lock(mutex_);
    buffer = reinterpret_cast<bp_buffer*>(&marks_.emplace_back());
  }
  hand_out({buffer, 0, size_bytes});
  return buffer;
}

bp_status ProgramRecorder::append(const OpRow& row, bp_launch_flags flags, const void* frame) {
  const std::lock_guard lock(mutex_);
  if (!nodes_.empty() && flags != flags_) {
    return fail(BP_UNSUPPORTED, std::string(row.name) +
                                    ": the stream captures a program, whose launches have one "
                                    "set of flags; those of the first launch are " +
                                    std::to_string(flags_) + ", and those of this one " +
                                    std::to_string(flags));
  }
  MadeNode node;
  node.frame = std::make_unique<NodeFrame>(row, frame);
  for (const bp_tensor* const tensor : node.frame->tensors()) {
    uint32_t value = BP_NO_VALUE;
    if (tensor != nullptr) {
      const bp_status status = find_value(row, *tensor, value);
      if (status != BP_OK) return status;
    }
    node.values.push_back(value);
  }
  bool writes = false;
  for_tensors(node, [&](size_t k, Access access) {
    writes |= access != Access::read && node.values[k] != kEmpty;
  });
  if (!writes) return BP_OK;  // There is nothing to compute.
  flags_ = flags;
  nodes_.push_back(std::move(node));
  return BP_OK;
}

uint64_t ProgramRecorder::node_count() const {
  const std::lock_guard lock(mutex_);
  return nodes_.size();
}

bp_status ProgramRecorder::finish(const std::vector<bp_buffer_ref>& held, RecordedProgram& out) {
  const std::lock_guard lock(mutex_);
  for (const bp_buffer_ref& block : held) {
    const auto found = current_.find({block.buffer, block.byte_offset});
    if (found != current_.end()) sources_[found->second].is_held = true;
  }
  const std::vector<ByteRange> outside = joined(outside_);
  const auto first = static_cast<uint32_t>(sources_.size());
  for (const ByteRange& range : outside) sources_.push_back({range, true, false});
  for (MadeNode& node : nodes_) {
    for (uint32_t& value : node.values) {
      if (value < kFirstOutside || value >= kEmpty) continue;
      const ByteRange& range = outside_[value - kFirstOutside];
      const auto found = std::ranges::find_if(
          outside, [&](const ByteRange& each) { return each.contains(range); });
      value = first + static_cast<uint32_t>(found - outside.begin());
    }
  }
  out.made = std::move(nodes_);
  out.flags = flags_;
  return write_program(out, sources_);
}

}  // namespace bp::core
