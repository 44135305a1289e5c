// The ranks of a process group in one case, with memory and a stream each.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "conformance/cases/fixtures.hpp"

namespace bp::conformance {

// The value of element `i` that `rank` gives: exact in every dtype, also when reduced.
using ValueOf = std::function<double(uint32_t rank, uint64_t i)>;

// A value that names its rank and, up to 30 of them, its place.
double placed(uint32_t rank, uint64_t i);

// Reports the first element that is not want(its index).
void compare(Context& t, const std::vector<double>& got,
             const std::function<double(uint64_t)>& want, const std::string& what);

class RankGroup {
 public:
  // Makes a group of `size` ranks on the devices of the backend, in turn. Ends the case as
  // NotSupported where the backend has no process groups, or refuses a group of this size whose
  // ranks share devices.
  RankGroup(Context& t, uint32_t size, uint64_t timeout_ns = kTimeoutNs);
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;

  uint32_t size() const { return static_cast<uint32_t>(ranks_.size()); }
  const bp_process_group_ops& ops() const { return *context_.target().process_groups; }
  bp_process_group* group(uint32_t rank) const { return ranks_[rank].group; }
  bp_stream* stream(uint32_t rank) const { return ranks_[rank].stream.get(); }
  bp_device* device(uint32_t rank) const { return ranks_[rank].target->device; }

  // Memory of the rank's device, filled with 0xA5; it lives as long as this.
  bp_buffer_ref allocate(uint32_t rank, uint64_t size_bytes);
  void store(uint32_t rank, const bp_buffer_ref& to, bp_dtype dtype, const ValueOf& value);
  std::vector<double> load(uint32_t rank, const bp_buffer_ref& from, bp_dtype dtype);
  std::vector<uint8_t> bytes(uint32_t rank, const bp_buffer_ref& from);

  // A call of `rank` on its stream, of `count` elements, without memory yet.
  bp_collective_call call(uint32_t rank, bp_collective_kind kind, bp_dtype dtype, uint64_t count,
                          bp_reduction reduction = 0, uint32_t root = 0) const;
  bp_status submit(const std::vector<bp_collective_call>& calls) const;

  // Waits for the streams of all ranks; ends the case if one failed.
  void finish_all();
  // What the stream of `rank` ends with.
  bp_status outcome(uint32_t rank);

 private:
  struct Rank {
    const bp_target* target;
    OwnedStream stream;
    bp_process_group* group = nullptr;
  };

  Context& context_;
  std::vector<OwnedBuffer> buffers_;
  std::vector<Rank> ranks_;
};

// The family, and the parts of it that come with it.
void add_collective_cases(std::vector<Case>& cases);
void add_collective_bound_cases(std::vector<Case>& cases);
void add_collective_failure_cases(std::vector<Case>& cases);

// The targets of the backend that the case runs on.
std::vector<const bp_target*> devices_of(Context& t);

}  // namespace bp::conformance
