// The size that each struct of the ABI had when it was first released, which is the end of its last
// member at that time. This size does not grow when the struct grows. A smaller struct was never
// released.
//
//   const auto desc =
//       read_desc(theirs, kFirstSize<bp_stream_desc>, BP_STRUCT_STREAM_DESC, "create");
#pragma once

#include <cstddef>
#include <cstdint>

#include "backplane/backend.h"
#include "backplane/collective.h"
#include "backplane/compiler.h"
#include "backplane/graph.h"
#include "backplane/layout.h"
#include "backplane/memory.h"
#include "backplane/profiler.h"
#include "backplane/semaphore.h"
#include "backplane/stream.h"

namespace bp {

// Structs that are not listed below have no first size.
template <typename Struct>
inline constexpr uint32_t kFirstSize = Struct::has_no_first_size;

#define BP_FIRST_SIZE(type, last) \
  template <>                     \
  inline constexpr uint32_t kFirstSize<type> = (offsetof(type, last) + sizeof(type::last))

BP_FIRST_SIZE(bp_address_info, size_bytes);
BP_FIRST_SIZE(bp_allocate_desc, usage);
BP_FIRST_SIZE(bp_buffer_info, reserved);
BP_FIRST_SIZE(bp_capture_desc, slot_count);
BP_FIRST_SIZE(bp_capture_info, is_origin);
BP_FIRST_SIZE(bp_collective_call, root);
BP_FIRST_SIZE(bp_compile_desc, target_size_bytes);
BP_FIRST_SIZE(bp_entry_reply, abi_major_max);
BP_FIRST_SIZE(bp_event_desc, reserved);
BP_FIRST_SIZE(bp_executable_info, reserved);
BP_FIRST_SIZE(bp_external_handle, bytes);
BP_FIRST_SIZE(bp_layout_desc, format_name);
BP_FIRST_SIZE(bp_peer_info, reserved);
BP_FIRST_SIZE(bp_plan_info, algorithm);
BP_FIRST_SIZE(bp_prepare_desc, constant_arg_count);
BP_FIRST_SIZE(bp_process_group_desc, options);
BP_FIRST_SIZE(bp_profile_desc, kinds);
BP_FIRST_SIZE(bp_program, alias_count);
BP_FIRST_SIZE(bp_program_extent, term_count);
BP_FIRST_SIZE(bp_program_node, binding_count);
BP_FIRST_SIZE(bp_program_value, layout);
BP_FIRST_SIZE(bp_registrar, add_ops);
BP_FIRST_SIZE(bp_semaphore_desc, reserved);
BP_FIRST_SIZE(bp_store, put);
BP_FIRST_SIZE(bp_stream_desc, priority);

#undef BP_FIRST_SIZE

}  // namespace bp
