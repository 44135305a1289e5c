/* backplane/stream.h - ordered queues of device work, and the events that relate them.
 *
 * [STREAM-3] Work on a stream begins in submission order, and each piece sees what the pieces
 * before it wrote. Work on two streams is unordered until an event relates it.
 *
 * Rules for every entry, unless it says otherwise:
 *   Threads    Safe from any thread, also on one handle: racing submissions are ordered somehow.
 *   Blocking   Never waits for the device.
 *   Errors     Returns a status, with the text in the thread's error slot.
 *   Ownership  The caller owns an out handle until it passes it to the matching destroy().
 *
 * Work can fail after the call that submitted it returned BP_OK. The first failure stays on its
 * stream, and no reader takes it from another. [STREAM-8] Later submissions return it and do not
 * run. [STREAM-9] Each synchronize() and status() returns it, until clear_failure(). [EVENT-5] An
 * event recorded there carries it to each stream that waits, and keeps it until recorded again.
 *
 * Progress: [STREAM-12] work reaches the device at the latest with record(), add_callback(),
 * query(), synchronize() or flush(), and then completes without further calls.
 */
#ifndef BACKPLANE_STREAM_H_
#define BACKPLANE_STREAM_H_

#include "backplane/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bp_stream bp_stream;
typedef struct bp_event bp_event;

/* Requests to create(). [STREAM-1] An unknown bit is BP_INVALID_ARGUMENT, never ignored. */
typedef uint32_t bp_stream_flags;
enum { BP_STREAM_DEFAULT = 0u };

typedef struct bp_stream_desc {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_STREAM_DESC. */
  const void* next;
  bp_stream_flags flags;
  int32_t priority; /* A hint: higher starts earlier. Order within a stream is unchanged. */
} bp_stream_desc;

/* Called once on a thread of the backend, or of the caller where work runs inline, with BP_OK or
 * the failure of the stream. May call only bp_event_ops::signal and the entries of bp_host. */
typedef void bp_stream_callback_fn(void* user_data, bp_status status);

/* The stream functions of one backend. An offer. */
typedef struct bp_stream_ops {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_STREAM_OPS. */
  const void* next;
  void* self;

  /* Creates a stream on `device`. [STREAM-2] The new stream is idle. A NULL desc is all zero. */
  bp_status (*create)(void* self, bp_device* device, const bp_stream_desc* desc,
                      bp_stream** out_stream);

  /* Lends the default stream of `device`, which lives until shutdown. [STREAM-4] Every call lends
   * the same handle. It may be inline: work runs before the submitting call returns, unless it
   * waits for an event; then it queues, and the caller goes on. */
  bp_status (*default_stream)(void* self, bp_device* device, bp_stream** out_stream);

  /* Destroys `stream`. [STREAM-11] Succeeds at once, also after a failure; work submitted before
   * still completes. [STREAM-5] NULL is a no-op. [STREAM-6] The default stream is refused with
   * BP_INVALID_ARGUMENT. */
  bp_status (*destroy)(void* self, bp_stream* stream);

  /* Sets *out_done to 1 if all work submitted before has ended, else 0. [STREAM-7] Never 1 too
   * early. A failure of the stream is not reported here. */
  bp_status (*query)(void* self, bp_stream* stream, uint32_t* out_done);

  /* BP_OK, or the failure of the stream. [STREAM-10] Never blocks, whatever other threads do. */
  bp_status (*status)(void* self, bp_stream* stream);

  /* Ends the failure of the stream, if it has one: [STREAM-13] later submissions run again. */
  bp_status (*clear_failure)(void* self, bp_stream* stream);

  /* Blocks until the work submitted before the call has ended, or returns BP_TIMEOUT after
   * timeout_ns nanoseconds. [STREAM-14] A timeout of 0 only looks. UINT64_MAX never passes. Work
   * may also have failed with BP_TIMEOUT, as a collective does: then status() gives it too, which
   * is BP_OK where the wait alone ran out. */
  bp_status (*synchronize)(void* self, bp_stream* stream, uint64_t timeout_ns);

  /* Hands collected work to the device. */
  bp_status (*flush)(void* self, bp_stream* stream);

  /* Makes `stream` wait. [EVENT-2] Work submitted to it after this call starts after the work that
   * the latest record() of `event` captured. [EVENT-1] An event never recorded is a no-op, except a
   * host-signalled one: [EVENT-7] waits for it may come before signal(). An event of another
   * backend is BP_INVALID_ARGUMENT. */
  bp_status (*wait_event)(void* self, bp_stream* stream, bp_event* event);

  /* Calls `callback` when all work submitted before has ended. [STREAM-15] It runs exactly once,
   * also after a failure, of which it gets the status, and after destroy(). [STREAM-16] Work
   * submitted later starts after it returned. */
  bp_status (*add_callback)(void* self, bp_stream* stream, bp_stream_callback_fn* callback,
                            void* user_data);

  /* ---- Since 0.2, all optional ---------------------------------------------------------------
   *
   * A handle for a stream of the device's own library, which the caller keeps. [STREAM-17] Work of
   * both is one ordered queue. destroy() ends the handle alone. */
  bp_status (*wrap_native)(void* self, bp_device* device, void* native, bp_stream** out_stream);

  /* Lends the stream of the device's own library, as wrap_native() would take it. Hands collected
   * work to the device first. */
  bp_status (*native_handle)(void* self, bp_stream* stream, void** out_native);

  /* Sets *out_is_capturing to 1 if what is submitted to `stream` is recorded into a graph instead
   * of run, else 0. [STREAM-18] Also for a capture that began in the device's own library. */
  bp_status (*is_capturing)(void* self, bp_stream* stream, uint32_t* out_is_capturing);
} bp_stream_ops;

