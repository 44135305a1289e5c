// moe_permute moves rows to the order of their experts, and moe_unpermute adds them up again.
// Threads share rows of y.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/moe.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include <algorithm>
#include <array>
#include <cstring>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/kernels.hpp"
#include "backends/host_kernels/lines-inl.hpp"
#include "backends/host_kernels/strided.hpp"
#include "backends/host_kernels/sums-inl.hpp"

#ifndef BACKPLANE_CPU_MOE_SUMS
#define BACKPLANE_CPU_MOE_SUMS
namespace bp::kernels {
namespace {

// A matrix of indices of i64 or i32.
struct Indices {
  View view;
  bool is_i64 = false;

  explicit Indices(const bp_tensor& tensor)
      : view(view_of(tensor)), is_i64(tensor.dtype == BP_I64) {}

  int64_t at(int64_t row, int64_t col) const {
    const int64_t offset = row * view.strides[0] + col * view.strides[1];
    return is_i64 ? reinterpret_cast<const int64_t*>(view.address)[offset]
                  : reinterpret_cast<const int32_t*>(view.address)[offset];
  }
};

struct Unpermute {
  View x, y, weights;
  Indices places;
  bool has_weights = false;
};

constexpr int64_t kGrainElements = 16384;

// Returns how many rows of this width a thread takes at least.
inline int64_t grain_rows(int64_t width) {
  return std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, width));
}

}  // namespace
}  // namespace bp::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kPart = 512;  // The elements of a row that are summed at a time.

// Computes sums += weight * x for a part of a row.
template <typename Sum>
HWY_INLINE void add_part(const Sum* HWY_RESTRICT x, Sum weight, Sum* HWY_RESTRICT sums) {
  const hn::ScalableTag<Sum> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, weight);
  for (int64_t i = 0; i < kPart; i += lanes) {
    hn::Store(hn::MulAdd(hn::Load(d, x + i), factor, hn::Load(d, sums + i)), d, sums + i);
  }
}

// Computes a row of y in one pass, if rows are dense and few. Returns whether they are.
template <typename T>
bool unpermute_dense(const Unpermute& u, int64_t token) {
  using Sum = Compute<T>;
  constexpr size_t kMostRows = 16;
  const int64_t experts = u.places.view.shape[1];
  if (u.x.strides[1] != 1 || u.y.strides[1] != 1 || experts > int64_t{kMostRows}) return false;
  std::array<const T*, kMostRows> rows;
  std::array<Sum, kMostRows> weights;
  size_t count = 0;
  for (int64_t j = 0; j < experts; ++j) {
    const int64_t place = u.places.at(token, j);
    if (place < 0 || place >= u.x.shape[0]) continue;
    rows[count] = reinterpret_cast<const T*>(u.x.address) + place * u.x.strides[0];
    const int64_t offset = token * u.weights.strides[0] + j * u.weights.strides[1];
    weights[count++] = u.has_weights ? reinterpret_cast<const Sum*>(u.weights.address)[offset] : 1;
  }
  const ComputeTag<T> d;
  T* const to = reinterpret_cast<T*>(u.y.address) + token * u.y.strides[0];
  for_each_lanes<T>(u.y.shape[1], [&](auto lanes) HWY_ATTR {
    auto sum = hn::Zero(d);
    for (size_t j = 0; j < count; ++j) {
      sum = hn::MulAdd(lanes.load(rows[j]), hn::Set(d, weights[j]), sum);
    }
    lanes.store(sum, to);
  });
  return true;
}

// Computes the columns [first, first + count) of a row of y.
template <typename T>
void unpermute_part(const Unpermute& u, int64_t token, int64_t first, int64_t count) {
  using Sum = Compute<T>;
  HWY_ALIGN Sum sums[kPart] = {}, line[kPart] = {};
  for (int64_t j = 0; j < u.places.view.shape[1]; ++j) {
    const int64_t place = u.places.at(token, j);
    if (place < 0 || place >= u.x.shape[0]) continue;
    const auto* const from =
        reinterpret_cast<const T*>(u.x.address) + place * u.x.strides[0] + first * u.x.strides[1];
    load_line(from, u.x.strides[1], count, line);
    const int64_t offset = token * u.weights.strides[0] + j * u.weights.strides[1];
    add_part(line, u.has_weights ? reinterpret_cast<const Sum*>(u.weights.address)[offset] : Sum{1},
             sums);
  }
  auto* const to =
      reinterpret_cast<T*>(u.y.address) + token * u.y.strides[0] + first * u.y.strides[1];
  store_line(sums, count, to, u.y.strides[1]);
}

