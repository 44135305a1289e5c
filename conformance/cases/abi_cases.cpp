// Cases for api/include/backplane/backend.h: the entry, met as other hosts meet it.
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures.hpp"

namespace bp::conformance {
namespace {

// A host of this file's own, which keeps the text and counts memory.
struct TestHost {
  explicit TestHost(const Subject& its_subject) : subject(its_subject) {}

  const Subject& subject;
  std::string text;
  int64_t allocation_count = 0;
  bp_host table{
      .struct_size = sizeof(bp_host),
      .struct_type = BP_STRUCT_HOST,
      .next = nullptr,
      .self = this,
      .set_error = [](void* self, bp_status status, const char* message) -> bp_status {
        static_cast<TestHost*>(self)->text = message == nullptr ? "" : message;
        return status;
      },
      .log = [](void*, bp_log_level, const char*) -> bp_status { return BP_OK; },
      .get_option = [](void* self, const char* key, const char** out_value) -> bp_status {
        for (const bp_option& option : static_cast<TestHost*>(self)->subject.options) {
          if (std::strcmp(option.key, key) == 0) return *out_value = option.value, BP_OK;
        }
        return BP_NOT_FOUND;
      },
      .allocate = [](void* self, uint64_t size_bytes, uint64_t alignment_bytes,
                     void** out_memory) -> bp_status {
        const uint64_t rounded = (size_bytes + alignment_bytes - 1) / alignment_bytes;
        void* memory = std::aligned_alloc(alignment_bytes, rounded * alignment_bytes);
        if (memory == nullptr) return BP_OUT_OF_MEMORY;
        ++static_cast<TestHost*>(self)->allocation_count;
        return *out_memory = memory, BP_OK;
      },
      .free = [](void* self, void* memory, uint64_t) -> bp_status {
        --static_cast<TestHost*>(self)->allocation_count;
        std::free(memory);
        return BP_OK;
      },
  };
};

struct Close {
  void operator()(void* library) const { dlclose(library); }
};

// The entry of the plugin under test, and its library.
struct Entry {
  std::unique_ptr<void, Close> library;
  bp_backend_entry_fn* function;
};

Entry open_entry(Context& t) {
  const std::string path = t.target().plugin->path;
  if (path == "(static)") t.skip("the backend is linked into the program");
  std::unique_ptr<void, Close> library(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL));
  t.require(library != nullptr, "dlopen of the plugin");
  auto* function = reinterpret_cast<bp_backend_entry_fn*>(dlsym(library.get(), "bp_backend_entry"));
  t.require(function != nullptr, "the plugin exports bp_backend_entry");
  return {std::move(library), function};
}

bp_entry_request request(const TestHost& host) {
  return {.struct_size = sizeof(bp_entry_request),
          .struct_type = BP_STRUCT_ENTRY_REQUEST,
          .abi_major_min = BP_ABI_MAJOR,
          .abi_major_max = BP_ABI_MAJOR,
          .abi_minor = BP_ABI_MINOR,
          .abi_minor_min = BP_ABI_MINOR,
          .host = &host.table};
}

bp_entry_reply blank_reply() {
  return {.struct_size = sizeof(bp_entry_reply), .struct_type = BP_STRUCT_ENTRY_REPLY};
}

void foreign_versions_are_refused_in_words(Context& t) {
  const Entry entry = open_entry(t);
  TestHost host(t.subject());
  bp_entry_request foreign_major = request(host), dropped_minor = request(host);
  foreign_major.abi_major_min = foreign_major.abi_major_max = 999;
  dropped_minor.abi_minor = dropped_minor.abi_minor_min = 999;
  for (const bp_entry_request* r : {&foreign_major, &dropped_minor}) {
    bp_entry_reply reply = blank_reply();
    host.text.clear();
    const bp_status status = entry.function(r, &reply);
    t.expect_eq(status, bp_status{BP_INCOMPATIBLE}, "a version that the backend does not serve");
    t.expect(!host.text.empty(), "the refusal has a text");
    t.expect(host.text.find("0.") != std::string::npos, "the text says which version it serves");
    t.expect(reply.backend == nullptr, "the reply after a refusal");
    if (status == BP_OK) reply.backend->shutdown(reply.backend->self);
  }
}

void newer_host_is_served(Context& t) {
  const Entry entry = open_entry(t);
  TestHost host(t.subject());
  // As a later release may have it: longer, and with a tail that is not zero.
  struct Later {
    bp_entry_request known;
    uint64_t appended;
  } later{request(host), 0x5EED};
  later.known.struct_size = sizeof(Later);
  later.known.abi_minor = BP_ABI_MINOR + 5;
  bp_entry_reply reply = blank_reply();
  const bp_status status = entry.function(&later.known, &reply);
  if (status == BP_ALREADY_EXISTS) t.not_supported(host.text);
  t.require(status == BP_OK, "a host that serves newer minors as well: " + host.text);
  t.expect_eq(reply.abi_major, uint32_t{BP_ABI_MAJOR}, "the major that was chosen");
  t.expect(reply.abi_minor <= later.known.abi_minor, "the minor is within the host's range");
  t.expect_eq(reply.backend->shutdown(reply.backend->self), bp_status{BP_OK}, "shutdown");
}

// Two hosts in one process, interleaved; ending one leaves the other alone.
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
  t.expect_eq(bp_block_free(b), bp_status{BP_OK}, "free of the second");
  t.require_ok(bp_registry_unload(other, plugin), "unload of the second");
  const OwnedStream stream = make_stream(t);
  bp_buffer_ref ref = a->ref;
  const std::vector<uint8_t> bytes = random_bytes(t, ref.size_bytes);
  write(t, stream.get(), ref, bytes);
  t.expect(read(t, stream.get(), ref) == bytes, "the first works when the second has ended");
  t.expect_eq(bp_block_free(a), bp_status{BP_OK}, "free of the first");
}

void shutdown_gives_host_memory_back(Context& t) {
  const Entry entry = open_entry(t);
  for (int i = 0; i < 3; ++i) {
    TestHost host(t.subject());
    const bp_entry_request r = request(host);
    bp_entry_reply reply = blank_reply();
    const bp_status status = entry.function(&r, &reply);
    if (status == BP_ALREADY_EXISTS) t.not_supported(host.text);
    t.require(status == BP_OK, "the entry: " + host.text);
    t.expect_eq(reply.backend->shutdown(reply.backend->self), bp_status{BP_OK}, "shutdown");
    t.expect_eq(host.allocation_count, int64_t{0}, "blocks of host memory left after shutdown");
  }
}

}  // namespace

void add_abi_cases(std::vector<Case>& cases) {
  add_api_cases(cases, "abi",
                {
                    {"foreign_versions_are_refused_in_words",
                     {"ENTRY-2"},
                     foreign_versions_are_refused_in_words},
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
