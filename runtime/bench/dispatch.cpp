// Measures what a call costs: small tensors through the runtime, beside the same calls through
// libtorch if the peers are installed (runtime/bench/setup), and the parts that the ABI adds.
//
//   dispatch --benchmark_repetitions=9 --benchmark_report_aggregates_only=true
//            --benchmark_enable_random_interleaving=true
//
// Random interleaving runs the variants in turn. Compare medians. The program uses one thread.
#include <benchmark/benchmark.h>

#include <cstdio>

#include "backplane/ops.h"
#include "backplane/runtime/runtime.hpp"

namespace {

bp::Device device() {
  static const bp::Device cpu("cpu");
  return cpu;
}

bp::Tensor four() { return bp::from_host<float>({1, 2, 3, 4}, {4}, device()); }

// ---- The ABI ------------------------------------------------------------------------------------

bp_status do_nothing(const bp_kernel*, const bp_launch*, const void*) { return BP_OK; }

void bare_indirect_call(benchmark::State& state) {
  bp_status (*function)(const bp_kernel*, const bp_launch*, const void*) = do_nothing;
  benchmark::DoNotOptimize(function);
  const bp_kernel kernel{};
  const bp_launch launch{};
  for (auto _ : state) benchmark::DoNotOptimize(function(&kernel, &launch, nullptr));
}
BENCHMARK(bare_indirect_call)->Name("bare indirect call");

void empty_kernel(benchmark::State& state) {
  bp_kernel kernel{};
  kernel.launch = do_nothing;
  const bp_kernel* resolved = &kernel;
  const bp_launch launch{};
  for (auto _ : state) {
    benchmark::DoNotOptimize(resolved);
    benchmark::DoNotOptimize(resolved->launch(resolved, &launch, nullptr));
  }
}
BENCHMARK(empty_kernel)->Name("resolved empty kernel through its table");

// Looks up the remembered selection for add of three 4-D tensors.
void cached_lookup(benchmark::State& state) {
  const bp_target& target = device().target();
  const bp::Tensor a = bp::ones({2, 3, 4, 5}, BP_F32, device()), b = a.clone(), y = a.clone();
  const bp_add_args args{
      .struct_size = sizeof(bp_add_args), .a = a.get(), .b = b.get(), .y = y.get()};
  bp_kernel_choice choice{};
  for (auto _ : state) {
    bp::check(bp_kernel_find(&target, 0, 0, BP_OP_ADD, &args, &choice), "kernel.find");
    benchmark::DoNotOptimize(choice);
  }
}
BENCHMARK(cached_lookup)->Name("cached lookup, three 4-D tensors");

void block_from_cache(benchmark::State& state) {
  const bp_target& target = device().target();
  bp_block* block = nullptr;
  for (auto _ : state) {
    bp::check(bp_block_allocate(&target, nullptr, 16, &block), "block.allocate");
    benchmark::DoNotOptimize(block);
    bp_block_free(block);
  }
}
BENCHMARK(block_from_cache)->Name("block from the cache and back");

void launch_alone(benchmark::State& state) {
  const bp_target& target = device().target();
  const bp::Tensor a = four(), b = four(), y = four();
  const bp_add_args args{
      .struct_size = sizeof(bp_add_args), .a = a.get(), .b = b.get(), .y = y.get()};
  for (auto _ : state) {
    bp::check(bp_op_launch(&target, nullptr, 0, BP_OP_ADD, &args), "op.launch");
  }
}
BENCHMARK(launch_alone)->Name("bp_op_launch of add of 4 floats");

// ---- The runtime --------------------------------------------------------------------------------

void add(benchmark::State& state) {
  const bp::NoGradGuard no_grad;
  const bp::Tensor a = four(), b = four();
  for (auto _ : state) benchmark::DoNotOptimize(bp::add(a, b));
}
BENCHMARK(add)->Name("add of 4 floats/backplane");

void add_with_gradient(benchmark::State& state) {
  const bp::Tensor a = four(), b = four();
  a.set_requires_grad();
  for (auto _ : state) benchmark::DoNotOptimize(bp::add(a, b));
}
BENCHMARK(add_with_gradient)->Name("add of 4 floats, recorded/backplane");

void add_into(benchmark::State& state) {
  const bp::NoGradGuard no_grad;
  const bp::Tensor a = four(), b = four(), y = four();
  for (auto _ : state) bp::add_out(y, a, b);
}
BENCHMARK(add_into)->Name("add of 4 floats into an output/backplane");

void view(benchmark::State& state) {
  const bp::Tensor a = four();
  for (auto _ : state) benchmark::DoNotOptimize(a.view({2, 2}));
}
BENCHMARK(view)->Name("view/backplane");

void mul_sum_backward(benchmark::State& state) {
  const bp::Tensor a = four(), b = four();
  a.set_requires_grad();
  for (auto _ : state) {
    a.set_grad({});
    bp::sum(bp::mul(a, b)).backward();
  }
}
BENCHMARK(mul_sum_backward)->Name("mul, sum, backward/backplane");

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
#ifndef BACKPLANE_BENCH_LIBTORCH
  std::fprintf(stderr, "libtorch is not beside it: runtime/bench/setup was not run before cmake\n");
#endif
  try {
    bp::default_registry();
    const bp_device_ops& ops = *device().target().devices;
    bp::check(ops.set_option(ops.self, device().target().device, "threads", "1"), "set_option");
    benchmark::RunSpecifiedBenchmarks();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "dispatch: %s\n", e.what());
    return 1;
  }
  return 0;
}
