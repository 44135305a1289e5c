// Tests ops that only the compiler of a device runs: which programs the compiler gets, how often,
// and when they are released.
#include "registry/calls/compiled_ops.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <mutex>
#include <thread>

#include "registry/boundary/fail.hpp"
#include "registry/tests/fake_backend.hpp"
#include "registry/tests/runtime_op_desc.hpp"

namespace bp::core {
namespace {

// A compiler that takes every program. Its executables record their launches.
class FakeCompiler {
 public:
  struct Executable {
    FakeCompiler* owner;
    bp_kernel kernel{};
    bp_launch_flags flags = 0;
    std::vector<bp_value_role> roles;
    std::vector<uint32_t> node_values;
    std::vector<const bp_layout_desc*> layouts;  // Those of the values.
    bool has_buffers = false;  // If true, a tensor in the frame of the node has a buffer.
    uint32_t op = 0;
  };
  struct Launch {
    const Executable* executable;
    std::vector<bp_tensor> tensors;
    uint64_t workspace_bytes;
  };

  bp_compiler_ops ops{.struct_size = sizeof(ops), .struct_type = BP_STRUCT_COMPILER_OPS};
  bp_reason reason = nullptr;  // The reason that query() gives.
  uint32_t refused_op = 0;     // An op for which query() gives a reason of its own.
  bp_status compile_status = BP_OK;
  uint64_t workspace_bytes = 0, strict_workspace_bytes = 0;
  std::atomic<int> queries = 0, compiles = 0, releases = 0;
  std::deque<Executable> executables;
  std::vector<Launch> launches;
  FakeBackend* backend = nullptr;

  FakeCompiler() {
    ops.self = this;
    ops.query = [](void* self, bp_device*, const bp_compile_desc* desc, uint64_t capacity,
                   uint32_t* out_partitions, bp_reason* out, uint64_t* out_count) -> bp_status {
      ++from(self).queries;
      EXPECT_EQ(capacity, 1u);
      *out = from(self).reason;
      const uint32_t op = static_cast<const bp_program*>(desc->data)->nodes->op;
      if (op == from(self).refused_op) *out = "no kernel takes the op";
      *out_count = *out == nullptr ? 1 : 0;
      *out_partitions = *out == nullptr ? 0 : BP_NO_PARTITION;
      return BP_OK;
    };
    ops.compile = [](void* self, bp_device*, const bp_compile_desc* desc,
                     bp_executable** out) -> bp_status { return from(self).compile(*desc, out); };
    ops.executable_kernel = [](void*, bp_executable* executable,
                               const bp_kernel** out) -> bp_status {
      *out = &reinterpret_cast<Executable*>(executable)->kernel;
      return BP_OK;
    };
    ops.release = [](void* self, bp_executable*) -> bp_status {
      ++from(self).releases;
      return BP_OK;
    };
  }

 private:
  static FakeCompiler& from(void* self) { return *static_cast<FakeCompiler*>(self); }

  bp_status compile(const bp_compile_desc& desc, bp_executable** out) {
    ++compiles;
    if (compile_status != BP_OK) {
      return backend->host->set_error(backend->host->self, compile_status, "the driver is busy");
    }
    const auto& program = *static_cast<const bp_program*>(desc.data);
    const std::lock_guard lock(mutex_);
    Executable& made = executables.emplace_back(Executable{this});
    made.flags = desc.flags;
    made.op = program.nodes->op;
    for (uint64_t i = 0; i < program.value_count; ++i) {
      made.roles.push_back(program.values[i].role);
      made.layouts.push_back(program.values[i].layout);
    }
    made.node_values.assign(program.nodes->values,
                            program.nodes->values + program.nodes->value_count);
    if (made.op == BP_OP_ADD) {
      const auto& args = *static_cast<const bp_add_args*>(program.nodes->args);
      made.has_buffers = args.a->buffer != nullptr || args.y->buffer != nullptr;
    }
    add_kernel(made);
    *out = reinterpret_cast<bp_executable*>(&made);
    return BP_OK;
  }

