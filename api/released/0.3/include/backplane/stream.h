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
 * stream, and reading it does not remove it. [STREAM-8] Once the failure of a stream is known, a
 * submission to it returns BP_STREAM_FAILED and does not run. [STREAM-19] If the failure is
 * BP_DEVICE_LOST, a submission returns BP_DEVICE_LOST. [STREAM-20] A copy or fill of 0 bytes, a
 * launch without elements, and a wait for an event never recorded are submissions too. [STREAM-21]
 * allocate(), deallocate(), query(), flush() and clear_failure() succeed on a failed stream.
 * [STREAM-9] Each synchronize() and status() of a failed stream returns its failure, until
 * clear_failure(). [EVENT-5] An event recorded on a failed stream carries the failure to each
 * stream that waits for the event, and keeps it until recorded again. api/docs/errors.md lists all
 * entries.
 *
 * [STREAM-22] If work finds an element that its op does not allow, such as an index out of range,
 * the stream fails with BP_DATA_FAILURE; the text names the op, the argument and the position of
 * the element. The position counts elements from the first one, as the strides do.
 *
 * Progress: [STREAM-12] Work reaches the device at the latest with record(), add_callback(),
 * query(), synchronize() or flush(), and then completes without further calls; so it does with
 * submit_signal() of a semaphore.
 */
#ifndef BACKPLANE_STREAM_H_
#define BACKPLANE_STREAM_H_

#include "backplane/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bp_stream bp_stream;
typedef struct bp_event bp_event;

/* Requests to bp_stream_ops::create. [STREAM-1] create() of a stream returns BP_INVALID_ARGUMENT
 * for an unknown flag and never ignores it. */
typedef uint32_t bp_stream_flags;
enum { BP_STREAM_DEFAULT = 0u };

typedef struct bp_stream_desc {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_STREAM_DESC. */
  const void* next;
  bp_stream_flags flags;
  int32_t priority; /* A hint: higher values start earlier. Order within a stream is unchanged. */
} bp_stream_desc;

/* The backend calls it once, on a thread of its own, or of the caller where work runs inline, with
 * BP_OK or the failure of the stream. The callback may call only bp_event_ops::signal,
 * bp_semaphore_ops::signal and the entries of bp_host. */
typedef void bp_stream_callback_fn(void* user_data, bp_status status);

/* The stream functions of one backend. An offer. */
typedef struct bp_stream_ops {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_STREAM_OPS. */
  const void* next;
  void* self;

  /* Creates a stream on `device`. [STREAM-2] A new stream is idle. A NULL desc is all zero. */
  bp_status (*create)(void* self, bp_device* device, const bp_stream_desc* desc,
                      bp_stream** out_stream);

  /* Lends the default stream of `device`, which lives until shutdown. [STREAM-4] Every call of
   * default_stream() for a device lends the same handle. The default stream may be inline: its work
   * runs before the submitting call returns, unless the work waits for an event; then the work
   * queues, and the call returns. */
  bp_status (*default_stream)(void* self, bp_device* device, bp_stream** out_stream);

  /* Destroys `stream`. [STREAM-11] destroy() of a stream succeeds at once, also after a failure;
   * work submitted before still completes. [STREAM-5] destroy() of a NULL stream is a no-op.
   * [STREAM-6] destroy() of the default stream returns BP_INVALID_ARGUMENT. */
  bp_status (*destroy)(void* self, bp_stream* stream);

  /* Sets *out_done to 1 if all work submitted before has ended, else 0. [STREAM-7] query() never
   * reports completion before the work has completed. It reports no failure of the stream. */
  bp_status (*query)(void* self, bp_stream* stream, uint32_t* out_done);

  /* Returns BP_OK or the failure. [STREAM-10] status() never blocks, whatever other threads do. */
  bp_status (*status)(void* self, bp_stream* stream);

  /* Ends the stream's failure, if any. [STREAM-13] Submissions after clear_failure() run again. */
  bp_status (*clear_failure)(void* self, bp_stream* stream);

  /* Blocks until the work submitted before the call has ended, or returns BP_TIMEOUT after
   * timeout_ns nanoseconds. [STREAM-14] synchronize() with a timeout of 0 only looks. A timeout of
   * UINT64_MAX never runs out. Work may also have failed with BP_TIMEOUT, as a collective does:
   * then status() gives it too. If the wait alone ran out, status() gives BP_OK. */
  bp_status (*synchronize)(void* self, bp_stream* stream, uint64_t timeout_ns);

  /* Hands work that the backend has batched to the device. */
  bp_status (*flush)(void* self, bp_stream* stream);

  /* Makes `stream` wait. [EVENT-2] Work submitted to a stream after wait_event() starts after the
   * work that the latest record() of the event captured. [EVENT-1] wait_event() for an event never
   * recorded is a no-op, unless the event is host-signalled. [EVENT-7] A wait for a host-signalled
   * event may come before signal(). An event of another backend is BP_INVALID_ARGUMENT. */
  bp_status (*wait_event)(void* self, bp_stream* stream, bp_event* event);

  /* Calls `callback` when all work submitted before has ended. [STREAM-15] A callback runs exactly
   * once, also after a failure, whose status it gets, and after destroy(). [STREAM-16] Work
   * submitted behind a callback starts after the callback has returned. */
  bp_status (*add_callback)(void* self, bp_stream* stream, bp_stream_callback_fn* callback,
                            void* user_data);

  /* ---- Since 0.2, all optional ---------------------------------------------------------------
   *
   * Makes a handle for a stream of the device's own library, which the caller keeps. [STREAM-17] A
   * native stream and its handle are one ordered queue, and destroy() ends the handle alone. */
  bp_status (*wrap_native)(void* self, bp_device* device, void* native, bp_stream** out_stream);

  /* Lends the stream of the device's own library, as wrap_native() would take it. It first hands
   * batched work to the device. */
  bp_status (*native_handle)(void* self, bp_stream* stream, void** out_native);

  /* Sets *out_is_capturing to 1 if what is submitted to `stream` is recorded into a graph instead
   * of run, else 0. [STREAM-18] is_capturing() also reports a capture that began in the device's
   * own library. */
  bp_status (*is_capturing)(void* self, bp_stream* stream, uint32_t* out_is_capturing);
} bp_stream_ops;

