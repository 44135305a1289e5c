#include "backplane/shell/group_checks.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "backplane/shell/identity.hpp"
#include "backplane/shell/shape.hpp"

namespace bp {
namespace {

[[noreturn]] void refuse_argument(const std::string& text) { refuse(BP_INVALID_ARGUMENT, text); }

// Checks that `ranks`, which `what` names, are below a limit, each once.
void check_ranks(uint32_t count, const uint32_t* ranks, uint32_t limit, const char* limit_name,
                 const std::string& what) {
  std::unordered_set<uint32_t> seen;
  for (uint32_t i = 0; i < count; ++i) {
    if (ranks[i] >= limit) {
      refuse_argument(what + "[" + std::to_string(i) + "] is " + std::to_string(ranks[i]) +
                      "; it must be below " + limit_name + ", which is " + std::to_string(limit));
    }
    if (!seen.insert(ranks[i]).second) {
      refuse_argument(what + "[" + std::to_string(i) + "] is " + std::to_string(ranks[i]) +
                      " again; each rank is allowed once");
    }
  }
}

bool has_parts(bp_collective_kind kind) {
  return kind == BP_COLLECTIVE_ALL_GATHER || kind == BP_COLLECTIVE_REDUCE_SCATTER ||
         kind == BP_COLLECTIVE_ALL_TO_ALL || kind == BP_COLLECTIVE_GATHER ||
         kind == BP_COLLECTIVE_SCATTER;
}

uint64_t total(const std::vector<uint64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

void check_sum(const std::vector<uint64_t>& counts, const std::string& name) {
  uint64_t sum = 0;
  for (const uint64_t count : counts) {
    if (__builtin_add_overflow(sum, count, &sum)) {
      refuse_argument(name + "the parts of " + std::to_string(counts.size()) +
                      " ranks have more elements together than 2^64 - 1, the most that is allowed");
    }
  }
}

uint64_t hash_of(const std::vector<uint64_t>& counts) {
  constexpr uint64_t kBasis = 0xcbf29ce484222325;
  return hash_text(
      kBasis, {reinterpret_cast<const char*>(counts.data()), counts.size() * sizeof(counts[0])});
}

}  // namespace

void check_group_desc(const bp_process_group_desc& desc) {
  if (desc.local_count == 0 || desc.local_count > desc.world_size) {
    refuse_argument("create: local_count is " + std::to_string(desc.local_count) +
                    "; it must be from 1 to world_size, which is " +
                    std::to_string(desc.world_size));
  }
  require(desc.devices, "create: devices");
  require(desc.ranks, "create: ranks");
  check_ranks(desc.local_count, desc.ranks, desc.world_size, "world_size", "create: ranks");
}

std::vector<std::pair<std::string_view, std::string_view>> read_group_options(
    const bp_process_group_desc& desc, std::string_view table_name,
    std::span<const std::string_view> keys) {
  const std::string_view wanted = desc.table_name == nullptr ? "" : desc.table_name;
  if (!wanted.empty() && wanted != table_name) {
    refuse(BP_NOT_FOUND, "create: table_name is \"" + std::string(wanted) +
                             "\"; the table that was called is \"" + std::string(table_name) +
                             "\"");
  }
  std::vector<std::pair<std::string_view, std::string_view>> options;
  if (desc.option_count != 0) require(desc.options, "create: options");
  for (uint64_t i = 0; i < desc.option_count; ++i) {
    const bp_option& option = desc.options[i];
    if (option.key == nullptr || option.value == nullptr) {
      refuse_argument("create: options[" + std::to_string(i) + "] has no key or no value");
    }
    if (std::ranges::find(keys, option.key) == keys.end()) {
      std::string allowed;
      for (const std::string_view key : keys) allowed += " " + std::string(key);
      refuse(BP_NOT_FOUND, "create: process groups \"" + std::string(table_name) +
                               "\" have no option \"" + option.key +
                               "\"; allowed are:" + (allowed.empty() ? " none" : allowed));
    }
    options.emplace_back(option.key, option.value);
  }
  return options;
}

std::string refuse_collective(bp_collective_kind kind, bp_dtype dtype) {
  if (kind < BP_COLLECTIVE_ALL_REDUCE || kind > BP_COLLECTIVE_BARRIER) {
    return "there is no collective of kind " + std::to_string(kind);
  }
  const bool is_sent = kind == BP_COLLECTIVE_BARRIER || dtype_size_bytes(dtype) != 0;
  return is_sent ? "" : "dtype " + std::to_string(dtype) + " is not sent";
}

bool reduces(bp_collective_kind kind) {
  return kind == BP_COLLECTIVE_ALL_REDUCE || kind == BP_COLLECTIVE_REDUCE ||
         kind == BP_COLLECTIVE_REDUCE_SCATTER;
}

bool is_between_peers(bp_collective_kind kind) {
  return kind == BP_COLLECTIVE_SEND || kind == BP_COLLECTIVE_RECEIVE;
}

bool has_root(bp_collective_kind kind) {
  return kind == BP_COLLECTIVE_REDUCE || kind == BP_COLLECTIVE_BROADCAST ||
         kind == BP_COLLECTIVE_GATHER || kind == BP_COLLECTIVE_SCATTER;
}

void check_root(const bp_collective_call& call, uint32_t world_size, const std::string& name) {
  if (!has_root(call.kind) && !is_between_peers(call.kind)) return;
  if (call.root < world_size) return;
  refuse_argument(name + "root is " + std::to_string(call.root) +
                  "; it must be below the size of the group, which is " +
                  std::to_string(world_size));
}

PartCounts read_counts(const bp_collective_call& call, uint32_t rank, uint32_t world_size,
                       const std::string& name) {
  PartCounts parts;
  parts.send.assign(world_size, call.count);
  if (!has_parts(call.kind)) {
    parts.receive = parts.send;
    return parts;
  }
  if (call.counts != nullptr) parts.send.assign(call.counts, call.counts + world_size);
  parts.receive = parts.send;
  check_sum(parts.send, name);
  if (call.kind != BP_COLLECTIVE_ALL_TO_ALL || call.receive_counts == nullptr) return parts;
  parts.receive.assign(call.receive_counts, call.receive_counts + world_size);
  check_sum(parts.receive, name);
  if (parts.send[rank] != parts.receive[rank]) {
    refuse_argument(name + "rank " + std::to_string(rank) + " sends itself " +
                    std::to_string(parts.send[rank]) + " elements and receives " +
                    std::to_string(parts.receive[rank]) + " of them; both must be equal");
  }
  return parts;
}

GroupCall read_call(const bp_collective_call& theirs, uint32_t rank, uint32_t world_size,
                    const std::string& name) {
  PartCounts parts = read_counts(theirs, rank, world_size, name);
  check_root(theirs, world_size, name);
  return {.rank = rank,
          .world_size = world_size,
          .root = theirs.root,
          .kind = theirs.kind,
          .reduction = reduces(theirs.kind) ? theirs.reduction : 0,
          .dtype = theirs.dtype,
          .count = theirs.count,
          .scale = theirs.scale,
          .send_counts = std::move(parts.send),
          .receive_counts = std::move(parts.receive)};
}

const char* kind_name(bp_collective_kind kind) {
  static constexpr const char* kNames[] = {
      "",           "all_reduce", "reduce",  "broadcast", "all_gather", "reduce_scatter",
      "all_to_all", "gather",     "scatter", "send",      "receive",    "barrier"};
  return kind < std::size(kNames) ? kNames[kind] : "an unknown kind";
}

CallSignature signature_of(const GroupCall& call, uint32_t peer) {
  CallSignature s{};
  s.kind = call.kind;
  if (call.kind == BP_COLLECTIVE_BARRIER) return s;
  s.reduction = call.reduction;
  s.dtype = call.dtype;
  s.root = has_root(call.kind) ? call.root : 0;
  if (call.kind == BP_COLLECTIVE_ALL_TO_ALL) {
    s.sent = call.send_counts[peer];
    s.received = call.receive_counts[peer];
  } else {
    s.count = call.send_counts[0];
    s.parts = hash_of(call.send_counts);
  }
  return s;
}

std::string difference(const CallSignature& first, uint32_t first_rank, const CallSignature& second,
                       uint32_t second_rank) {
  const auto differ = [&](const std::string& what, uint64_t of_first, uint64_t of_second) {
    return "rank " + std::to_string(second_rank) + " gives " + what + " " +
           std::to_string(of_second) + ", rank " + std::to_string(first_rank) + " gives " +
           std::to_string(of_first);
  };
  if (first.kind != second.kind) {
    return "rank " + std::to_string(second_rank) + " calls " + kind_name(second.kind) + ", rank " +
           std::to_string(first_rank) + " calls " + kind_name(first.kind);
  }
  if (first.dtype != second.dtype) return differ("dtype", first.dtype, second.dtype);
  if (first.reduction != second.reduction) {
    return differ("reduction", first.reduction, second.reduction);
  }
  if (first.root != second.root) return differ("root", first.root, second.root);
  if (first.sent != second.received) return differ("a count", first.sent, second.received);
  if (second.sent != first.received) return differ("a count", first.received, second.sent);
  if (first.count != second.count || first.parts != second.parts) {
    return differ("other counts, such as", first.count, second.count);
  }
  return "";
}

std::vector<std::byte> signatures_of(const GroupCall& call, size_t item_bytes) {
  std::vector<std::byte> all(call.world_size * item_bytes);
  for (uint32_t peer = 0; peer < call.world_size; ++peer) {
    const CallSignature signature = signature_of(call, peer);
    std::memcpy(all.data() + peer * item_bytes, &signature, sizeof(signature));
  }
  return all;
}

void check_signatures(const GroupCall& call, const std::vector<std::byte>& theirs,
                      size_t item_bytes) {
  for (uint32_t peer = 0; peer < call.world_size; ++peer) {
    if (peer == call.rank) continue;
    CallSignature signature{};
    std::memcpy(&signature, theirs.data() + peer * item_bytes, sizeof(signature));
    const std::string problem = difference(signature, peer, signature_of(call, peer), call.rank);
    if (!problem.empty()) refuse(BP_INVALID_ARGUMENT, problem);
  }
}

uint64_t sent_elements(const GroupCall& call) {
  switch (call.kind) {
    case BP_COLLECTIVE_ALL_REDUCE:
    case BP_COLLECTIVE_REDUCE:
    case BP_COLLECTIVE_SEND:
      return call.count;
    case BP_COLLECTIVE_BROADCAST:
      return call.rank == call.root ? call.count : 0;
    case BP_COLLECTIVE_ALL_GATHER:
    case BP_COLLECTIVE_GATHER:
      return call.send_counts[call.rank];
    case BP_COLLECTIVE_REDUCE_SCATTER:
    case BP_COLLECTIVE_ALL_TO_ALL:
      return total(call.send_counts);
    case BP_COLLECTIVE_SCATTER:
      return call.rank == call.root ? total(call.send_counts) : 0;
    case BP_COLLECTIVE_RECEIVE:
    case BP_COLLECTIVE_BARRIER:
      break;
  }
  return 0;
}

uint64_t received_elements(const GroupCall& call) {
  switch (call.kind) {
    case BP_COLLECTIVE_ALL_REDUCE:
    case BP_COLLECTIVE_BROADCAST:
    case BP_COLLECTIVE_RECEIVE:
      return call.count;
    case BP_COLLECTIVE_REDUCE:
      return call.rank == call.root ? call.count : 0;
    case BP_COLLECTIVE_ALL_GATHER:
      return total(call.send_counts);
    case BP_COLLECTIVE_REDUCE_SCATTER:
    case BP_COLLECTIVE_SCATTER:
      return call.send_counts[call.rank];
    case BP_COLLECTIVE_ALL_TO_ALL:
      return total(call.receive_counts);
    case BP_COLLECTIVE_GATHER:
      return call.rank == call.root ? total(call.send_counts) : 0;
    case BP_COLLECTIVE_SEND:
    case BP_COLLECTIVE_BARRIER:
      break;
  }
  return 0;
}

void check_elements(const bp_buffer_ref& range, uint64_t elements, bp_dtype dtype,
                    const std::string& name, const char* what) {
  if (elements == 0) return;
  const auto item = static_cast<uint64_t>(dtype_size_bytes(dtype));
  if (elements <= range.size_bytes / item) return;  // A product could wrap.
  refuse_argument(name + what + " has " + std::to_string(range.size_bytes) +
                  " bytes; it must have room for " + std::to_string(elements) + " elements of " +
                  std::to_string(item) + " bytes");
}

void check_same_device(const void* device, const void* group_device, const char* call,
                       const char* what) {
  if (device == group_device) return;
  refuse_argument(std::string(call) + ": " + what +
                  " is of another device; it must be of the device of the group");
}

void check_not_ended(const Outcome& ended, const std::string& name) {
  if (ended.status != BP_OK) refuse(ended.status, name + "the group has ended: " + ended.text);
}

void check_handles(uint32_t count, bp_process_group* const* handles, const char* call) {
  if (count == 0) refuse_argument(std::string(call) + ": local_count is 0; it must be at least 1");
  if (handles == nullptr) refuse_argument(std::string(call) + ": groups is NULL");
}

void check_once(const std::vector<uint32_t>& ranks, const char* call) {
  std::unordered_map<uint32_t, size_t> seen;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const auto [first, is_new] = seen.emplace(ranks[i], i);
    if (is_new) continue;
    const std::string reason = "is rank " + std::to_string(ranks[i]) + ", as groups[" +
                               std::to_string(first->second) + "] is; each rank is allowed once";
    refuse_group(i, reason.c_str(), call);
  }
}

void refuse_group(size_t index, const char* reason, const char* call) {
  refuse_argument(std::string(call) + ": groups[" + std::to_string(index) + "] " + reason);
}

std::vector<uint32_t> read_gone_ranks(uint32_t count, const uint32_t* gone_ranks,
                                      uint32_t world_size) {
  if (count == 0) return {};
  require(gone_ranks, "shrink: gone_ranks");
  check_ranks(count, gone_ranks, world_size, "the size of the group", "shrink: gone_ranks");
  std::vector<uint32_t> gone(gone_ranks, gone_ranks + count);
  std::ranges::sort(gone);
  return gone;
}

void check_presence(const std::vector<uint32_t>& given, const std::vector<uint32_t>& local,
                    const std::vector<uint32_t>& gone, const char* call) {
  const std::unordered_set<uint32_t> present(given.begin(), given.end());
  for (const uint32_t rank : gone) {
    if (!present.contains(rank)) continue;
    refuse_argument(std::string(call) + ": rank " + std::to_string(rank) +
                    " is in groups and in gone_ranks; it may be in one of them");
  }
  for (const uint32_t rank : local) {
    if (present.contains(rank) || std::ranges::binary_search(gone, rank)) continue;
    refuse_argument(std::string(call) + ": groups lacks rank " + std::to_string(rank) +
                    "; each rank of this process that is not gone must be there");
  }
}

uint32_t rank_without(const std::vector<uint32_t>& gone, uint32_t rank) {
  return rank - static_cast<uint32_t>(std::ranges::lower_bound(gone, rank) - gone.begin());
}

}  // namespace bp
