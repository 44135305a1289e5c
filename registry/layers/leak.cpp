// leak: accounts for every handle and every allocation of host memory. At the shutdown it says
// which were not given back, and where they were made.
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "registry/boundary/fail.hpp"
#include "registry/layers/footprint.hpp"
#include "registry/layers/list.hpp"
#include "registry/layers/site.hpp"
#include "registry/layers/slots.hpp"
#include "registry/layers/words.hpp"

namespace bp::layers {
namespace {

enum class Kind : uint8_t {
  buffer,
  range,
  physical_memory,
  stream,
  event,
  semaphore,
  plan,
  layout,
  graph,
  graph_instance,
  executable,
  process_group,
  host_memory,
  kCount,
};

// The name of a kind, and the end that did not come.
struct KindWords {
  const char* noun;
  const char* missing;
};
constexpr KindWords kKindWords[] = {{"buffer", "was not freed"},
                                    {"reserved range", "was not released"},
                                    {"physical memory", "was not released"},
                                    {"stream", "was not destroyed"},
                                    {"event", "was not destroyed"},
                                    {"semaphore", "was not destroyed"},
                                    {"plan", "was not released"},
                                    {"layout", "was not released"},
                                    {"graph", "was not destroyed"},
                                    {"graph instance", "was not destroyed"},
                                    {"executable", "was not released"},
                                    {"process group", "was not destroyed"},
                                    {"host memory", "was not freed"}};
static_assert(std::size(kKindWords) == static_cast<size_t>(Kind::kCount));

// A slot that makes handles, through its last argument, or ends the handle in its first argument.
struct Life {
  Slot slot;
  Kind kind;
  bool makes;
};
constexpr Life kLives[] = {
    {Slot::memory_allocate, Kind::buffer, true},
    {Slot::memory_wrap_address, Kind::buffer, true},
    {Slot::memory_register_host, Kind::buffer, true},
    {Slot::memory_import_buffer, Kind::buffer, true},
    {Slot::memory_deallocate, Kind::buffer, false},
    {Slot::memory_unregister_host, Kind::buffer, false},
    {Slot::virtual_memory_reserve, Kind::range, true},
    {Slot::virtual_memory_release, Kind::range, false},
    {Slot::virtual_memory_create, Kind::physical_memory, true},
    {Slot::virtual_memory_release_memory, Kind::physical_memory, false},
    {Slot::stream_create, Kind::stream, true},
    {Slot::stream_wrap_native, Kind::stream, true},
    {Slot::stream_destroy, Kind::stream, false},
    {Slot::event_create, Kind::event, true},
    {Slot::event_import_event, Kind::event, true},
    {Slot::event_destroy, Kind::event, false},
    {Slot::semaphore_create, Kind::semaphore, true},
    {Slot::semaphore_import_semaphore, Kind::semaphore, true},
    {Slot::semaphore_destroy, Kind::semaphore, false},
    {Slot::layout_preferred, Kind::layout, true},
    {Slot::layout_from_blob, Kind::layout, true},
    {Slot::layout_from_desc, Kind::layout, true},
    {Slot::layout_release, Kind::layout, false},
    {Slot::graph_end_capture, Kind::graph, true},
    {Slot::graph_destroy, Kind::graph, false},
    {Slot::graph_instantiate, Kind::graph_instance, true},
    {Slot::graph_destroy_instance, Kind::graph_instance, false},
    {Slot::compiler_compile, Kind::executable, true},
    {Slot::compiler_deserialize, Kind::executable, true},
    {Slot::compiler_release, Kind::executable, false},
    {Slot::collective_create, Kind::process_group, true},
    {Slot::collective_split, Kind::process_group, true},
    {Slot::collective_shrink, Kind::process_group, true},
    {Slot::collective_destroy, Kind::process_group, false},
    {Slot::kernel_prepare, Kind::plan, true},
    {Slot::kernel_plan_release, Kind::plan, false},
};

constexpr const Life* find_life(Slot slot) {
  for (const Life& life : kLives) {
    if (life.slot == slot) return &life;
  }
  return nullptr;
}

struct Record {
  Kind kind;
  const char* made_by = "";     // "memory.allocate".
  uint64_t number = 0;          // Counts handles in the order in which they were made.
  uint64_t size_bytes = 0;      // For memory.
  uint64_t references = 0;      // For what is counted; else 1.
  bp_device* device = nullptr;  // NULL if it is not known.
  Site site;
};

// What the arguments of a call that makes something tell about its result.
struct Facts {
  bp_device* device = nullptr;
  // The last number of the call. Every call that makes memory ends with its size.
  uint64_t size_bytes = 0;
  uint64_t count = 1;  // The number of handles.

