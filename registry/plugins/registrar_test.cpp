// Tests what a registration takes, for which devices, in which order, and why it refuses.
#include "registry/plugins/registrar.hpp"

#include <gtest/gtest.h>

#include "registry/boundary/error_slot.hpp"
#include "registry/tests/fake_backend.hpp"

namespace bp::core {
namespace {

class Registrar : public testing::Test {
 protected:
  Registrar() {
    registration.name = "acme.npu";
    EXPECT_EQ(add_devices({}), "");
    registration.refusals.clear();  // The fake lacks slots that every backend needs.
  }

  // Returns the outcome of an entry: "", "shadowed: ..." or "rejected: ...".
  static std::string words(const bp_add_result& result) {
    if (result.outcome == BP_ADD_ACCEPTED) return "";
    const char* kind = result.outcome == BP_ADD_SHADOWED ? "shadowed: " : "rejected: ";
    return kind + std::string(result.reason);
  }
  std::string add_devices(const std::vector<bp_device*>& list) {
    bp_add_result result{};
    EXPECT_EQ(r.add_device(r.self, list.size(), list.data(), &fake.device_ops, &result), BP_OK);
    return words(result);
  }
  std::string add_allocator(const std::vector<bp_device*>& list, const bp_allocator_ops& table) {
    bp_add_result result{};
    EXPECT_EQ(r.add_allocator(r.self, list.size(), list.data(), &table, &result), BP_OK);
    return words(result);
  }
  std::string add_groups(const std::vector<bp_device*>& list, const char* name,
                         void* self = nullptr) {
    bp_process_group_ops table{};
    table.struct_size = sizeof(table);
    table.struct_type = BP_STRUCT_PROCESS_GROUP_OPS;
    table.self = self;
    table.name = name;
    bp_add_result result{};
    EXPECT_EQ(r.add_process_group(r.self, list.size(), list.data(), &table, &result), BP_OK);
    return words(result);
  }
  // Returns the names of the process groups of a device, in their order.
  std::string group_names(size_t device) const {
    const Tables& tables = registration.devices[device].tables;
    std::string names = tables.process_groups.name;
    for (const bp_process_group_ops& more : tables.more_process_groups) {
      names += std::string(" ") + more.name;
    }
    return names;
  }
  std::string add_kernel(const std::vector<bp_device*>& list, const bp_kernel* kernel) {
    bp_add_result result{};
    EXPECT_EQ(r.add_kernels(r.self, list.size(), list.data(), 1, &kernel, &result), BP_OK);
    return words(result);
  }
  std::string kernel_names() const {
    std::string names;
    for (const RegisteredKernel& added : registration.kernels) {
      names += added.kernel->name + std::string(" ");
    }
    return names;
  }
  void* allocator_self(size_t device) const {
    return registration.devices[device].tables.allocator.self;
  }

