// Measures the cost of dispatch: a cached choice for three 4-D tensors (bar: 20 ns), and
// bp_op_launch() over the bare launch of its kernel (bar: 40 ns).
//
// build/release/bin/registry.dispatch_bench --benchmark_repetitions=5
#include <benchmark/benchmark.h>

#include <cstdlib>

#include "registry/dispatch/selection.hpp"
#include "registry/tests/fake_backend.hpp"

namespace bp::core {
namespace {

struct Setup {
  FakeBackend fake;
  TestRegistry r;
  bp_kernel kernel = make_kernel("add");
  int64_t shape[4] = {8, 16, 32, 64};
  int64_t dense[4] = {32768, 2048, 64, 1};
  int64_t other[4];
  bp_tensor a{.shape = shape, .strides = dense, .ndim = 4, .dtype = BP_F32};
  bp_tensor b = a, y = a;
  bp_add_args args{.struct_size = sizeof(bp_add_args), .a = &a, .b = &b, .y = &y};
  const bp_target* target;

  explicit Setup(const int64_t (&strides)[4]) {
    std::copy_n(strides, 4, other);
    b.strides = other;
    fake.kernels = {&kernel};
    if (fake.load(r.registry) != BP_OK) std::abort();
    target = r.target();
    // The tensors are blocks of one buffer, as in the runtime.
    uint64_t offset = 0;
    for (bp_tensor* t : {&a, &b, &y}) {
      t->buffer = reinterpret_cast<bp_buffer*>(shape);
      t->byte_offset = offset += 512;
    }
  }
};

constexpr int64_t kDense[4] = {32768, 2048, 64, 1};
constexpr int64_t kBroadcast[4] = {0, 0, 0, 1};
constexpr int64_t kPermuted[4] = {32768, 1, 1024, 16};

// Times the lookup from a frame to the remembered candidates.
void cached_choice(benchmark::State& state, const int64_t (&strides)[4]) {
  Setup s(strides);
  const OpRow& row = *find_op(BP_OP_ADD);
  bool has_null = false;
  for (auto _ : state) {
    Key key;
    benchmark::DoNotOptimize(read_call(row, 0, &s.args, key, &has_null));
    benchmark::DoNotOptimize(choose(impl(s.target), row, key, &s.args));
  }
}
BENCHMARK_CAPTURE(cached_choice, dense, kDense);
BENCHMARK_CAPTURE(cached_choice, broadcast, kBroadcast);
BENCHMARK_CAPTURE(cached_choice, permuted, kPermuted);

void kernel_find(benchmark::State& state) {
  Setup s(kDense);
  bp_kernel_choice choice;
  for (auto _ : state) {
    benchmark::DoNotOptimize(bp_kernel_find(s.target, 0, 0, BP_OP_ADD, &s.args, &choice));
  }
}
BENCHMARK(kernel_find);

void bare_launch(benchmark::State& state) {
  Setup s(kDense);
  const bp_launch launch{.device = s.target->device, .stream = s.target->default_stream};
  const bp_kernel* kernel = &s.kernel;
  for (auto _ : state) {
    benchmark::DoNotOptimize(kernel);
    benchmark::DoNotOptimize(kernel->launch(kernel, &launch, &s.args));
  }
}
BENCHMARK(bare_launch);

void op_launch(benchmark::State& state) {
  Setup s(kDense);
  for (auto _ : state) {
    benchmark::DoNotOptimize(bp_op_launch(s.target, nullptr, 0, BP_OP_ADD, &s.args));
  }
}
BENCHMARK(op_launch);

}  // namespace
}  // namespace bp::core

BENCHMARK_MAIN();
