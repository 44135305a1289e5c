// No other source of the library reads the environment.
#include <cstdlib>
#include <string_view>

#include "backplane/host.h"

const char* bp_environment(const char* name) {
  if (name == nullptr || !std::string_view(name).starts_with("BACKPLANE_")) return nullptr;
  return secure_getenv(name);
}
