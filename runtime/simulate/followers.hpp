// Who waits for whom in a program.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backplane/runtime/error.hpp"
#include "runtime/simulate/schedule.hpp"

namespace bp::simulate {

struct Followers {
  std::vector<std::vector<uint32_t>> of;  // The operations that wait for each one.
  std::vector<uint32_t> wait_counts;      // What each operation waits for.
};

// Throws bp::Error if an operation waits for itself or a later one.
inline Followers followers_of(const Program& program) {
  const size_t count = program.operations.size();
  Followers followers{std::vector<std::vector<uint32_t>>(count), std::vector<uint32_t>(count)};
  std::vector<std::optional<uint32_t>> last(256);
  for (uint32_t i = 0; i < count; ++i) {
    const Operation& operation = program.operations[i];
    const auto wait_for = [&](uint32_t before) {
      if (before >= i) {
        throw Error(BP_INVALID_ARGUMENT, "operation " + std::to_string(i) +
                                             " waits for operation " + std::to_string(before) +
                                             "; allowed: operations before it");
      }
      followers.of[before].push_back(i);
      ++followers.wait_counts[i];
    };
    if (last[operation.stream]) wait_for(*last[operation.stream]);
    for (const uint32_t before : operation.after) wait_for(before);
    last[operation.stream] = i;
  }
  return followers;
}

}  // namespace bp::simulate
