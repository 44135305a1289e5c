// The checks that all ranks of a group run in one order: a call of each kind, dtype, reduction,
// size and placement, and what a group says about itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backplane/collective.h"
#include "conformance/case.hpp"

namespace bp::conformance::dist {

// What a group runs: an answer of supports().
struct Claim {
  bp_collective_kind kind = 0;
  bp_reduction reduction = 0;
  bp_dtype dtype = 0;

  bool operator==(const Claim&) const = default;
};

enum class Sort {
  kCall,     // One call of each rank. A send goes to the next rank, with a receive of the one
             // before.
  kPairs,    // Sends to all other ranks and receives from them, in one submit().
  kBarrier,  // A barrier that the last rank reaches late.
  kRank,     // rank() of the group.
  kSplit,    // split() by color and key.
};

// The values of a call: exact in any order, or random floats within the bound of [COLLECTIVE-11].
enum class Data { kExact, kNoise };

struct Check {
  Sort sort = Sort::kCall;
  Claim claim;
  uint64_t count = 0;
  bool is_uneven = false;
  bool is_in_place = false;
  uint32_t root = 0;
  Data data = Data::kExact;

  // Returns "all_reduce sum f32, 37 elements, in place".
  std::string text() const;
  // Returns the row of the table in which the check is counted: "all_reduce", "rank".
  std::string group() const;
  // Returns what checks have in common that end groups for one reason: "all_to_all, in place".
  std::string family() const;
};

const char* kind_text(bp_collective_kind kind);
const char* reduction_text(bp_reduction reduction);
// Returns "all_reduce sum f32".
std::string claim_text(const Claim& claim);

bool is_reducing(bp_collective_kind kind);
bool has_root(bp_collective_kind kind);
// Returns whether the table of collective.h has n * count for one side of the kind.
bool has_parts(bp_collective_kind kind);

// Returns whether the suite has values of this dtype: it has none of packed and complex elements,
// and of those of a vendor.
bool has_values(bp_dtype dtype);

// Returns all claims that may be asked for, of these dtypes.
std::vector<Claim> possible_claims(const std::vector<bp_dtype>& dtypes);

// Returns the checks of these claims in the order of a run. All ranks get equal lists for equal
// arguments.
std::vector<Check> list_checks(const std::vector<Claim>& claims, uint32_t world_size, Tier tier);

// Elements that a rank receives in one piece.
struct Piece {
  uint32_t from = 0;       // The rank that gave them, if the kind does not reduce.
  uint64_t source_at = 0;  // The first of them in what the rank sends, or in what is reduced.
  uint64_t at = 0;         // The first of them in what is received.
  uint64_t count = 0;
};

// The elements that one rank sends and receives in a check.
struct Shape {
  uint64_t sends = 0, receives = 0;
  std::vector<Piece> pieces;
  // In place, the smaller range begins here in the larger one.
  uint64_t part_at = 0;
  std::vector<uint64_t> counts, receive_counts;  // Empty if the call gives none.
};

Shape shape_of(const Check& check, uint32_t rank, uint32_t world_size);

}  // namespace bp::conformance::dist
