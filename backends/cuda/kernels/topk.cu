// topk along an axis, for tensors of every layout.
//
// A block finds the last record of a line that is taken, from the highest digit of its key on: it
// counts the digits of the records that begin as the record does, and finds the digit at which the
// count reaches k. If keys are equal, the digits of places go on, so that exactly k records are up
// to the one that is found. They are then sorted in shared memory. If there are few long lines,
// several blocks take the k first records of a part each, and one block takes those of the line. A
// larger k sorts the lines (radix_sort.cuh).
//
// The limit is the latency of loads: a line is read 3 or 4 times, mostly from the second-level
// cache. 64 lines of 32000 elements of f32, of which 50 are taken, should take 15 to 25 us.
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/sort.cuh"

namespace bp::cuda {
namespace {

constexpr uint32_t kMostSelected = 1024;
constexpr uint32_t kSelectThreads = 1024, kSelectLoads = 8;
constexpr uint32_t kBucketBits = 11, kBuckets = 1u << kBucketBits, kNoBucket = kBuckets;

// How lines are cut. `parts` blocks share a line.
struct SelectPlan {
  uint32_t count = 0, kept = 0, parts = 1, part = 0;  // A part has `part` elements.
  void* keys = nullptr;                               // (lines, parts, kept)
  uint32_t* places = nullptr;
};

// Part of a line of a tensor.
template <class Line>
struct TensorPart {
  __device__ __forceinline__ auto key(uint32_t i) const { return line.key(first + i); }
  __device__ __forceinline__ uint32_t place(uint32_t i) const { return first + i; }

  Line line;
  uint32_t first;
};

// The records that the blocks of a line have taken.
template <class Key>
struct TakenRecords {
  __device__ __forceinline__ Key key(uint32_t i) const { return keys[i]; }
  __device__ __forceinline__ uint32_t place(uint32_t i) const { return places[i]; }