  static void add_kernel(Executable& made) {
    made.kernel = make_kernel("executable", 0, sizeof(bp_program_args));
    made.kernel.state = &made;
    made.kernel.launch = [](const bp_kernel* self, const bp_launch* launch,
                            const void* args) -> bp_status {
      const auto& executable = *static_cast<const Executable*>(self->state);
      const auto& frame = *static_cast<const bp_program_args*>(args);
      const std::lock_guard hold(executable.owner->mutex_);
      executable.owner->launches.push_back({&executable,
                                            {frame.tensors, frame.tensors + frame.tensor_count},
                                            launch->workspace.size_bytes});
      return BP_OK;
    };
    made.kernel.workspace_size = [](const bp_kernel* self, bp_device*, bp_launch_flags, const void*,
                                    uint64_t* required, uint64_t* preferred) -> bp_status {
      const auto& executable = *static_cast<const Executable*>(self->state);
      const bool is_strict = (executable.flags & BP_LAUNCH_STRICT_F32) != 0;
      *required = *preferred =
          is_strict ? executable.owner->strict_workspace_bytes : executable.owner->workspace_bytes;
      return BP_OK;
    };
  }

  std::mutex mutex_;
};

class CompiledOpsTest : public ::testing::Test {
 protected:
  explicit CompiledOpsTest(bp_registry_flags flags = BP_REGISTRY_COMPILE_OPS) : r_(flags) {
    compiler_.backend = &fake_;
    fake_.compiler = &compiler_.ops;
    EXPECT_EQ(fake_.load(r_.registry, &plugin_), BP_OK) << bp_error_text();
    target_ = r_.target();
  }

  bp_status launch(const AddCall& call, bp_launch_flags flags = 0) const {
    return bp_op_launch(target_, nullptr, flags, BP_OP_ADD, &call.args);
  }
  void expect_launched(const AddCall& call, int compiles, const char* what,
                       bp_launch_flags flags = 0) {
    EXPECT_EQ(launch(call, flags), BP_OK) << bp_error_text();
    EXPECT_EQ(compiler_.compiles, compiles) << what;
  }

