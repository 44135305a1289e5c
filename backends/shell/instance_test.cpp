// Tests the base of instances with a backend that has nothing but tables.
#include "backplane/shell/instance.hpp"

#include <gtest/gtest.h>

#include <string>

#include "backends/shell/plugin_test.hpp"
#include "backplane/shell/plugin.hpp"

namespace bp {
namespace {

constexpr bp_device_ops kDevices{.struct_size = sizeof(bp_device_ops)};
constexpr bp_allocator_ops kAllocator{.struct_size = sizeof(bp_allocator_ops)};
constexpr bp_stream_ops kStreams{.struct_size = sizeof(bp_stream_ops)};
constexpr bp_event_ops kEvents{.struct_size = sizeof(bp_event_ops)};
constexpr bp_device_guard_ops kGuard{.struct_size = sizeof(bp_device_guard_ops)};
constexpr bp_virtual_memory_ops kVirtualMemory{.struct_size = sizeof(bp_virtual_memory_ops)};
constexpr bp_test_fault_ops kFaults{.struct_size = sizeof(bp_test_fault_ops)};
constexpr ConstantTables kFewTables{
    .devices = kDevices, .allocator = kAllocator, .streams = kStreams, .events = kEvents};
constexpr ConstantTables kAllTables{.devices = kDevices,
                                    .allocator = kAllocator,
                                    .streams = kStreams,
                                    .events = kEvents,
                                    .guard = &kGuard,
                                    .virtual_memory = &kVirtualMemory,
                                    .faults = &kFaults};

// The part of an instance that is the `self` of the tables.
struct Part : BackendInstance {
  Part(const bp_host* its_host, const bp_backend& its_backend, const ConstantTables& tables)
      : BackendInstance(its_host, its_backend, tables) {}
};

struct Whole : Part {
  Whole(const bp_host* its_host, const ConstantTables& tables)
      : Part(its_host, backend_table<Part, Whole>(this, "vendor.card", "1.2.3"), tables) {}
  ~Whole() {
    if (ended != nullptr) ++*ended;
  }

  int* ended = nullptr;
};

class Instances : public testing::Test {
 protected:
  bp_status register_all(const Whole& whole) {
    return whole.backend.register_all(whole.backend.self, &h.registrar);
  }

  NotingHost h;
};

TEST_F(Instances, RegisterTheTablesThatTheyHave) {
  Whole few(&h.host, kFewTables);
  ASSERT_EQ(register_all(few), BP_OK) << h.text;
  EXPECT_EQ(h.given, "device allocator streams ");
  h.given.clear();
  Whole all(&h.host, kAllTables);
  all.layout_table.struct_size = sizeof(all.layout_table);
  all.graphs.struct_size = sizeof(all.graphs);
  all.compilation.struct_size = sizeof(all.compilation);
  all.process_groups.struct_size = sizeof(all.process_groups);
  all.profiling.struct_size = sizeof(all.profiling);
  all.semaphores.struct_size = sizeof(all.semaphores);
  ASSERT_EQ(register_all(all), BP_OK) << h.text;
  EXPECT_EQ(h.given,
            "device allocator streams guard virtual_memory layout graph compiler process_group "
            "profiler semaphore ");
}

TEST_F(Instances, AreTheSelfOfTheirTablesAndTheStateOfTheirKernels) {
  Whole whole(&h.host, kAllTables);
  void* const self = static_cast<Part*>(&whole);
  for (const void* const its_self :
       {whole.backend.self, whole.devices.self, whole.allocator.self, whole.streams.self,
        whole.events.self, whole.guard.self, whole.virtual_memory.self, whole.faults.self}) {
    EXPECT_EQ(its_self, self);
  }
  const bp_kernel first{.name = "first"}, second{.name = "second"};
  const bp_kernel* const one[] = {&first};
  const bp_kernel* const another[] = {&second};
  whole.add_kernels(one);
  whole.add_kernels(another);
  ASSERT_EQ(whole.kernels.size(), 2u);
  for (const bp_kernel& kernel : whole.kernels) EXPECT_EQ(kernel.state, self);
  ASSERT_EQ(register_all(whole), BP_OK) << h.text;
  EXPECT_EQ(h.given, "device allocator streams guard virtual_memory first second ");
  h.given.clear();
  whole.offers_kernels = false;
  ASSERT_EQ(register_all(whole), BP_OK) << h.text;
  EXPECT_EQ(h.given, "device allocator streams guard virtual_memory ");
}

TEST_F(Instances, EndWithWhatTheHostRefuses) {
  Whole whole(&h.host, kAllTables);
  h.left = 3;
  EXPECT_EQ(register_all(whole), BP_ABORTED);
  EXPECT_EQ(h.given, "device allocator streams ");
  EXPECT_EQ(whole.backend.register_all(whole.backend.self, nullptr), BP_INVALID_ARGUMENT);
  EXPECT_EQ(h.text, "register_all: registrar is NULL");
}

TEST_F(Instances, LendTheExtensionOfTheirFaultsAlone) {
  EXPECT_EQ(Whole(&h.host, kFewTables).backend.get_extension, nullptr);
  Whole whole(&h.host, kAllTables);
  const void* table = nullptr;
  EXPECT_EQ(whole.backend.get_extension(whole.backend.self, BP_TEST_FAULT_NAME,
                                        BP_TEST_FAULT_VERSION, &table),
            BP_OK)
      << h.text;
  EXPECT_EQ(table, &whole.faults);
  EXPECT_EQ(whole.backend.get_extension(whole.backend.self, "acme.fault", 1, &table), BP_NOT_FOUND);
}

TEST_F(Instances, EndAsAWholeAtShutdown) {
  int ended = 0;
  auto* const whole = new Whole(&h.host, kFewTables);
  whole->ended = &ended;
  const bp_backend table = whole->backend;
  EXPECT_STREQ(table.name, "vendor.card");
  EXPECT_STREQ(table.version, "1.2.3");
  EXPECT_EQ(table.shutdown(table.self, UINT64_MAX), BP_OK);
  EXPECT_EQ(ended, 1);
}

}  // namespace
}  // namespace bp