/* Requests to bp_event_ops::create. [EVENT-8] create() of an event returns BP_INVALID_ARGUMENT for
 * an unknown flag and never ignores it. */
typedef uint32_t bp_event_flags;
enum {
  BP_EVENT_TIMING = 1u << 0,      /* elapsed_ns() takes the event. */
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

  /* Destroys `event`. [EVENT-3] Streams that wait for an event still wait for it after destroy().
   * [EVENT-4] destroy() of a NULL event is a no-op. */
  bp_status (*destroy)(void* self, bp_event* event);

  /* Captures the work submitted to `stream` so far, instead of what `event` captured before.
   * [EVENT-6] record() succeeds on a stream that has failed: the event then carries the failure.
   * [EVENT-9] record() of a host-signalled event returns BP_INVALID_ARGUMENT. */
  bp_status (*record)(void* self, bp_event* event, bp_stream* stream);

  /* Sets *out_done to 1 if the captured work has completed or signal() was called, else 0.
   * [EVENT-10] query() never gives 1 before the captured work has completed or signal() was called,
   * and gives 1 for an event never recorded that is not host-signalled. */
  bp_status (*query)(void* self, bp_event* event, uint32_t* out_done);

  /* Blocks until query() would give 1, or returns BP_TIMEOUT after timeout_ns nanoseconds; 0 and
   * UINT64_MAX mean the same as for a stream. It returns the failure that the event carries. Where
   * that may be BP_TIMEOUT, query() tells the two apart: it gives 0 where the wait alone ran
   * out. */
  bp_status (*synchronize)(void* self, bp_event* event, uint64_t timeout_ns);

  /* Gives the nanoseconds from `start` to `end` on the device's clock. Both have BP_EVENT_TIMING
   * and have completed, else it returns BP_INVALID_ARGUMENT. [EVENT-11] The elapsed time is not
   * negative if `end` was recorded behind `start` on one stream. [EVENT-14] elapsed_ns() returns
   * BP_UNSUPPORTED for events of two devices, unless the backend can relate their clocks. */
  bp_status (*elapsed_ns)(void* self, bp_event* start, bp_event* end, int64_t* out_elapsed_ns);

  /* Completes a host-signalled event with `status`: waiters go on, or get the failure. [EVENT-12]
   * The first signal() of an event counts; signal() returns BP_INVALID_ARGUMENT for an event that
   * is already signalled, or that is not host-signalled. */
  bp_status (*signal)(void* self, bp_event* event, bp_status status);

  /* Since 0.2, optional: gives an event made with BP_EVENT_EXPORTABLE to other processes, and takes
   * one. A BP_EXTERNAL_SYNC_FD is what the event has captured by now, and no later record. For
   * every other type: [EVENT-13] A wait for a shared event in one process waits for what the other
   * process recorded. */
  bp_status (*export_event)(void* self, bp_event* event, bp_external_type type,
                            bp_external_handle* out_handle);
  bp_status (*import_event)(void* self, bp_device* device, const bp_external_handle* handle,
                            bp_event** out_event);

  /* Since 0.3, optional: calls `callback` when the work that the event has captured by now has
   * ended, or when the host has signalled it, and holds no stream. [EVENT-15] The callback runs
   * exactly once, with BP_OK or the failure that the event carries, also after destroy() of the
   * event. For an event never recorded that is not host-signalled it runs soon. [EVENT-16] Work
   * submitted behind the record does not wait for the callback. What add_callback() says of
   * callbacks holds here too; if nothing can complete the event any more, the callback gets
   * BP_ABORTED at shutdown(). */
  bp_status (*on_complete)(void* self, bp_event* event, bp_stream_callback_fn* callback,
                           void* user_data);
} bp_event_ops;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BACKPLANE_STREAM_H_ */
