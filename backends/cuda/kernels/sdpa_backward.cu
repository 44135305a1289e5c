// sdpa_backward computes the weights p again from the lse of the forward op.
//
//   delta    sum(grad_y * y) of each row
//   grad_s   p * (grad_y v^T - delta)      a tile
//   grad_q   scale * grad_s k              a block of rows walks its keys
//   grad_k   scale * grad_s^T q            a block of keys walks the rows that see it, those of all
//   grad_v   p^T grad_y                    query heads that share it, in order
//
// If there is a soft cap, grad_s is multiplied by its slope. Dropout multiplies the p of grad_v and
// the products grad_y v^T: the product of a weight that is dropped is 0, and the weight adds
// nothing to grad_v, whatever v and grad_y are. The gradient of a sink is the sum of -exp(sink -
// lse) * delta over the rows of its head, by one warp.
//
// No two blocks write the same element, so equal input gives equal bits.
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/sdpa_backward.cuh"

namespace bp::cuda {
namespace {

// Returns where the elements of a row of q, y or grad_y begin, or NULL behind the last row.
template <typename T>
struct RowsOf {
  const Attention& a;
  const Problem& problem;
  const View4& view;
  uint32_t first;

  __device__ const T* operator()(uint32_t i) const {
    if (first + i >= a.rows) return nullptr;
    return reinterpret_cast<const T*>(view.data) + problem.row(a, view, first + i);
  }
};

// Returns where the elements of a key begin, or NULL behind the last key.
template <typename T>
struct KeysOf {
  const Attention& a;
  const Problem& problem;
  const View4& view;
  uint32_t first;

