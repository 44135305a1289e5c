#include "runtime/bench/peers/backplane/suite.hpp"

namespace bp::bench {
namespace {

struct Convolution {
  Shape x, weight;
  int64_t stride = 1, padding = 0, groups = 1, dilation = 1;
  bp_dtype dtype = BP_F32;
};

enum class Part { kY, kX, kWeight };

Shape spatial(const Shape& shape) { return {shape.begin() + 2, shape.end()}; }

Shape y_of(const Convolution& c) {
  Shape y = {c.x[0], c.weight[0]};
  for (size_t i = 2; i < c.x.size(); ++i) {
    const int64_t window = c.dilation * (c.weight[i] - 1) + 1;
    y.push_back((c.x[i] + 2 * c.padding - window) / c.stride + 1);
  }
  return y;
}

Op op_of(const Convolution& c, Part part) {
  if (part == Part::kX) {
    return [g = input(y_of(c), 0, c.dtype), w = input(c.weight, 1, c.dtype), c] {
      return convolution_backward_input(g, w, spatial(c.x), {c.stride}, {c.padding}, {c.dilation},
                                        c.groups);
    };
  }
  if (part == Part::kWeight) {
    return [g = input(y_of(c), 0, c.dtype), x = input(c.x, 1, c.dtype), c] {
      return convolution_backward_weight(g, x, spatial(c.weight), {c.stride}, {c.padding},
                                         {c.dilation}, c.groups);
    };
  }
  return [x = input(c.x, 0, c.dtype), w = input(c.weight, 1, c.dtype), c] {
    return convolution(x, w, {}, {c.stride}, {c.padding}, {c.dilation}, c.groups);
  };
}

// Adds a convolution, or its gradients too.
void add_convolution(Suite& s, const std::string& name, const Convolution& c,
                     bool has_gradients = false) {
  const Shape y = y_of(c);
  const double flops = 2 * size_of(y) * size_of(c.weight) / static_cast<double>(c.weight[0]);
  const double bytes = width_of(c.dtype) * (size_of(c.x) + size_of(c.weight) + size_of(y));
  const std::string full = "convolution " + dtype_text(c.dtype) + " " + name;
  s.add(full, bytes, flops, [c] { return op_of(c, Part::kY); });
  if (!has_gradients) return;
  s.add(full + ", for x", bytes, flops, [c] { return op_of(c, Part::kX); });
  s.add(full + ", for weight", bytes, flops, [c] { return op_of(c, Part::kWeight); });
}

void add_images(Suite& s) {
  const Convolution first = {{8, 3, 224, 224}, {64, 3, 7, 7}, 2, 3};
  const Convolution middle = {{8, 64, 56, 56}, {64, 64, 3, 3}, 1, 1};
  add_convolution(s, "8x3x224x224, 64 of 7x7, stride 2", first);
  add_convolution(s, "8x64x56x56, 64 of 3x3", middle);
  add_convolution(s, "8x256x56x56, 64 of 1x1", {{8, 256, 56, 56}, {64, 256, 1, 1}});
  add_convolution(s, "8x128x28x28, 128 of 3x3", {{8, 128, 28, 28}, {128, 128, 3, 3}, 1, 1}, true);
  add_convolution(s, "8x512x7x7, 512 of 3x3", {{8, 512, 7, 7}, {512, 512, 3, 3}, 1, 1});
  add_convolution(s, "8x256x56x56, 512 of 1x1, stride 2", {{8, 256, 56, 56}, {512, 256, 1, 1}, 2});
  add_convolution(s, "1x64x57x61, 64 of 3x3", {{1, 64, 57, 61}, {64, 64, 3, 3}, 1, 1});
  add_convolution(s, "8x64x56x56, 64 of 3x3, dilation 2",
                  {{8, 64, 56, 56}, {64, 64, 3, 3}, 1, 2, 1, 2});
  add_convolution(s, "8x256x28x28, 256 of 3x3, 32 groups",
                  {{8, 256, 28, 28}, {256, 8, 3, 3}, 1, 1, 32});
  add_convolution(s, "8x144x56x56, 144 of 3x3, depthwise",
                  {{8, 144, 56, 56}, {144, 1, 3, 3}, 1, 1, 144}, true);
  Convolution bf16 = middle;
  bf16.dtype = BP_BF16;
  add_convolution(s, "8x64x56x56, 64 of 3x3", bf16, true);
}

void add_other_ranks(Suite& s) {
  add_convolution(s, "8x256x1024, 256 of 3", {{8, 256, 1024}, {256, 256, 3}, 1, 1}, true);
  add_convolution(s, "1x512x3000, 512 of 3, stride 2", {{1, 512, 3000}, {512, 512, 3}, 2, 1});
  add_convolution(s, "2x16x16x56x56, 32 of 3x3x3", {{2, 16, 16, 56, 56}, {32, 16, 3, 3, 3}, 1, 1});
}

void add_transposed(Suite& s) {
  const Shape x = {8, 128, 14, 14}, weight = {128, 64, 4, 4}, y = {8, 64, 28, 28};
  const std::string text = " f32 8x128x14x14, 64 of 4x4, stride 2";
  const double bytes = 4 * (size_of(x) + size_of(weight) + size_of(y));
  const double flops = 2 * size_of(x) * size_of(weight) / 128;
  s.add("convolution_transpose" + text, bytes, flops, [=] {
    return
        [a = input(x), w = input(weight, 1)] { return convolution_transpose(a, w, {}, {2}, {1}); };
  });
  s.add_backward("convolution_transpose backward" + text, 2 * bytes, 2 * flops, [=] {
    const Tensor a = leaf(x), w = leaf(weight, 1);
    return Recorded{{a, w}, convolution_transpose(a, w, {}, {2}, {1})};
  });
}

}  // namespace

void add_convolutions(Suite& s) {
  add_images(s);
  add_other_ranks(s);
  add_transposed(s);
}

}  // namespace bp::bench
