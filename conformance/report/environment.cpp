#include "conformance/report/environment.hpp"

#include <sys/utsname.h>

#include <ctime>
#include <fstream>
#include <string>
#include <thread>

#include "registry/boundary/plugin_text.hpp"

namespace bp::conformance {
namespace {

// Returns what follows `key` in the first line of a file that begins with it.
std::string value_in(const char* file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    std::string value = line.substr(key.size());
    value.erase(0, value.find_first_not_of(" \t:=\""));
    while (value.ends_with('"')) value.pop_back();
    return clean_text(value, LineBreaks::kEscape);
  }
  return "";
}

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace

nlohmann::json environment_json() {
  utsname name = {};
  const bool is_known = uname(&name) == 0;
  return {{"system", value_in("/etc/os-release", "PRETTY_NAME")},
          {"kernel", is_known ? std::string(name.sysname) + " " + name.release : ""},
          {"machine", is_known ? name.machine : ""},
          {"processor", value_in("/proc/cpuinfo", "model name")},
          {"processors", std::thread::hardware_concurrency()},
          {"compiler", __VERSION__},
          {"time", now_text()}};
}

}  // namespace bp::conformance
