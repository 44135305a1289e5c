// The cases that oneDNN has, except those of images.
#include <algorithm>

#include "runtime/bench/peers/onednn/program.hpp"

namespace bp::bench {
namespace onednn {
namespace {

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

Case add_case(const std::string& name, const Dims& a, const Dims& b, dnnl::algorithm algorithm,
              Type type = Type::f32) {
  return {name, 0, 0, [=] {
            const dnnl::binary::primitive_desc desc(engine(), algorithm, plain(a, type),
                                                    plain(b, type), plain(a, type));
            return make<dnnl::binary::primitive_desc, dnnl::binary>(
                desc, {{DNNL_ARG_SRC_0, plain(a, type)}, {DNNL_ARG_SRC_1, plain(b, type)}});
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

Case layer_norm_case(const std::string& name, const Dims& x, Type type) {
  return {name, 0, 0, [=] {
            using dnnl::normalization_flags;
            const Desc rows = plain(x, type), scale = plain(Dims{x.back()});
            const dnnl::layer_normalization_forward::primitive_desc desc(
                engine(), dnnl::prop_kind::forward_inference, rows, rows, 1e-5F,
                normalization_flags::use_scale | normalization_flags::use_shift);
            return make<dnnl::layer_normalization_forward::primitive_desc,
                        dnnl::layer_normalization_forward>(
                desc, {{DNNL_ARG_SRC, rows}, {DNNL_ARG_SCALE, scale}, {DNNL_ARG_SHIFT, scale}});
          }};
}

void add_more_elementwise(std::vector<Case>& cases) {
  using Algorithm = dnnl::algorithm;
  constexpr int64_t kMany = 1 << 22, kOdd = 1000003;
  const Case more[] = {
      eltwise_case("sigmoid f32 4194304", kMany, Algorithm::eltwise_logistic, Type::f32),
      eltwise_case("sigmoid bf16 4194304", kMany, Algorithm::eltwise_logistic, Type::bf16),
      eltwise_case("exp bf16 4194304", kMany, Algorithm::eltwise_exp, Type::bf16),
      eltwise_case("mish f32 4194304", kMany, Algorithm::eltwise_mish, Type::f32),
      add_case("add bf16 4194304", {kMany}, {kMany}, Algorithm::binary_add, Type::bf16),
      add_case("mul bf16 1000003", {kOdd}, {kOdd}, Algorithm::binary_mul, Type::bf16),
      add_case("sub f16 4194304", {kMany}, {kMany}, Algorithm::binary_sub, Type::f16),
      add_case("maximum f32 1000003", {kOdd}, {kOdd}, Algorithm::binary_max),
      add_case("add f32 1000003x3 + 3", {kOdd, 3}, {1, 3}, Algorithm::binary_add),
      add_case("mul bf16 4096x1024 * 4096x1", {4096, 1024}, {4096, 1}, Algorithm::binary_mul,
               Type::bf16),
      reorder_case("cast bf16 to f32 4194304", plain(Dims{kMany}, Type::bf16), plain(Dims{kMany})),
      reorder_case("cast f32 to f16 4194304", plain(Dims{kMany}), plain(Dims{kMany}, Type::f16)),
      reorder_case("cast f16 to f32 4194304", plain(Dims{kMany}, Type::f16), plain(Dims{kMany})),
      reorder_case("copy bf16 transposed 4096x1024", {{1024, 4096}, Type::bf16, Tag::ba},
                   plain({1024, 4096}, Type::bf16)),
      reduction_case("sum f32 1000003x3, axis 1", {kOdd, 3}, {kOdd, 1}, Algorithm::reduction_sum),
      reduction_case("amin f32 4194304", {kMany}, {1}, Algorithm::reduction_min),
      softmax_case("softmax f32 100000x10", {100000, 10}, 1, Type::f32),
      softmax_case("softmax bf16 32x128256", {32, 128256}, 1, Type::bf16),
      softmax_case("softmax f16 4x12x512x512", {4, 12, 512, 512}, 3, Type::f16),
      layer_norm_case("layer_norm f32 4096x1024", {4096, 1024}, Type::f32),
      layer_norm_case("layer_norm bf16 4096x1024", {4096, 1024}, Type::bf16),
      layer_norm_case("layer_norm f32 1x4096", {1, 4096}, Type::f32),
  };
  cases.insert(cases.end(), std::begin(more), std::end(more));
}

void add_more_products(std::vector<Case>& cases) {
  const Case more[] = {
      matmul_case("matmul bf16 4096x4096x1", {4096, 4096}, {4096, 1}, Type::bf16),
      matmul_case("matmul bf16 1x4096x4096", {1, 4096}, {4096, 4096}, Type::bf16),
      matmul_case("matmul bf16 8x4096x4096", {8, 4096}, {4096, 4096}, Type::bf16),
      matmul_case("matmul f16 1x4096x4096", {1, 4096}, {4096, 4096}, Type::f16),
      matmul_case("matmul f16 8x4096x4096", {8, 4096}, {4096, 4096}, Type::f16),
      matmul_case("matmul bf16 1023x1025x1021", {1023, 1025}, {1025, 1021}, Type::bf16),
      matmul_case("matmul f32 4096x16x4096", {4096, 16}, {16, 4096}),
      matmul_case("matmul f32 16x65536x16", {16, 65536}, {65536, 16}),
      matmul_case("matmul f32 100003x3x3", {100003, 3}, {3, 3}),
      matmul_case("matmul f32 512 of 32x32x32", {512, 32, 32}, {512, 32, 32}),
      matmul_case("matmul f32 4096 of 4x4x4", {4096, 4, 4}, {4096, 4, 4}),
      matmul_case("matmul bf16 64 of 128x64x128", {64, 128, 64}, {64, 64, 128}, Type::bf16),
  };
  cases.insert(cases.end(), std::begin(more), std::end(more));
}

}  // namespace
}  // namespace onednn

std::vector<Case> onednn_cases() {
  using namespace onednn;
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
  };
  add_more_elementwise(cases);
  add_more_products(cases);
  add_image_cases(cases);
  for (const int64_t rows : kQuantizedRows) {
    const std::string name = "matmul_scaled i8 " + std::to_string(rows) + "x4096x4096, per channel";
    for (const char* const words : {"", ", b constant"}) {
      cases.push_back(i8_product_case(name + words, rows, 4096, 4096));
    }
  }
  return cases;
}

}  // namespace bp::bench
