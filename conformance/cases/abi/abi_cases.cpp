// Cases for api/include/backplane/backend.h: several kinds of hosts call the entry.
#include <memory>
#include <string>

#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/fixtures.hpp"
#include "conformance/cases/fixtures/test_host.hpp"

namespace bp::conformance {
namespace {

constexpr uint32_t kNotSet = 0x5EED;

// Returns a reply whose majors no backend has set.
bp_entry_reply reply_without_majors() {
  bp_entry_reply reply = blank_reply();
  reply.abi_major_min = reply.abi_major_max = kNotSet;
  return reply;
}

void expect_own_major(Context& t, const bp_entry_reply& reply, const std::string& where) {
  const uint32_t own = BP_ABI_MAJOR;
  t.expect(
      reply.abi_major_min <= own && own <= reply.abi_major_max && reply.abi_major_max != kNotSet,
      where + ": the majors are " + std::to_string(reply.abi_major_min) + " to " +
          std::to_string(reply.abi_major_max) + ", and the suite's own is not among them");
}

// Calls the entry for a host that the backend does not serve.
void expect_refused(Context& t, const PluginEntry& entry, TestHost& host,
                    const bp_entry_request& request, const std::string& what) {
  bp_entry_reply reply = reply_without_majors();
  const bp_status status = entry.get()(&request, &reply);
  t.expect_eq(status, BP_INCOMPATIBLE, what);
  const std::string text = host.take_text();
  t.expect(!text.empty(), what + ": the refusal has a text");
  t.expect(text.find("0.") != std::string::npos, what + ": the text says which version it serves");
  t.expect(reply.backend == nullptr, what + ": the reply after a refusal");
  if (status == BP_OK) reply.backend->shutdown(reply.backend->self, UINT64_MAX);
  expect_own_major(t, reply, what);
}

void foreign_versions_are_refused_in_words(Context& t) {
  const PluginEntry entry = open_entry(t);
  TestHost host(t.subject().options);
  bp_entry_request foreign_major = entry_request(host), dropped_minor = entry_request(host);
  foreign_major.abi_major_min = foreign_major.abi_major_max = 999;
  dropped_minor.abi_minor = dropped_minor.abi_minor_min = 999;
  expect_refused(t, entry, host, foreign_major, "a major that the backend does not serve");
  expect_refused(t, entry, host, dropped_minor, "a minor that the backend does not serve");
}

// A host of major 1 is none for a build of major 0, also if it serves both.
void hosts_of_major_1_are_refused(Context& t) {
  if (BP_ABI_MAJOR != 0) t.skip("the suite is of major " + std::to_string(BP_ABI_MAJOR));
  const PluginEntry entry = open_entry(t);
  TestHost host(t.subject().options);
  for (const uint32_t lowest : {0u, 1u}) {
    bp_entry_request request = entry_request(host);
    request.abi_major_min = lowest;
    request.abi_major_max = 1;
    request.abi_minor_min = 0;
    expect_refused(t, entry, host, request,
                   "a host of the majors " + std::to_string(lowest) + " to 1");
  }
}

void majors_are_told(Context& t) {
  const PluginEntry entry = open_entry(t);
  TestHost host(t.subject().options);
  const bp_entry_request request = entry_request(host);
  bp_entry_reply reply = reply_without_majors();
  const bp_status status = entry.get()(&request, &reply);
  if (status == BP_ALREADY_EXISTS) t.not_supported(host.take_text());
  t.require(status == BP_OK, "the entry: " + host.take_text());
  expect_own_major(t, reply, "a reply that is BP_OK");
  t.expect_eq(reply.backend->shutdown(reply.backend->self, UINT64_MAX), BP_OK, "shutdown");
}

void newer_host_is_served(Context& t) {
  const PluginEntry entry = open_entry(t);
  TestHost host(t.subject().options);
  // A struct as a later release may have it: longer, with a tail that is not zero.
  struct Later {
    bp_entry_request known;
    uint64_t appended;
  } later{entry_request(host), 0x5EED};
  later.known.struct_size = sizeof(Later);
  later.known.abi_minor = BP_ABI_MINOR + 5;
  bp_entry_reply reply = blank_reply();
  const bp_status status = entry.get()(&later.known, &reply);
  if (status == BP_ALREADY_EXISTS) t.not_supported(host.take_text());
  t.require(status == BP_OK, "a host that serves newer minors as well: " + host.take_text());
  t.expect_eq(reply.abi_major, uint32_t{BP_ABI_MAJOR}, "the major that was chosen");
  t.expect(reply.abi_minor <= later.known.abi_minor, "the minor is within the host's range");
  t.expect_eq(reply.backend->shutdown(reply.backend->self, UINT64_MAX), BP_OK, "shutdown");
}

// Two hosts in one process work in turn. The end of one does not affect the other.
void instances_are_independent(Context& t) {
  const bp_registry_desc desc{.struct_size = sizeof(bp_registry_desc),
                              .struct_type = BP_STRUCT_REGISTRY_DESC,
                              .flags = BP_REGISTRY_IGNORE_ENVIRONMENT};
  bp_registry* other = nullptr;
  t.require_ok(bp_registry_create(&desc, &other), "registry.create");
  const std::unique_ptr<bp_registry, bp_status (*)(bp_registry*)> owner(other, bp_registry_destroy);
  const bp_plugin* plugin = nullptr;
  const Subject& subject = t.subject();
  const bp_status status = bp_registry_load(other, t.target().plugin->path, subject.options.size(),
                                            subject.options.data(), &plugin);
  if (status == BP_ALREADY_EXISTS) t.not_supported(bp_error_text());
  t.require_ok(status, "a second instance");
  const bp_target& second = *bp_registry_target(other, 0);
  bp_block *a = nullptr, *b = nullptr;
  t.require_ok(bp_block_allocate(&t.target(), nullptr, 1000, &a), "a block of the first");
  t.require_ok(bp_block_allocate(&second, nullptr, 1000, &b), "a block of the second");
  t.expect_eq(bp_block_free(b), BP_OK, "free of the second");
  t.require_ok(bp_registry_unload(other, plugin, UINT64_MAX), "unload of the second");
  const OwnedStream stream = make_stream(t);
  bp_buffer_ref ref = a->ref;
  const std::vector<uint8_t> bytes = random_bytes(t, ref.size_bytes);
  write(t, stream.get(), ref, bytes);
  t.expect(read(t, stream.get(), ref) == bytes, "the first works when the second has ended");
  t.expect_eq(bp_block_free(a), BP_OK, "free of the first");
}

void shutdown_gives_host_memory_back(Context& t) {
  const PluginEntry entry = open_entry(t);
  for (int i = 0; i < 3; ++i) {
    TestHost host(t.subject().options);
    const bp_entry_request r = entry_request(host);
    bp_entry_reply reply = blank_reply();
    const bp_status status = entry.get()(&r, &reply);
    if (status == BP_ALREADY_EXISTS) t.not_supported(host.take_text());
    t.require(status == BP_OK, "the entry: " + host.take_text());
    t.expect_eq(reply.backend->shutdown(reply.backend->self, UINT64_MAX), BP_OK, "shutdown");
    t.expect_eq(host.block_count(), int64_t{0}, "blocks of host memory left after shutdown");
  }
}

}  // namespace

void add_abi_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "abi",
      {
          {"foreign_versions_are_refused_in_words",
           {"ENTRY-2", "ENTRY-8"},
           foreign_versions_are_refused_in_words},
          {"hosts_of_major_1_are_refused", {"ENTRY-9", "ENTRY-2"}, hosts_of_major_1_are_refused},
          {"majors_are_told", {"ENTRY-8"}, majors_are_told},
          {"newer_host_is_served", {"ENTRY-1", "SIZE-2"}, newer_host_is_served},
      });
}

void add_load_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "load",
      {
          {"instances_are_independent", {"ENTRY-3"}, instances_are_independent},
          {"shutdown_gives_host_memory_back", {"ENTRY-6"}, shutdown_gives_host_memory_back},
      });
}

}  // namespace bp::conformance
