// Cases for the sizes of structs: what another build of the host, older or newer, hands over. Each
// struct lies at the end of a page, so that nobody reads or writes behind the caller's size.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "conformance/cases/abi_size_calls.hpp"
#include "conformance/cases/families.hpp"
#include "conformance/cases/offers.hpp"
#include "conformance/cases/test_host.hpp"
#include "conformance/memory/page_end.hpp"

namespace bp::conformance {
namespace {

// A type of link that nobody defines, from the block of the last vendor.
constexpr uint32_t kUnknownLink = 0x7fff0001;

struct Row {
  std::string name;
  std::string type;
  uint32_t first_size_bytes;  // In its first release.
  MakeSizedCall make;
};

// One way to hand a struct over.
struct Variation {
  std::string what;
  uint32_t struct_size;  // What it says.
  size_t given_bytes;    // What lies in front of the end of the page; at least struct_size.
  std::byte tail;        // Of the bytes behind those of this build.
  uint32_t link;         // The struct_type of a link, or 0.
  bp_status want;
};

// How a reader judges: as a request, of which nothing may be ignored, or as an offer.
std::vector<Variation> variations(const Row& row, uint32_t own_bytes, bool is_offer) {
  const uint32_t first = row.first_size_bytes, longer = own_bytes + 8;
  const bp_status of_tail = is_offer ? BP_OK : BP_INCOMPATIBLE;
  return {
      {"of this build", own_bytes, own_bytes, {}, 0, BP_OK},
      {"struct_size 0", 0, own_bytes, {}, 0, BP_INCOMPATIBLE},
      {"shorter than its first release", first - 8, own_bytes, {}, 0, BP_INCOMPATIBLE},
      {"of its first release", first, first, {}, 0, BP_OK},
      {"8 bytes longer, these zero", longer, longer, {}, 0, BP_OK},
      {"8 bytes longer, these not zero", longer, longer, std::byte{0x5A}, 0, of_tail},
      {"a link that nobody knows", own_bytes, own_bytes, {}, kUnknownLink, BP_OK},
      {"a link that must be understood",
       own_bytes,
       own_bytes,
       {},
       kUnknownLink | BP_STRUCT_MUST_UNDERSTAND,
       BP_INCOMPATIBLE},
  };
}

// Lays the struct of a variation out, and keeps what it refers to.
class Laid {
 public:
  Laid(const SizedCall& call, const Variation& v)
      : place_(v.given_bytes), link_{sizeof(link_), v.link, nullptr} {
    const size_t own = std::min(call.bytes.size(), v.given_bytes);
    std::copy_n(call.bytes.data(), own, place_.data());
    std::fill(place_.data() + own, place_.data() + place_.size(), v.tail);
    std::memcpy(place_.data(), &v.struct_size, sizeof(v.struct_size));
    if (v.link != 0) {
      const void* const next = &link_;
      std::memcpy(place_.data() + offsetof(bp_struct_header, next), &next, sizeof(next));
    }
    before_.assign(place_.data(), place_.data() + place_.size());
  }

  std::byte* data() { return place_.data(); }
  // Whether the bytes from `begin` on are what they were.
  bool is_unchanged(size_t begin, size_t end) {
    return std::equal(before_.data() + begin, before_.data() + end, place_.data() + begin);
  }
  bool is_unchanged() { return is_unchanged(0, place_.size()); }

