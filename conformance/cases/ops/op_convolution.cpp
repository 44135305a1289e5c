// Cases of convolution and its gradients for input, weight and bias, and of transposed convolution.
#include <set>

#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/reference/convolution.hpp"

namespace bp::conformance {
namespace {

using enum Layout;
using reference::ConvolutionGeometry;
using reference::Window;

// One geometry: x (n, c, spatial), o outputs, and the attributes.
struct Geometry {
  Shape x;
  int64_t o;
  Shape kernel;
  Shape stride, padding, dilation;  // An empty list stands for 1, 0 and 1 on every axis.
  int64_t groups = 1;
  bool has_bias = true;
};

const std::vector<Geometry>& geometries() {
  static const std::vector<Geometry> all = {
      {{1, 1, 5}, 1, {3}},
      {{2, 3, 17}, 5, {3}, {2}, {1, 1}},
      {{1, 4, 9}, 4, {3}, {}, {2, 0}, {2}, 2},
      {{1, 1, 1, 1}, 1, {1, 1}},
      {{1, 3, 5, 7}, 4, {1, 1}},
      {{2, 3, 8, 9}, 5, {3, 3}, {}, {1, 1, 1, 1}},
      {{1, 16, 6, 6}, 16, {3, 3}, {}, {1, 1, 1, 1}},
      {{1, 32, 4, 3}, 32, {2, 1}},  // The channels fill tiles of matrix units.
      {{1, 17, 5, 5}, 9, {3, 3}, {}, {}, {}, 1, false},
      {{2, 4, 9, 7}, 6, {3, 2}, {2, 1}, {1, 0, 0, 1}},
      {{1, 4, 9, 9}, 6, {3, 3}, {}, {2, 2, 2, 2}, {2, 2}, 2},
      {{1, 6, 7, 7}, 6, {3, 3}, {}, {1, 1, 1, 1}, {}, 6, false},
      {{1, 2, 5, 5}, 3, {5, 5}},
      {{1, 2, 4, 4}, 3, {3, 3}, {3, 3}, {0, 1, 1, 0}},
      {{0, 2, 5, 5}, 3, {3, 3}},
      {{1, 0, 5, 5}, 3, {3, 3}},
      {{1, 2, 5, 5}, 0, {3, 3}},
      {{1, 2, 0, 5}, 3, {2, 3}, {}, {1, 0, 1, 0}},  // Some windows hold only padding.
      {{1, 2, 4, 5, 6}, 3, {2, 3, 2}, {1, 2, 1}, {1, 0, 0, 0, 1, 1}},
      {{2, 2, 3, 4, 3}, 4, {3, 2, 1}, {}, {}, {1, 2, 1}, 2},
  };
  return all;
}

ConvolutionGeometry resolve(const Geometry& g) {
  const size_t rank = g.kernel.size();
  ConvolutionGeometry full;
  full.window.kernel_size = g.kernel;
  full.window.stride = g.stride.empty() ? Shape(rank, 1) : g.stride;
  full.window.padding = g.padding.empty() ? Shape(2 * rank, 0) : g.padding;
  full.window.dilation = g.dilation.empty() ? Shape(rank, 1) : g.dilation;
  full.groups = g.groups;
  full.x = g.x;
  full.weight = {g.o, g.x[1] / g.groups};
  full.weight.insert(full.weight.end(), g.kernel.begin(), g.kernel.end());
  full.y = {g.x[0], g.o};
  const Shape windows = full.window.output(full.spatial());
  full.y.insert(full.y.end(), windows.begin(), windows.end());
  return full;
}

std::string joined(const char* name, const Shape& values) {
  return values.empty() ? "" : std::string("_") + name + shape_text(values);
}

std::string detail_of(const Geometry& g) {
  std::string text = shape_text(g.x) + "_o" + std::to_string(g.o) + joined("k", g.kernel);
  text += joined("s", g.stride) + joined("p", g.padding) + joined("d", g.dilation);
  if (g.groups != 1) text += "_g" + std::to_string(g.groups);
  return text + (g.has_bias ? "_bias" : "");
}

void set_attributes(OpCase& made, const ConvolutionGeometry& g) {
  made.set("stride", g.window.stride).set("padding", g.window.padding);
  made.set("dilation", g.window.dilation).set("groups", g.groups);
}

// Returns the number of terms of each result, which is the result for tensors of ones.
template <typename N, typename Run>
double term_count(Run run) {
  const Array<N> counts = run();
  double most = 1;
  for (const N& count : counts.data) most = std::fmax(most, exact_of(count).hi);
  return most;
}

template <typename N>
Array<N> ones(const Shape& shape) {
  Array<N> result(shape);
  for (N& value : result.data) value = N(1);
  return result;
}

// Returns the geometry of a call, by the names of its tensors.
ConvolutionGeometry geometry_of(const CallData& data, const char* x, const char* weight,
                                const char* y) {
  ConvolutionGeometry g;
  g.x = data.tensor(x).shape;
  g.weight = data.tensor(weight).shape;
  g.y = data.tensor(y).shape;
  g.window = {Shape(g.weight.begin() + 2, g.weight.end()), data.list("stride"),
              data.list("padding"), data.list("dilation")};
  g.groups = data.integer("groups");
  return g;
}

std::vector<Expected> expected_forward(const CallData& data, const Numerics& numerics) {
  const ConvolutionGeometry g = geometry_of(data, "x", "weight", "y");
  return with_float(data.tensor("y").dtype, [&]<typename N>(N) {
    const Array<N> x = data.array<N>("x"), weight = data.array<N>("weight");
    const bool has_bias = data.has("bias");
    const Array<N> bias = has_bias ? data.array<N>("bias") : Array<N>();
    const Array<N> size = absolute(bias);
    const double count = static_cast<double>(element_count(std::span(g.weight).subspan(1)));
    return judged_sum(
        data, reference::convolution(g, x, weight, has_bias ? &bias : nullptr),
        reference::convolution(g, absolute(x), absolute(weight), has_bias ? &size : nullptr),
        count + has_bias, numerics);
  });
}

std::vector<Expected> expected_input(const CallData& data, const Numerics& numerics) {
  const ConvolutionGeometry g = geometry_of(data, "grad_x", "weight", "grad_y");
  return with_float(data.tensor("grad_x").dtype, [&]<typename N>(N) {
    const Array<N> grad = data.array<N>("grad_y"), weight = data.array<N>("weight");
    const double count = term_count<N>(
        [&] { return reference::convolution_backward_input(g, ones<N>(g.y), ones<N>(g.weight)); });
    return judged_sum(data, reference::convolution_backward_input(g, grad, weight),
                      reference::convolution_backward_input(g, absolute(grad), absolute(weight)),
                      count, numerics);
  });
}

std::vector<Expected> expected_weight(const CallData& data, const Numerics& numerics) {
  const ConvolutionGeometry g = geometry_of(data, "x", "grad_weight", "grad_y");
  return with_float(data.tensor("grad_weight").dtype, [&]<typename N>(N) {
    const Array<N> grad = data.array<N>("grad_y"), x = data.array<N>("x");
    const double count = term_count<N>(
        [&] { return reference::convolution_backward_weight(g, ones<N>(g.y), ones<N>(g.x)); });
    return judged_sum(data, reference::convolution_backward_weight(g, grad, x),
                      reference::convolution_backward_weight(g, absolute(grad), absolute(x)), count,
                      numerics);
  });
}

std::vector<Expected> expected_bias(const CallData& data, const Numerics& numerics) {
  return with_float(data.tensor("grad_bias").dtype, [&]<typename N>(N) {
    const Array<N> grad = data.array<N>("grad_y");
    const double outputs = static_cast<double>(grad.shape[1]);
    return judged_sum(data, reference::convolution_backward_bias(grad),
                      reference::convolution_backward_bias(absolute(grad)),
                      static_cast<double>(grad.size()) / outputs, numerics);
  });
}

// A transposed convolution makes the x of the geometry from its y.
std::vector<Expected> expected_transpose(const CallData& data, const Numerics& numerics) {
  const ConvolutionGeometry g = geometry_of(data, "y", "weight", "x");
  return with_float(data.tensor("y").dtype, [&]<typename N>(N) {
    const Array<N> x = data.array<N>("x"), weight = data.array<N>("weight");
    const bool has_bias = data.has("bias");
    const Array<N> bias = has_bias ? data.array<N>("bias") : Array<N>();
    const Array<N> size = absolute(bias);
    const double count = term_count<N>(
        [&] { return reference::convolution_backward_input(g, ones<N>(g.y), ones<N>(g.weight)); });
    return judged_sum(data,
                      reference::convolution_transpose(g, x, weight, has_bias ? &bias : nullptr),
                      reference::convolution_transpose(g, absolute(x), absolute(weight),
                                                       has_bias ? &size : nullptr),
                      count + has_bias, numerics);
  });
}

// Returns by how much x is larger than what the windows of the geometry cover.
Shape output_padding_of(const ConvolutionGeometry& g) {
  Shape extra(g.spatial().begin(), g.spatial().end());
  const Window& w = g.window;
  for (size_t i = 0; i < extra.size(); ++i) {
    extra[i] += w.padding[i] + w.padding[i + extra.size()];
    extra[i] -= (g.y[2 + i] - 1) * w.stride[i] + w.dilation[i] * (w.kernel_size[i] - 1) + 1;
  }
  return extra;
}

struct Setting {
  bp_dtype dtype;
  std::string fill;
  bool is_smoke;
};

class Rows {
 public:
  Rows(OpCases& cases, const Setting& setting) : cases_(cases), setting_(setting) {
    if (setting.fill == "exact_dense") first_ = kExactDense, second_ = kExactNarrow;
    if (setting.fill == "onehot") first_ = kCoord, second_ = kOneHot;
  }

