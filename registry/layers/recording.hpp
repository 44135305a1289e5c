// A recording on disk: calls as lines of JSON in the order in which they returned, and the bytes
// that they moved as files under their own SHA-256.
//
//   <folder>/stream.jsonl         the header, then a line for each call
//   <folder>/payloads/<sha256>    written once, whatever the number of lines that name it
//
// Nothing is kept in memory, so a program that ends early leaves a record of all that it did.
#pragma once

#include <atomic>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

#include "backplane/base.h"

namespace bp::layers {

using Json = nlohmann::ordered_json;

inline constexpr int kRecordingVersion = 1;
inline constexpr const char* kRecordingFormat = "backplane.recording";

class Recording {
 public:
  // Makes the folder. Returns BP_ALREADY_EXISTS if it holds a recording, or BP_NOT_FOUND if it
  // cannot be written.
  bp_status open(const std::string& folder);

  // Keeps the bytes, and returns their name. Thread-safe.
  std::string store(const void* bytes, size_t size);

  // Appends a line. Not thread-safe.
  void write(const Json& line);

  // Returns whether a write failed. The recording ends there.
  bool has_failed() const { return has_failed_.load(std::memory_order_relaxed); }

  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
  std::atomic<bool> has_failed_ = false;
};

}  // namespace bp::layers
