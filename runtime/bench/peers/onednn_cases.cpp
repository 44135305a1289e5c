// The cases that oneDNN has, as direct calls. Primitives are made beforehand. Inputs and outputs
// have the formats of the case, and constant weights have the format that the library prefers.
#include <algorithm>
#include <cmath>
#include <dnnl.hpp>
#include <memory>
#include <unordered_map>

#include "runtime/bench/peers/worker.hpp"

namespace bp::bench {
namespace {

using Dims = dnnl::memory::dims;
using Tag = dnnl::memory::format_tag;
using Type = dnnl::memory::data_type;
using Desc = dnnl::memory::desc;

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

Tag plain_tag(size_t rank) {
  constexpr Tag kTags[] = {Tag::a, Tag::ab, Tag::abc, Tag::abcd};
  return kTags[rank - 1];
}

Desc plain(const Dims& dims, Type type = Type::f32) { return {dims, type, plain_tag(dims.size())}; }

dnnl::memory filled(const Desc& desc, int64_t s) {
  const Desc f32(desc.get_dims(), Type::f32, plain_tag(desc.get_dims().size()));
  dnnl::memory source(f32, engine()), result(desc, engine());
  auto* values = static_cast<float*>(source.get_data_handle());
  const auto n = static_cast<int64_t>(f32.get_size() / sizeof(float));
  for (int64_t i = 0; i < n; ++i) values[i] = input_value(i, s);
  dnnl::stream stream(engine());
  dnnl::reorder(source, result).execute(stream, source, result);
  stream.wait();
  return result;
}

double mean_abs(const dnnl::memory& memory) {
  const Desc desc = memory.get_desc();
  const Desc f32(desc.get_dims(), Type::f32, plain_tag(desc.get_dims().size()));
  dnnl::memory from = memory, values(f32, engine());
  dnnl::stream stream(engine());
  dnnl::reorder(from, values).execute(stream, from, values);
  stream.wait();
  const auto* data = static_cast<const float*>(values.get_data_handle());
  const size_t n = f32.get_size() / sizeof(float);
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += std::abs(double{data[i]});
  return sum / static_cast<double>(n);
}

// A primitive over memory of the given descriptors. The memory `result` is compared.
struct Program {
  dnnl::stream stream{engine()};
  dnnl::primitive primitive;
  std::unordered_map<int, dnnl::memory> arguments;
  int result = DNNL_ARG_DST;
};

Ready ready(Program program) {
  auto shared = std::make_shared<Program>(std::move(program));
  return {[shared] {
            shared->primitive.execute(shared->stream, shared->arguments);
            shared->stream.wait();
          },
          [shared] { return mean_abs(shared->arguments.at(shared->result)); }};
}

// `sources` are filled with inputs 0, 1, ... in this order.
template <typename PrimitiveDesc, typename Primitive>
Ready make(const PrimitiveDesc& desc, std::vector<std::pair<int, Desc>> sources) {
  Program program;
  program.primitive = Primitive(desc);
  for (size_t i = 0; i < sources.size(); ++i) {
    program.arguments.emplace(sources[i].first, filled(sources[i].second, static_cast<int64_t>(i)));
  }
  program.arguments.emplace(DNNL_ARG_DST, dnnl::memory(desc.dst_desc(), engine()));
  return ready(std::move(program));
}

Case matmul_case(const std::string& name, const Dims& a, const Dims& b, Type type = Type::f32) {
  return {name, 0, 0, [=] {
            Dims y = a;
            y.back() = b.back();
            const dnnl::matmul::primitive_desc desc(engine(), plain(a, type), plain(b, type),
                                                    plain(y, type));
            return make<dnnl::matmul::primitive_desc, dnnl::matmul>(
                desc, {{DNNL_ARG_SRC, desc.src_desc()}, {DNNL_ARG_WEIGHTS, desc.weights_desc()}});
          }};
}

// Returns i8 memory of the numbers that quantising input `s` with kLargestInput / 127 gives.
dnnl::memory filled_i8(const Desc& desc, int64_t s) {
  const Dims dims = desc.get_dims();
  dnnl::memory source(plain(dims, Type::s8), engine()), result(desc, engine());
  auto* const codes = static_cast<int8_t*>(source.get_data_handle());
  for (int64_t i = 0; i < dims[0] * dims[1]; ++i) {
    codes[i] = static_cast<int8_t>(std::nearbyint(input_value(i, s) * (127 / kLargestInput)));
  }
  dnnl::stream stream(engine());
  dnnl::reorder(source, result).execute(stream, source, result);
  stream.wait();
  return result;
}

// y = a b^T of i8 with a scale for each column of y, and one scale of a, which is all that this
// library has for a. The weight is in the format that the library prefers.
Case i8_product_case(const std::string& name, int64_t rows, int64_t depth, int64_t cols) {
  return {name, 0, 0, [=] {
            dnnl::primitive_attr attr;
            attr.set_scales_mask(DNNL_ARG_SRC, 0);
            attr.set_scales_mask(DNNL_ARG_WEIGHTS, 1 << 1);
            const dnnl::matmul::primitive_desc desc(engine(), plain({rows, depth}, Type::s8),
                                                    {{depth, cols}, Type::s8, Tag::any},
                                                    plain({rows, cols}), attr);
            Program program;
            program.primitive = dnnl::matmul(desc);
            const auto scales = [](int64_t n) {
              dnnl::memory made(plain({n}), engine());
              std::fill_n(static_cast<float*>(made.get_data_handle()), n,
                          static_cast<float>(kLargestInput / 127));
              return made;
            };
            // Input 1 fills b, whose rows are the columns of the weight.
            dnnl::memory b = filled_i8({{cols, depth}, Type::s8, Tag::ab}, 1);
            dnnl::memory weight(desc.weights_desc(), engine());
            dnnl::memory across({{depth, cols}, Type::s8, Tag::ba}, engine(), b.get_data_handle());
            dnnl::reorder(across, weight).execute(program.stream, across, weight);
            program.stream.wait();
            program.arguments = {{DNNL_ARG_SRC, filled_i8(plain({rows, depth}, Type::s8), 0)},
                                 {DNNL_ARG_WEIGHTS, weight},
                                 {DNNL_ARG_DST, dnnl::memory(desc.dst_desc(), engine())},
                                 {DNNL_ARG_ATTR_SCALES | DNNL_ARG_SRC, scales(1)},
                                 {DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, scales(cols)}};
            return ready(std::move(program));
          }};
}

Case eltwise_case(const std::string& name, int64_t n, dnnl::algorithm algorithm, Type type) {
  return {name, 0, 0, [=] {
            const Desc x = plain(Dims{n}, type);
            const dnnl::eltwise_forward::primitive_desc desc(
                engine(), dnnl::prop_kind::forward_inference, algorithm, x, x);
            return make<dnnl::eltwise_forward::primitive_desc, dnnl::eltwise_forward>(
                desc, {{DNNL_ARG_SRC, x}});
          }};
}

Case add_case(const std::string& name, const Dims& a, const Dims& b, dnnl::algorithm algorithm) {
  return {name, 0, 0, [=] {
            const dnnl::binary::primitive_desc desc(engine(), algorithm, plain(a), plain(b),
                                                    plain(a));
            return make<dnnl::binary::primitive_desc, dnnl::binary>(
                desc, {{DNNL_ARG_SRC_0, plain(a)}, {DNNL_ARG_SRC_1, plain(b)}});
          }};
}

Case softmax_case(const std::string& name, const Dims& x, int axis, Type type,
                  dnnl::algorithm algorithm = dnnl::algorithm::softmax_accurate) {
  return {name, 0, 0, [=] {
            const dnnl::softmax_forward::primitive_desc desc(
                engine(), dnnl::prop_kind::forward_inference, algorithm, plain(x, type),
                plain(x, type), axis);
            return make<dnnl::softmax_forward::primitive_desc, dnnl::softmax_forward>(
                desc, {{DNNL_ARG_SRC, plain(x, type)}});
          }};
}

Case reduction_case(const std::string& name, const Dims& x, const Dims& y,
                    dnnl::algorithm algorithm) {
  return {name, 0, 0, [=] {
            const dnnl::reduction::primitive_desc desc(engine(), algorithm, plain(x), plain(y), 0,
                                                       0);
            return make<dnnl::reduction::primitive_desc, dnnl::reduction>(
                desc, {{DNNL_ARG_SRC, plain(x)}});
          }};
}

// Copies rows of `x` whose two axes are exchanged in memory to plain rows.
Case reorder_case(const std::string& name, const Desc& from, const Desc& to) {
  return {name, 0, 0, [=] {
            const dnnl::memory x = filled(from, 0);
            Program program;
            program.primitive =
                dnnl::reorder(dnnl::reorder::primitive_desc(engine(), from, engine(), to));
            program.arguments = {{DNNL_ARG_FROM, x}, {DNNL_ARG_TO, dnnl::memory(to, engine())}};
            program.result = DNNL_ARG_TO;
            return ready(std::move(program));
          }};
}

Case layer_norm_case() {
  return {"layer_norm f32 4096x1024", 0, 0, [] {
            using dnnl::normalization_flags;
            const Desc x = plain({4096, 1024}), scale = plain(Dims{1024});
            const dnnl::layer_normalization_forward::primitive_desc desc(
                engine(), dnnl::prop_kind::forward_inference, x, x, 1e-5F,
                normalization_flags::use_scale | normalization_flags::use_shift);
            return make<dnnl::layer_normalization_forward::primitive_desc,
                        dnnl::layer_normalization_forward>(
                desc, {{DNNL_ARG_SRC, x}, {DNNL_ARG_SCALE, scale}, {DNNL_ARG_SHIFT, scale}});
          }};
}

// The activations have plain formats, as in the case, and the weights have the fastest format.
Case convolution_case(const std::string& name, const Dims& x, const Dims& w, int64_t stride,
                      int64_t padding) {
  return {name, 0, 0, [=] {
            const int64_t out = (x[2] + 2 * padding - w[2]) / stride + 1;
            const dnnl::convolution_forward::primitive_desc desc(
                engine(), dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct,
                plain(x), {w, Type::f32, Tag::any}, plain({x[0], w[0], out, out}),
                Dims{stride, stride}, Dims{padding, padding}, Dims{padding, padding});
            return make<dnnl::convolution_forward::primitive_desc, dnnl::convolution_forward>(
                desc, {{DNNL_ARG_SRC, plain(x)}, {DNNL_ARG_WEIGHTS, desc.weights_desc()}});
          }};
}

Case pool_case(const std::string& name, const Dims& x, dnnl::algorithm algorithm, int64_t kernel,
               int64_t padding) {
  return {name, 0, 0, [=] {
            const int64_t out = (x[2] + 2 * padding - kernel) / 2 + 1;
            const dnnl::pooling_forward::primitive_desc desc(
                engine(), dnnl::prop_kind::forward_inference, algorithm, plain(x),
                plain({x[0], x[1], out, out}), Dims{2, 2}, Dims{kernel, kernel}, Dims{0, 0},
                Dims{padding, padding}, Dims{padding, padding});
            return make<dnnl::pooling_forward::primitive_desc, dnnl::pooling_forward>(
                desc, {{DNNL_ARG_SRC, plain(x)}});
          }};
}

}  // namespace

std::vector<Case> onednn_cases() {
  using Algorithm = dnnl::algorithm;
  std::vector<Case> cases = {
      add_case("add f32 16777216", {1 << 24}, {1 << 24}, Algorithm::binary_add),
      add_case("add f32 1000003", {1000003}, {1000003}, Algorithm::binary_add),
      add_case("add f32 64", {64}, {64}, Algorithm::binary_add),
      add_case("add f32 4096x1024 + 1024", {4096, 1024}, {1, 1024}, Algorithm::binary_add),
      add_case("mul f32 4096x1024 * 4096x1", {4096, 1024}, {4096, 1}, Algorithm::binary_mul),
      eltwise_case("gelu f32 16777216", 1 << 24, Algorithm::eltwise_gelu_erf, Type::f32),
      eltwise_case("exp f32 4194304", 1 << 22, Algorithm::eltwise_exp, Type::f32),
      eltwise_case("tanh f32 4194304", 1 << 22, Algorithm::eltwise_tanh, Type::f32),
      eltwise_case("relu f32 4194304", 1 << 22, Algorithm::eltwise_relu, Type::f32),
      reorder_case("copy f32 transposed 4096x1024", {{1024, 4096}, Type::f32, Tag::ba},
                   plain({1024, 4096})),
      reorder_case("cast f32 to bf16 4194304", plain(Dims{1 << 22}),
                   plain(Dims{1 << 22}, Type::bf16)),
      reduction_case("sum f32 16777216", {1 << 24}, {1}, Algorithm::reduction_sum),
      reduction_case("sum f32 4096x1024, axis 0", {4096, 1024}, {1, 1024},
                     Algorithm::reduction_sum),
      reduction_case("sum f32 4096x1024, axis 1", {4096, 1024}, {4096, 1},
                     Algorithm::reduction_sum),
      reduction_case("mean f32 64x128x512, axis 1", {64, 128, 512}, {64, 1, 512},
                     Algorithm::reduction_mean),
      reduction_case("amax f32 4096x1024, axis 0", {4096, 1024}, {1, 1024},
                     Algorithm::reduction_max),
      softmax_case("softmax f32 4096x1024", {4096, 1024}, 1, Type::f32),
      softmax_case("softmax bf16 4096x1024", {4096, 1024}, 1, Type::bf16),
      softmax_case("softmax f32 1023x999", {1023, 999}, 1, Type::f32),
      softmax_case("softmax f32 4096x1024, axis 0", {4096, 1024}, 0, Type::f32),
      softmax_case("log_softmax f32 4096x1024", {4096, 1024}, 1, Type::f32, Algorithm::softmax_log),
      layer_norm_case(),
      matmul_case("matmul f32 1024^3", {1024, 1024}, {1024, 1024}),
      matmul_case("matmul f32 1023x1025x1021", {1023, 1025}, {1025, 1021}),
      matmul_case("matmul f32 128^3", {128, 128}, {128, 128}),
      matmul_case("matmul f32 8x4096x4096", {8, 4096}, {4096, 4096}),
      matmul_case("matmul f32 4096x4096x1", {4096, 4096}, {4096, 1}),
      matmul_case("matmul f32 1x4096x4096", {1, 4096}, {4096, 4096}),
      matmul_case("matmul f32 64 of 128x64x128", {64, 128, 64}, {64, 64, 128}),
      matmul_case("matmul bf16 1024^3", {1024, 1024}, {1024, 1024}, Type::bf16),
      matmul_case("matmul f16 1024^3", {1024, 1024}, {1024, 1024}, Type::f16),
      i8_product_case("matmul_scaled i8 1024^3, per channel", 1024, 1024, 1024),
      i8_product_case("matmul_scaled i8 1024^3, per channel, b constant", 1024, 1024, 1024),
      convolution_case("convolution f32 8x3x224x224, 64 of 7x7, stride 2", {8, 3, 224, 224},
                       {64, 3, 7, 7}, 2, 3),
      convolution_case("convolution f32 8x64x56x56, 64 of 3x3", {8, 64, 56, 56}, {64, 64, 3, 3}, 1,
                       1),
      convolution_case("convolution f32 8x256x56x56, 64 of 1x1", {8, 256, 56, 56}, {64, 256, 1, 1},
                       1, 0),
      convolution_case("convolution f32 8x128x28x28, 128 of 3x3", {8, 128, 28, 28},
                       {128, 128, 3, 3}, 1, 1),
      convolution_case("convolution f32 8x512x7x7, 512 of 3x3", {8, 512, 7, 7}, {512, 512, 3, 3}, 1,
                       1),
      pool_case("max_pool f32 8x64x112x112, 3x3, stride 2", {8, 64, 112, 112},
                Algorithm::pooling_max, 3, 1),
      pool_case("avg_pool f32 8x64x56x56, 2x2", {8, 64, 56, 56},
                Algorithm::pooling_avg_exclude_padding, 2, 0),
  };
  for (const int64_t rows : kQuantizedRows) {
    const std::string name = "matmul_scaled i8 " + std::to_string(rows) + "x4096x4096, per channel";
    for (const char* const words : {"", ", b constant"}) {
      cases.push_back(i8_product_case(name + words, rows, 4096, 4096));
    }
  }
  return cases;
}

}  // namespace bp::bench
