// A layer stands between the host and a backend, and sees every call.
//
//   host -> Wrapped{table} -> layer -> Wrapped::next -> ... -> backend
//
// A wrapped table is a copy of the table behind, in which every slot passes its call on. A layer
// replaces the slots that it cares about; a slot that is absent behind stays absent. Handles are
// the backend's own: a layer that knows something of a handle keeps a table beside it. A kernel is
// wrapped by a copy with a state of its own.
//
// To write a layer: derive from Layer, replace slots in on_table() and functions in on_kernel(),
// and add a row to list.cpp.
//
//   class Counter final : public Layer {
//     void on_table(AnyTable table) override {
//       visit_table<bp_allocator_ops>(
//           table, [](auto& w) { replace<&Counter::deallocate>(w.deallocate); });
//     }
//     bp_status deallocate(const bp_allocator_ops& next, bp_buffer* buffer, bp_stream* stream) {
//       ++count_;
//       return next.deallocate(next.self, buffer, stream);
//     }
//   };
//
// Rules:
//   Threads    Every slot is called from any thread. on_table() and on_kernel() are not.
//   Errors     A slot returns bp::fail(status, text), or what the next one returned. Exceptions end
//              at the wrapping, as BP_OUT_OF_MEMORY or BP_INTERNAL.
//   Locks      The next layer is foreign code: it is never called under a lock.
#pragma once

#include <atomic>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "registry/boundary/guard.hpp"
#include "registry/boundary/log_sink.hpp"
#include "registry/layers/options.hpp"

namespace bp::layers {

class Layer;

// A table as the side in front sees it, and the table behind it.
template <typename Table>
struct Wrapped {
  Table table;  // Its self is this.
  Table next;   // May end early: slots behind its struct_size are NULL.
  Layer* layer;
  std::vector<bp_device*> devices;  // An empty list stands for all devices of the backend.
};

struct WrappedKernel {
  bp_kernel kernel;       // Its state is this object.
  const bp_kernel* next;  // It may be shorter than this build's struct.
  Layer* layer;
};

// A variant with a Wrapped<Table>* for each table of slots.def.
template <typename... Tables>
struct AnyOf {
  using Type = std::variant<Wrapped<Tables>*...>;
};
using AnyTable =
    AnyOf<bp_device_ops, bp_allocator_ops, bp_stream_ops, bp_event_ops, bp_device_guard_ops,
          bp_virtual_memory_ops, bp_layout_ops, bp_graph_ops, bp_compiler_ops, bp_process_group_ops,
          bp_profiler_ops, bp_semaphore_ops>::Type;

// Calls `body` with the copy in front if `any` is a `Table`.
template <typename Table, typename Body>
void visit_table(const AnyTable& any, Body&& body) {
  if (auto* const* wrapped = std::get_if<Wrapped<Table>*>(&any)) body((*wrapped)->table);
}

// The data that a layer is made from.
struct Setup {
  Options options;
  core::LogSink log;
  std::string search_path;  // The path of the registry, for a layer that loads a backend.
  bool has_search_path = false;
  bool ignores_environment = false;
};

// One layer on one instance of a backend.
class Layer {
 public:
  explicit Layer(Setup setup) : setup_(std::move(setup)) {}
  Layer(const Layer&) = delete;
  virtual ~Layer() = default;

  // Checks the options, before anything is loaded.
  virtual bp_status check() { return BP_OK; }

  // Returns the services that the side behind receives: `next`, or a table of the layer's own.
  virtual const bp_host* wrap_host(const bp_host* next) { return next; }

  // Called once, when the side behind has answered.
  virtual bp_status begin(const bp_backend& /*next*/) { return BP_OK; }

  // Changes what the side in front gets of the instance itself.
  virtual void on_backend(bp_backend& /*front*/) {}

  // Returns the minor that the side in front sees of the backend.
  virtual uint32_t shown_minor(uint32_t minor) const { return minor; }

  // Changes what the side behind sees of the registrar.
  virtual void on_registrar(bp_registrar& /*behind*/) {}

  // Returns true to hide the table from the side in front.
  virtual bool hides(AnyTable /*table*/) const { return false; }

  virtual void on_table(AnyTable /*table*/) {}

