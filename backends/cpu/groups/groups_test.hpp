// Helps the tests of process groups: ranks of one process, with their streams and their memory.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "backends/shell/test_backend.hpp"
#include "backplane/collective.h"

namespace bp::cpu {

constexpr uint64_t kLong = 60'000'000'000, kShort = 1'000'000'000;

// The tests run twice: with memory that the ranks share, and without it, as between machines. This
// variable says which; without it the default counts.
constexpr const char* kSharedMemory = "BACKPLANE_TEST_SHARED_MEMORY";

// An instance of the backend and the ranks that live there. It stands for a process.
class Ranks {
 public:
  static constexpr uint64_t kElements = 64;  // Of the memory of each rank, in f32.

  explicit Ranks(const char* table = "gloo", const char* plugin = BACKEND_PATH)
      : backend_(plugin), table_(table) {}
  Ranks(const Ranks&) = delete;
  ~Ranks() {
    for (const Rank& rank : ranks_) ops().destroy(ops().self, rank.group);
    for (const Rank& rank : ranks_) {
      backend_.streams->synchronize(backend_.streams->self, rank.stream, kLong);
    }
  }

  const bp_process_group_ops& ops() const {
    const auto& all = backend_.process_groups;
    const auto place =
        std::ranges::find_if(all, [&](const auto* ops) { return table_ == ops->name; });
    if (place == all.end()) throw std::runtime_error("there is no table " + table_);
    return **place;
  }
  TestBackend& backend() { return backend_; }
  const std::string& text() const { return backend_.text; }
  bp_process_group* group(size_t i) const { return ranks_[i].group; }
  float* values(size_t i) const { return ranks_[i].values; }
  void set(size_t i, const std::vector<float>& values) {
    std::copy(values.begin(), values.end(), ranks_[i].values);
  }
  std::vector<float> get(size_t i, size_t count) const {
    return {ranks_[i].values, ranks_[i].values + count};
  }

  // Creates the given ranks of a group of `size` ranks, and keeps them behind those that are here.
  bp_status create(const std::vector<uint32_t>& ranks, uint32_t size, const bp_store* store,
                   uint64_t timeout_ns = kLong, std::vector<bp_option> options = {}) {
    if (const char* const value = std::getenv(kSharedMemory)) {
      options.push_back({"shared_memory", value});
    }
    const std::vector<bp_device*> devices(ranks.size(), backend_.device);
    const bp_process_group_desc desc{.struct_size = sizeof(desc),
                                     .struct_type = BP_STRUCT_PROCESS_GROUP_DESC,
                                     .devices = devices.data(),
                                     .ranks = ranks.data(),
                                     .local_count = static_cast<uint32_t>(ranks.size()),
                                     .world_size = size,
                                     .store = store,
                                     .key_prefix = "test/",
                                     .timeout_ns = timeout_ns,
                                     .option_count = options.size(),
                                     .options = options.data()};
    std::vector<bp_process_group*> groups(ranks.size());
    const bp_status status = ops().create(ops().self, &desc, groups.data());
    if (status == BP_OK) add(groups);
    return status;
  }

  void add(const std::vector<bp_process_group*>& groups) {
    for (bp_process_group* const group : groups) {
      Rank rank{.group = group, .stream = backend_.make_stream()};
      rank.buffer = backend_.make_buffer(kElements * sizeof(float));
      uint64_t address = 0;
      backend_.allocator->address(backend_.allocator->self, rank.buffer, &address);
      // NOLINTNEXTLINE(performance-no-int-to-ptr): the ABI has addresses as numbers.
      rank.values = reinterpret_cast<float*>(address);
      std::fill_n(rank.values, kElements, 0.0f);
      ranks_.push_back(rank);
    }
  }

  // Destroys the group of the last rank, which this object then forgets.
  void destroy_last() {
    ops().destroy(ops().self, ranks_.back().group);
    backend_.streams->synchronize(backend_.streams->self, ranks_.back().stream, kLong);
    ranks_.pop_back();
  }

  // Returns a call of a rank in place.
  bp_collective_call call(size_t i, bp_collective_kind kind, bp_reduction reduction = 0,
                          uint64_t count = 4) {
    const bp_buffer_ref all{ranks_[i].buffer, 0, kElements * sizeof(float)};
    return {.struct_size = sizeof(bp_collective_call),
            .struct_type = BP_STRUCT_COLLECTIVE_CALL,
            .group = ranks_[i].group,
            .stream = ranks_[i].stream,
            .send = all,
            .receive = all,
            .count = count,
            .kind = kind,
            .reduction = reduction,
            .dtype = BP_F32};
  }
  // Returns a letter that is sent from the first elements, or received behind them.
  bp_collective_call letter(size_t i, bp_collective_kind kind, uint32_t peer) {
    bp_collective_call made = call(i, kind);
    made.root = peer;
    made.receive.byte_offset = 32 * sizeof(float);
    made.receive.size_bytes = 32 * sizeof(float);
    return made;
  }
  bp_collective_call sum(size_t i) { return call(i, BP_COLLECTIVE_ALL_REDUCE, BP_REDUCTION_SUM); }

  bp_status submit(const std::vector<bp_collective_call>& calls) {
    return ops().submit(ops().self, calls.size(), calls.data(), sizeof(bp_collective_call));
  }
  // Waits for the stream of a rank.
  bp_status outcome(size_t i) {
    return backend_.streams->synchronize(backend_.streams->self, ranks_[i].stream, kLong);
  }
  bp_status status(size_t i) { return ops().status(ops().self, ranks_[i].group); }

 private:
  struct Rank {
    bp_process_group* group = nullptr;
    bp_stream* stream = nullptr;
    bp_buffer* buffer = nullptr;
    float* values = nullptr;
  };

  TestBackend backend_;
  const std::string table_;
  std::vector<Rank> ranks_;
};

}  // namespace bp::cpu