/* Requests to create(). [EVENT-8] An unknown bit is BP_INVALID_ARGUMENT, never ignored. */
typedef uint32_t bp_event_flags;
enum {
  BP_EVENT_TIMING = 1u << 0,      /* elapsed_ns() can be asked. */
  BP_EVENT_HOST_SIGNAL = 1u << 1, /* signal() lets waiters go; record() is refused. */
  BP_EVENT_EXPORTABLE = 1u << 2,  /* export_event() will be called. */
};

typedef struct bp_event_desc {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_EVENT_DESC. */
  const void* next;
  bp_event_flags flags;
  uint32_t reserved; /* 0. */
} bp_event_desc;

/* The event functions of one backend. An offer. An event works on every stream of its backend. */
typedef struct bp_event_ops {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_EVENT_OPS. */
  const void* next;
  void* self;

  /* Creates an event on `device` that was never recorded. A NULL desc is all zero. */
  bp_status (*create)(void* self, bp_device* device, const bp_event_desc* desc,
                      bp_event** out_event);

  /* Destroys `event`. [EVENT-3] Streams that wait for it still do. [EVENT-4] NULL is a no-op. */
  bp_status (*destroy)(void* self, bp_event* event);

  /* Captures the work submitted to `stream` so far, instead of what it captured before. [EVENT-6]
   * Succeeds on a stream that has failed: the event then carries the failure. [EVENT-9] On a
   * host-signalled event it is BP_INVALID_ARGUMENT. */
  bp_status (*record)(void* self, bp_event* event, bp_stream* stream);

  /* Sets *out_done to 1 if what was captured, or signal(), has happened, else 0. [EVENT-10] Never 1
   * too early, and 1 for an event never recorded that is not host-signalled. */
  bp_status (*query)(void* self, bp_event* event, uint32_t* out_done);

  /* Blocks until query() would give 1, or returns BP_TIMEOUT after timeout_ns nanoseconds; 0 and
   * UINT64_MAX as above. Returns the failure that the event carries. Where that may be BP_TIMEOUT
   * itself, query() tells the two apart: it gives 0 where the wait alone ran out. */
  bp_status (*synchronize)(void* self, bp_event* event, uint64_t timeout_ns);

  /* The time from `start` to `end` on the device's clock, in nanoseconds. Both have BP_EVENT_TIMING
   * and have completed, else it is BP_INVALID_ARGUMENT. [EVENT-11] Not negative if `end` was
   * recorded behind `start` on one stream. [EVENT-14] For events of two devices, BP_UNSUPPORTED
   * unless the backend can relate their clocks. */
  bp_status (*elapsed_ns)(void* self, bp_event* start, bp_event* end, int64_t* out_elapsed_ns);

  /* Completes a host-signalled event with `status`: waiters go on, or get the failure. [EVENT-12]
   * The first signal() counts; another is BP_INVALID_ARGUMENT, and so is one for an event that is
   * not host-signalled. */
  bp_status (*signal)(void* self, bp_event* event, bp_status status);

  /* Since 0.2, optional: gives an event made with BP_EVENT_EXPORTABLE to other processes, and takes
   * one. [EVENT-13] What is recorded in one process is waited for in the other. */
  bp_status (*export_event)(void* self, bp_event* event, bp_external_type type,
                            bp_external_handle* out_handle);
  bp_status (*import_event)(void* self, bp_device* device, const bp_external_handle* handle,
                            bp_event** out_event);
} bp_event_ops;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BACKPLANE_STREAM_H_ */
