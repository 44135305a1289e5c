// Direct calls of oneDNN as cases. Primitives are made beforehand. Inputs and outputs have the
// formats of the case, and constant weights have the format that the library prefers.
#pragma once

#include <cmath>
#include <dnnl.hpp>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/bench/peers/worker.hpp"

namespace bp::bench::onednn {

using Dims = dnnl::memory::dims;
using Tag = dnnl::memory::format_tag;
using Type = dnnl::memory::data_type;
using Desc = dnnl::memory::desc;

inline const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

inline Tag plain_tag(size_t rank) {
  constexpr Tag kTags[] = {Tag::a, Tag::ab, Tag::abc, Tag::abcd, Tag::abcde, Tag::abcdef};
  return kTags[rank - 1];
}

inline Desc plain(const Dims& dims, Type type = Type::f32) {
  return {dims, type, plain_tag(dims.size())};
}

inline dnnl::memory filled(const Desc& desc, int64_t s) {
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

inline double mean_abs(const dnnl::memory& memory) {
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

inline Ready ready(Program program) {
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

// Adds the cases of images: convolutions, pools, norms over channels, resampling.
void add_image_cases(std::vector<Case>& cases);

}  // namespace bp::bench::onednn
