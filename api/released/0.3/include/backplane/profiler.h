/* backplane/profiler.h - what the device did, and when, by its own clock.
 *
 * An optional table. Between start() and stop() the backend hands one record for each piece of work
 * to a function of the host.
 *
 * Rules for every entry, unless it says otherwise:
 *   Threads    Safe from any thread. Correlation ids are per thread.
 *   Blocking   Only stop() waits for the device.
 *   Errors     Returns a status, with the text in the thread's error slot.
 *   Ownership  Records are borrowed during the call of the sink.
 */
#ifndef BACKPLANE_PROFILER_H_
#define BACKPLANE_PROFILER_H_

#include "backplane/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t bp_activity_kind;
enum {
  BP_ACTIVITY_KERNEL = 1,
  BP_ACTIVITY_COPY = 2,
  BP_ACTIVITY_FILL = 3,
  BP_ACTIVITY_GRAPH = 4,
  BP_ACTIVITY_COLLECTIVE = 5,
  BP_ACTIVITY_DROPPED = 6 /* `bytes` records were lost because a buffer was full. */
};

/* One piece of work that has ended. An offer. */
typedef struct bp_activity {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_ACTIVITY. */
  const void* next;
  const char* name; /* The kernel's name, or "copy_from_host". */
  bp_device* device;
  bp_stream* stream;             /* May be destroyed by now: only compare it. */
  int64_t start_ns;              /* [PROFILER-1] start_ns <= end_ns, both on the device's clock. */
  int64_t end_ns;                /* [PROFILER-2] Records of one stream do not overlap. */
  uint64_t correlation_id;       /* That of the launch; 0: none. */
  uint64_t external_correlation; /* The innermost pushed id at submission; 0: none. */
  uint64_t bytes;                /* Bytes read and written; 0: not known. */
  uint64_t flops;                /* Operations, not a rate; 0: not known. */
  bp_activity_kind kind;
  uint32_t reserved; /* 0. */
} bp_activity;

/* Takes one record, on any thread, perhaps on several at once, and returns soon. The function calls
 * nothing of the backend. */
typedef void bp_activity_fn(void* user_data, const bp_activity* activity);

/* What to record. A request. [PROFILER-8] start() returns BP_UNSUPPORTED for a kind that the
 * backend does not know. */
typedef struct bp_profile_desc {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_PROFILE_DESC. */
  const void* next;
  bp_activity_fn* sink;
  void* user_data;
  uint64_t kind_count;           /* 0: all kinds. */
  const bp_activity_kind* kinds; /* Borrowed during the call. */
} bp_profile_desc;

/* The functions of one backend. An offer. */
typedef struct bp_profiler_ops {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_PROFILER_OPS. */
  const void* next;
  void* self;

  /* Begins to record the work of `device` that is submitted from now on. [PROFILER-3]
   * start() returns BP_ALREADY_EXISTS while the device is recorded. */
  bp_status (*start)(void* self, bp_device* device, const bp_profile_desc* desc);

  /* Waits for work that was submitted while recording, delivers its records, and ends the
   * recording. [PROFILER-4] The sink is not called after stop() has returned BP_OK. Without a
   * recording stop() is a no-op. What is submitted while stop() waits need not be recorded.
   *
   * [PROFILER-7] stop() returns BP_TIMEOUT if work that was submitted while recording still runs
   * after timeout_ns nanoseconds. The recording then goes on, and stop() may be called again. With
   * a timeout of 0 it only looks; a timeout of UINT64_MAX never runs out. */
  bp_status (*stop)(void* self, bp_device* device, uint64_t timeout_ns);

  /* Delivers the records of all work that has completed. */
  bp_status (*flush)(void* self, bp_device* device);

  /* What this thread submits until the matching pop_correlation() carries `id`. [PROFILER-5] Calls
   * of push_correlation() and pop_correlation() nest. A pop without a push is
   * BP_INVALID_ARGUMENT. */
  bp_status (*push_correlation)(void* self, uint64_t id);
  bp_status (*pop_correlation)(void* self);

  /* Gives one moment on both clocks: device_ns on the device's clock is host_ns on CLOCK_MONOTONIC,
   * plus or minus error_ns. [PROFILER-6] Two moments of calibrate() map all times between them from
   * one clock to the other. */
  bp_status (*calibrate)(void* self, bp_device* device, int64_t* out_device_ns,
                         int64_t* out_host_ns, int64_t* out_error_ns);
} bp_profiler_ops;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BACKPLANE_PROFILER_H_ */
