/* A backend with one device, whose streams have nothing to do. */
#include "plugin.h"

static int device_storage, stream_storage;

static const bp_heap heap = {.struct_size = sizeof(bp_heap),
                             .struct_type = BP_STRUCT_HEAP,
                             .size_bytes = 1024,
                             .max_allocation_bytes = 1024,
                             .tensor_offset_alignment_bytes = 1};

static const bp_device_properties device_properties = {.struct_size = sizeof(bp_device_properties),
                                                       .struct_type = BP_STRUCT_DEVICE_PROPERTIES,
                                                       .name = "Test device",
                                                       .device_class = BP_DEVICE_SIMULATED,
                                                       .max_rank = 8,
                                                       .heaps = &heap,
                                                       .heap_count = 1,
                                                       .heap_stride_bytes = sizeof(bp_heap)};

static bp_status enumerate(void* self, uint64_t capacity, bp_device** out_devices,
                           uint64_t* out_count) {
  (void)self;
  if (capacity > 0) out_devices[0] = (bp_device*)&device_storage;
  *out_count = 1;
  return BP_OK;
}

static bp_status properties(void* self, bp_device* device, const bp_device_properties** out) {
  (void)self, (void)device;
  *out = &device_properties;
  return BP_OK;
}

static bp_status synchronize(void* self, bp_device* device, uint64_t timeout_ns) {
  (void)self, (void)device, (void)timeout_ns;
  return BP_OK;
}

static bp_status generation(void* self, bp_device* device, uint64_t* out_generation) {
  (void)self, (void)device;
  *out_generation = 0;
  return BP_OK;
}

static bp_status default_stream(void* self, bp_device* device, bp_stream** out_stream) {
  (void)self, (void)device;
  *out_stream = (bp_stream*)&stream_storage;
  return BP_OK;
}

static const bp_device_ops devices = {.struct_size = sizeof(bp_device_ops),
                                      .struct_type = BP_STRUCT_DEVICE_OPS,
                                      .enumerate = enumerate,
                                      .properties = properties,
                                      .synchronize = synchronize,
                                      .generation = generation};
static const bp_allocator_ops allocator = {.struct_size = sizeof(bp_allocator_ops),
                                           .struct_type = BP_STRUCT_ALLOCATOR_OPS};
static const bp_stream_ops streams = {.struct_size = sizeof(bp_stream_ops),
                                      .struct_type = BP_STRUCT_STREAM_OPS,
                                      .default_stream = default_stream};
static const bp_event_ops events = {.struct_size = sizeof(bp_event_ops),
                                    .struct_type = BP_STRUCT_EVENT_OPS};

static bp_status register_all(void* self, const bp_registrar* r) {
  (void)self;
  bp_status status = r->add_device(r->self, 0, NULL, &devices, NULL);
  if (status == BP_OK) status = r->add_allocator(r->self, 0, NULL, &allocator, NULL);
  if (status == BP_OK) status = r->add_streams(r->self, 0, NULL, &streams, &events, NULL);
  return status;
}

static const bp_backend backend = {.struct_size = sizeof(bp_backend),
                                   .struct_type = BP_STRUCT_BACKEND,
                                   .name = "test.good",
                                   .version = "1",
                                   .register_all = register_all,
                                   .shutdown = end_nothing};

bp_status bp_backend_entry(const bp_entry_request* request, bp_entry_reply* out_reply) {
  (void)request;
  return accept(out_reply, &backend);
}
