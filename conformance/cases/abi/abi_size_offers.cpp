// Cases for the sizes of offers: by the backend when it registers or answers calls, and by the host
// in the requests of calls.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <mutex>
#include <stdexcept>
#include <string>

#include "conformance/cases/abi/abi_size_calls.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/fixtures.hpp"
#include "conformance/cases/fixtures/offers.hpp"
#include "conformance/cases/fixtures/rank_group.hpp"
#include "conformance/cases/fixtures/test_host.hpp"
#include "conformance/cases/layouts/layout_fixtures.hpp"
#include "conformance/memory/fenced_pages.hpp"

namespace bp::conformance {
namespace {

// The maker of an offer. A struct without an answer here does not compile.
enum class Maker { kHost, kBackend, kCallee, kInCalls };
constexpr Maker maker_of(const bp_host*) { return Maker::kHost; }
constexpr Maker maker_of(const bp_entry_request*) { return Maker::kHost; }
constexpr Maker maker_of(const bp_registrar*) { return Maker::kHost; }
constexpr Maker maker_of(const bp_entry_reply*) { return Maker::kCallee; }
constexpr Maker maker_of(const bp_backend*) { return Maker::kBackend; }
constexpr Maker maker_of(const bp_device_ops*) { return Maker::kBackend; }
constexpr Maker maker_of(const bp_device_guard_ops*) { return Maker::kBackend; }
constexpr Maker maker_of(const bp_device_properties*) { return Maker::kBackend; }
constexpr Maker maker_of(const bp_heap*) { return Maker::kBackend; }
constexpr Maker maker_of(const bp_allocator_ops*) { return Maker::kBackend; }
constexpr Maker maker_of(const bp_virtual_memory_ops*) { return Maker::kBackend; }
constexpr Maker maker_of(const bp_stream_ops*) { return Maker::kBackend; }
constexpr Maker maker_of(const bp_event_ops*) { return Maker::kBackend; }
constexpr Maker maker_of(const bp_kernel*) { return Maker::kBackend; }
constexpr Maker maker_of(const bp_numerics*) { return Maker::kBackend; }
constexpr Maker maker_of(const bp_layout_claim*) { return Maker::kBackend; }
constexpr Maker maker_of(const bp_graph_ops*) { return Maker::kBackend; }
constexpr Maker maker_of(const bp_layout_ops*) { return Maker::kBackend; }
constexpr Maker maker_of(const bp_compiler_ops*) { return Maker::kBackend; }
constexpr Maker maker_of(const bp_process_group_ops*) { return Maker::kBackend; }
constexpr Maker maker_of(const bp_profiler_ops*) { return Maker::kBackend; }
constexpr Maker maker_of(const bp_semaphore_ops*) { return Maker::kBackend; }
// Calls hand out or take these structs, and the cases of their tables check them.
constexpr Maker maker_of(const bp_layout*) { return Maker::kInCalls; }
constexpr Maker maker_of(const bp_activity*) { return Maker::kInCalls; }
constexpr Maker maker_of(const bp_store*) { return Maker::kInCalls; }
constexpr Maker maker_of(const bp_op_desc*) { return Maker::kInCalls; }
constexpr Maker maker_of(const bp_op_argument*) { return Maker::kInCalls; }

struct Offer {
  const char* name;
  uint32_t first_size_bytes;
  Maker maker;
};

constexpr Offer kOffers[] = {
#define BP_OFFER(offer, first) {#offer, first, maker_of(static_cast<const offer*>(nullptr))},
#include "conformance/boundary.def"
};

}  // namespace

uint32_t first_size_of(std::string_view name) {
  for (const Offer& offer : kOffers) {
    if (offer.name == name) return offer.first_size_bytes;
  }
  throw std::logic_error("no offer is called " + std::string(name));
}

namespace {

struct Identity {
  uint32_t struct_type;
  const char* name;
};
constexpr Identity kRegistered[] = {
    {BP_STRUCT_DEVICE_OPS, "bp_device_ops"},
    {BP_STRUCT_DEVICE_GUARD_OPS, "bp_device_guard_ops"},
    {BP_STRUCT_ALLOCATOR_OPS, "bp_allocator_ops"},
    {BP_STRUCT_VIRTUAL_MEMORY_OPS, "bp_virtual_memory_ops"},
    {BP_STRUCT_STREAM_OPS, "bp_stream_ops"},
    {BP_STRUCT_EVENT_OPS, "bp_event_ops"},
    {BP_STRUCT_KERNEL, "bp_kernel"},
    {BP_STRUCT_GRAPH_OPS, "bp_graph_ops"},
    {BP_STRUCT_LAYOUT_OPS, "bp_layout_ops"},
    {BP_STRUCT_COMPILER_OPS, "bp_compiler_ops"},
    {BP_STRUCT_PROCESS_GROUP_OPS, "bp_process_group_ops"},
    {BP_STRUCT_PROFILER_OPS, "bp_profiler_ops"},
    {BP_STRUCT_SEMAPHORE_OPS, "bp_semaphore_ops"},
};

void check_offer(Context& t, const void* offer, const char* name, uint32_t struct_type) {
  const auto* header = static_cast<const bp_struct_header*>(offer);
  const uint32_t first = first_size_of(name);
  t.expect_eq(header->struct_type, struct_type, std::string(name) + ": struct_type");
  t.expect(header->struct_size >= first, std::string(name) + ": struct_size is " +
                                             std::to_string(header->struct_size) +
                                             ", its first release has " + std::to_string(first));
  t.expect_eq(header->struct_size % 8, 0u, std::string(name) + ": struct_size modulo 8");
}

void check_properties(Context& t, const bp_device_ops& devices) {
  uint64_t count = 0;
  bp_device* device = nullptr;
  t.require_ok(devices.enumerate(devices.self, 1, &device, &count), "enumerate");
  t.require(count > 0, "a device");
  const bp_device_properties* p = nullptr;
  t.require_ok(devices.properties(devices.self, device, &p), "properties");
  check_offer(t, p, "bp_device_properties", BP_STRUCT_DEVICE_PROPERTIES);
  for (uint64_t i = 0; i < p->heap_count; ++i) {
    const auto* heap = reinterpret_cast<const std::byte*>(p->heaps) + i * p->heap_stride_bytes;
    check_offer(t, heap, "bp_heap", BP_STRUCT_HEAP);
    t.expect(p->heap_stride_bytes >= reinterpret_cast<const bp_heap*>(heap)->struct_size,
             "heap_stride_bytes is at least the size of a heap");
  }
}

void check_registered(Context& t, const bp_struct_header& offer) {
  const auto* const known =
      std::ranges::find(kRegistered, offer.struct_type, &Identity::struct_type);
  if (known == std::end(kRegistered)) {
    t.add({"a table has struct_type " + std::to_string(offer.struct_type), "", ""});
    return;
  }
  check_offer(t, &offer, known->name, known->struct_type);
  if (offer.struct_type == BP_STRUCT_DEVICE_OPS) {
    check_properties(t, reinterpret_cast<const bp_device_ops&>(offer));
  } else if (offer.struct_type == BP_STRUCT_KERNEL) {
    const auto& kernel = reinterpret_cast<const bp_kernel&>(offer);
    const bp_numerics* numerics = kernel.numerics;
    if (numerics != nullptr) check_offer(t, numerics, "bp_numerics", BP_STRUCT_NUMERICS);
    for (uint64_t i = 0; i < kernel.layout_claim_count; ++i) {
      check_offer(t, kernel.layout_claims[i], "bp_layout_claim", BP_STRUCT_LAYOUT_CLAIM);
    }
  }
}

void offers_are_whole(Context& t) {
  const PluginEntry entry = open_entry(t);
  TestHost host(t.subject().options);
  Offers offers;
  const bp_registrar registrar = recording_registrar(offers);
  const bp_entry_request request = entry_request(host);
  bp_entry_reply reply = blank_reply();
  const bp_status status = entry.get()(&request, &reply);
  if (status == BP_ALREADY_EXISTS) t.not_supported(host.take_text());
  t.require(status == BP_OK, "the entry: " + host.take_text());
  const bp_backend& backend = *reply.backend;
  check_offer(t, &backend, "bp_backend", BP_STRUCT_BACKEND);
  t.expect_eq(backend.register_all(backend.self, &registrar), BP_OK, "register_all");
  t.expect(!offers.tables.empty(), "register_all adds something");
  for (const bp_struct_header* offer : offers.tables) check_registered(t, *offer);
  t.expect_eq(backend.shutdown(backend.self, UINT64_MAX), BP_OK, "shutdown");
}

// ---- Offers that calls hand out or take --------------------------------------------------------

void layouts_are_whole(Context& t) {
  for (const LayoutSite& site : layout_sites(t)) {
    const bp_layout& layout = *site.layout;
    check_offer(t, &layout, "bp_layout", BP_STRUCT_LAYOUT);
    const OwnedLayout again = layout_of_blob(t, blob_of(layout));
    check_offer(t, again.get(), "bp_layout", BP_STRUCT_LAYOUT);
  }
}

// The records that a sink received; they live only during its call.
struct SeenRecords {
  std::mutex mutex;
  std::vector<bp_struct_header> headers;

