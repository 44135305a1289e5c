// Tests loading, naming and unloading backends of this process.
#include <gtest/gtest.h>

#include "backplane/addresses.h"
#include "backplane/blocks.h"
#include "backplane/pinned.h"
#include "backplane/transfers.h"
#include "registry/state/state.hpp"
#include "registry/tests/fake_backend.hpp"

namespace bp::core {
namespace {

TEST(Registry, DescribesWhatItLoaded) {
  TestRegistry r;
  const bp_kernel kernel = make_kernel("add.fast");
  FakeBackend fake("acme.npu", 2);
  fake.kernels = {&kernel};
  const bp_plugin* plugin = nullptr;
  ASSERT_EQ(fake.load(r.registry, &plugin), BP_OK) << bp_error_text();
  EXPECT_STREQ(plugin->name, "acme.npu");
  EXPECT_STREQ(plugin->version, "1.4.2");
  EXPECT_STREQ(plugin->path, "(static)");
  EXPECT_EQ(plugin->target_count, 2);
  EXPECT_EQ(plugin->kernel_count, 1);
  EXPECT_EQ(bp_registry_plugin(r.registry, 0), plugin);
  EXPECT_EQ(bp_registry_plugin(r.registry, 1), nullptr);
  ASSERT_EQ(bp_registry_target_count(r.registry), 2);
  EXPECT_STREQ(r.target(1)->name, "acme.npu:1");
  EXPECT_EQ(r.target(1)->device, fake.device(1));
  EXPECT_EQ(bp_target_kernel(r.target(), 0), &kernel);
}

TEST(Registry, FindsATargetByEveryUniqueName) {
  TestRegistry r;
  FakeBackend npu("acme.npu", 2), cpu("acme.cpu"), other("other.cpu");
  ASSERT_EQ(npu.load(r.registry), BP_OK);
  ASSERT_EQ(cpu.load(r.registry), BP_OK);
  const bp_target* found = nullptr;
  for (const char* name : {"acme.npu:1", "npu:1"}) {
    EXPECT_EQ(bp_registry_find_target(r.registry, name, &found), BP_OK) << name;
    EXPECT_EQ(found, r.target(1));
  }
  for (const char* name : {"acme.cpu:0", "cpu:0", "acme.cpu", "cpu"}) {
    EXPECT_EQ(bp_registry_find_target(r.registry, name, &found), BP_OK) << name;
    EXPECT_EQ(found, r.target(2));
  }
  for (const char* name : {"acme.npu", "npu"}) {
    EXPECT_EQ(bp_registry_find_target(r.registry, name, &found), BP_OK) << name;
    EXPECT_EQ(found, r.target(0));
  }
  found = nullptr;
  EXPECT_EQ(bp_registry_find_target(r.registry, "tpu:0", &found), BP_NOT_FOUND);
  EXPECT_STREQ(bp_error_text(),
               "tpu:0: no such device; loaded are acme.npu:0, acme.npu:1, acme.cpu:0");
  ASSERT_EQ(other.load(r.registry), BP_OK);
  EXPECT_EQ(bp_registry_find_target(r.registry, "cpu:0", &found), BP_NOT_FOUND);
  EXPECT_EQ(bp_registry_find_target(r.registry, "cpu", &found), BP_NOT_FOUND);
  EXPECT_STREQ(
      bp_error_text(),
      "cpu: the name fits devices of several backends; loaded are acme.cpu:0, other.cpu:0; "
      "give the full name");
  EXPECT_EQ(found, nullptr);
}

TEST(Registry, RefusesASecondBackendOfTheSameName) {
  TestRegistry r;
  FakeBackend first, second;
  ASSERT_EQ(first.load(r.registry), BP_OK);
  EXPECT_EQ(second.load(r.registry), BP_ALREADY_EXISTS);
  EXPECT_STREQ(bp_error_text(),
               "acme.npu: a backend of this name is loaded already; unload it first");
  EXPECT_EQ(second.shutdowns, 1);
  EXPECT_EQ(bp_registry_target_count(r.registry), 1);
}

struct FailedLoad {
  void (*breaks)(FakeBackend&);
  bp_status status;
  const char* text;
  int shutdowns;
};
const FailedLoad kFailedLoads[] = {
    {[](FakeBackend& f) {
       f.entry_status = BP_INCOMPATIBLE;
       f.entry_words = "this backend serves ABI 7";
     },
     BP_INCOMPATIBLE, "acme.npu: this backend serves ABI 7 (this host serves " BP_TEST_SERVED ")",
     0},
    {[](FakeBackend& f) { f.entry_status = -7; }, -7,
     "acme.npu: refused without a reason, vendor status", 0},
    {[](FakeBackend& f) { f.gives_backend = false; }, BP_INTERNAL,
     "acme.npu: its entry returned BP_OK, but no backend", 0},
    {[](FakeBackend& f) { f.abi_minor = 9; }, BP_INCOMPATIBLE,
     "acme.npu: the backend chose ABI 0.9, which was not offered; this host "
     "serves " BP_TEST_SERVED,
     0},
    {[](FakeBackend& f) { f.name = "npu"; }, BP_INTERNAL,
     "npu: its name is npu, not vendor.backend with both in [a-z0-9_]+", 0},
    {[](FakeBackend& f) { f.register_status = BP_NOT_FOUND; }, BP_NOT_FOUND,
     "acme.npu: register_all failed: no driver", 1},
    {[](FakeBackend& f) {
       f.adds_devices = false;
       f.log_line = "the driver has no card";
     },
     BP_NOT_FOUND, "acme.npu: found no device; its log says: the driver has no card", 1},
    {[](FakeBackend& f) { f.adds_allocator = f.adds_streams = false; }, BP_INTERNAL,
     "acme.npu:0: its backend registered no allocator no streams for it\n", 1},
    {[](FakeBackend& f) { f.devices[0].properties.heap_count = 0; }, BP_INTERNAL,
     "acme.npu:0: its properties list no heap", 1},
    {[](FakeBackend& f) { f.devices[0].properties.heap_count = 65; }, BP_INTERNAL,
     "acme.npu:0: its properties list 65 heaps; at most 64 are allowed", 1},
    {[](FakeBackend& f) { f.device_ops.properties = nullptr; }, BP_UNSUPPORTED,
     "acme.npu:0: device.properties: device.properties is not offered by this backend", 1},
    {[](FakeBackend& f) { f.allocator.struct_size = 24; }, BP_INTERNAL,
     "acme.npu:0: its backend registered no allocator for it\n"
     "acme.npu/devices: answers BP_UNSUPPORTED for what every backend needs: "
     "device.probe device.memory_info\n"
     "acme.npu/allocator: rejected: struct_size is 24, its first release has 136\n",
     1},
};

TEST(Registry, SaysWhyALoadFailedAndKeepsNothing) {
  for (const FailedLoad& row : kFailedLoads) {
    TestRegistry r;
    FakeBackend fake;
    row.breaks(fake);
    const bp_plugin* plugin = nullptr;
    EXPECT_EQ(fake.load(r.registry, &plugin), row.status) << row.text;
    const std::string text = bp_error_text();
    EXPECT_EQ(text.substr(0, std::strlen(row.text)), row.text);
    EXPECT_EQ(fake.shutdowns, row.shutdowns) << row.text;
    EXPECT_EQ(plugin, nullptr);
    EXPECT_EQ(bp_registry_plugin_count(r.registry), 0);
    EXPECT_EQ(bp_registry_target_count(r.registry), 0);
  }
}

constexpr const char* kRefusals[] = {
    "acme.npu/allocator: shadowed by allocator added before\n",
    "acme.npu/rows: shadowed by rows added before\n",
    "acme.npu/kernel 2: rejected: struct_size is 16, its first release has 152\n",
    "acme.npu/ancient: rejected: spec_revision is 1, and revision 3 brought add\n",
    ("acme.npu/narrowed: rejected: it has a link of type 16777217 that must be understood, and "
     "this host does not know it\n"),
    "acme.npu/miscounted: rejected: dtype_count is 2, add has 1 free dtypes\n",
    "acme.npu/unknown: rejected: op 9999 is not known to this host\n",
    "acme.npu/kernel 7: rejected: it is NULL\n"};

TEST(Registry, TellsABackendWhatBecameOfEachEntry) {
  TestRegistry r;
  const bp_kernel good = make_kernel("rows"), twin = make_kernel("rows");
  bp_kernel small = make_kernel("small"), ancient = make_kernel("ancient");
  small.struct_size = 16;
  ancient.spec_revision = 1;
  const bp_struct_header link{sizeof(link), 0x01000001 | BP_STRUCT_MUST_UNDERSTAND, nullptr};
  bp_kernel narrowed = make_kernel("narrowed");
  narrowed.next = &link;
  bp_kernel miscounted = make_kernel("miscounted");
  const bp_dtype row[] = {BP_F32, BP_F32};
  miscounted.dtype_rows = row;
  miscounted.dtype_row_count = 1;
  miscounted.dtype_count = 2;
  bp_kernel unknown = make_kernel("unknown", 9999);
  FakeBackend fake;
  fake.adds_allocator_twice = true;
  fake.kernels = {&good, &twin, &small, &ancient, &narrowed, &miscounted, &unknown, nullptr};
  const bp_plugin* plugin = nullptr;
  ASSERT_EQ(fake.load(r.registry, &plugin), BP_OK) << bp_error_text();
  EXPECT_EQ(fake.allocator_results[0].outcome, BP_ADD_ACCEPTED);
  EXPECT_EQ(fake.allocator_results[1].outcome, BP_ADD_SHADOWED);
  const uint32_t expected[] = {BP_ADD_ACCEPTED, BP_ADD_SHADOWED, BP_ADD_REJECTED, BP_ADD_REJECTED,
                               BP_ADD_REJECTED, BP_ADD_REJECTED, BP_ADD_REJECTED, BP_ADD_REJECTED};
  for (size_t i = 0; i < fake.kernels.size(); ++i) {
    EXPECT_EQ(fake.results[i].outcome, expected[i]) << i;
  }
  EXPECT_EQ(fake.results[0].reason, nullptr);
  EXPECT_EQ(plugin->kernel_count, 1);
  const std::string refusals = plugin->refusals;
  for (const char* line : kRefusals) {
    EXPECT_NE(refusals.find(line), std::string::npos) << line << "\nin\n" << refusals;
  }
}

TEST(Registry, FillsAbsentSlotsWithStubsThatSayWhatIsMissing) {
  TestRegistry r;
  FakeBackend fake;
  const bp_plugin* plugin = nullptr;
  ASSERT_EQ(fake.load(r.registry, &plugin), BP_OK);
  const bp_allocator_ops& memory = *r.target()->allocator;
  EXPECT_EQ(memory.copy_peer(memory.self, nullptr, nullptr, nullptr), BP_UNSUPPORTED);
  EXPECT_STREQ(bp_error_text(), "memory.copy_peer is not offered by this backend");
  const std::string refusals = plugin->refusals;
  EXPECT_NE(refusals.find("acme.npu/streams: answers BP_UNSUPPORTED for what every backend needs: "
                          "stream.query stream.status stream.clear_failure stream.flush "
                          "stream.wait_event stream.add_callback event.create "),
            std::string::npos)
      << refusals;
  EXPECT_EQ(refusals.find("copy_peer"), std::string::npos);  // The slot is optional.
}

TEST(Registry, ReadsTablesOfNewerBuilds) {
  struct NewerAllocator {
    bp_allocator_ops known;
    void* appended;
  };
  TestRegistry r;
  FakeBackend fake;
  fake.allocator.struct_size = sizeof(NewerAllocator);
  ASSERT_EQ(fake.load(r.registry), BP_OK) << bp_error_text();
  EXPECT_EQ(r.target()->allocator->struct_size, sizeof(bp_allocator_ops));
}

TEST(Registry, HandsOptionsOnAndNamesThoseThatNobodyAskedFor) {
  TestRegistry r;
  FakeBackend fake;
  fake.option_key = "threads";
  std::string value = "4";
  ASSERT_EQ(fake.load(r.registry, nullptr, {{"threads", value.c_str()}, {"thread", "8"}}), BP_OK);
  EXPECT_EQ(fake.option_value, "4");
  EXPECT_EQ(r.log, "acme.npu: it did not ask for these options; check their names: thread\n");
}

class EnvironmentOptions : public ::testing::Test {
 protected:
  ~EnvironmentOptions() override { unsetenv("BACKPLANE_OPTIONS"); }

