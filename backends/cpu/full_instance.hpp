// An instance with what its kernels need not see, so that a change here compiles none of them.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "backends/cpu/backend.hpp"
#include "backends/cpu/stream.hpp"
#include "backplane/shell/layout.hpp"
#include "backplane/shell/shared_events.hpp"

namespace bp::cpu {

class BlockedWeights;

// Streams as the device's own library knows them: by their queue.
class NativeStreams {
 public:
  NativeStreams() = default;
  NativeStreams(const NativeStreams&) = delete;
  ~NativeStreams();

  // What the library knows `queue` by.
  void* lend(const std::shared_ptr<Queue>& queue);

  // A further handle for what was lent; NULL if nothing was, or its last handle has ended.
  Stream* wrap(void* native);

  // Before a handle ends, whichever it is.
  void forget(Stream* stream);

 private:
  std::mutex mutex_;  // Guards what follows.
  std::unordered_map<void*, std::weak_ptr<Queue>> lent_;
  std::unordered_set<Stream*> wrapped_;  // End with the instance at the latest.
};

struct FullInstance : Instance {
  explicit FullInstance(const bp_host* host);
  ~FullInstance();

  NativeStreams native_streams;
  std::unique_ptr<SharedEvents> shared_events;  // Ends before the device, whose events it uses.
  std::unique_ptr<BlockedWeights> weights;
  std::unique_ptr<Layouts> layouts;
  bp_layout_ops layout_table;
};

// Makes the table of layouts, and puts what takes them in front of the kernels.
void make_layouts(FullInstance& instance);

inline FullInstance& full_instance(void* self) {
  return static_cast<FullInstance&>(instance(self));
}

}  // namespace bp::cpu