  FakeCompiler compiler_;
  FakeBackend fake_;  // It outlives the registry.
  TestRegistry r_;
  const bp_plugin* plugin_ = nullptr;
  const bp_target* target_ = nullptr;
  AddCall call_;
};

TEST_F(CompiledOpsTest, RunACallAsAProgramOfOneNode) {
  expect_launched(call_, 1, "the first");
  const FakeCompiler::Executable& program = compiler_.executables.front();
  EXPECT_EQ(program.op, uint32_t{BP_OP_ADD});
  EXPECT_EQ(program.roles,
            (std::vector<bp_value_role>{BP_VALUE_INPUT, BP_VALUE_INPUT, BP_VALUE_OUTPUT}));
  EXPECT_EQ(program.node_values, (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_FALSE(program.has_buffers) << "a program has no memory";
  ASSERT_EQ(compiler_.launches.size(), 1u);
  const std::vector<bp_tensor>& tensors = compiler_.launches[0].tensors;
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(tensors[0].buffer, call_.a.buffer);
  EXPECT_EQ(tensors[1].buffer, call_.b.buffer);
  EXPECT_EQ(tensors[2].buffer, call_.y.buffer);
}

TEST_F(CompiledOpsTest, AreCounted) {
  expect_launched(call_, 1, "the first");
  expect_launched(call_, 1, "the second");
  bp_dispatch_statistics seen{.struct_size = sizeof(seen)};
  EXPECT_EQ(bp_target_statistics(target_, BP_OP_ADD, &seen), BP_OK);
  EXPECT_EQ(seen.compiled_count, 2u);
  EXPECT_EQ(seen.native_count, 2u);
}

// A registry that does not compile what it is not asked to compile.
class UnaskedTest : public CompiledOpsTest {
 protected:
  UnaskedTest() : CompiledOpsTest(0) {}
};

TEST_F(UnaskedTest, LaunchesAreRefusedInWords) {
  EXPECT_EQ(launch(call_), BP_UNSUPPORTED);
  EXPECT_NE(std::string(bp_error_text()).find("BP_REGISTRY_COMPILE_OPS"), std::string::npos)
      << bp_error_text();
  bp_kernel_choice choice{};
  EXPECT_EQ(bp_kernel_find(target_, 0, 0, BP_OP_ADD, &call_.args, &choice), BP_UNSUPPORTED);
  EXPECT_EQ(compiler_.compiles, 0);
}

TEST_F(UnaskedTest, PreparedCallsAreCompiledWhenTheyArePrepared) {
  bp_prepared* prepared = nullptr;
  ASSERT_EQ(bp_op_prepare(target_, nullptr, 0, BP_OP_ADD, &call_.args, nullptr, 0, &prepared),
            BP_OK)
      << bp_error_text();
  EXPECT_EQ(compiler_.compiles, 1);
  EXPECT_EQ(bp_prepared_launch(prepared, nullptr, &call_.args), BP_OK) << bp_error_text();
  EXPECT_EQ(compiler_.launches.size(), 1u);
  EXPECT_EQ(compiler_.compiles, 1);
  EXPECT_EQ(bp_prepared_release(prepared), BP_OK);
  EXPECT_EQ(launch(call_), BP_UNSUPPORTED) << "only the prepared call is served";
}

TEST_F(CompiledOpsTest, AreCompiledOnceForEachKindOfFrame) {
  expect_launched(call_, 1, "the first");
  AddCall other;
  expect_launched(other, 1, "other memory");
  other.y.byte_offset = 4;
  expect_launched(other, 1, "another offset");
  expect_launched(call_, 1, "a hint", BP_LAUNCH_DEVICE_CURRENT);
  expect_launched(call_, 1, "what every program is", BP_LAUNCH_DETERMINISTIC);
  expect_launched(call_, 2, "stricter arithmetic", BP_LAUNCH_STRICT_F32);
  other.shape[0] = 1;
  expect_launched(other, 3, "another shape");
  other.strides[0] = 7;
  expect_launched(other, 4, "another stride");
  other.a.dtype = other.b.dtype = other.y.dtype = BP_I32;
  expect_launched(other, 5, "another dtype");
  expect_launched(call_, 5, "the first, once more");
}

TEST_F(CompiledOpsTest, HaveOneValueForTensorsThatAreOne) {
  AddCall in_place;
  in_place.y = in_place.a;
  expect_launched(in_place, 1, "in place");
  const FakeCompiler::Executable& first = compiler_.executables.front();
  EXPECT_EQ(first.roles, (std::vector<bp_value_role>{BP_VALUE_OUTPUT, BP_VALUE_INPUT}));
  EXPECT_EQ(first.node_values, (std::vector<uint32_t>{0, 1, 0}));
  ASSERT_EQ(compiler_.launches[0].tensors.size(), 2u);
  EXPECT_EQ(compiler_.launches[0].tensors[0].buffer, in_place.b.buffer) << "inputs come first";
  EXPECT_EQ(compiler_.launches[0].tensors[1].buffer, in_place.y.buffer);

  AddCall doubled;
  doubled.b = doubled.a;
  expect_launched(doubled, 2, "a + a is another program than a + b in place");
  EXPECT_EQ(compiler_.executables.back().node_values, (std::vector<uint32_t>{0, 0, 1}));
  expect_launched(call_, 3, "and than a + b");
  AddCall beside;
  beside.y = beside.a;
  beside.y.byte_offset = 24;
  expect_launched(beside, 3, "tensors side by side in one buffer are two, as those of a + b");
  EXPECT_EQ(compiler_.launches.back().tensors.size(), 3u);
}

TEST_F(CompiledOpsTest, HaveNoValueForATensorThatIsAbsent) {
  AddCall t;
  bp_layer_norm_args args{.struct_size = sizeof(args)};
  args.x = &t.a;
  args.y = &t.y;
  args.normalized_ndim = 1;
  ASSERT_EQ(bp_op_launch(target_, nullptr, 0, BP_OP_LAYER_NORM, &args), BP_OK) << bp_error_text();
  const FakeCompiler::Executable& program = compiler_.executables.back();
  EXPECT_EQ(program.roles, (std::vector<bp_value_role>{BP_VALUE_INPUT, BP_VALUE_OUTPUT}));
  EXPECT_EQ(std::ranges::count(program.node_values, BP_NO_VALUE),
            static_cast<std::ptrdiff_t>(program.node_values.size()) - 2);
  args.eps = 0.5;
  ASSERT_EQ(bp_op_launch(target_, nullptr, 0, BP_OP_LAYER_NORM, &args), BP_OK);
  EXPECT_EQ(compiler_.compiles, 2) << "an attribute is part of the program";
}

TEST_F(CompiledOpsTest, ServeEveryInlineScalarWithOneProgram) {
  AddCall scalar;
  scalar.args.b = nullptr;
  for (const double value : {1.5, -2.0}) {
    scalar.args.b_scalar.dtype = BP_F64;
    std::memcpy(&scalar.args.b_scalar.bits, &value, sizeof(value));
    expect_launched(scalar, 1, "the value is no part of the program");
  }
  ASSERT_EQ(compiler_.launches.size(), 2u);
  EXPECT_EQ(compiler_.launches[1].tensors[1].strides[0], 0);
}

TEST_F(CompiledOpsTest, TakeAnInlineOperandInAcc) {
  AddCall scalar;
  scalar.a.dtype = scalar.y.dtype = BP_BF16;
  scalar.args.b = nullptr;
  scalar.args.b_scalar = {BP_I64, 0, 257};  // bf16 does not hold it.
  ASSERT_EQ(launch(scalar), BP_OK) << bp_error_text();
  const std::vector<bp_tensor>& tensors = compiler_.launches.back().tensors;
  EXPECT_EQ(tensors[0].dtype, bp_dtype{BP_BF16});
  EXPECT_EQ(tensors[1].dtype, bp_dtype{BP_F32});
}

TEST_F(CompiledOpsTest, RememberWhatTheCompilerRefuses) {
  compiler_.reason = "no room for a third value";
  for (int i = 0; i < 3; ++i) EXPECT_EQ(launch(call_), BP_UNSUPPORTED);
  EXPECT_NE(std::string(bp_error_text()).find("no room for a third value"), std::string::npos)
      << bp_error_text();
  EXPECT_EQ(compiler_.queries, 1);
  EXPECT_EQ(compiler_.compiles, 0);
}

TEST_F(CompiledOpsTest, AreCompiledAgainAfterAFailureThatMayPass) {
  compiler_.compile_status = BP_OUT_OF_MEMORY;
  EXPECT_NE(launch(call_), BP_OK);
  compiler_.compile_status = BP_OK;
  EXPECT_EQ(launch(call_), BP_OK) << bp_error_text();
  compiler_.compile_status = BP_UNSUPPORTED;
  AddCall other;
  other.shape[0] = 1;
  EXPECT_EQ(launch(other), BP_UNSUPPORTED);
  const int before = compiler_.compiles;
  EXPECT_EQ(launch(other), BP_UNSUPPORTED);
  EXPECT_EQ(compiler_.compiles, before) << "it will not support it a moment later";
}

TEST_F(CompiledOpsTest, HaveTheWorkspaceOfTheProgramThatRuns) {
  compiler_.workspace_bytes = 512, compiler_.strict_workspace_bytes = 4096;
  ASSERT_EQ(launch(call_), BP_OK) << bp_error_text();
  ASSERT_EQ(launch(call_, BP_LAUNCH_STRICT_F32), BP_OK) << bp_error_text();
  AddCall strict_first;
  strict_first.shape[0] = 1;
  ASSERT_EQ(launch(strict_first, BP_LAUNCH_STRICT_F32), BP_OK) << bp_error_text();
  ASSERT_EQ(compiler_.launches.size(), 3u);
  EXPECT_EQ(compiler_.launches[0].workspace_bytes, 512u);
  EXPECT_EQ(compiler_.launches[1].workspace_bytes, 4096u);
  EXPECT_EQ(compiler_.launches[2].workspace_bytes, 4096u);
}

// A call that was prepared is launched again without supports(), also when its program is
// forgotten.
TEST_F(CompiledOpsTest, HaveTheWorkspaceOfAProgramThatWasForgotten) {
  compiler_.workspace_bytes = 512, compiler_.strict_workspace_bytes = 4096;
  bp_prepared* prepared = nullptr;
  ASSERT_EQ(bp_op_prepare(target_, nullptr, BP_LAUNCH_STRICT_F32, BP_OP_ADD, &call_.args, nullptr,
                          0, &prepared),
            BP_OK);
  AddCall other;
  for (size_t i = 0; i <= CompiledOps::kMaxPrograms; ++i) {
    other.strides[0] = static_cast<int64_t>(i) + 3;
    ASSERT_EQ(launch(other), BP_OK);
  }
  ASSERT_EQ(bp_prepared_launch(prepared, nullptr, &call_.args), BP_OK) << bp_error_text();
  EXPECT_EQ(compiler_.launches.back().workspace_bytes, 4096u);
  EXPECT_EQ(bp_prepared_release(prepared), BP_OK);
}

TEST_F(CompiledOpsTest, TakeNoLayoutsWithoutADescription) {
  AddCall laid_out;
  bp_layout layout{};
  laid_out.a.layout = &layout;
  EXPECT_EQ(launch(laid_out), BP_UNSUPPORTED);
  bp_kernel_choice choice{};
  ASSERT_EQ(bp_kernel_find(target_, 0, 0, BP_OP_ADD, &call_.args, &choice), BP_OK);
  compiler_.queries = 0;
  EXPECT_STREQ(choice.kernel->supports(choice.kernel, target_->device, 0, &laid_out.args),
               "a tensor has a layout without a description, and programs describe layouts");
  EXPECT_EQ(compiler_.queries, 0);
}

TEST_F(CompiledOpsTest, DescribeTheLayoutsOfTheirTensors) {
  AddCall laid_out;
  int64_t block[] = {1, 3};
  bp_layout_desc desc{.struct_size = sizeof(desc),
                      .struct_type = BP_STRUCT_LAYOUT_DESC,
                      .shape = laid_out.shape,
                      .block_shape = block,
                      .ndim = 2,
                      .kind = BP_LAYOUT_KIND_TILED,
                      .dtype = BP_F32};
  bp_layout layout{.kind = BP_LAYOUT_KIND_TILED, .dtype = BP_F32, .desc = &desc};
  laid_out.a.layout = &layout;
  expect_launched(laid_out, 1, "the first");
  EXPECT_EQ(compiler_.executables.back().layouts,
            (std::vector<const bp_layout_desc*>{&desc, nullptr, nullptr}));
  EXPECT_EQ(compiler_.launches.back().tensors[0].layout, &layout);
  expect_launched(laid_out, 1, "the same again");
  block[1] = 1;
  expect_launched(laid_out, 2, "another layout at the address of the first");
}

// The frame of TestOp in revision 2.
struct VendorArgs {
  uint32_t struct_size = 40, flags = 0;
  const bp_tensor* x = nullptr;
  const bp_tensor* weight = nullptr;
  const bp_tensor* y = nullptr;
  uint32_t mode = 1;
  int32_t axis = 0;
  const bp_tensor* bias = nullptr;
};

uint32_t describe(bp_registry* registry, TestOp& op) {
  const bp_op_desc desc = op.desc();
  uint32_t number = 0;
  EXPECT_EQ(bp_registry_add_ops(registry, 1, &desc, sizeof(desc), &number, nullptr), BP_OK);
  return number;
}

TEST_F(CompiledOpsTest, RunOpsThatWereDescribedAtRunTime) {
  TestOp op("acme.compiled");
  const uint32_t number = describe(r_.registry, op);
  VendorArgs args{.x = &call_.a, .weight = &call_.b, .y = &call_.y};
  const auto launched = [&] { return bp_op_launch(target_, nullptr, 0, number, &args); };
  ASSERT_EQ(launched(), BP_OK) << bp_error_text();
  ASSERT_EQ(launched(), BP_OK) << bp_error_text();
  ASSERT_EQ(compiler_.compiles, 1);
  EXPECT_EQ(compiler_.executables[0].op, number);
  EXPECT_EQ(compiler_.executables[0].node_values, (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_EQ(compiler_.launches.back().tensors[2].buffer, call_.y.buffer);
  bp_dispatch_statistics seen{.struct_size = sizeof(seen)};
  ASSERT_EQ(bp_target_statistics(target_, number, &seen), BP_OK);
  EXPECT_EQ(seen.compiled_count, 2u);
  EXPECT_EQ(seen.native_count, 2u);
  EXPECT_EQ(bp_target_reason_count(target_), 1u) << "compiled calls have a reason";
  args.axis = 1;
  ASSERT_EQ(launched(), BP_OK) << bp_error_text();
  EXPECT_EQ(compiler_.compiles, 2) << "another attribute";
  op.append_bias();
  EXPECT_EQ(describe(r_.registry, op), number);
  args.struct_size = sizeof(args);
  args.bias = &call_.a;
  ASSERT_EQ(launched(), BP_OK) << bp_error_text();
  EXPECT_EQ(compiler_.executables.back().node_values, (std::vector<uint32_t>{0, 1, 2, 0}));
}

TEST_F(CompiledOpsTest, LeaveOpsOfRunTimeThatTheCompilerRefusesToTheirDecompositions) {
  TestOp op("acme.refused");
  op.decomposition = "y = add(x, weight)";
  const uint32_t number = describe(r_.registry, op);
  const VendorArgs args{.x = &call_.a, .weight = &call_.b, .y = &call_.y};
  compiler_.refused_op = number;
  ASSERT_EQ(bp_op_launch(target_, nullptr, 0, number, &args), BP_OK) << bp_error_text();
  ASSERT_EQ(compiler_.executables.size(), 1u);
  EXPECT_EQ(compiler_.executables[0].op, uint32_t{BP_OP_ADD});
}

TEST_F(UnaskedTest, PreparedOpsOfRunTimeAreCompiledWhenTheyArePrepared) {
  TestOp op("acme.prepared");
  const uint32_t number = describe(r_.registry, op);
  const VendorArgs args{.x = &call_.a, .weight = &call_.b, .y = &call_.y};
  EXPECT_EQ(bp_op_launch(target_, nullptr, 0, number, &args), BP_UNSUPPORTED);
  EXPECT_EQ(compiler_.compiles, 0);
  bp_prepared* prepared = nullptr;
  ASSERT_EQ(bp_op_prepare(target_, nullptr, 0, number, &args, nullptr, 0, &prepared), BP_OK)
      << bp_error_text();
  EXPECT_EQ(compiler_.compiles, 1);
  EXPECT_EQ(bp_prepared_launch(prepared, nullptr, &args), BP_OK) << bp_error_text();
  EXPECT_EQ(bp_prepared_release(prepared), BP_OK);
}

TEST_F(CompiledOpsTest, ReleaseEachExecutableOnceAtTheUnload) {
  for (int64_t extent = 1; extent <= 5; ++extent) {
    AddCall call;
    call.shape[0] = extent;
    EXPECT_EQ(launch(call), BP_OK);
  }
  EXPECT_EQ(compiler_.releases, 0);
  ASSERT_EQ(bp_registry_unload(r_.registry, plugin_, UINT64_MAX), BP_OK) << bp_error_text();
  EXPECT_EQ(compiler_.releases, 5);
}

TEST_F(CompiledOpsTest, ForgetEverythingBehindTheMostThatAreKept) {
  AddCall call;
  for (size_t i = 0; i < CompiledOps::kMaxPrograms; ++i) {
    call.strides[0] = static_cast<int64_t>(i) + 3;
    ASSERT_EQ(launch(call), BP_OK);
  }
  EXPECT_EQ(compiler_.releases, 0);
  call.strides[0] = 100'000;
  ASSERT_EQ(launch(call), BP_OK);
  EXPECT_EQ(compiler_.releases, static_cast<int>(CompiledOps::kMaxPrograms));
  const int before = compiler_.compiles;
  ASSERT_EQ(launch(call), BP_OK);
  EXPECT_EQ(compiler_.compiles, before);
}

TEST_F(CompiledOpsTest, ServeManyThreadsAndReleaseWhatWasCompiledTwice) {
  std::atomic<int> failures = 0;
  {
    std::vector<std::jthread> threads;
    threads.reserve(4);
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&] {
        for (int64_t extent = 1; extent <= 20; ++extent) {
          AddCall call;
          call.shape[0] = extent;
          if (launch(call) != BP_OK) ++failures;
        }
      });
    }
  }
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(compiler_.launches.size(), 80u);
  EXPECT_GE(compiler_.compiles, 20);
  ASSERT_EQ(bp_registry_unload(r_.registry, plugin_, UINT64_MAX), BP_OK) << bp_error_text();
  EXPECT_EQ(compiler_.releases, compiler_.compiles);
}

}  // namespace
}  // namespace bp::core
