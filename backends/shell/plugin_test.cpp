// Tests the entry of a plugin and its registration with older and newer hosts.
#include "backplane/shell/plugin.hpp"

#include <gtest/gtest.h>

#include <string>

#include "backends/shell/plugin_test.hpp"

namespace bp {
namespace {

struct Tables {
  bp_device_ops devices{};
  bp_allocator_ops allocator{};
  bp_stream_ops streams{};
  bp_event_ops events{};
};

// Registers what a backend with two kernels and graphs registers.
bp_status give_all(const NotingHost& h) {
  return guarded(h.host, [&]() -> bp_status {
    Registration to(&h.registrar);
    to.add_tables(Tables());
    to.add(&bp_registrar::add_graph, bp_graph_ops{});
    const bp_kernel kernels[] = {{.name = "first"}, {.name = "second"}};
    to.add_kernels(kernels);
    return to.status();
  });
}

TEST(Registrations, AddAllThatTheHostTakes) {
  NotingHost h;
  EXPECT_EQ(give_all(h), BP_OK) << h.text;
  EXPECT_EQ(h.given, "device allocator streams graph first second ");
}

TEST(Registrations, PassOverMembersThatTheHostLacks) {
  NotingHost h;
  h.registrar.add_graph = nullptr;
  EXPECT_EQ(give_all(h), BP_OK) << h.text;
  EXPECT_EQ(h.given, "device allocator streams first second ");
}

TEST(Registrations, EndWithWhatTheHostRefuses) {
  for (const int left : {0, 2, 4}) {
    NotingHost h;
    h.left = left;
    EXPECT_EQ(give_all(h), BP_ABORTED);
    EXPECT_EQ(h.left, -1) << "nothing was added behind it";
  }
}

TEST(Registrations, NeedARegistrarThatCanBeRead) {
  NotingHost h;
  h.registrar.struct_size = kFirstSize<bp_registrar> - 1;
  EXPECT_EQ(give_all(h), BP_INCOMPATIBLE);
  EXPECT_EQ(h.text, "register_all: the registrar cannot be read");
  EXPECT_THROW(Registration(nullptr), StatusError);
}

TEST(Entries, GiveTheBackendToAHostThatTheyServe) {
  NotingHost h;
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
  EXPECT_EQ(reply.abi_major_min, BP_ABI_MAJOR + 0u);
  EXPECT_EQ(reply.abi_major_max, BP_ABI_MAJOR + 0u);
  EXPECT_EQ(answer(nullptr), BP_INVALID_ARGUMENT);
  EXPECT_EQ(h.text, "entry: out_reply is NULL");
  reply.struct_size = kFirstSize<bp_entry_reply> - 1;
  EXPECT_EQ(answer(&reply), BP_INCOMPATIBLE);
  EXPECT_NE(h.text.find("entry: out_reply: struct_size is "), std::string::npos) << h.text;
  request.abi_minor = request.abi_minor_min = BP_ABI_MINOR + 1;
  for (const uint32_t size : {kFirstSize<bp_entry_reply> - 1, kFirstSize<bp_entry_reply>}) {
    reply = {.struct_size = size, .struct_type = BP_STRUCT_ENTRY_REPLY};
    reply.abi_major_min = reply.abi_major_max = 9;
    EXPECT_EQ(answer(&reply), BP_INCOMPATIBLE);
    EXPECT_NE(h.text.find("vendor.test serves ABI "), std::string::npos) << h.text;
    EXPECT_EQ(reply.abi_major_max, size < kFirstSize<bp_entry_reply> ? 9u : BP_ABI_MAJOR + 0u);
  }
  request.host = nullptr;
  EXPECT_EQ(answer(&reply), BP_INVALID_ARGUMENT) << "there is nobody to tell";
}

TEST(HostedInstance, LeavesTheTextOfAFailureInTheErrorSlot) {
  NotingHost h;
  const HostedInstance instance{&h.host};
  EXPECT_EQ(instance.fail(BP_ABORTED, "it was aborted"), BP_ABORTED);
  EXPECT_EQ(h.text, "it was aborted");
}

}  // namespace
}  // namespace bp