  FakeBackend fake{"acme.npu", 3};
  Registration registration;
  const bp_registrar r = make_registrar(&registration);
};

// ---- Devices ------------------------------------------------------------------------------------

TEST_F(Registrar, TakesTheDevicesThatAreEnumeratedWhereNoneAreListed) {
  ASSERT_EQ(registration.devices.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(registration.devices[i].device, fake.device(i));
  EXPECT_EQ(add_devices({}), "shadowed: devices added before");
  EXPECT_EQ(registration.devices.size(), 3u);
}

TEST_F(Registrar, TakesTheNewOnesOfAListAndRefusesNull) {
  int other = 0;
  auto* const added = reinterpret_cast<bp_device*>(&other);
  EXPECT_EQ(add_devices({fake.device(0), added, added}), "");
  ASSERT_EQ(registration.devices.size(), 4u);
  EXPECT_EQ(registration.devices[3].device, added);
  EXPECT_EQ(add_devices({nullptr}), "rejected: a device is NULL");
  EXPECT_NE(registration.refusals.find("acme.npu/devices: rejected: a device is NULL\n"),
            std::string::npos)
      << registration.refusals;
}

TEST_F(Registrar, SaysWhyDevicesCannotBeEnumerated) {
  fake.device_ops.enumerate = [](void*, uint64_t, bp_device**, uint64_t*) -> bp_status {
    set_error(nullptr, BP_DEVICE_LOST, "the bus does not answer");
    return BP_DEVICE_LOST;
  };
  EXPECT_EQ(add_devices({}), "rejected: enumerate failed: the bus does not answer");
  fake.device_ops.enumerate = [](void*, uint64_t, bp_device**, uint64_t* count) -> bp_status {
    *count = 0;
    return BP_OK;
  };
  EXPECT_EQ(add_devices({}), "") << "a backend may have no device";
}

TEST_F(Registrar, TakesNoMoreDevicesThanTheSecondAnswerHas) {
  Registration fresh;
  const bp_registrar second = make_registrar(&fresh);
  fake.device_ops.enumerate = [](void* self, uint64_t capacity, bp_device** out,
                                 uint64_t* count) -> bp_status {
    *count = capacity == 0 ? 3 : 1;  // Two devices were unplugged meanwhile.
    if (capacity != 0) out[0] = FakeBackend::from(self).device(1);
    return BP_OK;
  };
  ASSERT_EQ(second.add_device(second.self, 0, nullptr, &fake.device_ops, nullptr), BP_OK);
  ASSERT_EQ(fresh.devices.size(), 1u);
  EXPECT_EQ(fresh.devices[0].device, fake.device(1));
}

// ---- Tables -------------------------------------------------------------------------------------

TEST_F(Registrar, GivesEachDeviceTheFirstTableThatIsMeantForIt) {
  int marks[3] = {};
  bp_allocator_ops tables[3] = {fake.allocator, fake.allocator, fake.allocator};
  for (size_t i = 0; i < 3; ++i) tables[i].self = &marks[i];
  EXPECT_EQ(add_allocator({fake.device(1)}, tables[0]), "");
  EXPECT_EQ(add_allocator({}, tables[1]), "") << "for those that have none";
  EXPECT_EQ(add_allocator({fake.device(0), fake.device(2)}, tables[2]),
            "shadowed: allocator added before");
  EXPECT_EQ(allocator_self(0), &marks[1]);
  EXPECT_EQ(allocator_self(1), &marks[0]);
  EXPECT_EQ(allocator_self(2), &marks[1]);
}

TEST_F(Registrar, GivesEachDeviceTheFirstProcessGroupsOfEachName) {
  int first = 0, second = 0;
  EXPECT_EQ(add_groups({fake.device(1)}, "wide", &first), "");
  EXPECT_EQ(add_groups({}, "gloo"), "");
  EXPECT_EQ(add_groups({}, "wide", &second), "") << "for those that have none of this name";
  EXPECT_EQ(add_groups({}, "wide"), "shadowed: process_groups added before");
  EXPECT_EQ(group_names(0), "gloo wide");
  EXPECT_EQ(group_names(1), "wide gloo");
  EXPECT_EQ(registration.devices[0].tables.more_process_groups[0].self, &second);
  EXPECT_EQ(registration.devices[1].tables.process_groups.self, &first);
}

TEST_F(Registrar, RefusesProcessGroupsWithoutAName) {
  EXPECT_EQ(add_groups({}, nullptr), "rejected: its name is NULL, not one or more of [a-z0-9_]");
  EXPECT_EQ(add_groups({}, ""), "rejected: its name is \"\", not one or more of [a-z0-9_]");
  EXPECT_EQ(add_groups({}, "My\nrings"),
            "rejected: its name is \"My\\nrings\", not one or more of [a-z0-9_]");
  EXPECT_EQ(registration.devices[0].tables.process_groups.struct_size, 0u);
}

TEST_F(Registrar, RefusesATableForADeviceThatIsNotThere) {
  int other = 0;
  EXPECT_EQ(add_allocator({fake.device(0), reinterpret_cast<bp_device*>(&other)}, fake.allocator),
            "rejected: device 1 of its list was not added");
  EXPECT_EQ(registration.devices[0].tables.allocator.struct_size, 0u) << "nothing was taken";
}

TEST_F(Registrar, RefusesTablesOfAnotherTypeOrSize) {
  bp_allocator_ops wrong = fake.allocator;
  wrong.struct_type = BP_STRUCT_STREAM_OPS;
  EXPECT_EQ(add_allocator({}, wrong).find("rejected: "), 0u);
  wrong = fake.allocator;
  wrong.struct_size = 16;
  EXPECT_NE(add_allocator({}, wrong).find("struct_size is 16"), std::string::npos);
  EXPECT_EQ(add_allocator({}, fake.allocator), "") << "the place is still free";
}

TEST_F(Registrar, AnswersNullWithInvalidArgument) {
  const bp_kernel* none = nullptr;
  EXPECT_EQ(r.add_device(r.self, 0, nullptr, nullptr, nullptr), BP_INVALID_ARGUMENT);
  EXPECT_EQ(r.add_device(r.self, 1, nullptr, &fake.device_ops, nullptr), BP_INVALID_ARGUMENT);
  EXPECT_EQ(r.add_allocator(r.self, 0, nullptr, nullptr, nullptr), BP_INVALID_ARGUMENT);
  EXPECT_EQ(take_error(), "add allocator: allocator or device_list is NULL");
  EXPECT_EQ(r.add_streams(r.self, 0, nullptr, &fake.streams, nullptr, nullptr),
            BP_INVALID_ARGUMENT);
  EXPECT_EQ(r.add_kernels(r.self, 0, nullptr, 1, nullptr, nullptr), BP_INVALID_ARGUMENT);
  EXPECT_EQ(r.add_kernels(r.self, 0, nullptr, 0, nullptr, nullptr), BP_OK);
  EXPECT_EQ(r.add_kernels(r.self, 0, nullptr, 1, &none, nullptr), BP_OK) << "one is only one";
  EXPECT_EQ(registration.refusals, "acme.npu/kernel 0: rejected: it is NULL\n");
}

// ---- Kernels ------------------------------------------------------------------------------------

TEST_F(Registrar, OrdersKernelsByPriorityAndThenAsTheyCome) {
  bp_kernel kernels[5] = {make_kernel("a"), make_kernel("b"), make_kernel("c"), make_kernel("d"),
                          make_kernel("e")};
  const int32_t priorities[5] = {0, 5, 0, -1, 5};
  for (size_t i = 0; i < 5; ++i) {
    kernels[i].priority = priorities[i];
    EXPECT_EQ(add_kernel({}, &kernels[i]), "");
  }
  EXPECT_EQ(kernel_names(), "b e a c d ");
}

TEST_F(Registrar, TakesANameAgainForAnotherOpOrOtherDevices) {
  const bp_kernel first = make_kernel("fast"), second = make_kernel("fast"),
                  mul = make_kernel("fast", BP_OP_MUL, sizeof(bp_mul_args));
  EXPECT_EQ(add_kernel({fake.device(0), fake.device(1)}, &first), "");
  EXPECT_EQ(add_kernel({}, &mul), "");
  EXPECT_EQ(add_kernel({fake.device(1)}, &second), "shadowed: fast added before");
  EXPECT_EQ(add_kernel({fake.device(1), fake.device(2)}, &second), "");
  EXPECT_EQ(add_kernel({fake.device(0)}, &second), "shadowed: fast added before");
  EXPECT_EQ(registration.kernels.size(), 3u);
}

TEST_F(Registrar, SaysWhatIsWrongWithAKernel) {
  const struct {
    const char* words;
    void (*spoil)(bp_kernel& kernel);
  } rows[] = {
      {"name or launch is NULL", [](bp_kernel& k) { k.launch = nullptr; }},
      {"name or launch is NULL", [](bp_kernel& k) { k.name = nullptr; }},
      {"its name has control characters", [](bp_kernel& k) { k.name = "fast\n"; }},
      {"its name has control characters", [](bp_kernel& k) { k.name = "fast\xff"; }},
      {"op 9999 is not known to this host", [](bp_kernel& k) { k.op = 9999; }},
      {"spec_revision is 0, and revision 3 brought add", [](bp_kernel& k) { k.spec_revision = 0; }},
      {"args_size_bytes is 8, and the frame of add has 56 bytes in revision 4",
       [](bp_kernel& k) { k.args_size_bytes = 8; }},
      {"args_size_bytes is 64, and the frame of add has 56 bytes in revision 4",
       [](bp_kernel& k) { k.args_size_bytes = 64; }},
      {"args_size_bytes is 40, and the frame of add has at least 56 bytes in revision 4000000000",
       [](bp_kernel& k) { k.spec_revision = 4000000000, k.args_size_bytes = 40; }},
      {"args_size_bytes is 4294967295", [](bp_kernel& k) { k.args_size_bytes = UINT32_MAX; }},
      {"claims no layout", [](bp_kernel& k) { k.layouts = 0; }},
      {"min_byte_alignment_bytes is 3", [](bp_kernel& k) { k.min_byte_alignment_bytes = 3; }},
      {"min_byte_alignment_bytes is 8192", [](bp_kernel& k) { k.min_byte_alignment_bytes = 8192; }},
      {"struct_size is 16", [](bp_kernel& k) { k.struct_size = 16; }},
      {"it has only some of prepare, plan_info, plan_pack and plan_release",
       [](bp_kernel& k) {
         k.plan_release = [](const bp_kernel*, bp_plan*) -> bp_status { return BP_OK; };
       }},
  };
  for (const auto& [text, spoil] : rows) {
    bp_kernel kernel = make_kernel("fast");
    spoil(kernel);
    const std::string given = add_kernel({}, &kernel);
    EXPECT_EQ(given.find("rejected: "), 0u) << text;
    EXPECT_NE(given.find(text), std::string::npos) << given;
  }
  EXPECT_TRUE(registration.kernels.empty());
  EXPECT_EQ(registration.refusals.find('\xff'), std::string::npos) << "it is shown as U+FFFD";
}

TEST_F(Registrar, GoesOnBehindAKernelThatItRefuses) {
  const bp_kernel good = make_kernel("good"), bad = make_kernel("bad", 9999);
  const bp_kernel* list[] = {&bad, nullptr, &good};
  bp_add_result results[3] = {};
  ASSERT_EQ(r.add_kernels(r.self, 0, nullptr, 3, list, results), BP_OK);
  EXPECT_EQ(words(results[0]), "rejected: op 9999 is not known to this host");
  EXPECT_EQ(words(results[1]), "rejected: it is NULL");
  EXPECT_EQ(words(results[2]), "");
  EXPECT_EQ(kernel_names(), "good ");
  EXPECT_EQ(registration.refusals,
            "acme.npu/bad: rejected: op 9999 is not known to this host\n"
            "acme.npu/kernel 1: rejected: it is NULL\n");
}

}  // namespace
}  // namespace bp::core
