// Tests launches: what a kernel receives, what happens when it refuses, and what is counted.
#include <gtest/gtest.h>

#include <bit>

#include "backplane/registry.hpp"
#include "registry/boundary/fail.hpp"
#include "registry/tests/fake_backend.hpp"

namespace bp::core {
namespace {

// What the kernel of this file saw in its last launch.
struct Seen {
  const bp_kernel* kernel = nullptr;
  bp_launch launch{};
  bp_add_args args{};
  int64_t b_shape[2] = {}, b_strides[2] = {};
  float b_value = 0;
  bp_dtype a_dtype = 0, b_dtype = 0;
  uint32_t args_size = 0;
  int launches = 0;
} seen;

bp_status see(const bp_kernel* self, const bp_launch* launch, const void* args) {
  const auto& a = *static_cast<const bp_add_args*>(args);
  seen.kernel = self;
  seen.launch = *launch;
  seen.args = a;
  seen.args_size = a.struct_size;
  ++seen.launches;
  seen.a_dtype = a.a->dtype;
  seen.b_dtype = a.b == nullptr ? bp_dtype{0} : a.b->dtype;
  if (a.b != nullptr && a.b->buffer != nullptr) {
    std::copy_n(a.b->shape, 2, seen.b_shape);
    std::copy_n(a.b->strides, 2, seen.b_strides);
    std::memcpy(&seen.b_value, fake_bytes({a.b->buffer, a.b->byte_offset, 4}), 4);
  }
  return BP_OK;
}

class Launch : public ::testing::Test {
 protected:
  Launch() { seen = {}; }

  void load(std::vector<const bp_kernel*> kernels) {
    fake.kernels = std::move(kernels);
    ASSERT_EQ(fake.load(r.registry), BP_OK) << bp_error_text();
    target = r.target();
  }

  // Makes the call a + value over tensors of bf16.
  void set_bf16_operand(double value) {
    call.a.dtype = call.y.dtype = BP_BF16;
    call.args.b = nullptr;
    call.args.b_scalar = {BP_F64, 0, std::bit_cast<uint64_t>(value)};
  }

  bp_dispatch_statistics statistics(uint32_t op = BP_OP_ADD) const {
    bp_dispatch_statistics s{.struct_size = sizeof(s),
                             .struct_type = BP_STRUCT_DISPATCH_STATISTICS};
    EXPECT_EQ(bp_target_statistics(target, op, &s), BP_OK) << bp_error_text();
    return s;
  }

