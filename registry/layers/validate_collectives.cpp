// The rules of process groups. The calls of one submit() go to a stream each. If one of them breaks
// a rule, none is submitted.
#include <algorithm>
#include <cstring>
#include <list>

#include "registry/layers/validate.hpp"
#include "registry/layers/words.hpp"

namespace bp::layers {
namespace {

constexpr uint32_t kFirstSize = offsetof(bp_collective_call, root) + sizeof(uint32_t);

// Returns the calls as this build knows them, or none if one is too short to be read.
std::vector<bp_collective_call> read_calls(uint64_t count, const bp_collective_call* calls,
                                           uint64_t stride_bytes) {
  std::vector<bp_collective_call> read;
  const auto* at = reinterpret_cast<const unsigned char*>(calls);
  for (uint64_t i = 0; calls != nullptr && i < count; ++i, at += stride_bytes) {
    uint32_t size = 0;
    std::memcpy(&size, at, sizeof(size));
    if (size < kFirstSize) return {};
    std::memcpy(&read.emplace_back(), at, std::min<size_t>(size, sizeof(bp_collective_call)));
  }
  return read;
}

}  // namespace

bp_status ValidateLayer::call(At<Slot::collective_create>, Continue next,
                              const bp_process_group_desc* desc, bp_process_group** out_groups) {
  const bp_status status = next();
  if (status != BP_OK) return status;
  const std::lock_guard lock(mutex_);
  for (uint32_t i = 0; i < desc->local_count; ++i) {
    handles_.add(HandleKind::group, out_groups[i], {.device = desc->devices[i]});
  }
  worlds_.create(*desc, out_groups);
  return status;
}

bp_status ValidateLayer::call(At<Slot::collective_destroy>, Continue next,
                              bp_process_group* group) {
  {
    const std::lock_guard lock(mutex_);
    worlds_.remove(group);
  }
  return end_through(HandleKind::group, group, Slot::collective_destroy, next);
}

void ValidateLayer::add_derived(uint32_t count, bp_process_group* const* from,
                                bp_process_group* const* groups) {
  for (uint32_t i = 0; i < count; ++i) {
    if (groups[i] == nullptr) continue;
    const Handle* known = handles_.find(HandleKind::group, from[i]);
    handles_.add(HandleKind::group, groups[i],
                 {.device = known == nullptr ? nullptr : known->device});
  }
}

// NOLINTNEXTLINE(readability-function-size): the table has these arguments.
bp_status ValidateLayer::call(At<Slot::collective_split>, Continue next, uint32_t local_count,
                              bp_process_group* const* groups, const uint32_t* colors,
                              const uint32_t* keys, uint64_t /*timeout_ns*/,
                              bp_process_group** out_groups) {
  const bp_status status = next();
  if (status != BP_OK) return status;
  const std::lock_guard lock(mutex_);
  add_derived(local_count, groups, out_groups);
  worlds_.split(local_count, groups, colors, keys, out_groups);
  return status;
}

// NOLINTNEXTLINE(readability-function-size): the table has these arguments.
bp_status ValidateLayer::call(At<Slot::collective_shrink>, Continue next, uint32_t local_count,
                              bp_process_group* const* groups, uint32_t gone_count,
                              const uint32_t* gone_ranks, uint64_t /*timeout_ns*/,
                              bp_process_group** out_groups) {
  const bp_status status = next();
  if (status != BP_OK) return status;
  const std::lock_guard lock(mutex_);
  add_derived(local_count, groups, out_groups);
  worlds_.shrink(local_count, groups, gone_count, gone_ranks, out_groups);
  return status;
}

std::string ValidateLayer::collective_defect(const bp_collective_call& call) {
  std::string defect = defect_of(call.group);
  if (defect.empty()) defect = defect_of(call.stream);
  for (const bp_buffer_ref* range : {&call.send, &call.receive}) {
    if (defect.empty()) defect = defect_of(range);
    if (defect.empty()) defect = wrong_device(call.stream, range->buffer);
  }
  return defect;
}

bp_status ValidateLayer::call(At<Slot::collective_submit>, Continue next, uint64_t call_count,
                              const bp_collective_call* calls, uint64_t call_stride_bytes) {
  const std::vector<bp_collective_call> read = read_calls(call_count, calls, call_stride_bytes);
  std::vector<Piece> pieces;
  // The place of each stream before its call.
  std::vector<std::list<char>> marks;
  {
    std::unique_lock lock(mutex_);
    for (const bp_collective_call& call : read) {
      const std::string defect = collective_defect(call);
      if (!defect.empty()) return illegal(lock, Slot::collective_submit, defect);
      pieces.push_back({call.stream, worlds_.accesses(call)});
    }
    marks.reserve(read.size());
    for (const bp_collective_call& call : read) {
      hazards_.record_event(reinterpret_cast<bp_event*>(&marks.emplace_back(1).front()),
                            call.stream);
    }
  }
  const bp_status status =
      submit(Slot::collective_submit, std::move(pieces), "collective call", next);
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < read.size(); ++i) {
    if (status == BP_OK) {
      worlds_.order(read[i], std::move(marks[i]), hazards_);
    } else {
      hazards_.remove_event(reinterpret_cast<bp_event*>(&marks[i].front()));
    }
  }
  return status;
}

}  // namespace bp::layers
