// The calls of dispatch.cpp through the C++ interface of libtorch.
#include <benchmark/benchmark.h>
#include <torch/torch.h>

namespace {

torch::Tensor four() { return torch::tensor({1.0f, 2.0f, 3.0f, 4.0f}); }

void add(benchmark::State& state) {
  torch::NoGradGuard no_grad;
  const torch::Tensor a = four(), b = four();
  for (auto _ : state) benchmark::DoNotOptimize(torch::add(a, b));
}
BENCHMARK(add)->Name("add of 4 floats/libtorch");

void add_with_gradient(benchmark::State& state) {
  const torch::Tensor a = four().requires_grad_(), b = four();
  for (auto _ : state) benchmark::DoNotOptimize(torch::add(a, b));
}
BENCHMARK(add_with_gradient)->Name("add of 4 floats, recorded/libtorch");

void add_into(benchmark::State& state) {
  torch::NoGradGuard no_grad;
  const torch::Tensor a = four(), b = four();
  torch::Tensor y = four();
  for (auto _ : state) benchmark::DoNotOptimize(torch::add_out(y, a, b));
}
BENCHMARK(add_into)->Name("add of 4 floats into an output/libtorch");

void view(benchmark::State& state) {
  const torch::Tensor a = four();
  for (auto _ : state) benchmark::DoNotOptimize(a.view({2, 2}));
}
BENCHMARK(view)->Name("view/libtorch");

void mul_sum_backward(benchmark::State& state) {
  torch::Tensor a = four().requires_grad_();
  const torch::Tensor b = four();
  for (auto _ : state) {
    a.mutable_grad().reset();
    torch::mul(a, b).sum().backward();
  }
}
BENCHMARK(mul_sum_backward)->Name("mul, sum, backward/libtorch");

const bool kOneThread = [] {
  at::set_num_threads(1);
  return true;
}();

}  // namespace
