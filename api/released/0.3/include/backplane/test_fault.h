/* backplane/test_fault.h - failures on purpose: the extension "bp.test.fault", version 1.
 *
 * A backend that has this extension lends the table below through bp_backend::get_extension(), so
 * that tests meet on any machine the failures that a healthy device hardly ever has. No production
 * host asks for the extension.
 *
 * Rules for every entry:
 *   Threads    Safe from any thread.
 *   Blocking   Does not wait for the device.
 *   Errors     Returns a status, with the text in the thread's error slot. It returns
 *              BP_UNSUPPORTED for a failure that this device cannot be made to have.
 *   Ownership  Handles are borrowed during the call.
 */
#ifndef BACKPLANE_TEST_FAULT_H_
#define BACKPLANE_TEST_FAULT_H_

#include "backplane/device.h"
#include "backplane/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BP_TEST_FAULT_NAME "bp.test.fault"
#define BP_TEST_FAULT_VERSION 1

/* The struct types of this extension: the first block of those given to vendors. */
enum { BP_STRUCT_TEST_FAULT_OPS = 0x01000001 };

/* How work fails. */
typedef uint32_t bp_test_fault_kind;
enum {
  BP_TEST_FAULT_SUBMISSION = 1, /* The work does not run, nor does what is queued behind it. */
  BP_TEST_FAULT_DATA = 2,       /* The work runs, and so does what was submitted already. */
  BP_TEST_FAULT_CORRUPTION = 3, /* The work succeeds, and one byte of its last output is wrong. */
};

/* Failures to order. An offer. */
typedef struct bp_test_fault_ops {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_TEST_FAULT_OPS. */
  const void* next;
  void* self;

  /* Orders that the next kernel, copy or fill that is submitted to `stream` fails with `status`, in
   * the way of `kind`; a status of BP_OK belongs to BP_TEST_FAULT_CORRUPTION alone. The order
   * replaces one that has not taken effect yet; a kind of 0 takes such an order back. */
  bp_status (*fail_next)(void* self, bp_stream* stream, bp_test_fault_kind kind, bp_status status);

  /* Loses `device`: until bp_device_ops::reset() each call on it returns BP_DEVICE_LOST, except
   * those that end a handle. */
  bp_status (*lose_device)(void* self, bp_device* device);

  /* Orders that one of the next allocations of `device` fails with BP_OUT_OF_MEMORY: the next one
   * if `index` is 0, the one after it if `index` is 1. The order replaces one that has not taken
   * effect yet; UINT64_MAX takes such an order back. */
  bp_status (*fail_allocation)(void* self, bp_device* device, uint64_t index);
} bp_test_fault_ops;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BACKPLANE_TEST_FAULT_H_ */
