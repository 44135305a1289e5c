// paged_attention. The rows of a sequence and of a head of keys are one problem of sdpa
// (sdpa_rows.cuh), whose keys lie in blocks of the caches. Sequences are groups of tokens
// (groups.cuh).
//
// Decoding has few rows and many keys: one sequence with 8 heads of keys is 8 blocks, on a device
// with more than 100 multiprocessors. So where the tiles are few, the keys of each are divided into
// parts with a block each ("split-K"; Dao and others 2023, "Flash-Decoding"), whose sums a second
// kernel joins. The limit is memory: each key and value is read once.
#include "backends/cuda/kernels/groups.cuh"
#include "backends/cuda/kernels/library_kernel.hpp"
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/sdpa_rows.cuh"

namespace bp::cuda {
namespace {

struct PagedPlan {
  Attention a;  // q and y have the strides (0, heads, tokens, width), k and v those of the caches.
  AttentionResults results;
  IndexView table, lengths;
  Groups sequences;  // Of tokens.
  Bounds length_bounds, block_bounds;
  int64_t window_left = 0;
  uint32_t blocks = 0, block_size = 0;

  // The parts of the keys. With more than one, each has a peak, a total and sums of the columns of
  // v for the kTileSide rows of a tile and of a head of keys, in the type that the sums have.
  uint32_t parts = 1;
  std::byte *peaks = nullptr, *totals = nullptr, *sums = nullptr;

  // Returns the number of a row of a tile in its first part; those of the others follow it.
  __device__ int64_t part_row(uint32_t tile, uint32_t key_head, uint32_t row) const {
    const int64_t problem = int64_t{tile} * a.key_heads + key_head;
    return (problem * kTileSide + row) * parts;
  }

  // Returns the length that acts, or the nearest one if the op fails.
  __device__ int64_t length(uint32_t sequence) const {
    return Bounds{length_bounds.extent, 1}.acting(lengths.at(sequence));
  }
};

__global__ void __launch_bounds__(kBlockThreads)
    check_lengths_kernel(PagedPlan plan, Reporter reporter) {
  const uint32_t s = blockIdx.x * kBlockThreads + threadIdx.x;
  if (s >= plan.sequences.count) return;
  const int64_t length = plan.lengths.at(s);
  if (!plan.length_bounds.contains(length)) report(reporter, length, plan.lengths.place(s));
}

__global__ void __launch_bounds__(kBlockThreads)
    check_blocks_kernel(PagedPlan plan, Reporter reporter) {
  const uint32_t at = blockIdx.x * kBlockThreads + threadIdx.x;
  if (at >= plan.sequences.count * plan.blocks) return;
  const uint32_t s = at / plan.blocks, i = at % plan.blocks;
  if (int64_t{i} * plan.block_size >= plan.length(s)) return;
  const int64_t block = plan.table.at(s, i);
  if (!plan.block_bounds.contains(block)) report(reporter, block, plan.table.place(s, i));
}

// Writes 0 to the rows of y that are of no sequence.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads) clear_rows_kernel(PagedPlan plan, uint32_t count) {
  const uint32_t at = blockIdx.x * kBlockThreads + threadIdx.x;
  if (at >= count) return;
  const auto heads = static_cast<uint32_t>(plan.a.group * plan.a.key_heads);
  const uint32_t column = at % plan.a.value_width, row = at / plan.a.value_width;
  const int64_t token = row / heads;
  if (plan.sequences.has_row(token)) return;
  const View4& y = plan.results.y;
  const int64_t to = row % heads * y.strides[1] + token * y.strides[2] + column * y.strides[3];
  reinterpret_cast<T*>(y.data)[to] = T{0};
}

// A tile of the rows of a sequence.
template <typename T>
struct SequenceTile {
  __device__ SequenceTile(const PagedPlan& plan, uint32_t tile)
      : sequence(plan.sequences.group_of(tile)), a(plan.a), results(plan.results) {
    const int64_t begin = plan.sequences.begin(sequence);
    a.queries = plan.sequences.size(sequence);
    a.keys = plan.length(sequence);
    a.rows = a.group * a.queries;
    a.by_queries = Divider(static_cast<uint32_t>(a.queries));
    const int64_t diagonal = a.keys - a.queries, all = a.keys + a.queries;
    const bool has_window = plan.window_left != 0 && plan.window_left < all;
    const int64_t first = diagonal - (has_window ? plan.window_left : all) + 1;
    a.band_begin = first < -a.queries ? -a.queries : first;
    a.band_end = diagonal + 1 < a.keys ? diagonal + 1 : a.keys;
    a.q.data += begin * a.q.strides[2] * static_cast<int64_t>(sizeof(T));
    results.y.data += begin * results.y.strides[2] * static_cast<int64_t>(sizeof(T));
    first_row = (tile - plan.sequences.tile_starts[sequence]) * kTileSide;
  }

