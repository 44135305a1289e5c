#include "registry/layers/layered_backend.hpp"

#include <algorithm>
#include <cstddef>

#include "registry/boundary/fail.hpp"
#include "registry/boundary/prefix.hpp"
#include "registry/calls/claims.hpp"
#include "registry/layers/slots.hpp"

namespace bp::layers {
namespace {

constexpr bp_add_result kHidden{BP_ADD_REJECTED, 0, "hidden by a layer of the host"};

// Returns whether an entry has a type or a size with which only the host may look at it, and reject
// it.
template <typename Struct>
bool is_unreadable(const Struct* theirs, uint32_t struct_type, size_t least_bytes) {
  return theirs == nullptr || theirs->struct_type != struct_type ||
         theirs->struct_size < least_bytes || theirs->struct_size > core::kMaxStructBytes;
}

// Copies what both sides know. The size stays that of the shorter struct, so that the host judges
// absent and short entries as if there were no layer.
template <typename Struct>
void copy_known(const Struct& theirs, Struct& ours) {
  core::copy_prefix(theirs, ours);
  ours.struct_size = std::min<uint32_t>(theirs.struct_size, sizeof(ours));
}

template <typename Table>
constexpr uint32_t struct_type_of() {
#define BP_TABLE(table, struct_type, last, member) \
  if constexpr (std::is_same_v<Table, table>) return struct_type;
#include "registry/boundary/slots.def"
}

template <typename Table>
void pass_all_on(Table& ours) {
#define BP_SLOT(slot_table, noun, slot, presence, gone) \
  if constexpr (std::is_same_v<Table, slot_table>) pass_on<Table, &slot_table::slot>(ours.slot);
#include "registry/boundary/slots.def"
}

template <auto kMember, typename Result, typename... Args>
void pass_on(Result (*&slot)(const bp_kernel*, Args...)) {
  if (slot == nullptr) return;
  slot = [](const bp_kernel* self, Args... args) noexcept -> Result {
    const bp_kernel* next = static_cast<const WrappedKernel*>(self->state)->next;
    return (next->*kMember)(next, args...);
  };
}

void pass_all_on(bp_kernel& ours) {
  pass_on<&bp_kernel::supports>(ours.supports);
  pass_on<&bp_kernel::workspace_size>(ours.workspace_size);
  pass_on<&bp_kernel::launch>(ours.launch);
  pass_on<&bp_kernel::prepare>(ours.prepare);
  pass_on<&bp_kernel::plan_info>(ours.plan_info);
  pass_on<&bp_kernel::plan_pack>(ours.plan_pack);
  pass_on<&bp_kernel::plan_release>(ours.plan_release);
}

}  // namespace

// A table in front of the backend's own, for tables whose functions take or return kernels. A
// kernel from the host is turned into the backend's kernel, and a kernel that the backend lends is
// wrapped.
template <typename Table>
struct LayeredBackend::Adapter : Wrapped<Table> {
  LayeredBackend* owner = nullptr;

