/* The device. Here it has the memory and the instructions of the host; ask your driver instead.
 * probe() must not make a driver context. */
#include <string.h>

#include "template.h"

#define HEAP_BYTES (UINT64_C(1) << 30) /* The memory that this device reports. */

static const bp_dtype kDtypes[] = {BP_BOOL, BP_U8, BP_I8, BP_I32, BP_I64, BP_F32, BP_F64};

static bp_status probe(void* self, uint64_t* out_device_count) {
  if (out_device_count == NULL) return invalid(self, "device.probe: out_device_count is NULL");
  *out_device_count = 1;
  return BP_OK;
}

static bp_status enumerate(void* self, uint64_t capacity, bp_device** out_devices,
                           uint64_t* out_device_count) {
  instance* i = self;
  if (out_device_count == NULL) return invalid(i, "device.enumerate: out_device_count is NULL");
  if (capacity > 0 && out_devices == NULL) {
    return invalid(i, "device.enumerate: out_devices is NULL, but capacity is not 0");
  }
  if (capacity > 0) out_devices[0] = (bp_device*)&i->device;
  *out_device_count = 1;
  return BP_OK;
}

static bp_status properties(void* self, bp_device* handle,
                            const bp_device_properties** out_properties) {
  instance* i = self;
  if (!is_ours(i, handle)) return invalid(i, "device.properties: not a device of this backend");
  if (out_properties == NULL) return invalid(i, "device.properties: out_properties is NULL");
  *out_properties = &i->device.properties;
  return BP_OK;
}

/* Work ends in the call that submits it: there is nothing to wait for. */
static bp_status synchronize(void* self, bp_device* handle, uint64_t timeout_ns) {
  (void)timeout_ns;
  return is_ours(self, handle) ? BP_OK
                               : invalid(self, "device.synchronize: not a device of this backend");
}

static bp_status memory_info(void* self, bp_device* handle, uint64_t heap_index,
                             uint64_t* out_free_bytes, uint64_t* out_total_bytes) {
  const instance* i = self;
  uint64_t used;
  if (!is_ours(self, handle)) return invalid(self, "device.memory_info: not our device");
  if (heap_index != 0) return invalid(self, "device.memory_info: the only heap_index is 0");
  if (out_free_bytes == NULL || out_total_bytes == NULL) {
    return invalid(self, "device.memory_info: an out parameter is NULL");
  }
  used = i->device.used_bytes;
  *out_total_bytes = HEAP_BYTES;
  *out_free_bytes = used < HEAP_BYTES ? HEAP_BYTES - used : 0;
  return BP_OK;
}

/* Without reset() it never changes. */
static bp_status generation(void* self, bp_device* handle, uint64_t* out_generation) {
  if (!is_ours(self, handle)) return invalid(self, "device.generation: not our device");
  if (out_generation == NULL) return invalid(self, "device.generation: out_generation is NULL");
  *out_generation = 0;
  return BP_OK;
}

void init_device(instance* i) {
  static const uint8_t uuid[16] = {0xac, 0x3e, 1}; /* Ask your hardware for its UUID. */
  i->device.heap = (bp_heap){.struct_size = sizeof(bp_heap),
                             .struct_type = BP_STRUCT_HEAP,
                             .size_bytes = HEAP_BYTES,
                             .max_allocation_bytes = HEAP_BYTES,
                             .tensor_offset_alignment_bytes = 1,
                             .suballocation_granularity_bytes = 1,
                             .map_granularity_bytes = 1,
                             .flags = BP_HEAP_DEVICE_LOCAL | BP_HEAP_HOST_VISIBLE |
                                      BP_HEAP_HOST_COHERENT | BP_HEAP_HOST_CACHED};
  i->device.properties = (bp_device_properties){.struct_size = sizeof(bp_device_properties),
                                                .struct_type = BP_STRUCT_DEVICE_PROPERTIES,
                                                .name = "Acme template",
                                                .device_class = BP_DEVICE_SIMULATED,
                                                .max_rank = BP_MAX_RANK,
                                                .heaps = &i->device.heap,
                                                .heap_count = 1,
                                                .heap_stride_bytes = sizeof(bp_heap),
                                                .dtypes = kDtypes,
                                                .dtype_count = sizeof(kDtypes) / sizeof(*kDtypes)};
  memcpy(i->device.properties.uuid, uuid, sizeof(uuid));
  i->devices = (bp_device_ops){.struct_size = sizeof(bp_device_ops),
                               .struct_type = BP_STRUCT_DEVICE_OPS,
                               .self = i,
                               .probe = probe,
                               .enumerate = enumerate,
                               .properties = properties,
                               .synchronize = synchronize,
                               .memory_info = memory_info,
                               .generation = generation};
}