  __device__ const T* operator()(uint32_t i) const {
    if (first + i >= a.keys) return nullptr;
    return reinterpret_cast<const T*>(view.data) + problem.key(view, first + i);
  }
};

// Computes the deltas, with a warp for each row.
template <typename T>
__global__ void __launch_bounds__(kTileThreads, 2) deltas_kernel(BackwardPlan plan) {
  using C = Compute<T>;
  const Attention& a = plan.a;
  const Problem problem(a, blockIdx.y);
  const uint32_t row = blockIdx.x * kTileWarps + threadIdx.x / kWarpSize;
  if (row >= a.rows) return;
  const T* const g =
      reinterpret_cast<const T*>(plan.grad_y.data) + problem.row(a, plan.grad_y, row);
  const T* const y = reinterpret_cast<const T*>(plan.y.data) + problem.row(a, plan.y, row);
  C sum = 0;
  for (uint32_t i = tile_lane(); i < a.value_width; i += kWarpSize) {
    sum += widen(g[i * plan.grad_y.strides[3]]) * widen(y[i * plan.y.strides[3]]);
  }
  sum = warp_reduce(sum, Plus());
  if (tile_lane() == 0) static_cast<C*>(plan.deltas)[blockIdx.y * plan.delta_stride + row] = sum;
}

// Computes the weight p of a row and a key, and grad_s. Both are -0 for a key that the row does not
// see, and p also if it is dropped, so that they add nothing. A row has an lse of -inf if it sees
// no key, or if all its scores are -inf.
template <typename T, typename C>
__device__ __forceinline__ void finish_weights(const BackwardPlan& plan, const Problem& problem,
                                               uint32_t row, uint32_t key, C score, C product,
                                               C& weight, C& gradient) {
  C slope;
  const bool is_seen = finish_score<T>(plan.a, problem, row, key, score, slope);
  weight = gradient = C(-0.0);
  if (!is_seen) return;
  const C lse = reinterpret_cast<const C*>(plan.lse.data)[problem.row(plan.a, plan.lse, row)];
  if (lse == -infinity<C>()) return;
  const C delta = static_cast<const C*>(plan.deltas)[blockIdx.y * plan.delta_stride + row];
  const C kept = kept_of<C>(plan.a, problem, row, key), p = exp(score - lse);
  // Other numbers are never -0, because a sum with 0 is not.
  if (kept != 0) weight = p * kept + C{0};
  gradient = p * slope * ((kept == 0 ? C{0} : product * kept) - delta) + C{0};
}

// Returns whether the block has to compute its tile.
__device__ __forceinline__ bool is_wanted(const uint8_t* marks) {
  return marks == nullptr || marks[blockIdx.y * gridDim.x + blockIdx.x] != 0;
}

// The grid has (tiles of rows, problems, passes over the columns of q) blocks.
template <typename T, int kColumns>
__global__ void __launch_bounds__(kTileThreads, 2) grad_q_kernel(BackwardPlan plan) {
  if (!is_wanted(plan.grad_q_marks)) return;
  using C = Compute<T>;
  const Attention& a = plan.a;
  const Tiles<C> tiles(dynamic_shared());
  const Problem problem(a, blockIdx.y);
  const uint32_t first_row = blockIdx.x * kTileSide;
  const uint32_t first_column = blockIdx.z * kColumns * kWarpSize;
  TileSums<C, kColumns> sums;
  const uint32_t end = tile_key_limit(a, first_row);
  for (uint32_t first_key = tile_first_key(a, first_row); first_key < end; first_key += kTileSide) {
    const KeysOf<T> k_at{a, problem, a.k, first_key}, v_at{a, problem, a.v, first_key};
    C scores[kTileRows], products[kTileRows];
    multiply_tiles<T>(tiles, a.width, RowsOf<T>{a, problem, a.q, first_row}, a.q.strides[3], k_at,
                      a.k.strides[3], scores);
    multiply_tiles<T>(tiles, a.value_width, RowsOf<T>{a, problem, plan.grad_y, first_row},
                      plan.grad_y.strides[3], v_at, a.v.strides[3], products);
    BP_UNROLL
    for (uint32_t r = 0; r < kTileRows; ++r) {
      C weight, gradient;
      finish_weights<T>(plan, problem, first_row + tile_row() + r, first_key + tile_lane(),
                        scores[r], products[r], weight, gradient);
      tiles.weights[(tile_row() + r) * kTileSide + tile_lane()] = gradient;
    }
    const bool has_infinite =
        load_values<T>(tiles, first_column, a.width, kColumns * kWarpSize, a.k.strides[3], k_at);
    add_products<kColumns>(tiles, has_infinite, sums.now);
    sums.end_tile(a.key_tiles);
  }
  const C scale = static_cast<C>(a.scale);
  BP_UNROLL
  for (uint32_t r = 0; r < kTileRows; ++r) {
    const uint32_t row = first_row + tile_row() + r;
    if (row >= a.rows) continue;
    T* const to = reinterpret_cast<T*>(plan.grad_q.data) + problem.row(a, plan.grad_q, row);
    BP_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      const uint32_t column = first_column + c * kWarpSize + tile_lane();
      if (column < a.width)
        to[column * plan.grad_q.strides[3]] = narrow<T>(scale * sums.total(r, c));
    }
  }
}

// Returns whether a row of the tile may see a key of the tile that begins at `tile_key`.
__device__ __forceinline__ bool sees_tile(const Attention& a, uint32_t first_row,
                                          uint32_t tile_key) {
  if (a.band_begin <= -a.queries && a.band_end >= a.keys) return true;
  return tile_key_limit(a, first_row) > tile_key && tile_first_key(a, first_row) <= tile_key;
}

// The grid has a warp for each query head.
template <typename C>
__global__ void __launch_bounds__(kWarpSize)
    sink_gradient_kernel(BackwardPlan plan, int64_t batches) {
  const Attention& a = plan.a;
  const int64_t head = blockIdx.x;
  const auto first_row = static_cast<uint32_t>(head % a.group * a.queries);
  const double sink = sink_of<C>(a, head);
  double sum = 0;
  for (int64_t batch = 0; batch < batches; ++batch) {
    const auto number = static_cast<uint32_t>(batch * a.key_heads + head / a.group);
    const Problem problem(a, number);
    const C* const deltas = static_cast<const C*>(plan.deltas) + number * plan.delta_stride;
    for (uint32_t query = tile_lane(); query < a.queries; query += kWarpSize) {
      const uint32_t row = first_row + query;
      const C lse = reinterpret_cast<const C*>(plan.lse.data)[problem.row(a, plan.lse, row)];
      if (lse == -infinity<C>()) continue;
      sum -= exp(sink - static_cast<double>(lse)) * static_cast<double>(deltas[row]);
    }
  }
  sum = warp_reduce(sum, Plus());
  if (tile_lane() != 0) return;
  reinterpret_cast<C*>(plan.grad_sinks.data)[head * plan.grad_sinks.strides[0]] =
      static_cast<C>(sum);
}

// The grid has (tiles of keys, problems, passes over the columns of q or v) blocks. Lanes are the
// rows of a tile, and warps share its keys. It computes grad_v if kIsValue is true, else grad_k.
template <typename T, int kColumns, bool kIsValue>
__global__ void __launch_bounds__(kTileThreads, 2) grad_key_kernel(BackwardPlan plan) {
  if (!is_wanted(kIsValue ? plan.grad_v_marks : plan.grad_k_marks)) return;
  using C = Compute<T>;
  const Attention& a = plan.a;
  const Tiles<C> tiles(dynamic_shared());
  const Problem problem(a, blockIdx.y);
  const uint32_t first_key = blockIdx.x * kTileSide;
  const uint32_t first_column = blockIdx.z * kColumns * kWarpSize;
  const KeysOf<T> k_at{a, problem, a.k, first_key}, v_at{a, problem, a.v, first_key};
  TileSums<C, kColumns> sums;
  for (uint32_t first_row = 0; first_row < a.rows; first_row += kTileSide) {
    if (!sees_tile(a, first_row, first_key)) continue;
    const RowsOf<T> q_at{a, problem, a.q, first_row}, g_at{a, problem, plan.grad_y, first_row};
    C scores[kTileRows], products[kTileRows] = {};
    multiply_tiles<T>(tiles, a.width, k_at, a.k.strides[3], q_at, a.q.strides[3], scores);
    if constexpr (!kIsValue) {
      multiply_tiles<T>(tiles, a.value_width, v_at, a.v.strides[3], g_at, plan.grad_y.strides[3],
                        products);
    }
    BP_UNROLL
    for (uint32_t r = 0; r < kTileRows; ++r) {
      C weight, gradient;
      finish_weights<T>(plan, problem, first_row + tile_lane(), first_key + tile_row() + r,
                        scores[r], products[r], weight, gradient);
      tiles.weights[(tile_row() + r) * kTileSide + tile_lane()] = kIsValue ? weight : gradient;
    }
    const View4& from = kIsValue ? plan.grad_y : a.q;
    const bool has_infinite =
        load_values<T>(tiles, first_column, kIsValue ? a.value_width : a.width,
                       kColumns * kWarpSize, from.strides[3], kIsValue ? g_at : q_at);
    add_products<kColumns>(tiles, has_infinite, sums.now);
    sums.end_tile(a.row_tiles);
  }
  const View4& to = kIsValue ? plan.grad_v : plan.grad_k;
  const uint32_t width = kIsValue ? a.value_width : a.width;
  const C scale = kIsValue ? C{1} : static_cast<C>(a.scale);
  BP_UNROLL
  for (uint32_t r = 0; r < kTileRows; ++r) {
    const uint32_t key = first_key + tile_row() + r;
    if (key >= a.keys) continue;
    T* const at = reinterpret_cast<T*>(to.data) + problem.key(to, key);
    BP_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      const uint32_t column = first_column + c * kWarpSize + tile_lane();
      if (column < width) at[column * to.strides[3]] = narrow<T>(scale * sums.total(r, c));
    }
  }
}

