// The ops that take windows or positions of images.
#include "runtime/bench/peers/backplane/suite.hpp"

namespace bp::bench {
namespace {

const Shape kLarge = {8, 64, 112, 112}, kImage = {8, 64, 56, 56}, kHalf = {8, 64, 28, 28};

void add_pools(Suite& s) {
  const double large = size_of(kLarge), image = size_of(kImage), half = size_of(kHalf);
  s.add("max_pool f32 8x64x112x112, 3x3, stride 2", 4 * (large + image), 9 * image,
        [] { return [x = input(kLarge)] { return max_pool(x, {3}, {2}, {1}); }; });
  s.add("avg_pool f32 8x64x56x56, 2x2", 4 * (image + half), 4 * half,
        [] { return [x = input(kImage)] { return avg_pool(x, {2}, {2}); }; });
  s.add("max_pool bf16 8x64x112x112, 3x3, stride 2", 2 * (large + image), 9 * image,
        [] { return [x = input(kLarge, 0, BP_BF16)] { return max_pool(x, {3}, {2}, {1}); }; });
  s.add("max_pool backward f32 8x64x112x112, 3x3, stride 2", 4 * (large + image) + 8 * image, image,
        [] {
          Tensor places;
          max_pool(input(kLarge), {3}, {2}, {1}, {}, &places);
          return [g = input(kImage, 1), places] {
            return max_pool_backward(g, places, {112, 112});
          };
        });
  s.add("avg_pool f32 8x64x56x56, 3x3, stride 1", 8 * image, 9 * image,
        [] { return [x = input(kImage)] { return avg_pool(x, {3}, {1}, {1}); }; });
  s.add("avg_pool backward f32 8x64x56x56, 2x2", 4 * (image + half), image, [] {
    return [g = input(kHalf)] { return avg_pool_backward(g, {56, 56}, {2}, {2}); };
  });
  s.add("max_pool f32 16x64x2049, 2", 4 * 1.5 * 16 * 64 * 2049, 16 * 64 * 2048, [] {
    return [x = input({16, 64, 2049})] { return max_pool(x, {2}, {2}); };
  });
}

void add_adaptive_pools(Suite& s) {
  const double image = size_of(kImage), small = 8 * 64 * 49, last = 8 * 2048 * 49;
  s.add("adaptive_avg_pool f32 8x2048x7x7 to 1x1", 4 * last, last, [] {
    return [x = input({8, 2048, 7, 7})] { return adaptive_avg_pool(x, {1, 1}); };
  });
  s.add("adaptive_avg_pool f32 8x64x56x56 to 7x7", 4 * (image + small), image, [] {
    return [x = input(kImage)] { return adaptive_avg_pool(x, {7, 7}); };
  });
  s.add("adaptive_avg_pool backward f32 8x64x56x56 to 7x7", 4 * (image + small), image, [] {
    return [g = input({8, 64, 7, 7})] { return adaptive_avg_pool_backward(g, {56, 56}); };
  });
  s.add("adaptive_max_pool f32 8x64x56x56 to 7x7", 4 * (image + small), image, [] {
    return [x = input(kImage)] { return adaptive_max_pool(x, {7, 7}); };
  });
}

void add_windows(Suite& s) {
  const double image = size_of(kImage);
  s.add("unfold f32 8x64x56x56, 3x3", 40 * image, 0,
        [] { return [x = input(kImage)] { return unfold(x, {3}, {1}, {1}); }; });
  s.add("fold f32 8x64x56x56, 3x3", 40 * image, 9 * image, [] {
    return [x = input({8, 576, 3136})] { return fold(x, {56, 56}, {3}, {1}, {1}); };
  });
}

void add_interpolation(Suite& s, const std::string& name, Interpolation mode,
                       Coordinates coordinates, double flops) {
  const double bytes = 4 * (size_of(kHalf) + size_of(kImage));
  s.add("interpolate " + name + " f32 8x64x28x28 to 56x56", bytes, flops * size_of(kImage), [=] {
    return [=, x = input(kHalf)] {
      return interpolate(x, {56, 56}, mode, coordinates, Rounding::kFloor);
    };
  });
  s.add("interpolate " + name + " backward f32 8x64x28x28 to 56x56", bytes, flops * size_of(kImage),
        [=] {
          return [=, g = input(kImage)] {
            return interpolate_backward(g, {28, 28}, mode, coordinates, Rounding::kFloor);
          };
        });
}

}  // namespace

void add_pooling(Suite& s) {
  add_pools(s);
  add_adaptive_pools(s);
  add_windows(s);
  add_interpolation(s, "nearest", Interpolation::kNearest, Coordinates::kAsymmetric, 1);
  add_interpolation(s, "bilinear", Interpolation::kLinear, Coordinates::kHalfPixel, 7);
  const Shape from = {8, 3, 333, 500}, to = {8, 3, 224, 224};
  s.add("interpolate bilinear f32 8x3x333x500 to 224x224", 4 * (size_of(from) + size_of(to)),
        7 * size_of(to), [=] {
          return [x = input(from)] {
            return interpolate(x, {224, 224}, Interpolation::kLinear, Coordinates::kHalfPixel);
          };
        });
}

}  // namespace bp::bench
