// The scratch memory of a launch.
#pragma once

#include <cstdint>
#include <string>

#include "backplane/kernel.h"
#include "backplane/shell/buffers.hpp"

namespace bp {

// bp_launch promises that its workspace begins at a multiple of this.
constexpr uint64_t kWorkspaceAlignmentBytes = 256;

// Checks that the workspace of a launch has needed_bytes. `subject` begins the sentence: "launch".
// Throws StatusError.
inline void check_workspace(const bp_buffer_ref& workspace, uint64_t needed_bytes,
                            const char* subject) {
  if (workspace.size_bytes < needed_bytes) {
    refuse(BP_INVALID_ARGUMENT, std::string(subject) + ": workspace has " +
                                    std::to_string(workspace.size_bytes) +
                                    " bytes; the launch needs " + std::to_string(needed_bytes));
  }
  if (needed_bytes != 0 && workspace.buffer == nullptr) {
    refuse_buffer(std::string(subject) + ": workspace");
  }
}

}  // namespace bp
