// Removes entries of tables as the options say, and adds events that processes share.
#include "backends/sim/backend.hpp"
#include "backends/sim/device.hpp"
#include "backends/sim/stream.hpp"
#include "backplane/shell/queue_streams.hpp"
#include "backplane/shell/shared_event_front.hpp"

namespace bp::sim {

void fit_tables(Instance& i) {
  i.offers_kernels = i.options.has_kernels;
  if (!i.options.has_virtual_memory) i.virtual_memory = {};
  if (!i.options.has_addresses) i.allocator.wrap_address = nullptr;
  if (!i.options.has_addresses) i.allocator.address_info = nullptr;
  if (!i.options.has_registration) i.allocator.register_host = nullptr;
  if (!i.options.has_registration) i.allocator.unregister_host = nullptr;
  if (!i.options.has_native_streams) i.streams.wrap_native = nullptr;
  if (!i.options.has_native_streams) i.streams.native_handle = nullptr;
  if (!i.options.has_sharing) {
    i.allocator.export_buffer = nullptr;
    i.allocator.import_buffer = nullptr;
    i.semaphores.export_semaphore = nullptr;
    i.semaphores.import_semaphore = nullptr;
    return;
  }
  offer_shared_events<StreamHandles<Instance, Device, Stream, Event>>(i, "backplane.sim.event");
}

}  // namespace bp::sim
