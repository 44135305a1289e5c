#include "backends/cpu/groups/agreement.hpp"

#include <algorithm>

#include "backplane/shell/group_checks.hpp"

namespace bp::cpu {
namespace {

// Returns how much data goes with a description. All descriptions that a rank sends have so much.
size_t room_bytes(uint32_t world_size) {
  constexpr size_t kAllBytes = 4096, kAlignment = 8;
  return kAllBytes / std::max(world_size - 1, 1u) / kAlignment * kAlignment;
}

}  // namespace

Agreement::Agreement(const Job& job)
    : job_(job),
      item_bytes_(sizeof(CallSignature) + room_bytes(job.call.world_size)),
      exchange_(*job.context, slot_of(Topic::kSignature, job.sequence), descriptions(),
                item_bytes_) {}

bool Agreement::has_all_data(const RankCall& call) {
  const auto item_bytes = static_cast<uint64_t>(dtype_size_bytes(call.dtype));
  return call.kind == BP_COLLECTIVE_ALL_REDUCE && call.world_size > 1 &&
         call.count * item_bytes <= room_bytes(call.world_size);
}

std::vector<std::byte> Agreement::descriptions() const {
  std::vector<std::byte> all = signatures_of(job_.call, item_bytes_);
  if (!has_all_data(job_.call)) return all;
  for (uint32_t peer = 0; peer < job_.call.world_size; ++peer) {
    contribute(job_, all.data() + peer * item_bytes_ + sizeof(CallSignature), job_.call.count);
  }
  return all;
}

void Agreement::settle() {
  if (is_settled_) return;
  check_signatures(job_.call, exchange_.receive(), item_bytes_);
  is_settled_ = true;
}

void Agreement::finish() {
  settle();
  exchange_.finish();
}

void Agreement::reduce() {
  settle();
  const RankCall& call = job_.call;
  std::vector<kernels::Contribution> contributions;
  for (uint32_t rank = 0; rank < call.world_size; ++rank) {
    const std::vector<std::byte>& all = rank == call.rank ? exchange_.sent() : exchange_.receive();
    contributions.push_back({all.data() + rank * item_bytes_ + sizeof(CallSignature), 1.0});
  }
  kernels::combine(after_scaling(call.reduction), call.dtype, contributions, job_.receive,
                   static_cast<int64_t>(call.count));
}

}  // namespace bp::cpu