unsigned problems_of(const Attention& a) { return static_cast<unsigned>(a.batches * a.key_heads); }

template <typename T, bool kIsValue>
bp_status launch_grad_key(const BackwardPlan& plan, unsigned problems, Launch& launch) {
  const uint32_t width = kIsValue ? plan.a.value_width : plan.a.width;
  return with_columns(width, [&](auto columns, uint32_t passes) {
    const dim3 blocks(blocks_for(plan.a.keys, kTileSide), problems, passes);
    return run<grad_key_kernel<T, columns(), kIsValue>>(
        launch, blocks, kTileThreads,
        tiles_size_bytes<Compute<T>>(columns() * static_cast<uint32_t>(kWarpSize)), plan);
  });
}

template <typename T>
bp_status launch_deltas(const BackwardPlan& plan, Launch& launch) {
  return run<deltas_kernel<T>>(launch,
                               dim3(blocks_for(plan.a.rows, kTileWarps), problems_of(plan.a)),
                               kTileThreads, 0, plan);
}

template <typename T>
bp_status launch_gradients(const BackwardPlan& plan, Launch& launch) {
  const unsigned problems = problems_of(plan.a);
  bp_status status = with_columns(plan.a.width, [&](auto columns, uint32_t passes) {
    const dim3 blocks(blocks_for(plan.a.rows, kTileSide), problems, passes);
    return run<grad_q_kernel<T, columns()>>(
        launch, blocks, kTileThreads,
        tiles_size_bytes<Compute<T>>(columns() * static_cast<uint32_t>(kWarpSize)), plan);
  });
  if (status == BP_OK && plan.grad_k.data != nullptr) {
    status = launch_grad_key<T, false>(plan, problems, launch);
  }
  if (status == BP_OK && plan.grad_v.data != nullptr) {
    status = launch_grad_key<T, true>(plan, problems, launch);
  }
  if (status == BP_OK && plan.grad_sinks.data != nullptr) {
    const auto heads = static_cast<unsigned>(plan.a.key_heads * plan.a.group);
    status = run<sink_gradient_kernel<Compute<T>>>(launch, dim3(heads), kWarpSize, 0, plan,
                                                   plan.a.batches);
  }
  return status;
}

