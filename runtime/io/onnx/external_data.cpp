#include "runtime/io/onnx/external_data.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "backplane/runtime/error.hpp"
#include "registry/files/read_file.hpp"

namespace bp::onnx {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& what, const std::string& why) {
  throw Error(BP_INVALID_ARGUMENT, what + ": " + why);
}

// Returns the path of the file without links.
fs::path resolve(const std::string& folder, const std::string& location, const std::string& what) {
  const std::string shown = "its external data '" + location + "' ";
  const fs::path given(location);
  if (location.empty()) refuse(what, "its external data has no location");
  if (given.is_absolute()) {
    refuse(what, shown + "is an absolute path; allowed: a file in the folder of the model");
  }
  if (std::ranges::find(given, fs::path("..")) != given.end()) {
    refuse(what, shown + "has '..'; allowed: a file in the folder of the model");
  }
  std::error_code error;
  const fs::path root = fs::canonical(folder.empty() ? fs::path(".") : fs::path(folder), error);
  if (error) refuse(what, "the folder '" + folder + "' cannot be read: " + error.message());
  fs::path file = fs::canonical(root / given, error);
  if (error) refuse(what, shown + "cannot be read: " + error.message());
  const auto [end, rest] = std::ranges::mismatch(root, file);
  if (end != root.end()) {
    refuse(what, shown + "leads out of the folder of the model through a link");
  }
  const std::string defect = regular_file_defect(file);
  if (!defect.empty()) refuse(what, shown + "cannot be read: " + defect);
  return file;
}

}  // namespace

std::vector<uint8_t> read_external(const std::string& folder, const ExternalPlace& place,
                                   uint64_t needed_bytes, const std::string& what) {
  const fs::path path = resolve(folder, place.location, what);
  const std::string shown = "its external data '" + place.location + "' ";
  if (place.has_length && place.length != needed_bytes) {
    refuse(what, shown + "has the length " + std::to_string(place.length) +
                     ", but its dtype and dims need " + std::to_string(needed_bytes) + " bytes");
  }
  std::error_code error;
  const uint64_t file_bytes = fs::file_size(path, error);
  if (error) refuse(what, shown + "cannot be read: " + error.message());
  if (place.offset > file_bytes || needed_bytes > file_bytes - place.offset) {
    refuse(what, shown + "needs bytes " + std::to_string(place.offset) + " to " +
                     std::to_string(place.offset) + " + " + std::to_string(needed_bytes) +
                     ", but the file has " + std::to_string(file_bytes) + " (is it truncated?)");
  }
  std::ifstream file(path, std::ios::binary);
  std::vector<uint8_t> bytes(needed_bytes);
  file.seekg(static_cast<std::streamoff>(place.offset));
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!file) refuse(what, shown + "cannot be read");
  return bytes;
}

}  // namespace bp::onnx
