/* backplane/capture.h - record the work of a program once, with its memory, and replay it often.
 *
 * The captures of graph.h record launches whose memory the caller keeps. A capture of the host also
 * keeps the memory, so that every op can be recorded, also one that needs workspace:
 *
 *   bp_capture_begin(target, stream, NULL, &capture);
 *   bp_block_allocate(target, stream, size, &block);
 *   bp_op_launch(target, stream, 0, op, &args);
 *   bp_capture_end(capture, &graph);
 *   bp_captured_graph_launch(graph, stream);    This call is made as often as wanted.
 *   bp_captured_graph_destroy(graph);
 *
 * While a capture is open, all memory that the host hands out for its streams comes from a pool of
 * the capture: blocks, workspace, tensors for inline scalars, packed memory of prepared ops. The
 * streams of a capture are the one that began it, and those that wait for an event recorded in it
 * (graph.h). bp_op_launch() passes over kernels without BP_KERNEL_CAPTURABLE. A block that is freed
 * on such a stream is reused on it at once, without an event. A block that bp_block_record_stream()
 * gave to another stream is not reused in the capture.
 *
 * The captured graph owns the pool, and keeps the plans and programs that the recorded launches
 * use. A block of the pool that the caller still holds at the end stays the caller's: each replay
 * writes it as the recorded work did, and its memory ends when both the block is freed and the
 * graph is destroyed. No other block gets this memory. What was allocated before the capture, and
 * is used in it, the caller keeps until the graph is destroyed.
 *
 * The rules of host.h hold for every function. Each capture and each graph is used by one thread at
 * a time. After a reset of the device, each call for a capture or a graph from before it is
 * BP_DEVICE_LOST; bp_captured_graph_destroy() then only frees the handle, and bp_capture_end() too.
 * Both may be called after the unload as well, but not after bp_registry_destroy().
 */
#ifndef BACKPLANE_CAPTURE_H_
#define BACKPLANE_CAPTURE_H_

#include "backplane/host.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The struct types of this header, from the block of host.h. */
enum { BP_STRUCT_CAPTURED_GRAPH_INFO = 0x00100020 };

/* An open capture. */
typedef struct bp_capture bp_capture;

/* Recorded work with its memory. */
typedef struct bp_captured_graph bp_captured_graph;

/* Begins a capture on `stream` (NULL: the default stream). `desc` is that of graph.h: it names the
 * slots; NULL is all zero. What a capture does not allow, such as copies to the host, is refused as
 * graph.h says, and so is an op that only the host fallback serves, and a block of a private pool
 * (blocks.h): BP_INVALID_ARGUMENT, and the capture stays valid.
 *
 * A device that records no graphs, or runs compiled programs alone, has a capture as a program, as
 * bp_capture_begin_program() makes it. Returns BP_UNSUPPORTED if it has no compiler either, and the
 * failure of the backend, such as BP_INVALID_ARGUMENT for a stream that captures already. */
BP_API bp_status bp_capture_begin(const bp_target* target, bp_stream* stream,
                                  const bp_capture_desc* desc, bp_capture** out_capture);

/* Begins a capture that writes the launches on `stream` into one program (compiler.h), which
 * bp_capture_end() compiles. Nothing runs until the graph is launched, and the graph is used like
 * any other one.
 *
 * The program has each launch of an op or of a prepared op on this stream, and each copy and fill
 * within the device. What the compiler does not take is written as its decomposition (program.h),
 * or in other dtypes. Memory from before the capture is input where it is read, and output where it
 * is written. Blocks of the capture that the caller holds at the end are outputs. All others are
 * temporaries of the program, and the memory that they had goes back to the backend. Copies from
 * and to the host, and bp_kernel_launch(), are BP_INVALID_ARGUMENT meanwhile, and the capture stays
 * valid. Functions of the backend's tables of streams, events and process groups are not recorded
 * and run at once.
 *
 * A launch is BP_UNSUPPORTED if the compiler takes none of the forms in which bp_op_launch() serves
 * it on the device, if a tensor is in a layout or has flags, or if its flags are not those of the
 * first launch; the capture stays valid. bp_capture_end() is BP_INVALID_ARGUMENT if a launch reads
 * memory of the capture that no launch before it has written, and else returns what compile() did,
 * with the node and the reason in the text.
 *
 * Returns BP_UNSUPPORTED if the device has no compiler, and BP_INVALID_ARGUMENT if the stream
 * captures already. */
BP_API bp_status bp_capture_begin_program(const bp_target* target, bp_stream* stream,
                                          const bp_capture_desc* desc, bp_capture** out_capture);

/* Ends the capture, whatever the status: `capture` is gone, and a second call with it is
 * BP_INVALID_ARGUMENT and ends nothing. A NULL out_graph abandons what was
 * recorded. After a failure there is no graph: BP_INVALID_ARGUMENT if a stream of the capture was
 * not joined again, BP_DEVICE_LOST after a reset or the unload, else that of the backend. The
 * memory of a capture without a graph goes back once the caller has freed its blocks. */
BP_API bp_status bp_capture_end(bp_capture* capture, bp_captured_graph** out_graph);

/* Submits the recorded work to `stream` (NULL: the default stream), of the same device. Replays of
 * a graph run one after the other, in the order of the calls. */
BP_API bp_status bp_captured_graph_launch(bp_captured_graph* graph, bp_stream* stream);

/* Puts `range` in the place of a slot for the launches to come, as bp_graph_ops.bind() does. The
 * caller keeps the memory of the range until these have ended. */
BP_API bp_status bp_captured_graph_bind(bp_captured_graph* graph, uint64_t slot,
                                        const bp_buffer_ref* range);

typedef struct bp_captured_graph_info {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_CAPTURED_GRAPH_INFO. */
  const void* next;
  uint64_t node_count; /* Pieces of work. */
  uint64_t slot_count;
  uint64_t pool_bytes;  /* Taken from the backend for the pool. */
  uint64_t block_count; /* Blocks of the pool that callers hold. */
  uint64_t kept_count;  /* Plans and programs that the graph keeps. */
  bp_graph* graph;      /* For bp_graph_ops.dump(); NULL for a program. Lent until the destroy. */
} bp_captured_graph_info;

/* The caller sets struct_size. */
BP_API bp_status bp_captured_graph_get_info(const bp_captured_graph* graph,
                                            bp_captured_graph_info* out_info);

/* Ends the graph. Replays that were submitted complete, and the memory of the pool is reused only
 * behind them. NULL is a no-op. The unload of its plugin ends it too: then the call only frees the
 * handle, and every other one is BP_DEVICE_LOST. A handle is never given again: from then on each
 * call with this one is BP_INVALID_ARGUMENT and changes nothing. */
BP_API bp_status bp_captured_graph_destroy(bp_captured_graph* graph);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BACKPLANE_CAPTURE_H_ */
