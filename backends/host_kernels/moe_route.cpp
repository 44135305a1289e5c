// moe_route chooses experts, row by row, and then counts how many tokens each expert takes. The
// best k so far are kept in order, so a row is read once for the choice.
#include <algorithm>
#include <cmath>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/kernels.hpp"
#include "backends/host_kernels/strided.hpp"

namespace bp::kernels {
namespace {

struct Route {
  View x, choice, weights, experts, counts, dropped;
  bool has_choice = false, has_experts = false, has_counts = false, has_dropped = false;
  bool is_sigmoid = false, renormalizes = false;
  int64_t tokens = 0, expert_count = 0, k = 0, limit = 0;

  int64_t pairs() const { return tokens * k; }
};

// The places in the workspace: what was chosen, with its scores, and the tokens of each expert.
struct Places {
  explicit Places(const Route& r, int64_t score_size_bytes) {
    const auto reserve = [&](int64_t count, int64_t item_size_bytes) {
      return reserve_bytes(static_cast<uint64_t>(count * item_size_bytes), size_bytes);
    };
    chosen = reserve(r.pairs(), sizeof(int64_t));
    counts = reserve(r.expert_count, sizeof(int64_t));
    scores = reserve(r.pairs(), score_size_bytes);
  }
  uint64_t size_bytes = 0, chosen, counts, scores;
};

template <typename T>
T& element(const View& view, int64_t row, int64_t col) {
  return reinterpret_cast<T*>(view.address)[row * view.strides[0] + col * view.strides[1]];
}

// NaN is larger than every number.
template <typename Sum>
bool is_larger(Sum a, Sum b) {
  return std::isnan(a) ? !std::isnan(b) : a > b;
}

template <typename T>
class Routing {
 public:
  using Sum = Compute<T>;

  Routing(const Route& route, std::byte* workspace) : r_(route) {
    const Places places(route, sizeof(Sum));
    chosen_ = reinterpret_cast<int64_t*>(workspace + places.chosen);
    counts_ = reinterpret_cast<int64_t*>(workspace + places.counts);
    scores_ = reinterpret_cast<Sum*>(workspace + places.scores);
  }

  void run(int thread_count) const {
    constexpr int64_t kGrainElements = 2048;
    const int64_t grain = std::max<int64_t>(1, kGrainElements / r_.expert_count);
    parallel_for(thread_count, r_.tokens, grain, [&](int64_t begin, int64_t end) {
      for (int64_t token = begin; token < end; ++token) {
        choose(token);
        score(token);
      }
    });
    const int64_t lost = drop();
    for (int64_t token = 0; token < r_.tokens; ++token) write(token);
    for (int64_t e = 0; e < r_.expert_count && r_.has_counts; ++e) {
      reinterpret_cast<int64_t*>(r_.counts.address)[e * r_.counts.strides[0]] = counts_[e];
    }
    if (r_.has_dropped) *reinterpret_cast<int64_t*>(r_.dropped.address) = lost;
  }

 private:
  Sum key(int64_t token, int64_t expert) const {
    return r_.has_choice ? element<const Sum>(r_.choice, token, expert) : logit(token, expert);
  }
  Sum logit(int64_t token, int64_t expert) const {
    return widen(element<const T>(r_.x, token, expert));
  }

  // Of equal elements the one with the lower index comes first.
  void choose(int64_t token) const {
    int64_t* const best = chosen_ + token * r_.k;
    int64_t count = 0;
    for (int64_t e = 0; e < r_.expert_count; ++e) {
      const Sum value = key(token, e);
      if (count == r_.k && !is_larger(value, key(token, best[count - 1]))) continue;
      int64_t at = count < r_.k ? count++ : count - 1;
      for (; at > 0 && is_larger(value, key(token, best[at - 1])); --at) best[at] = best[at - 1];
      best[at] = e;
    }
  }

  static Sum sigmoid(Sum x) {
    const Sum e = std::exp(-std::abs(x));
    return (std::signbit(x) ? e : Sum{1}) / (1 + e);
  }

  void score(int64_t token) const {
    const int64_t* const best = chosen_ + token * r_.k;
    Sum* const scores = scores_ + token * r_.k;
    if (r_.is_sigmoid) {
      for (int64_t j = 0; j < r_.k; ++j) scores[j] = sigmoid(logit(token, best[j]));
      return;
    }
    Sum peak = logit(token, 0);
    for (int64_t e = 1; e < r_.expert_count; ++e) peak = std::max(peak, logit(token, e));
    double total = 0;
    for (int64_t e = 0; e < r_.expert_count; ++e) total += std::exp(logit(token, e) - peak);
    for (int64_t j = 0; j < r_.k; ++j) {
      scores[j] = std::exp(logit(token, best[j]) - peak) / static_cast<Sum>(total);
    }
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
  int64_t* chosen_;
  int64_t* counts_;
  Sum* scores_;
};

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

uint64_t route_workspace(const bp_moe_route_args& args, const Env&) {
  return Places(route_of(args), dtype_size_bytes(args.weights->dtype)).size_bytes;
}

bp_status route_launch(const bp_moe_route_args& args, Launch& launch) {
  if (const bp_reason reason = route_supports(args)) {
    return launch.refuse(BP_UNSUPPORTED, std::string("moe_route: ") + reason);
  }
  return launch.submit([r = route_of(args), workspace = launch.workspace(), dtype = args.x->dtype,
                        threads = launch.thread_count()] {
    with_float(dtype, [&]<typename T>(T) { Routing<T>(r, workspace).run(threads); });
  });
}

}  // namespace

constinit const bp_kernel kMoeRoute =
    make_kernel<bp_moe_route_args, route_launch, route_supports, route_workspace>(
        kernel_row_of_any_shape("moe_route", BP_OP_MOE_ROUTE, kFloatDtypes));

}  // namespace bp::kernels