void unpermute_rows(const Unpermute& u, bp_dtype dtype, int64_t begin, int64_t end) {
  const int64_t width = u.y.shape[1];
  with_float(dtype, [&]<typename T>(T) {
    for (int64_t token = begin; token < end; ++token) {
      if (unpermute_dense<T>(u, token)) continue;
      for (int64_t first = 0; first < width; first += kPart) {
        unpermute_part<T>(u, token, first, std::min(kPart, width - first));
      }
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(unpermute_rows);

bp_status unpermute_launch(const bp_moe_unpermute_args& args, Launch& launch) {
  Unpermute u{view_of(*args.x), view_of(*args.y), {}, Indices(*args.places)};
  u.has_weights = args.weights != nullptr;
  if (u.has_weights) u.weights = view_of(*args.weights);
  return launch.submit([u, dtype = args.x->dtype, threads = launch.thread_count()] {
    const auto run = HWY_DYNAMIC_DISPATCH(unpermute_rows);
    const int64_t width = u.y.shape[1] * std::max<int64_t>(1, u.places.view.shape[1]);
    parallel_for(threads, u.y.shape[0], grain_rows(width),
                 [&](int64_t begin, int64_t end) { run(u, dtype, begin, end); });
  });
}

// ---- moe_permute ----------------------------------------------------------------------------- //

struct Permute {
  View x, y, offsets, places;
  Indices experts;
  bool has_offsets = false, has_places = false;
  bp_dtype dtype = 0;
  int64_t expert_count = 0;

  int64_t tokens() const { return experts.view.shape[0]; }
  int64_t k() const { return experts.view.shape[1]; }
  bool has_row(int64_t expert) const { return expert >= 0 && expert < expert_count; }
};

// Calls visit(token, j, expert) for each token and expert that has a row.
template <typename Visit>
void for_each_pair(const Permute& p, const Visit& visit) {
  for (int64_t token = 0; token < p.tokens(); ++token) {
    for (int64_t j = 0; j < p.k(); ++j) {
      const int64_t expert = p.experts.at(token, j);
      if (p.has_row(expert)) visit(token, j, expert);
    }
  }
}

void store_place(const Permute& p, int64_t token, int64_t j, int64_t place) {
  if (!p.has_places) return;
  const int64_t offset = token * p.places.strides[0] + j * p.places.strides[1];
  reinterpret_cast<int64_t*>(p.places.address)[offset] = place;
}

// Writes offsets and places, and the token of each row to `tokens`. `next` has room for a row
// number of each expert. Returns how many rows there are.
int64_t order_rows(const Permute& p, int64_t* next, int64_t* tokens) {
  std::fill_n(next, p.expert_count, int64_t{0});
  for_each_pair(p, [&](int64_t, int64_t, int64_t expert) { ++next[expert]; });
  int64_t rows = 0;
  const auto store_offset = [&](int64_t expert) {
    if (!p.has_offsets) return;
    reinterpret_cast<int64_t*>(p.offsets.address)[expert * p.offsets.strides[0]] = rows;
  };
  for (int64_t expert = 0; expert < p.expert_count; ++expert) {
    store_offset(expert);
    const int64_t count = next[expert];
    next[expert] = rows;
    rows += count;
  }
  store_offset(p.expert_count);
  for (int64_t token = 0; token < p.tokens(); ++token) {
    for (int64_t j = 0; j < p.k(); ++j) store_place(p, token, j, -1);
  }
  for_each_pair(p, [&](int64_t token, int64_t j, int64_t expert) {
    const int64_t place = next[expert]++;
    tokens[place] = token;
    store_place(p, token, j, place);
  });
  return rows;
}

// Writes row `row` of y: that of a token, or zeros if the token is -1.
template <typename T>
void move_row(const Permute& p, int64_t row, int64_t token) {
  const int64_t width = p.y.shape[1], stride = p.y.strides[1];
  T* const to = reinterpret_cast<T*>(p.y.address) + row * p.y.strides[0];
  if (token < 0) {
    for (int64_t c = 0; c < width; ++c) to[c * stride] = T{0};
    return;
  }
  const T* const from = reinterpret_cast<const T*>(p.x.address) + token * p.x.strides[0];
  if (stride == 1 && p.x.strides[1] == 1) {
    std::memcpy(to, from, static_cast<size_t>(width) * sizeof(T));
    return;
  }
  for (int64_t c = 0; c < width; ++c) to[c * stride] = from[c * p.x.strides[1]];
}

void run_permute(const Permute& p, int64_t* workspace, int thread_count) {
  int64_t* const tokens = workspace + p.expert_count;
  const int64_t rows = order_rows(p, workspace, tokens), count = p.tokens() * p.k();
  with_any(p.dtype, [&]<typename T>(T) {
    parallel_for(thread_count, count, grain_rows(p.y.shape[1]), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        move_row<hwy::UnsignedFromSize<sizeof(T)>>(p, row, row < rows ? tokens[row] : -1);
      }
    });
  });
}

uint64_t permute_workspace(const bp_moe_permute_args& args, const Env&) {
  return static_cast<uint64_t>(args.num_experts + element_count(*args.experts)) * sizeof(int64_t);
}

bp_status permute_launch(const bp_moe_permute_args& args, Launch& launch) {
  Permute p{view_of(*args.x), view_of(*args.y), {}, {}, Indices(*args.experts)};
  p.has_offsets = args.offsets != nullptr;
  p.has_places = args.places != nullptr;
  if (p.has_offsets) p.offsets = view_of(*args.offsets);
  if (p.has_places) p.places = view_of(*args.places);
  p.dtype = args.x->dtype;
  p.expert_count = args.num_experts;
  return launch.submit([p, workspace = launch.workspace<int64_t>(),
                        threads = launch.thread_count()] { run_permute(p, workspace, threads); });
}

constexpr auto kMovedRows = with_indices(kAnyDtypes);
constexpr auto kSummedRows = with_indices(kFloatDtypes);

}  // namespace

extern constinit const bp_kernel kMoePermute =
    make_kernel<bp_moe_permute_args, permute_launch, nullptr, permute_workspace>(
        kernel_row("moe_permute", BP_OP_MOE_PERMUTE, {kMovedRows, 2}));

extern constinit const bp_kernel kMoeUnpermute =
    make_kernel<bp_moe_unpermute_args, unpermute_launch>(
        kernel_row("moe_unpermute", BP_OP_MOE_UNPERMUTE, {kSummedRows, 2}));

}  // namespace bp::kernels
#endif  // HWY_ONCE
