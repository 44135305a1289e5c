// The registry's own copies of a backend's tables: every slot can be called, before and after the
// unload of the backend.
#pragma once

#include <string>
#include <vector>

#include "backplane/backend.h"

namespace bp::core {

// A copy of each table. If the struct_size of a copy is 0, the table was not added.
struct Tables {
#define BP_TABLE(table, struct_type, last, member) table member{};
#include "registry/boundary/slots.def"
  std::vector<bp_process_group_ops> more_process_groups;  // Those of other names than the first.
};

// Returns why an entry cannot be read: its type, its size, or an unknown link that the reader must
// understand. Returns "" if it can be read. `first_size_bytes` is the size of the first release.
std::string struct_defect(const void* entry, uint32_t struct_type, uint32_t first_size_bytes);

// Copies `theirs` into `ours`, and fills absent slots with functions that return BP_UNSUPPORTED. A
// name stays that of the backend.
// Appends "stream.flush " to `missing` for each slot that the header needs and that is absent.
// Returns why `theirs` cannot be used, or "".
template <typename Table>
std::string copy_table(const Table* theirs, Table& ours, std::string& missing);

// Returns the tables that were added. Bit t stands for the table of struct type t.
uint64_t added_tables(const Tables& tables);

// Fills every slot of the tables that were not added with a function that returns BP_UNSUPPORTED.
// The name of a table that was not added is "".
void fill_absent_tables(Tables& tables);

// Replaces every slot: deallocate and destroy do nothing, all others return BP_DEVICE_LOST.
void end_tables(Tables& tables);

}  // namespace bp::core
