// adaptive_max_pool. If all windows have one size, it is max_pool. Else the elements of a window
// are read in row-major order, and an element is chosen if it is larger than the best so far, so
// that the first of equal elements stays. One thread computes a plane.
#include <algorithm>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/indices.hpp"
#include "backends/host_kernels/pool.hpp"
#include "backends/host_kernels/records.hpp"
#include "backplane/shell/sampling.hpp"

namespace bp::kernels {
namespace {

struct AdaptiveMaxPool {
  Planes x, y, indices;
  std::array<Bins, 3> bins;
  bool has_indices = false;
  bool is_i64 = true;  // The dtype of the indices.
};

// Returns the index of the largest element of a window, flat over the plane. The keys of
// records.hpp order elements as the op does.
template <typename T>
int64_t index_of_largest(const AdaptiveMaxPool& p, const T* plane,
                         const std::array<Range, 3>& window) {
  int64_t best = -1;
  BitsOf<T> best_key = 0;
  for (int64_t a = window[0].begin; a < window[0].end; ++a) {
    for (int64_t b = window[1].begin; b < window[1].end; ++b) {
      const T* const row = plane + a * p.x.stride[0] + b * p.x.stride[1];
      for (int64_t c = window[2].begin; c < window[2].end; ++c) {
        const BitsOf<T> key = key_of(row[c * p.x.stride[2]]);
        if (best >= 0 && key <= best_key) continue;
        best = (a * p.x.extent[1] + b) * p.x.extent[2] + c;
        best_key = key;
      }
    }
  }
  return best;
}

template <typename T>
void pool_plane(const AdaptiveMaxPool& p, int64_t plane) {
  const T* const from = reinterpret_cast<const T*>(p.x.plane(plane));
  T* const to = reinterpret_cast<T*>(p.y.plane(plane));
  std::byte* const places = p.has_indices ? p.indices.plane(plane) : nullptr;
  const auto window = [&](size_t axis, int64_t output) {
    return Range{p.bins[axis].begin(output), p.bins[axis].end(output)};
  };
  const auto offset = [](const Planes& t, int64_t i, int64_t j, int64_t k) {
    return i * t.stride[0] + j * t.stride[1] + k * t.stride[2];
  };
  for (int64_t i = 0; i < p.y.extent[0]; ++i) {
    for (int64_t j = 0; j < p.y.extent[1]; ++j) {
      for (int64_t k = 0; k < p.y.extent[2]; ++k) {
        const int64_t best = index_of_largest(p, from, {window(0, i), window(1, j), window(2, k)});
        const int64_t c = best % p.x.extent[2], rest = best / p.x.extent[2];
        to[offset(p.y, i, j, k)] = from[offset(p.x, rest / p.x.extent[1], rest % p.x.extent[1], c)];
        if (places == nullptr) continue;
        store_index(places + offset(p.indices, i, j, k) * p.indices.item_size_bytes, p.is_i64,
                    best);
      }
    }
  }
}

using PoolPlane = void(const AdaptiveMaxPool& pool, int64_t plane);

PoolPlane* find_pool_plane(bp_dtype dtype) {
  return with_float(dtype, []<typename T>(T) -> PoolPlane* { return pool_plane<T>; });
}

// The call of max_pool that computes the same, if all windows have one size and none overlap.
class EvenPool {
 public:
  explicit EvenPool(const bp_adaptive_max_pool_args& args) {
    const uint32_t axes = args.x->ndim - 2;
    for (uint32_t i = 0; i < axes; ++i) {
      const int64_t from = args.x->shape[2 + i], to = args.y->shape[2 + i];
      if (to == 0 || from == 0 || from % to != 0) return;
      size_[i] = from / to;
    }
    args_.struct_size = sizeof(args_);
    args_.x = args.x;
    args_.y = args.y;
    args_.indices = args.indices;
    args_.kernel_size_count = args_.stride_count = axes;
    args_.kernel_size = args_.stride = size_.data();
    args_.padding_count = uint64_t{2} * axes;
    args_.padding = padding_.data();
    exists_ = max_pool_supports(args_) == nullptr;
  }
  EvenPool(const EvenPool&) = delete;

  bool exists() const { return exists_; }
  const bp_max_pool_args& args() const { return args_; }

 private:
  bp_max_pool_args args_{};
  std::array<int64_t, 3> size_{};
  std::array<int64_t, 6> padding_{};
  bool exists_ = false;
};

uint64_t pool_workspace(const bp_adaptive_max_pool_args& args, const Env& env) {
  const EvenPool even(args);
  return even.exists() ? max_pool_workspace(even.args(), env) : 0;
}

bp_reason pool_supports(const bp_adaptive_max_pool_args& args) {
  if (const bp_reason reason = sampling_reason(*args.x, *args.y)) return reason;
  return index_reason(args.indices, plane_size(*args.x));
}

bp_status pool_launch(const bp_adaptive_max_pool_args& args, Launch& launch) {
  if (const EvenPool even(args); even.exists()) return max_pool_launch(even.args(), launch);
  AdaptiveMaxPool pool;
  pool.x = Planes(*args.x);
  pool.y = Planes(*args.y);
  pool.has_indices = args.indices != nullptr;
  if (pool.has_indices) {
    pool.indices = Planes(*args.indices);
    pool.is_i64 = args.indices->dtype == BP_I64;
  }
  for (size_t i = 0; i < pool.bins.size(); ++i) pool.bins[i] = {pool.x.extent[i], pool.y.extent[i]};
  PoolPlane* const run = find_pool_plane(args.x->dtype);
  return submit_planes(launch, *args.y, std::max(pool.x.size(), pool.y.size()), 0,
                       [=](int64_t begin, int64_t end, std::byte*) {
                         for (int64_t plane = begin; plane < end; ++plane) run(pool, plane);
                       });
}

constexpr auto kDtypes = with_indices(kFloatDtypes);

}  // namespace

extern constinit const bp_kernel kAdaptiveMaxPool =
    make_kernel<bp_adaptive_max_pool_args, pool_launch, pool_supports, pool_workspace>(
        kernel_row("adaptive_max_pool", BP_OP_ADAPTIVE_MAX_POOL, {kDtypes, 2}));

}  // namespace bp::kernels
