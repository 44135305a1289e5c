// Mutants of waiting, of default streams, of what a device declares, and of groups with many ranks.
// The numbers are those of the kill table.
#include <unistd.h>

#include <algorithm>
#include <map>
#include <thread>
#include <vector>

#include "conformance/mutants/runtime.hpp"

namespace bp::mutants {
namespace {

// The state of these mutants.
struct Known {
  std::map<const void*, bp_device*> devices;  // Of streams and events.
  std::map<std::thread::id, bp_stream*> default_streams;
  bp_stream* first_default = nullptr;
  std::map<bp_device*, bp_device_properties> properties;
};

Known& known(Runtime& r) { return r.state_as<Known>(); }

// ---- 80: timeouts that overflow, and entries that wait -----------------------------------------

// Adds the timeout to a clock as a signed number.
uint64_t overflowed(uint64_t timeout_ns) {
  return timeout_ns > INT64_MAX && timeout_ns != UINT64_MAX ? 0 : timeout_ns;
}

bp_status synchronize_stream_overflowed(void* self, bp_stream* stream, uint64_t timeout_ns) {
  const bp_stream_ops& good = runtime_of(self).good.streams;
  return good.synchronize(good.self, stream, overflowed(timeout_ns));
}

bp_status synchronize_event_overflowed(void* self, bp_event* event, uint64_t timeout_ns) {
  const bp_event_ops& good = runtime_of(self).good.events;
  return good.synchronize(good.self, event, overflowed(timeout_ns));
}

constexpr uint64_t kLong = 5'000'000'000;

// Takes a lock that a thread that waits for the stream holds.
bp_status blocked_status(void* self, bp_stream* stream) {
  const bp_stream_ops& good = runtime_of(self).good.streams;
  static_cast<void>(good.synchronize(good.self, stream, kLong));
  return good.status(good.self, stream);
}

bp_status blocked_query(void* self, bp_event* event, uint32_t* out_done) {
  const bp_event_ops& good = runtime_of(self).good.events;
  const bp_status status = good.query(good.self, event, out_done);
  static_cast<void>(good.synchronize(good.self, event, kLong));
  return status;
}

void bend_waits(Runtime& r) {
  if (r.strength == "status") {
    r.bent.streams.status = blocked_status;
  } else if (r.strength == "query") {
    r.bent.events.query = blocked_query;
  } else if (r.strength == "event") {
    r.bent.events.synchronize = synchronize_event_overflowed;
  } else {
    r.bent.streams.synchronize = synchronize_stream_overflowed;
  }
}

// ---- 81: default streams ------------------------------------------------------------------------

// Each thread but the first has a default stream of its own.
bp_status default_stream_of_thread(void* self, bp_device* device, bp_stream** out_stream) {
  Runtime& r = runtime_of(self);
  const bp_stream_ops& good = r.good.streams;
  const std::lock_guard lock(r.mutex);
  auto& streams = known(r).default_streams;
  if (device == nullptr || out_stream == nullptr || streams.empty()) {
    streams[std::this_thread::get_id()] = nullptr;
    return good.default_stream(good.self, device, out_stream);
  }
  bp_stream*& mine = streams[std::this_thread::get_id()];
  if (streams.size() == 1) return good.default_stream(good.self, device, out_stream);
  const bp_status status =
      mine == nullptr ? good.create(good.self, device, nullptr, &mine) : bp_status{BP_OK};
  if (status == BP_OK) *out_stream = mine;
  return status;
}

bp_status default_stream_of_first_device(void* self, bp_device* device, bp_stream** out_stream) {
  Runtime& r = runtime_of(self);
  const bp_stream_ops& good = r.good.streams;
  bp_stream* own = nullptr;
  const bp_status status =
      good.default_stream(good.self, device, out_stream == nullptr ? nullptr : &own);
  if (status != BP_OK) return status;
  const std::lock_guard lock(r.mutex);
  bp_stream*& first = known(r).first_default;
  if (first == nullptr) first = own;
  *out_stream = first;
  return BP_OK;
}

void bend_default_streams(Runtime& r) {
  static_cast<void>(known(r));
  r.bent.streams.default_stream =
      r.strength == "device" ? default_stream_of_first_device : default_stream_of_thread;
}

// ---- 82: events of another device, 83: times ----------------------------------------------------

void keep_device(Runtime& r, const void* handle, bp_device* device) {
  const std::lock_guard lock(r.mutex);
  known(r).devices[handle] = device;
}

bp_status create_stream(void* self, bp_device* device, const bp_stream_desc* desc,
                        bp_stream** out_stream) {
  Runtime& r = runtime_of(self);
  const bp_status status = r.good.streams.create(r.good.streams.self, device, desc, out_stream);
  if (status == BP_OK) keep_device(r, *out_stream, device);
  return status;
}

bp_status create_event(void* self, bp_device* device, const bp_event_desc* desc,
                       bp_event** out_event) {
  Runtime& r = runtime_of(self);
  const bp_status status = r.good.events.create(r.good.events.self, device, desc, out_event);
  if (status == BP_OK) keep_device(r, *out_event, device);
  return status;
}

// Takes an event of another device for one that is complete.
bp_status wait_on_own_device(void* self, bp_stream* stream, bp_event* event) {
  Runtime& r = runtime_of(self);
  {
    const std::lock_guard lock(r.mutex);
    const auto& devices = known(r).devices;
    const auto of_stream = devices.find(stream), of_event = devices.find(event);
    const bool are_known = of_stream != devices.end() && of_event != devices.end();
    if (are_known && of_stream->second != of_event->second) return BP_OK;
  }
  return r.good.streams.wait_event(r.good.streams.self, stream, event);
}

void bend_cross_waits(Runtime& r) {
  static_cast<void>(known(r));
  r.bent.streams.create = create_stream;
  r.bent.streams.wait_event = wait_on_own_device;
  r.bent.events.create = create_event;
}

// Gives the distance of two events. Start: does not look at the first event.
bp_status wrong_elapsed(void* self, bp_event* start, bp_event* end, int64_t* out_elapsed_ns) {
  Runtime& r = runtime_of(self);
  const bp_event_ops& good = r.good.events;
  const bp_status status = good.elapsed_ns(good.self, start, end, out_elapsed_ns);
  if (r.strength == "start" && status == BP_INVALID_ARGUMENT) {
    return good.elapsed_ns(good.self, end, end, out_elapsed_ns);
  }
  if (status == BP_OK) *out_elapsed_ns = std::max(*out_elapsed_ns, -*out_elapsed_ns);
  return status;
}

void bend_times(Runtime& r) { r.bent.events.elapsed_ns = wrong_elapsed; }

// ---- 85: memory_info, 86: properties ------------------------------------------------------------

bp_status wrong_memory_info(void* self, bp_device* device, uint64_t heap_index,
                            uint64_t* out_free_bytes, uint64_t* out_total_bytes) {
  Runtime& r = runtime_of(self);
  const bp_device_ops& good = r.good.devices;
  const bp_status status =
      good.memory_info(good.self, device, heap_index, out_free_bytes, out_total_bytes);
  if (status != BP_OK) return status;
  if (r.strength == "free") {
    *out_free_bytes = *out_total_bytes;
  } else {
    *out_total_bytes *= 2;
  }
  return BP_OK;
}

void bend_memory_info(Runtime& r) { r.bent.devices.memory_info = wrong_memory_info; }

bp_status wrong_properties(void* self, bp_device* device,
                           const bp_device_properties** out_properties) {
  Runtime& r = runtime_of(self);
  const bp_device_ops& good = r.good.devices;
  const bp_device_properties* right = nullptr;
  const bp_status status =
      good.properties(good.self, device, out_properties == nullptr ? nullptr : &right);
  if (status != BP_OK) return status;
  const std::lock_guard lock(r.mutex);
  auto [found, is_new] = known(r).properties.try_emplace(device);
  bp_device_properties& properties = found->second;
  if (is_new) {
    bp_struct_read(right, right->struct_size, &properties, sizeof(properties), nullptr);
    if (r.strength == "peak") {
      properties.peak_bytes_per_second = 1e6;
    } else if (r.strength == "dlpack") {
      properties.dlpack_device_type = 1;
    } else {
      const pid_t process = getpid();
      for (int i = 0; i < 4; ++i) properties.uuid[i] = static_cast<uint8_t>(process >> 8 * i);
    }
  }
  *out_properties = &properties;
  return BP_OK;
}

void bend_properties(Runtime& r) {
  static_cast<void>(known(r));
  r.bent.devices.properties = wrong_properties;
}

// ---- 84: groups ---------------------------------------------------------------------------------

bp_status split_badly(void* self, uint32_t local_count, bp_process_group* const* groups,
                      const uint32_t* colors, const uint32_t* keys, uint64_t timeout_ns,
                      bp_process_group** out_groups) {
  Runtime& r = runtime_of(self);
  const bp_process_group_ops& good = r.good.groups;
  const std::vector<uint32_t> zeros(local_count);
  const bool has_numbers = colors != nullptr && keys != nullptr;
  return good.split(good.self, local_count, groups, colors, has_numbers ? zeros.data() : keys,
                    timeout_ns, out_groups);
}

// Timeout: the calls have the timeout of their group. Root: only two ranks can be the root. Count:
// a part that is told by its count alone ends before its last element.
bp_status submit_badly(void* self, uint64_t call_count, const bp_collective_call* calls,
                       uint64_t call_stride_bytes) {
  Runtime& r = runtime_of(self);
  const bp_process_group_ops& good = r.good.groups;
  if (calls == nullptr || call_stride_bytes != sizeof(bp_collective_call)) {
    return good.submit(good.self, call_count, calls, call_stride_bytes);
  }
  std::vector<bp_collective_call> changed(calls, calls + call_count);
  for (bp_collective_call& call : changed) {
    const bool has_parts = call.kind == BP_COLLECTIVE_ALL_TO_ALL ||
                           call.kind == BP_COLLECTIVE_REDUCE_SCATTER ||
                           call.kind == BP_COLLECTIVE_SCATTER;
    if (r.strength == "timeout") {
      call.timeout_ns = 0;
    } else if (r.strength == "root" && call.kind == BP_COLLECTIVE_BROADCAST) {
      call.root %= 2;
    } else if (r.strength == "count" && has_parts && call.counts == nullptr && call.count > 0) {
      --call.count;
    }
  }
  return good.submit(good.self, call_count, changed.data(), call_stride_bytes);
}

// The ranks go the other way round.
bp_status rank_badly(void* self, bp_process_group* group, uint32_t* out_rank,
                     uint32_t* out_world_size) {
  const bp_process_group_ops& good = runtime_of(self).good.groups;
  const bp_status status = good.rank(good.self, group, out_rank, out_world_size);
  if (status == BP_OK) *out_rank = *out_world_size - 1 - *out_rank;
  return status;
}

void bend_groups(Runtime& r) {
  if (r.strength.empty()) {
    r.bent.groups.split = split_badly;
  } else if (r.strength == "rank") {
    r.bent.groups.rank = rank_badly;
  } else {
    r.bent.groups.submit = submit_badly;
  }
}

constexpr RuntimeMutant kTable[] = {
    {.id = "80", .bend = bend_waits},
    {.id = "81", .bend = bend_default_streams},
    {.id = "82", .bend = bend_cross_waits},
    {.id = "83", .bend = bend_times},
    {.id = "84", .bend = bend_groups, .has_groups = true},
    {.id = "85", .bend = bend_memory_info},
    {.id = "86", .bend = bend_properties},
};

}  // namespace

std::span<const RuntimeMutant> wait_mutants() { return kTable; }

}  // namespace bp::mutants
