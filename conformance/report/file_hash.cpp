#include "conformance/report/file_hash.hpp"

#include <fstream>
#include <sstream>

#include "registry/files/sha256.hpp"

namespace bp::conformance {

std::string sha256_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return "";
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return sha256(bytes.str());
}

}  // namespace bp::conformance
