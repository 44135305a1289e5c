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

// ---- Attributes with bindings -------------------------------------------------------------------

// The program has an extent from 0 to 1, which the first axis of one more input gives.
struct BoundPrograms : DecomposedPrograms {
  BoundPrograms() {
    extent.struct_size = sizeof(extent);
    extent.struct_type = BP_STRUCT_PROGRAM_EXTENT;
    extent.kind = BP_EXTENT_RANGE;
    extent.max = 1;
    bp_program_value value = values[0];
    value.shape = length;
    value.ndim = 1;
    values.push_back(value);
    nodes[0].bindings = &binding;
    nodes[0].binding_count = 1;
    program.extents = &extent;
    program.extent_count = 1;
    program.extent_stride_bytes = sizeof(extent);
  }

  // Decomposes the program, and returns its nodes until the next call.
  std::vector<bp_program_node> decomposed() {
    EXPECT_EQ(bp_decomposed_program_release(made), BP_OK);
    made = nullptr;
    EXPECT_EQ(bp_program_decompose(host, &desc(), &made), BP_OK) << bp_error_text();
    if (made == nullptr || bp_decomposed_program_desc(made, &whole) != BP_OK) return {};
    const auto& its = *static_cast<const bp_program*>(whole->data);
    return {its.nodes, its.nodes + its.node_count};
  }

  std::string reason(uint64_t node) const {
    const char* text = nullptr;
    EXPECT_EQ(bp_decomposed_program_reason(made, node, &text), BP_OK) << bp_error_text();
    return text == nullptr ? "" : text;
  }

  void TearDown() override { EXPECT_EQ(bp_decomposed_program_release(made), BP_OK); }

  const int64_t length[1] = {-1};
  bp_program_extent extent{};
  bp_extent_binding binding{.member_offset = offsetof(Args, axis), .extent = 0, .element = 0};
  bp_decomposed_program* made = nullptr;
  const bp_compile_desc* whole = nullptr;
};

TEST_F(BoundPrograms, HandTheBindingToTheOpsThatTakeTheAttribute) {
  core::TestOp op("acme.bound");
  op.decomposition = "y = mul(softmax(x, axis=axis), weight)";
  nodes[0].op = describe(op);
  args.axis = 77;  // Nobody reads it.
  const std::vector<bp_program_node> its = decomposed();
  ASSERT_EQ(its.size(), 3u);
  EXPECT_EQ(its[0].op, uint32_t{BP_OP_SOFTMAX});
  ASSERT_EQ(its[0].binding_count, 1u);
  EXPECT_EQ(its[0].bindings[0].member_offset, offsetof(bp_softmax_args, axis));
  EXPECT_EQ(its[0].bindings[0].extent, 0u);
  EXPECT_EQ(its[1].binding_count, 0u);
  EXPECT_EQ(reason(0), "");
  EXPECT_EQ(reasons_of(*whole), "");
}

TEST_F(BoundPrograms, HandItThroughDecompositionsThatNest) {
  core::TestOp inner("acme.bound_inner"), outer("acme.bound_outer");
  inner.decomposition = "y = mul(softmax(x, axis=axis), weight)";
  outer.decomposition = "y = acme.bound_inner(x, weight, mode=mode, axis=axis)";
  describe(inner);
  nodes[0].op = describe(outer);
  const std::vector<bp_program_node> its = decomposed();
  ASSERT_EQ(its.size(), 3u);
  EXPECT_EQ(its[0].op, uint32_t{BP_OP_SOFTMAX});
  EXPECT_EQ(its[0].binding_count, 1u);
}

TEST_F(BoundPrograms, GiveAnExtentOfOneNumberThisNumber) {
  core::TestOp op("acme.bound_to_one");
  op.decomposition = "y = mul(softmax(x, axis=axis), weight) if axis == 1 else x";
  nodes[0].op = describe(op);
  extent.min = extent.preferred = 1;
  args.axis = 77;
  const std::vector<bp_program_node> its = decomposed();
  ASSERT_EQ(its.size(), 3u);
  EXPECT_EQ(its[0].binding_count, 0u);
  EXPECT_EQ(static_cast<const bp_softmax_args*>(its[0].args)->axis, 1);
}

TEST_F(BoundPrograms, KeepNodesWhoseFormulasComputeWithTheAttribute) {
  const std::string computes = "the decomposition computes with axis, which is bound to an extent";
  const char* const formulas[] = {
      "y = mul(softmax(x, axis=axis), weight) if axis == 0 else x",
      "y = mul(softmax(x, axis=axis + 0), weight)",
      "y = mul(mul(x, axis), weight)",
  };
  int number = 0;
  for (const char* const formula : formulas) {
    core::TestOp op("acme.bound_refused" + std::to_string(number++));
    op.decomposition = formula;
    nodes[0].op = describe(op);
    const std::vector<bp_program_node> its = decomposed();
    ASSERT_EQ(its.size(), 2u) << formula;
    EXPECT_EQ(its[0].op, nodes[0].op);
    EXPECT_EQ(its[0].binding_count, 1u) << "the node is as it was";
    EXPECT_EQ(reason(0), computes) << formula;
    EXPECT_EQ(reason(1), "") << "the compiler takes the second node";
  }
  core::TestOp op("acme.bound_condition");
  op.decomposition = "y = mul(softmax(x, axis=axis), weight)";
  op.condition = "axis == 0";
  nodes[0].op = describe(op);
  EXPECT_EQ(decomposed().size(), 2u);
  EXPECT_EQ(reason(0), computes);
  const char* text = nullptr;
  EXPECT_EQ(bp_decomposed_program_reason(made, 2, &text), BP_INVALID_ARGUMENT);
  EXPECT_STREQ(bp_error_text(),
               "bp_decomposed_program_reason: node is 2, and the program has 2 nodes");
}

TEST_F(BoundPrograms, KeepNodesWhoseShapesFollowTheAttribute) {
  core::TestOp op("acme.bound_shape");
  op.decomposition = "y = mul(expand(sum(x, axes=[0], keepdims=axis), x.shape), weight)";
  nodes[0].op = describe(op);
  EXPECT_EQ(decomposed().size(), 2u);
  EXPECT_NE(reason(0), "");
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