  FakeBackend fake;  // It outlives the registry.
  TestRegistry r;
  const bp_target* target = nullptr;
  AddCall call;
};

TEST_F(Launch, HandsDeviceStreamAndFlagsToTheKernel) {
  bp_kernel kernel = make_kernel("add");
  kernel.launch = see;
  kernel.flags |= BP_KERNEL_DETERMINISTIC;
  load({&kernel});
  ASSERT_EQ(bp_op_launch(target, nullptr, BP_LAUNCH_DETERMINISTIC, BP_OP_ADD, &call.args), BP_OK);
  EXPECT_EQ(seen.kernel, &kernel);
  EXPECT_EQ(seen.launch.device, fake.device(0));
  EXPECT_EQ(seen.launch.stream, target->default_stream);
  EXPECT_EQ(seen.launch.flags, BP_LAUNCH_DETERMINISTIC);
  EXPECT_EQ(seen.launch.next, nullptr);
  EXPECT_EQ(seen.launch.workspace.buffer, nullptr);
  auto* stream = reinterpret_cast<bp_stream*>(&seen);
  ASSERT_EQ(bp_kernel_launch(target, stream, 0, &kernel, &call.args), BP_OK);
  EXPECT_EQ(seen.launch.stream, stream);
  EXPECT_EQ(statistics().native_count, 2);
  EXPECT_EQ(statistics(0).native_count, 2);
  EXPECT_EQ(statistics(BP_OP_SUB).native_count, 0);
}

TEST_F(Launch, TriesTheNextKernelAfterARefusal) {
  bp_kernel refuses = make_kernel("refuses"), works = make_kernel("works");
  refuses.launch = [](const bp_kernel*, const bp_launch*, const void*) -> bp_status {
    return fail(BP_UNSUPPORTED, "not today");
  };
  works.launch = see;
  load({&refuses, &works});
  ASSERT_EQ(bp_op_launch(target, nullptr, 0, BP_OP_ADD, &call.args), BP_OK);
  EXPECT_EQ(seen.kernel, &works);
}

TEST_F(Launch, SaysWhatTheLastKernelSaidWhenAllRefuse) {
  bp_kernel refuses = make_kernel("refuses");
  refuses.launch = [](const bp_kernel*, const bp_launch*, const void*) -> bp_status {
    return fail(BP_UNSUPPORTED, "not today");
  };
  load({&refuses});
  EXPECT_EQ(bp_op_launch(target, nullptr, 0, BP_OP_ADD, &call.args), BP_UNSUPPORTED);
  const std::string text = bp_error_text();
  EXPECT_TRUE(text.ends_with("\n  at the launch every kernel refused; the last: not today"))
      << text;
  EXPECT_EQ(statistics().native_count, 0);
}

TEST_F(Launch, PassesOtherFailuresOn) {
  bp_kernel fails = make_kernel("fails"), works = make_kernel("works");
  fails.launch = [](const bp_kernel*, const bp_launch*, const void*) -> bp_status {
    return fail(BP_STREAM_FAILED, "the stream has failed");
  };
  works.launch = see;
  load({&fails, &works});
  EXPECT_EQ(bp_op_launch(target, nullptr, 0, BP_OP_ADD, &call.args), BP_STREAM_FAILED);
  EXPECT_STREQ(bp_error_text(), "the stream has failed");
  EXPECT_EQ(seen.launches, 0);
}

TEST_F(Launch, ReadsAVendorsStatusAsItsBackendSays) {
  bp_kernel fails = make_kernel("fails"), works = make_kernel("works");
  fails.launch = [](const bp_kernel*, const bp_launch*, const void*) -> bp_status { return -5; };
  works.launch = see;
  fake.backend.status_class = [](void*, bp_status code, bp_status* out) -> bp_status {
    *out = code == -5 ? BP_UNSUPPORTED : BP_INTERNAL;
    return BP_OK;
  };
  load({&fails, &works});
  EXPECT_EQ(bp_op_launch(target, nullptr, 0, BP_OP_ADD, &call.args), BP_OK);
  EXPECT_EQ(seen.kernel, &works);
}

TEST_F(Launch, MakesATensorOfAnInlineScalarForAKernelThatTakesNone) {
  bp_kernel kernel = make_kernel("add");
  kernel.flags = 0;
  kernel.launch = see;
  load({&kernel});
  call.args.b = nullptr;
  call.args.b_scalar = {BP_I64, 0, 3};
  ASSERT_EQ(bp_op_launch(target, nullptr, 0, BP_OP_ADD, &call.args), BP_OK) << bp_error_text();
  ASSERT_NE(seen.args.b, nullptr);
  EXPECT_EQ(seen.b_shape[0], 2);
  EXPECT_EQ(seen.b_shape[1], 3);
  EXPECT_EQ(seen.b_strides[0], 0);
  EXPECT_EQ(seen.b_strides[1], 0);
  EXPECT_EQ(seen.b_value, 3.0f);
  EXPECT_EQ(statistics().copied_scalar_count, 1);
  EXPECT_EQ(call.args.b, nullptr);  // The caller's frame did not change.
}

TEST_F(Launch, GivesAnOperandInAccToAKernelThatTakesIt) {
  bp_kernel kernel = make_kernel("add");
  kernel.flags = BP_KERNEL_TAKES_ACC_OPERAND;
  kernel.launch = see;
  load({&kernel});
  set_bf16_operand(0.99);
  ASSERT_EQ(bp_op_launch(target, nullptr, 0, BP_OP_ADD, &call.args), BP_OK) << bp_error_text();
  EXPECT_EQ(seen.a_dtype, bp_dtype{BP_BF16});
  EXPECT_EQ(seen.b_dtype, bp_dtype{BP_F32});
  EXPECT_EQ(seen.b_value, 0.99f);
  EXPECT_EQ(seen.b_shape[1], 3);
  EXPECT_EQ(seen.b_strides[1], 0);
  EXPECT_EQ(statistics().native_count, 1);
  EXPECT_EQ(statistics().copied_scalar_count, 1);
}

TEST_F(Launch, RunsInF32WhatNoKernelTakesExactly) {
  bp_kernel add = make_kernel("add"), copy = make_kernel("copy", BP_OP_COPY, sizeof(bp_copy_args));
  add.flags = 0;
  add.launch = see;
  load({&add, &copy});
  set_bf16_operand(0.5);
  ASSERT_EQ(bp_op_launch(target, nullptr, 0, BP_OP_ADD, &call.args), BP_OK) << bp_error_text();
  EXPECT_EQ(seen.b_dtype, bp_dtype{BP_BF16}) << "bf16 holds the value";
  EXPECT_EQ(statistics(BP_OP_COPY).native_count, 0);
  set_bf16_operand(0.99);
  ASSERT_EQ(bp_op_launch(target, nullptr, 0, BP_OP_ADD, &call.args), BP_OK) << bp_error_text();
  EXPECT_EQ(seen.a_dtype, bp_dtype{BP_F32});
  EXPECT_EQ(seen.b_value, 0.99f);
  EXPECT_EQ(statistics(BP_OP_COPY).native_count, 2) << "a to f32, and the result back";
  EXPECT_EQ(statistics().native_count, 2);
  EXPECT_EQ(statistics().decomposed_count, 1);
  EXPECT_EQ(bp_kernel_launch(target, nullptr, 0, &add, &call.args), BP_UNSUPPORTED);
  EXPECT_STREQ(bp_error_text(),
               "add by add: b: bf16 does not hold the scalar, and the kernel takes no operand in "
               "f32");
}

TEST_F(Launch, LeavesInlineScalarsAloneWhereTheKernelTakesThem) {
  bp_kernel kernel = make_kernel("add");
  kernel.launch = see;
  load({&kernel});
  call.args.b = nullptr;
  call.args.b_scalar = {BP_I64, 0, 3};
  ASSERT_EQ(bp_op_launch(target, nullptr, 0, BP_OP_ADD, &call.args), BP_OK);
  EXPECT_EQ(seen.args.b, nullptr);
  EXPECT_EQ(fake.fills, 0);
  EXPECT_EQ(statistics().copied_scalar_count, 0);
}

// Copies six floats.
bp_status copy_six(const bp_kernel*, const bp_launch*, const void* args) {
  const auto& a = *static_cast<const bp_copy_args*>(args);
  std::memcpy(fake_bytes({a.y->buffer, a.y->byte_offset, 24}),
              fake_bytes({a.x->buffer, a.x->byte_offset, 24}), 24);
  return BP_OK;
}

// Sets y to a, and takes only offsets that are multiples of 64.
bp_status copy_aligned(const bp_kernel*, const bp_launch*, const void* args) {
  const auto& a = *static_cast<const bp_add_args*>(args);
  for (const bp_tensor* t : {a.a, a.b, a.y}) {
    if (t->byte_offset % 64 != 0) return fail(BP_UNSUPPORTED, "an offset is no multiple of 64");
  }
  const bp_copy_args copy{.x = a.a, .y = a.y};
  return copy_six(nullptr, nullptr, &copy);
}

TEST_F(Launch, CopiesTensorsToPlacesThatTheHeapAllows) {
  fake.heap.tensor_offset_alignment_bytes = 64;
  bp_kernel add = make_kernel("add"), copy = make_kernel("copy", BP_OP_COPY, sizeof(bp_copy_args));
  add.launch = copy_aligned;
  copy.launch = copy_six;
  load({&add, &copy});
  float memory[16] = {0, 1, 2, 3, 4, 5, 6};
  call.a.buffer = call.y.buffer = reinterpret_cast<bp_buffer*>(memory);
  call.a.byte_offset = 4;
  call.y.byte_offset = 32;
  ASSERT_EQ(bp_op_launch(target, nullptr, 0, BP_OP_ADD, &call.args), BP_OK) << bp_error_text();
  for (int i = 0; i < 6; ++i) EXPECT_EQ(memory[8 + i], memory[1 + i]);
  EXPECT_EQ(statistics().realigned_count, 1);
  EXPECT_EQ(statistics().decomposed_count, 1);
  EXPECT_EQ(statistics(BP_OP_COPY).native_count, 2);
  EXPECT_EQ(statistics(BP_OP_COPY).realigned_count, 0);
  EXPECT_NE(bp::explain(*target, 0, BP_OP_ADD, &call.args)
                .find("/add: a: its byte offset is no multiple of 64, which the heap asks for\n"
                      "  realigned: taken"),
            std::string::npos);
  EXPECT_EQ(bp_kernel_launch(target, nullptr, 0, &add, &call.args), BP_UNSUPPORTED);
}

TEST_F(Launch, GivesTheWorkspaceThatIsPreferred) {
  bp_kernel kernel = make_kernel("add");
  kernel.launch = see;
  kernel.workspace_size = [](const bp_kernel*, bp_device*, bp_launch_flags, const void*,
                             uint64_t* required, uint64_t* preferred) -> bp_status {
    *required = 100;
    *preferred = 5000;
    return BP_OK;
  };
  load({&kernel});
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(bp_op_launch(target, nullptr, 0, BP_OP_ADD, &call.args), BP_OK);
    EXPECT_NE(seen.launch.workspace.buffer, nullptr);
    EXPECT_EQ(seen.launch.workspace.size_bytes, 5000);
    EXPECT_EQ(seen.launch.workspace.byte_offset % 256, 0);
  }
  EXPECT_EQ(fake.devices[0].live_buffers, 1);  // One buffer serves all launches.
}

TEST_F(Launch, AsksForTheWorkspaceOfItsFlags) {
  bp_kernel kernel = make_kernel("add");
  kernel.flags |= BP_KERNEL_DETERMINISTIC;
  kernel.launch = see;
  kernel.workspace_size = [](const bp_kernel*, bp_device*, bp_launch_flags flags, const void*,
                             uint64_t* required, uint64_t* preferred) -> bp_status {
    *required = *preferred = flags == BP_LAUNCH_DETERMINISTIC ? 300 : 100;
    return BP_OK;
  };
  load({&kernel});
  for (const bp_launch_flags flags : {0u, uint32_t{BP_LAUNCH_DETERMINISTIC}}) {
    ASSERT_EQ(bp_op_launch(target, nullptr, flags, BP_OP_ADD, &call.args), BP_OK);
    EXPECT_EQ(seen.launch.workspace.size_bytes, flags == 0 ? 100u : 300u);
  }
}

TEST_F(Launch, TakesTheRequiredWorkspaceWhereMemoryIsShort) {
  bp_kernel kernel = make_kernel("add");
  kernel.launch = see;
  kernel.workspace_size = [](const bp_kernel*, bp_device*, bp_launch_flags, const void*,
                             uint64_t* required, uint64_t* preferred) -> bp_status {
    *required = 100;
    *preferred = 64 << 20;
    return BP_OK;
  };
  static const auto allocate = fake.allocator.allocate;
  fake.allocator.allocate = [](void* self, bp_device* device, const bp_allocate_desc* desc,
                               bp_buffer** out) -> bp_status {
    if (desc->size_bytes > 32 << 20) return fail(BP_OUT_OF_MEMORY, "no room");
    return allocate(self, device, desc, out);
  };
  load({&kernel});
  ASSERT_EQ(bp_op_launch(target, nullptr, 0, BP_OP_ADD, &call.args), BP_OK) << bp_error_text();
  EXPECT_EQ(seen.launch.workspace.size_bytes, 100);
}

// The frames of a newer build, which have one more member.
struct NewerArgs {
  bp_add_args known;
  uint64_t appended;
};

TEST_F(Launch, PadsTheFrameForANewerKernel) {
  bp_kernel kernel = make_kernel("add", BP_OP_ADD, sizeof(NewerArgs));
  kernel.spec_revision = BP_OPS_REVISION + 1;
  kernel.launch = [](const bp_kernel*, const bp_launch*, const void* args) -> bp_status {
    const auto& a = *static_cast<const NewerArgs*>(args);
    seen.args_size = a.known.struct_size;
    return a.appended == 0 ? BP_OK : BP_INTERNAL;
  };
  load({&kernel});
  EXPECT_EQ(bp_op_launch(target, nullptr, 0, BP_OP_ADD, &call.args), BP_OK) << bp_error_text();
  EXPECT_EQ(seen.args_size, sizeof(NewerArgs));
}

TEST_F(Launch, RefusesAnOlderKernelWhatItDoesNotKnow) {
  bp_kernel kernel = make_kernel("add");
  kernel.launch = see;
  load({&kernel});
  NewerArgs newer{call.args, 0};
  newer.known.struct_size = sizeof(NewerArgs);
  EXPECT_EQ(bp_op_launch(target, nullptr, 0, BP_OP_ADD, &newer), BP_OK) << bp_error_text();
  EXPECT_EQ(seen.args_size, sizeof(NewerArgs)) << "a frame with zero behind its end is not copied";
  newer.appended = 7;
  EXPECT_EQ(bp_op_launch(target, nullptr, 0, BP_OP_ADD, &newer), BP_UNSUPPORTED);
  const std::string text = bp_error_text();
  EXPECT_NE(text.find("byte 56 of the frame is not zero, and this host is too old to know it"),
            std::string::npos)
      << text;
}

TEST_F(Launch, WritesOnlyTheStatisticsThatTheCallerKnows) {
  bp_kernel kernel = make_kernel("add");
  load({&kernel});
  bp_dispatch_statistics s{.struct_size = 8};
  EXPECT_EQ(bp_target_statistics(target, 0, &s), BP_INCOMPATIBLE);
  bp_cache_statistics cache{.struct_size = sizeof(cache)};
  EXPECT_EQ(bp_cache_get_statistics(target, &cache), BP_OK);
  EXPECT_EQ(cache.struct_size, sizeof(cache));
  EXPECT_EQ(bp_target_statistics(target, 9999, &s), BP_NOT_FOUND);
}

TEST_F(Launch, RefusesElementsWithoutABuffer) {
  bp_kernel kernel = make_kernel("add");
  kernel.launch = see;
  load({&kernel});
  call.b.buffer = nullptr;
  const char* const text =
      "add: b has elements and no buffer; allowed: NULL for a tensor without elements";
  EXPECT_EQ(bp_op_launch(target, nullptr, 0, BP_OP_ADD, &call.args), BP_INVALID_ARGUMENT);
  EXPECT_STREQ(bp_error_text(), text);
  bp_error_clear();
  EXPECT_EQ(bp_kernel_launch(target, nullptr, 0, &kernel, &call.args), BP_INVALID_ARGUMENT);
  EXPECT_STREQ(bp_error_text(), text);
  EXPECT_EQ(seen.launches, 0);
  bp_kernel_choice choice{};
  EXPECT_EQ(bp_kernel_find(target, 0, 0, BP_OP_ADD, &call.args, &choice), BP_OK);
}

TEST_F(Launch, TakesEmptyTensorsWithoutABuffer) {
  bp_kernel kernel = make_kernel("add");
  kernel.launch = see;
  load({&kernel});
  call.shape[0] = 0;
  for (bp_tensor* tensor : {&call.a, &call.b, &call.y}) tensor->buffer = nullptr;
  EXPECT_EQ(bp_op_launch(target, nullptr, 0, BP_OP_ADD, &call.args), BP_OK) << bp_error_text();
  EXPECT_EQ(seen.launches, 1);
}

TEST_F(Launch, AsksTheAllocatorWhereBuffersEnd) {
  load({});
  EXPECT_EQ(bp_op_check_buffers(target, BP_OP_ADD, &call.args), BP_OK) << bp_error_text();
  call.b.byte_offset = 4;
  EXPECT_EQ(bp_op_check_buffers(target, BP_OP_ADD, &call.args), BP_INVALID_ARGUMENT);
  EXPECT_STREQ(bp_error_text(),
               "add: b takes bytes 4 to 28 of its buffer; allowed: bytes inside it, and it is "
               "smaller, or none of acme.npu:0 (copy: src leaves its buffer)");
  EXPECT_EQ(bp_op_check_buffers(nullptr, BP_OP_ADD, &call.args), BP_INVALID_ARGUMENT);
  fake.buffer_size_bytes = 28;
  EXPECT_EQ(bp_op_check_buffers(target, BP_OP_ADD, &call.args), BP_OK) << bp_error_text();
}

}  // namespace
}  // namespace bp::core
