#include <gtest/gtest.h>

#include <vector>

#include "backplane/staged.h"
#include "registry/groups/staged_call.hpp"

namespace bp::core {
namespace {

bp_buffer* const kBuffer = reinterpret_cast<bp_buffer*>(16);  // NOLINT: nobody reads it.

bp_collective_call call_of(bp_collective_kind kind, uint64_t count, uint64_t size_bytes,
                           uint32_t root = 0) {
  return {.struct_size = sizeof(bp_collective_call),
          .struct_type = BP_STRUCT_COLLECTIVE_CALL,
          .send = {kBuffer, 64, size_bytes},
          .receive = {kBuffer, 64, size_bytes},
          .count = count,
          .kind = kind,
          .dtype = BP_F32,
          .root = root};
}

std::pair<uint64_t, uint64_t> sizes(const bp_collective_call& call, uint32_t rank) {
  const StagedSizes sizes = staged_sizes(call, rank, 3);
  return {sizes.sent, sizes.received};
}

using Sizes = std::pair<uint64_t, uint64_t>;

TEST(StagedSizes, AreThoseOfTheTableInTheHeader) {
  EXPECT_EQ(sizes(call_of(BP_COLLECTIVE_ALL_REDUCE, 5, 20), 1), Sizes(20, 20));
  EXPECT_EQ(sizes(call_of(BP_COLLECTIVE_REDUCE, 5, 20, 1), 1), Sizes(20, 20));
  EXPECT_EQ(sizes(call_of(BP_COLLECTIVE_REDUCE, 5, 20, 1), 2), Sizes(20, 0));
  EXPECT_EQ(sizes(call_of(BP_COLLECTIVE_BROADCAST, 5, 20, 1), 1), Sizes(20, 20));
  EXPECT_EQ(sizes(call_of(BP_COLLECTIVE_BROADCAST, 5, 20, 1), 0), Sizes(0, 20));
  EXPECT_EQ(sizes(call_of(BP_COLLECTIVE_ALL_GATHER, 5, 60), 1), Sizes(20, 60));
  EXPECT_EQ(sizes(call_of(BP_COLLECTIVE_REDUCE_SCATTER, 5, 60), 1), Sizes(60, 20));
  EXPECT_EQ(sizes(call_of(BP_COLLECTIVE_ALL_TO_ALL, 5, 60), 1), Sizes(60, 60));
  EXPECT_EQ(sizes(call_of(BP_COLLECTIVE_GATHER, 5, 60, 2), 2), Sizes(20, 60));
  EXPECT_EQ(sizes(call_of(BP_COLLECTIVE_GATHER, 5, 60, 2), 0), Sizes(20, 0));
  EXPECT_EQ(sizes(call_of(BP_COLLECTIVE_SCATTER, 5, 60, 2), 2), Sizes(60, 20));
  EXPECT_EQ(sizes(call_of(BP_COLLECTIVE_SEND, 5, 20), 1), Sizes(20, 0));
  EXPECT_EQ(sizes(call_of(BP_COLLECTIVE_RECEIVE, 5, 20), 1), Sizes(0, 20));
  EXPECT_EQ(sizes(call_of(BP_COLLECTIVE_BARRIER, 5, 20), 1), Sizes(0, 0));
}

TEST(StagedSizes, CountUnevenParts) {
  const uint64_t sent[] = {1, 2, 4}, received[] = {2, 2, 2};
  bp_collective_call call = call_of(BP_COLLECTIVE_ALL_TO_ALL, 0, 60);
  call.counts = sent;
  EXPECT_EQ(sizes(call, 1), Sizes(28, 28));
  call.receive_counts = received;
  EXPECT_EQ(sizes(call, 1), Sizes(28, 24));
  call.kind = BP_COLLECTIVE_ALL_GATHER;
  EXPECT_EQ(sizes(call, 1), Sizes(8, 28));
}

TEST(StagedSizes, DoNotWrapAround) {
  EXPECT_EQ(sizes(call_of(BP_COLLECTIVE_ALL_GATHER, UINT64_MAX / 2, 60), 1).second, UINT64_MAX);
  const uint64_t counts[] = {UINT64_MAX, 2, 4};
  bp_collective_call call = call_of(BP_COLLECTIVE_ALL_GATHER, 0, 60);
  call.counts = counts;
  EXPECT_EQ(sizes(call, 1).second, UINT64_MAX);
}

std::vector<bp_collective_call> chunks(const bp_collective_call& call) {
  return chunks_of(call, staged_sizes(call, 0, 3));
}

TEST(StagedChunks, CoverTheCall) {
  constexpr uint64_t kStep = BP_STAGED_CHUNK_BYTES / 4, kCount = 2 * kStep + 3;
  const auto made = chunks(call_of(BP_COLLECTIVE_ALL_REDUCE, kCount, kCount * 4));
  ASSERT_EQ(made.size(), 3u);
  uint64_t at = 64, count = 0;
  for (const bp_collective_call& chunk : made) {
    EXPECT_EQ(chunk.send.byte_offset, at);
    EXPECT_EQ(chunk.receive.byte_offset, at);
    EXPECT_EQ(chunk.send.size_bytes, chunk.count * 4);
    EXPECT_EQ(chunk.receive.size_bytes, chunk.count * 4);
    at += chunk.count * 4;
    count += chunk.count;
  }
  EXPECT_EQ(count, kCount);
  EXPECT_EQ(made[2].count, 3u);
}

TEST(StagedChunks, AreTheCallWhereItCannotBeCut) {
  constexpr uint64_t kMany = BP_STAGED_CHUNK_BYTES;
  EXPECT_EQ(chunks(call_of(BP_COLLECTIVE_ALL_REDUCE, BP_STAGED_CHUNK_BYTES / 4, kMany)).size(), 1u);
  EXPECT_EQ(chunks(call_of(BP_COLLECTIVE_ALL_GATHER, kMany, 12 * kMany)).size(), 1u);
  EXPECT_EQ(chunks(call_of(BP_COLLECTIVE_ALL_REDUCE, kMany, 4 * kMany - 1)).size(), 1u)
      << "the range is too small, so the transport refuses the call";
}

}  // namespace
}  // namespace bp::core