  void read(bp_device* given) { device = given; }
  void read(uint64_t given) { size_bytes = given; }
  void read(const bp_allocate_desc* desc) { size_bytes = requested_bytes(*desc); }
  void read(const bp_process_group_desc* desc) { count = desc->local_count; }
  template <typename T>
  void read(const T& /*other*/) {}
};

class LeakLayer final : public Layer {
 public:
  using Layer::Layer;

  bp_status check() override { return options().number("leak", "fail", 1, fails_); }

  const bp_host* wrap_host(const bp_host* next) override {
    wrap_host_table(*next, *this, host_);
    replace<&LeakLayer::host_allocate>(host_.table.allocate);
    replace<&LeakLayer::host_deallocate>(host_.table.deallocate);
    return &host_.table;
  }

  void on_table(AnyTable table) override {
    std::visit([](auto* wrapped) { surround_all<LeakLayer>(*wrapped); }, table);
  }

  bool on_kernel(WrappedKernel& kernel) override {
    surround_kernel<LeakLayer, &bp_kernel::prepare, Slot::kernel_prepare>(kernel.kernel.prepare);
    surround_kernel<LeakLayer, &bp_kernel::plan_release, Slot::kernel_plan_release>(
        kernel.kernel.plan_release);
    return true;
  }

  bp_status shut_down(const bp_backend& next, uint64_t timeout_ns) override {
    const bp_status status = next.shutdown(next.self, timeout_ns);
    if (status == BP_TIMEOUT) return status;
    const std::string summary = report_all();
    if (status != BP_OK || summary.empty() || fails_ == 0) return status;
    return fail(BP_INVALID_ARGUMENT, "leak: " + summary);
  }

  template <Slot kSlot, typename Next, typename... Args>
  bp_status around(Next next, Args... args) {
    constexpr const Life* kLife = find_life(kSlot);
    if constexpr (kSlot == Slot::device_reset) return reset(next, args...);
    if constexpr (kSlot == Slot::layout_retain) return retain(next, args...);
    if constexpr (kLife == nullptr) {
      return next();
    } else if constexpr (kLife->makes) {
      return make(*kLife, next, std::get<sizeof...(args) - 1>(std::tuple(args...)), args...);
    } else {
      return end(kLife->kind, next, std::get<0>(std::tuple(args...)));
    }
  }

  template <Slot kSlot, typename Next, typename... Args>
  bp_status around_kernel(const WrappedKernel& /*kernel*/, Next next, Args... args) {
    return around<kSlot>(next, args...);
  }

  bp_status host_allocate(const bp_host& next, uint64_t size_bytes, uint64_t alignment_bytes,
                          void** out_memory) {
    const bp_status status = next.allocate(next.self, size_bytes, alignment_bytes, out_memory);
    if (status == BP_OK)
      add(Kind::host_memory, "host.allocate", *out_memory, {nullptr, size_bytes});
    return status;
  }

  bp_status host_deallocate(const bp_host& next, void* memory, uint64_t size_bytes) {
    return end(
        Kind::host_memory, [&] { return next.deallocate(next.self, memory, size_bytes); }, memory);
  }

 private:
  template <typename Next, typename Handle, typename... Args>
  bp_status make(const Life& life, Next next, Handle** out_handles, Args... args) {
    const bp_status status = next();
    if (status != BP_OK || out_handles == nullptr) return status;
    Facts facts;
    (facts.read(args), ...);
    for (uint64_t i = 0; i < facts.count; ++i) {
      add(life.kind, slot_name(life.slot).data(), out_handles[i], facts);
    }
    return status;
  }

