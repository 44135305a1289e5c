// The faults that a group meets across processes. Each fault has fresh processes: one rank, the
// victim, does something wrong or is gone, and every other rank must end in time.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/case.hpp"
#include "conformance/dist/task.hpp"

namespace bp::conformance::dist {

enum class Fault {
  kLate,        // The victim comes late, within the timeout.
  kAbsent,      // It never submits its call, which has a timeout of its own.
  kStopped,     // Its process is stopped.
  kDead,        // It dies before the call.
  kDeadInCall,  // It dies in the middle of calls.
  kOtherCount,  // It submits another count than the other ranks,
  kOtherDtype,  // another dtype,
  kOtherReduction,
  kOtherKind,
  kOtherRoot,
  kOtherOrder,  // or the same two calls in another order.
  kOtherSize,   // It gives create() another number of ranks.
  kNeverComes,  // It does not call create().
  kAbort,       // A rank aborts its group from another thread while it waits for the victim.
};

struct FaultRow {
  Fault fault;
  const char* name;
  const char* what;      // What the victim does, for messages.
  bool has_two_victims;  // The first rank is a victim too, since it may have a role of its own.
};

std::span<const FaultRow> fault_rows();
// Returns NULL for a name that no row has.
const FaultRow* find_fault(std::string_view name);

bool is_mismatch(Fault fault);
bool ends_victim(Fault fault);

// What a rank said of one call.
struct Step {
  bp_status status = BP_OK;
  std::string text;
  double seconds = 0;    // Until the call or its work ended.
  bool is_right = true;  // Of data.
};

// What is known of one rank after a fault.
struct Story {
  std::map<std::string, Step> steps;  // The last step of each name.
  std::vector<std::string> left;      // What was left behind.
  bool is_done = false;
  std::string end;         // How the process ended, if it did not end well.
  std::string skip;        // Why the rank cannot try the fault, or "".
  bool is_killed = false;  // The supervisor killed it, since it did not end in time.
};

struct FaultCase {
  Fault fault = Fault::kLate;
  uint32_t victim = 0, world_size = 2;
  double timeout_seconds = 2, grace_seconds = 5;
};

struct FaultVerdict {
  Outcome outcome = Outcome::kPass;
  std::string text;                // What is wrong first.
  std::vector<std::string> notes;  // Further findings.
};

// Judges what the ranks have said by the rules of collective.h.
FaultVerdict judge_fault(const FaultCase& fault, const std::vector<Story>& ranks);

// Returns whether a text names the rank: "rank 2", "ranks 0 and 2".
bool names_rank(std::string_view text, uint32_t rank);

}  // namespace bp::conformance::dist
