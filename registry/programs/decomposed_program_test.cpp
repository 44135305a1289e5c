// Tests programs in which decompositions stand for nodes, on a device with a compiler.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backplane/ops.h"
#include "backplane/program.h"
#include "registry/tests/runtime_op_desc.hpp"
#include "registry/tests/service_tensors.hpp"

namespace bp {
namespace {

// The frame of TestOp.
struct Args {
  uint32_t struct_size = sizeof(Args), flags = 0;
  const bp_tensor* x = nullptr;
  const bp_tensor* weight = nullptr;
  const bp_tensor* y = nullptr;
  uint32_t mode = 1;
  int32_t axis = 0;
};

struct DecomposedPrograms : testing::Test {
  DecomposedPrograms() {
    for (bp_tensor* const each : {&x_view, &weight_view, &t_view, &y_view}) {
      each->shape = shape;
      each->strides = strides;
      each->ndim = 2;
      each->dtype = BP_F32;
    }
    for (const bp_value_role role :
         {BP_VALUE_INPUT, BP_VALUE_INPUT, BP_VALUE_TEMPORARY, BP_VALUE_OUTPUT}) {
      bp_program_value value{};
      value.struct_size = sizeof(value);
      value.struct_type = BP_STRUCT_PROGRAM_VALUE;
      value.shape = shape;
      value.dtype = BP_F32;
      value.ndim = 2;
      value.role = role;
      values.push_back(value);
    }
    add_node(0, &args, own_names);
    add_node(BP_OP_NEG, &neg, neg_names);
  }

  void add_node(uint32_t op, const void* frame, const std::vector<uint32_t>& names) {
    bp_program_node node{};
    node.struct_size = sizeof(node);
    node.struct_type = BP_STRUCT_PROGRAM_NODE;
    node.args = frame;
    node.values = names.data();
    node.value_count = names.size();
    node.op = op;
    nodes.push_back(node);
  }

  uint32_t describe(core::TestOp& op) {
    const bp_op_desc its = op.desc();
    uint32_t number = 0;
    bp_add_result result{};
    EXPECT_EQ(bp_registry_add_ops(registry.get(), 1, &its, sizeof(its), &number, &result), BP_OK);
    EXPECT_NE(number, 0u) << result.reason;
    return number;
  }

  const bp_compile_desc& desc() {
    program.struct_size = sizeof(program);
    program.struct_type = BP_STRUCT_PROGRAM;
    program.values = values.data();
    program.value_count = values.size();
    program.value_stride_bytes = sizeof(bp_program_value);
    program.nodes = nodes.data();
    program.node_count = nodes.size();
    program.node_stride_bytes = sizeof(bp_program_node);
    request.struct_size = sizeof(request);
    request.struct_type = BP_STRUCT_COMPILE_DESC;
    request.format = "backplane.graph";
    request.data = &program;
    request.size_bytes = sizeof(program);
    return request;
  }

  // Returns the reasons of query(), joined.
  std::string reasons_of(const bp_compile_desc& its) const {
    const auto count = static_cast<const bp_program*>(its.data)->node_count;
    std::vector<uint32_t> partitions(count);
    std::vector<bp_reason> reasons(count);
    uint64_t partition_count = 0;
    const bp_compiler_ops& compiler = *host->compiler;
    EXPECT_EQ(compiler.query(compiler.self, host->device, &its, count, partitions.data(),
                             reasons.data(), &partition_count),
              BP_OK)
        << bp_error_text();
    std::string text;
    for (const bp_reason reason : reasons) text += reason == nullptr ? "" : reason;
    return text;
  }

  // Compiles and launches the program on x, weight and y.
  void run(const bp_compile_desc& its) {
    const bp_compiler_ops& compiler = *host->compiler;
    bp_executable* executable = nullptr;
    ASSERT_EQ(compiler.compile(compiler.self, host->device, &its, &executable), BP_OK)
        << bp_error_text();
    const bp_kernel* kernel = nullptr;
    ASSERT_EQ(compiler.executable_kernel(compiler.self, executable, &kernel), BP_OK);
    const bp_tensor tensors[] = {*x.get(), *weight.get(), *y.get()};
    bp_program_args frame{};
    frame.struct_size = sizeof(frame);
    frame.tensors = tensors;
    frame.tensor_count = 3;
    uint64_t required = 0, preferred = 0;
    ASSERT_EQ(kernel->workspace_size(kernel, host->device, 0, &frame, &required, &preferred),
              BP_OK);
    bp_block* workspace = nullptr;
    ASSERT_EQ(bp_block_allocate(host, nullptr, required, &workspace), BP_OK);
    bp_launch launch{};
    launch.device = host->device;
    launch.stream = host->default_stream;
    launch.workspace = workspace->ref;
    EXPECT_EQ(kernel->launch(kernel, &launch, &frame), BP_OK) << bp_error_text();
    EXPECT_EQ(bp_block_free(workspace), BP_OK);
    EXPECT_EQ(compiler.release(compiler.self, executable), BP_OK);
  }