  uint32_t sequence, first_row = 0;
  Attention a;
  AttentionResults results;
};

// Writes the sums of one part.
template <typename T, int kColumns>
__device__ __forceinline__ void store_part(const PagedPlan& plan, uint32_t tile, uint32_t part,
                                           const TileRows<Compute<T>, kColumns>& rows) {
  using C = Compute<T>;
  BP_UNROLL
  for (uint32_t r = 0; r < kTileRows; ++r) {
    const int64_t at = plan.part_row(tile, blockIdx.y, tile_row() + r) + part;
    BP_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      const uint32_t column = tile_column<kColumns>() + c * kWarpSize + tile_lane();
      if (column >= plan.a.value_width) continue;
      reinterpret_cast<C*>(plan.sums)[at * plan.a.value_width + column] = rows.sums.total(r, c);
    }
    if (blockIdx.z != 0 || tile_lane() != 0) continue;
    reinterpret_cast<C*>(plan.peaks)[at] = rows.peaks[r];
    reinterpret_cast<C*>(plan.totals)[at] = rows.totals.total(r, 0);
  }
}

// The grid has (tiles x parts, heads of keys, passes over the columns of v) blocks.
template <typename T, int kColumns>
__global__ void __launch_bounds__(kTileThreads, 2) paged_kernel(PagedPlan plan) {
  const uint32_t tile = blockIdx.x / plan.parts, part = blockIdx.x % plan.parts;
  if (!plan.sequences.has_tile(tile)) return;
  const SequenceTile<T> at(plan, tile);
  const Problem problem(at.a, blockIdx.y);
  const Bounds blocks = {plan.block_bounds.extent, 1};  // No foreign memory is read.
  const auto key_at = [&](const View4& view, uint32_t key) {
    const int64_t block = blocks.acting(plan.table.at(at.sequence, key / plan.block_size));
    return reinterpret_cast<const T*>(view.data) + block * view.strides[0] +
           key % plan.block_size * view.strides[1] + problem.key_head * view.strides[2];
  };
  // The parts of a sequence are whole tiles of its own keys, of which the host does not know how
  // many there are.
  const uint32_t begin = tile_first_key(at.a, at.first_row);
  const uint32_t end = tile_key_limit(at.a, at.first_row);
  const uint32_t tiles = end > begin ? (end - begin + kTileSide - 1) / kTileSide : 0;
  const uint32_t part_keys = (tiles + plan.parts - 1) / plan.parts * kTileSide;
  const uint32_t first_key = begin + part * part_keys, behind = first_key + part_keys;
  TileRows<Compute<T>, kColumns> rows;
  walk_keys<T, kColumns>(at.a, problem, at.first_row, first_key, end < behind ? end : behind,
                         key_at, rows);
  if (plan.parts == 1) {
    store_tile<T, kColumns>(at.a, at.results, problem, at.first_row, rows);
  } else {
    store_part<T, kColumns>(plan, tile, part, rows);
  }
}

