// Programs of oneDNN primitives, which are made once for given shapes and run on any addresses.
//
//   Threads   A Program may run on several threads at once. A ProgramCache is safe from any thread,
//             and finding what it holds never blocks another finder.
//   Errors    dnnl::error and std::bad_alloc are thrown.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <dnnl.hpp>
#include <memory>
#include <shared_mutex>
#include <span>
#include <utility>
#include <vector>

namespace bp::kernels {

// Sets the number of OpenMP threads of this thread to `count` while it lives. oneDNN divides its
// work, and the work of primitives that it makes, among as many threads. The destructor restores
// the earlier number, because an inline stream runs on the user's own thread.
class ThreadCountScope {
 public:
  explicit ThreadCountScope(int count);
  ~ThreadCountScope();
  ThreadCountScope(const ThreadCountScope&) = delete;
  ThreadCountScope& operator=(const ThreadCountScope&) = delete;

 private:
  int before_, count_;
};

// Returns whether oneDNN uses all instructions of `isa`.
bool library_has(dnnl::cpu_isa isa);

// The largest depth of products of i8, or u8 by i8, that oneDNN computes here. Differences of codes
// and zero points are at most 255, so a sum of so many products is an i32. Steps on the way may
// wrap around.
constexpr int64_t kMostDepthOfBytes = 1 << 15;

// Returns how many threads are worth waking for `products` multiplications. To wait for a team
// takes longer than a small product, and far longer if the machine is busy.
int threads_for(int64_t products, int thread_count);

// One or more primitives in order, with the memories between them. Built once, then only run.
//
// A memory is either external, and run() gets its address, or it lies in the workspace.
class Program {
 public:
  using Memory = size_t;
  struct Argument {
    int name;  // DNNL_ARG_*.
    Memory memory;
  };

  explicit Program(int thread_count);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Adds an external memory. Externals are numbered in the order of these calls.
  Memory add_external(const dnnl::memory::desc& desc);
  Memory add_workspace(const dnnl::memory::desc& desc);
  void add_step(const dnnl::primitive& primitive, std::vector<Argument> arguments);
  void add_reorder(Memory from, Memory to);

  const dnnl::engine& engine() const { return engine_; }
  const dnnl::memory::desc& desc(Memory memory) const { return memories_[memory].desc; }
  uint64_t workspace_size_bytes() const { return workspace_size_bytes_; }
  bool has_steps() const { return !steps_.empty(); }

  // Runs the steps on the calling thread's team. `workspace` has workspace_size_bytes().
  void run(std::span<void* const> externals, std::byte* workspace) const;

 private:
  struct Placed {
    dnnl::memory::desc desc;
    bool is_external;
    uint64_t place;  // The number of the external, or the offset in the workspace.
  };
  struct Step {
    dnnl::primitive primitive;
    std::vector<Argument> arguments;
  };
  // What one run needs for itself, because a memory object of oneDNN holds its address.
  struct Context;
  std::unique_ptr<Context> make_context() const;

  int thread_count_;
  dnnl::engine engine_;
  std::vector<Placed> memories_;
  std::vector<Step> steps_;
  uint64_t external_count_ = 0;
  uint64_t workspace_size_bytes_ = 0;
  mutable std::atomic<Context*> idle_ = nullptr;  // A context for the next run, or NULL.
};

// The key of a program: everything that decides how the program is made.
class ProgramKey {
 public:
  void add(int64_t word);
  void add(std::span<const int64_t> words);
  bool operator==(const ProgramKey& other) const;
  uint64_t hash() const;

 private:
  static constexpr size_t kMaxWords = 64;  // A three-dimensional convolution has 47.
  std::array<int64_t, kMaxWords> words_;
  size_t count_ = 0;
};

// The programs of one instance of the backend, at most kBuckets * kPerBucket. A full bucket drops
// the program that was not used for the longest time.
class ProgramCache {
 public:
  // Returns the program of `key`. If the cache lacks it, make() makes the program.
  template <typename Make>
  std::shared_ptr<const Program> find(const ProgramKey& key, Make&& make) {
    const uint64_t hash = key.hash();
    if (std::shared_ptr<const Program> found = lookup(hash, key)) return found;
    return insert(hash, key, std::forward<Make>(make)());
  }

 private:
  static constexpr size_t kBuckets = 64;
  static constexpr size_t kPerBucket = 8;
  struct Entry {
    uint64_t hash;
    ProgramKey key;
    std::shared_ptr<const Program> program;
    std::atomic<uint64_t> last_use;
  };
  struct alignas(64) Bucket {
    std::shared_mutex mutex;  // It guards `entries`; lookups share it.
    std::vector<std::unique_ptr<Entry>> entries;
    std::atomic<uint64_t> clock = 0;
  };

  std::shared_ptr<const Program> lookup(uint64_t hash, const ProgramKey& key);
  std::shared_ptr<const Program> insert(uint64_t hash, const ProgramKey& key,
                                        std::shared_ptr<const Program> program);

  std::array<Bucket, kBuckets> buckets_;
};

// Makes a cache for code that must not include oneDNN's headers.
std::shared_ptr<ProgramCache> make_program_cache();

}  // namespace bp::kernels