  Registry registry;
  const bp_target* host = load(registry, BACKPLANE_TEST_PLUGIN);
  Tensor<float> x{*host, {2, 2}}, weight{*host, {2, 2}}, y{*host, {2, 2}};
  const int64_t shape[2] = {2, 2}, strides[2] = {2, 1};
  bp_tensor x_view{}, weight_view{}, t_view{}, y_view{};
  Args args{.x = &x_view, .weight = &weight_view, .y = &t_view};
  bp_neg_args neg{.struct_size = sizeof(bp_neg_args), .flags = 0, .x = &t_view, .y = &y_view};
  const std::vector<uint32_t> own_names = {0, 1, 2}, neg_names = {2, 3};
  std::vector<bp_program_value> values;
  std::vector<bp_program_node> nodes;
  bp_program program{};
  bp_compile_desc request{};
};

TEST_F(DecomposedPrograms, ComputeWhatTheDecompositionsCompute) {
  core::TestOp inner("acme.program_inner"), outer("acme.program_outer");
  inner.decomposition = "y = mul(x, weight)";
  outer.decomposition =
      "p = acme.program_inner(x, weight, mode=mode, axis=axis)\n"
      "rows = reshape(transpose(p), [x.shape[0] * x.shape[1]])\n"
      "y = add(reshape(rows, x.shape), 1) if mode == exact else p";
  describe(inner);
  nodes[0].op = describe(outer);
  x.set({1, 2, 3, 4});
  weight.set({10, 20, 30, 40});
  EXPECT_NE(reasons_of(desc()), "") << "no kernel of the device takes the op";
  bp_decomposed_program* made = nullptr;
  ASSERT_EQ(bp_program_decompose(host, &desc(), &made), BP_OK) << bp_error_text();
  const bp_compile_desc* whole = nullptr;
  ASSERT_EQ(bp_decomposed_program_desc(made, &whole), BP_OK);
  EXPECT_EQ(reasons_of(*whole), "");
  run(*whole);
  // p is (10, 40; 90, 160), and its transpose (10, 90; 40, 160).
  EXPECT_EQ(y.elements(), (std::vector<float>{-11, -91, -41, -161}));
  EXPECT_EQ(bp_decomposed_program_release(made), BP_OK);
}

TEST_F(DecomposedPrograms, KeepNodesThatNothingServes) {
  core::TestOp bare("acme.program_bare"), bent("acme.program_conditional");
  bent.decomposition = "y = mul(x, weight)";
  bent.condition = "mode == fast";
  for (core::TestOp* const op : {&bare, &bent}) {
    nodes[0].op = describe(*op);
    bp_decomposed_program* made = nullptr;
    ASSERT_EQ(bp_program_decompose(host, &desc(), &made), BP_OK) << bp_error_text();
    const bp_compile_desc* whole = nullptr;
    ASSERT_EQ(bp_decomposed_program_desc(made, &whole), BP_OK);
    const auto& its = *static_cast<const bp_program*>(whole->data);
    EXPECT_EQ(its.node_count, 2u);
    EXPECT_EQ(its.value_count, 4u);
    EXPECT_EQ(its.nodes[0].op, nodes[0].op);
    EXPECT_EQ(bp_decomposed_program_release(made), BP_OK);
  }
}

TEST_F(DecomposedPrograms, RefuseWhatIsNoProgram) {
  bp_decomposed_program* made = nullptr;
  nodes[0].op = UINT32_MAX;
  EXPECT_EQ(bp_program_decompose(host, &desc(), &made), BP_NOT_FOUND);
  nodes[0].op = BP_OP_ADD;
  bp_compile_desc bent = desc();
  bent.format = "onnx";
  EXPECT_EQ(bp_program_decompose(host, &bent, &made), BP_UNSUPPORTED);
  EXPECT_NE(std::string(bp_error_text()).find("format is onnx"), std::string::npos);
  bent = desc();
  bent.struct_size = 8;
  EXPECT_EQ(bp_program_decompose(host, &bent, &made), BP_INCOMPATIBLE);
  bent = desc();
  bent.data = nullptr;
  EXPECT_EQ(bp_program_decompose(host, &bent, &made), BP_INVALID_ARGUMENT);
  nodes[1].struct_size = 8;
  EXPECT_EQ(bp_program_decompose(host, &desc(), &made), BP_INCOMPATIBLE);
  EXPECT_EQ(made, nullptr);
}

}  // namespace
}  // namespace bp
