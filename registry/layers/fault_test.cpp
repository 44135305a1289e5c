// Tests when faults strike, and what they do.
#include <gtest/gtest.h>

#include <bit>

#include "registry/layers/fault_rules.hpp"
#include "registry/tests/fake_backend.hpp"

namespace bp::core {
namespace {

using layers::FaultRules;

// Returns the calls from 1 to 20 at which a rule strikes.
std::vector<uint64_t> strikes(const char* text, uint64_t seed = 1) {
  FaultRules rules;
  EXPECT_EQ(rules.read("fail", text, seed), BP_OK) << bp_error_text();
  std::vector<uint64_t> struck;
  for (uint64_t i = 1; i <= 20; ++i) {
    const uint64_t call = rules.strike("memory.allocate", "");
    if (call != 0) struck.push_back(call);
    rules.strike("memory.deallocate", "");
  }
  return struck;
}

TEST(FaultRules, CountTheCallsThatFit) {
  EXPECT_EQ(strikes("memory.allocate@3"), std::vector<uint64_t>{3});
  EXPECT_EQ(strikes("memory.alloc*@19+"), (std::vector<uint64_t>{19, 20}));
  EXPECT_EQ(strikes("stream.*@1"), std::vector<uint64_t>{});
  EXPECT_EQ(strikes("memory.allocate@2:memory.allocate@5"), (std::vector<uint64_t>{2, 5}));
}

TEST(FaultRules, DrawFromTheSeed) {
  const auto first = strikes("memory.allocate@1/4", 7);
  EXPECT_EQ(strikes("memory.allocate@1/4", 7), first);
  EXPECT_NE(strikes("memory.allocate@1/4", 8), first);
  EXPECT_GT(first.size(), 0);
  EXPECT_LT(first.size(), 15);
}

TEST(FaultRules, RefuseWhatIsNoRule) {
  for (const char* text : {"memory.allocate", "@3", "memory.allocate@", "memory.allocate@0",
                           "memory.allocate@x", "memory.allocate@1/0"}) {
    FaultRules rules;
    EXPECT_EQ(rules.read("fail", text, 1), BP_INVALID_ARGUMENT) << text;
    EXPECT_EQ(std::string(bp_error_text()),
              "layer option fault.fail: '" + std::string(text) +
                  "' is not GLOB@WHEN, where WHEN is 3, 3+ or 1/50, as in memory.allocate@3");
  }
}

struct Faulty {
  TestRegistry r;
  FakeBackend fake;
  bp_kernel kernel = make_kernel("add.fast");
  const bp_plugin* plugin = nullptr;
  float values[4] = {1, 2, 3, 4};
  int64_t shape[1] = {4}, strides[1] = {1};
  bp_tensor tensor{.buffer = reinterpret_cast<bp_buffer*>(values),
                   .shape = shape,
                   .strides = strides,
                   .ndim = 1,
                   .dtype = BP_F32};
  bp_add_args args{.struct_size = sizeof(args), .a = &tensor, .b = &tensor, .y = &tensor};

  explicit Faulty(const char* options) : r(0, "fault", options) {
    fake.kernels = {&kernel};
    EXPECT_EQ(fake.load(r.registry, &plugin), BP_OK) << bp_error_text();
  }

