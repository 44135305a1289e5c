// leak: accounts for every handle and every allocation of host memory, and says at the shutdown
// which were not given back, and where they were made.
#include <map>
#include <mutex>
#include <utility>

#include "registry/fail.hpp"
#include "registry/layers/list.hpp"
#include "registry/layers/site.hpp"
#include "registry/layers/words.hpp"

namespace bp::layers {
namespace {

enum class Kind : uint8_t { buffer, stream, event, plan, host_memory };

struct KindWords {
  const char* noun;
  const char* made;
  const char* missing;
};
constexpr KindWords kKindWords[] = {{"buffer", "memory.allocate", "was not freed"},
                                    {"stream", "stream.create", "was not destroyed"},
                                    {"event", "event.create", "was not destroyed"},
                                    {"plan", "kernel.prepare", "was not released"},
                                    {"host memory", "host.allocate", "was not freed"}};

struct Record {
  Kind kind;
  uint64_t number = 0;          // In the order in which handles were made.
  uint64_t size_bytes = 0;      // Of memory.
  bp_device* device = nullptr;  // NULL for host memory.
  std::string detail;           // "of kernel add.rows".
  Site site;
};

class LeakLayer final : public Layer {
 public:
  using Layer::Layer;

  bp_status check() override { return options().number("leak", "fail", 1, fails_); }

  const bp_host* wrap_host(const bp_host* next) override {
    wrap_host_table(*next, *this, host_);
    replace<&LeakLayer::host_allocate>(host_.table.allocate);
    replace<&LeakLayer::host_free>(host_.table.free);
    return &host_.table;
  }

  void on_table(AnyTable table) override {
    visit_table<bp_device_ops>(table, [](auto& t) { replace<&LeakLayer::reset>(t.reset); });
    visit_table<bp_allocator_ops>(table, [](auto& t) {
      replace<&LeakLayer::allocate>(t.allocate);
      replace<&LeakLayer::free>(t.free);
    });
    visit_table<bp_stream_ops>(table, [](auto& t) {
      replace<&LeakLayer::create_stream>(t.create);
      replace<&LeakLayer::destroy_stream>(t.destroy);
    });
    visit_table<bp_event_ops>(table, [](auto& t) {
      replace<&LeakLayer::create_event>(t.create);
      replace<&LeakLayer::destroy_event>(t.destroy);
    });
  }

  bool on_kernel(WrappedKernel& kernel) override {
    replace<&LeakLayer::prepare>(kernel.kernel.prepare);
    replace<&LeakLayer::plan_release>(kernel.kernel.plan_release);
    return true;
  }

  bp_status shut_down(const bp_backend& next) override {
    const bp_status status = next.shutdown(next.self);
    const std::string summary = report_all();
    if (status != BP_OK || summary.empty() || fails_ == 0) return status;
    return fail(BP_INVALID_ARGUMENT, "leak: " + summary);
  }

  // ---- What makes and ends handles ----

  bp_status allocate(const bp_allocator_ops& next, bp_device* device, const bp_allocate_desc* desc,
                     bp_buffer** out_buffer) {
    const bp_status status = next.allocate(next.self, device, desc, out_buffer);
    if (status == BP_OK) add(Kind::buffer, *out_buffer, device, desc->size_bytes);
    return status;
  }

  bp_status free(const bp_allocator_ops& next, bp_buffer* buffer, bp_stream* stream) {
    Record taken;
    const bool was_known = take(Kind::buffer, buffer, taken);
    return give_back_unless_ok(next.free(next.self, buffer, stream), buffer, was_known, taken);
  }

  bp_status create_stream(const bp_stream_ops& next, bp_device* device, const bp_stream_desc* desc,
                          bp_stream** out_stream) {
    const bp_status status = next.create(next.self, device, desc, out_stream);
    if (status == BP_OK) add(Kind::stream, *out_stream, device, 0);
    return status;
  }

  bp_status destroy_stream(const bp_stream_ops& next, bp_stream* stream) {
    Record taken;
    const bool was_known = take(Kind::stream, stream, taken);
    return give_back_unless_ok(next.destroy(next.self, stream), stream, was_known, taken);
  }

  bp_status create_event(const bp_event_ops& next, bp_device* device, const bp_event_desc* desc,
                         bp_event** out_event) {
    const bp_status status = next.create(next.self, device, desc, out_event);
    if (status == BP_OK) add(Kind::event, *out_event, device, 0);
    return status;
  }

