/* backplane/program.h - programs whose compiler does not know every op.
 *
 *   bp_program_decompose(target, &desc, &made);
 *   bp_decomposed_program_desc(made, &whole);
 *   compiler->compile(compiler->self, target->device, whole, &executable);
 *   bp_decomposed_program_release(made);
 *
 * A compiler takes the ops that it has kernels for. An op of another vendor, which was described at
 * run time, is seldom among them; the ops of its decomposition are. The host writes them into the
 * program, so that the compiler sees one program in place of several parts.
 *
 * The rules of host.h hold for every function. All are safe from any thread.
 */
#ifndef BACKPLANE_PROGRAM_H_
#define BACKPLANE_PROGRAM_H_

#include "backplane/host.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A program in which decompositions stand for nodes. */
typedef struct bp_decomposed_program bp_decomposed_program;

/* Replaces each node of `desc` for which the compiler of `target` gives a reason in query(), and
 * whose op has a decomposition that serves the call, by the nodes of the decomposition; the same
 * with their nodes, up to 8 deep. What the formula needs in between becomes temporaries behind the
 * values of the program, so the frame of the program stays the same. The launches compute what
 * bp_op_launch() would compute by decompositions.
 *
 * A node stays as it is if the compiler takes it, if a tensor of it names an extent, if its frame
 * is not legal (bp_op_check), or if no decomposition serves it. An attribute with a binding is
 * bound in the nodes of the decomposition if the formula only hands it on to other ops, as in
 * "softmax(x, axis=axis)"; a node with another binding stays as it is. query() of the result says
 * why the compiler does not take a node, and bp_decomposed_program_reason() why no decomposition
 * stands for it. Nothing is compiled.
 *
 * The result points into `desc`, which the caller keeps until the release. Returns what query()
 * returns, and BP_UNSUPPORTED if the device has no compiler or the format is another one. */
BP_API bp_status bp_program_decompose(const bp_target* target, const bp_compile_desc* desc,
                                      bp_decomposed_program** out_program);

/* Lends the request for the whole program, until the release: that of the caller, with another
 * `data`. */
BP_API bp_status bp_decomposed_program_desc(const bp_decomposed_program* program,
                                            const bp_compile_desc** out_desc);

/* Lends why node `node` of the result, which the compiler does not take, stayed as it is, until the
 * release. Gives NULL for every other node. */
BP_API bp_status bp_decomposed_program_reason(const bp_decomposed_program* program, uint64_t node,
                                              const char** out_reason);

/* Ends the program. Executables that were compiled from it stay. NULL is a no-op. */
BP_API bp_status bp_decomposed_program_release(bp_decomposed_program* program);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BACKPLANE_PROGRAM_H_ */
