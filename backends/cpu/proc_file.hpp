// Reads files of the Linux kernel whose lines are "key : value", such as /proc/cpuinfo.
#pragma once

#include <fstream>
#include <string>

namespace bp::cpu {

// Returns the value of the first line whose key is `key`, or "" if there is none.
inline std::string first_value(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || line.compare(0, key.size(), key) != 0) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

}  // namespace bp::cpu
