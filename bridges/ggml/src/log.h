// Lines in ggml's log, and failures of calls of host.h.
#pragma once

#include <stdexcept>
#include <string>

#include "backplane/host.h"
#include "ggml.h"

// ggml-impl.h declares it for backends, beside much that this library does not use.
extern "C" void ggml_log_internal(enum ggml_log_level level, const char* format, ...);

namespace bpg {

// A call of the library that failed. The text names the call and says why.
struct Failure : std::runtime_error {
  Failure(bp_status status, const std::string& text) : std::runtime_error(text), status(status) {}
  bp_status status;
};

// Returns "add: out of memory: the text of the thread's latest failure".
std::string failure_text(bp_status status, const std::string& call);

// Throws Failure unless `status` is BP_OK.
void check(bp_status status, const char* call);

void log_error(const std::string& sentence);
void log_warning(const std::string& sentence);
void log_info(const std::string& sentence);

}  // namespace bpg