  // Returns false to hide the kernel.
  virtual bool on_kernel(WrappedKernel& /*kernel*/) { return true; }

  // Shuts down the side behind. A layer writes its last report here, unless the side behind returns
  // BP_TIMEOUT: then it goes on.
  virtual bp_status shut_down(const bp_backend& next, uint64_t timeout_ns) {
    return next.shutdown(next.self, timeout_ns);
  }

  // Must be called before begin().
  void set_backend_name(const std::string& name, const char* layer_name);

  uint64_t report_count() const { return report_count_.load(std::memory_order_relaxed); }

 protected:
  const Setup& setup() const { return setup_; }
  const Options& options() const { return setup_.options; }
  const std::string& backend_name() const { return backend_name_; }

  // Writes a line to the host's log, under a name such as "acme.npu/leak".
  void log(bp_log_level level, const std::string& message) const {
    setup_.log.line(level, source_, message);
  }

  // Writes a warning and counts it.
  void report(const std::string& message) {
    report_count_.fetch_add(1, std::memory_order_relaxed);
    log(BP_LOG_WARNING, message);
  }
  void count_report() { report_count_.fetch_add(1, std::memory_order_relaxed); }

 private:
  Setup setup_;
  std::string backend_name_, source_;
  std::atomic<uint64_t> report_count_ = 0;
};

// Fills `ours` with functions that pass on to `next`; a layer then replaces some and lends
// &ours.table.
void wrap_host_table(const bp_host& next, Layer& layer, Wrapped<bp_host>& ours);

// ---- Replacing slots ---------------------------------------------------------------------------

// Makes `slot` call the slot behind.
template <typename Table, auto kMember, typename... Args>
void pass_on(bp_status (*&slot)(void*, Args...)) {
  if (slot == nullptr) return;
  slot = [](void* self, Args... args) noexcept -> bp_status {
    const Table& next = static_cast<Wrapped<Table>*>(self)->next;
    return (next.*kMember)(next.self, args...);
  };
}

// Takes apart the type of a member function whose first parameter is the side behind: its class,
// and that side.
template <typename Function>
struct Member;
template <typename L, typename Result, typename Behind, typename... Args>
struct Member<Result (L::*)(const Behind&, Args...)> {
  using Class = L;
  using Side = Behind;
};

// Makes `slot` call kFunction, a member of a layer:
//   bp_status L::deallocate(const bp_allocator_ops& next, bp_buffer* buffer, bp_stream* stream)
// A slot that is absent stays absent.
template <auto kFunction, typename... Args>
void replace(bp_status (*&slot)(void*, Args...)) {
  if (slot == nullptr) return;
  slot = [](void* self, Args... args) noexcept -> bp_status {
    using M = Member<decltype(kFunction)>;
    auto& wrapped = *static_cast<Wrapped<typename M::Side>*>(self);
    auto& layer = static_cast<typename M::Class&>(*wrapped.layer);
    return core::guarded([&] { return (layer.*kFunction)(wrapped.next, args...); });
  };
}

// Does the same for a function of a kernel:
//   bp_status L::launch(const WrappedKernel& kernel, const bp_launch* launch, const void* args)
template <auto kFunction, typename... Args>
void replace(bp_status (*&slot)(const bp_kernel*, Args...)) {
  if (slot == nullptr) return;
  slot = [](const bp_kernel* self, Args... args) noexcept -> bp_status {
    auto& wrapped = *static_cast<WrappedKernel*>(self->state);
    auto& layer = static_cast<typename Member<decltype(kFunction)>::Class&>(*wrapped.layer);
    return core::guarded([&] { return (layer.*kFunction)(wrapped, args...); });
  };
}

// Does the same for supports(), which returns a reason.
template <auto kFunction>
void replace(bp_reason (*&slot)(const bp_kernel*, bp_device*, bp_launch_flags, const void*)) {
  slot = [](const bp_kernel* self, bp_device* device, bp_launch_flags flags,
            const void* args) noexcept -> bp_reason {
    auto& wrapped = *static_cast<WrappedKernel*>(self->state);
    auto& layer = static_cast<typename Member<decltype(kFunction)>::Class&>(*wrapped.layer);
    return (layer.*kFunction)(wrapped, device, flags, args);
  };
}

}  // namespace bp::layers