  // Returns the value of the option "threads" that the backend acme.npu gets, or "" if its load
  // failed.
  std::string threads_with(const char* variable, const std::vector<bp_option>& options = {},
                           bp_registry_flags flags = 0) {
    setenv("BACKPLANE_OPTIONS", variable, 1);
    TestRegistry r(flags);
    FakeBackend fake;
    fake.option_key = "threads";
    fake.option_value = "absent";
    return fake.load(r.registry, nullptr, options) == BP_OK ? fake.option_value : "";
  }
};

TEST_F(EnvironmentOptions, GoToTheBackendsThatTheyName) {
  EXPECT_EQ(threads_with("acme.npu.threads=4"), "4");
  EXPECT_EQ(threads_with("tpu.threads=2,npu.threads=4=,"), "4=");
  EXPECT_EQ(threads_with("tpu.threads=2,np.threads=3,other.npu.threads=5"), "absent");
}

TEST_F(EnvironmentOptions, StandBehindTheProgramsAndAreIgnoredOnRequest) {
  EXPECT_EQ(threads_with("npu.threads=4", {{"threads", "8"}}), "8");
  EXPECT_EQ(threads_with("npu.threads=4", {}, BP_REGISTRY_IGNORE_ENVIRONMENT), "absent");
}

TEST_F(EnvironmentOptions, AreRefusedWhereTheyCannotBeRead) {
  for (const char* variable : {"threads=4", "npu.threads", "npu.=4", ".threads=4", "=a.b"}) {
    EXPECT_EQ(threads_with(variable), "");
    EXPECT_NE(std::string(bp_error_text()).find("is not NAME.KEY=VALUE"), std::string::npos);
  }
}

TEST(Registry, EndsTheTablesThatItLent) {
  TestRegistry r;
  FakeBackend fake;
  const bp_plugin* plugin = nullptr;
  ASSERT_EQ(fake.load(r.registry, &plugin), BP_OK);
  const bp_target* target = r.target();
  bp_block* block = nullptr;
  ASSERT_EQ(bp_block_allocate(target, nullptr, 4096, &block), BP_OK);
  bp_stream* stream = nullptr;
  ASSERT_EQ(target->streams->create(target->streams->self, target->device, nullptr, &stream),
            BP_OK);
  ASSERT_EQ(fake.streams.destroy(&fake, stream), BP_OK);
  EXPECT_EQ(bp_registry_unload(r.registry, plugin, UINT64_MAX), BP_OK) << bp_error_text();
  EXPECT_EQ(fake.shutdowns, 1);
  EXPECT_EQ(fake.synchronizes, 1);
  EXPECT_EQ(fake.devices[0].live_buffers, 0);
  EXPECT_EQ(bp_registry_target_count(r.registry), 0);

  EXPECT_EQ(target->streams->destroy(target->streams->self, stream), BP_OK);
  EXPECT_EQ(target->streams->synchronize(target->streams->self, stream, 0), BP_DEVICE_LOST);
  EXPECT_STREQ(bp_error_text(), "stream.synchronize: the backend of this device was unloaded");
  EXPECT_EQ(bp_block_free(block), BP_OK);
  EXPECT_EQ(bp_block_allocate(target, nullptr, 4096, &block), BP_DEVICE_LOST);
  const AddCall call;
  EXPECT_EQ(bp_op_launch(target, nullptr, 0, BP_OP_ADD, &call.args), BP_DEVICE_LOST);
  EXPECT_EQ(bp_registry_unload(r.registry, plugin, UINT64_MAX), BP_NOT_FOUND);
  EXPECT_STREQ(plugin->name, "acme.npu");
}

TEST(Registry, KeepsAPluginWhoseWorkDoesNotEndInTime) {
  TestRegistry r;
  FakeBackend fake;
  static bp_status answer;
  static uint64_t asked_ns;
  answer = BP_TIMEOUT;
  fake.device_ops.synchronize = [](void* self, bp_device*, uint64_t timeout_ns) -> bp_status {
    asked_ns = timeout_ns;
    const bp_host& host = *FakeBackend::from(self).host;
    return answer == BP_OK ? BP_OK : host.set_error(host.self, answer, "it still runs");
  };
  const bp_plugin* plugin = nullptr;
  ASSERT_EQ(fake.load(r.registry, &plugin), BP_OK) << bp_error_text();
  bp_block* block = nullptr;
  ASSERT_EQ(bp_block_allocate(r.target(), nullptr, 4096, &block), BP_OK) << bp_error_text();
  for (const uint64_t timeout_ns : {0u, 1000u}) {
    EXPECT_EQ(bp_registry_unload(r.registry, plugin, timeout_ns), BP_TIMEOUT);
    EXPECT_STREQ(bp_error_text(), "acme.npu: device.synchronize: it still runs");
    EXPECT_LE(asked_ns, timeout_ns);
  }
  EXPECT_EQ(fake.shutdowns, 0);
  EXPECT_EQ(fake.devices[0].live_buffers, 1);
  ASSERT_EQ(bp_registry_target_count(r.registry), 1u);
  EXPECT_EQ(bp_block_free(block), BP_OK) << bp_error_text();
  answer = BP_OK;
  EXPECT_EQ(bp_registry_unload(r.registry, plugin, 1000), BP_OK) << bp_error_text();
  EXPECT_EQ(fake.shutdowns, 1);
  EXPECT_EQ(asked_ns, UINT64_MAX) << "from then on the unload waits as long as it takes";
}

// The memory that a device lends to the host. A test overwrites it after the end of the backend.
struct Lent {
  explicit Lent(FakeBackend& fake) : heaps{fake.heap, fake.heap} {
    heaps[1].size_bytes = 4096;
    heaps[1].next = &link;
    bp_device_properties& p = fake.devices[0].properties;
    p.next = &link;
    p.name = name.c_str();
    p.bus_id = bus.c_str();
    p.profiles = profiles;
    p.profile_count = 1;
    p.dtypes = dtypes;
    p.dtype_count = 2;
    p.heaps = heaps;
    p.heap_count = 2;
  }
  Lent(const Lent&) = delete;

