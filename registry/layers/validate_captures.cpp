// What the layer validate makes of captures, in which nothing runs, and of recordings of activity,
// whose end is a wait of the host.
#include "registry/layers/validate.hpp"

namespace bp::layers {

bp_status ValidateLayer::call(At<Slot::graph_begin_capture>, Continue next, bp_stream* stream,
                              const bp_capture_desc* /*desc*/) {
  const bp_status status = next();
  if (status != BP_OK) return status;
  const std::lock_guard lock(mutex_);
  if (captures_.begin(stream)) hazards_.begin_unseen(stream);
  return status;
}

// The capture ends also where it fails.
bp_status ValidateLayer::call(At<Slot::graph_end_capture>, Continue next, bp_stream* stream,
                              bp_graph** /*out_graph*/) {
  const bp_status status = next();
  const std::lock_guard lock(mutex_);
  for (bp_stream* each : captures_.end(stream)) hazards_.end_unseen(each);
  return status;
}

bp_status ValidateLayer::call(At<Slot::profiler_stop>, Continue next, bp_device* device) {
  const bp_status status = next();
  if (status != BP_OK) return status;
  const std::lock_guard lock(mutex_);
  hazards_.host_waits_for_device(device);
  return status;
}

}  // namespace bp::layers
