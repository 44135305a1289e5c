#include "backends/cpu/shm/pieces.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "backplane/shell/combine.hpp"
#include "backplane/shell/shape.hpp"

namespace bp::shm {
namespace {

uint64_t total(const std::vector<uint64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

}  // namespace

bool gives_many(bp_collective_kind kind) {
  return kind == BP_COLLECTIVE_SCATTER || kind == BP_COLLECTIVE_REDUCE_SCATTER ||
         kind == BP_COLLECTIVE_ALL_TO_ALL;
}

bp_reduction step_of(bp_reduction reduction) {
  const bool is_sum = reduction == BP_REDUCTION_AVERAGE || reduction == BP_REDUCTION_SCALED_SUM;
  return is_sum ? bp_reduction{BP_REDUCTION_SUM} : reduction;
}

Job::Job(const RankCall& call)
    : call_(call),
      item_bytes_(static_cast<uint64_t>(dtype_size_bytes(call.dtype))),
      opened_send_(call.send.get()),
      receive_(call.receive.get()),
      send_(opened_send_.address()) {
  if (call.kind != BP_COLLECTIVE_ALL_TO_ALL || send_ == nullptr || receive() == nullptr) return;
  const uint64_t sent = total(call.send_counts) * item_bytes_;
  const uint64_t received = total(call.receive_counts) * item_bytes_;
  if (send_ + sent <= receive() || receive() + received <= send_) return;
  copy_.assign(send_, send_ + sent);
  send_ = copy_.data();
}

uint64_t Job::offset(const std::vector<uint64_t>& counts, uint32_t peer) const {
  return std::accumulate(counts.begin(), counts.begin() + peer, uint64_t{0}) * item_bytes_;
}

Piece Job::to(uint32_t peer) const {
  const std::vector<uint64_t>& counts = call_.send_counts;
  const Piece whole{send_, call_.count * item_bytes_};
  switch (call_.kind) {
    case BP_COLLECTIVE_ALL_REDUCE:
      return whole;
    case BP_COLLECTIVE_REDUCE:
      return peer == call_.root ? whole : Piece{};
    case BP_COLLECTIVE_BROADCAST:
      return is_root() ? whole : Piece{};
    case BP_COLLECTIVE_ALL_GATHER:
      return {send_, counts[call_.rank] * item_bytes_};
    case BP_COLLECTIVE_GATHER:
      return peer == call_.root ? Piece{send_, counts[call_.rank] * item_bytes_} : Piece{};
    case BP_COLLECTIVE_SCATTER:
      if (!is_root()) return {};
      [[fallthrough]];
    case BP_COLLECTIVE_REDUCE_SCATTER:
    case BP_COLLECTIVE_ALL_TO_ALL:
      return {send_ == nullptr ? nullptr : send_ + offset(counts, peer),
              counts[peer] * item_bytes_};
    default:
      return {};
  }
}

Piece Job::from(uint32_t peer) const {
  const std::vector<uint64_t>& counts = call_.send_counts;
  const Piece whole{receive(), call_.count * item_bytes_};
  const Piece own{receive(), counts[call_.rank] * item_bytes_};
  const auto part_of = [&](const std::vector<uint64_t>& all) {
    std::byte* const begin = receive() == nullptr ? nullptr : receive() + offset(all, peer);
    return Piece{begin, all[peer] * item_bytes_};
  };
  switch (call_.kind) {
    case BP_COLLECTIVE_ALL_REDUCE:
      return whole;
    case BP_COLLECTIVE_REDUCE:
      return is_root() ? whole : Piece{};
    case BP_COLLECTIVE_BROADCAST:
      return peer == call_.root ? whole : Piece{};
    case BP_COLLECTIVE_ALL_GATHER:
      return part_of(counts);
    case BP_COLLECTIVE_GATHER:
      return is_root() ? part_of(counts) : Piece{};
    case BP_COLLECTIVE_SCATTER:
      return peer == call_.root ? own : Piece{};
    case BP_COLLECTIVE_REDUCE_SCATTER:
      return own;
    case BP_COLLECTIVE_ALL_TO_ALL:
      return part_of(call_.receive_counts);
    default:
      return {};
  }
}

uint64_t Job::largest_bytes() const {
  if (call_.kind == BP_COLLECTIVE_BARRIER) return 0;
  uint64_t largest = *std::ranges::max_element(call_.send_counts);
  if (call_.kind == BP_COLLECTIVE_ALL_TO_ALL) {
    largest = std::max(largest, *std::ranges::max_element(call_.receive_counts));
  }
  return largest * item_bytes_;
}

void Job::contribute(const std::byte* from, uint64_t size_bytes, std::byte* out) const {
  if (size_bytes == 0) return;
  if (call_.reduction != BP_REDUCTION_SCALED_SUM) {
    std::memcpy(out, from, size_bytes);
    return;
  }
  const kernels::Contribution own{from, call_.scale};
  kernels::combine(BP_REDUCTION_SCALED_SUM, call_.dtype, {&own, 1}, out,
                   static_cast<int64_t>(size_bytes / item_bytes_));
}

void Job::combine(const std::vector<const std::byte*>& pieces, uint64_t size_bytes,
                  std::byte* out) const {
  if (size_bytes == 0) return;
  std::vector<kernels::Contribution> contributions;
  contributions.reserve(pieces.size());
  for (const std::byte* piece : pieces) contributions.push_back({piece, 1.0});
  const bool is_average = call_.reduction == BP_REDUCTION_AVERAGE;
  kernels::combine(is_average ? call_.reduction : step_of(call_.reduction), call_.dtype,
                   contributions, out, static_cast<int64_t>(size_bytes / item_bytes_));
}

}  // namespace bp::shm
