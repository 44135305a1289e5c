/* Gives a backend a profiler. If the headers are those of a synthetic minor, it also turns the
 * backend into one that offers all of this minor. The entry of the wrapped backend is compiled
 * under the name wrapped_entry. The wrapper puts functions into the appended slots of the backend's
 * tables, and values into the appended members of its properties and records, and asks the host for
 * the appended service. An older host sees longer offers whose tail is not zero, and ignores the
 * tail. */
#include <stdlib.h>

#include "backplane/backend.h"

bp_backend_entry_fn wrapped_entry;

/* The state of the wrapper between one host and one instance. */
typedef struct widened {
  bp_backend backend; /* The backend as the host sees it. */
  const bp_backend* inner;
  const bp_host* host;
  bp_registrar registrar; /* The registrar of the host. */
  bp_allocator_ops allocator;
  bp_stream_ops streams;
  bp_event_ops events;
  bp_device_ops devices;
  bp_profiler_ops profiler;
  bp_activity_fn* sink;
  void* user_data;
} widened;

#ifdef BP_ABI_SYNTHETIC
static bp_status appended(void* self, uint64_t value, uint64_t* out_value) {
  (void)self;
  *out_value = value + 1;
  return BP_OK;
}

#define APPEND(offer, value) (offer)->appended = (value)
#else
#define APPEND(offer, value) (void)(offer)
#endif

static bp_status start(void* self, bp_device* device, const bp_profile_desc* desc) {
  widened* w = self;
  const uint32_t first = offsetof(bp_profile_desc, kinds) + sizeof(void*);
  uint32_t offset = 0;
  bp_profile_desc known;
  (void)device;
  if (bp_struct_read(desc, first, &known, sizeof(known), &offset) != BP_OK) {
    return w->host->set_error(w->host->self, BP_INCOMPATIBLE, "start: the desc cannot be read");
  }
  w->sink = known.sink;
  w->user_data = known.user_data;
  return BP_OK;
}

/* Delivers one record. */
static bp_status stop(void* self, bp_device* device, uint64_t timeout_ns) {
  widened* w = self;
  bp_activity record = {.struct_size = sizeof(record),
                        .struct_type = BP_STRUCT_ACTIVITY,
                        .name = "add",
                        .device = device,
                        .bytes = 12,
                        .kind = BP_ACTIVITY_KERNEL};
  (void)timeout_ns;
  APPEND(&record, 5);
  if (w->sink != NULL) w->sink(w->user_data, &record);
  w->sink = NULL;
  return BP_OK;
}

/* The wrapper whose registration runs on this thread. The registrar keeps the host's own `self`,
 * so that its other slots work without a wrapper. */
static _Thread_local widened* current;

static bp_status add_device(void* self, uint64_t count, bp_device* const* list,
                            const bp_device_ops* devices, bp_add_result* out_result) {
  widened* w = current;
  bp_device* device = NULL;
  const bp_device_properties* properties = NULL;
  uint64_t device_count = 0;
  w->devices = *devices;
  APPEND(&w->devices, appended);
  devices->enumerate(devices->self, 1, &device, &device_count);
  if (devices->properties(devices->self, device, &properties) == BP_OK) {
    APPEND((bp_device_properties*)properties, 77); /* The memory is the instance's own. */
  }
  return w->registrar.add_device(self, count, list, &w->devices, out_result);
}

static bp_status add_allocator(void* self, uint64_t count, bp_device* const* list,
                               const bp_allocator_ops* allocator, bp_add_result* out_result) {
  widened* w = current;
  w->allocator = *allocator;
  APPEND(&w->allocator, appended);
  return w->registrar.add_allocator(self, count, list, &w->allocator, out_result);
}

static bp_status add_streams(void* self, uint64_t count, bp_device* const* list,
                             const bp_stream_ops* streams, const bp_event_ops* events,
                             bp_add_result* out_result) {
  widened* w = current;
  w->streams = *streams;
  APPEND(&w->streams, appended);
  w->events = *events;
  APPEND(&w->events, appended);
  return w->registrar.add_streams(self, count, list, &w->streams, &w->events, out_result);
}

/* Calls the service of newer hosts if the host has it. An older host has a shorter table. */
static bp_status ask_host(const widened* w) {
  bp_host host;
  const uint32_t first = offsetof(bp_host, op_describe) + sizeof(void*);
  if (bp_struct_read(w->host, first, &host, sizeof(host), NULL) != BP_OK) {
    return w->host->set_error(w->host->self, BP_INCOMPATIBLE, "widen: the host is too short");
  }
#ifdef BP_ABI_SYNTHETIC
  uint64_t answer = 0;
  if (host.appended != NULL && (host.appended(host.self, 1, &answer) != BP_OK || answer != 2)) {
    return host.set_error(host.self, BP_INTERNAL, "widen: bp_host::appended answers wrongly");
  }
#endif
  return BP_OK;
}

static bp_status add_profiler(widened* w) {
  w->profiler = (bp_profiler_ops){.struct_size = sizeof(bp_profiler_ops),
                                  .struct_type = BP_STRUCT_PROFILER_OPS,
                                  .self = w,
                                  .start = start,
                                  .stop = stop};
  APPEND(&w->profiler, appended);
  return w->registrar.add_profiler(w->registrar.self, 0, NULL, &w->profiler, NULL);
}

static bp_status register_all(void* self, const bp_registrar* registrar) {
  widened* w = self;
  bp_registrar ours;
  const uint32_t first = offsetof(bp_registrar, add_kernels) + sizeof(void*);
  bp_status status = bp_struct_read(registrar, first, &w->registrar, sizeof(bp_registrar), NULL);
  if (status == BP_OK) status = ask_host(w);
  if (status != BP_OK) return status;
  ours = w->registrar;
  ours.add_device = add_device;
  ours.add_allocator = add_allocator;
  ours.add_streams = add_streams;
  current = w;
  status = w->inner->register_all(w->inner->self, &ours);
  current = NULL;
  return status == BP_OK ? add_profiler(w) : status;
}

static bp_status shutdown_instance(void* self, uint64_t timeout_ns) {
  widened* w = self;
  const bp_status status = w->inner->shutdown(w->inner->self, timeout_ns);
  if (status == BP_TIMEOUT) return status;
  free(w);
  return status;
}

bp_status bp_backend_entry(const bp_entry_request* request, bp_entry_reply* out_reply) {
  widened* w;
  const bp_status status = wrapped_entry(request, out_reply);
  if (status != BP_OK) return status;
  w = calloc(1, sizeof(widened));
  if (w == NULL) abort();
  w->inner = out_reply->backend;
  w->host = request->host;
  w->backend = *w->inner;
  w->backend.self = w;
  w->backend.register_all = register_all;
  w->backend.shutdown = shutdown_instance;
  APPEND(&w->backend, appended);
  out_reply->backend = &w->backend;
  return BP_OK;
}