  static Adapter& from(void* self) {
    return static_cast<Adapter&>(*static_cast<Wrapped<Table>*>(self));
  }
};

template <typename Table>
const Table& LayeredBackend::adapt(const Table& theirs) {
  auto added = std::make_shared<Adapter<Table>>();
  copy_known(theirs, added->next);
  added->owner = this;
  added->table = added->next;
  added->table.self = static_cast<Wrapped<Table>*>(added.get());
  pass_all_on(added->table);
  if constexpr (std::is_same_v<Table, bp_layout_ops>) {
    if (added->table.preferred != nullptr) added->table.preferred = preferred_layout;
  } else {
    if (added->table.executable_kernel != nullptr) {
      added->table.executable_kernel = executable_kernel;
    }
    if (added->table.release != nullptr) added->table.release = release_executable;
  }
  wrapped_.push_back(added);
  return added->table;
}

bp_status LayeredBackend::preferred_layout(void* self, bp_device* device, const bp_kernel* kernel,
                                           uint32_t argument, const void* args,
                                           const bp_layout** out_layout) noexcept {
  auto& adapter = Adapter<bp_layout_ops>::from(self);
  return adapter.next.preferred(adapter.next.self, device, adapter.owner->unwrap(kernel), argument,
                                args, out_layout);
}

bp_status LayeredBackend::executable_kernel(void* self, bp_executable* executable,
                                            const bp_kernel** out_kernel) noexcept {
  auto& adapter = Adapter<bp_compiler_ops>::from(self);
  return core::guarded([&] {
    const bp_kernel* theirs = nullptr;
    const bp_status status = adapter.next.executable_kernel(adapter.next.self, executable, &theirs);
    if (status != BP_OK) return status;
    const bp_kernel* front = adapter.owner->wrap_lent(executable, theirs);
    if (front == nullptr) return fail(BP_UNSUPPORTED, "a layer of the host hides this kernel");
    *out_kernel = front;
    return status;
  });
}

const bp_kernel* LayeredBackend::unwrap(const bp_kernel* kernel) {
  const std::lock_guard lock(mutex_);
  const auto found = behind_.find(kernel);
  return found == behind_.end() ? kernel : found->second;
}

// Makes one copy for each executable, which lives until its release.
const bp_kernel* LayeredBackend::wrap_lent(bp_executable* executable, const bp_kernel* theirs) {
  if (is_unreadable(theirs, BP_STRUCT_KERNEL, core::kFirstKernel)) return theirs;
  {
    const std::lock_guard lock(mutex_);
    const auto found = lent_.find(executable);
    if (found != lent_.end()) return &found->second->kernel;
  }
  auto added = make_kernel(*theirs);
  if (added == nullptr) return nullptr;
  const std::lock_guard lock(mutex_);
  const auto [entry, is_first] = lent_.emplace(executable, std::move(added));
  behind_[&entry->second->kernel] = entry->second->next;
  return &entry->second->kernel;
}

bp_status LayeredBackend::release_executable(void* self, bp_executable* executable) noexcept {
  auto& adapter = Adapter<bp_compiler_ops>::from(self);
  {
    LayeredBackend& owner = *adapter.owner;
    const std::lock_guard lock(owner.mutex_);
    if (const auto found = owner.lent_.find(executable); found != owner.lent_.end()) {
      owner.behind_.erase(&found->second->kernel);
      owner.lent_.erase(found);
    }
  }
  return adapter.next.release(adapter.next.self, executable);
}

template <typename Table>
const Table* LayeredBackend::wrap(const Table* theirs, uint64_t count, bp_device* const* devices) {
  if (is_unreadable(theirs, struct_type_of<Table>(), offsetof(Table, self) + sizeof(void*))) {
    return theirs;
  }
  if constexpr (std::is_same_v<Table, bp_layout_ops> || std::is_same_v<Table, bp_compiler_ops>) {
    theirs = &adapt(*theirs);
  }
  auto added = std::make_shared<Wrapped<Table>>();
  copy_known(*theirs, added->next);
  added->table = added->next;
  added->table.self = added.get();
  added->layer = layer_.get();
  if (devices != nullptr) added->devices.assign(devices, devices + count);
  pass_all_on(added->table);
  if (layer_->hides(added.get())) return nullptr;
  layer_->on_table(added.get());
  wrapped_.push_back(added);
  return &added->table;
}

std::shared_ptr<WrappedKernel> LayeredBackend::make_kernel(const bp_kernel& theirs) {
  auto added = std::make_shared<WrappedKernel>();
  copy_known(theirs, added->kernel);
  added->kernel.state = added.get();
  added->next = &theirs;
  added->layer = layer_.get();
  pass_all_on(added->kernel);
  return layer_->on_kernel(*added) ? added : nullptr;
}

const bp_kernel* LayeredBackend::wrap(const bp_kernel& theirs) {
  auto added = make_kernel(theirs);
  if (added == nullptr) return nullptr;
  const std::lock_guard lock(mutex_);
  behind_[&added->kernel] = &theirs;
  wrapped_.push_back(added);
  return &added->kernel;
}

template <typename Table, auto kAdd>
bp_status LayeredBackend::add(void* self, uint64_t count, bp_device* const* devices,
                              const Table* table, bp_add_result* out_result) noexcept {
  return core::guarded([&] {
    const auto& r = *static_cast<Registration*>(self);
    const Table* front = r.self->wrap(table, count, devices);
    if (front == nullptr && table != nullptr) {
      if (out_result != nullptr) *out_result = kHidden;
      return bp_status{BP_OK};
    }
    return (r.host->*kAdd)(r.host->self, count, devices, front, out_result);
  });
}

bp_status LayeredBackend::add_streams(void* self, uint64_t count, bp_device* const* devices,
                                      const bp_stream_ops* streams, const bp_event_ops* events,
                                      bp_add_result* out_result) noexcept {
  return core::guarded([&] {
    const auto& r = *static_cast<Registration*>(self);
    return r.host->add_streams(r.host->self, count, devices, r.self->wrap(streams, count, devices),
                               r.self->wrap(events, count, devices), out_result);
  });
}

bp_status LayeredBackend::add_kernels(void* self, uint64_t count, bp_device* const* devices,
                                      uint64_t kernel_count, const bp_kernel* const* kernels,
                                      bp_add_result* out_results) noexcept {
  return core::guarded([&] {
    const auto& r = *static_cast<Registration*>(self);
    if (kernels == nullptr) {
      return r.host->add_kernels(r.host->self, count, devices, kernel_count, kernels, out_results);
    }
    std::vector<const bp_kernel*> passed;
    std::vector<uint64_t> places;  // The places of those in `kernels`.
    for (uint64_t i = 0; i < kernel_count; ++i) {
      const bp_kernel* kernel = kernels[i];
      if (!is_unreadable(kernel, BP_STRUCT_KERNEL, core::kFirstKernel)) {
        kernel = r.self->wrap(*kernel);
        if (kernel == nullptr) continue;
      }
      passed.push_back(kernel);
      places.push_back(i);
    }
    std::vector<bp_add_result> results(passed.size());
    const bp_status status = r.host->add_kernels(r.host->self, count, devices, passed.size(),
                                                 passed.data(), results.data());
    if (status != BP_OK || out_results == nullptr) return status;
    std::fill_n(out_results, kernel_count, kHidden);
    for (size_t i = 0; i < places.size(); ++i) out_results[places[i]] = results[i];
    return status;
  });
}

bp_status LayeredBackend::add_dtype(void* self, const char* name, uint32_t bits,
                                    bp_dtype* out_dtype) noexcept {
  const bp_registrar& host = *static_cast<Registration*>(self)->host;
  return host.add_dtype(host.self, name, bits, out_dtype);
}

bp_status LayeredBackend::add_ops(void* self, uint64_t op_count, const bp_op_desc* ops,
                                  uint64_t stride_bytes, uint32_t* out_ops,
                                  bp_add_result* out_results) noexcept {
  const bp_registrar& host = *static_cast<Registration*>(self)->host;
  return host.add_ops(host.self, op_count, ops, stride_bytes, out_ops, out_results);
}

// Removes from `between` what the side in front does not take, so that the side behind does not
// offer it.
void LayeredBackend::hide_absent(const bp_registrar& front, bp_registrar& between) {
  const auto hide = [&](auto member) {
    if (front.*member == nullptr) between.*member = nullptr;
  };
  hide(&bp_registrar::add_device_guard);
  hide(&bp_registrar::add_virtual_memory);
  hide(&bp_registrar::add_layout);
  hide(&bp_registrar::add_graph);
  hide(&bp_registrar::add_compiler);
  hide(&bp_registrar::add_process_group);
  hide(&bp_registrar::add_profiler);
  hide(&bp_registrar::add_semaphore);
  hide(&bp_registrar::add_ops);
}

bp_status LayeredBackend::register_all(void* self, const bp_registrar* registrar) noexcept {
  auto& backend = *static_cast<LayeredBackend*>(self);
  // The registrar of an older host is shorter, and a layer in front may have cut it.
  bp_registrar front{};
  copy_known(*registrar, front);
  Registration registration{&backend, &front};
  bp_registrar between{
      .struct_size = sizeof(bp_registrar),
      .struct_type = BP_STRUCT_REGISTRAR,
      .next = nullptr,
      .self = &registration,
      .add_device = add<bp_device_ops, &bp_registrar::add_device>,
      .add_allocator = add<bp_allocator_ops, &bp_registrar::add_allocator>,
      .add_streams = add_streams,
      .add_kernels = add_kernels,
      .add_device_guard = add<bp_device_guard_ops, &bp_registrar::add_device_guard>,
      .add_virtual_memory = add<bp_virtual_memory_ops, &bp_registrar::add_virtual_memory>,
      .add_layout = add<bp_layout_ops, &bp_registrar::add_layout>,
      .add_graph = add<bp_graph_ops, &bp_registrar::add_graph>,
      .add_compiler = add<bp_compiler_ops, &bp_registrar::add_compiler>,
      .add_process_group = add<bp_process_group_ops, &bp_registrar::add_process_group>,
      .add_profiler = add<bp_profiler_ops, &bp_registrar::add_profiler>,
      .add_semaphore = add<bp_semaphore_ops, &bp_registrar::add_semaphore>,
      .add_dtype = add_dtype,
      .add_ops = add_ops,
  };
  hide_absent(front, between);
  backend.layer_->on_registrar(between);
  return backend.next_.register_all(backend.next_.self, &between);
}

bp_status LayeredBackend::shutdown(void* self, uint64_t timeout_ns) noexcept {
  auto& backend = *static_cast<LayeredBackend*>(self);
  return core::guarded([&] { return backend.layer_->shut_down(backend.next_, timeout_ns); });
}

bp_status LayeredBackend::get_extension(void* self, const char* name, uint32_t version,
                                        const void** out_extension) noexcept {
  const bp_backend& next = static_cast<LayeredBackend*>(self)->next_;
  return next.get_extension(next.self, name, version, out_extension);
}

bp_status LayeredBackend::status_class(void* self, bp_status code, bp_status* out_class) noexcept {
  const bp_backend& next = static_cast<LayeredBackend*>(self)->next_;
  return next.status_class(next.self, code, out_class);
}

bp_status LayeredBackend::begin(const bp_backend& next) {
  copy_known(next, next_);
  backend_ = next_;
  backend_.self = this;
  backend_.register_all = register_all;
  backend_.shutdown = shutdown;
  if (backend_.get_extension != nullptr) backend_.get_extension = get_extension;
  if (backend_.status_class != nullptr) backend_.status_class = status_class;
  layer_->set_backend_name(next.name == nullptr ? "" : next.name, name_.c_str());
  layer_->on_backend(backend_);
  return layer_->begin(next_);
}

}  // namespace bp::layers
