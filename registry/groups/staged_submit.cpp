// submit(), split() and shrink() of staged groups.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/fail.hpp"
#include "registry/boundary/guard.hpp"
#include "registry/boundary/read_desc.hpp"
#include "registry/groups/staged_groups.hpp"
#include "registry/services/capturing.hpp"

namespace bp::core {
namespace {

// The size of the struct in the first release. It stays the same when members are added.
constexpr uint32_t kFirstCall = offsetof(bp_collective_call, root) + sizeof(uint32_t);

using Calls = std::vector<std::unique_ptr<StagedCall>>;

bp_status make_calls(StagedGroups& groups, const bp_collective_call* at, uint64_t index,
                     Calls& out_calls) {
  const std::string name = "submit: call " + std::to_string(index) + ": ";
  bp_collective_call theirs{};
  bp_status status = read_desc(at, BP_STRUCT_COLLECTIVE_CALL, kFirstCall, "submit", theirs);
  if (status != BP_OK) return status;
  StagedGroup* const group = find_staged(theirs.group, name + "group");
  if (group == nullptr) return BP_INVALID_ARGUMENT;
  if (theirs.stream != nullptr && services::is_capturing(*group->target, theirs.stream)) {
    return fail(BP_UNSUPPORTED,
                name + "the stream captures, and collectives through the host are not recorded");
  }
  const StagedSizes sizes = staged_sizes(theirs, group->rank, group->world_size);
  for (const bp_collective_call& chunk : chunks_of(theirs, sizes)) {
    std::unique_ptr<StagedCall> made;
    status = StagedCall::make(*group, groups.transport(), groups.courier(), chunk, name, made);
    if (status != BP_OK) return status;
    out_calls.push_back(std::move(made));
  }
  return BP_OK;
}

// Submits calls [first, end) to the transport together.
bp_status submit_inner(const StagedGroups& groups, const Calls& calls, size_t first, size_t end) {
  std::vector<bp_collective_call> inner(end - first);
  for (size_t i = first; i < end; ++i) {
    const bp_status status = calls[i]->to_inner(inner[i - first]);
    if (status != BP_OK) return status;
  }
  const bp_process_group_ops& ops = groups.inner();
  const bp_status status =
      ops.submit(ops.self, inner.size(), inner.data(), sizeof(bp_collective_call));
  if (status != BP_OK) return status;
  for (size_t i = first; i < end; ++i) calls[i]->leave();
  return BP_OK;
}

// Returns `status` with its text as it was before the work of `body`.
template <typename Body>
bp_status after_failure(bp_status status, Body&& body) {
  const std::string words = take_error();
  body();
  return fail(status, words);
}

// The chunks of one call go one by one, so that the transport begins with the first one as soon as
// it has come. Calls that were submitted together may need each other.
bp_status submit_all(const StagedGroups& groups, const Calls& calls, bool are_chunks) {
  bp_status status = BP_OK;
  for (size_t i = 0; i < calls.size() && status == BP_OK; ++i) status = calls[i]->collect();
  size_t submitted = 0;
  const size_t step = are_chunks ? 1 : calls.size();
  while (status == BP_OK && submitted < calls.size()) {
    status = submit_inner(groups, calls, submitted, submitted + step);
    if (status == BP_OK) submitted += step;
  }
  for (size_t i = 0; i < submitted; ++i) {
    const bp_status delivered = calls[i]->deliver();
    if (status == BP_OK) status = delivered;
  }
  if (status == BP_OK) return BP_OK;
  return after_failure(status, [&] {
    for (size_t i = submitted; i < calls.size(); ++i) calls[i]->abandon();
  });
}

bp_status read_groups(uint32_t count, bp_process_group* const* handles, const char* call,
                      std::vector<StagedGroup*>& out_groups,
                      std::vector<bp_process_group*>& out_inner) {
  if (count != 0 && handles == nullptr) return is_null((std::string(call) + ": groups").c_str());
  for (uint32_t i = 0; i < count; ++i) {
    StagedGroup* const group =
        find_staged(handles[i], std::string(call) + ": groups[" + std::to_string(i) + "]");
    if (group == nullptr) return BP_INVALID_ARGUMENT;
    out_groups.push_back(group);
    out_inner.push_back(group->inner);
  }
  return BP_OK;
}

// Makes groups out of groups: derive(inner groups, out groups) is the transport's way.
template <typename Derive>
bp_status derive_groups(void* self, uint32_t count, bp_process_group* const* handles,
                        const char* call, bp_process_group** out_groups, Derive&& derive) {
  return guarded([&]() -> bp_status {
    StagedGroups& groups = staged_of(self);
    const bp_process_group_ops& ops = groups.inner();
    std::vector<StagedGroup*> from;
    std::vector<bp_process_group*> inner;
    bp_status status = read_groups(count, handles, call, from, inner);
    if (status != BP_OK) return status;
    if (out_groups == nullptr) return is_null((std::string(call) + ": out_groups").c_str());
    std::vector<bp_process_group*> derived(count), made(count);
    status = derive(ops, inner.data(), derived.data());
    for (uint32_t i = 0; i < count && status == BP_OK; ++i) {
      if (derived[i] == nullptr) continue;
      status = adopt_inner(groups, *from[i]->target, derived[i], made[i]);
      if (status == BP_OK) derived[i] = nullptr;
    }
    if (status == BP_OK) {
      std::ranges::copy(made, out_groups);
      return BP_OK;
    }
    return after_failure(status, [&] {
      for (bp_process_group* const one : made) {
        static_cast<void>(groups.table().destroy(self, one));
      }
      for (bp_process_group* const one : derived) static_cast<void>(ops.destroy(ops.self, one));
    });
  });
}

}  // namespace

bp_status submit_staged(void* self, uint64_t call_count, const bp_collective_call* calls,
                        uint64_t call_stride_bytes) {
  return guarded([&]() -> bp_status {
    if (call_count != 0 && calls == nullptr) return is_null("submit: calls");
    Calls made;
    const auto* at = reinterpret_cast<const std::byte*>(calls);
    for (uint64_t i = 0; i < call_count; ++i, at += call_stride_bytes) {
      const auto* const one = reinterpret_cast<const bp_collective_call*>(at);
      if (call_stride_bytes < one->struct_size) {
        return fail(BP_INVALID_ARGUMENT,
                    "submit: call_stride_bytes is " + std::to_string(call_stride_bytes) +
                        ", below the struct_size of call " + std::to_string(i) + ", which is " +
                        std::to_string(one->struct_size));
      }
      const bp_status status = make_calls(staged_of(self), one, i, made);
      if (status != BP_OK) return status;
    }
    return made.empty() ? bp_status{BP_OK} : submit_all(staged_of(self), made, call_count == 1);
  });
}

// NOLINTNEXTLINE(readability-function-size): the table has these arguments.
bp_status split_staged(void* self, uint32_t local_count, bp_process_group* const* groups,
                       const uint32_t* colors, const uint32_t* keys, uint64_t timeout_ns,
                       bp_process_group** out_groups) {
  return derive_groups(
      self, local_count, groups, "split", out_groups,
      [&](const bp_process_group_ops& ops, bp_process_group* const* inner, bp_process_group** out) {
        return ops.split(ops.self, local_count, inner, colors, keys, timeout_ns, out);
      });
}

// NOLINTNEXTLINE(readability-function-size): the table has these arguments.
bp_status shrink_staged(void* self, uint32_t local_count, bp_process_group* const* groups,
                        uint32_t gone_count, const uint32_t* gone_ranks, uint64_t timeout_ns,
                        bp_process_group** out_groups) {
  return derive_groups(
      self, local_count, groups, "shrink", out_groups,
      [&](const bp_process_group_ops& ops, bp_process_group* const* inner, bp_process_group** out) {
        return ops.shrink(ops.self, local_count, inner, gone_count, gone_ranks, timeout_ns, out);
      });
}

}  // namespace bp::core
