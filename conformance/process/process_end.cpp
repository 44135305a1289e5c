#include "conformance/process/process_end.hpp"

#include <string.h>
#include <sys/wait.h>

namespace bp::conformance {

std::string ProcessEnd::text() const {
  if (is_abandoned) return "the process did not die of SIGKILL and was abandoned";
  std::string text = has_lost_warden ? "the parent of the process, which only watches it, " : "";
  if (WIFSIGNALED(wait_status)) {
    const int number = WTERMSIG(wait_status);
    const char* name = sigabbrev_np(number);
    text += "died of signal " + std::to_string(number) +
            (name == nullptr ? "" : std::string(" (SIG") + name + ")");
  } else {
    text += (has_lost_warden ? "exited with code " : "the process exited with code ") +
            std::to_string(WEXITSTATUS(wait_status));
  }
  return has_lost_warden ? text + ": the backend may have killed its parent" : text;
}

}  // namespace bp::conformance
