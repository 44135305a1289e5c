// Tests the decompositions of ops that clamp indices. The kernels of the host clamp too, and both
// must give equal bits.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backplane/ops.h"
#include "registry/tests/service_tensors.hpp"

namespace bp {

template <>
inline constexpr bp_dtype kDtypeOf<int32_t> = BP_I32;

namespace {

constexpr int64_t kFar = int64_t{1} << 40;

class DecomposedBounds : public testing::Test {
 protected:
  template <typename Args>
  bp_status find(bp_kernel_sources source, uint32_t op, const Args& args,
                 bp_kernel_choice& choice) {
    EXPECT_EQ(bp_op_check(op, &args), BP_OK) << bp_error_text();
    return bp_kernel_find(host, 0, source, op, &args, &choice);
  }

  // Runs `op` with its decomposition and with the kernel, for `clamp` and for `undefined`. The
  // decomposition does not serve `fail`.
  template <typename Args>
  void compare(uint32_t op, Args args, const bp_tensor* Args::*output, std::vector<int64_t> shape) {
    args.struct_size = sizeof(Args);
    for (const uint32_t bounds : {1u, 2u}) {
      std::vector<float> results[2];
      for (const bp_kernel_sources source : {BP_KERNEL_NATIVE, BP_KERNEL_DECOMPOSED}) {
        Tensor<float> y(*host, shape);
        args.*output = y.get();
        args.bounds = bounds;
        bp_kernel_choice choice{};
        ASSERT_EQ(find(source, op, args, choice), BP_OK) << bp_error_text();
        if (source == BP_KERNEL_DECOMPOSED) {
          EXPECT_STREQ(choice.kernel->name, "decomposition");
        }
        ASSERT_EQ(bp_kernel_launch(host, nullptr, 0, choice.kernel, &args), BP_OK)
            << bp_error_text();
        results[source == BP_KERNEL_NATIVE ? 0 : 1] = y.elements();
      }
      expect_close(results[1], results[0]);
    }
    Tensor<float> y(*host, shape);
    args.*output = y.get();
    args.bounds = 0;
    bp_kernel_choice choice{};
    const bool is_found = find(BP_KERNEL_DECOMPOSED, op, args, choice) == BP_OK;
    const bool is_formula = is_found && std::string(choice.kernel->name) == "decomposition";
    EXPECT_EQ(is_formula, serves_fail);
  }

  // Makes a tensor of random floats.
  Tensor<float>& floats(std::vector<int64_t> shape) {
    auto& made = tensors.emplace_back(std::make_unique<Tensor<float>>(*host, std::move(shape)));
    made->set(random_values<float>(made->size()));
    return *made;
  }

