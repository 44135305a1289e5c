/* Streams and events of a device whose work ends in the call that submits it. Nothing is ever
 * waited for, so events that the host signals later are refused: they need a real queue. */
#include <stdlib.h>
#include <time.h>

#include "template.h"

typedef struct event {
  bp_event_flags flags;
  int is_recorded;
  int64_t time_ns;
} event;

static bp_status create_stream(void* self, bp_device* handle, const bp_stream_desc* desc,
                               bp_stream** out_stream) {
  bp_stream_desc d = {.flags = 0};
  uint32_t offset;
  int* stream;
  if (!is_ours(self, handle)) return invalid(self, "stream.create: not our device");
  if (out_stream == NULL) return invalid(self, "stream.create: out_stream is NULL");
  if (desc != NULL && bp_struct_read(desc, 24, &d, sizeof(d), &offset) != BP_OK) {
    return fail(self, BP_INCOMPATIBLE, "stream.create: desc has a member that is not understood");
  }
  if (d.flags != 0) return invalid(self, "stream.create: unknown flag");
  stream = calloc(1, sizeof(*stream));
  if (stream == NULL) return fail(self, BP_OUT_OF_MEMORY, "stream.create: out of host memory");
  *out_stream = (bp_stream*)stream;
  return BP_OK;
}

static bp_status default_stream(void* self, bp_device* handle, bp_stream** out_stream) {
  if (!is_ours(self, handle)) return invalid(self, "stream.default_stream: not our device");
  if (out_stream == NULL) return invalid(self, "stream.default_stream: out_stream is NULL");
  *out_stream = (bp_stream*)&((instance*)self)->default_stream;
  return BP_OK;
}

static bp_status destroy_stream(void* self, bp_stream* stream) {
  if (stream == (bp_stream*)&((instance*)self)->default_stream) {
    return invalid(self, "stream.destroy: the default stream cannot be destroyed");
  }
  free(stream);
  return BP_OK;
}

static bp_status query_stream(void* self, bp_stream* stream, uint32_t* out_done) {
  if (stream == NULL || out_done == NULL) return invalid(self, "stream.query: NULL");
  *out_done = 1;
  return BP_OK;
}

/* Serves status, clear_failure and flush: no work is pending, and no work fails later. */
static bp_status is_idle(void* self, bp_stream* stream) {
  return stream == NULL ? invalid(self, "stream: the handle is NULL") : BP_OK;
}

static bp_status synchronize_stream(void* self, bp_stream* stream, uint64_t timeout_ns) {
  (void)timeout_ns;
  return is_idle(self, stream);
}

static bp_status wait_event(void* self, bp_stream* stream, bp_event* handle) {
  return stream == NULL || handle == NULL ? invalid(self, "stream.wait_event: NULL") : BP_OK;
}

static bp_status add_callback(void* self, bp_stream* stream, bp_stream_callback_fn* callback,
                              void* user_data) {
  if (stream == NULL || callback == NULL) return invalid(self, "stream.add_callback: NULL");
  callback(user_data, BP_OK);
  return BP_OK;
}

static bp_status create_event(void* self, bp_device* handle, const bp_event_desc* desc,
                              bp_event** out_event) {
  bp_event_desc d = {.flags = 0};
  uint32_t offset;
  event* e;
  if (!is_ours(self, handle)) return invalid(self, "event.create: not our device");
  if (out_event == NULL) return invalid(self, "event.create: out_event is NULL");
  if (desc != NULL && bp_struct_read(desc, 24, &d, sizeof(d), &offset) != BP_OK) {
    return fail(self, BP_INCOMPATIBLE, "event.create: desc has a member that is not understood");
  }
  if (d.flags >= 2 * BP_EVENT_EXPORTABLE) return invalid(self, "event.create: unknown flag");
  if ((d.flags & ~(uint32_t)BP_EVENT_TIMING) != 0) {
    return fail(self, BP_UNSUPPORTED, "event.create: streams never wait: not for the host either");
  }
  e = calloc(1, sizeof(event));
  if (e == NULL) return fail(self, BP_OUT_OF_MEMORY, "event.create: out of host memory");
  e->flags = d.flags;
  *out_event = (bp_event*)e;
  return BP_OK;
}

static bp_status destroy_event(void* self, bp_event* handle) {
  (void)self;
  free(handle);
  return BP_OK;
}

static bp_status record(void* self, bp_event* handle, bp_stream* stream) {
  event* e = (event*)handle;
  struct timespec now;
  if (e == NULL || stream == NULL) return invalid(self, "event.record: NULL");
  clock_gettime(CLOCK_MONOTONIC, &now);
  e->time_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
  e->is_recorded = 1;
  return BP_OK;
}

static bp_status query_event(void* self, bp_event* handle, uint32_t* out_done) {
  if (handle == NULL || out_done == NULL) return invalid(self, "event.query: NULL");
  *out_done = 1;
  return BP_OK;
}

static bp_status synchronize_event(void* self, bp_event* handle, uint64_t timeout_ns) {
  (void)timeout_ns;
  return handle == NULL ? invalid(self, "event.synchronize: NULL") : BP_OK;
}

static bp_status elapsed_ns(void* self, bp_event* start, bp_event* end, int64_t* out_elapsed_ns) {
  const event *a = (const event*)start, *b = (const event*)end;
  if (a == NULL || b == NULL || out_elapsed_ns == NULL) return invalid(self, "event.elapsed_ns");
  if (!a->is_recorded || !b->is_recorded || (a->flags & b->flags & BP_EVENT_TIMING) == 0) {
    return invalid(self, "event.elapsed_ns: both must be recorded, and have BP_EVENT_TIMING");
  }
  *out_elapsed_ns = b->time_ns - a->time_ns;
  return BP_OK;
}

static bp_status signal_event(void* self, bp_event* handle, bp_status status) {
  (void)handle, (void)status;
  return invalid(self, "event.signal: the event is not host-signalled");
}

void init_streams(instance* i) {
  i->streams = (bp_stream_ops){.struct_size = sizeof(bp_stream_ops),
                               .struct_type = BP_STRUCT_STREAM_OPS,
                               .self = i,
                               .create = create_stream,
                               .default_stream = default_stream,
                               .destroy = destroy_stream,
                               .query = query_stream,
                               .status = is_idle,
                               .clear_failure = is_idle,
                               .synchronize = synchronize_stream,
                               .flush = is_idle,
                               .wait_event = wait_event,
                               .add_callback = add_callback};
  i->events = (bp_event_ops){.struct_size = sizeof(bp_event_ops),
                             .struct_type = BP_STRUCT_EVENT_OPS,
                             .self = i,
                             .create = create_event,
                             .destroy = destroy_event,
                             .record = record,
                             .query = query_event,
                             .synchronize = synchronize_event,
                             .elapsed_ns = elapsed_ns,
                             .signal = signal_event};
}
