// What the user chooses: the options of the backend.
#pragma once

#include <string_view>

#include "backplane/base.h"

namespace bp::cpu {

struct Options {
  // How many threads a kernel may use; 0: one for each processor.
  int thread_count = 0;
};

// The options that the user gave to `host`. Throws StatusError for a value that does not fit.
Options read_options(const bp_host& host);

// The value of the option "threads", which can be changed at run time. Throws StatusError for a
// text that is no number of threads.
int read_thread_count(std::string_view text);

}  // namespace bp::cpu
