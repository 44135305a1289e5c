#include "log.h"

#include "ggml.h"

namespace bpg {

std::string failure_text(bp_status status, const std::string& call) {
  return call + ": " + bp_status_name(status) + ": " + bp_error_text();
}

void check(bp_status status, const char* call) {
  if (status != BP_OK) throw Failure(status, failure_text(status, call));
}

void log_error(const std::string& sentence) {
  ggml_log_internal(GGML_LOG_LEVEL_ERROR, "ggml-backplane: %s\n", sentence.c_str());
}
void log_warning(const std::string& sentence) {
  ggml_log_internal(GGML_LOG_LEVEL_WARN, "ggml-backplane: %s\n", sentence.c_str());
}
void log_info(const std::string& sentence) {
  ggml_log_internal(GGML_LOG_LEVEL_INFO, "ggml-backplane: %s\n", sentence.c_str());
}

}  // namespace bpg