  Registry registry;
  const bp_target* host = load(registry, BACKPLANE_TEST_PLUGIN);
  std::vector<std::unique_ptr<Tensor<float>>> tensors;
  bool serves_fail = false;
};

TEST_F(DecomposedBounds, OfGatherAndIndexSelect) {
  Tensor<int64_t> indices(*host, {2, 4}), line(*host, {4});
  indices.set({-1, 3, kFar, 1, INT64_MIN, 2, 0, 7});
  line.set({-5, 2, 3, kFar});
  const bp_tensor* const x = floats({2, 3}).get();
  compare(BP_OP_GATHER, bp_gather_args{.x = x, .indices = indices.get(), .axis = 1},
          &bp_gather_args::y, {2, 4});
  compare(BP_OP_INDEX_SELECT, bp_index_select_args{.x = x, .indices = line.get(), .axis = 1},
          &bp_index_select_args::y, {2, 4});
}

TEST_F(DecomposedBounds, OfScatters) {
  Tensor<int32_t> indices(*host, {2, 4});
  indices.set({-1, 3, INT32_MAX, 1, INT32_MIN, 2, 0, 7});
  const bp_tensor *const x = floats({2, 3}).get(), *const src = floats({2, 4}).get();
  compare(BP_OP_SCATTER, bp_scatter_args{.x = x, .indices = indices.get(), .src = src, .axis = 1},
          &bp_scatter_args::y, {2, 3});
  compare(BP_OP_SCATTER_REDUCE,
          bp_scatter_reduce_args{.x = x,
                                 .indices = indices.get(),
                                 .src = src,
                                 .axis = 1,
                                 .reduction = BP_SCATTER_REDUCE_REDUCTION_SUM},
          &bp_scatter_reduce_args::y, {2, 3});
}

TEST_F(DecomposedBounds, OfEmbeddings) {
  Tensor<int64_t> indices(*host, {5});
  indices.set({-1, 4, kFar, 1, 0});
  compare(BP_OP_EMBEDDING,
          bp_embedding_args{.weight = floats({4, 3}).get(), .indices = indices.get()},
          &bp_embedding_args::y, {5, 3});
  compare(BP_OP_EMBEDDING_BACKWARD,
          bp_embedding_backward_args{
              .grad_y = floats({5, 3}).get(), .indices = indices.get(), .num_embeddings = 4},
          &bp_embedding_backward_args::grad_weight, {4, 3});
}

// The index -1 names no element, whatever the bounds are.
TEST_F(DecomposedBounds, OfMaxPoolBackward) {
  Tensor<int64_t> indices(*host, {1, 2, 4});
  indices.set({-1, 8, kFar, 1, -2, -1, 0, 7});
  const int64_t size[] = {8};
  compare(BP_OP_MAX_POOL_BACKWARD,
          bp_max_pool_backward_args{.grad_y = floats({1, 2, 4}).get(),
                                    .indices = indices.get(),
                                    .input_size_count = 1,
                                    .input_size = size},
          &bp_max_pool_backward_args::grad_x, {1, 2, 8});
}

// A target that is ignored stays so, and one that is clamped to ignore_index is ignored too.
TEST_F(DecomposedBounds, OfCrossEntropy) {
  serves_fail = true;  // The decomposition of cross_entropy serves every call.
  Tensor<int64_t> target(*host, {6});
  target.set({-100, 5, kFar, 1, -7, 0});
  const bp_tensor *const x = floats({6, 4}).get(), *const lse = floats({6}).get(),
                         *const grad_y = floats({}).get();
  for (const int64_t ignored : {-100, 0}) {
    compare(BP_OP_CROSS_ENTROPY,
            bp_cross_entropy_args{.x = x,
                                  .target = target.get(),
                                  .ignore_index = ignored,
                                  .label_smoothing = 0.1,
                                  .reduction = BP_CROSS_ENTROPY_REDUCTION_MEAN},
            &bp_cross_entropy_args::y, {});
  }
  serves_fail = false;
  compare(BP_OP_CROSS_ENTROPY_BACKWARD,
          bp_cross_entropy_backward_args{.grad_y = grad_y,
                                         .x = x,
                                         .target = target.get(),
                                         .lse = lse,
                                         .ignore_index = 0,
                                         .reduction = BP_CROSS_ENTROPY_REDUCTION_MEAN},
          &bp_cross_entropy_backward_args::grad_x, {6, 4});
}

TEST_F(DecomposedBounds, AreRefusedWhereNoElementCouldAct) {
  Tensor<int64_t> indices(*host, {1, 2});
  Tensor<float> x(*host, {1, 0}), y(*host, {1, 2});
  bp_gather_args args{.struct_size = sizeof(args),
                      .x = x.get(),
                      .indices = indices.get(),
                      .y = y.get(),
                      .axis = 1,
                      .bounds = BP_GATHER_BOUNDS_CLAMP};
  EXPECT_EQ(bp_op_check(BP_OP_GATHER, &args), BP_INVALID_ARGUMENT);
  args.bounds = BP_GATHER_BOUNDS_FAIL;
  EXPECT_EQ(bp_op_check(BP_OP_GATHER, &args), BP_OK) << bp_error_text();
}

}  // namespace
}  // namespace bp
