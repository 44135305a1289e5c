/* backplane/collective.h - devices that work together: reduce, gather, send, receive.
 *
 * An optional table; a device may have several, each with a name. A process group is one
 * communicator as one rank sees it; create() makes those of all ranks that live in this process at
 * once. Calls are data: submit() takes any number of them together, for any of these ranks, so that
 * a set of sends and receives cannot deadlock.
 *
 * [COLLECTIVE-1] All ranks of a process group submit the same calls in the same order; sends and
 * receives pair up by peers. [COLLECTIVE-13] The n-th send from one rank to another pairs up with
 * the n-th receive there from this rank, in the order of the submissions, and within a submit() in
 * the order of its calls. Work runs on the stream of its call.
 *
 * Rules for every entry, unless it says otherwise:
 *   Threads    Safe from any thread; [COLLECTIVE-2] abort() and status() run concurrently with any
 *              call that blocks. One thread at a time submits calls of one process group.
 *   Blocking   create(), split() and shrink() wait for the other ranks, but no longer than their
 *              timeout. No other entry waits.
 *   Errors     Returns a status, with the text in the thread's error slot. [COLLECTIVE-3] If a
 *              rank is gone or late, the work ends within the timeout on every other rank, with
 *              BP_TIMEOUT or BP_ABORTED as a failure of its stream, which status() gives too.
 *   Ownership  The caller owns groups until destroy(). Memory that a call names is borrowed until
 *              its work has ended.
 *
 * Floats may be combined in any order, and rounded to their dtype after each step. [COLLECTIVE-11]
 * Over n ranks a sum, average or scaled sum is off by at most ((1 + u)^(n + 1) - 1) times the sum
 * of the magnitudes of its terms, and a product by as much of its own magnitude, where u is 2^-11
 * for f16, 2^-8 for bf16, 2^-24 for f32 and 2^-53 for f64. This holds where no step overflows or is
 * subnormal. Minima and maxima are exact. Integers wrap.
 */
#ifndef BACKPLANE_COLLECTIVE_H_
#define BACKPLANE_COLLECTIVE_H_

#include "backplane/memory.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bp_process_group bp_process_group;

/* Where ranks find each other: keys and values that all processes see. An offer of the host, valid
 * as long as the groups that were made with it, and safe from any thread. [COLLECTIVE-4] A backend
 * uses only keys of a bp_store that begin with the key_prefix of its bp_process_group_desc. Keys
 * are never removed: a prefix serves one create(), and the groups that are split and shrunk from
 * it, and is never used again in that store. */
typedef struct bp_store {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_STORE. */
  const void* next;
  void* self;

  /* Copies up to `capacity` bytes of the value, and sets *out_size_bytes to all of it. get() waits
   * for the key, or returns BP_TIMEOUT after timeout_ns nanoseconds; try_get() returns BP_NOT_FOUND
   * without an error text. put() replaces an earlier value. */
  bp_status (*get)(void* self, const char* key, uint64_t timeout_ns, uint64_t capacity,
                   void* out_value, uint64_t* out_size_bytes);
  bp_status (*try_get)(void* self, const char* key, uint64_t capacity, void* out_value,
                       uint64_t* out_size_bytes);
  bp_status (*put)(void* self, const char* key, const void* value, uint64_t size_bytes);
} bp_store;

/* The ranks of this process in a new group. A request. */
typedef struct bp_process_group_desc {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_PROCESS_GROUP_DESC. */
  const void* next;
  bp_device* const* devices; /* One for each local rank. */
  const uint32_t* ranks;     /* The ranks of `devices`, below world_size, each once. */
  uint32_t local_count;
  uint32_t world_size;
  const bp_store* store;  /* May be NULL if all ranks are local. */
  const char* key_prefix; /* The group's keys in `store` begin with it. */
  uint64_t timeout_ns;    /* For create(), and for calls that give 0; UINT64_MAX never expires. */
  /* The name of the table that makes the groups, such as "mpi". NULL or "": the table that is
   * called, which is the first one of the device unless the host looked for another. */
  const char* table_name;
  uint64_t option_count;
  const bp_option* options; /* Options of this table alone, such as "max_ctas". Groups that are
                               split and shrunk from these have them too. */
} bp_process_group_desc;

typedef uint32_t bp_collective_kind;
enum {
  BP_COLLECTIVE_ALL_REDUCE = 1,
  BP_COLLECTIVE_REDUCE = 2,
  BP_COLLECTIVE_BROADCAST = 3,
  BP_COLLECTIVE_ALL_GATHER = 4,
  BP_COLLECTIVE_REDUCE_SCATTER = 5,
  BP_COLLECTIVE_ALL_TO_ALL = 6,
  BP_COLLECTIVE_GATHER = 7,
  BP_COLLECTIVE_SCATTER = 8,
  BP_COLLECTIVE_SEND = 9,
  BP_COLLECTIVE_RECEIVE = 10,
  BP_COLLECTIVE_BARRIER = 11
};

typedef uint32_t bp_reduction;
enum {
  BP_REDUCTION_SUM = 1,
  BP_REDUCTION_PRODUCT = 2,
  BP_REDUCTION_MIN = 3,
  BP_REDUCTION_MAX = 4,
  BP_REDUCTION_AVERAGE = 5,
  BP_REDUCTION_SCALED_SUM = 6 /* Each rank's elements are first multiplied by its `scale`. */
};

