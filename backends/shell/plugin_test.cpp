// Tests the entry of a plugin and its registration with older and newer hosts.
#include "backplane/shell/plugin.hpp"

#include <gtest/gtest.h>

#include <string>

namespace bp {
namespace {

struct Tables {
  bp_device_ops devices{};
  bp_allocator_ops allocator{};
  bp_stream_ops streams{};
  bp_event_ops events{};
};

// A host that notes what it is given, and refuses every item from number `refused` on.
class Host {
 public:
  Host() {
    host.struct_size = sizeof(host);
    host.struct_type = BP_STRUCT_HOST;
    host.self = this;
    host.set_error = [](void* self, bp_status status, const char* reason) {
      static_cast<Host*>(self)->text = reason;
      return status;
    };
    registrar.struct_size = sizeof(registrar);
    registrar.struct_type = BP_STRUCT_REGISTRAR;
    registrar.self = this;
    registrar.add_device = [](void* self, uint64_t, bp_device* const*, const bp_device_ops*,
                              bp_add_result*) { return note(self, "device"); };
    registrar.add_allocator = [](void* self, uint64_t, bp_device* const*, const bp_allocator_ops*,
                                 bp_add_result*) { return note(self, "allocator"); };
    registrar.add_streams = [](void* self, uint64_t, bp_device* const*, const bp_stream_ops*,
                               const bp_event_ops*,
                               bp_add_result*) { return note(self, "streams"); };
    registrar.add_kernels = [](void* self, uint64_t, bp_device* const*, uint64_t,
                               const bp_kernel* const* rows,
                               bp_add_result*) { return note(self, rows[0]->name); };
    registrar.add_graph = [](void* self, uint64_t, bp_device* const*, const bp_graph_ops*,
                             bp_add_result*) { return note(self, "graph"); };
  }

  // Registers what a backend with two kernels and graphs registers.
  bp_status give_all() {
    return guarded(host, [&]() -> bp_status {
      Registration to(&registrar);
      to.add_tables(Tables());
      to.add(&bp_registrar::add_graph, bp_graph_ops{});
      const bp_kernel kernels[] = {{.name = "first"}, {.name = "second"}};
      to.add_kernels(kernels);
      return to.status();
    });
  }

  bp_host host{};
  bp_registrar registrar{};
  std::string text, given;
  int left = 100;

 private:
  static bp_status note(void* self, const char* what) {
    auto& host = *static_cast<Host*>(self);
    if (host.left-- == 0) return BP_ABORTED;
    host.given += std::string(what) + " ";
    return BP_OK;
  }
};

TEST(Registrations, AddAllThatTheHostTakes) {
  Host h;
  EXPECT_EQ(h.give_all(), BP_OK) << h.text;
  EXPECT_EQ(h.given, "device allocator streams graph first second ");
}

TEST(Registrations, PassOverMembersThatAnOlderHostLacks) {
  Host h;
  h.registrar.struct_size = kFirstSize<bp_registrar>;
  EXPECT_EQ(h.give_all(), BP_OK) << h.text;
  EXPECT_EQ(h.given, "device allocator streams first second ");
}

TEST(Registrations, EndWithWhatTheHostRefuses) {
  for (const int left : {0, 2, 4}) {
    Host h;
    h.left = left;
    EXPECT_EQ(h.give_all(), BP_ABORTED);
    EXPECT_EQ(h.left, -1) << "nothing was added behind it";
  }
}

TEST(Registrations, NeedARegistrarThatCanBeRead) {
  Host h;
  h.registrar.struct_size = kFirstSize<bp_registrar> - 1;
  EXPECT_EQ(h.give_all(), BP_INCOMPATIBLE);
  EXPECT_EQ(h.text, "register_all: the registrar cannot be read");
  EXPECT_THROW(Registration(nullptr), StatusError);
}

TEST(Entries, GiveTheBackendToAHostThatTheyServe) {
  Host h;
  bp_backend backend{};
  bp_entry_request request{.struct_size = sizeof(request),
                           .struct_type = BP_STRUCT_ENTRY_REQUEST,
                           .abi_minor = BP_ABI_MINOR,
                           .abi_minor_min = BP_ABI_MINOR,
                           .host = &h.host};
  bp_entry_reply reply{.struct_size = sizeof(reply), .struct_type = BP_STRUCT_ENTRY_REPLY};
  const auto answer = [&](bp_entry_reply* out_reply) {
    return answer_entry("vendor.test", &request, out_reply,
                        [&](const bp_host&) { return &backend; });
  };
  ASSERT_EQ(answer(&reply), BP_OK) << h.text;
  EXPECT_EQ(reply.backend, &backend);
  EXPECT_EQ(reply.abi_minor, BP_ABI_MINOR + 0u);
  EXPECT_EQ(answer(nullptr), BP_INVALID_ARGUMENT);
  EXPECT_EQ(h.text, "entry: out_reply is NULL");
  reply.struct_size = kFirstSize<bp_entry_reply> - 1;
  EXPECT_EQ(answer(&reply), BP_INCOMPATIBLE);
  EXPECT_EQ(h.text, "entry: out_reply is too short");
  request.abi_minor = request.abi_minor_min = BP_ABI_MINOR + 1;
  EXPECT_EQ(answer(&reply), BP_INCOMPATIBLE);
  EXPECT_NE(h.text.find("vendor.test serves ABI "), std::string::npos) << h.text;
  request.host = nullptr;
  EXPECT_EQ(answer(&reply), BP_INVALID_ARGUMENT) << "there is nobody to tell";
}

struct Part : HostedInstance {
  int part = 0;
};
struct Whole : Part {
  ~Whole() { ++*ended; }
  int* ended = nullptr;
};

bp_status register_nothing(void*, const bp_registrar*) { return BP_OK; }

TEST(BackendTable, DeletesAllOfItsInstanceAtShutdown) {
  int ended = 0;
  auto* const whole = new Whole();
  whole->ended = &ended;
  const bp_backend table =
      backend_table<Part, Whole>(whole, "vendor.card", "1.2.3", register_nothing);
  EXPECT_STREQ(table.name, "vendor.card");
  EXPECT_STREQ(table.version, "1.2.3");
  EXPECT_EQ(table.register_all, register_nothing);
  EXPECT_EQ(table.get_extension, nullptr);
  EXPECT_EQ(table.self, static_cast<Part*>(whole));
  EXPECT_EQ(table.shutdown(table.self), BP_OK);
  EXPECT_EQ(ended, 1);
}

TEST(HostedInstance, LeavesTheTextOfAFailureInTheErrorSlot) {
  Host h;
  const HostedInstance instance{&h.host};
  EXPECT_EQ(instance.fail(BP_ABORTED, "it was aborted"), BP_ABORTED);
  EXPECT_EQ(h.text, "it was aborted");
}

}  // namespace
}  // namespace bp
