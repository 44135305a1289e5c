// Remembers the failures that the host gave to streams, with texts that the backend does not know.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "backplane/stream.h"

namespace bp::core {

// The failures on the streams of one target. It is thread-safe.
class StreamFailures {
 public:
  // Remembers `text` for the failure `status` of `stream`, until forget() is called. Returns false,
  // and does nothing, if the stream has such a failure already: the first failure counts.
  bool remember(bp_stream* stream, bp_status status, const std::string& text);

  // Forgets the failure of `stream`. It must be called when the failure is cleared, and when the
  // stream ends, because another stream may get its address.
  void forget(bp_stream* stream);

  // Forgets all failures, because all streams have ended.
  void forget_all();

  // Returns `status`, which the backend returned for `stream`. If this failure came from the host,
  // also sets its text as the error text.
  bp_status in_words(bp_stream* stream, bp_status status);

 private:
  struct Failure {
    bp_status status;
    std::string text;
  };
  std::mutex mutex_;
  std::map<bp_stream*, Failure> failures_;  // mutex_ guards it.
};

}  // namespace bp::core
