// randperm sorts the integers 0 to n - 1 by random keys of 64 bits. The keys are spread evenly, so
// a record is almost at its place after two steps:
//
//   1. The upper 8 bits of a key choose one of kBuckets buckets. Each thread counts and moves the
//      records of its part of the integers.
//   2. The next bits of a key choose one of up to kMostBins bins of the bucket, so that most bins
//      have a few records. An insertion sort of the bucket does the rest, because hardly a record
//      has to move past more than one other. Threads share the buckets.
//
// A record is a key and its integer, and no two are equal, so the result does not depend on the
// order in which records are moved. Keys are computed twice, because that takes less time than
// memory for them.
#include <algorithm>
#include <bit>
#include <utility>

#include "backends/host_kernels/indices.hpp"
#include "backends/host_kernels/random.hpp"
#include "backends/host_kernels/records.hpp"
#include "backends/host_kernels/strided.hpp"

namespace bp::kernels {
namespace {

constexpr int kBucketBits = 8, kMostBinBits = 12;
constexpr int64_t kBuckets = 1 << kBucketBits, kMostBins = 1 << kMostBinBits;
constexpr int64_t kShuffleGrain = 8192;  // With fewer integers a team costs more.
constexpr int64_t kMostInserted = 16;    // A bin with more records is sorted by itself.

// Returns the records of a bucket for which a thread has room. A bucket with more of them, which
// hardly ever exists, is sorted without bins.
int64_t bucket_room(int64_t n) { return 2 * (n / kBuckets) + 512; }

// The places in the workspace: the records by bucket, those of a bucket by bin for each thread, and
// for each part of the integers the number of records in each bucket.
struct Places {
  Places(int64_t n, int64_t parts, int threads) {
    const auto reserve = [&](int64_t count, size_t item_size_bytes) {
      return reserve_bytes(static_cast<uint64_t>(count) * item_size_bytes, size_bytes);
    };
    by_bucket = reserve(n, sizeof(Wide));
    by_bin = reserve(threads * bucket_room(n), sizeof(Wide));
    counts = reserve(parts * kBuckets, sizeof(int64_t));
  }
  uint64_t size_bytes = 0, by_bucket, by_bin, counts;
};

int64_t part_count(int64_t n, const Env& env) {
  return std::clamp<int64_t>(n / kShuffleGrain, 1, env.thread_count());
}

int64_t bucket_of(uint64_t key) { return static_cast<int64_t>(key >> (64 - kBucketBits)); }

// Sorts n records, each of which is close to its place.
void insert_records(Wide* records, int64_t n) {
  for (int64_t i = 1; i < n; ++i) {
    const Wide record = records[i];
    int64_t at = i;
    for (; at > 0 && record < records[at - 1]; --at) records[at] = records[at - 1];
    records[at] = record;
  }
}

// The shuffle of n integers.
struct Shuffle {
  std::byte* y = nullptr;
  int64_t n = 0, y_stride_bytes = 0, parts = 1;
  bool is_i64 = true;
  uint64_t seed = 0, offset = 0;
  Wide *by_bucket = nullptr, *by_bin = nullptr;
  int64_t* counts = nullptr;

  int64_t begin_of_part(int64_t part) const { return n * part / parts; }

  // Calls take(key, integer) for a part of the integers. Keys are in the order of i64.
  template <typename Take>
  void for_each_key(int64_t part, const Take& take) const {
    constexpr int64_t kKeys = 512;
    alignas(64) uint32_t words[2 * kKeys];
    RandomRun run;
    run.seed = seed;
    run.offset = offset;
    run.y = reinterpret_cast<std::byte*>(words);
    run.y_stride = sizeof(uint32_t);
    const int64_t end = begin_of_part(part + 1);
    for (int64_t first = begin_of_part(part), count = 0; first < end; first += count) {
      count = std::min(kKeys, end - first);
      run.first = 2 * first;
      run.count = 2 * count;
      run_random(run);
      for (int64_t i = 0; i < count; ++i) {
        const auto key = static_cast<int64_t>(words[2 * i] | uint64_t{words[2 * i + 1]} << 32);
        take(key_of(key), first + i);
      }
    }
  }

  void count_part(int64_t part) const {
    int64_t* const own = counts + part * kBuckets;
    std::fill_n(own, kBuckets, int64_t{0});
    for_each_key(part, [=](uint64_t key, int64_t) { ++own[bucket_of(key)]; });
  }

  // Replaces the counts by the places of the first records.
  void place_parts() const {
    int64_t sum = 0;
    for (int64_t bucket = 0; bucket < kBuckets; ++bucket) {
      for (int64_t part = 0; part < parts; ++part) {
        sum += std::exchange(counts[part * kBuckets + bucket], sum);
      }
    }
  }