  // The record, or a reference of it, is removed before the handle ends: another thread may get the
  // same address as soon as the handle has ended.
  template <typename Next>
  bp_status end(Kind kind, Next next, const void* handle) {
    Record taken;
    const bool was_known = take(kind, handle, taken);
    const bp_status status = next();
    if (status == BP_OK || !was_known) return status;
    const std::lock_guard lock(mutex_);
    const auto [entry, was_last] = live_.emplace(std::pair(kind, handle), taken);
    if (!was_last && kind == Kind::layout) ++entry->second.references;
    return status;
  }

  template <typename Next>
  bp_status retain(Next next, const bp_layout* layout) {
    const bp_status status = next();
    const std::lock_guard lock(mutex_);
    const auto found = live_.find({Kind::layout, layout});
    if (status == BP_OK && found != live_.end()) ++found->second.references;
    return status;
  }

  // Removes the records of the handles that the device has lost. Layouts survive a reset.
  template <typename Next>
  bp_status reset(Next next, bp_device* device) {
    const bp_status status = next();
    if (status != BP_OK) return status;
    const std::lock_guard lock(mutex_);
    std::erase_if(live_, [&](const auto& entry) {
      return entry.second.device == device && entry.first.first != Kind::layout;
    });
    return status;
  }

  void add(Kind kind, const char* made_by, const void* handle, const Facts& facts) {
    if (handle == nullptr) return;
    constexpr int kLayerFrames = 2;  // This function and its caller.
    Record record{kind, made_by, 0, facts.size_bytes, 1, facts.device, Site::here(kLayerFrames)};
    const std::lock_guard lock(mutex_);
    record.number = ++made_count_;
    const auto [entry, is_new] = live_.emplace(std::pair(kind, handle), record);
    if (is_new) return;
    if (kind == Kind::layout) {
      ++entry->second.references;
    } else {
      entry->second = record;  // The earlier handle ended without a call, as after a reset.
    }
  }

  bool take(Kind kind, const void* handle, Record& out) {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find({kind, handle});
    if (found == live_.end()) return false;
    out = found->second;
    out.references = 1;
    if (--found->second.references == 0) live_.erase(found);
    return true;
  }

  // Logs a line for each, oldest first. Returns text like "2 buffers, 1 event", or "" if there is
  // none.
  std::string report_all() {
    std::map<uint64_t, std::pair<const void*, Record>> sorted;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [key, record] : live_) {
        sorted.emplace(record.number, std::pair(key.second, record));
      }
      live_.clear();
    }
    uint64_t counts[std::size(kKindWords)] = {};
    for (const auto& [number, entry] : sorted) {
      const auto& [handle, record] = entry;
      const KindWords& kind = kKindWords[static_cast<size_t>(record.kind)];
      ++counts[static_cast<size_t>(record.kind)];
      const bool has_size =
          record.kind <= Kind::physical_memory || record.kind == Kind::host_memory;
      report(std::string(kind.noun) + " " + words(handle) +
             (has_size ? " of " + std::to_string(record.size_bytes) + " bytes" : "") + " " +
             kind.missing + "; made by " + record.made_by + ", called from " + record.site.words());
    }
    std::string summary;
    for (size_t i = 0; i < std::size(counts); ++i) {
      if (counts[i] == 0) continue;
      summary += (summary.empty() ? "not given back: " : ", ") + std::to_string(counts[i]) + " " +
                 kKindWords[i].noun;
    }
    return summary;
  }

  uint64_t fails_ = 0;
  Wrapped<bp_host> host_{};
  std::mutex mutex_;
  uint64_t made_count_ = 0;                              // Guarded by mutex_.
  std::map<std::pair<Kind, const void*>, Record> live_;  // Guarded by mutex_.
};

constexpr OptionInfo kLeakOptions[] = {
    {"fail", "1: the shutdown fails if something was not given back; default 0"}};

}  // namespace

constinit const LayerInfo kLeakLayer{"leak", "accounts for every handle at the shutdown",
                                     kLeakOptions, make_layer<LeakLayer>};

}  // namespace bp::layers