 private:
  PageEnd place_;
  bp_struct_header link_;
  std::vector<std::byte> before_;
};

// Ends the case where the plain call, the first one, is not offered.
bool is_first_and_fails(Context& t, const Variation& v, uint32_t own_bytes, bp_status status) {
  if (v.struct_size != own_bytes || v.link != 0 || status == BP_OK) return false;
  if (status == BP_UNSUPPORTED) t.not_supported(bp_error_text());
  return true;
}

// Requires the status, and of a failure the text; the host's text where it is the suite's own.
void expect_status(Context& t, const Row& row, const Variation& v, bp_status status,
                   bool has_text) {
  const std::string what = row.name + ": " + row.type + " " + v.what;
  if (v.want != BP_OK && has_text) {
    t.expect_refused(status, v.want, what);
    return;
  }
  const std::string words = status == BP_OK ? "" : std::string(": ") + bp_error_text();
  t.expect_eq(status, v.want, what + words);
  bp_error_clear();
}

void check_read(Context& t, const Row& row, bool is_offer) {
  const SizedCall call = row.make(t);
  const auto own_bytes = static_cast<uint32_t>(call.bytes.size());
  for (const Variation& v : variations(row, own_bytes, is_offer)) {
    t.progress(v.what);
    Laid laid(call, v);
    const bp_status status = call.run(laid.data());
    const bool is_last = is_first_and_fails(t, v, own_bytes, status);
    expect_status(t, row, v, status, !is_offer);
    t.expect(laid.is_unchanged(), row.name + ": what was given, " + v.what + ", was written to");
    if (is_last) return;  // The rest says little where the plain call does not work.
  }
}

// What a callee fills: as much as the caller's size, without the header, or nothing.
void check_filled(Context& t, const Row& row) {
  const SizedCall call = row.make(t);
  const auto own_bytes = static_cast<uint32_t>(call.bytes.size());
  const uint32_t first = row.first_size_bytes, longer = own_bytes + 64;
  const std::array<Variation, 6> all = {{
      {"of this build", own_bytes, own_bytes, {}, 0, BP_OK},
      {"struct_size 0", 0, own_bytes, {}, 0, BP_INCOMPATIBLE},
      {"shorter than its first release", first - 8, own_bytes, {}, 0, BP_INCOMPATIBLE},
      {"of its first release", first, first, {}, 0, BP_OK},
      {"64 bytes longer", longer, longer, std::byte{0x5A}, 0, BP_OK},
      {"a link that nobody knows", own_bytes, own_bytes, {}, kUnknownLink, BP_OK},
  }};
  for (const Variation& v : all) {
    t.progress(v.what);
    Laid laid(call, v);
    const bp_status status = call.run(laid.data());
    const std::string what = row.name + ": " + row.type + " " + v.what;
    const bool is_last = is_first_and_fails(t, v, own_bytes, status);
    expect_status(t, row, v, status, row.type != "bp_entry_reply");
    t.expect(laid.is_unchanged(0, sizeof(bp_struct_header)), what + ": its header was written");
    if (status != BP_OK) {
      t.expect(laid.is_unchanged(), what + ": it was written to by a call that failed");
    } else if (v.given_bytes > own_bytes) {
      t.expect(laid.is_unchanged(own_bytes, v.given_bytes),
               what + ": bytes were written that no header names");
    }
    if (is_last) return;
  }
}

// ---- Offers of the backend ------------------------------------------------------------------

// Who makes an offer. A struct without an answer here does not compile.
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
constexpr Maker maker_of(const bp_graph_ops*) { return Maker::kBackend; }
constexpr Maker maker_of(const bp_layout_ops*) { return Maker::kBackend; }
constexpr Maker maker_of(const bp_compiler_ops*) { return Maker::kBackend; }
constexpr Maker maker_of(const bp_process_group_ops*) { return Maker::kBackend; }
constexpr Maker maker_of(const bp_profiler_ops*) { return Maker::kBackend; }
// What a call hands out or takes; the cases of these tables look at it.
constexpr Maker maker_of(const bp_layout*) { return Maker::kInCalls; }
constexpr Maker maker_of(const bp_activity*) { return Maker::kInCalls; }
constexpr Maker maker_of(const bp_store*) { return Maker::kInCalls; }

struct Offer {
  const char* name;
  uint32_t first_size_bytes;
  Maker maker;
};

constexpr Offer kOffers[] = {
#define BP_OFFER(offer, first) {#offer, first, maker_of(static_cast<const offer*>(nullptr))},
#include "conformance/boundary.def"
};

uint32_t first_size_of(std::string_view name) {
  for (const Offer& offer : kOffers) {
    if (offer.name == name) return offer.first_size_bytes;
  }
  throw std::logic_error("no offer is called " + std::string(name));
}

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
    const bp_numerics* numerics = reinterpret_cast<const bp_kernel&>(offer).numerics;
    if (numerics != nullptr) check_offer(t, numerics, "bp_numerics", BP_STRUCT_NUMERICS);
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
  t.expect_eq(backend.register_all(backend.self, &registrar), bp_status{BP_OK}, "register_all");
  t.expect(!offers.tables.empty(), "register_all adds something");
  for (const bp_struct_header* offer : offers.tables) check_registered(t, *offer);
  t.expect_eq(backend.shutdown(backend.self), bp_status{BP_OK}, "shutdown");
}

// ---- The list -------------------------------------------------------------------------------

void add(std::vector<Case>& cases, const Row& row, std::vector<std::string> tags,
         void (*check)(Context&, const Row&)) {
  Case c;
  c.id = "abi.size." + row.name;
  c.tags = std::move(tags);
  c.group = "abi";
  c.run = [row, check](Context& t) { check(t, row); };
  cases.push_back(std::move(c));
}

void check_request(Context& t, const Row& row) { check_read(t, row, false); }
void check_host_offer(Context& t, const Row& row) { check_read(t, row, true); }

// "bp_allocator_ops" and "allocate" to "allocator.allocate".
std::string id_of(std::string_view table, std::string_view slot) {
  table.remove_prefix(std::string_view("bp_").size());
  if (table.ends_with("_ops")) table.remove_suffix(std::string_view("_ops").size());
  return std::string(table) + "." + std::string(slot);
}

const Row kRequests[] = {
#define BP_REQUEST(table, slot, desc, first) \
  {id_of(#table, #slot), #desc, first, make_##table##_##slot},
#define BP_NESTED(request, first) {#request, #request, first, make_##request},
#include "conformance/boundary.def"
};
const Row kFilled[] = {
#define BP_OUT(table, slot, result, first) \
  {id_of(#table, #slot), #result, first, make_##table##_##slot},
#include "conformance/boundary.def"
};
const struct {
  const char* name;
  MakeSizedCall make;
} kMadeByHost[] = {
    {"bp_host", make_bp_host},
    {"bp_entry_request", make_bp_entry_request},
    {"bp_registrar", make_bp_registrar},
};

}  // namespace

void add_abi_size_cases(std::vector<Case>& cases) {
  for (const Row& row : kRequests) add(cases, row, {"SIZE-1", "SIZE-3", "SIZE-4"}, check_request);
  for (const Row& row : kFilled) add(cases, row, {"SIZE-1", "SIZE-2"}, check_filled);
  for (const auto& offer : kMadeByHost) {
    const Row row{offer.name, offer.name, first_size_of(offer.name), offer.make};
    add(cases, row, {"SIZE-1", "SIZE-2", "SIZE-4"}, check_host_offer);
  }
  const Row reply{"bp_entry_reply", "bp_entry_reply", first_size_of("bp_entry_reply"),
                  make_bp_entry_reply};
  add(cases, reply, {"SIZE-1", "SIZE-2"}, check_filled);
  add_api_cases(cases, "abi", {{"offers_are_whole", {"SIZE-1"}, offers_are_whole}});
}

}  // namespace bp::conformance
