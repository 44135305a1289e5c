// Benign variants of tables: right backends that are slow, talkative, or without optional parts,
// and whose devices say unusual things about themselves. No case may fail on them.
#include <array>
#include <chrono>
#include <deque>
#include <map>
#include <thread>
#include <vector>

#include "conformance/mutants/runtime.hpp"

namespace bp::mutants {
namespace {

void wait_a_little() { std::this_thread::sleep_for(std::chrono::microseconds(200)); }

// ---- Slow and talkative ------------------------------------------------------------------------

bp_stream* slow_launch(Runtime&, const bp_launch& launch) {
  wait_a_little();
  return launch.stream;
}

// Hands over all submitted work before each launch.
bp_stream* flush_first(Runtime& r, const bp_launch& launch) {
  static_cast<void>(r.good.streams.flush(r.good.streams.self, launch.stream));
  return launch.stream;
}

bp_status slow_copy_from_host(void* self, bp_stream* stream, const bp_buffer_ref* dst,
                              const void* src, bp_borrow borrow) {
  const bp_allocator_ops& good = runtime_of(self).good.allocator;
  wait_a_little();
  return good.copy_from_host(good.self, stream, dst, src, borrow);
}

bp_status slow_copy_to_host(void* self, bp_stream* stream, void* dst, const bp_buffer_ref* src,
                            bp_borrow borrow, uint64_t timeout_ns) {
  const bp_allocator_ops& good = runtime_of(self).good.allocator;
  wait_a_little();
  return good.copy_to_host(good.self, stream, dst, src, borrow, timeout_ns);
}

void bend_slow_copies(Runtime& r) {
  r.bent.allocator.copy_from_host = slow_copy_from_host;
  r.bent.allocator.copy_to_host = slow_copy_to_host;
}

bp_status talkative_allocate(void* self, bp_device* device, const bp_allocate_desc* desc,
                             bp_buffer** out_buffer) {
  Runtime& r = runtime_of(self);
  r.host.log_line(r.host.self, BP_LOG_DEBUG, "allocate");
  const bp_status status =
      r.good.allocator.allocate(r.good.allocator.self, device, desc, out_buffer);
  if (status == BP_OK) r.host.log_line(r.host.self, BP_LOG_WARNING, "memory is in use");
  return status;
}

void bend_talkative(Runtime& r) { r.bent.allocator.allocate = talkative_allocate; }

// ---- Memory ------------------------------------------------------------------------------------

template <uint32_t pattern>
constexpr uint32_t pattern_of = pattern;

// Gives memory that is full of `pattern`. What comes from a lost or failed device stays as it is.
template <uint32_t pattern>
bp_status filled_allocate(void* self, bp_device* device, const bp_allocate_desc* desc,
                          bp_buffer** out_buffer) {
  Runtime& r = runtime_of(self);
  const bp_allocator_ops& memory = r.good.allocator;
  const bp_status status = memory.allocate(memory.self, device, desc, out_buffer);
  bp_buffer_info info{.struct_size = sizeof(bp_buffer_info), .struct_type = BP_STRUCT_BUFFER_INFO};
  if (status != BP_OK || memory.buffer_info(memory.self, *out_buffer, &info) != BP_OK) {
    return status;
  }
  const bp_stream_ops& streams = r.good.streams;
  bp_stream* stream = nullptr;
  if (info.size_bytes == 0 || streams.create(streams.self, device, nullptr, &stream) != BP_OK) {
    return status;
  }
  const bp_buffer_ref whole{*out_buffer, 0, info.size_bytes / 4 * 4};
  static_cast<void>(memory.fill(memory.self, stream, &whole, &pattern_of<pattern>, 4));
  static_cast<void>(streams.synchronize(streams.self, stream, UINT64_MAX));
  static_cast<void>(streams.destroy(streams.self, stream));
  return status;
}

template <uint32_t pattern>
void bend_filled(Runtime& r) {
  r.bent.allocator.allocate = filled_allocate<pattern>;
}

// ---- What devices say about themselves ---------------------------------------------------------

// The properties of one device as the host sees them, with what they point to.
struct Told {
  bp_device_properties properties{};
  std::vector<bp_heap> heaps;
  std::vector<bp_dtype> dtypes;
  std::vector<const char*> profiles;
};

using ToldDevices = std::map<bp_device*, Told>;  // A map does not move what it holds.

void read(Told& told, const bp_device_properties& good) {
  bp_struct_read(&good, sizeof(bp_struct_header), &told.properties, sizeof(told.properties),
                 nullptr);
  for (uint64_t i = 0; i < good.heap_count; ++i) {
    const auto* heap = reinterpret_cast<const std::byte*>(good.heaps) + i * good.heap_stride_bytes;
    bp_struct_read(heap, sizeof(bp_struct_header), &told.heaps.emplace_back(), sizeof(bp_heap),
                   nullptr);
  }
  told.dtypes.assign(good.dtypes, good.dtypes + good.dtype_count);
  told.profiles.assign(good.profiles, good.profiles + good.profile_count);
}

void point(Told& told) {
  bp_device_properties& properties = told.properties;
  properties.heaps = told.heaps.data();
  properties.heap_count = told.heaps.size();
  properties.heap_stride_bytes = sizeof(bp_heap);
  properties.dtypes = told.dtypes.data();
  properties.dtype_count = told.dtypes.size();
  properties.profiles = told.profiles.data();
  properties.profile_count = told.profiles.size();
}

void tell_unknown_profile(Told& told) { told.profiles.push_back("acme_vision"); }
void tell_rank_4(Told& told) { told.properties.max_rank = 4; }
void tell_no_host_memory(Told& told) { told.properties.host_register_alignment_bytes = 0; }

void tell_little(Told& told) {
  told.properties.bus_id = nullptr;
  told.properties.compute_unit_count = 0;
  told.properties.subgroup_size = 0;
  told.properties.peak_bytes_per_second = 0;
  told.properties.peak_f32_flops = 0;
  told.properties.dlpack_device_type = 0;
  told.profiles.clear();
}

void tell_odd_names(Told& told) {
  static const std::string name =
      "Acme \xC3\x9C"
      "ber \xE2\x84\xA2 <&\"'> " +
      std::string(100, 'x');
  told.properties.name = name.c_str();
}

void tell_f32_alone(Told& told) {
  std::erase_if(told.dtypes, [](bp_dtype dtype) {
    return dtype == BP_F16 || dtype == BP_BF16 || dtype == BP_F64;
  });
}

template <void (*tell)(Told&)>
bp_status told_properties(void* self, bp_device* device,
                          const bp_device_properties** out_properties) {
  Runtime& r = runtime_of(self);
  const bp_device_properties* good = nullptr;
  const bp_status status =
      r.good.devices.properties(r.good.devices.self, device, out_properties ? &good : nullptr);
  if (status != BP_OK) return status;
  const std::lock_guard lock(r.mutex);
  auto& devices = r.state_as<ToldDevices>();
  const auto [place, is_new] = devices.try_emplace(device);
  if (is_new) {
    read(place->second, *good);
    tell(place->second);
    point(place->second);
  }
  *out_properties = &place->second.properties;
  return BP_OK;
}

template <void (*tell)(Told&)>
void bend_properties(Runtime& r) {
  static_cast<void>(r.state_as<ToldDevices>());
  r.bent.devices.properties = told_properties<tell>;
}

// ---- Without optional parts --------------------------------------------------------------------

bp_status info_without_address(void* self, bp_buffer* buffer, bp_buffer_info* out_info) {
  const bp_allocator_ops& good = runtime_of(self).good.allocator;
  const bp_status status = good.buffer_info(good.self, buffer, out_info);
  if (status == BP_OK) out_info->address = 0;
  return status;
}

void drop_addresses(Runtime& r) {
  bp_allocator_ops& memory = r.bent.allocator;
  memory.address = nullptr;
  memory.buffer_info = info_without_address;
  memory.wrap_address = nullptr;
  memory.address_info = nullptr;
}

void drop_host_memory(Runtime& r) {
  bend_properties<tell_no_host_memory>(r);
  r.bent.allocator.register_host = nullptr;
  r.bent.allocator.unregister_host = nullptr;
}

// Refuses events with one of `flags`.
template <uint32_t flags>
bp_status plain_event(void* self, bp_device* device, const bp_event_desc* desc,
                      bp_event** out_event) {
  Runtime& r = runtime_of(self);
  if (desc != nullptr && out_event != nullptr && (desc->flags & flags) != 0) {
    return r.host.set_error(r.host.self, BP_UNSUPPORTED,
                            "event.create: the device has no such events");
  }
  return r.good.events.create(r.good.events.self, device, desc, out_event);
}

bp_status plain_buffer(void* self, bp_device* device, const bp_allocate_desc* desc,
                       bp_buffer** out_buffer) {
  Runtime& r = runtime_of(self);
  if (desc != nullptr && out_buffer != nullptr && (desc->usage & BP_MEMORY_EXPORT) != 0) {
    return r.host.set_error(r.host.self, BP_UNSUPPORTED, "allocate: nothing is exported");
  }
  return r.good.allocator.allocate(r.good.allocator.self, device, desc, out_buffer);
}

void drop_sharing(Runtime& r) {
  r.bent.allocator.allocate = plain_buffer;
  r.bent.events.create = plain_event<BP_EVENT_EXPORTABLE>;
  r.bent.allocator.export_buffer = nullptr;
  r.bent.allocator.import_buffer = nullptr;
  r.bent.events.export_event = nullptr;
  r.bent.events.import_event = nullptr;
}

bp_status no_direct_peer(void* self, bp_device* device, bp_device* peer, bp_peer_info* out_info) {
  const bp_allocator_ops& good = runtime_of(self).good.allocator;
  const bp_status status = good.peer_info(good.self, device, peer, out_info);
  if (status == BP_OK) out_info->is_direct = 0;
  return status;
}

void drop_peers(Runtime& r) {
  r.bent.allocator.copy_peer = nullptr;
  r.bent.allocator.peer_info = no_direct_peer;
}

void drop_native_streams(Runtime& r) {
  r.bent.streams.wrap_native = nullptr;
  r.bent.streams.native_handle = nullptr;
  r.bent.streams.is_capturing = nullptr;
}

void drop_resets(Runtime& r) {
  r.bent.devices.reset = nullptr;
  r.bent.devices.set_option = nullptr;
}

void drop_event_callbacks(Runtime& r) { r.bent.events.on_complete = nullptr; }

void drop_every_option(Runtime& r) {
  drop_addresses(r);
  drop_host_memory(r);
  drop_sharing(r);
  drop_peers(r);
  drop_native_streams(r);
  drop_resets(r);
  drop_event_callbacks(r);
}

void drop_host_signals(Runtime& r) { r.bent.events.create = plain_event<BP_EVENT_HOST_SIGNAL>; }
void drop_timing(Runtime& r) { r.bent.events.create = plain_event<BP_EVENT_TIMING>; }

constexpr RuntimeMutant kTable[] = {
    {.id = "benign_slow_launch", .launch_stream = slow_launch},
    {.id = "benign_flush", .launch_stream = flush_first},
    {.id = "benign_slow_copies", .bend = bend_slow_copies, .has_layouts = true},
    {.id = "benign_talkative", .bend = bend_talkative, .has_layouts = true},
    {.id = "benign_ones", .bend = bend_filled<0xFFFFFFFF>, .has_layouts = true},
    {.id = "benign_zeros", .bend = bend_filled<0>, .has_layouts = true},
    {.id = "benign_no_addresses", .bend = drop_addresses, .has_layouts = true},
    {.id = "benign_no_host_memory", .bend = drop_host_memory, .has_layouts = true},
    {.id = "benign_no_sharing", .bend = drop_sharing, .has_layouts = true},
    {.id = "benign_no_peers", .bend = drop_peers, .has_layouts = true},
    {.id = "benign_no_native", .bend = drop_native_streams, .has_layouts = true},
    {.id = "benign_no_reset", .bend = drop_resets, .has_layouts = true},
    {.id = "benign_no_callbacks", .bend = drop_event_callbacks, .has_layouts = true},
    {.id = "benign_minimal", .bend = drop_every_option, .has_layouts = true},
    {.id = "benign_no_signals", .bend = drop_host_signals, .has_layouts = true},
    {.id = "benign_no_timing", .bend = drop_timing, .has_layouts = true},
    {.id = "benign_unknown", .bend = bend_properties<tell_unknown_profile>, .has_layouts = true},
    {.id = "benign_rank_4", .bend = bend_properties<tell_rank_4>, .has_layouts = true},
    {.id = "benign_silent", .bend = bend_properties<tell_little>, .has_layouts = true},
    {.id = "benign_names", .bend = bend_properties<tell_odd_names>, .has_layouts = true},
    {.id = "benign_f32_alone", .bend = bend_properties<tell_f32_alone>, .has_layouts = true},
};

}  // namespace

std::span<const RuntimeMutant> benign_tables() { return kTable; }

}  // namespace bp::mutants