// Joins the parts. The grid has (tiles, heads of keys) blocks; a thread has elements of y.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads) join_parts_kernel(PagedPlan plan) {
  using C = Compute<T>;
  const uint32_t tile = blockIdx.x, width = plan.a.value_width;
  if (!plan.sequences.has_tile(tile)) return;
  const SequenceTile<T> at(plan, tile);
  const Problem problem(at.a, blockIdx.y);
  const C* const peaks = reinterpret_cast<const C*>(plan.peaks);
  const C* const totals = reinterpret_cast<const C*>(plan.totals);
  const C* const sums = reinterpret_cast<const C*>(plan.sums);
  for (uint32_t i = threadIdx.x; i < kTileSide * width; i += kBlockThreads) {
    const uint32_t row = at.first_row + i / width, column = i % width;
    if (row >= at.a.rows) return;
    const int64_t first = plan.part_row(tile, blockIdx.y, i / width), behind = first + plan.parts;
    C peak = -infinity<C>(), total = 0, sum = 0;
    for (int64_t part = first; part < behind; ++part) peak = Larger()(peak, peaks[part]);
    const C shift = peak == -infinity<C>() ? C{0} : peak;
    for (int64_t part = first; part < behind; ++part) {
      const C factor = exp(peaks[part] - shift);
      total += totals[part] * factor;
      sum += sums[part * width + column] * factor;
    }
    T* const y = reinterpret_cast<T*>(at.results.y.data) + problem.row(at.a, at.results.y, row);
    y[column * at.results.y.strides[3]] = narrow<T>(total == 0 ? C{0} : sum / total);
  }
}

// Returns a tensor of tokens as one of queries.
View4 view_of_tokens(const bp_tensor& tensor) {
  View4 view;
  if (element_count(tensor) == 0) return view;
  view.data = data<std::byte>(tensor);
  view.strides[1] = tensor.strides[1];
  view.strides[2] = tensor.strides[0];
  view.strides[3] = tensor.strides[2];
  return view;
}

// The tokens of sequences, but for their offsets.
Groups sequences_of(const bp_paged_attention_args& args) {
  return {{},
          args.q->shape[0],
          static_cast<uint32_t>(args.block_table->shape[0]),
          args.q->shape[1] / args.k_cache->shape[2],
          kTileSide};
}

// The workspace: where the tiles of sequences begin, and the parts.
struct PagedMemory {
  PagedMemory(const bp_paged_attention_args& args, const DeviceLimits& limits) {
    // A part has several tiles of keys even then if the sequence is as long as the table.
    constexpr int64_t kLeastKeys = 4 * int64_t{kTileSide};
    const int64_t blocks = most_tiles(sequences_of(args)) * args.k_cache->shape[2];
    const int64_t limit = args.block_table->shape[1] * args.k_cache->shape[1];
    const int64_t wanted = 2 * int64_t{limits.multiprocessor_count} / std::max<int64_t>(1, blocks);
    parts = static_cast<uint32_t>(std::max<int64_t>(1, std::min(wanted, limit / kLeastKeys)));
    peaks = rounded_part(tile_starts_bytes(args.block_table->shape[0]));
    totals = sums = size_bytes = peaks;
    if (parts == 1) return;
    const uint64_t rows = static_cast<uint64_t>(blocks) * kTileSide * parts;
    const uint64_t each = rows * (args.q->dtype == BP_F64 ? sizeof(double) : sizeof(float));
    totals = peaks + rounded_part(each);
    sums = totals + rounded_part(each);
    size_bytes = sums + each * static_cast<uint64_t>(args.v_cache->shape[3]);
  }

  uint32_t parts = 1;
  uint64_t peaks = 0, totals = 0, sums = 0, size_bytes = 0;
};

PagedPlan plan_of(const bp_paged_attention_args& args) {
  PagedPlan plan;
  Attention& a = plan.a;
  a.q = view_of_tokens(*args.q);
  a.k = view_of(args.k_cache);
  a.v = view_of(args.v_cache);
  plan.results.y = view_of_tokens(*args.y);
  a.batches = 1;
  a.key_heads = args.k_cache->shape[2];
  a.group = args.q->shape[1] / a.key_heads;
  a.width = static_cast<uint32_t>(args.q->shape[2]);
  a.value_width = static_cast<uint32_t>(args.v_cache->shape[3]);
  a.scale = args.scale;
  a.softcap = least_softcap(args.softcap, args.q->dtype);
  plan.table = index_view(*args.block_table);
  plan.lengths = index_view(*args.lengths);
  plan.sequences = sequences_of(args);
  plan.sequences.offsets = index_view(*args.offsets);
  plan.window_left = args.window_left;
  plan.blocks = static_cast<uint32_t>(args.block_table->shape[1]);
  plan.block_size = static_cast<uint32_t>(args.k_cache->shape[1]);
  const int64_t limit = args.block_table->shape[1] * args.k_cache->shape[1];
  a.key_tiles = static_cast<uint32_t>(block_of_sum(limit, kTileSide) / kTileSide);
  plan.length_bounds = {limit + 1, args.bounds};
  plan.block_bounds = {args.k_cache->shape[0], args.bounds};
  return plan;
}

