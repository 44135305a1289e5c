// Sorts lines of keys with their places, stable: a radix sort from the lowest digit on.
//
// A short line is sorted in the shared memory of a block. Longer lines are cut into tiles, with a
// launch for each digit (Adinets and Merrill, "Onesweep", 2022). One launch before them counts all
// digits of each line. In the pass of a digit, a block orders its tile by the digit, publishes how
// many keys of each digit it has, and adds up what the tiles before it have published. So each
// pass reads and writes the keys once. Blocks take tiles in order, by a counter: a block only waits
// for blocks that have begun. A pass whose digit is the same in a whole line is left out for this
// line. The first pass of a line reads the input, and the last one writes the output.
//
// The limit is memory. For n keys of 32 bits, whose values and places in 64 bits are written, the
// counts read 4n bytes, and the passes 4n, 8n, 8n and 8n, and write 8n, 8n, 8n and 12n. That is 1.1
// GB for 2^24 elements, and 265 us on an H200 at the 4.3 TB/s of its copies; expected are 60 to 75
// % of this, because a tile writes runs of 32 keys.
//
// Io is a struct that a launch copies:
//   Key         an unsigned integer
//   line(n)     a struct of line number n:
//     key(i)                 the key of element i
//     put(rank, key, place)  takes the sorted keys, and the elements from which they came
#pragma once

#include <algorithm>

#include "backends/cuda/kernels/keys.cuh"
#include "backends/cuda/kernels/radix.cuh"
#include "backends/cuda/kernels/records.cuh"

namespace bp::cuda {

constexpr uint32_t kMostPasses = 8;

// What a pass does for a line.
enum PassRole : uint8_t {
  kPassRuns = 1,
  kPassReadsInput = 2,
  kPassWritesOutput = 4,
  kPassReadsSecond = 8,  // It reads the second buffer and writes the first one.
};

// The threads that share a tile of a long line, and the keys of each.
constexpr uint32_t kTileThreads = 512;
constexpr uint32_t tile_items(uint32_t key_bytes) { return key_bytes == 8 ? 8 : 16; }
constexpr uint32_t tile_keys(uint32_t key_bytes) { return kTileThreads * tile_items(key_bytes); }
template <class Key>
inline constexpr uint32_t kTileItems = tile_items(sizeof(Key));
template <class Key>
inline constexpr uint32_t kTileKeys = tile_keys(sizeof(Key));
template <class Key>
using LongTile = RadixTile<Key, kTileItems<Key>>;
// A line of up to kTileKeys is sorted by one block, where each thread has this many keys.
constexpr uint32_t kLineItems = 8;
template <class Key>
inline constexpr uint32_t kLineThreads = kTileKeys<Key> / kLineItems;

struct RadixPlan {
  uint32_t lines = 0, count = 0;
  uint32_t tiles = 0;     // Of a line.
  uint32_t counters = 0;  // The blocks that count the digits of a line.
  uint32_t passes = 0, pass = 0;
  void* keys[2] = {};  // Buffers of (lines, count).
  uint32_t* places[2] = {};
  uint8_t* roles = nullptr;     // (lines, passes)
  uint32_t* taken = nullptr;    // How many tiles of a pass blocks have taken.
  uint32_t* digits = nullptr;   // (lines, passes, digits): the counts, and then the first ranks.
  uint32_t* reports = nullptr;  // (passes, lines, tiles, digits), see kPartReport.
};

// Sorts a line in each block.
template <class Io>
__global__ void __launch_bounds__(kLineThreads<typename Io::Key>)
    sort_line_kernel(Io io, uint32_t count) {
  using Key = typename Io::Key;
  using Tile = RadixTile<Key, kLineItems>;
  const Tile tile(dynamic_shared());
  const auto line = io.line(blockIdx.x);
  Key keys[kLineItems];
  uint32_t places[kLineItems], ranks[kLineItems];
  BP_UNROLL
  for (uint32_t k = 0; k < kLineItems; ++k) {
    places[k] = Tile::number_of(k);
    const Key key = line.key(places[k] < count ? places[k] : count - 1);
    keys[k] = places[k] < count ? key : kLastKey<Key>;
  }
  for (uint32_t pass = 0;; ++pass) {
    tile.rank_in_warps(keys, pass, ranks);
    tile.join_warps([](uint32_t, uint32_t) {});
    BP_UNROLL
    for (uint32_t k = 0; k < kLineItems; ++k) {
      const uint32_t rank = tile.rank_of(keys[k], pass, ranks[k]);
      tile.keys[rank] = keys[k];
      tile.places[rank] = places[k];
    }
    __syncthreads();
    if (pass + 1 == sizeof(Key)) break;
    BP_UNROLL
    for (uint32_t k = 0; k < kLineItems; ++k) {
      keys[k] = tile.keys[Tile::number_of(k)];
      places[k] = tile.places[Tile::number_of(k)];
    }
  }
  for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
    line.put(i, tile.keys[i], tile.places[i]);
  }
}

