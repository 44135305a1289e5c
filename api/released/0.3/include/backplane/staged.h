/* backplane/staged.h - process groups through host memory, for devices that have none.
 *
 *   bp_staged_groups(gpu, cpu, "gloo", &groups);
 *   groups->create(groups->self, &desc, &group);        desc.devices are devices of gpu's backend
 *
 * The stream of a call copies what is sent to pinned memory, a group of another device, the
 * transport, runs the call there, and the stream copies back what was received. No thread waits; a
 * device without a heap that is host_concurrent gets what was received from a thread of the
 * library. Calls that reduce or broadcast go in chunks of BP_STAGED_CHUNK_BYTES, so that copies and
 * transport run at the same time. All ranks of a group use staged groups, or none. */
#ifndef BACKPLANE_STAGED_H_
#define BACKPLANE_STAGED_H_

#include "backplane/host.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BP_STAGED_CHUNK_BYTES ((uint64_t)4 << 20) /* All ranks cut calls at the same places. */

/* Gives the table "staged" for all devices of the backend of `target`, over the table `table_name`
 * of `transport`, as bp_target_find_process_groups() finds it; that table decides what a call and
 * an option may be. Equal arguments give one table, which lives as long as the registry. Groups are
 * destroyed before either backend is unloaded. Safe from any thread.
 *
 * Returns BP_UNSUPPORTED if `transport` has no groups or cannot wrap addresses, or if `target` has
 * no events that the host signals; BP_NOT_FOUND for a name that `transport` does not have. */
BP_API bp_status bp_staged_groups(const bp_target* target, const bp_target* transport,
                                  const char* table_name,
                                  const bp_process_group_ops** out_process_groups);

#ifdef __cplusplus
}
#endif

#endif /* BACKPLANE_STAGED_H_ */
