// Counts the calls of CUDA that a launch makes beside that of its kernel. A call costs up to a
// microsecond on a device, which is as long as a small kernel takes. Counts too what one thread of
// a kernel does alone where the data could leave it all of the work.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cuda/emulation/emulation.hpp"
#include "backends/cuda/fake/cuda.hpp"
#include "backends/shell/test_backend.hpp"

extern "C" bp_status bp_backend_entry(const bp_entry_request* request, bp_entry_reply* out_reply);

namespace bp::cuda {
namespace {

using Calls = std::map<std::string, uint64_t>;

class LaunchCost : public testing::Test {
 protected:
  // Launches a kernel whose name ends in `kernel_name` two times, and returns the calls of the
  // second launch. The first one may make what later ones use again.
  template <typename Args>
  Calls calls_of(uint32_t op, std::string_view kernel_name, Args args) {
    args.struct_size = sizeof(args);
    const bp_kernel* const kernel = kernel_of(op, kernel_name);
    if (kernel == nullptr) return {{"no such kernel", 1}};
    bp_launch launch{.device = b.device, .stream = b.default_stream()};
    uint64_t required = 0, preferred = 0;
    if (kernel->workspace_size != nullptr) {
      kernel->workspace_size(kernel, b.device, 0, &args, &required, &preferred);
    }
    if (preferred > 0) launch.workspace = {b.make_buffer(preferred), 0, preferred};
    EXPECT_EQ(kernel->launch(kernel, &launch, &args), BP_OK) << b.text;
    const Calls before = fake::call_counts();
    EXPECT_EQ(kernel->launch(kernel, &launch, &args), BP_OK) << b.text;
    Calls calls;
    for (const auto& [name, count] : fake::call_counts()) {
      const auto known = before.find(name);
      const uint64_t more = count - (known == before.end() ? 0 : known->second);
      if (more != 0) calls[name] = more;
    }
    EXPECT_EQ(b.streams->synchronize(b.streams->self, launch.stream, UINT64_MAX), BP_OK);
    b.allocator->deallocate(b.allocator->self, launch.workspace.buffer, launch.stream);
    return calls;
  }

  const bp_kernel* kernel_of(uint32_t op, std::string_view name) const {
    for (const bp_kernel* kernel : b.kernels) {
      if (kernel->op == op && std::string_view(kernel->name).ends_with(name)) return kernel;
    }
    return nullptr;
  }

  void fill(const TestTensor& indices, int32_t index) {
    const std::vector<int32_t> values(static_cast<size_t>(indices.size()), index);
    const bp_buffer_ref to{(&indices)->buffer, 0, values.size() * sizeof(int32_t)};
    EXPECT_EQ(b.allocator->copy_from_host(b.allocator->self, b.default_stream(), &to, values.data(),
                                          BP_BORROW_DURING_CALL),
              BP_OK)
        << b.text;
  }

  // The thread has no device before and after a test.
  ~LaunchCost() override {
    bp_device* device = nullptr;
    EXPECT_EQ(b.guard->exchange(b.guard->self, nullptr, &device), BP_OK);
  }
  void make_current() {
    bp_device* before = nullptr;
    ASSERT_EQ(b.guard->exchange(b.guard->self, b.device, &before), BP_OK);
  }

