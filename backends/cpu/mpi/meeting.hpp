// Where the ranks of a new group meet before they make a communicator, which MPI does without a
// timeout: in the host's store.
//
// All ranks first wait for each other, because MPI starts in one process only when it does in all.
// Then each rank says which process of MPI it is. Rank 0 waits for all, and then decides for all
// that they go on, or why not. A rank that gives up says so first, and looks whether rank 0 is
// deciding at this moment. So either all ranks go on or none does.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backplane/collective.h"

namespace bp::mpi {

struct MeetingPlan {
  const bp_store& store;
  std::string prefix;  // Of all keys.
  uint32_t rank = 0, world_size = 1;
  uint64_t timeout_ns = 0;
  const char* call = "";  // The entry, for texts.

  // Starts MPI within timeout_ns, and returns the process of this rank. It runs when all ranks have
  // come.
  std::function<int(uint64_t timeout_ns)> start;
};

// The keys of a group in the host's store. Functions throw StatusError. The plan must live as long.
class MeetingStore {
 public:
  explicit MeetingStore(const MeetingPlan& plan) : plan_(plan) {}

  void put(const std::string& key, const std::string& value) const;

  // Returns the value of a key, or nothing if it does not come in time.
  std::optional<std::string> get(const std::string& key, uint64_t timeout_ns) const;

 private:
  const MeetingPlan& plan_;
};

// Returns the sentence about a rank that has not come.
std::string late(const MeetingPlan& plan, uint32_t rank);

// Returns the process of each rank. Throws StatusError if a rank does not come in time, or if the
// ranks do not fit together.
std::vector<int> meet(const MeetingPlan& plan);

}  // namespace bp::mpi
