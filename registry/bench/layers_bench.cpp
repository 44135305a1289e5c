// Measures the cost of layers: a resolved empty kernel is called through its table, bare and behind
// each layer alone. Without a layer the host calls the backend's own kernel (bar: 2 ns over an
// indirect call).
//
// build/release/bin/registry.layers_bench --benchmark_repetitions=5
#include <benchmark/benchmark.h>

#include "registry/tests/fake_backend.hpp"

namespace bp::core {
namespace {

bp_status nothing(const bp_kernel* /*self*/, const bp_launch* /*launch*/, const void* /*args*/) {
  return BP_OK;
}

// Times a call of a function that the compiler does not see, which is the least possible.
void indirect_call(benchmark::State& state) {
  bp_kernel kernel = make_kernel("add");
  kernel.launch = nothing;
  const bp_kernel* pointer = &kernel;
  const bp_launch launch{};
  for (auto _ : state) {
    benchmark::DoNotOptimize(pointer);
    benchmark::DoNotOptimize(pointer->launch(pointer, &launch, nullptr));
  }
}
BENCHMARK(indirect_call);

void launch_through(benchmark::State& state, const char* layers, const char* options) {
  FakeBackend fake;
  bp_kernel kernel = make_kernel("add");
  kernel.launch = nothing;
  fake.kernels = {&kernel};
  TestRegistry r(0, layers, options);
  if (fake.load(r.registry) != BP_OK) return state.SkipWithError(bp_error_text());
  const bp_target* target = r.target();
  const bp_allocate_desc desc{
      .struct_size = sizeof(desc), .struct_type = BP_STRUCT_ALLOCATE_DESC, .size_bytes = 3072};
  const bp_allocator_ops& memory = *target->allocator;
  bp_buffer* buffer = nullptr;
  if (memory.allocate(memory.self, target->device, &desc, &buffer) != BP_OK) {
    return state.SkipWithError(bp_error_text());
  }
  const int64_t shape[] = {16, 16}, strides[] = {16, 1};
  bp_tensor a{.buffer = buffer, .shape = shape, .strides = strides, .ndim = 2, .dtype = BP_F32};
  bp_tensor b = a, y = a;
  b.byte_offset = 1024;
  y.byte_offset = 2048;
  const bp_add_args args{.struct_size = sizeof(args), .a = &a, .b = &b, .y = &y};
  const bp_launch launch{.device = target->device, .stream = target->default_stream};
  const bp_kernel* pointer = bp_target_kernel(target, 0);
  for (auto _ : state) {
    benchmark::DoNotOptimize(pointer);
    benchmark::DoNotOptimize(pointer->launch(pointer, &launch, &args));
  }
  static_cast<void>(memory.deallocate(memory.self, buffer, nullptr));
}
BENCHMARK_CAPTURE(launch_through, none, "", nullptr);
BENCHMARK_CAPTURE(launch_through, leak, "leak", nullptr);
BENCHMARK_CAPTURE(launch_through, mask, "mask", "mask.kernels=mul");
BENCHMARK_CAPTURE(launch_through, oldabi, "oldabi", nullptr);
BENCHMARK_CAPTURE(launch_through, fault, "fault", "fault.fail=memory.allocate@1000");
BENCHMARK_CAPTURE(launch_through, trace, "trace", "trace.file=/dev/null");
BENCHMARK_CAPTURE(launch_through, validate, "validate", nullptr);

}  // namespace
}  // namespace bp::core

BENCHMARK_MAIN();
