// Cases for api/include/backplane/device.h, and for the promises of registration and of the entry.
#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <set>
#include <string>
#include <thread>

#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/fixtures.hpp"

namespace bp::conformance {
namespace {

std::vector<bp_device*> enumerate(Context& t) {
  const bp_device_ops& devices = *t.target().devices;
  uint64_t count = 0;
  t.require_ok(devices.enumerate(devices.self, 0, nullptr, &count), "enumerate with capacity 0");
  std::vector<bp_device*> list(count);
  uint64_t again = 0;
  t.require_ok(devices.enumerate(devices.self, count, list.data(), &again), "enumerate");
  t.expect_eq(again, count, "count of the second call");
  return list;
}

void enumeration_is_stable(Context& t) {
  const std::vector<bp_device*> first = enumerate(t), second = enumerate(t);
  t.expect(first == second, "order and handles of two calls");
  t.expect(std::ranges::count(first, t.target().device) == 1, "the device in use is listed once");
}

void enumeration_honours_the_capacity(Context& t) {
  const bp_device_ops& devices = *t.target().devices;
  const std::vector<bp_device*> all = enumerate(t);
  std::vector<bp_device*> some(all.size(), t.sentinel<bp_device>());
  uint64_t count = 0;
  t.require_ok(devices.enumerate(devices.self, all.size() - 1, some.data(), &count), "enumerate");
  t.expect_eq(count, uint64_t{all.size()}, "the count is how many there are");
  t.expect_eq(some.back(), t.sentinel<bp_device>(), "nothing is written past the capacity");
}

void probe_counts_the_devices(Context& t) {
  const bp_device_ops& devices = *t.target().devices;
  uint64_t count = 0;
  t.require_ok(devices.probe(devices.self, &count), "probe");
  t.expect_eq(count, uint64_t{enumerate(t).size()}, "probe and enumerate agree");
}

void identities_are_unique(Context& t) {
  const bp_device_ops& devices = *t.target().devices;
  std::set<std::array<uint8_t, 16>> seen;
  for (bp_device* device : enumerate(t)) {
    const bp_device_properties* properties = nullptr;
    t.require_ok(devices.properties(devices.self, device, &properties), "properties");
    std::array<uint8_t, 16> uuid;
    std::ranges::copy(properties->uuid, uuid.begin());
    t.expect(uuid != std::array<uint8_t, 16>{}, "the UUID is not zero");
    t.expect(seen.insert(uuid).second, "no two devices share a UUID");
    t.expect(properties->name != nullptr && properties->name[0] != '\0', "the device has a name");
  }
}

void limits_are_within_the_abi(Context& t) {
  const bp_device_properties& p = *t.target().properties;
  t.expect(p.max_rank >= 4 && p.max_rank <= BP_MAX_RANK, "max_rank is 4 to BP_MAX_RANK");
  t.expect(p.heap_count >= 1 && p.heap_count <= 64 && p.heaps != nullptr,
           "there are 1 to 64 heaps");
  t.expect((p.host_register_alignment_bytes & (p.host_register_alignment_bytes - 1)) == 0,
           "host_register_alignment_bytes is 0 or a power of two");
  t.expect(p.dtype_count >= 1 && p.dtypes != nullptr, "there is a dtype");
  t.expect(p.device_class >= BP_DEVICE_HOST && p.device_class <= BP_DEVICE_SIMULATED,
           "device_class is a BP_DEVICE_* value");
  const char* heap = reinterpret_cast<const char*>(p.heaps);
  for (uint64_t i = 0; i < p.heap_count; ++i, heap += p.heap_stride_bytes) {
    bp_heap h{};
    const bp_status status = bp_struct_read(heap, sizeof(bp_heap), &h, sizeof(h), nullptr);
    t.require_ok(status, "a heap has at least its first size");
    const uint64_t alignment = h.tensor_offset_alignment_bytes;
    t.expect(alignment >= 1 && alignment <= 4096 && (alignment & (alignment - 1)) == 0,
             "tensor_offset_alignment_bytes is a power of two up to 4096");
    const bool is_coherent = (h.flags & BP_HEAP_HOST_COHERENT) != 0;
    const bool is_visible = (h.flags & BP_HEAP_HOST_VISIBLE) != 0;
    t.expect(
        is_visible ? std::has_single_bit(h.map_granularity_bytes) : h.map_granularity_bytes == 0,
        "map_granularity_bytes is a power of two, or 0 where the heap is not host_visible");
    t.expect(!is_visible || !is_coherent || h.map_granularity_bytes == 1,
             "map_granularity_bytes is 1 where the heap is host_coherent");
    constexpr bp_heap_flags kForHost =
        BP_HEAP_HOST_COHERENT | BP_HEAP_HOST_CONCURRENT | BP_HEAP_HOST_CACHED;
    t.expect(is_visible || (h.flags & kForHost) == 0,
             "a heap that is host_coherent, host_concurrent or host_cached is host_visible");
    t.expect(h.max_allocation_bytes <= h.size_bytes, "max_allocation_bytes is within the heap");
  }
}

void memory_info_is_of_a_heap(Context& t) {
  const bp_device_ops& devices = *t.target().devices;
  const uint64_t heaps = t.target().properties->heap_count;
  uint64_t free_bytes = 7, total_bytes = 7;
  for (uint64_t i = 0; i < heaps; ++i) {
    t.require_ok(devices.memory_info(devices.self, t.target().device, i, &free_bytes, &total_bytes),
                 "memory_info");
    t.expect(total_bytes > 0 && free_bytes <= total_bytes, "free is at most total");
  }
  free_bytes = total_bytes = 7;
  t.expect_refused(
      devices.memory_info(devices.self, t.target().device, heaps, &free_bytes, &total_bytes),
      BP_INVALID_ARGUMENT, "a heap that does not exist");
  t.expect(free_bytes == 7 && total_bytes == 7, "out parameters after the refusal");
}

void unknown_option_is_not_found(Context& t) {
  const bp_device_ops& devices = *t.target().devices;
  const bp_status status =
      devices.set_option(devices.self, t.target().device, "no_such_option", "1");
  if (status == BP_UNSUPPORTED) t.not_supported(std::string("set_option: ") + bp_error_text());
  t.expect_refused(status, BP_NOT_FOUND, "an option that does not exist");
}

void null_arguments_are_refused(Context& t) {
  const bp_device_ops& d = *t.target().devices;
  uint64_t bytes = 7;
  const auto refused = [&](bp_status status, const char* what) {
    t.expect_refused(status, BP_INVALID_ARGUMENT, what);
  };
  refused(d.probe(d.self, nullptr), "probe: out_device_count");
  refused(d.enumerate(d.self, 0, nullptr, nullptr), "enumerate: out_device_count");
  refused(d.enumerate(d.self, 1, nullptr, &bytes), "enumerate: out_devices");
  refused(d.properties(d.self, t.target().device, nullptr), "properties: out_properties");
  refused(d.memory_info(d.self, t.target().device, 0, nullptr, &bytes), "memory_info: out_free");
  const bp_device_properties* properties = t.sentinel<const bp_device_properties>();
  refused(d.properties(d.self, nullptr, &properties), "properties: device");
  refused(d.synchronize(d.self, nullptr, 0), "synchronize: device");
  t.expect_eq(bytes, uint64_t{7}, "out parameters after failures");
}

// The case about the loss of a device resets one.
void generation_is_stable(Context& t) {
  const bp_device_ops& devices = *t.target().devices;
  bp_device* const device = t.target().device;
  uint64_t first = 7, second = 8;
  t.expect_refused(devices.generation(devices.self, nullptr, &first), BP_INVALID_ARGUMENT,
                   "generation: device");
  t.expect_refused(devices.generation(devices.self, device, nullptr), BP_INVALID_ARGUMENT,
                   "generation: out_generation");
  t.expect_eq(first, uint64_t{7}, "out_generation after a failure");
  t.require_ok(devices.generation(devices.self, device, &first), "generation");
  t.require_ok(devices.generation(devices.self, device, &second), "generation again");
  t.expect_eq(second, first, "the generation without a reset");
}

void synchronize_waits_for_every_stream(Context& t) {
  const bp_device_ops& devices = *t.target().devices;
  const OwnedStream first = make_stream(t), second = make_stream(t);
  Gate gate(t);
  gate.hold(second.get());
  const OwnedBuffer buffer = make_buffer(t, 64);
  const bp_buffer_ref whole = range(buffer, 0, 64);
  const uint8_t pattern = 1;
  const bp_allocator_ops& memory = *t.target().allocator;
  t.require_ok(memory.fill(memory.self, second.get(), &whole, &pattern, 1), "fill");
  t.expect_refused(devices.synchronize(devices.self, t.target().device, kMomentNs), BP_TIMEOUT,
                   "synchronize while a stream is held back");
  gate.open();
  t.expect_eq(devices.synchronize(devices.self, t.target().device, kTimeoutNs), BP_OK,
              "synchronize when it was let go");
}

void error_text_is_of_its_thread(Context& t) {
  const bp_device_ops& devices = *t.target().devices;
  t.expect_refused(devices.probe(devices.self, nullptr), BP_INVALID_ARGUMENT, "on this thread");
  bp_error_clear();
  std::string theirs;
  std::thread([&] {
    static_cast<void>(devices.enumerate(devices.self, 0, nullptr, nullptr));
    theirs = bp_error_text();
  }).join();
  t.expect(!theirs.empty(), "the failing thread has a text");
  t.expect_eq(std::string(bp_error_text()), std::string(), "this thread has none");
}

void kernels_are_well_formed(Context& t) {
  const uint64_t count = bp_target_kernel_count(&t.target());
  for (uint64_t i = 0; i < count; ++i) {
    const bp_kernel& kernel = *bp_target_kernel(&t.target(), i);
    const std::string name = kernel.name;
    constexpr bp_layout_flags kLayouts = (BP_LAYOUT_ANY << 1) - 1;
    t.expect(kernel.layouts != 0 && (kernel.layouts & ~kLayouts) == 0,
             (name + ": layouts").c_str());
    t.expect(kernel.max_rank <= BP_MAX_RANK, (name + ": max_rank").c_str());
    t.expect(kernel.dtype_rows == nullptr || kernel.dtype_row_count > 0,
             (name + ": dtype rows that accept nothing").c_str());
    t.expect(kernel.supports != nullptr || kernel.supports_ignores == 0,
             (name + ": supports_ignores without supports").c_str());
  }
}

void nothing_was_refused_at_registration(Context& t) {
  t.expect_eq(std::string(t.target().plugin->refusals), std::string(),
              "entries that were shadowed or rejected");
}

}  // namespace

void add_device_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "device",
      {
          {"enumeration_is_stable", {"DEVICE-5"}, enumeration_is_stable},
          {"enumeration_honours_the_capacity", {"DEVICE-5"}, enumeration_honours_the_capacity},
          {"probe_counts_the_devices", {"DEVICE-4"}, probe_counts_the_devices},
          {"identities_are_unique", {"DEVICE-1"}, identities_are_unique},
          {"limits_are_within_the_abi",
           {"DEVICE-2", "DEVICE-3", "HEAP-2", "HEAP-3", "HEAP-6"},
           limits_are_within_the_abi},
          {"memory_info_is_of_a_heap", {"DEVICE-6", "ERROR-2"}, memory_info_is_of_a_heap},
          {"unknown_option_is_not_found", {"DEVICE-7"}, unknown_option_is_not_found},
          {"generation_is_stable", {"DEVICE-9", "ERROR-2"}, generation_is_stable},
          {"null_arguments_are_refused", {"ERROR-3", "ERROR-2"}, null_arguments_are_refused},
          {"synchronize_waits_for_every_stream", {"DEVICE-8"}, synchronize_waits_for_every_stream},
          {"error_text_is_of_its_thread", {"ERROR-1"}, error_text_is_of_its_thread},
          {"kernels_are_well_formed", {"KERNEL-7"}, kernels_are_well_formed},
          {"nothing_was_refused_at_registration", {"REG-1"}, nothing_was_refused_at_registration},
      });
}

}  // namespace bp::conformance