  const Key* keys;
  const uint32_t* places;
};

// The bucket that holds the last record that is taken.
struct Bucket {
  uint32_t number, before, count;  // How many records are in the buckets before it, and in it.
};

template <class Item>
struct SelectMemory {
  uint32_t counts[kBuckets];
  uint32_t warp_counts[kWarpSize];
  Bucket found;
  uint32_t taken;
  Item items[kMostSelected];
};

// Finds the bucket in which the counts of buckets reach `wanted`.
template <class Memory>
__device__ __forceinline__ Bucket reach_count(Memory& memory, uint32_t wanted) {
  const uint32_t each = kBuckets / blockDim.x, first = threadIdx.x * each;
  const uint32_t warp = threadIdx.x / kWarpSize;
  uint32_t own = 0;
  for (uint32_t i = 0; i < each; ++i) own += memory.counts[first + i];
  const uint32_t running = warp_running_sum(own);
  if (threadIdx.x % kWarpSize == kWarpSize - 1) memory.warp_counts[warp] = running;
  __syncthreads();
  uint32_t before = running - own;
  for (uint32_t i = 0; i < warp; ++i) before += memory.warp_counts[i];
  for (uint32_t i = 0; i < each; ++i) {
    const uint32_t count = memory.counts[first + i];
    if (before < wanted && wanted <= before + count) memory.found = {first + i, before, count};
    before += count;
  }
  __syncthreads();
  return memory.found;
}

// Calls fn(key, place) for the records of this thread.
template <class Source, typename Fn>
__device__ __forceinline__ void for_records(const Source& source, uint32_t count, const Fn& fn) {
  for (uint32_t begin = 0; begin < count; begin += kSelectLoads * blockDim.x) {
    decltype(source.key(0)) keys[kSelectLoads];
    uint32_t places[kSelectLoads];
    BP_UNROLL
    for (uint32_t k = 0; k < kSelectLoads; ++k) {
      const uint32_t i = begin + k * blockDim.x + threadIdx.x;
      keys[k] = source.key(i < count ? i : count - 1);
      places[k] = source.place(i < count ? i : count - 1);
    }
    BP_UNROLL
    for (uint32_t k = 0; k < kSelectLoads; ++k) {
      if (begin + k * blockDim.x + threadIdx.x < count) fn(keys[k], places[k]);
    }
  }
}

// Counts the records in the bucket that bucket_of(key, place) gives, and finds the last one needed.
template <class Memory, class Source, typename Fn>
__device__ __forceinline__ Bucket find_bucket(Memory& memory, const Source& source, uint32_t count,
                                              uint32_t wanted, const Fn& bucket_of) {
  for (uint32_t i = threadIdx.x; i < kBuckets; i += blockDim.x) memory.counts[i] = 0;
  __syncthreads();
  for_records(source, count, [&](auto key, uint32_t place) {
    const uint32_t bucket = bucket_of(key, place);
    if (bucket != kNoBucket) atomicAdd(memory.counts + bucket, 1u);
  });
  __syncthreads();
  return reach_count(memory, wanted);
}

// Returns the last of the `wanted` first records, or a later one before the next record.
template <class Key, class Memory, class Source>
__device__ RecordOf<Key> find_last(Memory& memory, const Source& source, uint32_t count,
                                   uint32_t wanted) {
  constexpr uint32_t kMask = kBuckets - 1;
  Key last = 0, known = 0;  // The bits of the key that are known.
  for (uint32_t high = 8 * sizeof(Key); high > 0;) {
    const uint32_t low = high > kBucketBits ? high - kBucketBits : 0;
    const Bucket found =
        find_bucket(memory, source, count, wanted, [&](Key key, uint32_t) -> uint32_t {
          if (((key ^ last) & known) != 0) return kNoBucket;
          return static_cast<uint32_t>(key >> low) & kMask & ((1u << (high - low)) - 1);
        });
    last = static_cast<Key>(last | static_cast<Key>(found.number) << low);
    known = static_cast<Key>(kLastKey<Key> << low);
    wanted -= found.before;
    if (wanted == found.count) return {static_cast<Key>(last | ~known), 0xFFFFFFFFu};
    high = low;
  }
  uint32_t place_of_last = 0, known_place = 0;
  for (uint32_t high = 32; high > 0;) {
    const uint32_t low = high > kBucketBits ? high - kBucketBits : 0;
    const Bucket found =
        find_bucket(memory, source, count, wanted, [&](Key key, uint32_t place) -> uint32_t {
          if (key != last || ((place ^ place_of_last) & known_place) != 0) return kNoBucket;
          return place >> low & kMask & ((1u << (high - low)) - 1);
        });
    place_of_last |= found.number << low;
    known_place = 0xFFFFFFFFu << low;
    wanted -= found.before;
    if (wanted == found.count) break;
    high = low;
  }
  return {last, place_of_last | ~known_place};
}

// Leaves the `wanted` first records in memory.items, in any order.
template <class Key, class Memory, class Source>
__device__ __forceinline__ void select(Memory& memory, const Source& source, uint32_t count,
                                       uint32_t wanted) {
  const auto last = find_last<Key>(memory, source, count, wanted);
  if (threadIdx.x == 0) memory.taken = 0;
  __syncthreads();
  for_records(source, count, [&](Key key, uint32_t place) {
    const RecordOf<Key> record(key, place);
    if (!(last < record)) memory.items[atomicAdd(&memory.taken, 1u)] = record;
  });
  __syncthreads();
}

// Takes the first records of a part of a line, and records behind all others if there are too few.
template <class Io>
__global__ void __launch_bounds__(kSelectThreads) select_parts_kernel(Io io, SelectPlan plan) {
  using Key = typename Io::Key;
  __shared__ SelectMemory<RecordOf<Key>> memory;
  const uint32_t line = blockIdx.x / plan.parts, first = blockIdx.x % plan.parts * plan.part;
  const uint32_t left = plan.count - first, count = left < plan.part ? left : plan.part;
  const uint32_t wanted = count < plan.kept ? count : plan.kept;
  const TensorPart<typename Io::Line> source{io.line(line), first};
  select<Key>(memory, source, count, wanted);
  const uint64_t begin = uint64_t{blockIdx.x} * plan.kept;
  for (uint32_t i = threadIdx.x; i < plan.kept; i += blockDim.x) {
    const RecordOf<Key> record = i < wanted ? memory.items[i] : last_record<RecordOf<Key>>();
    static_cast<Key*>(plan.keys)[begin + i] = static_cast<Key>(record.key());
    plan.places[begin + i] = record.place();
  }
}

// Takes the first records of a line, or of those that select_parts_kernel() took of it, and sorts
// them.
template <class Io>
__global__ void __launch_bounds__(kSelectThreads) select_lines_kernel(Io io, SelectPlan plan) {
  using Key = typename Io::Key;
  __shared__ SelectMemory<RecordOf<Key>> memory;
  const auto line = io.line(blockIdx.x);
  if (plan.parts == 1) {
    select<Key>(memory, TensorPart<typename Io::Line>{line, 0}, plan.count, plan.kept);
  } else {
    const uint32_t count = plan.parts * plan.kept;
    const uint64_t begin = uint64_t{blockIdx.x} * count;
    select<Key>(memory,
                TakenRecords<Key>{static_cast<const Key*>(plan.keys) + begin, plan.places + begin},
                count, plan.kept);
  }
  uint32_t width = 1;
  while (width < plan.kept) width *= 2;
  for (uint32_t i = plan.kept + threadIdx.x; i < width; i += blockDim.x) {
    memory.items[i] = last_record<RecordOf<Key>>();
  }
  sort_runs(memory.items, width, width);
  for (uint32_t i = threadIdx.x; i < plan.kept; i += blockDim.x) {
    line.put(i, static_cast<Key>(memory.items[i].key()), memory.items[i].place());
  }
}

// ---- On the host --------------------------------------------------------------------------------

// Whether the lines are sorted: if they are short, or if very many elements are taken.
bool is_sorted_whole(const RowExtents& extents, int64_t kept) {
  return extents.count <= kShortLine || kept > kMostSelected;
}

SelectPlan select_plan(const RowExtents& extents, int64_t kept) {
  constexpr int64_t kBlocks = 256, kLeastPart = 16384;
  const int64_t least = std::max(kLeastPart, 8 * kept);
  const int64_t parts =
      std::max<int64_t>(1, std::min(kBlocks / extents.rows, extents.count / least));
  SelectPlan plan;
  plan.count = static_cast<uint32_t>(extents.count);
  plan.kept = static_cast<uint32_t>(kept);
  plan.part = blocks_for(extents.count, parts);
  plan.parts = blocks_for(extents.count, plan.part);
  return plan;
}

// Returns how many records blocks take of parts, in whole units, so that places are aligned.
uint64_t taken_records(const RowExtents& extents, const SelectPlan& plan) {
  if (plan.parts == 1) return 0;
  return (static_cast<uint64_t>(extents.rows) * plan.parts * plan.kept + 15) / 16 * 16;
}

// Returns the threads of a block: a power of two, with about kSelectLoads records each.
unsigned threads_for(uint32_t count) {
  unsigned threads = 128;
  while (threads < kSelectThreads && threads * kSelectLoads < count) threads *= 2;
  return threads;
}

template <class Io>
bp_status select_lines(Launch& launch, const Io& io, const RowExtents& extents, int64_t kept) {
  using Key = typename Io::Key;
  SelectPlan plan = select_plan(extents, kept);
  const auto lines = static_cast<unsigned>(extents.rows);
  if (plan.parts > 1) {
    plan.keys = launch.workspace();
    plan.places =
        reinterpret_cast<uint32_t*>(launch.workspace<Key>() + taken_records(extents, plan));
    const bp_status status = run<select_parts_kernel<Io>>(launch, lines * plan.parts,
                                                          threads_for(plan.part), 0, io, plan);
    if (status != BP_OK) return status;
  }
  const uint32_t count = plan.parts == 1 ? plan.count : plan.parts * plan.kept;
  return run<select_lines_kernel<Io>>(launch, lines, threads_for(count), 0, io, plan);
}

int64_t kept_of(const bp_topk_args& args) {
  return axis_extent(*args.y, static_cast<size_t>(args.axis));
}

bp_status topk_launch(const bp_topk_args& args, Launch& launch) {
  const RowExtents extents = sort_extents(args);
  const int64_t kept = kept_of(args);
  if (extents.rows == 0 || kept == 0) return BP_OK;
  const SortTensors tensors = sort_tensors(args, args.is_largest != 0);
  return with_any(args.x->dtype, [&]<typename T>(T) {
    const SortIo<T> io{tensors};
    return is_sorted_whole(extents, kept)
               ? sort_lines(launch, io, extents.rows, extents.count, launch.workspace())
               : select_lines(launch, io, extents, kept);
  });
}

uint64_t workspace(const bp_topk_args& args, const Env&) {
  const RowExtents extents = sort_extents(args);
  const int64_t kept = kept_of(args), size_bytes = dtype_size_bytes(args.x->dtype);
  if (extents.rows == 0 || kept == 0) return 0;
  if (is_sorted_whole(extents, kept)) return sort_size_bytes(args);
  return taken_records(extents, select_plan(extents, kept)) *
         (static_cast<uint64_t>(size_bytes) + sizeof(uint32_t));
}

constexpr auto kDtypes = with_indices(kAnyDtypes);

}  // namespace

constinit const bp_kernel kTopk =
    make_kernel<bp_topk_args, topk_launch, sort_supports<bp_topk_args>, workspace>(
        kernel_row("topk", BP_OP_TOPK, {kDtypes, 2}));

}  // namespace bp::cuda
