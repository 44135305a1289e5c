/* backplane/semaphore.h - timelines of 64 bits, which streams, the host and other processes raise
 * and wait for.
 *
 * An optional table. A semaphore has a value, which only rises. A signal raises the value, and a
 * wait for a value ends when the semaphore has reached it.
 *
 *   stream A:  kernel -> submit_signal(s, 1)
 *   stream B:  submit_wait(s, 1) -> kernel -> submit_signal(s, 2)     may be submitted before A's
 *   host:      synchronize(s, 2, timeout_ns)
 *
 * A semaphore of a device works on every stream of its backend. A record of an event is simpler
 * where the work that is waited for was submitted before; a semaphore also serves where it was not,
 * and where two sides count on together.
 *
 * Rules for every entry, unless it says otherwise:
 *   Threads    Safe from any thread, also on one handle.
 *   Blocking   Only synchronize() waits.
 *   Errors     Returns a status, with the text in the thread's error slot.
 *   Ownership  The caller owns a semaphore until it passes it to destroy().
 *
 * Failures: [SEMAPHORE-7] A failed stream still performs its signals. The semaphore keeps the first
 * failure that a signal carried, with the value of this signal. [SEMAPHORE-8] A wait for this value
 * or a later one gets the failure when the semaphore has reached the value that is waited for; a
 * wait for an earlier value succeeds.
 *
 * Loss: [SEMAPHORE-13] If the device of a semaphore is lost, all waits of this process for the
 * semaphore end with BP_DEVICE_LOST, also those of streams of other devices.
 */
#ifndef BACKPLANE_SEMAPHORE_H_
#define BACKPLANE_SEMAPHORE_H_

#include "backplane/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bp_semaphore bp_semaphore;

/* Requests to bp_semaphore_ops::create. [SEMAPHORE-1] create() of a semaphore returns
 * BP_INVALID_ARGUMENT for an unknown flag and never ignores it. */
typedef uint32_t bp_semaphore_flags;
enum {
  BP_SEMAPHORE_EXPORTABLE = 1u << 0 /* export_semaphore() will be called. */
};

typedef struct bp_semaphore_desc {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_SEMAPHORE_DESC. */
  const void* next;
  uint64_t initial_value;
  bp_semaphore_flags flags;
  uint32_t reserved; /* 0. */
} bp_semaphore_desc;

/* The semaphore functions of one backend. An offer. */
typedef struct bp_semaphore_ops {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_SEMAPHORE_OPS. */
  const void* next;
  void* self;

  /* Creates a semaphore on `device`, whose value is initial_value. A NULL desc is all zero. It
   * returns BP_UNSUPPORTED for BP_SEMAPHORE_EXPORTABLE if semaphores cannot be exported. */
  bp_status (*create)(void* self, bp_device* device, const bp_semaphore_desc* desc,
                      bp_semaphore** out_semaphore);

  /* Destroys `semaphore`. [SEMAPHORE-9] Signals and waits that were submitted to streams are
   * performed also after destroy(). A wait whose value nothing can reach any more ends at
   * shutdown(), with BP_ABORTED. [SEMAPHORE-10] destroy() of a NULL semaphore is a no-op. */
  bp_status (*destroy)(void* self, bp_semaphore* semaphore);

  /* Gives the value. [SEMAPHORE-12] query() never gives a value before its signal was performed,
   * and never a lower one than before. It reports no failure. */
  bp_status (*query)(void* self, bp_semaphore* semaphore, uint64_t* out_value);

  /* Raises the value from the host. [SEMAPHORE-4] signal() and submit_signal() return
   * BP_INVALID_ARGUMENT for a value that is not above the present one. */
  bp_status (*signal)(void* self, bp_semaphore* semaphore, uint64_t value);

  /* Blocks until the value is reached, or returns BP_TIMEOUT after timeout_ns nanoseconds; 0 and
   * UINT64_MAX mean the same as for a stream. [SEMAPHORE-11] synchronize() of a semaphore returns
   * BP_OK, or the failure that a wait gets, once the value is reached, and BP_TIMEOUT if it is not.
   * Where the failure may be BP_TIMEOUT, query() tells the two apart. */
  bp_status (*synchronize)(void* self, bp_semaphore* semaphore, uint64_t value,
                           uint64_t timeout_ns);

  /* Raises the value when all work submitted to `stream` before has ended. Like record(), it
   * succeeds on a failed stream, and lets batched work progress. [SEMAPHORE-3] The value rises
   * after the work submitted to the stream before submit_signal() has ended. [SEMAPHORE-5] If the
   * value has risen so far meanwhile that a submitted signal is not above it, the signal leaves
   * the value as it is, and its stream fails with BP_INVALID_ARGUMENT. [SEMAPHORE-14] On a
   * capturing stream submit_signal() and submit_wait() return BP_INVALID_ARGUMENT. */
  bp_status (*submit_signal)(void* self, bp_stream* stream, bp_semaphore* semaphore,
                             uint64_t value);

  /* Makes `stream` wait. [SEMAPHORE-2] Work submitted to a stream after submit_wait() starts after
   * the value is reached. The wait may come before the call that signals the value. [SEMAPHORE-15]
   * A stream whose wait gets a failure fails with it. A semaphore of another backend is
   * BP_INVALID_ARGUMENT. */
  bp_status (*submit_wait)(void* self, bp_stream* stream, bp_semaphore* semaphore, uint64_t value);

  /* Ends the failure of the semaphore, if any. [SEMAPHORE-6] Waits that end after clear_failure()
   * of a semaphore do not get the failure from before it. Streams that have the failure keep it. */
  bp_status (*clear_failure)(void* self, bp_semaphore* semaphore);

  /* Optional, both: gives a semaphore made with BP_SEMAPHORE_EXPORTABLE to other processes, and
   * takes one. [SEMAPHORE-16] The exported and the imported semaphore have one value, which each of
   * them raises and waits for. [SEMAPHORE-17] Exports carry values alone: a failure stays with the
   * handle through which it was signalled. [SEMAPHORE-18] export_semaphore() of a semaphore without
   * BP_SEMAPHORE_EXPORTABLE, and import_semaphore() of a handle that no semaphore came from, return
   * BP_INVALID_ARGUMENT; both return BP_UNSUPPORTED for a type that the backend lacks. */
  bp_status (*export_semaphore)(void* self, bp_semaphore* semaphore, bp_external_type type,
                                bp_external_handle* out_handle);
  bp_status (*import_semaphore)(void* self, bp_device* device, const bp_external_handle* handle,
                                bp_semaphore** out_semaphore);
} bp_semaphore_ops;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BACKPLANE_SEMAPHORE_H_ */