constexpr uint32_t kCountThreads = 512, kCountLoads = 8;

// Counts all digits of a part of a line.
template <class Io>
__global__ void __launch_bounds__(kCountThreads) count_digits_kernel(RadixPlan plan, Io io) {
  using Key = typename Io::Key;
  constexpr uint32_t kCounts = sizeof(Key) * kDigits;
  __shared__ uint32_t counts[kCounts];
  for (uint32_t i = threadIdx.x; i < kCounts; i += kCountThreads) counts[i] = 0;
  __syncthreads();
  const uint32_t number = blockIdx.x / plan.counters, part = blockIdx.x % plan.counters;
  const auto line = io.line(number);
  constexpr uint32_t kStep = kCountThreads * kCountLoads;
  for (uint32_t begin = part * kStep; begin < plan.count; begin += plan.counters * kStep) {
    Key keys[kCountLoads];
    BP_UNROLL
    for (uint32_t k = 0; k < kCountLoads; ++k) {
      const uint32_t i = begin + k * kCountThreads + threadIdx.x;
      keys[k] = line.key(i < plan.count ? i : plan.count - 1);
    }
    BP_UNROLL
    for (uint32_t k = 0; k < kCountLoads; ++k) {
      if (begin + k * kCountThreads + threadIdx.x >= plan.count) break;
      BP_UNROLL
      for (uint32_t pass = 0; pass < sizeof(Key); ++pass) {
        atomicAdd(counts + pass * kDigits + digit_of(keys[k], pass), 1u);
      }
    }
  }
  __syncthreads();
  uint32_t* const digits = plan.digits + uint64_t{number} * kCounts;
  for (uint32_t i = threadIdx.x; i < kCounts; i += kCountThreads) {
    if (counts[i] != 0) atomicAdd(digits + i, counts[i]);
  }
}

// A report is the number of keys with one digit in a tile, or in this tile and all before it. The
// number is below 2^30, because there is a tile behind it. A report of 0 is yet to come.
constexpr uint32_t kPartReport = 1u << 30, kTotalReport = 1u << 31;
constexpr uint32_t kReportCount = kPartReport - 1;

__device__ __forceinline__ void publish(uint32_t* report, uint32_t value) {
  *static_cast<volatile uint32_t*>(report) = value;
}

// Returns how many keys with this digit the tiles before number `tile` have. `reports` are those of
// the digit in the line. Several reports are read at a time, since each takes long to arrive.
__device__ __forceinline__ uint32_t sum_reports(const uint32_t* reports, uint32_t tile) {
  constexpr uint32_t kWindow = 6;
  uint32_t sum = 0;
  while (tile > 0) {
    uint32_t window[kWindow];
    BP_UNROLL
    for (uint32_t i = 0; i < kWindow; ++i) {
      const uint32_t from = tile > i ? tile - 1 - i : 0;
      window[i] = *static_cast<const volatile uint32_t*>(reports + uint64_t{from} * kDigits);
    }
    bool goes_on = true;
    BP_UNROLL
    for (uint32_t i = 0; i < kWindow; ++i) {
      goes_on = goes_on && window[i] != 0;
      if (!goes_on) continue;
      sum += window[i] & kReportCount;
      --tile;
      if ((window[i] & kTotalReport) != 0) return sum;
    }
  }
  return sum;
}