// Reports lengths and blocks that are out of range, if the op then fails.
bp_status check(const bp_paged_attention_args& args, const PagedPlan& plan, Launch& launch) {
  if (args.bounds != BP_PAGED_ATTENTION_BOUNDS_FAIL) return BP_OK;
  const Reporter of_lengths = launch.reporter(*args.lengths, "lengths", plan.length_bounds.extent);
  const bp_status status = run<check_lengths_kernel>(
      launch, blocks_for(plan.sequences.count, kBlockThreads), kBlockThreads, 0, plan, of_lengths);
  if (status != BP_OK) return status;
  const Reporter of_blocks =
      launch.reporter(*args.block_table, "block_table", plan.block_bounds.extent);
  const int64_t count = int64_t{plan.sequences.count} * plan.blocks;
  return run<check_blocks_kernel>(launch, blocks_for(count, kBlockThreads), kBlockThreads, 0, plan,
                                  of_blocks);
}

bp_status paged_launch(const bp_paged_attention_args& args, Launch& launch) {
  PagedPlan plan = plan_of(args);
  const PagedMemory memory(args, launch.limits());
  plan.sequences.tile_starts = launch.workspace<uint32_t>();
  plan.parts = memory.parts;
  plan.peaks = launch.workspace() + memory.peaks;
  plan.totals = launch.workspace() + memory.totals;
  plan.sums = launch.workspace() + memory.sums;
  bp_status status = check(args, plan, launch);
  const auto count = static_cast<uint32_t>(element_count(*args.y));
  if (status != BP_OK || count == 0) return status;
  status = plan_tiles(plan.sequences, launch);
  if (status != BP_OK) return status;
  const int64_t tiles = most_tiles(plan.sequences);
  return with_float(args.q->dtype, [&]<typename T>(T) {
    const unsigned clearing = blocks_for(count, kBlockThreads);
    const bp_status cleared =
        run<clear_rows_kernel<T>>(launch, clearing, kBlockThreads, 0, plan, count);
    if (cleared != BP_OK) return cleared;
    const bp_status walked = with_columns(plan.a.value_width, [&](auto columns, uint32_t passes) {
      const dim3 blocks(static_cast<unsigned>(tiles * plan.parts),
                        static_cast<unsigned>(plan.a.key_heads), passes);
      return run<paged_kernel<T, columns()>>(
          launch, blocks, kTileThreads,
          tiles_size_bytes<Compute<T>>(columns() * static_cast<uint32_t>(kWarpSize)), plan);
    });
    if (walked != BP_OK || plan.parts == 1) return walked;
    const dim3 blocks(static_cast<unsigned>(tiles), static_cast<unsigned>(plan.a.key_heads));
    return run<join_parts_kernel<T>>(launch, blocks, kBlockThreads, 0, plan);
  });
}

uint64_t paged_workspace(const bp_paged_attention_args& args, const Env& env) {
  return PagedMemory(args, env.limits()).size_bytes;
}

// Refuses extents that 32 bits or a grid of blocks cannot count.
bp_reason paged_supports(const bp_paged_attention_args& args) {
  const int64_t size = args.k_cache->shape[1], blocks = args.block_table->shape[1];
  const int64_t sequences = args.block_table->shape[0];
  const bool is_small =
      element_count(*args.q) <= kMaxLaunchElements &&
      element_count(*args.y) <= kMaxLaunchElements && args.q->shape[2] <= kMaxLaunchElements &&
      args.v_cache->shape[3] <= kMaxLaunchElements && size <= kMaxLaunchElements / blocks &&
      sequences <= kMaxLaunchElements / blocks;
  if (!is_small) return "an extent is above 2^30";
  if (args.k_cache->shape[2] > 65535) return "there are more than 65535 heads of keys";
  return nullptr;
}

constexpr auto kDtypes = with_indices(kFloatDtypes);

}  // namespace

constinit const bp_kernel kPagedAttention =
    make_kernel<bp_paged_attention_args, paged_launch, paged_supports, paged_workspace>(
        kernel_row("paged_attention", BP_OP_PAGED_ATTENTION, {kDtypes, 2}));

}  // namespace bp::cuda