  // The layouts are those of the first input, the second input, and the output.
  void add(const Geometry& geometry, Layout a, Layout b, Layout y) {
    const ConvolutionGeometry g = resolve(geometry);
    const bp_dtype dtype = setting_.dtype;
    const Shape spatial(g.x.begin() + 2, g.x.end());
    OpCase forward = start(BP_OP_CONVOLUTION, geometry, a, b, y);
    forward.input("x", dtype, g.x, first_, a).input("weight", dtype, g.weight, second_, b);
    if (geometry.has_bias) add_bias(forward, geometry.o, a);
    forward.output("y", dtype, g.y, y).reference = expected_forward;
    finish(std::move(forward), g);

    OpCase input = start(BP_OP_CONVOLUTION_BACKWARD_INPUT, geometry, a, b, y);
    input.input("grad_y", dtype, g.y, first_, a).input("weight", dtype, g.weight, second_, b);
    input.output("grad_x", dtype, g.x, y).set("input_size", spatial);
    input.reference = expected_input;
    finish(std::move(input), g);

    OpCase weight = start(BP_OP_CONVOLUTION_BACKWARD_WEIGHT, geometry, a, b, y);
    weight.input("grad_y", dtype, g.y, first_, a).input("x", dtype, g.x, second_, b);
    weight.output("grad_weight", dtype, g.weight, y).set("kernel_size", geometry.kernel);
    weight.reference = expected_weight;
    finish(std::move(weight), g);

    add_transpose(geometry, a, b, y);

    if (!geometry.has_bias || setting_.fill == "onehot") return;
    OpCase bias = start(BP_OP_CONVOLUTION_BACKWARD_BIAS, geometry, a, b, y);
    bias.detail = shape_text(g.y);
    bias.input("grad_y", dtype, g.y, first_, a);
    bias.output("grad_bias", dtype, {geometry.o}, y == kTransposed ? kDense : y);
    bias.reference = expected_bias;
    add_once(std::move(bias));
  }