// The tile of a block in a pass.
template <class Key>
struct TileOfPass {
  __device__ TileOfPass(const RadixPlan& p, uint32_t number)
      : plan(p), line(number / p.tiles), tile(number % p.tiles), first(tile * kTileKeys<Key>) {
    const uint32_t left = plan.count - first;
    inside = left < kTileKeys<Key> ? left : kTileKeys<Key>;
    role = plan.roles[uint64_t{line} * plan.passes + plan.pass];
    source = (role & kPassReadsSecond) != 0 ? 1 : 0;
  }

  __device__ bool does(PassRole what) const { return (role & what) != 0; }
  __device__ uint64_t line_begin() const { return uint64_t{line} * plan.count; }
  __device__ Key* keys(uint32_t buffer) const {
    return static_cast<Key*>(buffer == 0 ? plan.keys[0] : plan.keys[1]) + line_begin();
  }
  __device__ uint32_t* places(uint32_t buffer) const {
    return (buffer == 0 ? plan.places[0] : plan.places[1]) + line_begin();
  }
  // Returns the reports of a digit in this line, one for each kDigits.
  __device__ uint32_t* reports(uint32_t digit) const {
    return plan.reports + (uint64_t{plan.pass} * plan.lines + line) * plan.tiles * kDigits + digit;
  }
  __device__ void publish_count(uint32_t digit, uint32_t kind, uint32_t count) const {
    if (tile + 1 < plan.tiles) publish(reports(digit) + uint64_t{tile} * kDigits, kind | count);
  }
  // Returns where the keys with a digit begin in the sorted line.
  __device__ uint32_t digit_begin(uint32_t digit) const {
    return plan.digits[(uint64_t{line} * plan.passes + plan.pass) * kDigits + digit];
  }

  const RadixPlan& plan;
  uint32_t line, tile;
  uint32_t first, inside;  // The elements of the line from `first` on, and how many there are.
  uint32_t source;         // The buffer that the pass reads.
  uint8_t role;
};

// Writes an ordered tile to where the pass puts it.
template <class Io>
__device__ __forceinline__ void write_tile(const LongTile<typename Io::Key>& shared,
                                           const TileOfPass<typename Io::Key>& of, const Io& io) {
  using Key = typename Io::Key;
  Key* const keys = of.keys(1 - of.source);
  uint32_t* const places = of.places(1 - of.source);
  const bool writes_output = of.does(kPassWritesOutput);
  const auto line = io.line(of.line);
  for (uint32_t i = threadIdx.x; i < of.inside; i += kTileThreads) {
    const Key key = shared.keys[i];
    const uint32_t rank = shared.bases[digit_of(key, of.plan.pass)] + i;
    if (writes_output) {
      line.put(rank, key, shared.places[i]);
    } else {
      keys[rank] = key;
      places[rank] = shared.places[i];
    }
  }
}

// Orders one tile of a line by the digit of the pass.
template <class Io>
__global__ void __launch_bounds__(kTileThreads, 2) sort_pass_kernel(RadixPlan plan, Io io) {
  using Key = typename Io::Key;
  using Tile = LongTile<Key>;
  constexpr uint32_t kItems = kTileItems<Key>;
  const Tile shared(dynamic_shared());
  if (threadIdx.x == 0) shared.bases[0] = atomicAdd(plan.taken + plan.pass, 1u);
  __syncthreads();
  const TileOfPass<Key> of(plan, shared.bases[0]);
  if (!of.does(kPassRuns)) return;
  const bool reads_input = of.does(kPassReadsInput);

  Key keys[kItems];
  uint32_t ranks[kItems], places[kItems];
  // Threads behind the line load its last key, because loads without a condition are under way
  // together.
  const auto load = [&](const auto& key_at) {
    BP_UNROLL
    for (uint32_t k = 0; k < kItems; ++k) {
      const uint32_t i = Tile::number_of(k);
      const Key key = key_at(i < of.inside ? i : of.inside - 1);
      keys[k] = i < of.inside ? key : kLastKey<Key>;
    }
  };
  if (reads_input) {
    load([&of, line = io.line(of.line)](uint32_t i) { return line.key(of.first + i); });
  } else {
    load([from = of.keys(of.source) + of.first](uint32_t i) { return from[i]; });
  }
  shared.rank_in_warps(keys, plan.pass, ranks);
  uint32_t own = 0;  // How many keys have the digit of this thread.
  shared.join_warps([&](uint32_t digit, uint32_t total) {
    // The keys behind the line have the last digit.
    own = digit == kDigits - 1 ? total - (kTileKeys<Key> - of.inside) : total;
    of.publish_count(digit, of.tile == 0 ? kTotalReport : kPartReport, own);
  });
  // The places are on their way while the block waits for the reports of others.
  const uint32_t* const places_in = of.places(of.source) + of.first;
  BP_UNROLL
  for (uint32_t k = 0; k < kItems; ++k) {
    ranks[k] = shared.rank_of(keys[k], plan.pass, ranks[k]);
    shared.keys[ranks[k]] = keys[k];
    const uint32_t i = Tile::number_of(k);
    places[k] = i < of.inside && !reads_input ? places_in[i] : of.first + i;
  }
  if (threadIdx.x < kDigits) {
    const uint32_t digit = threadIdx.x;
    const uint32_t before = sum_reports(of.reports(digit), of.tile);
    if (of.tile != 0) of.publish_count(digit, kTotalReport, before + own);
    shared.bases[digit] = of.digit_begin(digit) + before - shared.begins[digit];
  }
  BP_UNROLL
  for (uint32_t k = 0; k < kItems; ++k) shared.places[ranks[k]] = places[k];
  __syncthreads();
  write_tile(shared, of, io);
}

