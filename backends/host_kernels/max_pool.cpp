// max_pool (pool.hpp). It does not use oneDNN's pooling, which never chooses NaN and counts indices
// in another way. NaN is larger than every number here.
//
// Rows are joined before columns, so the index alone says which of several equal elements is the
// first. If the op returns no indices, only the sign of a zero can show the difference. Indices are
// then kept only for rows of outputs whose windows contain a -0.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/max_pool.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include <limits>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/indices.hpp"
#include "backends/host_kernels/pool.hpp"
#include "backends/host_kernels/pool_line-inl.hpp"
#include "backends/host_kernels/strided.hpp"

#ifndef BACKPLANE_CPU_MAX_POOL_PLAN
#define BACKPLANE_CPU_MAX_POOL_PLAN
namespace bp::kernels {
namespace {

struct MaxPool {
  Window window;
  Planes x, y, indices;
  bool has_indices = false;
  bool is_i64 = true;  // The dtype of the indices.
};

// Pools one plane. `memory` holds the thread's lines of values and of indices.
using PoolPlane = void(const MaxPool& pool, int64_t plane, std::byte* memory);

// The index of padding, which is larger than that of every element.
template <typename Index>
constexpr Index kNoIndex = std::numeric_limits<Index>::max();

}  // namespace
}  // namespace bp::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

// Returns whether b is larger than a. NaN is larger than every number.
template <class D>
HWY_INLINE hn::Mask<D> is_larger(D, hn::Vec<D> b, hn::Vec<D> a) {
  return hn::AndNot(hn::IsNaN(a), hn::Or(hn::Lt(a, b), hn::IsNaN(b)));
}

struct Max {
  template <typename Value>
  static constexpr Value identity() {
    return -std::numeric_limits<Value>::infinity();
  }
  // If a is NaN, it stays, because no b is larger.
  template <class D>
  static HWY_INLINE hn::Vec<D> join(D, hn::Vec<D> a, hn::Vec<D> b) {
    return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(b)), b, a);
  }
};

template <typename T>
struct Indexed {
  using Value = Compute<T>;
  using Index = std::conditional_t<sizeof(Value) == 4, int32_t, int64_t>;
  using D = ComputeTag<T>;
  using IndexD = hn::RebindToSigned<D>;

  // The largest elements so far, and their indices.
  struct Best {
    hn::Vec<D> values;
    hn::Vec<IndexD> indices;

    HWY_INLINE void take_if(hn::Mask<D> is_better, const Best& other) {
      values = hn::IfThenElse(is_better, other.values, values);
      indices = hn::IfThenElse(hn::RebindMask(IndexD(), is_better), other.indices, indices);
    }
    // Offers elements that come after all earlier ones.
    HWY_INLINE void offer_later(const Best& other) {
      take_if(is_larger(D(), other.values, values), other);
    }
    // Offers elements that may come before earlier ones. Of equal elements the one with the smaller
    // index stays.
    HWY_INLINE void offer(const Best& other) {
      const auto both_nan = hn::And(hn::IsNaN(values), hn::IsNaN(other.values));
      const auto are_equal = hn::Or(hn::Eq(values, other.values), both_nan);
      const auto is_first = hn::RebindMask(D(), hn::Lt(other.indices, indices));
      take_if(hn::Or(is_larger(D(), other.values, values), hn::And(are_equal, is_first)), other);
    }
  };

  template <bool kIsWhole>
  static HWY_INLINE Best load_row(const Row<T>& row, int64_t c, int64_t count) {
    const IndexD index_d;
    return {load_part<kIsWhole>(D(), row.at + c, count),
            hn::Iota(index_d, static_cast<Index>(row.index + c))};
  }

