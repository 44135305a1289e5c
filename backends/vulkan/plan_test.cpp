#include <algorithm>
#include <vector>

#include "backends/vulkan/vulkan_test.hpp"

namespace bp::vulkan {
namespace {

class VulkanPlan : public WithDevice {};

// Returns the number of compilations, each of which is a line of the log.
int64_t compilations(const Vulkan& v) {
  return std::count(v.b.details.begin(), v.b.details.end(), '\n');
}

bp_plan* prepare(Vulkan& v, uint32_t op, const void* args) {
  const bp_prepare_desc desc{.struct_size = sizeof(desc), .struct_type = BP_STRUCT_PREPARE_DESC};
  const bp_kernel* const kernel = v.b.kernel(op);
  bp_plan* plan = nullptr;
  EXPECT_EQ(kernel->prepare(kernel, v.b.device, &desc, args, &plan), BP_OK) << v.b.text;
  return plan;
}

bp_plan_info info_of(Vulkan& v, uint32_t op, const bp_plan* plan) {
  bp_plan_info info{.struct_size = sizeof(info), .struct_type = BP_STRUCT_PLAN_INFO};
  const bp_kernel* const kernel = v.b.kernel(op);
  EXPECT_EQ(kernel->plan_info(kernel, plan, &info), BP_OK) << v.b.text;
  return info;
}

void launch_planned(Vulkan& v, uint32_t op, const void* args, bp_plan* plan) {
  const bp_kernel* const kernel = v.b.kernel(op);
  const uint64_t size_bytes = info_of(v, op, plan).workspace_required_bytes;
  bp_launch launch{.device = v.b.device, .stream = v.b.default_stream(), .plan = plan};
  if (size_bytes > 0) launch.workspace = {v.b.make_buffer(size_bytes), 0, size_bytes};
  EXPECT_EQ(kernel->launch(kernel, &launch, args), BP_OK) << v.b.text;
  EXPECT_EQ(v.synchronize(launch.stream), BP_OK) << v.b.text;
  v.free(launch.workspace.buffer);
}

void release(Vulkan& v, uint32_t op, bp_plan* plan) {
  const bp_kernel* const kernel = v.b.kernel(op);
  EXPECT_EQ(kernel->plan_release(kernel, plan), BP_OK);
}

// A matrix that can be moved in its buffer, or lose its buffer.
class Matrix {
 public:
  Matrix(Vulkan& v, int64_t rows, int64_t cols) : tensor_(v.b, BP_F32, {rows + 1, cols}) {
    shape_[0] = rows;
    shape_[1] = cols;
  }
  bp_tensor at(uint64_t byte_offset) {
    bp_tensor moved = *&tensor_;
    moved.shape = shape_;
    moved.byte_offset = byte_offset;
    return moved;
  }
  bp_tensor nowhere() {
    bp_tensor moved = at(0);
    moved.buffer = nullptr;
    return moved;
  }

 private:
  TestTensor tensor_;
  int64_t shape_[2];
};

TEST_F(VulkanPlan, CompilesWhereverTheTensorsLieLater) {
  Vulkan v;
  Matrix a(v, 48, 64), b(v, 64, 80), y(v, 48, 80);
  bp_tensor a_at = a.nowhere(), b_at = b.nowhere(), y_at = y.nowhere();
  bp_matmul_args args{};
  args.struct_size = sizeof(args);
  args.a = &a_at;
  args.b = &b_at;
  args.y = &y_at;
  bp_plan* const plan = prepare(v, BP_OP_MATMUL, &args);
  const int64_t compiled = compilations(v);
  EXPECT_GE(compiled, 1);
  EXPECT_EQ(std::string(info_of(v, BP_OP_MATMUL, plan).algorithm).find("matmul"), 0u);
  for (uint64_t place = 0; place < 8; ++place) {
    a_at = a.at((place & 1) != 0 ? 4 : 0);
    b_at = b.at((place & 2) != 0 ? 8 : 0);
    y_at = y.at((place & 4) != 0 ? 12 : 0);
    launch_planned(v, BP_OP_MATMUL, &args, plan);
  }
  EXPECT_EQ(compilations(v), compiled) << "launches compiled: " << v.b.details;
  EXPECT_EQ(v.b.errors, "");
  release(v, BP_OP_MATMUL, plan);
}

TEST_F(VulkanPlan, IsKeptForTheNextOne) {
  Vulkan v;
  Matrix x(v, 5, 7), y(v, 5, 7);
  bp_tensor x_at = x.nowhere(), y_at = y.nowhere();
  bp_softmax_args args{};
  args.struct_size = sizeof(args);
  args.x = &x_at;
  args.y = &y_at;
  args.axis = 1;
  release(v, BP_OP_SOFTMAX, prepare(v, BP_OP_SOFTMAX, &args));
  const int64_t compiled = compilations(v);
  EXPECT_GE(compiled, 1);
  release(v, BP_OP_SOFTMAX, prepare(v, BP_OP_SOFTMAX, &args));
  EXPECT_EQ(compilations(v), compiled);
}

TEST_F(VulkanPlan, OfAnotherKernelIsRefused) {
  Vulkan v;
  Matrix x(v, 5, 7), y(v, 5, 7);
  bp_tensor x_at = x.at(0), y_at = y.at(0);
  bp_exp_args args{};
  args.struct_size = sizeof(args);
  args.x = &x_at;
  args.y = &y_at;
  bp_plan* const plan = prepare(v, BP_OP_EXP, &args);
  const bp_kernel* const log = v.b.kernel(BP_OP_LOG);
  const bp_launch launch{.device = v.b.device, .stream = v.b.default_stream(), .plan = plan};
  EXPECT_EQ(log->launch(log, &launch, &args), BP_INVALID_ARGUMENT);
  EXPECT_NE(v.b.text.find("not one of this kernel"), std::string::npos) << v.b.text;
  release(v, BP_OP_EXP, plan);
}

}  // namespace
}  // namespace bp::vulkan
