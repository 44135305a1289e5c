// Cases that hold what a device declares about itself against what it does.
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>

#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/child_routines.hpp"
#include "conformance/cases/fixtures/fixtures.hpp"
#include "conformance/cases/fixtures/rank_group.hpp"
#include "conformance/cases/fixtures/test_host.hpp"

namespace bp::conformance {
namespace {

std::string hex_of(const uint8_t (&uuid)[16]) {
  std::string text;
  for (const uint8_t byte : uuid) {
    for (const int digit : {byte >> 4, byte & 15}) text += "0123456789abcdef"[digit];
  }
  return text;
}

void identity_is_the_same_in_each_process(Context& t) {
  run_in_child(t, "tell_identity", hex_of(t.target().properties->uuid));
}

void memory_info_agrees_with_the_heaps(Context& t) {
  const bp_device_ops& devices = *t.target().devices;
  const bp_device_properties& p = *t.target().properties;
  const auto* heaps = reinterpret_cast<const std::byte*>(p.heaps);
  for (uint64_t i = 0; i < p.heap_count; ++i) {
    const auto& heap = *reinterpret_cast<const bp_heap*>(heaps + i * p.heap_stride_bytes);
    if (heap.size_bytes == 0) continue;  // The host cannot read it, and does not use it.
    uint64_t free_bytes = 0, total_bytes = 0;
    t.require_ok(devices.memory_info(devices.self, t.target().device, i, &free_bytes, &total_bytes),
                 "memory_info");
    t.expect_eq(total_bytes, heap.size_bytes, "the total of heap " + std::to_string(i));
  }
}

// What the case holds cannot be free.
void memory_in_use_is_not_free(Context& t) {
  const bp_device_ops& devices = *t.target().devices;
  const bp_heap& heap = *t.target().properties->heaps;
  const uint64_t size = std::min<uint64_t>(64 << 20, heap.max_allocation_bytes / 2);
  const OwnedBuffer buffer = make_buffer(t, size);
  const OwnedStream stream = make_stream(t);
  const bp_buffer_ref whole = range(buffer, 0, size);
  const bp_allocator_ops& memory = *t.target().allocator;
  bp_buffer_info info{.struct_size = sizeof(info), .struct_type = BP_STRUCT_BUFFER_INFO};
  t.require_ok(memory.buffer_info(memory.self, buffer.get(), &info), "buffer_info");
  const uint8_t value = 1;
  t.require_ok(memory.fill(memory.self, stream.get(), &whole, &value, 1), "fill");
  finish(t, stream.get());
  uint64_t free_bytes = 0, total_bytes = 0;
  t.require_ok(devices.memory_info(devices.self, t.target().device, info.heap_index, &free_bytes,
                                   &total_bytes),
               "memory_info");
  t.expect(free_bytes <= total_bytes - std::min(total_bytes, size),
           std::to_string(free_bytes) + " of " + std::to_string(total_bytes) +
               " bytes are free beside a buffer of " + std::to_string(size));
}

// ---- Peaks --------------------------------------------------------------------------------------

// Returns the bytes per second that the best of some copies within the first heap read and wrote.
double copied_bytes_per_second(Context& t) {
  const uint64_t size =
      std::min<uint64_t>(64 << 20, t.target().properties->heaps->max_allocation_bytes / 4);
  const OwnedStream stream = make_stream(t);
  const OwnedBuffer from = make_buffer(t, size), to = make_buffer(t, size);
  const bp_buffer_ref source = range(from, 0, size), target = range(to, 0, size);
  const bp_allocator_ops& memory = *t.target().allocator;
  const uint8_t value = 1;
  for (const bp_buffer_ref* each : {&source, &target}) {
    t.require_ok(memory.fill(memory.self, stream.get(), each, &value, 1), "fill");
  }
  finish(t, stream.get());
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 4; ++i) {
    const auto start = std::chrono::steady_clock::now();
    t.require_ok(memory.copy(memory.self, stream.get(), &target, &source), "copy");
    finish(t, stream.get());
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return 2 * static_cast<double>(size) / best;
}

// A peak is a ceiling. A factor of four is for caches; a wrong unit is off by a thousand.
void peaks_are_ceilings(Context& t) {
  const bp_device_properties& p = *t.target().properties;
  for (const double peak : {p.peak_bytes_per_second, p.peak_f32_flops}) {
    t.expect(std::isfinite(peak) && peak >= 0, "a peak is a number that is not negative");
  }
  if (!(p.peak_bytes_per_second > 0)) t.not_supported("peak_bytes_per_second is not known");
  const double measured = copied_bytes_per_second(t);
  t.metric("declared", p.peak_bytes_per_second);
  t.metric("measured", measured);
  if (measured > 4 * p.peak_bytes_per_second) {
    t.add({"a copy reads and writes " + std::to_string(measured / 1e9) +
               " GB/s, and peak_bytes_per_second says " +
               std::to_string(p.peak_bytes_per_second / 1e9) + " GB/s",
           "declaration", ""});
  }
}

// ---- DLPack -------------------------------------------------------------------------------------

// Reads the memory of this process without a fault where there is none.
bool read_own_memory(uint64_t address, void* to, size_t size) {
  const iovec local{to, size}, remote{reinterpret_cast<void*>(address), size};
  return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(size);
}

// DLPack lets whoever gets a tensor of kDLCPU read it as memory of the host.
void dlpack_type_of_the_host_is_host_memory(Context& t) {
  constexpr int32_t kDlCpu = 1;
  const bp_device_properties& p = *t.target().properties;
  t.expect(p.dlpack_device_type >= 0, "dlpack_device_type is not negative");
  if (p.dlpack_device_type == 0) t.not_supported("the device has no type in DLPack");
  if (p.dlpack_device_type != kDlCpu) {
    t.not_supported("the device is not the host in DLPack, so nobody may read its addresses");
  }
  const OwnedStream stream = make_stream(t);
  const OwnedBuffer buffer = make_buffer(t, 64);
  const std::vector<uint8_t> bytes = random_bytes(t, 64);
  write(t, stream.get(), range(buffer, 0, 64), bytes);
  uint64_t address = 0;
  const bp_allocator_ops& memory = *t.target().allocator;
  require_offered(t, memory.address(memory.self, buffer.get(), &address), "address");
  std::vector<uint8_t> seen(64);
  if (!read_own_memory(address, seen.data(), seen.size())) {
    if (errno == EPERM || errno == ENOSYS) t.skip("this system refuses process_vm_readv()");
    t.fail({"dlpack_device_type says kDLCPU, and the host cannot read the address of a buffer",
            "declaration", ""});
  }
  t.expect(seen == bytes, "the host reads what the device wrote");
}

void dlpack_ids_are_unique(Context& t) {
  const std::vector<const bp_target*> devices = devices_of(t);
  if (devices.size() < 2) t.not_supported("the backend has one device");
  for (const bp_target* a : devices) {
    for (const bp_target* b : devices) {
      if (a == b || a->properties->dlpack_device_type <= 1) continue;
      t.expect(a->properties->dlpack_device_type != b->properties->dlpack_device_type ||
                   a->properties->dlpack_device_id != b->properties->dlpack_device_id,
               "two devices have one type and id in DLPack");
    }
  }
}

}  // namespace

// Compares the identity of the device in this process with that of the argument.
void tell_identity(const ChildTask& task) {
  const PluginEntry entry(task.plugin);
  if (entry.get() == nullptr) child_fails("it does not load again");
  TestHost host(task.option_list());
  RawInstance instance(entry, host);
  if (!instance.problem().empty()) child_fails(instance.problem());
  bp_device* const device = instance.device(task.device);
  if (device == nullptr) child_fails("the device is gone in another process", "DEVICE-5");
  const bp_device_ops& devices = instance.devices();
  const bp_device_properties* properties = nullptr;
  if (devices.properties(devices.self, device, &properties) != BP_OK) {
    child_fails("properties: " + host.take_text());
  }
  const std::string uuid = hex_of(properties->uuid);
  if (uuid == task.argument) return;
  child_fails("the UUID is " + task.argument + " in one process and " + uuid + " in another",
              "DEVICE-1", "declaration");
}

void add_declared_device_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "device",
      {
          {"identity_is_the_same_in_each_process",
           {"DEVICE-1"},
           identity_is_the_same_in_each_process},
          {"memory_info_agrees_with_the_heaps", {"DEVICE-6"}, memory_info_agrees_with_the_heaps},
          {"memory_in_use_is_not_free", {"DEVICE-6"}, memory_in_use_is_not_free},
          {"peaks_are_ceilings", {"DEVICE-3"}, peaks_are_ceilings},
      });
  add_api_cases(cases, "dlpack",
                {
                    {"type_of_the_host_is_host_memory",
                     {"MEMORY-12"},
                     dlpack_type_of_the_host_is_host_memory},
                    {"ids_are_unique", {"DEVICE-1"}, dlpack_ids_are_unique},
                });
}

}  // namespace bp::conformance