  static void take(void* self, const bp_activity* activity) {
    auto& seen = *static_cast<SeenRecords*>(self);
    const std::lock_guard lock(seen.mutex);
    std::memcpy(&seen.headers.emplace_back(), activity, sizeof(bp_struct_header));
  }
};

void activities_are_whole(Context& t) {
  if (bp_target_has_table(&t.target(), BP_STRUCT_PROFILER_OPS) == 0) {
    t.not_supported("the device has no profiler");
  }
  const bp_profiler_ops& profiler = *t.target().profiler;
  const bp_allocator_ops& memory = *t.target().allocator;
  const OwnedStream stream = make_stream(t);
  const OwnedBuffer buffer = make_buffer(t, 64);
  const bp_buffer_ref whole = range(buffer, 0, 64);
  SeenRecords seen;
  const bp_profile_desc desc{.struct_size = sizeof(desc),
                             .struct_type = BP_STRUCT_PROFILE_DESC,
                             .sink = SeenRecords::take,
                             .user_data = &seen};
  t.require_ok(profiler.start(profiler.self, t.target().device, &desc), "start");
  const uint8_t zero = 0;
  const bp_status filled = memory.fill(memory.self, stream.get(), &whole, &zero, 1);
  t.require_ok(profiler.stop(profiler.self, t.target().device, UINT64_MAX), "stop");
  t.require_ok(filled, "fill");
  t.require(!seen.headers.empty(), "a record of the fill");
  for (const bp_struct_header& header : seen.headers) {
    check_offer(t, &header, "bp_activity", BP_STRUCT_ACTIVITY);
  }
}

bp_store empty_store() {
  return {.struct_size = sizeof(bp_store),
          .struct_type = BP_STRUCT_STORE,
          .next = nullptr,
          .self = nullptr,
          .get = [](void*, const char*, uint64_t, uint64_t, void*, uint64_t*) -> bp_status {
            return BP_TIMEOUT;
          },
          .try_get = [](void*, const char*, uint64_t, void*, uint64_t*) -> bp_status {
            return BP_NOT_FOUND;
          },
          .put = [](void*, const char*, const void*, uint64_t) -> bp_status { return BP_OK; }};
}

// Makes a group of only this device with the store at `at`, and ends the group.
bp_status make_group(Context& t, const void* at) {
  const bp_process_group_ops& groups = require_groups(t);
  bp_device* const device = t.target().device;
  const uint32_t rank = 0;
  const bp_process_group_desc desc{.struct_size = sizeof(desc),
                                   .struct_type = BP_STRUCT_PROCESS_GROUP_DESC,
                                   .next = nullptr,
                                   .devices = &device,
                                   .ranks = &rank,
                                   .local_count = 1,
                                   .world_size = 1,
                                   .store = static_cast<const bp_store*>(at),
                                   .key_prefix = "size/",
                                   .timeout_ns = kTimeoutNs};
  bp_process_group* group = nullptr;
  const bp_status status = groups.create(groups.self, &desc, &group);
  if (status == BP_OK) t.require_ok(groups.destroy(groups.self, group), "destroy");
  return status;
}

// A backend may ignore a store if all ranks are local. It must refuse or ignore a store that it
// cannot read.
void stores_of_other_builds(Context& t) {
  static_cast<void>(require_groups(t));
  struct Build {
    const char* what;
    uint32_t struct_size;
    size_t given_bytes;
    bool is_readable;
  };
  constexpr uint32_t kOwn = sizeof(bp_store);
  const uint32_t first = first_size_of("bp_store");
  const Build builds[] = {{"of this build", kOwn, kOwn, true},
                          {"of its first release", first, first, true},
                          {"8 bytes longer", kOwn + 8, kOwn + 8, true},
                          {"shorter than its first release", first - 8, kOwn, false},
                          {"of 65,537 bytes", 65537, kOwn, false},
                          {"of size 0", 0, kOwn, false}};
  const bp_store own = empty_store();
  for (const Build& build : builds) {
    PageEnd place(build.given_bytes);
    std::memset(place.data(), 0x5A, place.size());
    std::memcpy(place.data(), &own, std::min<size_t>(kOwn, place.size()));
    std::memcpy(place.data(), &build.struct_size, sizeof(build.struct_size));
    const bp_status status = make_group(t, place.data());
    const std::string what = std::string("create with a bp_store ") + build.what;
    if (status == BP_OK) continue;
    if (build.is_readable) {
      t.expect_eq(status, BP_OK, what + ": " + bp_error_text());
      bp_error_clear();
    } else {
      t.expect_refused(status, BP_INCOMPATIBLE, what);
    }
  }
}

}  // namespace

void add_abi_offer_cases(std::vector<Case>& cases) {
  add_api_cases(cases, "abi",
                {{"offers_are_whole", {"SIZE-1"}, offers_are_whole},
                 {"size.bp_layout", {"SIZE-1"}, layouts_are_whole},
                 {"size.bp_activity", {"SIZE-1"}, activities_are_whole},
                 {"size.bp_store", {"SIZE-1", "SIZE-2"}, stores_of_other_builds}});
}

}  // namespace bp::conformance
