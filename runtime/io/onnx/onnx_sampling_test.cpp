// Sampling at given positions, and Col2Im, for other numbers of axes than ONNX's own tests have.
#include "backplane/runtime/ops.hpp"
#include "runtime/io/onnx/run_node.hpp"

namespace bp::onnx {
namespace {

TEST(OnnxSampling, GridsMayHaveOneAxisOrThree) {
  const auto is = attribute("align_corners", int64_t{1});
  const Tensor line = floats({0, 10, 20}, {1, 1, 3}), at = floats({-1, 0.5, 2}, {1, 3, 1});
  const auto sampled = [&](Attributes attributes) {
    attributes.push_back(is);
    return values(run_node(20, "GridSample", {line, at}, attributes)[0]);
  };
  EXPECT_EQ(sampled({}), (Floats{0, 15, 0}));
  EXPECT_EQ(sampled({attribute("padding_mode", "border")}), (Floats{0, 15, 20}));
  EXPECT_EQ(sampled({attribute("padding_mode", "reflection")}), (Floats{0, 15, 10}));
  EXPECT_EQ(sampled({attribute("mode", "nearest")}), (Floats{0, 20, 0}));
  EXPECT_THROW(sampled({attribute("mode", "round")}), Error);
  EXPECT_THROW(sampled({attribute("padding_mode", "none")}), Error);
  // (x, y, z) is (0, 1, -1): half of the last axis, the end of the middle one, the first plane.
  const Tensor cube = floats({0, 1, 2, 3, 4, 5, 6, 7}, {1, 1, 2, 2, 2});
  const Tensor place = floats({0, 1, -1}, {1, 1, 1, 1, 3});
  EXPECT_EQ(values(run_node(20, "GridSample", {cube, place}, {is})[0]), Floats{2.5});
  EXPECT_THROW(run_node(20, "GridSample", {cube, at}, {is}), Error);
}

TEST(OnnxSampling, LargePlanesAreReadAtTheRightPlace) {
  // A place behind 2^24 elements is no f32 any more.
  const int64_t width = 4099, height = 4100;
  const Tensor places = bp::arange(height * width, BP_I32, test_device());
  const Tensor x = eq(places, height * width - 1).to(BP_F32).reshape({1, 1, height, width});
  const Tensor y =
      run_node(20, "GridSample", {x, floats({1, 1}, {1, 1, 1, 2})},
               {attribute("mode", "nearest"), attribute("align_corners", int64_t{1})})[0];
  EXPECT_EQ(values(y), Floats{1});
}

TEST(OnnxSampling, AffineGridsGiveTheCoordinatesOfTheLastAxisFirst) {
  const Tensor theta = floats({1, 0, 0.5, 0, 2, 0}, {1, 2, 3});
  const auto grid = [&](const Ints& size, int64_t aligned) {
    return run_node(20, "AffineGrid", {theta, ints(size, {static_cast<int64_t>(size.size())})},
                    {attribute("align_corners", aligned)})[0];
  };
  EXPECT_EQ(values(grid({1, 1, 2, 1}, 1)), (Floats{-0.5, -2, -0.5, 2}));
  EXPECT_EQ(values(grid({1, 1, 2, 1}, 0)), (Floats{0.5, -1, 0.5, 1}));
  EXPECT_EQ(grid({1, 1, 2, 3}, 0).shape(), IntList({1, 2, 3, 2}));
  EXPECT_THROW(grid({1, 1, 2, 2, 2}, 0), Error);
}

TEST(OnnxSampling, AConvolutionWithoutOffsetsIsAConvolution) {
  Floats elements(160);
  for (size_t i = 0; i < elements.size(); ++i) elements[i] = std::sin(static_cast<float>(i * i));
  const Tensor x = floats(elements, {2, 4, 5, 4});
  const Tensor weight = floats({elements.begin(), elements.begin() + 72}, {6, 2, 2, 3});
  const Tensor bias = floats({1, 2, 3, 4, 5, 6}, {6});
  const Attributes attributes = {
      attribute("group", int64_t{2}), attribute("pads", Ints{1, 0, 2, 1}),
      attribute("strides", Ints{2, 1}), attribute("dilations", Ints{2, 1})};
  const Tensor expected = run_node(19, "Conv", {x, weight, bias}, attributes)[0];
  Attributes more = attributes;
  more.push_back(attribute("offset_group", int64_t{2}));
  const IntList shape = expected.shape();
  const Tensor offset =
      floats(Floats(static_cast<size_t>(48 * shape[2] * shape[3])), {2, 24, shape[2], shape[3]});
  const auto deformed = [&](const Tensor& moved, const Tensor& mask) {
    return run_node(19, "DeformConv", {x, weight, moved, bias, mask}, more)[0];
  };
  EXPECT_EQ(deformed(offset, Tensor()).shape(), shape);
  expect_near(deformed(offset, Tensor()), values(expected));
  const Tensor half = full({2, 12, shape[2], shape[3]}, 0.5, BP_F32, test_device());
  const Tensor spread = bias.reshape({6, 1, 1});
  expect_near(deformed(offset, half), values((expected - spread) * 0.5 + spread));
  EXPECT_NE(values(deformed(offset + 0.5, Tensor())), values(expected));
  EXPECT_THROW(deformed(offset.narrow(1, 0, 12).contiguous(), Tensor()), Error);
}

TEST(OnnxSampling, ColumnsAreAddedToImagesOfAnyRank) {
  const auto image = [](const Floats& columns, IntList shape, const Ints& size, const Ints& block,
                        const Attributes& attributes = {}) {
    const auto axes = static_cast<int64_t>(size.size());
    return values(run_node(18, "Col2Im",
                           {floats(columns, shape), ints(size, {axes}), ints(block, {axes})},
                           attributes)[0]);
  };
  EXPECT_EQ(image({1, 2, 3, 10, 20, 30}, {1, 2, 3}, {4}, {2}), (Floats{1, 12, 23, 30}));
  EXPECT_EQ(image({1, 2, 3, 10, 20, 30}, {1, 2, 3}, {3}, {2}, {attribute("pads", Ints{1, 0})}),
            (Floats{12, 23, 30}));
  const Floats columns = {1, 2, 10, 20}, expected = {1, 10, 2, 20};
  EXPECT_EQ(image(columns, {1, 2, 2}, {2, 2}, {1, 2}), expected);
  EXPECT_EQ(image(columns, {1, 2, 2}, {1, 2, 2}, {1, 1, 2}), expected);
  EXPECT_THROW(image(columns, {1, 2, 2}, {2, 2}, {2, 2}), Error);
  EXPECT_THROW(image(columns, {1, 2, 2}, {1, 2}, {3, 3}), Error);
  EXPECT_THROW(image(columns, {1, 2, 2}, {2, 2}, {1, INT64_MAX}), Error);
  EXPECT_THROW(image(columns, {1, 2, 2}, {2, 2}, {1, 2}, {attribute("pads", Ints{-1, 0, 0, 0})}),
               Error);
}

}  // namespace
}  // namespace bp::onnx
