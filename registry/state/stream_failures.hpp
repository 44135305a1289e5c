// Failures that the host gave to streams, in words that the backend does not know.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "backplane/stream.h"

namespace bp::core {

// Thread-safe.
class StreamFailures {
 public:
  // Lets in_words() say `text` for `status` of `stream`, until the failure is forgotten.
  void remember(bp_stream* stream, bp_status status, const std::string& text);

  // To be called when the failure is cleared and when the stream ends: the next stream of its
  // address is another one.
  void forget(bp_stream* stream);

  // Returns `status`, which the backend gave for `stream`, and sets the host's words as the error
  // text if the failure came from the host.
  bp_status in_words(bp_stream* stream, bp_status status);

 private:
  struct Failure {
    bp_status status;
    std::string text;
  };
  std::mutex mutex_;
  std::map<bp_stream*, Failure> failures_;  // Guarded by mutex_.
};

}  // namespace bp::core
