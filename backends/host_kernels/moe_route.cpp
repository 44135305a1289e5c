// moe_route chooses experts, row by row, and then counts how many tokens each expert takes.
//
// A thread widens a row to a buffer, and makes integers of its elements whose order is that of the
// elements. The largest of them is searched k times, on vectors. So are the exponentials of the row
// computed.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/moe_route.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/kernels.hpp"
#include "backends/host_kernels/lanes-inl.hpp"
#include "backends/host_kernels/math-inl.hpp"
#include "backends/host_kernels/records.hpp"
#include "backends/host_kernels/strided.hpp"
#include "hwy/highway.h"

#ifndef BACKPLANE_CPU_MOE_ROUTE_PLAN
#define BACKPLANE_CPU_MOE_ROUTE_PLAN
namespace bp::kernels {
namespace {

struct Route {
  View x, choice, weights, experts, counts, dropped;
  bool has_choice = false, has_experts = false, has_counts = false, has_dropped = false;
  bool is_sigmoid = false, renormalizes = false;
  int64_t tokens = 0, expert_count = 0, k = 0, limit = 0;

  int64_t pairs() const { return tokens * k; }
  // Returns the elements of a row in whole vectors.
  int64_t row_elements() const {
    constexpr int64_t kMostLanes = 16;
    return (expert_count + kMostLanes - 1) / kMostLanes * kMostLanes;
  }
};

// The places in the workspace: what was chosen, with its scores, the tokens of each expert, and for
// each thread rows of logits, of what the choice follows, and of keys.
struct RoutePlaces {
  RoutePlaces(const Route& r, int64_t score_size_bytes, int threads) {
    const auto reserve = [&](int64_t count, int64_t item_size_bytes) {
      return reserve_bytes(static_cast<uint64_t>(count * item_size_bytes), size_bytes);
    };
    chosen = reserve(r.pairs(), sizeof(int64_t));
    counts = reserve(r.expert_count, sizeof(int64_t));
    scores = reserve(r.pairs(), score_size_bytes);
    rows = reserve(int64_t{3} * threads * r.row_elements(), score_size_bytes);
  }
  uint64_t size_bytes = 0, chosen, counts, scores, rows;
};

}  // namespace
}  // namespace bp::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
T& element(const View& view, int64_t row, int64_t col) {
  return reinterpret_cast<T*>(view.address)[row * view.strides[0] + col * view.strides[1]];
}

// Widens a row of n elements.
template <typename T>
void widen_row(const View& view, int64_t row, int64_t n, Compute<T>* HWY_RESTRICT to) {
  int64_t i = 0;
  if (view.strides[1] == 1) {
    const ComputeTag<T> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const T* const from = &element<const T>(view, row, 0);
    for (; i + lanes <= n; i += lanes) hn::StoreU(load_lanes(d, from + i), d, to + i);
  }
  for (; i < n; ++i) to[i] = widen(element<const T>(view, row, i));
}

// Replaces x by exp(x - peak), where `peak` is the largest of n elements, and returns the sum of
// the results. It is NaN if an element is. `x` has room for whole vectors.
template <typename Sum>
double exponentials(Sum* HWY_RESTRICT x, int64_t n) {
  const hn::ScalableTag<Sum> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Sum least = -std::numeric_limits<Sum>::infinity();
  int64_t end = n;
  for (; end % lanes != 0; ++end) x[end] = least;
  auto largest = hn::Set(d, least);
  for (int64_t i = 0; i < end; i += lanes) largest = hn::Max(largest, hn::LoadU(d, x + i));
  const auto peak = hn::MaxOfLanes(d, largest);
  for (int64_t i = 0; i < end; i += lanes) {
    hn::StoreU(exp_of_negative(d, hn::Sub(hn::LoadU(d, x + i), peak)), d, x + i);
  }
  // The order of a sum is the same on every target.
  std::array<double, 8> sums{};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (int64_t j = 0; j < 8; ++j) sums[static_cast<size_t>(j)] += double{x[i + j]};
  }
  for (; i < n; ++i) sums[static_cast<size_t>(i % 8)] += double{x[i]};
  return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

