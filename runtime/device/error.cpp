#include "backplane/runtime/error.hpp"

namespace bp::detail {

void throw_status(bp_status status, const char* call) {
  const char* text = bp_error_text();
  std::string message;
  if (call != nullptr) message = std::string(call) + ": " + bp_status_name(status) + ": ";
  message += *text != '\0' ? text : bp_status_name(status);
  throw Error(status, message);
}

}  // namespace bp::detail
