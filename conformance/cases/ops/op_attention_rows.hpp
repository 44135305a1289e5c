// The calls of sdpa and of its gradient that have cases.
#pragma once

#include <string>
#include <vector>

#include "conformance/reference/attention.hpp"

namespace bp::conformance::attention {

enum class Mask {
  kNone,
  kRandom,
  kRandomBlind,  // Some queries see no key.
  kOneKey,       // Every query sees one key.
};

constexpr auto kNoDiagonal = reference::Causal::kNone;
constexpr auto kBottomRight = reference::Causal::kBottomRight;
constexpr auto kTopLeft = reference::Causal::kTopLeft;

struct Row {
  int64_t batch, heads, key_heads, queries, keys, width, value_width;
  reference::Causal causal = kNoDiagonal;
  Mask mask = Mask::kNone;
  bool has_bias = false;
  bool has_lse = true;
  double scale = 0;  // 0 means 1 / sqrt(width).
  // A bias of -inf hides all keys of some queries, and some keys of others.
  bool has_blocked_keys = false;
  int64_t window_left = 0, window_right = 0;
  double softcap = 0;
  bool has_sinks = false;
  double dropout_p = 0;
};

const std::vector<Row>& all_rows();

// Returns whether a row has more than a mask, a bias and the diagonal that ends at the last key.
bool has_later_terms(const Row& row);

// Returns the extents and options of a row, for the id of a case.
std::string detail_of(const Row& row);

}  // namespace bp::conformance::attention