  TestBackend b{bp_backend_entry, {{"libraries", "fake"}}};
};

TEST_F(LaunchCost, OfAnElementwiseOpIsOneQuestionForTheCurrentDevice) {
  TestTensor x(b, BP_F32, {1000}), y(b, BP_F32, {1000}), z(b, BP_F32, {1000});
  make_current();
  const bp_add_args args{.a = &x, .b = &y, .y = &z};
  EXPECT_EQ(calls_of(BP_OP_ADD, "", args),
            (Calls{{"cuCtxGetCurrent", 1}, {"cudaLaunchKernel", 1}}));
}

// The library launches the kernel.
TEST_F(LaunchCost, OfAProductOfCublasltIsOneQuestionForTheCurrentDevice) {
  TestTensor a(b, BP_F32, {64, 64}), c(b, BP_F32, {64, 64}), y(b, BP_F32, {64, 64});
  make_current();
  const bp_matmul_args args{.a = &a, .b = &c, .y = &y, .alpha = 1};
  EXPECT_EQ(calls_of(BP_OP_MATMUL, "cublaslt", args), (Calls{{"cuCtxGetCurrent", 1}}));
}

// A launch leaves the thread as it found it, also a thread without a current device.
TEST_F(LaunchCost, OnAThreadWithoutADeviceIsTwoMoreCalls) {
  TestTensor x(b, BP_F32, {1000}), y(b, BP_F32, {1000}), z(b, BP_F32, {1000});
  const bp_add_args args{.a = &x, .b = &y, .y = &z};
  EXPECT_EQ(calls_of(BP_OP_ADD, "", args),
            (Calls{{"cuCtxGetCurrent", 1}, {"cuCtxSetCurrent", 2}, {"cudaLaunchKernel", 1}}));
}

// Its blocks have more than 48 KiB of shared memory, which CUDA is asked to allow once.
TEST_F(LaunchCost, OfAttentionAsksForSharedMemoryOnce) {
  TestTensor q(b, BP_BF16, {1, 2, 128, 128}), k(b, BP_BF16, {1, 2, 128, 128}),
      v(b, BP_BF16, {1, 2, 128, 128}), y(b, BP_BF16, {1, 2, 128, 128}),
      grad_y(b, BP_BF16, {1, 2, 128, 128}), grad_q(b, BP_BF16, {1, 2, 128, 128}),
      grad_k(b, BP_BF16, {1, 2, 128, 128}), grad_v(b, BP_BF16, {1, 2, 128, 128}),
      lse(b, BP_F32, {1, 2, 128});
  make_current();
  bp_sdpa_backward_args args{};
  args.grad_y = &grad_y;
  args.q = &q;
  args.k = &k;
  args.v = &v;
  args.y = &y;
  args.lse = &lse;
  args.grad_q = &grad_q;
  args.grad_k = &grad_k;
  args.grad_v = &grad_v;
  args.scale = 0.1;
  args.causal = BP_SDPA_BACKWARD_CAUSAL_NONE;
  args.window_left = args.window_right = INT64_MAX;
  Calls calls = calls_of(BP_OP_SDPA_BACKWARD, "mma_bf16", args);
  EXPECT_EQ(calls["cuCtxGetCurrent"], 1u);
  calls.erase("cuCtxGetCurrent");
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls.begin()->first, "cudaLaunchKernel");
}

// As when a batch is mostly padding: one thread that adds up all of these waits for memory so often
// that it takes 0.1 s on a device, and with 16 million of them seconds.
constexpr int64_t kHot = int64_t{1} << 18;

TEST_F(LaunchCost, OfAHotIndexOfScatterReduceIsSharedByThreads) {
  for (const int64_t lines : {1, 3}) {
    TestTensor src(b, BP_F32, {lines, kHot}), indices(b, BP_I32, {lines, kHot});
    TestTensor x(b, BP_F32, {lines, 4}), y(b, BP_F32, {lines, 4});
    fill(indices, 2);
    emulation::longest_sum();
    calls_of(BP_OP_SCATTER_REDUCE, "",
             bp_scatter_reduce_args{.x = &x, .indices = &indices, .src = &src, .y = &y, .axis = 1});
    const uint64_t longest = emulation::longest_sum();
    EXPECT_GT(longest, 0u);
    EXPECT_LE(longest, kHot / 64);
  }
}

TEST_F(LaunchCost, OfAHotRowOfAnEmbeddingIsSharedByThreads) {
  TestTensor grad_y(b, BP_F32, {kHot, 1}), indices(b, BP_I32, {kHot}), to(b, BP_F32, {4, 1});
  fill(indices, 2);
  emulation::longest_sum();
  calls_of(BP_OP_EMBEDDING_BACKWARD, "",
           bp_embedding_backward_args{
               .grad_y = &grad_y, .indices = &indices, .grad_weight = &to, .num_embeddings = 4});
  const uint64_t longest = emulation::longest_sum();
  EXPECT_GT(longest, 0u);
  EXPECT_LE(longest, kHot / 64);
}

}  // namespace
}  // namespace bp::cuda
