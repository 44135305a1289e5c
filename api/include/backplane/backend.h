/* backplane/backend.h - how a host and a backend meet.
 *
 * The host finds bp_backend_entry, sends what it can serve, and receives an instance or a reason.
 * It then asks the instance to register its tables. The backend imports nothing from the host: the
 * host's services reach it in bp_host.
 *
 *   host                                           backend
 *    |-- bp_backend_entry(request{versions, host}) -->|   BP_OK, reply{version, instance},
 *    |                                                |   or a failure and why
 *    |-- backend->register_all(self, registrar) ----->|
 *    |<- registrar->add_device, add_allocator, -------|   one result per entry
 *    |   add_streams, add_kernels, ...                |
 *    | ... the host uses the tables ...               |
 *    |-- backend->shutdown(self, timeout_ns) -------->|
 *
 * Rules for every entry:
 *   Threads    The host calls the entry, register_all() and shutdown() one at a time for an
 *              instance; instances of one library are independent. get_extension() and
 *              status_class() are safe from any thread.
 *   Errors     Returns a status, with the text in the thread's error slot. [ENTRY-4] A backend
 *              lets out no exception, installs no signal handler, never exits the process, and
 *              writes nothing to standard streams.
 *   Ownership  What a backend adds stays its own, and valid until shutdown(). [ENTRY-10] A handle
 *              that the host has ended leaves no memory, thread or descriptor behind once its work
 *              has ended; what a backend keeps to use again has a limit.
 */
#ifndef BACKPLANE_BACKEND_H_
#define BACKPLANE_BACKEND_H_

#include "backplane/collective.h"
#include "backplane/compiler.h"
#include "backplane/device.h"
#include "backplane/graph.h"
#include "backplane/kernel.h"
#include "backplane/layout.h"
#include "backplane/memory.h"
#include "backplane/operator.h"
#include "backplane/profiler.h"
#include "backplane/semaphore.h"
#include "backplane/stream.h"
#include "backplane/virtual_memory.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the registrar did with one entry. Frozen. */
typedef struct bp_add_result {
  uint32_t outcome;   /* A BP_ADD_* value. */
  uint32_t reserved;  /* 0. */
  const char* reason; /* NULL if accepted; else what shadows the entry, or why it is rejected. The
                         text is lent until register_all() ends. */
} bp_add_result;
enum {
  BP_ADD_ACCEPTED = 1,
  BP_ADD_SHADOWED = 2, /* The entry is legal, but an earlier one always answers in its place. */
  BP_ADD_REJECTED = 3, /* The entry is not usable. The other entries are not affected. */
};

/* The host's side of a registration. An offer, valid during register_all(), on its thread.
 *
 * An entry is for the listed devices; a device_count of 0 means all devices of the backend. [REG-1]
 * The registrar gives one result per entry: an add call fails only if it cannot be read at all.
 * `out_results` may be NULL. [REG-2] If several tables of one kind are added for a device, the host
 * uses the first; tables of process groups are of one kind if they have one name. [REG-3] The host
 * tries kernels by priority, then in the order in which they were added. The host fills slots of a
 * table that are NULL with functions that return BP_UNSUPPORTED. */
