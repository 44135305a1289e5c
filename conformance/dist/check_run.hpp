// Runs one check on one rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "conformance/case.hpp"
#include "conformance/dist/check.hpp"
#include "conformance/dist/seat.hpp"

namespace bp::conformance::dist {

struct CheckResult {
  Outcome outcome = Outcome::kPass;
  std::string text;
  bool has_ended_group = false;  // The group cannot be used any more.
  // Hashes of pieces of the result, if all ranks must have the same bits.
  std::vector<uint64_t> hashes;
};

// A rank in its group, as checks use it.
struct Place {
  Seat& seat;
  Group& group;
  FolderStore& store;
  uint32_t rank = 0, world_size = 1;
  uint64_t seed = 0;
  uint64_t timeout_ns = 0;   // Of a call.
  uint64_t patience_ns = 0;  // Until what must have ended at the end of the timeout has ended.
};

// `index` is the place of the check in the run; it is the same on all ranks.
CheckResult run_check(const Place& place, const Check& check, uint64_t index);

// Returns the claims that supports() of the group confirms. Throws RankError if it answers with
// another status than BP_OK and BP_UNSUPPORTED.
std::vector<Claim> confirmed_claims(const Group& group, const std::vector<Claim>& possible);

// A call of one rank in its memory, for checks, faults and times.
class Call {
 public:
  // Writes the elements that the rank sends. With `is_aligned` ranges begin at aligned addresses,
  // else at the third element. It uses the slots `first_slot` and the next one of the seat.
  Call(const Place& place, const Check& check, bool is_aligned, int first_slot = 0);
  Call(const Call&) = delete;

  const std::vector<bp_collective_call>& calls() const { return calls_; }
  uint64_t sent_bytes() const { return shape_.sends * item_; }

  // Writes the elements again, behind an earlier run.
  void write();

  struct Found {
    uint64_t wrong_count = 0;
    std::string text;              // What is wrong first, or "".
    std::vector<uint64_t> hashes;  // Of pieces of what an all_reduce gave.
  };
  // Reads what was received, and compares it and the bytes around it.
  Found look();

 private:
  void make_calls(const bp_buffer_ref& send, const bp_buffer_ref& receive);
  std::string guard_text(const std::vector<std::byte>& image, const Range& range) const;

  const Place& place_;
  const Check check_;
  const uint64_t item_;
  const Shape shape_;
  const std::vector<std::byte> sent_;
  Range first_, second_;  // In place, the second is not used.
  bool is_shared_ = false;
  uint64_t send_at_ = 0, receive_at_ = 0;  // In place, the bytes before each in the first range.
  std::vector<bp_collective_call> calls_;
};

}  // namespace bp::conformance::dist
