// The keys that causal and the windows of sdpa let a query see.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backplane/ops.h"

namespace bp {

// Query i sees the keys from i + begin on, before i + end, if they are within [0, keys).
struct KeyBand {
  int64_t begin = 0, end = 0;
  int64_t keys = 0;

  int64_t first_key(int64_t query) const { return std::clamp<int64_t>(query + begin, 0, keys); }
  int64_t key_limit(int64_t query) const { return std::clamp<int64_t>(query + end, 0, keys); }
};

// `Args` is the frame of sdpa or of sdpa_backward, which number the values of causal alike. The
// sums do not overflow: begin is at least -queries, and end at most keys.
template <typename Args>
KeyBand key_band(const Args& args) {
  static_assert(int{BP_SDPA_CAUSAL_TOP_LEFT} == int{BP_SDPA_BACKWARD_CAUSAL_TOP_LEFT} &&
                int{BP_SDPA_CAUSAL_NONE} == int{BP_SDPA_BACKWARD_CAUSAL_NONE});
  const int64_t queries = args.q->shape[2], keys = args.k->shape[2];
  const int64_t diagonal = args.causal == BP_SDPA_CAUSAL_TOP_LEFT ? 0 : keys - queries;
  const auto width = [&](int64_t window) {
    return window == 0 ? queries + keys : std::min(window, queries + keys);
  };
  const int64_t end = args.causal == BP_SDPA_CAUSAL_NONE ? keys : diagonal + 1;
  return {.begin = std::max(diagonal - width(args.window_left) + 1, -queries),
          .end = std::min({keys, end, diagonal + width(args.window_right)}),
          .keys = keys};
}

// Returns whether some query does not see some key, whatever the mask says.
template <typename Args>
bool has_band(const Args& args) {
  return args.causal != BP_SDPA_CAUSAL_NONE || args.window_left != 0 || args.window_right != 0;
}

}  // namespace bp