typedef struct bp_registrar {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_REGISTRAR. */
  const void* next;
  void* self;

  /* Adds devices and their functions. The backend calls it before those that take a device_list. A
   * device_count of 0 adds all devices that devices->enumerate() lends. */
  bp_status (*add_device)(void* self, uint64_t device_count, bp_device* const* device_list,
                          const bp_device_ops* devices, bp_add_result* out_result);

  bp_status (*add_allocator)(void* self, uint64_t device_count, bp_device* const* device_list,
                             const bp_allocator_ops* allocator, bp_add_result* out_result);

  /* Adds the two tables as one entry. */
  bp_status (*add_streams)(void* self, uint64_t device_count, bp_device* const* device_list,
                           const bp_stream_ops* streams, const bp_event_ops* events,
                           bp_add_result* out_result);

  /* Adds kernels; `out_results` has kernel_count entries. */
  bp_status (*add_kernels)(void* self, uint64_t device_count, bp_device* const* device_list,
                           uint64_t kernel_count, const bp_kernel* const* kernels,
                           bp_add_result* out_results);

  /* ---- Since 0.2: tables that a device may do without ----------------------------------------
   *
   * A host that is older than the backend lacks these entries: read the registrar with
   * bp_struct_read(), and do not call an entry that is NULL. */

  bp_status (*add_device_guard)(void* self, uint64_t device_count, bp_device* const* device_list,
                                const bp_device_guard_ops* guard, bp_add_result* out_result);
  bp_status (*add_virtual_memory)(void* self, uint64_t device_count, bp_device* const* device_list,
                                  const bp_virtual_memory_ops* virtual_memory,
                                  bp_add_result* out_result);
  bp_status (*add_layout)(void* self, uint64_t device_count, bp_device* const* device_list,
                          const bp_layout_ops* layouts, bp_add_result* out_result);
  bp_status (*add_graph)(void* self, uint64_t device_count, bp_device* const* device_list,
                         const bp_graph_ops* graphs, bp_add_result* out_result);
  bp_status (*add_compiler)(void* self, uint64_t device_count, bp_device* const* device_list,
                            const bp_compiler_ops* compiler, bp_add_result* out_result);
  /* [REG-4] A table of process groups is rejected if its name is not one or more of [a-z0-9_]. */
  bp_status (*add_process_group)(void* self, uint64_t device_count, bp_device* const* device_list,
                                 const bp_process_group_ops* process_groups,
                                 bp_add_result* out_result);
  bp_status (*add_profiler)(void* self, uint64_t device_count, bp_device* const* device_list,
                            const bp_profiler_ops* profiler, bp_add_result* out_result);
  bp_status (*add_semaphore)(void* self, uint64_t device_count, bp_device* const* device_list,
                             const bp_semaphore_ops* semaphores, bp_add_result* out_result);

  /* Gives the number of a vendor's dtype. The name is "vendor.name", both [a-z0-9_]+, and an
   * element has `bits` bits: 2, 4, 6, or a multiple of 8 up to 1,024. Elements of 2, 4 and 6 bits
   * are packed as those of our dtypes are (DTYPE-2). The backend calls add_dtype() before it adds a
   * kernel that names the dtype.
   *
   * [REG-5] For one name a host gives one number to all of its backends, and it gives this number
   * to no other name. [REG-6] add_dtype() returns BP_ALREADY_EXISTS if the name has another number
   * of bits, and BP_INVALID_ARGUMENT for another form of the name or of `bits`. A host hands out at
   * least 1,024 numbers, and then returns BP_UNSUPPORTED. */
  bp_status (*add_dtype)(void* self, const char* name, uint32_t bits, bp_dtype* out_dtype);

  /* Describes op_count ops, each stride_bytes behind the one before. The host copies what it is
   * given, and gives each op a number from 65,536 on; `out_ops` and `out_results` have op_count
   * entries, and either may be NULL. The number of a rejected op is 0.
   *
   * A description leaves `op`, dtypes, dtype_count and default_value alone: the host does not read
   * them. The name is "vendor.op", both [a-z0-9_]+. A zero in `since` and `revision` stands for the
   * first revision, 1. An op has at most 32 arguments, among them 12 tensors, 8 lists of integers
   * and 8 outputs that are no lists, and a frame of at most 512 bytes.
   *
   * [OP-3] For one name a host gives one number, for as long as the process lives, and it gives
   * this number to no other name. [OP-4] Several backends may describe one name if one description
   * extends the others as frames grow (backplane/ops.h): then the longest one serves. Another
   * description is rejected, also after the unload of the first one. [OP-5] After the unload of all
   * who described an op, calls of it are BP_NOT_FOUND. A host hands out at least 1,024 numbers. */
  bp_status (*add_ops)(void* self, uint64_t op_count, const bp_op_desc* ops, uint64_t stride_bytes,
                       uint32_t* out_ops, bp_add_result* out_results);
} bp_registrar;

