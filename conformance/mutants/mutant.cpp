// Wraps a good backend: the entry and the registration.
#include <dlfcn.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "conformance/mutants/faulty_kernel.hpp"
#include "conformance/mutants/instance.hpp"

namespace bp::mutants {
namespace {

// The registrar that the good backend sees during its register_all().
struct Registration {
  Instance* instance;
  const bp_registrar* host;
};

bp_status fail(const bp_host& host, bp_status status, const std::string& message) {
  return host.set_error(host.self, status, message.c_str());
}

std::string_view option(const bp_host& host, const char* key) {
  const char* value = nullptr;
  return host.get_option(host.self, key, &value) == BP_OK ? value : "";
}

bp_status add_device(void* self, uint64_t count, bp_device* const* devices,
                     const bp_device_ops* ops, bp_add_result* out_result) {
  const auto& [instance, host] = *static_cast<Registration*>(self);
  if (Runtime* runtime = instance->runtime.get()) {
    take(*runtime, *ops);
    ops = &runtime->bent.devices;
  }
  return host->add_device(host->self, count, devices, ops, out_result);
}

bp_status add_allocator(void* self, uint64_t count, bp_device* const* devices,
                        const bp_allocator_ops* allocator, bp_add_result* out_result) {
  const auto& [instance, host] = *static_cast<Registration*>(self);
  bp_struct_read(allocator, allocator->struct_size, &instance->allocator, sizeof(bp_allocator_ops),
                 nullptr);
  if (Runtime* runtime = instance->runtime.get()) {
    take(*runtime, *allocator);
    allocator = &runtime->bent.allocator;
  }
  return host->add_allocator(host->self, count, devices, allocator, out_result);
}

bp_status add_streams(void* self, uint64_t count, bp_device* const* devices,
                      const bp_stream_ops* streams, const bp_event_ops* events,
                      bp_add_result* out_result) {
  const auto& [instance, host] = *static_cast<Registration*>(self);
  bp_struct_read(streams, sizeof(bp_struct_header), &instance->streams, sizeof(bp_stream_ops),
                 nullptr);
  bp_struct_read(events, sizeof(bp_struct_header), &instance->events, sizeof(bp_event_ops),
                 nullptr);
  if (Runtime* runtime = instance->runtime.get()) {
    take(*runtime, *streams, *events);
    streams = &runtime->bent.streams;
    events = &runtime->bent.events;
  }
  return host->add_streams(host->self, count, devices, streams, events, out_result);
}

bool is_replaced(const Instance& instance, const bp_kernel& kernel) {
  if (instance.runtime != nullptr) return instance.runtime->mutant.launch_stream != nullptr;
  const Mutant& mutant = *instance.mutant;
  const bool is_listed = std::ranges::count(mutant.ops, kernel.op) != 0;
  if (mutant.replaces != nullptr) return is_listed || mutant.replaces(kernel.op, instance.strength);
  return is_listed || mutant.ops.empty();
}

bp_status add_kernels(void* self, uint64_t count, bp_device* const* devices, uint64_t kernel_count,
                      const bp_kernel* const* kernels, bp_add_result* out_results) try {
  const auto& [instance, host] = *static_cast<Registration*>(self);
  std::vector<const bp_kernel*> passed(kernels, kernels + kernel_count);
  for (const bp_kernel*& kernel : passed) {
    if (is_replaced(*instance, *kernel)) kernel = wrap(*instance, *kernel);
  }
  return host->add_kernels(host->self, count, devices, kernel_count, passed.data(), out_results);
} catch (const std::bad_alloc&) {
  const bp_host& services = *static_cast<Registration*>(self)->instance->host;
  return fail(services, BP_OUT_OF_MEMORY, "out of host memory");
}

bp_status add_layout(void* self, uint64_t count, bp_device* const* devices,
                     const bp_layout_ops* layouts, bp_add_result* out_result) {
  const auto& [instance, host] = *static_cast<Registration*>(self);
  bp_registrar known{};
  bp_struct_read(host, sizeof(bp_struct_header), &known, sizeof(known), nullptr);
  if (known.add_layout == nullptr) return BP_OK;  // The host takes no layouts.
  take(*instance->runtime, *layouts);
  return known.add_layout(known.self, count, devices, &instance->runtime->bent.layouts, out_result);
}

// A mutant has one bent table, so it hides a second one.
bp_status add_groups(void* self, uint64_t count, bp_device* const* devices,
                     const bp_process_group_ops* groups, bp_add_result* out_result) {
  const auto& [instance, host] = *static_cast<Registration*>(self);
  if (instance->runtime->good.groups.struct_size != 0) {
    if (out_result != nullptr) {
      *out_result = {BP_ADD_SHADOWED, 0, "the mutant has the first process groups alone"};
    }
    return BP_OK;
  }
  take(*instance->runtime, *groups);
  return host->add_process_group(host->self, count, devices, &instance->runtime->bent.groups,
                                 out_result);
}

bp_status add_semaphores(void* self, uint64_t count, bp_device* const* devices,
                         const bp_semaphore_ops* semaphores, bp_add_result* out_result) {
  const auto& [instance, host] = *static_cast<Registration*>(self);
  take(*instance->runtime, *semaphores);
  return host->add_semaphore(host->self, count, devices, &instance->runtime->bent.semaphores,
                             out_result);
}

bp_status add_compiler(void* self, uint64_t count, bp_device* const* devices,
                       const bp_compiler_ops* compiler, bp_add_result* out_result) {
  const auto& [instance, host] = *static_cast<Registration*>(self);
  take(*instance->runtime, *compiler);
  return host->add_compiler(host->self, count, devices, &instance->runtime->bent.compiler,
                            out_result);
}

bp_status add_graph(void* self, uint64_t count, bp_device* const* devices,
                    const bp_graph_ops* graphs, bp_add_result* out_result) {
  const bp_registrar& host = *static_cast<Registration*>(self)->host;
  return host.add_graph(host.self, count, devices, graphs, out_result);
}

bp_status add_dtype(void* self, const char* name, uint32_t bits, bp_dtype* out_dtype) {
  const bp_registrar& host = *static_cast<Registration*>(self)->host;
  return host.add_dtype(host.self, name, bits, out_dtype);
}

bp_status add_ops(void* self, uint64_t op_count, const bp_op_desc* ops, uint64_t stride_bytes,
                  uint32_t* out_ops, bp_add_result* out_results) {
  const bp_registrar& host = *static_cast<Registration*>(self)->host;
  return host.add_ops(host.self, op_count, ops, stride_bytes, out_ops, out_results);
}

// Registers the kernel that the mutant adds to those of the good backend, if it adds one.
bp_status add_own_kernel(Instance& instance, const bp_registrar& host) {
  if (instance.mutant == nullptr || instance.mutant->adds == nullptr) return BP_OK;
  const bp_kernel* const own = instance.mutant->adds(instance.strength);
  if (own == nullptr) return BP_OK;
  const bp_kernel* const kernel = wrap(instance, *own);
  return host.add_kernels(host.self, 0, nullptr, 1, &kernel, nullptr);
}

// Registers the guard if the mutant has one.
bp_status add_guard(const Instance& instance, const bp_registrar& registrar) {
  if (instance.runtime == nullptr || instance.runtime->mutant.guard == nullptr) return BP_OK;
  bp_registrar host{};
  bp_struct_read(&registrar, sizeof(bp_struct_header), &host, sizeof(host), nullptr);
  if (host.add_device_guard == nullptr) {
    return fail(*instance.host, BP_INCOMPATIBLE, "the host knows no device guards");
  }
  return host.add_device_guard(host.self, 0, nullptr, instance.runtime->mutant.guard, nullptr);
}

// Returns whether the mutant has found what it changes. A host that takes only some tables has its
// mutant in another instance.
bool is_ready(const Instance& instance, const bp_registrar& host) {
  if (instance.mutant != nullptr) return !instance.kernels.empty();
  const RuntimeMutant& mutant = instance.runtime->mutant;
  const bool takes_all = host.add_layout != nullptr && host.add_compiler != nullptr &&
                         host.add_process_group != nullptr && host.add_semaphore != nullptr;
  return mutant.is_ready == nullptr || !takes_all || mutant.is_ready(*instance.runtime);
}

bp_status register_all(void* self, const bp_registrar* registrar) {
  auto& instance = *static_cast<Instance*>(self);
  Registration registration{&instance, registrar};
  bp_registrar host{};
  bp_struct_read(registrar, sizeof(bp_struct_header), &host, sizeof(host), nullptr);
  constexpr RuntimeMutant kNone{.id = "", .bend = nullptr};
  const RuntimeMutant& mutant = instance.runtime != nullptr ? instance.runtime->mutant : kNone;
  const bool has_compiler = mutant.has_compiler && host.add_compiler != nullptr;
  const bool has_groups = mutant.has_groups && host.add_process_group != nullptr;
  const bool has_semaphores = mutant.has_semaphores && host.add_semaphore != nullptr;
  const bool has_graphs = mutant.has_graphs && host.add_graph != nullptr;
  const bp_registrar between{
      .struct_size = sizeof(bp_registrar),
      .struct_type = BP_STRUCT_REGISTRAR,
      .next = nullptr,
      .self = &registration,
      .add_device = add_device,
      .add_allocator = add_allocator,
      .add_streams = add_streams,
      .add_kernels = add_kernels,
      .add_layout = mutant.has_layouts ? add_layout : nullptr,
      .add_graph = has_graphs ? add_graph : nullptr,
      .add_compiler = has_compiler ? add_compiler : nullptr,
      .add_process_group = has_groups ? add_groups : nullptr,
      .add_semaphore = has_semaphores ? add_semaphores : nullptr,
      .add_dtype = add_dtype,
      .add_ops = add_ops,
  };
  bp_status status = instance.good->register_all(instance.good->self, &between);
  if (status == BP_OK) status = add_own_kernel(instance, host);
  if (status != BP_OK) return status;
  if (!is_ready(instance, host)) {
    return fail(*instance.host, BP_INVALID_ARGUMENT,
                "the wrapped backend has no " +
                    std::string(instance.mutant != nullptr ? "kernel" : "entry") + " that mutant " +
                    std::string(option(*instance.host, "mutant")) + " changes");
  }
  return add_guard(instance, *registrar);
}

bp_status shutdown(void* self, uint64_t timeout_ns) {
  std::unique_ptr<Instance> instance(static_cast<Instance*>(self));
  Runtime* const runtime = instance->runtime.get();
  if (runtime != nullptr && runtime->mutant.end != nullptr) runtime->mutant.end(*runtime);
  const bp_status status = instance->good->shutdown(instance->good->self, timeout_ns);
  if (status == BP_TIMEOUT) static_cast<void>(instance.release());
  return status;
}

bp_status get_extension(void* self, const char* name, uint32_t version,
                        const void** out_extension) {
  const bp_backend& good = *static_cast<Instance*>(self)->good;
  return good.get_extension(good.self, name, version, out_extension);
}

bp_status status_class(void* self, bp_status code, bp_status* out_class) {
  const bp_backend& good = *static_cast<Instance*>(self)->good;
  return good.status_class(good.self, code, out_class);
}

std::vector<const Mutant*> all_mutants() {
  std::vector<const Mutant*> all;
  for (const auto table : {layout_mutants(), arithmetic_mutants(), function_mutants(),
                           index_mutants(), language_mutants(), training_mutants(),
                           algorithm_mutants(), caching_mutants(), launch_mutants(), own_kernels(),
                           benign_kernels(), benign_algorithms(), faults::faulty_kernels()}) {
    for (const Mutant& mutant : table) all.push_back(&mutant);
  }
  return all;
}

const Mutant* find_mutant(std::string_view id) {
  for (const Mutant* mutant : all_mutants()) {
    if (mutant->id == id) return mutant;
  }
  return nullptr;
}

std::string mutant_ids() {
  std::string ids;
  for (const Mutant* mutant : all_mutants()) {
    ids += (ids.empty() ? "" : ", ") + std::string(mutant->id);
  }
  return ids;
}

// Opens the file `sightings`, if the option is given. Else the counts are the plugin's own.
bp_status open_sightings(const bp_host& host, SharedSightings& out) {
  const std::string path(option(host, "sightings"));
  if (path.empty()) return BP_OK;
  return out.open(path) ? bp_status{BP_OK}
                        : fail(host, BP_INVALID_ARGUMENT,
                               "option sightings is '" + path + "'; allowed: a file of at least " +
                                   std::to_string(sizeof(faults::Sightings)) + " bytes");
}

// Reads `mutant=<id>[:strength]`.
bp_status choose(Instance& instance) {
  const std::string_view text = option(*instance.host, "mutant");
  const size_t colon = std::min(text.find(':'), text.size());
  const std::string_view id = text.substr(0, colon);
  if (colon < text.size()) instance.strength = text.substr(colon + 1);
  const bp_status status = open_sightings(*instance.host, instance.sightings);
  if (status != BP_OK) return status;
  instance.mutant = find_mutant(id);
  if (const RuntimeMutant* mutant = find_runtime_mutant(id, instance.strength)) {
    instance.mutant = nullptr;
    instance.runtime = std::make_unique<Runtime>(*mutant, instance.strength, *instance.host);
    instance.runtime->sightings = instance.sightings.get();
  }
  if (instance.mutant == nullptr && instance.runtime == nullptr) {
    return fail(*instance.host, BP_INVALID_ARGUMENT,
                "option mutant is '" + std::string(text) + "'; allowed: " + mutant_ids() + ", " +
                    runtime_mutant_ids());
  }
  return BP_OK;
}

bp_status open_good(Instance& instance, const bp_entry_request& request, bp_entry_reply& reply) {
  const std::string path(option(*instance.host, "wrap"));
  if (path.empty()) {
    return fail(*instance.host, BP_INVALID_ARGUMENT,
                "option wrap is missing; give the path of the plugin to break: wrap=FILE.so");
  }
  instance.library.reset(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (instance.library == nullptr) {
    return fail(*instance.host, BP_NOT_FOUND, "option wrap: " + std::string(dlerror()));
  }
  auto* entry =
      reinterpret_cast<bp_backend_entry_fn*>(dlsym(instance.library.get(), "bp_backend_entry"));
  if (entry == nullptr) {
    return fail(*instance.host, BP_INCOMPATIBLE, path + " does not export bp_backend_entry");
  }
  const bp_status status = entry(&request, &reply);
  if (status == BP_OK) instance.good = reply.backend;
  return status;
}

// Lets the mutant change how the entry treats the host. If the mutant refuses the host, the good
// backend ends.
bp_status enter(Instance& instance, const bp_entry_request& request, bp_entry_reply& reply) {
  if (instance.runtime == nullptr || instance.runtime->mutant.enter == nullptr) return BP_OK;
  const bp_status status =
      instance.runtime->mutant.enter(*instance.host, instance.strength, request, reply);
  if (status != BP_OK) static_cast<void>(instance.good->shutdown(instance.good->self, UINT64_MAX));
  return status;
}

}  // namespace

void CloseLibrary::operator()(void* library) const { dlclose(library); }

}  // namespace bp::mutants

bp_status bp_backend_entry(const bp_entry_request* request, bp_entry_reply* out_reply) try {
  using bp::mutants::Instance;
  const auto tell_majors = [out_reply] {
    out_reply->abi_major_min = out_reply->abi_major_max = BP_ABI_MAJOR;
  };
  if (!bp_abi_is_served(request)) {
    if (out_reply->struct_size >= sizeof(bp_entry_reply)) tell_majors();
    return bp::mutants::fail(*request->host, BP_INCOMPATIBLE,
                             "the mutant serves the ABI of its own headers only");
  }
  auto instance = std::make_unique<Instance>();
  instance->host = request->host;
  bp_status status = bp::mutants::choose(*instance);
  if (status != BP_OK) return status;
  bp_entry_reply reply = *out_reply;
  status = bp::mutants::open_good(*instance, *request, reply);
  if (status != BP_OK) return status;
  instance->backend = {
      .struct_size = sizeof(bp_backend),
      .struct_type = BP_STRUCT_BACKEND,
      .next = nullptr,
      .self = instance.get(),
      .name = "backplane.mutant",
      .version = "0",
      .register_all = bp::mutants::register_all,
      .shutdown = bp::mutants::shutdown,
      .get_extension =
          reply.backend->get_extension == nullptr ? nullptr : bp::mutants::get_extension,
      .status_class = reply.backend->status_class == nullptr ? nullptr : bp::mutants::status_class,
  };
  tell_majors();
  status = bp::mutants::enter(*instance, *request, *out_reply);
  if (status != BP_OK) return status;
  out_reply->abi_major = reply.abi_major;
  out_reply->abi_minor = reply.abi_minor;
  out_reply->backend = &instance.release()->backend;
  return BP_OK;
} catch (const std::bad_alloc&) {
  return bp::mutants::fail(*request->host, BP_OUT_OF_MEMORY, "out of host memory");
}
