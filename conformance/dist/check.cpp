#include "conformance/dist/check.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "conformance/numerics/dtype.hpp"

namespace bp::conformance::dist {
namespace {

constexpr uint64_t kLarge = 1 << 20;

uint64_t sum_of(const std::vector<uint64_t>& counts, size_t first_parts) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(first_parts),
                         uint64_t{0});
}

// Returns the parts of a call: all equal, or of different sizes, one of which is 0.
std::vector<uint64_t> parts_of(const Check& check, uint32_t world_size) {
  std::vector<uint64_t> parts(world_size, check.count);
  if (!check.is_uneven) return parts;
  for (uint32_t i = 0; i < world_size; ++i) {
    parts[i] = i == world_size / 2 ? 0 : check.count + 11 * i;
  }
  return parts;
}

// Returns how many elements go from one rank to another in all_to_all and between pairs.
uint64_t exchanged(const Check& check, uint32_t from, uint32_t to) {
  return check.is_uneven ? (from * 5 + to * 3) % 7 * check.count / 4 : check.count;
}

Shape shape_of_parts(const Check& check, uint32_t rank, uint32_t world_size) {
  const std::vector<uint64_t> parts = parts_of(check, world_size);
  const uint64_t all = sum_of(parts, world_size), before = sum_of(parts, rank);
  const bool is_root = rank == check.root;
  Shape shape;
  shape.part_at = before;
  if (check.is_uneven) shape.counts = parts;
  const auto gather = [&] {
    shape.receives = all;
    for (uint32_t i = 0; i < world_size; ++i) {
      shape.pieces.push_back({i, 0, sum_of(parts, i), parts[i]});
    }
  };
  switch (check.claim.kind) {
    case BP_COLLECTIVE_ALL_GATHER:
      shape.sends = parts[rank];
      gather();
      break;
    case BP_COLLECTIVE_GATHER:
      shape.sends = parts[rank];
      if (is_root) gather();
      break;
    case BP_COLLECTIVE_REDUCE_SCATTER:
      shape.sends = all;
      shape.receives = parts[rank];
      shape.pieces = {{0, before, 0, parts[rank]}};
      break;
    default:  // Scatter.
      shape.sends = is_root ? all : 0;
      shape.receives = parts[rank];
      shape.pieces = {{check.root, before, 0, parts[rank]}};
  }
  return shape;
}

Shape shape_of_exchange(const Check& check, uint32_t rank, uint32_t world_size) {
  Shape shape;
  const bool is_pairs = check.sort == Sort::kPairs;
  std::vector<uint64_t> sends, receives;
  const auto between = [&](uint32_t from, uint32_t to) {
    return is_pairs && from == to ? 0 : exchanged(check, from, to);
  };
  for (uint32_t other = 0; other < world_size; ++other) {
    uint64_t source_at = 0;
    for (uint32_t to = 0; to < rank; ++to) source_at += between(other, to);
    sends.push_back(between(rank, other));
    receives.push_back(between(other, rank));
    shape.pieces.push_back({other, source_at, shape.receives, receives.back()});
    shape.receives += receives.back();
  }
  shape.sends = sum_of(sends, world_size);
  if (check.is_uneven || is_pairs) {
    shape.counts = sends;
    shape.receive_counts = receives;
  }
  return shape;
}

std::vector<uint64_t> counts_of(Tier tier) {
  std::vector<uint64_t> counts = {0, 1, 37, 257};
  if (tier != Tier::kSmoke) counts = {0, 1, 37, 1009, 4097};
  return counts;
}

bool is_sampled(const Claim& claim, Tier tier) {
  if (tier != Tier::kSmoke || claim.dtype == 0) return true;
  return claim.dtype == BP_F32 || claim.dtype == BP_BF16 || claim.dtype == BP_I64 ||
         claim.dtype == BP_U8;
}

// Large calls take most of the time of a run, so few dtypes get them below tier full.
bool is_large(const Claim& claim, Tier tier) {
  if (claim.dtype == 0 || tier == Tier::kSmoke) return false;
  if (tier == Tier::kFull) return true;
  const bool is_sum = claim.reduction == 0 || claim.reduction == BP_REDUCTION_SUM;
  return is_sum && (claim.dtype == BP_F32 || claim.dtype == BP_BF16 || claim.dtype == BP_I32);
}

