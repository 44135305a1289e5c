// What the host adds to a backend's streams. What it remembers of a stream by its address ends with
// the stream, because the address may come back as that of another one; and a failure that the host
// gave to a stream has the host's words.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "backplane/stream.h"

namespace bp::core {

struct Target;

// Stands between the table of streams that a target lends and the one of its backend.
struct StreamEnds {
  bp_stream_ops next{};  // The backend's, or that of its outermost layer.
  Target* target = nullptr;

  // Failures that the host gave to streams, in words that the backend does not know.
  struct Failure {
    bp_status status;
    std::string text;
  };
  std::mutex mutex;
  std::map<bp_stream*, Failure> failures;  // Guarded by mutex.
};

// Puts target.stream_ends in front of target.own_tables.streams.
void watch_stream_ends(Target& target);

// Lets status() and synchronize() of `stream` say `text` for `status` until the failure is cleared.
void remember_failure(Target& target, bp_stream* stream, bp_status status, const std::string& text);

}  // namespace bp::core
