// What ggml asks a library for: the list of devices, and what each device is and can do.
#include <exception>
#include <set>

#include "ggml-backend-impl.h"
#include "log.h"
#include "lower.h"
#include "version.h"

namespace bpg {
namespace {

// ---- A device -----------------------------------------------------------------------------------

const char* device_name(ggml_backend_dev_t device) { return device_of(device).name.c_str(); }

const char* device_description(ggml_backend_dev_t device) {
  return device_of(device).description.c_str();
}

void device_memory(ggml_backend_dev_t device, size_t* free, size_t* total) {
  const bp_target* const target = device_of(device).target;
  uint64_t free_bytes = 0, total_bytes = 0;
  const bp_status status = target->devices->memory_info(target->devices->self, target->device, 0,
                                                        &free_bytes, &total_bytes);
  if (status != BP_OK) {
    log_error(failure_text(status, "the memory of " + device_of(device).name + " is not known"));
  }
  *free = free_bytes;
  *total = total_bytes;
}

// llama.cpp places layers on GPUs alone, so every device that was asked for is one.
enum ggml_backend_dev_type device_type(ggml_backend_dev_t device) {
  return device_of(device).target->properties->device_class == BP_DEVICE_INTEGRATED
             ? GGML_BACKEND_DEVICE_TYPE_IGPU
             : GGML_BACKEND_DEVICE_TYPE_GPU;
}

void device_props(ggml_backend_dev_t device, ggml_backend_dev_props* props) {
  *props = {};
  props->name = device_name(device);
  props->description = device_description(device);
  props->type = device_type(device);
  props->device_id = device_of(device).target->properties->bus_id;
  device_memory(device, &props->memory_free, &props->memory_total);
  props->caps.async = true;
  props->caps.host_buffer = device_of(device).has_pinned_memory;
  props->caps.buffer_from_host_ptr = device_of(device).takes_host_memory;
  props->caps.events = true;
  props->caps.mmap_support = true;
}

ggml_backend_t init_backend(ggml_backend_dev_t device, const char*) {
  return new_backend(device_of(device));
}

ggml_backend_buffer_type_t device_buffer_type(ggml_backend_dev_t device) {
  return &device_of(device).buffer_type;
}

// NULL for a device without pinned memory.
ggml_backend_buffer_type_t pinned_buffer_type(ggml_backend_dev_t device) {
  Device& held = device_of(device);
  return held.has_pinned_memory ? &held.pinned_type : nullptr;
}

// A buffer over memory of the program, which keeps it until it frees the buffer. A tensor of any
// size may lie in it.
ggml_backend_buffer_t buffer_from_host(ggml_backend_dev_t device, void* memory, size_t size,
                                       size_t) {
  return buffer_over(device_of(device), memory, size);
}

// Writes each reason once, if BACKPLANE_GGML_EXPLAIN is set.
void explain(const Device& device, const ggml_tensor* node, const char* reason) {
  static const bool is_wanted = bp_environment("BACKPLANE_GGML_EXPLAIN") != nullptr;
  if (!is_wanted) return;
  const std::string line =
      std::string(ggml_op_desc(node)) + " is not for " + device.name + ": " + reason;
  static std::mutex mutex;
  static auto* const told = new std::set<std::string>;
  const std::lock_guard lock(mutex);
  if (told->insert(line).second) log_info(line);
}

bool supports_op(ggml_backend_dev_t device, const ggml_tensor* node) {
  try {
    Emitter emitter(device_of(device));
    lower(emitter, node);
    return true;
  } catch (const std::exception& reason) {
    explain(device_of(device), node, reason.what());
    return false;
  }
}

bool supports_buft(ggml_backend_dev_t device, ggml_backend_buffer_type_t type) {
  return type == &device_of(device).buffer_type;
}

ggml_backend_event_t new_event(ggml_backend_dev_t device) {
  const bp_target* const target = device_of(device).target;
  bp_event* event = nullptr;
  const bp_status status =
      target->events->create(target->events->self, target->device, nullptr, &event);
  if (status != BP_OK) {
    log_error(failure_text(status, device_of(device).name + " makes no event"));
    return nullptr;
  }
  return new ggml_backend_event{device, event};
}

bp_event* event_of(ggml_backend_event_t event) { return static_cast<bp_event*>(event->context); }

void free_event(ggml_backend_dev_t device, ggml_backend_event_t event) {
  const bp_event_ops* const events = device_of(device).target->events;
  events->destroy(events->self, event_of(event));
  delete event;
}

void synchronize_event(ggml_backend_dev_t device, ggml_backend_event_t event) {
  const bp_event_ops* const events = device_of(device).target->events;
  const bp_status status = events->synchronize(events->self, event_of(event), UINT64_MAX);
  if (status != BP_OK) {
    log_error(failure_text(status, "work of " + device_of(device).name + " before an event"));
  }
}

// ---- The library --------------------------------------------------------------------------------

const char* library_name(ggml_backend_reg_t) { return "Backplane"; }

size_t device_count(ggml_backend_reg_t) { return devices().size(); }

ggml_backend_dev_t device_at(ggml_backend_reg_t, size_t index) {
  return &devices().at(index)->ggml;
}

ggml_backend_reg kRegistration = {
    .api_version = GGML_BACKEND_API_VERSION,
    .iface =
        {
            .get_name = library_name,
            .get_device_count = device_count,
            .get_device = device_at,
            .get_proc_address = nullptr,
        },
    .context = nullptr,
};

}  // namespace

ggml_backend_device_i device_functions() {
  return {
      .get_name = device_name,
      .get_description = device_description,
      .get_memory = device_memory,
      .get_type = device_type,
      .get_props = device_props,
      .init_backend = init_backend,
      .get_buffer_type = device_buffer_type,
      .get_host_buffer_type = pinned_buffer_type,
      .buffer_from_host_ptr = buffer_from_host,
      .supports_op = supports_op,
      .supports_buft = supports_buft,
      .offload_op = nullptr,
      .event_new = new_event,
      .event_free = free_event,
      .event_synchronize = synchronize_event,
  };
}

ggml_backend_reg_t registration() {
  static const bool is_ready = [] {
    const std::string problem = version_problem();
    if (!problem.empty()) {
      log_error(problem);
      return false;
    }
    try {
      find_devices();
    } catch (const Failure& failure) {
      log_error(failure.what());
      return false;
    }
    for (const auto& device : devices()) device->ggml.reg = &kRegistration;
    return true;
  }();
  return is_ready ? &kRegistration : nullptr;
}

}  // namespace bpg

GGML_BACKEND_DL_IMPL(bpg::registration)
GGML_BACKEND_DL_SCORE_IMPL(bpg::score)