// A result of an exact average must be a number of the dtype.
bool is_exact(const Claim& claim, uint32_t world_size) {
  return claim.reduction != BP_REDUCTION_AVERAGE ||
         (is_float(claim.dtype) && (world_size & (world_size - 1)) == 0);
}

// Adds the checks of one claim and one count.
class List {
 public:
  List(uint32_t world_size, std::vector<Check>& checks)
      : world_size_(world_size), checks_(checks) {}

  void add(const Claim& claim, uint64_t count) {
    Check check{.claim = claim, .count = count};
    if (claim.kind == BP_COLLECTIVE_SEND) return add_letters(check);
    if (is_exact(claim, world_size_)) add_placements(check);
    const bool is_uneven_kind = has_parts(claim.kind) && world_size_ > 1 && count != 0;
    if (is_uneven_kind && is_exact(claim, world_size_)) {
      check.is_uneven = true;
      add_placements(check);
      check.is_uneven = false;
    }
    const bool has_bound = is_float(claim.dtype) && is_reducing(claim.kind);
    if (has_bound && count != 0) {
      check.data = Data::kNoise;
      push(check);
    }
  }

 private:
  void add_placements(Check check) {
    push(check);
    // The ranges of an uneven exchange have two sizes.
    if (check.is_uneven && check.claim.kind == BP_COLLECTIVE_ALL_TO_ALL) return;
    check.is_in_place = true;
    push(check);
  }

  void add_letters(Check check) {
    if (world_size_ == 1) return;
    push(check);
    if (check.count == 0) return;
    check.sort = Sort::kPairs;
    check.is_uneven = true;
    push(check);
  }

  // The roots take turns.
  void push(Check check) {
    if (has_root(check.claim.kind)) check.root = next_root_++ % world_size_;
    checks_.push_back(check);
  }

  const uint32_t world_size_;
  std::vector<Check>& checks_;
  uint32_t next_root_ = 0;
};

}  // namespace

const char* kind_text(bp_collective_kind kind) {
  constexpr const char* kNames[] = {"?",          "all_reduce",     "reduce",     "broadcast",
                                    "all_gather", "reduce_scatter", "all_to_all", "gather",
                                    "scatter",    "send",           "receive",    "barrier"};
  return kind < std::size(kNames) ? kNames[kind] : "?";
}

const char* reduction_text(bp_reduction reduction) {
  constexpr const char* kNames[] = {"none", "sum",     "product",   "min",
                                    "max",  "average", "scaled_sum"};
  return reduction < std::size(kNames) ? kNames[reduction] : "?";
}

std::string claim_text(const Claim& claim) {
  std::string text = kind_text(claim.kind);
  if (claim.reduction != 0) text += std::string(" ") + reduction_text(claim.reduction);
  if (claim.dtype != 0) text += std::string(" ") + dtype_text(claim.dtype);
  return text;
}

std::string Check::group() const {
  switch (sort) {
    case Sort::kRank:
      return "rank";
    case Sort::kSplit:
      return "split";
    case Sort::kPairs:
    case Sort::kCall:
    case Sort::kBarrier:
      break;
  }
  return claim.kind == BP_COLLECTIVE_SEND ? "send, receive" : kind_text(claim.kind);
}

std::string Check::family() const {
  std::string family = group();
  if (sort == Sort::kPairs) family += " of all pairs";
  if (is_uneven) family += ", uneven parts";
  if (is_in_place) family += ", in place";
  return family;
}

std::string Check::text() const {
  if (sort == Sort::kRank || sort == Sort::kSplit || sort == Sort::kBarrier) return group();
  std::string text = claim_text(claim);
  if (claim.kind == BP_COLLECTIVE_SEND) {
    text = std::string(sort == Sort::kPairs ? "sends and receives of all pairs "
                                            : "send to the next rank, receive ") +
           dtype_text(claim.dtype);
  }
  text += ", " + std::to_string(count) + (count == 1 ? " element" : " elements");
  if (has_parts(claim.kind) || sort == Sort::kPairs) {
    text += is_uneven ? " and more in uneven parts" : " in each part";
  }
  if (has_root(claim.kind)) text += ", root " + std::to_string(root);
  if (is_in_place) text += ", in place";
  if (data == Data::kNoise) text += ", random values";
  return text;
}

