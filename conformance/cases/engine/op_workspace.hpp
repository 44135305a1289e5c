// The workspace of a launch, in guarded memory.
#pragma once

#include "conformance/cases/engine/op_launch.hpp"

namespace bp::conformance {

// What a kernel answers when it is asked for its workspace.
struct WorkspaceBytes {
  uint64_t required = 0, preferred = 0;

  bool operator==(const WorkspaceBytes&) const = default;
};

// Asks `kernel` for the workspace of a launch. A kernel without workspace_size() needs none.
bp_status ask_for_workspace(const bp_kernel& kernel, bp_device* device, bp_launch_flags flags,
                            const void* frame, WorkspaceBytes& out);

// Memory of exactly the size that was asked for, between canaries. It begins at an odd multiple of
// 256 bytes, because a host promises no larger alignment.
class Workspace {
 public:
  Workspace(const MemoryPlace& place_in, uint64_t size_bytes);

  // Returns the range that a launch gets: no buffer if it has no bytes.
  bp_buffer_ref ref() const;

  // Fills the memory on the stream of its place.
  void poison(Poison poison);

  // Reads the memory after the launch, and tells `seen` if a byte outside of it has changed.
  void look(Observation& seen);

 private:
  GuardedTensor memory_;
  bool has_bytes_;
};

}  // namespace bp::conformance
