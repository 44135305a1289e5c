#include "registry/layers/recording.hpp"

#include <fcntl.h>

#include <filesystem>

#include "registry/boundary/fail.hpp"
#include "registry/files/sha256.hpp"
#include "registry/files/whole_file.hpp"
#include "registry/layers/output_file.hpp"

namespace bp::layers {

namespace fs = std::filesystem;

bp_status Recording::open(const std::string& folder) {
  folder_ = folder;
  std::error_code error;
  const std::string stream = folder + "/stream.jsonl";
  if (fs::exists(stream, error)) {
    return fail(BP_ALREADY_EXISTS, "layer option record.dir: '" + folder +
                                       "' holds a recording; give a folder that is empty or not "
                                       "there yet");
  }
  fs::create_directories(folder + "/payloads", error);
  if (!error && write_to(stream, O_CREAT | O_EXCL, "").empty()) return BP_OK;
  return fail(BP_NOT_FOUND, "layer option record.dir: '" + folder + "' cannot be written");
}

// A payload is there as a whole, or not at all, because it gets its name when it is complete.
std::string Recording::store(const void* bytes, size_t size) {
  std::string name = sha256(bytes, size);
  const std::string path = folder_ + "/payloads/" + name;
  std::error_code error;
  if (has_failed() || fs::exists(path, error)) return name;
  // The payload is not synchronised: a program stores thousands, and a replay detects damage by the
  // name.
  WholeFile file(path, false);
  file.write(bytes, size);
  if (!file.commit().empty()) has_failed_ = true;
  return name;
}

void Recording::write(const Json& line) {
  if (has_failed()) return;
  const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  if (!write_to(folder_ + "/stream.jsonl", O_APPEND, text).empty()) has_failed_ = true;
}

}  // namespace bp::layers