  // Makes the line of a block in a row of outputs. The padding of the line is already written.
  static void join_rows(const MaxPool& p, const T* plane, const OutputRow& place,
                        const LineBlock& block, Value* line, Index* indices) {
    const bool has_rows = for_each_row_group(
        p.window, p.x, plane, place, block,
        [&](const Row<T>* rows, int64_t count, bool is_first, int64_t column, int64_t n) HWY_ATTR {
          for_each_vector(D(), n, [&](int64_t c, auto whole) HWY_ATTR {
            Value* const to = line + block.offset + column + c;
            Index* const index_to = indices + block.offset + column + c;
            Best best;
            if (is_first) {
              best = load_row<whole>(rows[0], c, n - c);
            } else {
              best = {load_part<whole>(D(), to, n - c),
                      load_part<whole>(IndexD(), index_to, n - c)};
            }
            for (int64_t r = is_first ? 1 : 0; r < count; ++r) {
              best.offer_later(load_row<whole>(rows[r], c, n - c));
            }
            store_part<whole>(best.values, D(), to, n - c);
            store_part<whole>(best.indices, IndexD(), index_to, n - c);
          });
        });
    if (has_rows) return;
    std::fill_n(line + block.offset, block.inputs.size(), Max::identity<Value>());
    std::fill_n(indices + block.offset, block.inputs.size(), kNoIndex<Index>);
  }

  // Computes a vector of outputs. The first tap of the first one is at `at` of the line.
  static HWY_INLINE Best join_taps(const Window& w, const Value* line, const Index* indices,
                                   int64_t at, int64_t count) {
    const D d;
    const IndexD index_d;
    Best best = {load_every(d, line + at, w.stride[2], count),
                 load_every(index_d, indices + at, w.stride[2], count)};
    for (int64_t tap = 1; tap < w.kernel[2]; ++tap) {
      const int64_t next = at + tap * w.dilation[2];
      best.offer({load_every(d, line + next, w.stride[2], count),
                  load_every(index_d, indices + next, w.stride[2], count)});
    }
    return best;
  }

  // Computes one row of outputs of a block.
  static void pool_row(const MaxPool& p, int64_t plane, const OutputRow& place,
                       const LineBlock& block, Value* line, Index* indices) {
    const Window& w = p.window;
    const auto first_of = [&](const Planes& t) {
      return place.offset_in(t) + block.outputs.begin * t.stride[2];
    };
    T* const to = reinterpret_cast<T*>(p.y.plane(plane)) + first_of(p.y);
    const int64_t index_bytes = p.is_i64 ? 8 : 4;
    std::byte* const places =
        p.has_indices ? p.indices.plane(plane) + first_of(p.indices) * index_bytes : nullptr;
    join_rows(p, reinterpret_cast<const T*>(p.x.plane(plane)), place, block, line, indices);
    const int64_t n = block.outputs.size(), stride = p.indices.stride[2] * index_bytes;
    for_each_vector(D(), n, [&](int64_t k, auto whole) HWY_ATTR {
      const Best best = join_taps(w, line, indices, k * w.stride[2], n - k);
      store_outputs<whole>(best.values, D(), to + k * p.y.stride[2], p.y.stride[2], n - k);
      if (places == nullptr) return;
      HWY_ALIGN Index chosen[hn::MaxLanes(IndexD())];
      hn::Store(best.indices, IndexD(), chosen);
      const int64_t count = whole ? static_cast<int64_t>(hn::Lanes(IndexD())) : n - k;
      for (int64_t o = 0; o < count; ++o) {
        store_index(places + (k + o) * stride, p.is_i64,
                    chosen[o] == kNoIndex<Index> ? -1 : chosen[o]);
      }
    });
  }
};

template <typename T>
void pool_plane_with_indices(const MaxPool& p, int64_t plane, std::byte* memory) {
  using Index = typename Indexed<T>::Index;
  auto* const line = reinterpret_cast<Compute<T>*>(memory);
  const int64_t elements = line_elements(p.window, p.y.extent[2]);
  auto* const indices = reinterpret_cast<Index*>(line + elements);
  for_each_block<Max>(p.window, p.x, p.y, line, [&](const LineBlock& block) {
    std::fill_n(indices, elements, kNoIndex<Index>);
    for (int64_t i = 0; i < p.y.extent[0]; ++i) {
      for (int64_t j = 0; j < p.y.extent[1]; ++j) {
        Indexed<T>::pool_row(p, plane, {i, j}, block, line, indices);
      }
    }
  });
}