  // Moves the records of a part, and leaves the ends of its places in `counts`.
  void move_part(int64_t part) const {
    int64_t* const next = counts + part * kBuckets;
    for_each_key(part, [&](uint64_t key, int64_t integer) {
      by_bucket[next[bucket_of(key)]++] = Wide::make(key, integer);
    });
  }

  // The end of a bucket is that of its last part.
  int64_t end_of_bucket(int64_t bucket) const {
    return bucket < 0 ? 0 : counts[(parts - 1) * kBuckets + bucket];
  }

  // Returns the records of a bucket in order.
  const Wide* sorted_bucket(Wide* records, int64_t count) const {
    if (count > bucket_room(n)) {
      std::sort(records, records + count);
      return records;
    }
    Wide* const sorted = by_bin + thread_number() * bucket_room(n);
    const auto width = static_cast<int>(std::bit_width(static_cast<uint64_t>(count)));
    const int bits = std::clamp(width, 1, kMostBinBits);
    const auto bin_of = [=](const Wide& record) {
      return record.key() << kBucketBits >> (64 - bits);
    };
    int64_t next[kMostBins];
    std::fill_n(next, int64_t{1} << bits, int64_t{0});
    for (int64_t i = 0; i < count; ++i) ++next[bin_of(records[i])];
    int64_t sum = 0;
    for (int64_t bin = 0; bin < int64_t{1} << bits; ++bin) sum += std::exchange(next[bin], sum);
    for (int64_t i = 0; i < count; ++i) sorted[next[bin_of(records[i])]++] = records[i];
    for (int64_t bin = 0, first = 0; bin < int64_t{1} << bits; first = next[bin++]) {
      if (next[bin] - first > kMostInserted) std::sort(sorted + first, sorted + next[bin]);
    }
    insert_records(sorted, count);
    return sorted;
  }

  void sort_bucket(int64_t bucket) const {
    const int64_t begin = end_of_bucket(bucket - 1), count = end_of_bucket(bucket) - begin;
    const Wide* const sorted = sorted_bucket(by_bucket + begin, count);
    for (int64_t i = 0; i < count; ++i) {
      store_index(y + (begin + i) * y_stride_bytes, is_i64, sorted[i].index());
    }
  }
};

void run_shuffle(const Shuffle& shuffle, int threads) {
  const auto for_each_part = [&](const auto& body) {
    parallel_for(threads, shuffle.parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) body(part);
    });
  };
  for_each_part([&](int64_t part) { shuffle.count_part(part); });
  shuffle.place_parts();
  for_each_part([&](int64_t part) { shuffle.move_part(part); });
  const int64_t grain = 1 + kBuckets * kShuffleGrain / shuffle.n;
  parallel_for(threads, kBuckets, grain, [&](int64_t begin, int64_t end) {
    for (int64_t bucket = begin; bucket < end; ++bucket) shuffle.sort_bucket(bucket);
  });
}

uint64_t randperm_workspace(const bp_randperm_args& args, const Env& env) {
  const int64_t n = args.y->shape[0];
  return Places(n, part_count(n, env), env.thread_count()).size_bytes;
}

bp_status randperm_launch(const bp_randperm_args& args, Launch& launch) {
  Shuffle shuffle;
  shuffle.y = data<std::byte>(*args.y);
  shuffle.n = args.y->shape[0];
  shuffle.y_stride_bytes = args.y->strides[0] * dtype_size_bytes(args.y->dtype);
  shuffle.is_i64 = args.y->dtype == BP_I64;
  shuffle.parts = part_count(shuffle.n, launch);
  const Places places(shuffle.n, shuffle.parts, launch.thread_count());
  std::byte* const workspace = launch.workspace();
  shuffle.by_bucket = reinterpret_cast<Wide*>(workspace + places.by_bucket);
  shuffle.by_bin = reinterpret_cast<Wide*>(workspace + places.by_bin);
  shuffle.counts = reinterpret_cast<int64_t*>(workspace + places.counts);
  const ScalarArgument seed(args.seed, args.seed_scalar, BP_U64);
  const ScalarArgument offset(args.offset, args.offset_scalar, BP_U64);
  return launch.submit([=, threads = launch.thread_count()] {
    if (shuffle.n == 0) return;
    Shuffle seeded = shuffle;
    seeded.seed = seed.get<uint64_t>();
    seeded.offset = offset.get<uint64_t>();
    run_shuffle(seeded, threads);
  });
}

}  // namespace

extern constinit const bp_kernel kRandperm =
    make_kernel<bp_randperm_args, randperm_launch, nullptr, randperm_workspace>(
        kernel_row("randperm", BP_OP_RANDPERM, kIndexDtypes, BP_KERNEL_TAKES_SCALAR));

}  // namespace bp::kernels