 private:
  // The layouts are those of x, the weight, and y.
  void add_transpose(const Geometry& geometry, Layout a, Layout b, Layout y) {
    const ConvolutionGeometry g = resolve(geometry);
    const bp_dtype dtype = setting_.dtype;
    OpCase made = start(BP_OP_CONVOLUTION_TRANSPOSE, geometry, a, b, y);
    made.input("x", dtype, g.y, first_, a).input("weight", dtype, g.weight, second_, b);
    if (geometry.has_bias) add_bias(made, g.x[1], a);
    made.output("y", dtype, g.x, y).reference = expected_transpose;
    made.set("output_padding", output_padding_of(g));
    finish(std::move(made), g);
  }

  void add_bias(OpCase& made, int64_t outputs, Layout a) const {
    made.input("bias", setting_.dtype, {outputs}, setting_.fill == "random" ? kRandom : kExactDense,
               a == kOffset ? kOffset : kDense);
  }

  OpCase start(uint32_t op, const Geometry& geometry, Layout a, Layout b, Layout y) {
    const bool is_dense = a == kDense && b == kDense && y == kDense;
    const std::string layout =
        is_dense ? "dense"
                 : std::string(layout_text(a)) + "_" + layout_text(b) + "_to_" + layout_text(y);
    return make_case(op, setting_.dtype, setting_.fill, detail_of(geometry), layout);
  }

  void finish(OpCase made, const ConvolutionGeometry& g) {
    set_attributes(made, g);
    add_once(std::move(made));
  }

  // Two geometries can have the same shape of grad_y.
  void add_once(OpCase made) {
    made.is_exact = setting_.fill != "random";
    made.is_smoke = setting_.is_smoke;
    made.varies = false;  // Gradients are zero for elements that a stride or a tap leaves out.
    if (ids_.insert(made.id()).second) cases_.push_back(std::move(made));
  }

  OpCases& cases_;
  std::set<std::string> ids_;  // An id names the fill and the dtype, so it also names the setting.
  const Setting& setting_;
  Fill first_ = kRandom, second_ = kRandom;
};

}  // namespace

void add_convolution(OpCases& cases) {
  const Geometry plain = geometries()[5], grouped = geometries()[9], line = geometries()[1];
  for (const bp_dtype dtype : {BP_F32, BP_F64, BP_F16, BP_BF16}) {
    for (const char* fill : {"exact_dense", "random", "onehot"}) {
      const Setting setting{dtype, fill, dtype == BP_F32 || dtype == BP_F64};
      Rows rows(cases, setting);
      for (const Geometry& geometry : geometries()) rows.add(geometry, kDense, kDense, kDense);
      if (setting.fill == "random") continue;
      const bool is_onehot = setting.fill == "onehot";
      rows.add(plain, is_onehot ? kTransposed : kPermuted, kDense, kDense);
      rows.add(plain, kSliced, kDense, kSliced);
      rows.add(line, kDense, kTransposed, kDense);
      if (is_onehot) continue;
      rows.add(plain, kOffset, kOffset, kOffset);
      rows.add(grouped, kStepped, kDense, kDense);
      rows.add(plain, kBroadcastFirst, kDense, kDense);
      rows.add(plain, kDense, kDense, kTransposed);
      rows.add(grouped, kNegative, kSliced, kDense);
    }
  }
}

}  // namespace bp::conformance