  bp_status allocate(uint64_t size_bytes, bp_buffer** out_buffer) {
    const bp_allocate_desc desc{.struct_size = sizeof(desc),
                                .struct_type = BP_STRUCT_ALLOCATE_DESC,
                                .size_bytes = size_bytes};
    const bp_allocator_ops& memory = *r.target()->allocator;
    return memory.allocate(memory.self, r.target()->device, &desc, out_buffer);
  }
  bp_status free(bp_buffer* buffer) {
    const bp_allocator_ops& memory = *r.target()->allocator;
    return memory.deallocate(memory.self, buffer, nullptr);
  }
  bp_status launch() { return bp_op_launch(r.target(), nullptr, 0, BP_OP_ADD, &args); }
  uint64_t reports() const {
    uint64_t count = 0;
    EXPECT_EQ(bp_plugin_layer_reports(plugin, "fault", &count), BP_OK);
    return count;
  }
};

TEST(FaultLayer, FailsACallThatThenDoesNotReachTheBackend) {
  Faulty f("fault.fail=memory.allocate@2:kernel.launch/add.*@2,fault.status=aborted");
  bp_buffer *first = nullptr, *second = nullptr;
  EXPECT_EQ(f.allocate(8, &first), BP_OK);
  EXPECT_EQ(f.allocate(8, &second), BP_ABORTED);
  EXPECT_STREQ(bp_error_text(), "injected by the layer fault: call 2 of memory.allocate fails");
  EXPECT_EQ(second, nullptr);
  EXPECT_EQ(f.fake.devices[0].live_buffers, 1);
  EXPECT_EQ(f.free(first), BP_OK);
  EXPECT_EQ(f.launch(), BP_OK);
  EXPECT_EQ(f.launch(), BP_ABORTED);
  EXPECT_EQ(f.launch(), BP_OK);
  EXPECT_EQ(f.reports(), 2);
}

TEST(FaultLayer, WarnsOfARuleThatNoCallHasFitted) {
  Faulty f("fault.fail=kernel.launch/sub.*@1:memory.allocate@9,fault.delay=graph.launch@1");
  bp_buffer* buffer = nullptr;
  ASSERT_EQ(f.allocate(8, &buffer), BP_OK);
  EXPECT_EQ(f.launch(), BP_OK);
  EXPECT_EQ(f.free(buffer), BP_OK);
  EXPECT_EQ(f.r.log.find("no call fits"), std::string::npos);
  EXPECT_EQ(bp_registry_unload(f.r.registry, f.plugin, UINT64_MAX), BP_OK) << bp_error_text();
  for (const char* words : {"/fault: no call fits 'kernel.launch/sub.*' of fault.fail",
                            "/fault: no call fits 'graph.launch' of fault.delay"}) {
    EXPECT_NE(f.r.log.find(words), std::string::npos) << words << " in\n" << f.r.log;
  }
  EXPECT_EQ(f.r.log.find("memory.allocate"), std::string::npos) << "a call fitted, the first";
}

TEST(FaultLayer, NeverFailsWhatFrees) {
  Faulty f("fault.fail=memory.deallocate@1+");
  bp_buffer* buffer = nullptr;
  ASSERT_EQ(f.allocate(8, &buffer), BP_OK);
  EXPECT_EQ(f.free(buffer), BP_OK);
  EXPECT_EQ(f.fake.devices[0].live_buffers, 0);
}

TEST(FaultLayer, HasLittleMemory) {
  Faulty f("fault.memory=100");
  bp_buffer *first = nullptr, *second = nullptr;
  EXPECT_EQ(f.allocate(60, &first), BP_OK);
  EXPECT_EQ(f.allocate(60, &second), BP_OUT_OF_MEMORY);
  EXPECT_STREQ(bp_error_text(),
               "injected by the layer fault: 60 bytes were asked for, 60 of 100 are used");
  EXPECT_EQ(f.allocate(UINT64_MAX, &second), BP_OUT_OF_MEMORY);
  EXPECT_EQ(f.free(first), BP_OK);
  EXPECT_EQ(f.allocate(60, &second), BP_OK);
  EXPECT_EQ(f.free(second), BP_OK);
}

TEST(FaultLayer, LosesTheDevices) {
  Faulty f("fault.lost=kernel.launch@2");
  bp_buffer *buffer = nullptr, *none = nullptr;
  ASSERT_EQ(f.allocate(8, &buffer), BP_OK);
  EXPECT_EQ(f.launch(), BP_OK);
  EXPECT_EQ(f.launch(), BP_DEVICE_LOST);
  EXPECT_EQ(f.launch(), BP_DEVICE_LOST);
  EXPECT_EQ(f.allocate(8, &none), BP_DEVICE_LOST);
  EXPECT_STREQ(bp_error_text(), "injected by the layer fault: memory.allocate on a lost device");
  EXPECT_EQ(f.free(buffer), BP_OK);
}

TEST(FaultLayer, FlipsOneBitOfAnOutput) {
  Faulty f("fault.corrupt=kernel.launch@2");
  const float before[4] = {1, 2, 3, 4};
  EXPECT_EQ(f.launch(), BP_OK);
  EXPECT_TRUE(std::equal(before, before + 4, f.values));
  EXPECT_EQ(f.launch(), BP_OK);
  uint32_t bits = 0, was = 0;
  std::memcpy(&bits, f.values, 4);
  std::memcpy(&was, before, 4);
  EXPECT_EQ(std::popcount(bits ^ was), 1);
  EXPECT_TRUE(std::equal(before + 1, before + 4, f.values + 1));
}

// The groups whose calls reached the backend, by submit.
struct Groups {
  std::vector<std::vector<bp_process_group*>> submits;
  bp_process_group_ops ops{.struct_size = sizeof(ops),
                           .struct_type = BP_STRUCT_PROCESS_GROUP_OPS,
                           .next = nullptr,
                           .self = this,
                           .name = "fake",
                           .destroy = [](void*, bp_process_group*) -> bp_status { return BP_OK; },
                           .submit = submit};

