// Checks of what the host gives to process groups, whether their ranks live in one process or in
// many.
//
//   const std::vector<Group*> groups = read_groups<Group>(local_count, handles, "shrink");
//   const std::vector<uint32_t> gone = read_gone_ranks(gone_count, gone_ranks, world_size);
//   check_presence(ranks_of(groups), local_ranks, gone, "shrink");
//
// Rules:
//   Threads    Every function may be called from any thread.
//   Errors     A function throws StatusError of BP_INVALID_ARGUMENT, unless it says otherwise. The
//              text says what is allowed. It begins with `call`, the name of an entry, or with
//              `name`, such as "submit: call 2: ".
//   Objects    A Group is an object as in lookup.hpp. Its member `world` points to what all ranks
//              of the group share, and rank_of(const Group&) in its namespace returns its rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backplane/collective.h"
#include "backplane/shell/entry.hpp"
#include "backplane/shell/lookup.hpp"
#include "backplane/shell/queue.hpp"

namespace bp {

// ---- create() -----------------------------------------------------------------------------------

// Checks the counts and the ranks of a desc. The devices and the store are left to the backend.
void check_group_desc(const bp_process_group_desc& desc);

// Checks that a desc is for the table `table_name`, and returns its options as (key, value). Each
// key is one of `keys`. Throws StatusError of BP_NOT_FOUND for another table or another key.
std::vector<std::pair<std::string_view, std::string_view>> read_group_options(
    const bp_process_group_desc& desc, std::string_view table_name,
    std::span<const std::string_view> keys);

// ---- supports() and submit() --------------------------------------------------------------------

// Returns why no backend runs calls of this kind, or "" if one may. Whether the backend reduces the
// dtype is left to the backend.
std::string refuse_collective(bp_collective_kind kind, bp_dtype dtype);

// Returns whether calls of this kind reduce.
bool reduces(bp_collective_kind kind);

// Returns whether calls of this kind are between two ranks alone.
bool is_between_peers(bp_collective_kind kind);

// Returns whether calls of this kind name a root. The `root` of a send or a receive is a peer.
bool has_root(bp_collective_kind kind);

// Checks the root or the peer of a call.
void check_root(const bp_collective_call& call, uint32_t world_size, const std::string& name);

// The elements of the parts of a call, one part for each rank. Parts of a kind that has none are
// `count` of the call.
struct PartCounts {
  std::vector<uint64_t> send;
  std::vector<uint64_t> receive;  // It differs from `send` in all_to_all alone.
};

// Returns the parts of the call of rank `rank`. Their sums do not exceed 64 bits.
PartCounts read_counts(const bp_collective_call& call, uint32_t rank, uint32_t world_size,
                       const std::string& name);

// The call of one rank. It owns its data, because the host's call does not live as long.
struct GroupCall {
  uint32_t rank = 0, world_size = 0, root = 0;
  bp_collective_kind kind = 0;
  bp_reduction reduction = 0;  // 0 if the kind does not reduce.
  bp_dtype dtype = 0;
  uint64_t count = 0;
  double scale = 1;
  std::vector<uint64_t> send_counts;     // One part for each rank, as read_counts() gives them.
  std::vector<uint64_t> receive_counts;  // Used by all_to_all alone.
};

// Reads the call of rank `rank` with the checks above. Its ranges are left to the backend.
GroupCall read_call(const bp_collective_call& theirs, uint32_t rank, uint32_t world_size,
                    const std::string& name);

// Returns the name of a kind, such as "all_reduce".
const char* kind_name(bp_collective_kind kind);

// What two ranks must agree on in one collective, as one tells it to the other. It has no padding,
// so processes can send its bytes.
struct CallSignature {
  uint32_t kind, reduction, dtype;
  uint32_t root;      // 0 if the kind has none.
  uint64_t count;     // Of the part of rank 0; 0 in all_to_all.
  uint64_t parts;     // A hash of the sizes of all parts; 0 in all_to_all.
  uint64_t sent;      // What the rank sends to its peer in all_to_all; else 0.
  uint64_t received;  // What it receives from there in all_to_all; else 0.
};

// Returns what a rank says of its call to the rank `peer`.
CallSignature signature_of(const GroupCall& call, uint32_t peer);

// Returns why the calls of two ranks, as each describes it to the other, do not match. Returns ""
// if they match.
std::string difference(const CallSignature& first, uint32_t first_rank, const CallSignature& second,
                       uint32_t second_rank);

// Returns what a rank says of its call to all ranks: `item_bytes` for each, which begin with a
// CallSignature.
std::vector<std::byte> signatures_of(const GroupCall& call, size_t item_bytes);

// Throws StatusError of BP_INVALID_ARGUMENT if another rank calls something else. `theirs` has what
// each rank says to this one, in the same form; the item of the rank itself is not read.
void check_signatures(const GroupCall& call, const std::vector<std::byte>& theirs,
                      size_t item_bytes);

// Return how many elements a rank sends and receives.
uint64_t sent_elements(const GroupCall& call);
uint64_t received_elements(const GroupCall& call);

// Checks that a range has room for `elements` of `dtype`. The dtype has whole bytes, unless there
// are no elements. `what` is the name of the range.
void check_elements(const bp_buffer_ref& range, uint64_t elements, bp_dtype dtype,
                    const std::string& name, const char* what);

// Checks that `device`, which is that of the argument `what`, is the device of the group.
void check_same_device(const void* device, const void* group_device, const char* call,
                       const char* what);

// Throws StatusError with the status of `ended` if that is the outcome of a group that has ended.
void check_not_ended(const Outcome& ended, const std::string& name);

// ---- rank() -------------------------------------------------------------------------------------

template <typename Group>
void give_rank(const Group& group, uint32_t* out_rank, uint32_t* out_world_size) {
  require(out_rank, "rank: out_rank");
  require(out_world_size, "rank: out_world_size");
  *out_rank = rank_of(group);
  *out_world_size = group.world->size();
}

// ---- split() and shrink() -----------------------------------------------------------------------

// Check parts of what read_groups() reads.
void check_handles(uint32_t count, bp_process_group* const* handles, const char* call);
void check_once(const std::vector<uint32_t>& ranks, const char* call);
[[noreturn]] void refuse_group(size_t index, const char* reason, const char* call);

template <typename Group>
std::vector<uint32_t> ranks_of(const std::vector<Group*>& groups) {
  std::vector<uint32_t> ranks;
  ranks.reserve(groups.size());
  for (const Group* group : groups) ranks.push_back(rank_of(*group));
  return ranks;
}

// Returns the groups behind the handles, of which there is at least one. All are of one world, each
// once.
template <typename Group>
std::vector<Group*> read_groups(uint32_t count, bp_process_group* const* handles,
                                const char* call) {
  check_handles(count, handles, call);
  std::vector<Group*> groups;
  for (uint32_t i = 0; i < count; ++i) {
    groups.push_back(object_of<Group>(handles[i]));
    if (groups[i] == nullptr) refuse_group(i, "is NULL or not one of this backend", call);
    if (groups[i]->world != groups[0]->world) {
      refuse_group(i, "is of another world than groups[0]; all must be of one world", call);
    }
  }
  check_once(ranks_of(groups), call);
  return groups;
}

// Returns the ranks that shrink() leaves out, in ascending order, each once. All are below
// world_size.
std::vector<uint32_t> read_gone_ranks(uint32_t count, const uint32_t* gone_ranks,
                                      uint32_t world_size);

// Checks that the host gives each rank of this process that is not gone, and no other one. `given`
// are the ranks of its groups, `local` are those of this process, `gone` is in ascending order.
void check_presence(const std::vector<uint32_t>& given, const std::vector<uint32_t>& local,
                    const std::vector<uint32_t>& gone, const char* call);

// Returns the rank that `rank` has in a group without the ranks in `gone`, which are in ascending
// order.
uint32_t rank_without(const std::vector<uint32_t>& gone, uint32_t rank);

}  // namespace bp