template <typename T>
class Routing {
 public:
  using Sum = Compute<T>;
  using Key = std::make_signed_t<BitsOf<Sum>>;

  Routing(const Route& route, std::byte* workspace, int threads) : r_(route), threads_(threads) {
    const RoutePlaces places(route, sizeof(Sum), threads);
    chosen_ = reinterpret_cast<int64_t*>(workspace + places.chosen);
    counts_ = reinterpret_cast<int64_t*>(workspace + places.counts);
    scores_ = reinterpret_cast<Sum*>(workspace + places.scores);
    rows_ = reinterpret_cast<Sum*>(workspace + places.rows);
  }

  void run() const {
    const bool may_drop = r_.limit < r_.tokens;
    for_each_token([&](int64_t token) {
      route(token);
      if (!may_drop) write(token);
    });
    const int64_t lost = may_drop || r_.has_counts ? drop() : 0;
    if (may_drop) for_each_token([&](int64_t token) { write(token); });
    for (int64_t e = 0; e < r_.expert_count && r_.has_counts; ++e) {
      reinterpret_cast<int64_t*>(r_.counts.address)[e * r_.counts.strides[0]] = counts_[e];
    }
    if (r_.has_dropped) *reinterpret_cast<int64_t*>(r_.dropped.address) = lost;
  }

 private:
  template <typename Body>
  void for_each_token(const Body& body) const {
    constexpr int64_t kGrainElements = 2048;
    const int64_t grain = std::max<int64_t>(1, kGrainElements / r_.expert_count);
    parallel_for(threads_, r_.tokens, grain, [&](int64_t begin, int64_t end) {
      for (int64_t token = begin; token < end; ++token) body(token);
    });
  }

  // Chooses the experts of a token, and computes their scores.
  void route(int64_t token) const {
    Sum* const logits = rows_ + int64_t{3} * thread_number() * r_.row_elements();
    widen_row<T>(r_.x, token, r_.expert_count, logits);
    Sum* const choice = logits + r_.row_elements();
    if (r_.has_choice) widen_row<Sum>(r_.choice, token, r_.expert_count, choice);
    choose(token, r_.has_choice ? choice : logits,
           reinterpret_cast<Key*>(choice + r_.row_elements()));
    score(token, logits);
  }

  // Of equal elements the one with the lower index comes first. `keys` has room for whole vectors.
  void choose(int64_t token, const Sum* row, Key* keys) const {
    const hn::ScalableTag<Key> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    constexpr Key kLeast = std::numeric_limits<Key>::min();  // No element has it.
    for (int64_t e = 0; e < r_.expert_count; ++e) {
      keys[e] = static_cast<Key>(key_of(row[e]) ^ static_cast<BitsOf<Sum>>(kLeast));
    }
    int64_t end = r_.expert_count;
    for (; end % lanes != 0; ++end) keys[end] = kLeast;
    for (int64_t j = 0; j < r_.k; ++j) {
      auto best = hn::Set(d, kLeast);
      for (int64_t i = 0; i < end; i += lanes) best = hn::Max(best, hn::LoadU(d, keys + i));
      const auto largest = hn::MaxOfLanes(d, best);
      int64_t i = 0, lane = -1;
      for (; lane < 0; i += lanes) {
        lane = hn::FindFirstTrue(d, hn::Eq(hn::LoadU(d, keys + i), largest));
      }
      const int64_t expert = i - lanes + lane;
      chosen_[token * r_.k + j] = expert;
      keys[expert] = kLeast;
    }
  }

  static Sum sigmoid(Sum x) {
    const Sum e = std::exp(-std::abs(x));
    return (std::signbit(x) ? e : Sum{1}) / (1 + e);
  }

  void score(int64_t token, Sum* logits) const {
    const int64_t* const best = chosen_ + token * r_.k;
    Sum* const scores = scores_ + token * r_.k;
    if (r_.is_sigmoid) {
      for (int64_t j = 0; j < r_.k; ++j) scores[j] = sigmoid(logits[best[j]]);
      return;
    }
    const auto total = static_cast<Sum>(exponentials(logits, r_.expert_count));
    for (int64_t j = 0; j < r_.k; ++j) scores[j] = logits[best[j]] / total;
  }