// ---- On the host --------------------------------------------------------------------------------

// Returns the plan of long lines, with the buffers in `workspace`, which has `size_bytes` of it.
struct RadixWorkspace {
  RadixPlan plan;
  uint64_t size_bytes = 0;
  uint64_t cleared_bytes = 0;  // What has to be 0 at first, from plan.taken on.
};
RadixWorkspace radix_workspace(int64_t lines, int64_t count, uint32_t key_bytes,
                               std::byte* workspace);

// Clears what the plan counts in.
bp_status clear_counts(Launch& launch, const RadixWorkspace& workspace);

// Finds where the digits of each line begin, and what each pass does for it.
bp_status plan_passes(Launch& launch, const RadixPlan& plan);

// Returns the workspace that sort_lines() needs for keys of `key_bytes`.
inline uint64_t sort_size_bytes(int64_t lines, int64_t count, uint32_t key_bytes) {
  if (lines == 0 || count <= tile_keys(key_bytes)) return 0;
  return radix_workspace(lines, count, key_bytes, nullptr).size_bytes;
}

template <class Io>
bp_status sort_long_lines(Launch& launch, const Io& io, const RadixWorkspace& workspace) {
  using Key = typename Io::Key;
  RadixPlan plan = workspace.plan;
  bp_status status = clear_counts(launch, workspace);
  if (status != BP_OK) return status;
  status =
      run<count_digits_kernel<Io>>(launch, plan.lines * plan.counters, kCountThreads, 0, plan, io);
  if (status == BP_OK) status = plan_passes(launch, plan);
  for (; status == BP_OK && plan.pass < plan.passes; ++plan.pass) {
    status = run<sort_pass_kernel<Io>>(launch, plan.lines * plan.tiles, kTileThreads,
                                       LongTile<Key>::size_bytes(kTileThreads), plan, io);
  }
  return status;
}

// Sorts lines of `count` keys each, with a workspace of sort_size_bytes(). Both are below 2^31.
template <class Io>
bp_status sort_lines(Launch& launch, const Io& io, int64_t lines, int64_t count,
                     std::byte* workspace) {
  using Key = typename Io::Key;
  if (lines == 0 || count == 0) return BP_OK;
  const auto length = static_cast<uint32_t>(count);
  if (length <= kShortLine) return sort_short_lines(launch, io, lines, length);
  if (length > kTileKeys<Key>) {
    return sort_long_lines(launch, io, radix_workspace(lines, count, sizeof(Key), workspace));
  }
  const unsigned threads = blocks_for(count, kLineItems * int64_t{kWarpSize}) * kWarpSize;
  return run<sort_line_kernel<Io>>(launch, static_cast<unsigned>(lines), threads,
                                   RadixTile<Key, kLineItems>::size_bytes(threads), io, length);
}

}  // namespace bp::cuda