  bp_status destroy_event(const bp_event_ops& next, bp_event* event) {
    Record taken;
    const bool was_known = take(Kind::event, event, taken);
    return give_back_unless_ok(next.destroy(next.self, event), event, was_known, taken);
  }

  bp_status prepare(const WrappedKernel& kernel, bp_device* device, const bp_prepare_desc* desc,
                    const void* args, bp_plan** out_plan) {
    const bp_status status = kernel.next->prepare(kernel.next, device, desc, args, out_plan);
    if (status == BP_OK) {
      add(Kind::plan, *out_plan, device, 0, std::string(" of kernel ") + kernel.kernel.name);
    }
    return status;
  }

  bp_status plan_release(const WrappedKernel& kernel, bp_plan* plan) {
    Record taken;
    const bool was_known = take(Kind::plan, plan, taken);
    return give_back_unless_ok(kernel.next->plan_release(kernel.next, plan), plan, was_known,
                               taken);
  }

  bp_status host_allocate(const bp_host& next, uint64_t size_bytes, uint64_t alignment_bytes,
                          void** out_memory) {
    const bp_status status = next.allocate(next.self, size_bytes, alignment_bytes, out_memory);
    if (status == BP_OK) add(Kind::host_memory, *out_memory, nullptr, size_bytes);
    return status;
  }

  bp_status host_free(const bp_host& next, void* memory, uint64_t size_bytes) {
    Record taken;
    const bool was_known = take(Kind::host_memory, memory, taken);
    return give_back_unless_ok(next.free(next.self, memory, size_bytes), memory, was_known, taken);
  }

  // All handles of the device have ended.
  bp_status reset(const bp_device_ops& next, bp_device* device) {
    const bp_status status = next.reset(next.self, device);
    if (status != BP_OK) return status;
    const std::lock_guard lock(mutex_);
    std::erase_if(live_, [&](const auto& entry) { return entry.second.device == device; });
    return status;
  }

 private:
  void add(Kind kind, const void* handle, bp_device* device, uint64_t size_bytes,
           std::string detail = "") {
    constexpr int kLayerFrames = 3;  // This function, its slot, and the wrapping.
    Record record{kind, 0, size_bytes, device, std::move(detail), Site::here(kLayerFrames)};
    const std::lock_guard lock(mutex_);
    record.number = ++made_count_;
    live_[{kind, handle}] = std::move(record);
  }

  // Before the handle ends: another thread may get the same address as soon as it has.
  bool take(Kind kind, const void* handle, Record& out) {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find({kind, handle});
    if (found == live_.end()) return false;
    out = std::move(found->second);
    live_.erase(found);
    return true;
  }

  bp_status give_back_unless_ok(bp_status status, const void* handle, bool was_known,
                                Record& record) {
    if (status == BP_OK || !was_known) return status;
    const std::lock_guard lock(mutex_);
    live_.emplace(std::pair(record.kind, handle), std::move(record));
    return status;
  }

  // A line for each, oldest first, and "2 buffers, 1 event" of them; "" if there is none.
  std::string report_all() {
    std::map<uint64_t, std::pair<const void*, Record>> sorted;
    {
      const std::lock_guard lock(mutex_);
      for (auto& [key, record] : live_) {
        sorted.emplace(record.number, std::pair(key.second, std::move(record)));
      }
      live_.clear();
    }
    uint64_t counts[std::size(kKindWords)] = {};
    for (const auto& [number, entry] : sorted) {
      const auto& [handle, record] = entry;
      const KindWords& kind = kKindWords[static_cast<size_t>(record.kind)];
      ++counts[static_cast<size_t>(record.kind)];
      const bool has_size = record.kind == Kind::buffer || record.kind == Kind::host_memory;
      report(std::string(kind.noun) + " " + words(handle) +
             (has_size ? " of " + std::to_string(record.size_bytes) + " bytes" : "") +
             record.detail + " " + kind.missing + "; made by " + kind.made + ", called from " +
             record.site.words());
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

constexpr OptionInfo kOptions[] = {
    {"fail", "1: the shutdown fails if something was not given back; default 0"}};

}  // namespace

constinit const LayerInfo kLeakLayer{"leak", "accounts for every handle at the shutdown", kOptions,
                                     make_layer<LeakLayer>};

}  // namespace bp::layers
