// The options of the backend, which the user sets.
#pragma once

#include <string_view>

#include "backplane/base.h"

namespace bp::cpu {

struct Options {
  // The number of threads that a kernel may use; 0 means one thread for each processor.
  int thread_count = 0;
};

// Reads the options that the user gave to `host`. Throws StatusError for a value that is not valid.
Options read_options(const bp_host& host);

// Reads a value of the option "threads", which can be changed at run time. Throws StatusError if
// the text is not a valid number of threads.
int read_thread_count(std::string_view text);

}  // namespace bp::cpu
