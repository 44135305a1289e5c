// The registry's own copies of a backend's tables: every slot can be called, before and after the
// unload of the backend.
#pragma once

#include <string>

#include "backplane/backend.h"

namespace bp::core {

// Why an entry cannot be read: its type, its size, or a link that must be understood and is not; ""
// if it can. `first_size_bytes` is that of the first release.
std::string struct_defect(const void* entry, uint32_t struct_type, uint32_t first_size_bytes);

// Copies `theirs` into `ours`, and fills absent slots with functions that return BP_UNSUPPORTED.
// Appends "stream.flush " to `missing` for each slot that the header needs and that is absent.
// Returns why `theirs` cannot be used, or "".
std::string copy_table(const bp_device_ops* theirs, bp_device_ops& ours, std::string& missing);
std::string copy_table(const bp_allocator_ops* theirs, bp_allocator_ops& ours,
                       std::string& missing);
std::string copy_table(const bp_stream_ops* theirs, bp_stream_ops& ours, std::string& missing);
std::string copy_table(const bp_event_ops* theirs, bp_event_ops& ours, std::string& missing);

// Replaces every slot: free and destroy do nothing, all others return BP_DEVICE_LOST.
void end_table(bp_device_ops& table);
void end_table(bp_allocator_ops& table);
void end_table(bp_stream_ops& table);
void end_table(bp_event_ops& table);

}  // namespace bp::core