bp_status sdpa_backward_launch(const bp_sdpa_backward_args& args, Launch& launch) {
  BackwardPlan plan = backward_plan_of(args);
  plan.deltas = launch.workspace();
  plan.delta_stride = plan.a.rows;
  return with_float(args.q->dtype, [&]<typename T>(T) {
    const bp_status status = launch_deltas<T>(plan, launch);
    return status == BP_OK ? launch_gradients<T>(plan, launch) : status;
  });
}

uint64_t workspace(const bp_sdpa_backward_args& args, const Env&) {
  return static_cast<uint64_t>(element_count(*args.lse) * dtype_size_bytes(args.lse->dtype));
}

}  // namespace

BackwardPlan backward_plan_of(const bp_sdpa_backward_args& args) {
  BackwardPlan plan;
  plan.a = attention_of(args);
  plan.grad_y = view_of(args.grad_y);
  plan.y = view_of(args.y);
  plan.lse = view_of_rows(args.lse);
  plan.grad_q = view_of(args.grad_q);
  plan.grad_k = view_of(args.grad_k);
  plan.grad_v = view_of(args.grad_v);
  plan.grad_sinks = view_of_heads(args.grad_sinks);
  return plan;
}

bp_status launch_plain_gradients(const BackwardPlan& plan, bp_dtype dtype, Launch& launch) {
  return with_float(dtype, [&]<typename T>(T) { return launch_gradients<T>(plan, launch); });
}

constinit const bp_kernel kSdpaBackward =
    make_kernel<bp_sdpa_backward_args, sdpa_backward_launch,
                attention_supports<bp_sdpa_backward_args>, workspace>(
        kernel_row("sdpa_backward", BP_OP_SDPA_BACKWARD, kFloatDtypes, BP_KERNEL_TAKES_SCALAR));

}  // namespace bp::cuda
