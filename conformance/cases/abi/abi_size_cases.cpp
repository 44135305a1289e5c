// Cases for the sizes of structs that an older or newer build of the host passes. Each struct lies
// at the end of a page, so that a read or write behind the caller's size ends the process.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "conformance/cases/abi/abi_size_calls.hpp"
#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/memory/fenced_pages.hpp"

namespace bp::conformance {
namespace {

// The type of a link that nobody defines, from the block of the last vendor.
constexpr uint32_t kUnknownLink = 0x7fff0001;

struct Row {
  std::string name;
  std::string type;
  uint32_t first_size_bytes;  // The size in its first release.
  MakeSizedCall make;
};

// One way to pass a struct.
struct Variation {
  std::string what;
  uint32_t struct_size;  // The size that the struct states.
  size_t given_bytes;    // The bytes in front of the end of the page; at least struct_size.
  std::byte tail;        // The value of the bytes behind those of this build.
  uint32_t link;         // The struct_type of a link, or 0.
  bp_status want;
  uint32_t link_count = 1;  // The links, if there is one.
};

constexpr uint32_t kTooLong = BP_MAX_STRUCT_BYTES + 1, kMostLinks = BP_MAX_LINKS;

// Returns the variations. A reader of a request may ignore nothing, but a reader of an offer may.
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
      {"65,537 bytes long", kTooLong, own_bytes, {}, 0, BP_INCOMPATIBLE},
      {"a link of an unknown type", own_bytes, own_bytes, {}, kUnknownLink, BP_OK},
      {"64 links", own_bytes, own_bytes, {}, kUnknownLink, BP_OK, kMostLinks},
      {"65 links", own_bytes, own_bytes, {}, kUnknownLink, BP_INCOMPATIBLE, kMostLinks + 1},
      {"a link that must be understood",
       own_bytes,
       own_bytes,
       {},
       kUnknownLink | BP_STRUCT_MUST_UNDERSTAND,
       BP_INCOMPATIBLE},
  };
}

// Lays out the struct of a variation, and keeps what the struct refers to.
class Laid {
 public:
  Laid(const SizedCall& call, const Variation& v) : place_(v.given_bytes), links_(v.link_count) {
    const size_t own = std::min(call.bytes.size(), v.given_bytes);
    std::copy_n(call.bytes.data(), own, place_.data());
    std::fill(place_.data() + own, place_.data() + place_.size(), v.tail);
    std::memcpy(place_.data(), &v.struct_size, sizeof(v.struct_size));
    for (size_t i = 0; i < links_.size(); ++i) {
      const void* const next = i + 1 < links_.size() ? &links_[i + 1] : nullptr;
      links_[i] = {sizeof(bp_struct_header), v.link, next};
    }
    if (v.link != 0) {
      const void* const next = links_.data();
      std::memcpy(place_.data() + offsetof(bp_struct_header, next), &next, sizeof(next));
    }
    before_.assign(place_.data(), place_.data() + place_.size());
  }

  std::byte* data() { return place_.data(); }
  // Returns whether the bytes from `begin` on have not changed.
  bool is_unchanged(size_t begin, size_t end) {
    return std::equal(before_.data() + begin, before_.data() + end, place_.data() + begin);
  }
  bool is_unchanged() { return is_unchanged(0, place_.size()); }

 private:
  PageEnd place_;
  std::vector<bp_struct_header> links_;
  std::vector<std::byte> before_;
};

// Ends the case if the plain call, which is the first one, is not offered.
bool is_first_and_fails(Context& t, const Variation& v, uint32_t own_bytes, bp_status status) {
  if (v.struct_size != own_bytes || v.link != 0 || status == BP_OK) return false;
  if (status == BP_UNSUPPORTED) t.not_supported(bp_error_text());
  return true;
}

// Requires the status. If `has_text`, a failure must also leave a text with this host; otherwise
// the call has left its text with a host of the suite's own.
void expect_status(Context& t, const Row& row, const Variation& v, bp_status status,
                   bool has_text) {
  const std::string what = row.name + ": " + row.type + " " + v.what;
  if (v.want != BP_OK && has_text) {
    t.expect_refused(status, v.want, what);
    return;
  }
  const std::string words = status == BP_OK ? "" : std::string(": ") + bp_error_text();
  t.expect_status(status, v.want, what + words);
  bp_error_clear();
}

void check_read(Context& t, const Row& row, bool is_offer) {
  const SizedCall call = row.make(t);
  const auto own_bytes = static_cast<uint32_t>(call.bytes.size());
  for (const Variation& v : variations(row, own_bytes, is_offer)) {
    // The stride of an array of values is below this size, which is refused as well.
    if (v.struct_size == kTooLong && row.type == "bp_program_value") continue;
    t.progress(v.what);
    Laid laid(call, v);
    const bp_status status = call.run(laid.data());
    const bool is_last = is_first_and_fails(t, v, own_bytes, status);
    expect_status(t, row, v, status, !is_offer);
    t.expect(laid.is_unchanged(), row.name + ": what was given, " + v.what + ", was written to");
    if (is_last) return;  // If the plain call does not work, the others prove little.
  }
}

// A callee fills as much as the caller's size, without the header, or nothing.
void check_filled(Context& t, const Row& row) {
  const SizedCall call = row.make(t);
  const auto own_bytes = static_cast<uint32_t>(call.bytes.size());
  const uint32_t first = row.first_size_bytes, longer = own_bytes + 64;
  const std::array<Variation, 8> all = {{
      {"of this build", own_bytes, own_bytes, {}, 0, BP_OK},
      {"struct_size 0", 0, own_bytes, {}, 0, BP_INCOMPATIBLE},
      {"shorter than its first release", first - 8, own_bytes, {}, 0, BP_INCOMPATIBLE},
      {"of its first release", first, first, {}, 0, BP_OK},
      {"64 bytes longer", longer, longer, std::byte{0x5A}, 0, BP_OK},
      {"65,537 bytes long", kTooLong, own_bytes, {}, 0, BP_INCOMPATIBLE},
      {"a link of an unknown type", own_bytes, own_bytes, {}, kUnknownLink, BP_OK},
      {"65 links", own_bytes, own_bytes, {}, kUnknownLink, BP_INCOMPATIBLE, kMostLinks + 1},
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

// Returns "allocator.allocate" for "bp_allocator_ops" and "allocate".
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
  add_abi_offer_cases(cases);
}

}  // namespace bp::conformance
