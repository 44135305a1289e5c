// Cases for the memory that a backend takes from its host, in api/include/backplane/base.h.
#include <string>

#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/test_host.hpp"

namespace bp::conformance {
namespace {

constexpr int64_t kMostBlocks = 4000;  // An instance and a few handles need fewer blocks.

// Checks a call that makes a handle: it either succeeds, or reports with a text that memory ran
// out.
void expect_made_or_out_of_memory(Context& t, TestHost& host, bp_status status, bool is_untouched,
                                  const std::string& what) {
  if (status == BP_OK) return;
  t.expect_eq(status, BP_OUT_OF_MEMORY, what + " when the host has no memory");
  t.expect(!host.take_text().empty(), what + " leaves a text");
  t.expect(is_untouched, what + " leaves its out parameter alone");
}

// Makes one handle of each kind, and ends it.
void make_handles(Context& t, const RawInstance& instance, bp_device* device, TestHost& host) {
  const bp_allocator_ops& m = instance.allocator();
  const bp_stream_ops& streams = instance.streams();
  const bp_event_ops& events = instance.events();
  const bp_allocate_desc desc{.struct_size = sizeof(bp_allocate_desc),
                              .struct_type = BP_STRUCT_ALLOCATE_DESC,
                              .size_bytes = 256};
  bp_buffer* const no_buffer = t.sentinel<bp_buffer>();
  bp_stream* const no_stream = t.sentinel<bp_stream>();
  bp_event* const no_event = t.sentinel<bp_event>();
  bp_buffer* buffer = no_buffer;
  bp_stream* stream = no_stream;
  bp_event* event = no_event;
  const bp_status allocated = m.allocate(m.self, device, &desc, &buffer);
  expect_made_or_out_of_memory(t, host, allocated, buffer == no_buffer, "allocate");
  const bp_status created = streams.create(streams.self, device, nullptr, &stream);
  expect_made_or_out_of_memory(t, host, created, stream == no_stream, "stream.create");
  const bp_status made = events.create(events.self, device, nullptr, &event);
  expect_made_or_out_of_memory(t, host, made, event == no_event, "event.create");
  if (made == BP_OK) static_cast<void>(events.destroy(events.self, event));
  if (created == BP_OK) static_cast<void>(streams.destroy(streams.self, stream));
  if (allocated == BP_OK) static_cast<void>(m.deallocate(m.self, buffer, nullptr));
}

// Refuses the first block of host memory, then the second, and so on until no request is refused
// any more. Each time it makes an instance and uses it as far as it works.
void every_block_of_the_host_may_be_refused(Context& t) {
  const PluginEntry entry = open_entry(t);
  for (int64_t index = 0; index < kMostBlocks; ++index) {
    TestHost host(t.subject().options);
    host.refuse_block(index);
    {
      RawInstance instance(entry, host);
      if (instance.status() == BP_ALREADY_EXISTS) t.not_supported(instance.problem());
      if (instance.problem().empty()) {
        bp_device* const device = instance.device(t.target().index);
        if (device != nullptr) make_handles(t, instance, device, host);
      } else {
        t.expect_eq(instance.status(), BP_OUT_OF_MEMORY, instance.problem());
      }
      t.expect_eq(instance.end(), BP_OK, "shutdown");
    }
    const std::string where = ", where block " + std::to_string(index) + " was refused";
    t.expect_eq(host.block_count(), int64_t{0}, "blocks left after shutdown" + where);
    t.expect_eq(host.misuse(), std::string(), "misuse of bp_host" + where);
    if (t.has_failed()) return;
    if (host.has_refused()) continue;
    if (index == 0) t.not_supported("the backend takes no memory from its host");
    t.detail("blocks", std::to_string(index));
    return;
  }
  t.fail("an instance takes more than " + std::to_string(kMostBlocks) + " blocks of the host");
}

}  // namespace

void add_host_memory_cases(std::vector<Case>& cases) {
  add_api_cases(cases, "load",
                {
                    {"every_block_of_the_host_may_be_refused",
                     {"ERROR-1", "ERROR-2", "ENTRY-6"},
                     every_block_of_the_host_may_be_refused},
                });
}

}  // namespace bp::conformance