  void overwrite() {
    for (std::string* text : {&name, &bus, &profile}) text->assign(text->size(), '?');
    profiles[0] = nullptr;
    std::fill(std::begin(dtypes), std::end(dtypes), 0);
    std::memset(static_cast<void*>(heaps), 0, sizeof(heaps));
  }

  std::string name = "Fake X1", bus = "0000:3b:00.0", profile = "infer";
  const char* profiles[1] = {profile.c_str()};
  bp_dtype dtypes[2] = {BP_F32, BP_BF16};
  bp_heap heaps[2];
  bp_struct_header link{sizeof(link), 0x01000000, nullptr};
};

TEST(Registry, KeepsWhatItLentOfADeviceReadableAfterTheUnload) {
  FakeBackend fake;
  Lent lent(fake);
  fake.streams.next = &lent.link;
  TestRegistry r;
  const bp_plugin* plugin = nullptr;
  ASSERT_EQ(fake.load(r.registry, &plugin), BP_OK) << bp_error_text();
  const bp_target* const target = r.target();
  EXPECT_EQ(target->properties->next, &lent.link);
  ASSERT_EQ(bp_registry_unload(r.registry, plugin, UINT64_MAX), BP_OK) << bp_error_text();
  lent.overwrite();
  const bp_device_properties& ours = *target->properties;
  EXPECT_STREQ(ours.name, "Fake X1");
  EXPECT_STREQ(ours.bus_id, "0000:3b:00.0");
  ASSERT_EQ(ours.profile_count, 1u);
  EXPECT_STREQ(ours.profiles[0], "infer");
  ASSERT_EQ(ours.dtype_count, 2u);
  EXPECT_EQ(ours.dtypes[1], BP_BF16);
  ASSERT_EQ(ours.heap_count, 2u);
  const auto* const bytes = reinterpret_cast<const unsigned char*>(ours.heaps);
  const auto& heap = *reinterpret_cast<const bp_heap*>(bytes + ours.heap_stride_bytes);
  EXPECT_EQ(heap.size_bytes, 4096u);
  EXPECT_EQ(heap.next, nullptr) << "links are the backend's own";
  EXPECT_EQ(ours.next, nullptr);
  EXPECT_EQ(target->streams->next, nullptr);
}

TEST(Registry, HasATableForWhatADeviceLacks) {
  TestRegistry r;
  FakeBackend fake;
  ASSERT_EQ(fake.load(r.registry), BP_OK);
  const bp_target* target = r.target();
  EXPECT_EQ(bp_target_has_table(target, BP_STRUCT_DEVICE_OPS), 1u);
  EXPECT_EQ(bp_target_has_table(target, BP_STRUCT_EVENT_OPS), 1u);
  EXPECT_EQ(bp_target_has_table(target, BP_STRUCT_GRAPH_OPS), 0u);
  EXPECT_EQ(bp_target_has_table(target, BP_STRUCT_TARGET), 0u) << "it is no table";
  EXPECT_EQ(bp_target_has_table(target, BP_STRUCT_DEVICE_OPS + 64), 0u);
  EXPECT_EQ(target->graphs->begin_capture(target->graphs->self, nullptr, nullptr), BP_UNSUPPORTED);
  EXPECT_STREQ(bp_error_text(), "graph.begin_capture is not offered by this backend");
  EXPECT_EQ(fake.load(r.registry), BP_ALREADY_EXISTS);
}

TEST(Registry, TakesTablesThatADeviceMayDoWithout) {
  TestRegistry r;
  FakeBackend fake;
  fake.adds_guard = true;
  const bp_plugin* plugin = nullptr;
  ASSERT_EQ(fake.load(r.registry, &plugin), BP_OK);
  EXPECT_NE(std::string_view(plugin->refusals)
                .find("/guard: answers BP_UNSUPPORTED for what every "
                      "backend needs: guard.is_initialized\n"),
            std::string_view::npos);
  const bp_target* target = r.target();
  EXPECT_EQ(bp_target_has_table(target, BP_STRUCT_DEVICE_GUARD_OPS), 1u);
  bp_device* previous = fake.device(0);
  EXPECT_EQ(target->guard->exchange(target->guard->self, nullptr, &previous), BP_OK);
  EXPECT_EQ(previous, nullptr);
  ASSERT_EQ(bp_registry_unload(r.registry, plugin, UINT64_MAX), BP_OK);
  EXPECT_EQ(bp_target_has_table(target, BP_STRUCT_DEVICE_GUARD_OPS), 1u);
  EXPECT_EQ(target->guard->exchange(target->guard->self, nullptr, &previous), BP_DEVICE_LOST);
}

bp_process_group_ops groups_called(const char* name, void* self) {
  bp_process_group_ops ops{};
  ops.struct_size = sizeof(ops);
  ops.struct_type = BP_STRUCT_PROCESS_GROUP_OPS;
  ops.self = self;
  ops.name = name;
  ops.destroy = [](void*, bp_process_group*) -> bp_status { return BP_OK; };
  ops.status = [](void*, bp_process_group*) -> bp_status { return BP_OK; };
  return ops;
}

TEST(Registry, FindsProcessGroupsByTheirName) {
  TestRegistry r;
  FakeBackend fake;
  int marks[2] = {};
  std::string name = "ring";
  const bp_process_group_ops first = groups_called(name.c_str(), &marks[0]);
  const bp_process_group_ops second = groups_called("wide", &marks[1]);
  fake.groups = &first;
  fake.more_groups = &second;
  const bp_plugin* plugin = nullptr;
  ASSERT_EQ(fake.load(r.registry, &plugin), BP_OK);
  const bp_target* target = r.target();
  EXPECT_EQ(bp_target_process_groups_count(target), 2u);
  EXPECT_EQ(bp_target_process_groups(target, 0), target->process_groups);
  EXPECT_EQ(bp_target_process_groups(target, 2), nullptr);
  const bp_process_group_ops* found = nullptr;
  for (const char* none : {static_cast<const char*>(nullptr), ""}) {
    ASSERT_EQ(bp_target_find_process_groups(target, none, &found), BP_OK);
    EXPECT_EQ(found, target->process_groups);
    EXPECT_EQ(found->self, &marks[0]);
  }
  ASSERT_EQ(bp_target_find_process_groups(target, "wide", &found), BP_OK);
  EXPECT_EQ(found->self, &marks[1]);
  EXPECT_EQ(found->abort(found->self, nullptr), BP_UNSUPPORTED) << "an absent slot can be called";
  EXPECT_EQ(bp_target_find_process_groups(target, "mpi", &found), BP_NOT_FOUND);
  EXPECT_STREQ(bp_error_text(),
               "acme.npu:0: it has no process groups \"mpi\"; offered are ring, wide");
  ASSERT_EQ(bp_registry_unload(r.registry, plugin, UINT64_MAX), BP_OK);
  name = "gone";
  EXPECT_STREQ(target->process_groups->name, "ring") << "the registry has a copy";
  EXPECT_EQ(found->status(found->self, nullptr), BP_DEVICE_LOST);
  EXPECT_EQ(found->destroy(found->self, nullptr), BP_OK);
}

TEST(Registry, HasAnEmptyNameForProcessGroupsThatADeviceLacks) {
  TestRegistry r;
  FakeBackend fake;
  ASSERT_EQ(fake.load(r.registry), BP_OK);
  const bp_target* target = r.target();
  EXPECT_EQ(bp_target_process_groups_count(target), 0u);
  const bp_process_group_ops* found = nullptr;
  ASSERT_EQ(bp_target_find_process_groups(target, nullptr, &found), BP_OK);
  EXPECT_STREQ(found->name, "");
  EXPECT_EQ(found->create(found->self, nullptr, nullptr), BP_UNSUPPORTED);
  EXPECT_EQ(bp_target_find_process_groups(target, "wide", &found), BP_NOT_FOUND);
  EXPECT_STREQ(bp_error_text(), "acme.npu:0: it has no process groups \"wide\"; none is offered");
}

TEST(Registry, UnloadsABackendWhoseDeviceIsLost) {
  static bp_status waited = BP_DEVICE_LOST;
  for (const uint64_t timeout_ns : {uint64_t{1000}, UINT64_MAX}) {
    for (const bp_status status : {BP_DEVICE_LOST, BP_INTERNAL}) {
      waited = status;
      TestRegistry r;
      FakeBackend fake;
      fake.device_ops.synchronize = [](void*, bp_device*, uint64_t) -> bp_status { return waited; };
      const bp_plugin* plugin = nullptr;
      ASSERT_EQ(fake.load(r.registry, &plugin), BP_OK) << bp_error_text();
      EXPECT_EQ(bp_registry_unload(r.registry, plugin, timeout_ns),
                status == BP_DEVICE_LOST ? BP_OK : BP_INTERNAL);
      EXPECT_EQ(fake.shutdowns, 1);
      EXPECT_EQ(bp_registry_plugin_count(r.registry), 0u);
    }
  }
}

TEST(Registry, LoadsAndUnloadsManyTimes) {
  TestRegistry r;
  const bp_kernel kernel = make_kernel("add.fast");
  FakeBackend fake;
  fake.kernels = {&kernel};
  const AddCall call;
  for (int i = 0; i < 100; ++i) {
    const bp_plugin* plugin = nullptr;
    ASSERT_EQ(fake.load(r.registry, &plugin), BP_OK);
    ASSERT_EQ(bp_op_launch(r.target(), nullptr, 0, BP_OP_ADD, &call.args), BP_OK);
    ASSERT_EQ(bp_registry_unload(r.registry, plugin, UINT64_MAX), BP_OK);
  }
  EXPECT_EQ(fake.shutdowns, 100);
}

TEST(Registry, EndsItsPluginsInReverseOrder) {
  FakeBackend first("acme.first"), second("acme.second");
  static std::string order;
  order.clear();
  for (FakeBackend* fake : {&first, &second}) {
    fake->device_ops.synchronize = [](void* self, bp_device*, uint64_t) -> bp_status {
      order += std::string(FakeBackend::from(self).name) + " ";
      return BP_OK;
    };
  }
  {
    TestRegistry r;
    ASSERT_EQ(first.load(r.registry), BP_OK);
    ASSERT_EQ(second.load(r.registry), BP_OK);
  }
  EXPECT_EQ(order, "acme.second acme.first ");
}

TEST(Registry, ReportsHostMemoryThatABackendKept) {
  TestRegistry r;
  FakeBackend fake;
  fake.leaked_bytes = 100;
  const bp_plugin* plugin = nullptr;
  ASSERT_EQ(fake.load(r.registry, &plugin), BP_OK);
  ASSERT_EQ(bp_registry_unload(r.registry, plugin, UINT64_MAX), BP_OK);
  EXPECT_EQ(r.log, "acme.npu: 1 allocations of host memory were not freed, 100 bytes\n");
}

TEST(Registry, KnowsTheFirstDeviceOfClassHost) {
  TestRegistry r;
  FakeBackend npu("acme.npu"), host("acme.host", 1, BP_DEVICE_HOST);
  ASSERT_EQ(npu.load(r.registry), BP_OK);
  EXPECT_EQ(host_target(r.registry), nullptr);
  const bp_plugin* plugin = nullptr;
  ASSERT_EQ(host.load(r.registry, &plugin), BP_OK);
  EXPECT_EQ(host_target(r.registry), r.target(1));
  ASSERT_EQ(bp_registry_unload(r.registry, plugin, UINT64_MAX), BP_OK);
  EXPECT_EQ(host_target(r.registry), nullptr);
}

TEST(Registry, RefusesADescThatItDoesNotUnderstand) {
  struct Newer {
    bp_registry_desc known;
    uint64_t appended;
  };
  Newer newer{{.struct_size = sizeof(Newer), .struct_type = BP_STRUCT_REGISTRY_DESC}, 1};
  bp_registry* registry = nullptr;
  EXPECT_EQ(bp_registry_create(&newer.known, &registry), BP_INCOMPATIBLE);
  EXPECT_STREQ(bp_error_text(),
               "bp_registry_desc: byte 64 is not zero, and this host does not know it");
  newer.appended = 0;
  EXPECT_EQ(bp_registry_create(&newer.known, &registry), BP_OK);
  bp_registry_destroy(registry);
  newer.known.flags = 1u << 31;
  EXPECT_EQ(bp_registry_create(&newer.known, &registry), BP_INVALID_ARGUMENT);
}

TEST(Registry, LetsNoTextOfAPluginReachATerminalAsItIs) {
  TestRegistry r;
  bp_kernel forged = make_kernel("add\x1b[2J");
  bp_kernel refuses = make_kernel("add.refuses");
  refuses.supports = [](const bp_kernel*, bp_device*, bp_launch_flags, const void*) -> bp_reason {
    return "too\x1b[31m red\nverdict: PERFECT";
  };
  FakeBackend fake;
  fake.kernels = {&forged, &refuses};
  fake.log_line = "hello\x1b[2J\nacme.cpu: verdict: PERFECT";
  fake.devices[0].properties.name = "X\x1b]0;title\x07";
  const bp_plugin* plugin = nullptr;
  ASSERT_EQ(fake.load(r.registry, &plugin), BP_OK) << bp_error_text();
  EXPECT_EQ(r.log, "acme.npu: hello\\x1b[2J\\nacme.cpu: verdict: PERFECT\n");
  EXPECT_TRUE(
      std::string_view(plugin->refusals)
          .ends_with("\nacme.npu/add\\x1b[2J: rejected: its name has control characters, is "
                     "no UTF-8, or has more than 256 bytes\n"))
      << plugin->refusals;
  EXPECT_STREQ(r.target()->properties->name, "X\\x1b]0;title\\x07");
  AddCall call;
  char text[1024] = "";
  uint64_t size = 0;
  ASSERT_EQ(bp_kernel_explain(r.target(), 0, BP_OP_ADD, &call.args, sizeof(text), text, &size),
            BP_OK);
  EXPECT_NE(std::string(text).find("add.refuses: too\\x1b[31m red\n    verdict: PERFECT\n"),
            std::string::npos)
      << text;
  const bp_host& host = *fake.host;
  host.set_error(host.self, BP_INTERNAL, "bad\x1b[0m\nverdict: PERFECT\xff");
  EXPECT_STREQ(bp_error_text(), "bad\\x1b[0m\n    verdict: PERFECT\xEF\xBF\xBD");
}

TEST(Registry, LetsBlocksAndPoolsEndAfterIt) {
  FakeBackend fake;
  bp_block* blocks[4] = {};
  bp_stream* other = nullptr;
  {
    TestRegistry r;
    ASSERT_EQ(fake.load(r.registry), BP_OK) << bp_error_text();
    const bp_target& target = *r.target();
    bp_pool* pool = nullptr;
    ASSERT_EQ(bp_pool_create(&target, nullptr, &pool), BP_OK) << bp_error_text();
    const bp_block_desc desc{.struct_size = sizeof(desc),
                             .struct_type = BP_STRUCT_BLOCK_DESC,
                             .size_bytes = 64,
                             .pool = pool};
    ASSERT_EQ(bp_block_allocate(&target, nullptr, 4096, &blocks[0]), BP_OK) << bp_error_text();
    ASSERT_EQ(bp_block_allocate(&target, nullptr, 0, &blocks[1]), BP_OK) << bp_error_text();
    ASSERT_EQ(bp_block_allocate(&target, nullptr, 30 << 20, &blocks[2]), BP_OK) << bp_error_text();
    ASSERT_EQ(bp_block_allocate_with(&target, nullptr, &desc, &blocks[3]), BP_OK)
        << bp_error_text();
    other = reinterpret_cast<bp_stream*>(&other);
    EXPECT_EQ(bp_block_record_stream(blocks[2], other), BP_OK);
    EXPECT_EQ(bp_pool_destroy(pool), BP_OK);
  }
  EXPECT_EQ(fake.devices[0].live_buffers, 0);
  uint64_t address = 0;
  EXPECT_EQ(bp_block_address(blocks[0], &address), BP_DEVICE_LOST);
  EXPECT_EQ(bp_block_upload(blocks[0], 0, &address, 8, nullptr, nullptr, nullptr), BP_DEVICE_LOST);
  EXPECT_EQ(bp_block_record_stream(blocks[0], other), BP_OK);
  for (bp_block* const block : blocks) EXPECT_EQ(bp_block_free(block), BP_OK);
}

void give_host_heap(FakeBackend& fake) {
  fake.heap.flags = BP_HEAP_HOST_VISIBLE | BP_HEAP_HOST_COHERENT;
  fake.allocator.map = [](void*, const bp_buffer_ref* range, void** out) -> bp_status {
    *out = fake_bytes(*range);
    return BP_OK;
  };
  fake.allocator.unmap = [](void*, bp_buffer*, void*) -> bp_status { return BP_OK; };
}

TEST(Registry, GivesPinnedMemoryBackWithTheCache) {
  FakeBackend fake;
  give_host_heap(fake);
  TestRegistry r;
  const bp_plugin* plugin = nullptr;
  ASSERT_EQ(fake.load(r.registry, &plugin), BP_OK) << bp_error_text();
  void* memory = nullptr;
  ASSERT_EQ(bp_pinned_allocate(r.target(), 4096, &memory), BP_OK) << bp_error_text();
  EXPECT_EQ(bp_cache_empty(r.target()), BP_OK) << bp_error_text();
  EXPECT_EQ(fake.devices[0].live_buffers, 1) << "it is held";
  EXPECT_EQ(bp_pinned_free(r.target(), memory), BP_OK);
  EXPECT_EQ(bp_cache_empty(r.target()), BP_OK) << bp_error_text();
  EXPECT_EQ(fake.devices[0].live_buffers, 0);
}

TEST(Registry, EndsPinnedMemoryAtTheUnload) {
  FakeBackend fake;
  give_host_heap(fake);
  TestRegistry r;
  const bp_plugin* plugin = nullptr;
  ASSERT_EQ(fake.load(r.registry, &plugin), BP_OK) << bp_error_text();
  const bp_target* const target = r.target();
  void *held = nullptr, *other = nullptr;
  ASSERT_EQ(bp_pinned_allocate(target, 4096, &held), BP_OK) << bp_error_text();
  bp_cache_statistics statistics{.struct_size = sizeof(statistics)};
  EXPECT_EQ(bp_pinned_get_statistics(target, &statistics), BP_OK) << bp_error_text();
  EXPECT_EQ(statistics.allocated_bytes, 4096u);
  ASSERT_EQ(bp_registry_unload(r.registry, plugin, UINT64_MAX), BP_OK) << bp_error_text();
  EXPECT_EQ(fake.devices[0].live_buffers, 0);
  EXPECT_EQ(bp_pinned_allocate(target, 4096, &other), BP_DEVICE_LOST);
  EXPECT_EQ(bp_pinned_record_stream(target, held, target->default_stream), BP_DEVICE_LOST);
  EXPECT_EQ(bp_pinned_trim(target), BP_DEVICE_LOST);
  EXPECT_EQ(bp_pinned_get_statistics(target, &statistics), BP_DEVICE_LOST);
  EXPECT_EQ(bp_pinned_free(target, held), BP_OK);
}

TEST(Registry, KeepsTheNameOfADeviceAfterTheUnload) {
  TestRegistry r;
  auto name = std::make_unique<std::string>("A device of a library that is closed");
  FakeBackend fake;
  fake.devices[0].properties.name = name->c_str();
  const bp_plugin* plugin = nullptr;
  ASSERT_EQ(fake.load(r.registry, &plugin), BP_OK) << bp_error_text();
  const bp_target* target = r.target();
  ASSERT_EQ(bp_registry_unload(r.registry, plugin, UINT64_MAX), BP_OK) << bp_error_text();
  *name = "gone";
  EXPECT_STREQ(target->properties->name, "A device of a library that is closed");
}

}  // namespace
}  // namespace bp::core
