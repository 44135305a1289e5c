#include "backends/host_kernels/dnnl_program.hpp"

#include <omp.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>

#include "backends/host_kernels/strided.hpp"

namespace bp::kernels {
namespace {

void check(dnnl_status_t status) {
  if (status != dnnl_success) throw dnnl::error(status, "oneDNN could not run a primitive");
}

}  // namespace

ThreadCountScope::ThreadCountScope(int count) : before_(omp_get_max_threads()), count_(count) {
  if (count_ != before_) omp_set_num_threads(count_);
}

ThreadCountScope::~ThreadCountScope() {
  if (count_ != before_) omp_set_num_threads(before_);
}

bool library_has(dnnl::cpu_isa isa) {
  const auto needed = static_cast<unsigned>(isa);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & needed) == needed;
}

int threads_for(int64_t products, int thread_count) {
  constexpr int64_t kWorthATeam = 1 << 18;  // They take one thread 2 us.
  return products < kWorthATeam ? 1 : thread_count;
}

struct Program::Context {
  dnnl::stream stream;
  std::vector<dnnl::memory> memories;
  std::vector<std::vector<dnnl_exec_arg_t>> arguments;  // The arguments of each step.
};

Program::Program(int thread_count)
    : thread_count_(thread_count), engine_(dnnl::engine::kind::cpu, 0) {}

Program::~Program() { delete idle_.load(); }

Program::Memory Program::add_external(const dnnl::memory::desc& desc) {
  memories_.push_back({desc, true, external_count_++});
  return memories_.size() - 1;
}

Program::Memory Program::add_workspace(const dnnl::memory::desc& desc) {
  memories_.push_back({desc, false, reserve_bytes(desc.get_size(), workspace_size_bytes_)});
  return memories_.size() - 1;
}

void Program::add_step(const dnnl::primitive& primitive, std::vector<Argument> arguments) {
  steps_.push_back({primitive, std::move(arguments)});
}

void Program::add_reorder(Memory from, Memory to) {
  const ThreadCountScope scope(thread_count_);
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::reorder::primitive_desc pd(engine_, desc(from), engine_, desc(to), attr);
  const Memory scratch = add_workspace(pd.scratchpad_desc());
  add_step(dnnl::reorder(pd),
           {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}, {DNNL_ARG_SCRATCHPAD, scratch}});
}

std::unique_ptr<Program::Context> Program::make_context() const {
  auto context = std::make_unique<Context>();
  context->stream = dnnl::stream(engine_);
  for (const Placed& placed : memories_) {
    context->memories.emplace_back(placed.desc, engine_, nullptr);
  }
  for (const Step& step : steps_) {
    std::vector<dnnl_exec_arg_t>& arguments = context->arguments.emplace_back();
    for (const Argument& a : step.arguments) {
      arguments.push_back({a.name, context->memories[a.memory].get()});
    }
  }
  return context;
}

void Program::run(std::span<void* const> externals, std::byte* workspace) const {
  const ThreadCountScope scope(thread_count_);
  std::unique_ptr<Context> context(idle_.exchange(nullptr));
  if (context == nullptr) context = make_context();
  for (size_t i = 0; i < memories_.size(); ++i) {
    const Placed& placed = memories_[i];
    void* const address =
        placed.is_external ? externals[placed.place] : static_cast<void*>(workspace + placed.place);
    check(dnnl_memory_set_data_handle(context->memories[i].get(), address));
  }
  for (size_t i = 0; i < steps_.size(); ++i) {
    const std::vector<dnnl_exec_arg_t>& arguments = context->arguments[i];
    check(dnnl_primitive_execute(steps_[i].primitive.get(), context->stream.get(),
                                 static_cast<int>(arguments.size()), arguments.data()));
  }
  Context* none = nullptr;
  if (idle_.compare_exchange_strong(none, context.get())) {
    static_cast<void>(context.release());  // idle_ owns it now.
  }
}

void ProgramKey::add(int64_t word) {
  if (count_ == kMaxWords) throw std::length_error("the key of a oneDNN program is too long");
  words_[count_++] = word;
}

void ProgramKey::add(std::span<const int64_t> words) {
  for (const int64_t word : words) add(word);
}

bool ProgramKey::operator==(const ProgramKey& other) const {
  return std::equal(words_.begin(), words_.begin() + count_, other.words_.begin(),
                    other.words_.begin() + other.count_);
}

// Multiplies each word by an odd constant and shifts it, which spreads small numbers such as
// extents over all bits.
uint64_t ProgramKey::hash() const {
  uint64_t hash = count_;
  for (size_t i = 0; i < count_; ++i) {
    hash = (hash ^ static_cast<uint64_t>(words_[i])) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  return hash;
}

std::shared_ptr<ProgramCache> make_program_cache() { return std::make_shared<ProgramCache>(); }

std::shared_ptr<const Program> ProgramCache::lookup(uint64_t hash, const ProgramKey& key) {
  Bucket& bucket = buckets_[hash % kBuckets];
  const std::shared_lock lock(bucket.mutex);
  for (const std::unique_ptr<Entry>& entry : bucket.entries) {
    if (entry->hash != hash || !(entry->key == key)) continue;
    const uint64_t now = bucket.clock.load(std::memory_order_relaxed);
    if (entry->last_use.load(std::memory_order_relaxed) != now) {
      entry->last_use.store(bucket.clock.fetch_add(1, std::memory_order_relaxed) + 1,
                            std::memory_order_relaxed);
    }
    return entry->program;
  }
  return nullptr;
}

std::shared_ptr<const Program> ProgramCache::insert(uint64_t hash, const ProgramKey& key,
                                                    std::shared_ptr<const Program> program) {
  Bucket& bucket = buckets_[hash % kBuckets];
  const std::unique_lock lock(bucket.mutex);
  for (const std::unique_ptr<Entry>& entry : bucket.entries) {
    if (entry->hash == hash && entry->key == key) return entry->program;  // Another thread made it.
  }
  std::unique_ptr<Entry> entry(new Entry{hash, key, program, bucket.clock.fetch_add(1) + 1});
  if (bucket.entries.size() < kPerBucket) {
    bucket.entries.push_back(std::move(entry));
  } else {
    *std::min_element(bucket.entries.begin(), bucket.entries.end(),
                      [](const auto& a, const auto& b) { return a->last_use < b->last_use; }) =
        std::move(entry);
  }
  return program;
}

}  // namespace bp::kernels