bool is_reducing(bp_collective_kind kind) {
  return kind == BP_COLLECTIVE_ALL_REDUCE || kind == BP_COLLECTIVE_REDUCE ||
         kind == BP_COLLECTIVE_REDUCE_SCATTER;
}

bool has_root(bp_collective_kind kind) {
  return kind == BP_COLLECTIVE_REDUCE || kind == BP_COLLECTIVE_BROADCAST ||
         kind == BP_COLLECTIVE_GATHER || kind == BP_COLLECTIVE_SCATTER;
}

bool has_parts(bp_collective_kind kind) {
  return kind == BP_COLLECTIVE_ALL_GATHER || kind == BP_COLLECTIVE_REDUCE_SCATTER ||
         kind == BP_COLLECTIVE_ALL_TO_ALL || kind == BP_COLLECTIVE_GATHER ||
         kind == BP_COLLECTIVE_SCATTER;
}

bool has_values(bp_dtype dtype) {
  if (dtype >= BP_DTYPE_VENDOR_FIRST || dtype == BP_C64 || dtype == BP_C128) return false;
  try {
    return !is_packed(dtype) && element_size(dtype) != 0;
  } catch (const std::invalid_argument&) {
    return false;
  }
}

std::vector<Claim> possible_claims(const std::vector<bp_dtype>& dtypes) {
  std::vector<Claim> claims;
  for (bp_collective_kind kind = BP_COLLECTIVE_ALL_REDUCE; kind <= BP_COLLECTIVE_SEND; ++kind) {
    for (const bp_dtype dtype : dtypes) {
      if (!is_reducing(kind)) {
        claims.push_back({kind, 0, dtype});
        continue;
      }
      // Sums of booleans and of narrow floats have no meaning that the header gives.
      const bool has_sums = dtype != BP_BOOL && !is_coded(dtype);
      for (bp_reduction r = BP_REDUCTION_SUM; has_sums && r <= BP_REDUCTION_SCALED_SUM; ++r) {
        claims.push_back({kind, r, dtype});
      }
    }
  }
  claims.push_back({BP_COLLECTIVE_BARRIER, 0, 0});
  return claims;
}

std::vector<Check> list_checks(const std::vector<Claim>& claims, uint32_t world_size, Tier tier) {
  std::vector<Check> checks = {{.sort = Sort::kRank}, {.sort = Sort::kSplit}};
  List list(world_size, checks);
  for (const Claim& claim : claims) {
    if (claim.kind == BP_COLLECTIVE_BARRIER) {
      checks.push_back({.sort = Sort::kBarrier, .claim = claim});
      continue;
    }
    if (!is_sampled(claim, tier)) continue;
    for (const uint64_t count : counts_of(tier)) list.add(claim, count);
    // The parts of a large call are large together.
    if (is_large(claim, tier)) {
      list.add(claim, has_parts(claim.kind) ? kLarge / world_size + 1 : kLarge);
    }
  }
  return checks;
}

Shape shape_of(const Check& check, uint32_t rank, uint32_t world_size) {
  const bool is_root = rank == check.root;
  const uint64_t count = check.count;
  if (check.sort == Sort::kPairs || check.claim.kind == BP_COLLECTIVE_ALL_TO_ALL) {
    return shape_of_exchange(check, rank, world_size);
  }
  if (has_parts(check.claim.kind)) return shape_of_parts(check, rank, world_size);
  Shape shape{.sends = count, .receives = count};
  switch (check.claim.kind) {
    case BP_COLLECTIVE_REDUCE:
      shape.receives = is_root ? count : 0;
      break;
    case BP_COLLECTIVE_BROADCAST:
      shape.sends = is_root ? count : 0;
      shape.pieces = {{check.root, 0, 0, count}};
      return shape;
    case BP_COLLECTIVE_SEND:
      shape.pieces = {{(rank + world_size - 1) % world_size, 0, 0, count}};
      return shape;
    default:
      break;
  }
  shape.pieces = {{0, 0, 0, shape.receives}};
  return shape;
}

}  // namespace bp::conformance::dist
