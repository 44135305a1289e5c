/* backplane/staged.h - process groups for devices whose backend has none, through host memory.
 *
 *   const bp_process_group_ops* groups;
 *   bp_staged_groups(gpu, cpu, "gloo", &groups);
 *   groups->create(groups->self, &desc, &group);        desc.devices are devices of gpu's backend
 *
 * A staged group copies what a call sends to pinned host memory (pinned.h), lets a group of another
 * device, the transport, run the call there, and copies what was received back. Nothing waits on
 * the host: the stream of the call waits for the copies, and those for the call of the transport.
 * Large calls that reduce or broadcast go in chunks of BP_STAGED_CHUNK_BYTES, so that copies and
 * transport run at the same time. All ranks of a group use staged groups, or none.
 *
 * The rules of host.h hold for the function, and those of collective.h for the table.
 */
#ifndef BACKPLANE_STAGED_H_
#define BACKPLANE_STAGED_H_

#include "backplane/host.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The bytes of a chunk. It is part of the protocol between ranks. */
#define BP_STAGED_CHUNK_BYTES ((uint64_t)4 << 20)

/* Gives the table of staged groups, with the name "staged", for all devices of the backend of
 * `target`. `transport` is a device of the host, and `table_name` names one of its tables, as
 * bp_target_find_process_groups() takes it. What a call may be, and every option, is up to that
 * table. Equal arguments give the same table, which lives as long as the registry. Groups are
 * destroyed before either backend is unloaded.
 *
 * Returns BP_NOT_FOUND for a table that `transport` does not have; BP_UNSUPPORTED if it has none, if
 * its allocator cannot wrap addresses, or if the device of `target` has no events that the host
 * signals or no heap that is host_visible, host_coherent and host_concurrent; BP_INVALID_ARGUMENT
 * for targets of two registries. */
BP_API bp_status bp_staged_groups(const bp_target* target, const bp_target* transport,
                                  const char* table_name,
                                  const bp_process_group_ops** out_process_groups);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BACKPLANE_STAGED_H_ */
