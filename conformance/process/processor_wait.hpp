// How long a process was ready to run while other work had the processors.
#pragma once

#include <sys/types.h>

namespace bp::conformance {

// Returns this time of the thread of the process that has waited longest, since the thread began.
// Returns 0 if the system does not tell.
double seconds_without_processor(pid_t process);

}  // namespace bp::conformance