/* One call of one rank. A request. With n ranks, each kind reads and writes these ranges:
 *
 *   all_reduce       send count             receive count, equal on all ranks
 *   reduce           send count             receive count, at root
 *   broadcast        send count, at root    receive count
 *   all_gather       send count             receive n * count, in order of the ranks
 *   reduce_scatter   send n * count         receive count, part `rank`
 *   all_to_all       send n * count         receive n * count: part i goes to rank i
 *   gather, scatter  as all_gather and its inverse, the whole at root
 *   send, receive    send or receive count; root is the peer
 *   barrier          nothing
 *
 * A range that a rank neither reads nor writes, by this table, may be all zero in its call.
 *
 * For uneven parts `counts`, with n entries, replaces count where the table says n * count, and
 * all_to_all has receive_counts as well. [COLLECTIVE-5] In a call that is in place, send and
 * receive are one range, or the smaller is the part of the larger that belongs to the rank; else
 * send and receive do not overlap. */
typedef struct bp_collective_call {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_COLLECTIVE_CALL. */
  const void* next;
  bp_process_group* group;
  bp_stream* stream; /* A stream of the group's device. */
  bp_buffer_ref send;
  bp_buffer_ref receive;
  uint64_t count;                 /* In elements. */
  const uint64_t* counts;         /* NULL: even parts. Borrowed during the call. */
  const uint64_t* receive_counts; /* NULL: the same as `counts`. Borrowed during the call. */
  double scale;                   /* For BP_REDUCTION_SCALED_SUM. */
  uint64_t timeout_ns;            /* 0: the timeout of the group. */
  bp_collective_kind kind;
  bp_reduction reduction; /* 0 for kinds that do not reduce. */
  bp_dtype dtype;
  uint32_t root; /* The peer for send and receive. */
} bp_collective_call;

/* One way of a backend to join devices. An offer. A backend may add several of these tables for a
 * device, each with another name. A group is used through the table that made it. */
typedef struct bp_process_group_ops {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_PROCESS_GROUP_OPS. */
  const void* next;
  void* self;

  const char* name; /* [a-z0-9_]+: the library's, such as "gloo" or "mpi", or the backend's own,
                       such as "local". */

  /* Makes desc->local_count groups, in the order of desc->ranks. [COLLECTIVE-6] A create() that
   * fails makes no group, on any rank. [COLLECTIVE-14] If desc->table_name is the name of another
   * table, create() returns BP_NOT_FOUND. [COLLECTIVE-15] create() returns BP_NOT_FOUND for an
   * option whose key the table does not have, and BP_INVALID_ARGUMENT for a value that does not
   * fit, with a text that says what is allowed. */
  bp_status (*create)(void* self, const bp_process_group_desc* desc, bp_process_group** out_groups);

  /* [COLLECTIVE-7] Work submitted before destroy() completes or times out. NULL is a no-op. */
  bp_status (*destroy)(void* self, bp_process_group* group);

  /* Returns BP_OK if the backend runs such calls, else BP_UNSUPPORTED. `reduction` is 0 for kinds
   * that do not reduce. [COLLECTIVE-16] supports() and submit() return BP_UNSUPPORTED for a kind, a
   * reduction or a dtype that the table does not know. */
  bp_status (*supports)(void* self, bp_process_group* group, bp_collective_kind kind,
                        bp_reduction reduction, bp_dtype dtype);

  /* Submits `call_count` calls together, each call_stride_bytes behind the one before.
   * [COLLECTIVE-12] A call_stride_bytes below the struct_size of a call is BP_INVALID_ARGUMENT.
   * [COLLECTIVE-8] If submit() refuses one of its calls, it submits none of them. [COLLECTIVE-9]
   * Results of all_reduce are equal in every bit on all ranks. */
  bp_status (*submit)(void* self, uint64_t call_count, const bp_collective_call* calls,
                      uint64_t call_stride_bytes);

  /* Ends all work of the group, here and on the other ranks, with BP_ABORTED, and never waits.
   * [COLLECTIVE-10] Later calls of an aborted group return BP_ABORTED; a new group can be made. */
  bp_status (*abort)(void* self, bp_process_group* group);

  /* Returns BP_OK, or why the group cannot be used any more. status() never waits. */
  bp_status (*status)(void* self, bp_process_group* group);

  /* [COLLECTIVE-17] split() makes groups of the ranks that give the same color, ordered by key,
   * then by rank. Every rank calls it: `groups`, `colors`, `keys` and `out_groups` have an entry
   * for each rank of this process. For a color of UINT32_MAX the out group becomes NULL. A
   * timeout_ns of 0 is the timeout of the group, here and for shrink(). */
  bp_status (*split)(void* self, uint32_t local_count, bp_process_group* const* groups,
                     const uint32_t* colors, const uint32_t* keys, uint64_t timeout_ns,
                     bp_process_group** out_groups);

  /* [COLLECTIVE-18] shrink() makes groups without the listed ranks, after a failure. All other
   * ranks call it, as they do split(). Ranks keep their order. The old groups are aborted. */
  bp_status (*shrink)(void* self, uint32_t local_count, bp_process_group* const* groups,
                      uint32_t gone_count, const uint32_t* gone_ranks, uint64_t timeout_ns,
                      bp_process_group** out_groups);

  /* Optional; prepares a range for calls of the group, until deregister_buffer() with the same
   * range, which comes before the memory is freed. register_buffer() is a hint. */
  bp_status (*register_buffer)(void* self, bp_process_group* group, const bp_buffer_ref* range);
  bp_status (*deregister_buffer)(void* self, bp_process_group* group, const bp_buffer_ref* range);

  /* Since 0.3: gives the rank of `group`, and how many ranks there are. [COLLECTIVE-19] After
   * split() and shrink(), rank() gives the places in the new groups. It never waits, and answers
   * for a group that has ended too. */
  bp_status (*rank)(void* self, bp_process_group* group, uint32_t* out_rank,
                    uint32_t* out_world_size);
} bp_process_group_ops;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BACKPLANE_COLLECTIVE_H_ */
