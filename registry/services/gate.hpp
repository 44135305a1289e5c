// An event of one device that the end of another device's work signals. Callbacks may not destroy
// events, so the cache of the device keeps them and destroys them later.
#pragma once

#include <memory>

#include "registry/services/transfers.hpp"

namespace bp::services {

class Gate {
 public:
  // Makes a gate for streams of `target`, whose cache is `cache`. Returns NULL, with an error text,
  // if the device has no events that the host signals.
  static std::shared_ptr<Gate> make(const bp_target& target, Cache& cache);

  Gate(const bp_event_ops& events, std::shared_ptr<StagedEvent> event)
      : events_(events), event_(std::move(event)) {}
  Gate(const Gate&) = delete;
  // No stream may wait for ever, so a gate that was not signalled is now, with BP_ABORTED.
  ~Gate() {
    if (!event_->is_signalled) signal(BP_ABORTED);
  }

  // Lets later work of a stream of the gate's device wait until the gate is signalled.
  bp_status hold(const bp_stream_ops& streams, bp_stream* stream) const;

  // Signals the gate, once. What waits for it goes on, or fails with `status`. The functions below
  // have no result: a gate that was made can be signalled.
  void signal(bp_status status) const;

  // Signals the gate when the work submitted to a stream of another device so far has ended, with
  // the failure of that stream.
  static void signal_behind(std::shared_ptr<Gate> gate, const bp_target& other, bp_stream* stream);

 private:
  const bp_event_ops& events_;
  const std::shared_ptr<StagedEvent> event_;
};

}  // namespace bp::services
