// Runs large f32 products and convolutions through the runtime, and through direct calls of oneDNN
// with the same memory formats, in one process. The difference is the cost of the path through the
// ABI when the library does the work.
//
//   library --benchmark_repetitions=9 --benchmark_report_aggregates_only=true
//           --benchmark_enable_random_interleaving=true
//
// The counter GF/s is multiplications and additions per second. OMP_NUM_THREADS sets the threads.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <dnnl.hpp>
#include <unordered_map>
#include <vector>

#include "backplane/runtime/runtime.hpp"

namespace {

using Dims = dnnl::memory::dims;
using Tag = dnnl::memory::format_tag;
constexpr auto kF32 = dnnl::memory::data_type::f32;

constexpr int64_t kN = 1024;                                             // matmul
constexpr int64_t kBatch = 8, kChannels = 64, kImage = 56, kKernel = 3;  // convolution
constexpr double kMatmulFlops = 2.0 * kN * kN * kN;
constexpr double kConvolutionFlops =
    2.0 * kBatch * kChannels * kChannels * kImage * kImage * kKernel * kKernel;

void report(benchmark::State& state, double flops) {
  state.counters["GF/s"] =
      benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

bp::Device device() {
  static const bp::Device cpu("cpu");
  return cpu;
}

// ---- The runtime --------------------------------------------------------------------------------

void matmul_backplane(benchmark::State& state) {
  const bp::NoGradGuard no_grad;
  const bp::Tensor a = bp::uniform({kN, kN}, BP_F32, device());
  const bp::Tensor b = bp::uniform({kN, kN}, BP_F32, device());
  for (auto _ : state) benchmark::DoNotOptimize(bp::matmul(a, b));
  report(state, kMatmulFlops);
}
BENCHMARK(matmul_backplane)->Name("matmul f32 1024^3/backplane")->UseRealTime();

void convolution_backplane(benchmark::State& state) {
  const bp::NoGradGuard no_grad;
  const bp::Tensor x = bp::uniform({kBatch, kChannels, kImage, kImage}, BP_F32, device());
  const bp::Tensor w = bp::uniform({kChannels, kChannels, kKernel, kKernel}, BP_F32, device());
  for (auto _ : state) {
    benchmark::DoNotOptimize(bp::convolution(x, w, {}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 1));
  }
  report(state, kConvolutionFlops);
}
BENCHMARK(convolution_backplane)
    ->Name("convolution f32 8x64x56x56 3x3, plain formats/backplane")
    ->UseRealTime();

// ---- oneDNN directly ----------------------------------------------------------------------------

// A primitive with its arguments, ready to run.
struct Ready {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::primitive primitive;
  std::unordered_map<int, dnnl::memory> arguments;

  void add(int argument, const dnnl::memory::desc& desc) {
    dnnl::memory memory(desc, engine);
    auto* values = static_cast<float*>(memory.get_data_handle());
    for (size_t i = 0; i < desc.get_size() / sizeof(float); ++i) {
      values[i] = static_cast<float>(i % 97) / 97;
    }
    arguments.emplace(argument, memory);
  }

  void run() {
    primitive.execute(stream, arguments);
    stream.wait();
  }
};

void matmul_onednn(benchmark::State& state) {
  Ready ready;
  const dnnl::memory::desc square({kN, kN}, kF32, Tag::ab);
  ready.primitive =
      dnnl::matmul(dnnl::matmul::primitive_desc(ready.engine, square, square, square));
  for (const int argument : {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST}) {
    ready.add(argument, square);
  }
  for (auto _ : state) ready.run();
  report(state, kMatmulFlops);
}
BENCHMARK(matmul_onednn)->Name("matmul f32 1024^3/oneDNN")->UseRealTime();

// `activations` and `weights` are format tags. Tag::any lets the library choose blocked formats,
// and the benchmark assumes that the arguments have been converted to them.
void convolution_onednn(benchmark::State& state, Tag activations, Tag weights) {
  Ready ready;
  const Dims image{kBatch, kChannels, kImage, kImage},
      filter{kChannels, kChannels, kKernel, kKernel};
  const dnnl::convolution_forward::primitive_desc desc(
      ready.engine, dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct,
      {image, kF32, activations}, {filter, kF32, weights}, {image, kF32, activations}, Dims{1, 1},
      Dims{1, 1}, Dims{1, 1});
  ready.primitive = dnnl::convolution_forward(desc);
  ready.add(DNNL_ARG_SRC, desc.src_desc());
  ready.add(DNNL_ARG_WEIGHTS, desc.weights_desc());
  ready.add(DNNL_ARG_DST, desc.dst_desc());
  for (auto _ : state) ready.run();
  report(state, kConvolutionFlops);
}
BENCHMARK_CAPTURE(convolution_onednn, plain, Tag::nchw, Tag::oihw)
    ->Name("convolution f32 8x64x56x56 3x3, plain formats/oneDNN")
    ->UseRealTime();
BENCHMARK_CAPTURE(convolution_onednn, blocked, Tag::any, Tag::any)
    ->Name("convolution f32 8x64x56x56 3x3, blocked formats/oneDNN")
    ->UseRealTime();

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  try {
    benchmark::RunSpecifiedBenchmarks();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "library: %s\n", e.what());
    return 1;
  }
  return 0;
}