// Notes whether a -0 was seen. As integers, the bits of -0 are smaller than those of every other
// float.
template <typename T>
class NegativeZeros {
 public:
  // The constructor is written out, because a generated one would not be compiled for the target.
  HWY_INLINE NegativeZeros() : least_(hn::Zero(BitsTag())) {}

  HWY_INLINE void look(hn::Vec<ComputeTag<T>> v) {
    least_ = hn::Min(least_, hn::BitCast(BitsTag(), v));
  }
  HWY_INLINE bool has_any() const {
    const auto bits = hn::Set(BitsTag(), hwy::LimitsMin<hn::TFromD<BitsTag>>());
    return !hn::AllFalse(BitsTag(), hn::Eq(least_, bits));
  }

 private:
  using BitsTag = hn::RebindToSigned<ComputeTag<T>>;
  hn::Vec<BitsTag> least_;
};

#if HWY_TARGET != HWY_SCALAR
// Computes a row of outputs whose windows cover one dense row without padding, as in one dimension.
// Only the end of the row is copied to the line, because whole vectors are read. Returns false if
// the windows are others.
template <typename T>
bool pool_one_row(const MaxPool& p, const T* plane, const OutputRow& place, const LineBlock& block,
                  T* line, T* to, NegativeZeros<T>& zeros) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Window& w = p.window;
  const int64_t taps = w.kernel[2], n = block.inputs.size(), outputs = block.outputs.size();
  const bool is_dense = p.x.stride[2] == 1 && p.y.stride[2] == 1;
  const bool has_pairs = w.stride[2] == 2 && w.dilation[2] == 1 && taps <= kJoined;
  if (!is_dense || !has_pairs || block.has_padding()) return false;
  const T* row = nullptr;
  int64_t rows = 0;
  for_each_covered_row(w, p.x, place, [&](int64_t depth, int64_t line_number) {
    row = plane + depth * p.x.stride[0] + line_number * p.x.stride[1] + block.inputs.begin;
    ++rows;
  });
  if (rows != 1) return false;
  int64_t k = 0;
  for (; 2 * k + taps + 2 * lanes <= n && k + lanes <= outputs; k += lanes) {
    zeros.look(hn::LoadU(d, row + 2 * k));
    zeros.look(hn::LoadU(d, row + 2 * k + lanes));
    hn::StoreU(join_pairs_of_taps<Max>(d, taps, row + 2 * k), d, to + k);
  }
  const int64_t rest = n - 2 * k;
  std::copy_n(row + 2 * k, rest, line);
  std::fill_n(line + rest, 2 * lanes, Max::identity<T>());
  for (int64_t c = 0; c < rest; c += lanes) zeros.look(hn::LoadU(d, line + c));
  for_each_vector(d, outputs - k, [&](int64_t i, auto whole) HWY_ATTR {
    store_part<whole>(join_pairs_of_taps<Max>(d, taps, line + 2 * i), d, to + k + i,
                      outputs - k - i);
  });
  return true;
}
#endif

