// Bandwidths of collectives, with the columns and the factors of the usual tests of collectives.
//
//   algbw = size / time       what a program sees
//   busbw = algbw * factor    what a link carries; it does not depend on the number of ranks
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "conformance/dist/check.hpp"
#include "conformance/dist/task.hpp"

namespace bp::conformance::dist {

// The kinds that are timed, in the order of the table.
std::vector<Claim> timed_claims();
// Returns whether the kind is timed in place too.
bool is_timed_in_place(bp_collective_kind kind);

// Returns 2 (n - 1) / n for all_reduce, (n - 1) / n for kinds with parts, and 1 for the others.
double bus_factor(bp_collective_kind kind, uint32_t world_size);

// Returns the elements that `count` of a call has for a size in bytes, which is that of the whole:
// of all parts, if the kind has parts.
uint64_t count_of_size(const Claim& claim, uint64_t size_bytes, uint32_t world_size);

std::vector<uint64_t> listed_sizes(const Sizes& sizes);

// The time of one call in one place.
struct Timing {
  double seconds = 0;
  uint64_t wrong_count = 0;
  bool is_measured = false;
};

struct BandwidthRow {
  Claim claim;
  uint64_t size_bytes = 0, count = 0;
  Timing apart, in_place;

  double algorithm_bandwidth(const Timing& timing) const;  // In bytes per second.
};

// Returns the median of `groups`, each the slowest rank's time of a group of calls.
double median_of_slowest(const std::vector<std::vector<double>>& ranks);

// Returns the lines of the table of one kind.
std::string bandwidth_text(const std::vector<BandwidthRow>& rows, uint32_t world_size);

}  // namespace bp::conformance::dist
