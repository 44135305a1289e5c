#include <algorithm>

#include "backplane/staged.h"
#include "registry/groups/staged_call.hpp"

namespace bp::core {
namespace {

uint64_t product(uint64_t a, uint64_t b) {
  uint64_t out;
  return __builtin_mul_overflow(a, b, &out) ? UINT64_MAX : out;
}

uint64_t sum_of(const uint64_t* counts, uint32_t size) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < size; ++i) {
    if (__builtin_add_overflow(sum, counts[i], &sum)) return UINT64_MAX;
  }
  return sum;
}

// Counts elements.
StagedSizes elements_of(const bp_collective_call& call, uint32_t rank, uint32_t size) {
  const bool is_root = call.root == rank;
  const uint64_t own = call.counts == nullptr ? call.count : call.counts[rank];
  const uint64_t all =
      call.counts == nullptr ? product(size, call.count) : sum_of(call.counts, size);
  switch (call.kind) {
    case BP_COLLECTIVE_ALL_REDUCE:
      return {call.count, call.count};
    case BP_COLLECTIVE_REDUCE:
      return {call.count, is_root ? call.count : 0};
    case BP_COLLECTIVE_BROADCAST:
      return {is_root ? call.count : 0, call.count};
    case BP_COLLECTIVE_ALL_GATHER:
      return {own, all};
    case BP_COLLECTIVE_REDUCE_SCATTER:
      return {all, own};
    case BP_COLLECTIVE_ALL_TO_ALL:
      return {all, call.receive_counts == nullptr ? all : sum_of(call.receive_counts, size)};
    case BP_COLLECTIVE_GATHER:
      return {own, is_root ? all : 0};
    case BP_COLLECTIVE_SCATTER:
      return {is_root ? all : 0, own};
    case BP_COLLECTIVE_SEND:
      return {call.count, 0};
    case BP_COLLECTIVE_RECEIVE:
      return {0, call.count};
    default:  // A barrier has no elements. The transport refuses a kind that nobody knows.
      return {};
  }
}

bool has_chunks(bp_collective_kind kind) {
  return kind == BP_COLLECTIVE_ALL_REDUCE || kind == BP_COLLECTIVE_REDUCE ||
         kind == BP_COLLECTIVE_BROADCAST;
}

}  // namespace

StagedSizes staged_sizes(const bp_collective_call& call, uint32_t rank, uint32_t world_size) {
  const StagedSizes elements = elements_of(call, rank, world_size);
  const auto bytes = [bits = bp_dtype_bits(call.dtype)](uint64_t count) {
    const uint64_t all = product(count, bits);
    return all == UINT64_MAX ? all : all / 8;
  };
  return {bytes(elements.sent), bytes(elements.received)};
}

std::vector<bp_collective_call> chunks_of(const bp_collective_call& call,
                                          const StagedSizes& sizes) {
  const uint64_t element = bp_dtype_bits(call.dtype) / 8;
  const bool fits = sizes.sent <= call.send.size_bytes && sizes.received <= call.receive.size_bytes;
  if (!has_chunks(call.kind) || element == 0 || !fits) return {call};
  const uint64_t step = BP_STAGED_CHUNK_BYTES / element;
  if (call.count <= step) return {call};
  std::vector<bp_collective_call> chunks;
  for (uint64_t first = 0; first < call.count; first += step) {
    bp_collective_call chunk = call;
    chunk.count = std::min(step, call.count - first);
    for (bp_buffer_ref* const range : {&chunk.send, &chunk.receive}) {
      if (range->buffer == nullptr) continue;
      range->byte_offset += first * element;
      range->size_bytes = chunk.count * element;
    }
    chunks.push_back(chunk);
  }
  return chunks;
}

}  // namespace bp::core
