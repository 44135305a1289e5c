#include "runtime/bench/peers/onednn/program.hpp"

namespace bp::bench::onednn {
namespace {

using Algorithm = dnnl::algorithm;
constexpr auto kInference = dnnl::prop_kind::forward_inference;

// A convolution of any rank. Weights of groups have an axis of groups before the others.
struct Convolution {
  Dims x, weight;
  int64_t stride = 1, padding = 0, groups = 1, dilation = 1;
  Type type = Type::f32;
};

struct Extents {
  explicit Extents(const Convolution& c)
      : weight(c.weight),
        y{c.x[0], c.weight[0]},
        strides(c.x.size() - 2, c.stride),
        dilations(c.x.size() - 2, c.dilation - 1),
        padding(c.x.size() - 2, c.padding) {
    for (size_t i = 2; i < c.x.size(); ++i) {
      const int64_t window = c.dilation * (c.weight[i] - 1) + 1;
      y.push_back((c.x[i] + 2 * c.padding - window) / c.stride + 1);
    }
    if (c.groups == 1) return;
    weight[0] /= c.groups;
    weight.insert(weight.begin(), c.groups);
  }
  Dims weight, y, strides, dilations, padding;
};

dnnl::convolution_forward::primitive_desc forward_desc(const Convolution& c, const Extents& e,
                                                       dnnl::prop_kind kind) {
  return {engine(),
          kind,
          Algorithm::convolution_direct,
          plain(c.x, c.type),
          {e.weight, c.type, Tag::any},
          plain(e.y, c.type),
          e.strides,
          e.dilations,
          e.padding,
          e.padding};
}

// The activations have plain formats, as in the case, and the weights have the fastest format.
Ready forward(const Convolution& c) {
  const auto desc = forward_desc(c, Extents(c), kInference);
  return make<dnnl::convolution_forward::primitive_desc, dnnl::convolution_forward>(
      desc, {{DNNL_ARG_SRC, plain(c.x, c.type)}, {DNNL_ARG_WEIGHTS, desc.weights_desc()}});
}

// Input 0 is the gradient of y, and input 1 is the weight, in the fastest format.
Ready gradient_for_x(const Convolution& c) {
  const Extents e(c);
  const dnnl::convolution_backward_data::primitive_desc desc(
      engine(), Algorithm::convolution_direct, plain(c.x, c.type), {e.weight, c.type, Tag::any},
      plain(e.y, c.type), e.strides, e.dilations, e.padding, e.padding,
      forward_desc(c, e, dnnl::prop_kind::forward_training));
  Program program;
  program.primitive = dnnl::convolution_backward_data(desc);
  program.arguments = {{DNNL_ARG_DIFF_DST, filled(plain(e.y, c.type), 0)},
                       {DNNL_ARG_WEIGHTS, filled(desc.weights_desc(), 1)},
                       {DNNL_ARG_DIFF_SRC, dnnl::memory(desc.diff_src_desc(), engine())}};
  program.result = DNNL_ARG_DIFF_SRC;
  return ready(std::move(program));
}

// The gradient has the fastest format too, as it has in a program that keeps its weights so.
Ready gradient_for_weight(const Convolution& c) {
  const Extents e(c);
  const dnnl::convolution_backward_weights::primitive_desc desc(
      engine(), Algorithm::convolution_direct, plain(c.x, c.type), {e.weight, c.type, Tag::any},
      plain(e.y, c.type), e.strides, e.dilations, e.padding, e.padding,
      forward_desc(c, e, dnnl::prop_kind::forward_training));
  Program program;
  program.primitive = dnnl::convolution_backward_weights(desc);
  program.arguments = {{DNNL_ARG_DIFF_DST, filled(plain(e.y, c.type), 0)},
                       {DNNL_ARG_SRC, filled(plain(c.x, c.type), 1)},
                       {DNNL_ARG_DIFF_WEIGHTS, dnnl::memory(desc.diff_weights_desc(), engine())}};
  program.result = DNNL_ARG_DIFF_WEIGHTS;
  return ready(std::move(program));
}

void add_convolution(std::vector<Case>& cases, const std::string& name, const Convolution& c,
                     bool has_gradients = false) {
  const std::string full =
      std::string("convolution ") + (c.type == Type::f32 ? "f32 " : "bf16 ") + name;
  cases.push_back({full, 0, 0, [c] { return forward(c); }});
  if (!has_gradients) return;
  cases.push_back({full + ", for x", 0, 0, [c] { return gradient_for_x(c); }});
  cases.push_back({full + ", for weight", 0, 0, [c] { return gradient_for_weight(c); }});
}

void add_convolutions(std::vector<Case>& cases) {
  const Convolution middle = {{8, 64, 56, 56}, {64, 64, 3, 3}, 1, 1};
  add_convolution(cases, "8x3x224x224, 64 of 7x7, stride 2",
                  {{8, 3, 224, 224}, {64, 3, 7, 7}, 2, 3});
  add_convolution(cases, "8x64x56x56, 64 of 3x3", middle);
  add_convolution(cases, "8x256x56x56, 64 of 1x1", {{8, 256, 56, 56}, {64, 256, 1, 1}});
  add_convolution(cases, "8x128x28x28, 128 of 3x3", {{8, 128, 28, 28}, {128, 128, 3, 3}, 1, 1},
                  true);
  add_convolution(cases, "8x512x7x7, 512 of 3x3", {{8, 512, 7, 7}, {512, 512, 3, 3}, 1, 1});
  add_convolution(cases, "8x256x56x56, 512 of 1x1, stride 2",
                  {{8, 256, 56, 56}, {512, 256, 1, 1}, 2});
  add_convolution(cases, "1x64x57x61, 64 of 3x3", {{1, 64, 57, 61}, {64, 64, 3, 3}, 1, 1});
  add_convolution(cases, "8x64x56x56, 64 of 3x3, dilation 2",
                  {{8, 64, 56, 56}, {64, 64, 3, 3}, 1, 2, 1, 2});
  add_convolution(cases, "8x256x28x28, 256 of 3x3, 32 groups",
                  {{8, 256, 28, 28}, {256, 8, 3, 3}, 1, 1, 32});
  add_convolution(cases, "8x144x56x56, 144 of 3x3, depthwise",
                  {{8, 144, 56, 56}, {144, 1, 3, 3}, 1, 1, 144}, true);
  Convolution bf16 = middle;
  bf16.type = Type::bf16;
  add_convolution(cases, "8x64x56x56, 64 of 3x3", bf16, true);
  add_convolution(cases, "8x256x1024, 256 of 3", {{8, 256, 1024}, {256, 256, 3}, 1, 1}, true);
  add_convolution(cases, "1x512x3000, 512 of 3, stride 2", {{1, 512, 3000}, {512, 512, 3}, 2, 1});
  add_convolution(cases, "2x16x16x56x56, 32 of 3x3x3",
                  {{2, 16, 16, 56, 56}, {32, 16, 3, 3, 3}, 1, 1});
}

Case pool_case(const std::string& name, const Dims& x, Algorithm algorithm, int64_t kernel,
               int64_t stride, int64_t padding, Type type = Type::f32) {
  return {name, 0, 0, [=] {
            const Dims none(x.size() - 2, 0), at(x.size() - 2, stride),
                window(x.size() - 2, kernel), around(x.size() - 2, padding);
            Dims y = x;
            for (size_t i = 2; i < y.size(); ++i) y[i] = (x[i] + 2 * padding - kernel) / stride + 1;
            const dnnl::pooling_forward::primitive_desc desc(engine(), kInference, algorithm,
                                                             plain(x, type), plain(y, type), at,
                                                             window, none, around, around);
            return make<dnnl::pooling_forward::primitive_desc, dnnl::pooling_forward>(
                desc, {{DNNL_ARG_SRC, plain(x, type)}});
          }};
}

Case resampling_case(const std::string& name, const Dims& x, const Dims& y, Algorithm algorithm) {
  return {name, 0, 0, [=] {
            const dnnl::resampling_forward::primitive_desc desc(engine(), kInference, algorithm,
                                                                plain(x), plain(y));
            return make<dnnl::resampling_forward::primitive_desc, dnnl::resampling_forward>(
                desc, {{DNNL_ARG_SRC, plain(x)}});
          }};
}

// Inputs 0, 1 and 2 are x, gamma and beta.
Case batch_norm_training_case(const std::string& name, const Dims& x) {
  return {name, 0, 0, [=] {
            using dnnl::normalization_flags;
            const Desc channels = plain(Dims{x[1]});
            const dnnl::batch_normalization_forward::primitive_desc desc(
                engine(), dnnl::prop_kind::forward_training, plain(x), plain(x), 1e-5F,
                normalization_flags::use_scale | normalization_flags::use_shift);
            Program program;
            program.primitive = dnnl::batch_normalization_forward(desc);
            program.arguments = {{DNNL_ARG_SRC, filled(plain(x), 0)},
                                 {DNNL_ARG_SCALE, filled(channels, 1)},
                                 {DNNL_ARG_SHIFT, filled(channels, 2)},
                                 {DNNL_ARG_MEAN, dnnl::memory(desc.mean_desc(), engine())},
                                 {DNNL_ARG_VARIANCE, dnnl::memory(desc.variance_desc(), engine())},
                                 {DNNL_ARG_DST, dnnl::memory(desc.dst_desc(), engine())}};
            return ready(std::move(program));
          }};
}

}  // namespace

void add_image_cases(std::vector<Case>& cases) {
  add_convolutions(cases);
  const Dims image = {8, 64, 56, 56}, half = {8, 64, 28, 28}, large = {8, 64, 112, 112};
  const Case more[] = {
      pool_case("max_pool f32 8x64x112x112, 3x3, stride 2", large, Algorithm::pooling_max, 3, 2, 1),
      pool_case("max_pool bf16 8x64x112x112, 3x3, stride 2", large, Algorithm::pooling_max, 3, 2, 1,
                Type::bf16),
      pool_case("max_pool f32 16x64x2049, 2", {16, 64, 2049}, Algorithm::pooling_max, 2, 2, 0),
      pool_case("avg_pool f32 8x64x56x56, 2x2", image, Algorithm::pooling_avg_exclude_padding, 2, 2,
                0),
      pool_case("avg_pool f32 8x64x56x56, 3x3, stride 1", image,
                Algorithm::pooling_avg_include_padding, 3, 1, 1),
      pool_case("adaptive_avg_pool f32 8x2048x7x7 to 1x1", {8, 2048, 7, 7},
                Algorithm::pooling_avg_exclude_padding, 7, 7, 0),
      pool_case("adaptive_avg_pool f32 8x64x56x56 to 7x7", image,
                Algorithm::pooling_avg_exclude_padding, 8, 8, 0),
      resampling_case("interpolate nearest f32 8x64x28x28 to 56x56", half, image,
                      Algorithm::resampling_nearest),
      resampling_case("interpolate bilinear f32 8x64x28x28 to 56x56", half, image,
                      Algorithm::resampling_linear),
      resampling_case("interpolate bilinear f32 8x3x333x500 to 224x224", {8, 3, 333, 500},
                      {8, 3, 224, 224}, Algorithm::resampling_linear),
      batch_norm_training_case("batch_norm_training f32 8x64x56x56", image),
  };
  cases.insert(cases.end(), std::begin(more), std::end(more));
}

}  // namespace bp::bench::onednn
