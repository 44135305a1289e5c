// The cases whose weight is constant, and attention with a window, which the runtime does not have.
// The registry prepares them, as for a host that has a graph.
#include <string>
#include <utility>

#include "runtime/bench/peers/backplane/prepared_op.hpp"
#include "runtime/bench/peers/backplane/suite.hpp"

namespace bp::bench {
namespace {

void add_product(std::vector<Case>& cases, const std::string& name, int64_t rows, int64_t depth,
                 int64_t cols) {
  const Shape a = {rows, depth}, b = {depth, cols}, y = {rows, cols};
  cases.push_back({name, 4 * (size_of(a) + size_of(b) + size_of(y)),
                   2 * size_of(a) * static_cast<double>(cols), [=] {
                     std::vector<Tensor> t = {input(a), input(b, 1), zeros(y, BP_F32)};
                     const bp_matmul_args args{.a = t[0].get(), .b = t[1].get(), .y = t[2].get()};
                     return ready(BP_OP_MATMUL, args, std::move(t));
                   }});
}

void add_convolution(std::vector<Case>& cases, const std::string& name, const Shape& x,
                     const Shape& weight, int64_t stride, int64_t padding) {
  const int64_t out = (x[2] + 2 * padding - weight[2]) / stride + 1;
  const Shape y = {x[0], weight[0], out, out};
  cases.push_back(
      {name, 4 * (size_of(x) + size_of(weight) + size_of(y)),
       2 * size_of(y) * size_of(weight) / static_cast<double>(weight[0]), [=] {
         static constexpr int64_t kOne[] = {1, 1}, kTwo[] = {2, 2}, kNone[] = {0, 0, 0, 0},
                                  kSame[] = {1, 1, 1, 1}, kThree[] = {3, 3, 3, 3};
         std::vector<Tensor> t = {input(x), input(weight, 1), zeros(y, BP_F32)};
         bp_convolution_args args{.x = t[0].get(), .weight = t[1].get(), .y = t[2].get()};
         args.stride_count = args.dilation_count = 2;
         args.padding_count = 4;
         args.stride = stride == 1 ? kOne : kTwo;
         args.padding = padding == 0 ? kNone : padding == 1 ? kSame : kThree;
         args.dilation = kOne;
         args.groups = 1;
         return ready(BP_OP_CONVOLUTION, args, std::move(t));
       }});
}

// Attention of 8 heads in which a query sees the `window` keys up to its own, or all of those if
// `window` is 0.
void add_causal_attention(std::vector<Case>& cases, const std::string& name, int64_t queries,
                          int64_t window) {
  const Shape shape = {1, 8, queries, 64};
  const auto n = static_cast<double>(queries), w = static_cast<double>(window);
  const double keys = window == 0 ? n * (n + 1) / 2 : n * w - w * (w - 1) / 2;
  cases.push_back({name, 16 * size_of(shape), 4 * 8 * 64 * keys, [=] {
                     std::vector<Tensor> t = {input(shape), input(shape, 1), input(shape, 2),
                                              zeros(shape, BP_F32)};
                     bp_sdpa_args args{
                         .q = t[0].get(), .k = t[1].get(), .v = t[2].get(), .y = t[3].get()};
                     args.scale = 0.125;
                     args.causal = BP_SDPA_CAUSAL_TOP_LEFT;
                     args.window_left = window;
                     return ready(BP_OP_SDPA, args, std::move(t), false);
                   }});
}

}  // namespace

void add_prepared_cases(std::vector<Case>& cases) {
  add_product(cases, "matmul f32 4x1024x1024, b constant", 4, 1024, 1024);
  add_product(cases, "matmul f32 8x4096x4096, b constant", 8, 4096, 4096);
  add_product(cases, "matmul f32 64x1024x1024, b constant", 64, 1024, 1024);
  add_convolution(cases, "convolution f32 8x3x224x224, 64 of 7x7, stride 2, weight constant",
                  {8, 3, 224, 224}, {64, 3, 7, 7}, 2, 3);
  add_convolution(cases, "convolution f32 1x128x28x28, 128 of 3x3, weight constant",
                  {1, 128, 28, 28}, {128, 128, 3, 3}, 1, 1);
  add_convolution(cases, "convolution f32 1x512x7x7, 512 of 3x3, weight constant", {1, 512, 7, 7},
                  {512, 512, 3, 3}, 1, 1);
  add_causal_attention(cases, "attention f32 8x2048x64, causal", 2048, 0);
  add_causal_attention(cases, "attention f32 8x2048x64, causal, window of 256", 2048, 256);
}

}  // namespace bp::bench