template <typename T>
void pool_plane(const MaxPool& p, int64_t plane, std::byte* memory) {
  using Index = typename Indexed<T>::Index;
  const T* const from = reinterpret_cast<const T*>(p.x.plane(plane));
  T* const to = reinterpret_cast<T*>(p.y.plane(plane));
  auto* const line = reinterpret_cast<Compute<T>*>(memory);
  const int64_t elements = line_elements(p.window, p.y.extent[2]);
  auto* const indices = reinterpret_cast<Index*>(line + elements);
  const auto pool_row = [&](const LineBlock& block, const OutputRow& place) HWY_ATTR {
    T* const row = to + place.offset_in(p.y) + block.outputs.begin * p.y.stride[2];
    NegativeZeros<T> zeros;
    bool is_done = false;
#if HWY_TARGET != HWY_SCALAR
    if constexpr (!kIsNarrow<T>) {
      is_done = pool_one_row<T>(p, from, place, block, line, row, zeros);
    }
#endif
    if (!is_done) {
      join_rows<Max>(p.window, p.x, from, place, block, line, line + elements,
                     [&](auto v) HWY_ATTR { zeros.look(v); });
    }
    if (zeros.has_any()) {
      std::fill_n(indices, elements, kNoIndex<Index>);
      return Indexed<T>::pool_row(p, plane, place, block, line, indices);
    }
    if (is_done) return;
    for_each_output<Max>(
        p.window, block, line, [&](auto values, int64_t first, int64_t count, auto whole) HWY_ATTR {
          const ComputeTag<T> d;
          store_outputs<whole>(values, d, row + first * p.y.stride[2], p.y.stride[2], count);
        });
  };
  for_each_block<Max>(p.window, p.x, p.y, line, [&](const LineBlock& block) {
    for (int64_t i = 0; i < p.y.extent[0]; ++i) {
      for (int64_t j = 0; j < p.y.extent[1]; ++j) pool_row(block, {i, j});
    }
  });
}

template <typename T>
PoolPlane* plane_of(bool has_indices) {
  return has_indices ? pool_plane_with_indices<T> : pool_plane<T>;
}

PoolPlane* find_pool_plane(bp_dtype dtype, bool has_indices) {
  return with_float(dtype, [=]<typename T>(T) { return plane_of<T>(has_indices); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(find_pool_plane);

}  // namespace

// Refuses planes that are too large, because indices of 4-byte elements are counted in 32 bits.
bp_reason max_pool_supports(const bp_max_pool_args& args) {
  if (const bp_reason reason = index_reason(args.indices, plane_size(*args.x))) return reason;
  if (args.x->dtype == BP_F64) return nullptr;
  const bool is_small = plane_size(*args.x) < std::numeric_limits<int32_t>::max();
  return is_small ? nullptr : "x: a channel has more than 2^31 - 2 elements";
}

namespace {

Window window_of(const bp_max_pool_args& args) {
  return Window(args.x->ndim - 2, args.kernel_size, args.stride, args.padding, args.dilation);
}

// Returns the bytes of a line of values and of a line of indices, which has the same size.
uint64_t thread_bytes(const bp_max_pool_args& args) {
  const int64_t elements = line_elements(window_of(args), args.y->shape[args.y->ndim - 1]);
  return plane_memory_bytes(2 * elements, args.x->dtype);
}

}  // namespace

uint64_t max_pool_workspace(const bp_max_pool_args& args, const Env& env) {
  return static_cast<uint64_t>(env.thread_count()) * thread_bytes(args);
}

bp_status max_pool_launch(const bp_max_pool_args& args, Launch& launch) {
  MaxPool pool;
  pool.window = window_of(args);
  pool.x = Planes(*args.x);
  pool.y = Planes(*args.y);
  pool.has_indices = args.indices != nullptr;
  if (pool.has_indices) {
    pool.indices = Planes(*args.indices);
    pool.is_i64 = args.indices->dtype == BP_I64;
  }
  PoolPlane* const run = HWY_DYNAMIC_DISPATCH(find_pool_plane)(args.x->dtype, pool.has_indices);
  return submit_planes(launch, *args.y, pool.x.size(), thread_bytes(args),
                       [=](int64_t begin, int64_t end, std::byte* memory) {
                         for (int64_t plane = begin; plane < end; ++plane) run(pool, plane, memory);
                       });
}

namespace {

constexpr auto kDtypes = with_indices(kFloatDtypes);

}  // namespace

extern constinit const bp_kernel kMaxPool =
    make_kernel<bp_max_pool_args, max_pool_launch, max_pool_supports, max_pool_workspace>(
        kernel_row("max_pool", BP_OP_MAX_POOL, {kDtypes, 2}));

}  // namespace bp::kernels
#endif  // HWY_ONCE
