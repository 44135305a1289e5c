// Constants with a key, which executables of one device share.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backplane/shell/program.hpp"
#include "backplane/stream.h"

namespace bp {

// An event that ends with its last owner.
using OwnedEvent = std::shared_ptr<bp_event>;

// The memory of one constant. The executables that use it hold it.
struct SharedConstant {
  std::mutex mutex;  // Held while the elements are written.
  bp_buffer* buffer = nullptr;
  uint64_t size_bytes = 0;
  bp_dtype dtype = 0;
  std::vector<int64_t> shape;
  std::optional<LayoutWords> layout_words;
  std::vector<OwnedEvent> uses;  // Of executables that have ended.
};

class SharedConstants {
 public:
  // Returns the constant of a value with a key. If nobody holds the key, the caller writes the
  // elements, under the constant's mutex, unless its buffer is set by then. Throws StatusError of
  // BP_INVALID_ARGUMENT if the key names a constant of another dtype, shape or layout.
  std::shared_ptr<SharedConstant> find(bp_device* device, uint64_t generation,
                                       const ProgramValue& value, const std::string& name);

  // Ends the use of constants by an executable, whose work has ended behind `events`. Appends to
  // `buffers` those that nobody uses any more, and to `events` the events behind which their other
  // uses end.
  void drop(std::vector<std::shared_ptr<SharedConstant>>& constants, const bp_event_ops& ops,
            std::vector<OwnedEvent>& events, std::vector<bp_buffer*>& buffers);

 private:
  struct Key {
    bp_device* device;
    uint64_t generation;
    std::string key;
    auto operator<=>(const Key&) const = default;
  };

  std::mutex mutex_;  // It guards the members below, and `uses` of all constants.
  std::map<Key, std::weak_ptr<SharedConstant>> constants_;
};

}  // namespace bp
