/* backplane/graph.h - record work once, replay it often.
 *
 * An optional table. Between begin_capture() and end_capture() what is submitted to the stream is
 * recorded instead of run; so is work of other streams that wait for an event recorded there.
 *
 *   begin_capture(stream, {slots: x, y}); launch(...); copy(...); end_capture(stream) -> graph
 *   instantiate(graph) -> instance
 *   bind(instance, 0, x2); bind(instance, 1, y2); launch(instance, stream)     as often as wanted
 *
 * A capture allows launches of kernels flagged BP_KERNEL_CAPTURABLE, copies between buffers, fills,
 * record and wait, and collectives and conversions of layouts that the backend captures. [GRAPH-1]
 * On a capturing stream, a call that a capture does not allow is BP_INVALID_ARGUMENT with nothing
 * recorded, and the capture stays valid.
 *
 * The caller owns what recorded work uses, and keeps it until the graph and all instances of it
 * have ended and their replays have completed: buffers, workspace included, plans with their packed
 * memory, layouts, executables. Memory that lies inside slots is needed only by the launches that
 * are made with it. A capture copies frames, shapes, strides, lists and patterns.
 *
 * Rules for every entry, unless it says otherwise:
 *   Threads    Safe from any thread; one instance is bound and launched by one thread at a time.
 *   Blocking   Never waits for the device. instantiate() may compile.
 *   Errors     Returns a status, with the text in the thread's error slot.
 *   Ownership  The caller owns graphs and instances until the matching destroy().
 */
#ifndef BACKPLANE_GRAPH_H_
#define BACKPLANE_GRAPH_H_

#include "backplane/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bp_graph bp_graph;
typedef struct bp_graph_instance bp_graph_instance;

/* What a capture is for. A request; NULL is all zero. */
typedef struct bp_capture_desc {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_CAPTURE_DESC. */
  const void* next;
  /* Slots are ranges that stand for others: slot i is slots[i], and what work reads and writes
   * inside it is replayed on the range that bind() gave. Slots do not overlap. Borrowed during the
   * call. */
  const bp_buffer_ref* slots;
  uint64_t slot_count;
} bp_capture_desc;

/* The state of a capture. An offer; the caller sets struct_size. */
typedef struct bp_capture_info {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_CAPTURE_INFO. */
  const void* next;
  uint64_t node_count; /* Pieces of work that were recorded so far. */
  uint64_t capture_id; /* Never used again in this process; 0: the stream does not capture. */
  uint32_t is_valid;   /* 0: end_capture() will fail. */
  uint32_t is_origin;  /* 1 on the stream that began the capture. */
} bp_capture_info;

/* The functions of one backend. An offer. */
typedef struct bp_graph_ops {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_GRAPH_OPS. */
  const void* next;
  void* self;

  /* Begins a capture on `stream`. [GRAPH-2] begin_capture() returns BP_INVALID_ARGUMENT if the
   * stream captures already, and BP_STREAM_FAILED if it has failed. */
  bp_status (*begin_capture)(void* self, bp_stream* stream, const bp_capture_desc* desc);

  bp_status (*capture_info)(void* self, bp_stream* stream, bp_capture_info* out_info);

  /* Ends the capture that began on `stream`. [GRAPH-3] end_capture() returns
   * BP_INVALID_ARGUMENT, and the capture is gone, if another stream of the capture was not joined
   * again by an event that `stream` waits for. A NULL out_graph abandons the capture. [GRAPH-4]
   * After end_capture() the streams of the capture run work as before. */
  bp_status (*end_capture)(void* self, bp_stream* stream, bp_graph** out_graph);

  /* Makes a graph ready to run on its device. [GRAPH-5] An instance can outlive its graph. */
  bp_status (*instantiate)(void* self, bp_graph* graph, bp_graph_instance** out_instance);

  /* Puts `range`, of at least the slot's size and of the alignment that the recorded work needs, in
   * the place of a slot, counted from 0, for the launches to come. [GRAPH-6] A launch that was
   * submitted keeps the ranges that it was launched with. Until the first bind() a slot is its own
   * range. */
  bp_status (*bind)(void* self, bp_graph_instance* instance, uint64_t slot,
                    const bp_buffer_ref* range);

  /* Lets the instance take over a graph that has the same nodes in the same order, with other
   * arguments. [GRAPH-7] If the nodes or their order differ, update() returns BP_UNSUPPORTED, the
   * error text names the node that differs, and the instance stays as it was: call instantiate()
   * instead. */
  bp_status (*update)(void* self, bp_graph_instance* instance, bp_graph* graph);

  /* Submits the work to `stream`, of the same device. [GRAPH-8] A replay gives what the recorded
   * calls would give if they were made in its place. [GRAPH-9] Replays of one instance run one
   * after the other. */
  bp_status (*launch)(void* self, bp_graph_instance* instance, bp_stream* stream);

  /* [GRAPH-10] For destroy() and destroy_instance() NULL is a no-op, and replays that were
   * submitted complete. */
  bp_status (*destroy)(void* self, bp_graph* graph);
  bp_status (*destroy_instance)(void* self, bp_graph_instance* instance);

  /* Writes a line for each node into `text`, for people. The text ends with a zero byte and is cut
   * at `capacity`; *out_size is what the whole text needs, the zero byte included. */
  bp_status (*dump)(void* self, bp_graph* graph, uint64_t capacity, char* text, uint64_t* out_size);
} bp_graph_ops;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BACKPLANE_GRAPH_H_ */
