// What a frame gives that came after the revision of the operators for which a kernel was written.
// A compiler gets the frames of the host's callers, so it keeps them from its kernels as hosts do.
#pragma once

#include <string>

#include "backplane/kernel.h"
#include "backplane/shell/frame.hpp"

namespace bp {

// Returns what `frame` gives that `kernel` does not know, in words such as "window is given; the
// kernel was written for revision 3". Returns "" if the kernel knows all of it. If this build is
// older than the caller, the descriptions of `host` name the member.
std::string later_refusal(const bp_host& host, const bp_kernel& kernel, const OwnedFrame& frame);

}  // namespace bp
