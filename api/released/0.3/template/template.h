/* The types and functions that the files of this backend share. */
#ifndef TEMPLATE_H_
#define TEMPLATE_H_

#include "backplane/backend.h"

/* The one device. Handles are pointers to types of our own, converted here and nowhere else. */
typedef struct device {
  bp_device_properties properties;
  bp_heap heap;
  _Atomic uint64_t used_bytes; /* Of the heap, by buffers. */
} device;

typedef struct buffer {
  unsigned char* bytes;
  uint64_t size_bytes;
  uint64_t map_count;
} buffer;

/* One instance of the backend, bound to one host. It is the `self` of the tables that it holds. */
typedef struct instance {
  const bp_host* host;
  bp_backend backend;
  device device;
  bp_device_ops devices;
  bp_allocator_ops allocator;
  bp_stream_ops streams;
  bp_event_ops events;
  bp_kernel add;
  int default_stream; /* The handle is its address. A stream has no state, since nothing waits. */
} instance;

/* Leaves `message` in the host's error slot and returns `status`. */
static inline bp_status fail(const instance* i, bp_status status, const char* message) {
  return i->host->set_error(i->host->self, status, message);
}

static inline bp_status invalid(const instance* i, const char* message) {
  return fail(i, BP_INVALID_ARGUMENT, message);
}

static inline int is_ours(const instance* i, const bp_device* handle) {
  return handle == (const bp_device*)&i->device;
}

/* Each function fills the tables of its file. */
void init_device(instance* i);
void init_memory(instance* i);
void init_streams(instance* i);
void init_kernels(instance* i);

#endif /* TEMPLATE_H_ */