  static bp_status submit(void* self, uint64_t count, const bp_collective_call* calls,
                          uint64_t stride) {
    auto& seen = static_cast<Groups*>(self)->submits.emplace_back();
    for (const auto* at = reinterpret_cast<const char*>(calls); count > 0; --count, at += stride) {
      seen.push_back(reinterpret_cast<const bp_collective_call*>(at)->group);
    }
    return BP_OK;
  }
};

TEST(FaultLayer, LetsARankStayAwayFromItsCallOn) {
  TestRegistry r(0, "fault", "fault.drop=collective.submit@5");
  FakeBackend fake;
  Groups groups;
  fake.groups = &groups.ops;
  ASSERT_EQ(fake.load(r.registry), BP_OK) << bp_error_text();
  const bp_process_group_ops& ops = *r.target()->process_groups;
  int handles[2];
  auto* const first = reinterpret_cast<bp_process_group*>(&handles[0]);
  auto* const second = reinterpret_cast<bp_process_group*>(&handles[1]);
  const auto call_of = [](bp_process_group* group) {
    return bp_collective_call{.struct_size = sizeof(bp_collective_call),
                              .struct_type = BP_STRUCT_COLLECTIVE_CALL,
                              .next = nullptr,
                              .group = group};
  };
  const bp_collective_call calls[] = {call_of(first), call_of(second)};
  const auto submit = [&](uint64_t count, const bp_collective_call* from) {
    EXPECT_EQ(ops.submit(ops.self, count, from, sizeof(bp_collective_call)), BP_OK);
  };
  for (int i = 0; i < 4; ++i) submit(2, calls);
  submit(1, calls);
  using Submits = std::vector<std::vector<bp_process_group*>>;
  EXPECT_EQ(groups.submits, (Submits{{first, second}, {first, second}, {second}, {second}}));
  EXPECT_EQ(ops.destroy(ops.self, first), BP_OK);
  submit(1, calls);
  EXPECT_EQ(groups.submits.back(), (std::vector{first})) << "a new group of the same handle";
}

// A call of a newer host, which ends in members that are zero.
struct NewerCall {
  bp_collective_call known{.struct_size = sizeof(NewerCall),
                           .struct_type = BP_STRUCT_COLLECTIVE_CALL};
  uint64_t tail[512] = {};
};

TEST(FaultLayer, DropsAmongCallsThatAreLargerThanTheirDistance) {
  TestRegistry r(0, "fault", "fault.drop=collective.submit@2");
  FakeBackend fake;
  Groups groups;
  fake.groups = &groups.ops;
  ASSERT_EQ(fake.load(r.registry), BP_OK) << bp_error_text();
  const bp_process_group_ops& ops = *r.target()->process_groups;
  int handles[3];
  // The distance between the calls is that of the older struct. The last call is larger.
  struct {
    bp_collective_call first[2];
    NewerCall last;
  } calls{};
  const auto handle = [&](int i) { return reinterpret_cast<bp_process_group*>(&handles[i]); };
  for (int i = 0; i < 2; ++i) {
    calls.first[i].struct_size = sizeof(bp_collective_call);
    calls.first[i].group = handle(i);
  }
  calls.last.known.group = handle(2);
  EXPECT_EQ(ops.submit(ops.self, 3, calls.first, sizeof(bp_collective_call)), BP_OK);
  EXPECT_EQ(groups.submits.back(), (std::vector{handle(0), handle(2)}));
  // One call has no distance to a next one.
  const size_t before = groups.submits.size();
  EXPECT_EQ(ops.submit(ops.self, 1, &calls.first[1], 0), BP_OK);
  EXPECT_EQ(groups.submits.size(), before) << "the rank stays away";
}

TEST(FaultLayer, RefusesAStatusThatItDoesNotKnow) {
  TestRegistry r(0, "fault", "fault.status=fine");
  FakeBackend fake;
  EXPECT_EQ(fake.load(r.registry), BP_INVALID_ARGUMENT);
  EXPECT_STREQ(bp_error_text(),
               "layer option fault.status is 'fine', allowed are invalid_argument, unsupported, "
               "out_of_memory, timeout, aborted, internal, stream_failed");
}

}  // namespace
}  // namespace bp::core