/* One instance of a backend. An offer, valid until shutdown(). */
typedef struct bp_backend {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_BACKEND. */
  const void* next;
  void* self;

  const char* name;    /* "vendor.backend", both [a-z0-9_]+; unique in a registry. */
  const char* version; /* The vendor's own version, for people: "1.4.2". */

  /* Passes everything the instance offers to `registrar`. [ENTRY-5] A backend that finds no device
   * registers what it has and returns BP_OK. */
  bp_status (*register_all)(void* self, const bp_registrar* registrar);

  /* Ends the instance and frees its tables. [ENTRY-6] shutdown() waits for work that still runs,
   * and ends the handles that the host has not ended. Work that waits for an event which nobody has
   * signalled does not run: it fails with BP_ABORTED. The host calls nothing of the instance after
   * BP_OK.
   *
   * [ENTRY-7] shutdown() returns BP_TIMEOUT if work still runs after timeout_ns nanoseconds. The
   * instance and its handles are then as before, and shutdown() may be called again. With a timeout
   * of 0 it only looks; a timeout of UINT64_MAX never runs out. */
  bp_status (*shutdown)(void* self, uint64_t timeout_ns);

  /* Optional; lends a table that is not part of this ABI, by name and version. It returns
   * BP_NOT_FOUND if the backend has none of that name. */
  bp_status (*get_extension)(void* self, const char* name, uint32_t version,
                             const void** out_extension);

  /* Optional; maps a vendor's status below zero to the BP_* value that hosts treat it as. */
  bp_status (*status_class)(void* self, bp_status code, bp_status* out_class);
} bp_backend;

/* What the host can serve. An offer: a newer one is never an error.
 *
 * A refusal needs words that both sides understand. So these stay as they are in every major: the
 * name and the type of the entry, the members of the request and of the reply, and bp_host up to
 * set_error. */
typedef struct bp_entry_request {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_ENTRY_REQUEST. */
  const void* next;

  uint32_t abi_major_min; /* The majors the host can serve, both ends included. */
  uint32_t abi_major_max;
  uint32_t abi_minor;     /* The newest minor of abi_major_max that the host knows. */
  uint32_t abi_minor_min; /* The oldest minor it serves while abi_major_max is 0; else 0. */
  const bp_host* host;
} bp_entry_request;

/* The backend's answer. The host sets struct_size, struct_type and next before the call. */
typedef struct bp_entry_reply {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_ENTRY_REPLY. */
  const void* next;

  uint32_t abi_major; /* The backend's choice within the host's range. */
  uint32_t abi_minor; /* The minor that the backend was built against. [ENTRY-1] From major 1 on,
                         the minor of a backend may be newer than that of the host. */
  const bp_backend* backend;

  /* The majors that the backend can serve, both ends included. [ENTRY-8] An entry that
   * can read the reply sets abi_major_min and abi_major_max, whatever it returns. [ENTRY-9] A build
   * for major 0 serves no other major, and hosts of other majors do not serve it. */
  uint32_t abi_major_min;
  uint32_t abi_major_max;
} bp_entry_reply;

/* The type of the one symbol a backend exports. [ENTRY-3] Each successful call of the entry makes
 * an instance of its own, bound to the host in `request`; a backend that can serve only one
 * instance answers BP_ALREADY_EXISTS. [ENTRY-2] If no version suits both sides, the entry returns
 * BP_INCOMPATIBLE, and the error text says which versions the backend serves. */
typedef bp_status bp_backend_entry_fn(const bp_entry_request* request, bp_entry_reply* out_reply);

BP_EXPORT bp_backend_entry_fn bp_backend_entry;

/* Returns 1 if the host that sent `request` runs backends built against this header, else 0. It
 * also returns 0 if the request or its bp_host is shorter than in its first release, or has a link
 * that must be understood. */
static inline int bp_abi_is_served(const bp_entry_request* request) {
  const uint32_t major = BP_ABI_MAJOR, minor = BP_ABI_MINOR;
  const uint32_t first_size_bytes = (uint32_t)(offsetof(bp_entry_request, host) + sizeof(void*));
  const uint32_t first_host_bytes = (uint32_t)(offsetof(bp_host, op_describe) + sizeof(void*));
  bp_entry_request r;
  bp_host host;
  if (bp_struct_read(request, first_size_bytes, &r, sizeof(r), NULL) != BP_OK) return 0;
  if (bp_struct_read(r.host, first_host_bytes, &host, sizeof(host), NULL) != BP_OK) return 0;
  if (major < request->abi_major_min || major > request->abi_major_max) return 0;
  if (major > 0) return 1;
  return request->abi_major_max == 0 && minor >= request->abi_minor_min &&
         minor <= request->abi_minor;
}

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BACKPLANE_BACKEND_H_ */
