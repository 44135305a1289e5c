// The log of the program, for lines of the host, of layers and of plugins.
#pragma once

#include <string>

#include "backplane/host.h"
#include "registry/boundary/plugin_text.hpp"

namespace bp::core {

// The function that gets the lines of the log. The lines are cleaned first, because plugins wrote
// some of them. A NULL function drops them.
struct LogSink {
  void (*log)(void* user_data, bp_log_level level, const char* source, const char* message);
  void* user_data;

  void line(bp_log_level level, const std::string& source, const std::string& message) const {
    if (log == nullptr) return;
    log(user_data, level, clean_text(source, LineBreaks::kEscape, kMaxPluginName).c_str(),
        clean_text(message, LineBreaks::kEscape).c_str());
  }
};

}  // namespace bp::core