  // Gives each expert its tokens, first choices first, and makes the others -1. Returns how many
  // were dropped.
  int64_t drop() const {
    int64_t lost = 0;
    std::fill_n(counts_, r_.expert_count, int64_t{0});
    for (int64_t j = 0; j < r_.k; ++j) {
      for (int64_t token = 0; token < r_.tokens; ++token) {
        int64_t& expert = chosen_[token * r_.k + j];
        if (counts_[expert] < r_.limit) {
          ++counts_[expert];
        } else {
          expert = -1;
          ++lost;
        }
      }
    }
    return lost;
  }

  void write(int64_t token) const {
    const int64_t* const chosen = chosen_ + token * r_.k;
    const Sum* const scores = scores_ + token * r_.k;
    double total = 0;
    for (int64_t j = 0; j < r_.k; ++j) total += chosen[j] < 0 ? 0 : double{scores[j]};
    const Sum divisor = r_.renormalizes && total != 0 ? static_cast<Sum>(total) : Sum{1};
    for (int64_t j = 0; j < r_.k; ++j) {
      element<Sum>(r_.weights, token, j) = chosen[j] < 0 ? Sum{0} : scores[j] / divisor;
      if (r_.has_experts) element<int64_t>(r_.experts, token, j) = chosen[j];
    }
  }

  const Route& r_;
  int threads_;
  int64_t* chosen_;
  int64_t* counts_;
  Sum* scores_;
  Sum* rows_;
};

void run_route(const Route& r, bp_dtype dtype, std::byte* workspace, int threads) {
  with_float(dtype, [&]<typename T>(T) { Routing<T>(r, workspace, threads).run(); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(run_route);

Route route_of(const bp_moe_route_args& args) {
  Route r;
  const auto set = [](const bp_tensor* tensor, View& view) {
    if (tensor != nullptr) view = view_of(*tensor);
    return tensor != nullptr;
  };
  r.x = view_of(*args.x);
  r.weights = view_of(*args.weights);
  r.has_choice = set(args.choice, r.choice);
  r.has_experts = set(args.experts, r.experts);
  r.has_counts = set(args.counts, r.counts);
  r.has_dropped = set(args.dropped, r.dropped);
  r.is_sigmoid = args.scoring == BP_MOE_ROUTE_SCORING_SIGMOID;
  r.renormalizes = args.renormalize != 0;
  r.tokens = args.x->shape[0];
  r.expert_count = args.x->shape[1];
  r.k = args.k;
  r.limit = args.capacity > 0 ? args.capacity : r.tokens;
  return r;
}

bp_reason route_supports(const bp_moe_route_args& args) {
  const bool is_known =
      args.scoring == BP_MOE_ROUTE_SCORING_SOFTMAX || args.scoring == BP_MOE_ROUTE_SCORING_SIGMOID;
  return is_known ? nullptr : "the scoring is not known";
}

uint64_t route_workspace(const bp_moe_route_args& args, const Env& env) {
  const int64_t score_size_bytes = dtype_size_bytes(args.weights->dtype);
  return RoutePlaces(route_of(args), score_size_bytes, env.thread_count()).size_bytes;
}

bp_status route_launch(const bp_moe_route_args& args, Launch& launch) {
  if (const bp_reason reason = route_supports(args)) {
    return launch.refuse(BP_UNSUPPORTED, std::string("moe_route: ") + reason);
  }
  return launch.submit([r = route_of(args), workspace = launch.workspace(), dtype = args.x->dtype,
                        threads = launch.thread_count()] {
    HWY_DYNAMIC_DISPATCH(run_route)(r, dtype, workspace, threads);
  });
}

}  // namespace

extern constinit const bp_kernel kMoeRoute =
    make_kernel<bp_moe_route_args, route_launch, route_supports, route_workspace>(
        kernel_row_of_any_shape("moe_route", BP_OP_MOE_ROUTE, kFloatDtypes));

}  // namespace bp::kernels
#endif  // HWY_ONCE
