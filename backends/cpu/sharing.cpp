// Events that processes share, in front of those of the backend.
#include "backends/cpu/device.hpp"
#include "backends/cpu/full_instance.hpp"
#include "backends/cpu/stream.hpp"
#include "backplane/shell/queue_streams.hpp"
#include "backplane/shell/shared_event_front.hpp"

namespace bp::cpu {

void share_events(FullInstance& i) {
  offer_shared_events<StreamHandles<Instance, Device, Stream, Event>>(i, "backplane.cpu.event");
}

}  // namespace bp::cpu
