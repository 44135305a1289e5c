// Operators as ONNX's own tests do not cover them: newer opsets, and rare attributes.
#include "runtime/io/onnx/run_node.hpp"

namespace bp::onnx {
namespace {

TEST(OnnxOps, ReductionsTakeAxesAsAnInputFromOpset18On) {
  const Tensor x = floats({1, 2, 3, 4}, {2, 2});
  EXPECT_EQ(values(run_node(18, "ReduceMax", {x, ints({0}, {1})})[0]), (Floats{3, 4}));
  EXPECT_EQ(values(run_node(18, "ReduceProd", {x, ints({-1}, {1})})[0]), (Floats{2, 12}));
  EXPECT_EQ(values(run_node(18, "ReduceMin", {x})[0]), Floats{1});
  EXPECT_EQ(
      values(run_node(18, "ReduceMean", {x}, {attribute("noop_with_empty_axes", int64_t{1})})[0]),
      (Floats{1, 2, 3, 4}));
  EXPECT_THROW(run_node(18, "ReduceMax", {x}, {attribute("axes", Ints{0})}), Error);
}

TEST(OnnxOps, ExtremesOfNoElementsAreTheEndsOfTheDtype) {
  const Tensor x = floats({}, {2, 0, 2}), axis = ints({1}, {1});
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(values(run_node(20, "ReduceMax", {x, axis})[0]), Floats(4, -infinity));
  EXPECT_EQ(values(run_node(20, "ReduceMin", {x, axis})[0]), Floats(4, infinity));
  EXPECT_EQ(run_node(20, "ReduceMin", {x, axis})[0].shape(), IntList({2, 1, 2}));
  const Tensor whole = ints({}, {0});
  EXPECT_EQ(run_node(20, "ReduceMax", {whole})[0].item<int64_t>(), INT64_MIN);
  EXPECT_EQ(run_node(20, "ReduceMin", {whole})[0].item<int64_t>(), INT64_MAX);
  EXPECT_EQ(run_node(20, "ReduceMax", {x.to(BP_U8), axis})[0].to(BP_I64).to_vector<int64_t>(),
            Ints(4));
}

TEST(OnnxOps, OperatorsOfOpsetsFrom23OnTakeTheirNewAttributes) {
  const Tensor x = floats({-1.5, 2.5}, {2});
  const auto zero = [](const char* name) { return attribute(name, int64_t{0}); };
  EXPECT_EQ(
      run_node(24, "Cast", {x}, {attribute("to", int64_t{7}), attribute("round_mode", "up")})[0]
          .to_vector<int64_t>(),
      (Ints{-1, 2}));
  EXPECT_THROW(
      run_node(21, "Cast", {x}, {attribute("to", int64_t{7}), attribute("round_mode", "up")}),
      Error);
  const Tensor scale = floats({0.5}, {}),
               codes = run_node(23, "QuantizeLinear", {x, scale},
                                {attribute("output_dtype", int64_t{3}), zero("precision")})[0];
  EXPECT_EQ(values(codes), (Floats{-3, 5}));
  EXPECT_EQ(
      run_node(23, "DequantizeLinear", {codes, scale}, {attribute("output_dtype", int64_t{10})})[0]
          .dtype(),
      BP_F16);
  EXPECT_THROW(run_node(23, "QuantizeLinear", {x, scale}, {attribute("precision", int64_t{10})}),
               Error);
  EXPECT_EQ(values(run_node(27, "Range", {floats({1}, {}), floats({2}, {}), floats({0.5}, {})},
                            {attribute("stash_type", int64_t{1})})[0]),
            (Floats{1, 1.5}));
}

TEST(OnnxOps, OperatorsThatCameWithOpsets23And24AreThere) {
  const Tensor x = floats({3, 4}, {1, 2});
  const float root = std::sqrt(12.5F);
  expect_near(
      run_node(23, "RMSNormalization", {x, floats({1, 2}, {2})}, {attribute("epsilon", 0.F)})[0],
      {3 / root, 8 / root});
  const auto swish = [](float v, float alpha) { return v / (1 + std::exp(-alpha * v)); };
  expect_near(run_node(24, "Swish", {x})[0], {swish(3, 1), swish(4, 1)});
  expect_near(run_node(24, "Swish", {x}, {attribute("alpha", 0.5F)})[0],
              {swish(3, 0.5), swish(4, 0.5)});
}

TEST(OnnxOps, TheRestOfFloatsHasTheSignOfTheDivisorFromOpset28On) {
  const Tensor a = floats({-5, 5}, {2}), b = floats({3, -3}, {2});
  EXPECT_EQ(values(run_node(28, "Mod", {a, b})[0]), (Floats{1, -1}));
  EXPECT_EQ(values(run_node(28, "Mod", {a, b}, {attribute("fmod", int64_t{1})})[0]),
            (Floats{-2, 2}));
  EXPECT_THROW(run_node(13, "Mod", {a, b}), Error);
}

TEST(OnnxOps, AnInverseTransformMayGiveRealNumbers) {
  const auto is = [](const char* name) { return attribute(name, int64_t{1}); };
  const Tensor x = floats({1, 4, 2, 5, 3}, {1, 5, 1}), length = ints({5}, {});
  const Tensor half = run_node(17, "DFT", {x}, {is("onesided")})[0];
  const Attributes inverse = {is("inverse"), is("onesided")};
  const Tensor back = run_node(17, "DFT", {half, length}, inverse)[0];
  EXPECT_EQ(back.shape(), IntList({1, 5, 1}));
  expect_near(back, {1, 4, 2, 5, 3});
  EXPECT_EQ(run_node(17, "DFT", {half}, inverse)[0].shape(), IntList({1, 4, 1}));
  EXPECT_THROW(run_node(17, "DFT", {x}, inverse), Error);
}

TEST(OnnxOps, OneDirectionTakesTheDefaultActivationsOfTwo) {
  const Tensor x = floats({1}, {1, 1, 1}), w = floats({0.5}, {1, 1, 1}), r = floats({0}, {1, 1, 1});
  const auto rnn = [&](const Attributes& attributes) {
    return values(run_node(22, "RNN", {x, w, r}, attributes)[0]);
  };
  EXPECT_EQ(rnn({attribute("hidden_size", int64_t{1}),
                 attribute("activations", std::vector<std::string>{"Tanh", "Tanh"})}),
            rnn({attribute("hidden_size", int64_t{1})}));
}

TEST(OnnxOps, ExtremesOfIntegersAreRightAtTheEndsOfTheirRange) {
  const Tensor x = ints({INT64_MIN, 0, INT64_MAX}, {3});
  EXPECT_EQ(run_node(18, "ReduceMin", {x})[0].item<int64_t>(), INT64_MIN);
  EXPECT_EQ(run_node(13, "ArgMin", {x})[0].item<int64_t>(), 0);
}

TEST(OnnxOps, RunningSumsAreExclusiveAndReversed) {
  const Tensor x = floats({1, 2, 3, 4}, {2, 2}), last = ints({-1}, {});
  const auto is = [](const char* name) { return attribute(name, int64_t{1}); };
  EXPECT_EQ(values(run_node(14, "CumSum", {x, last})[0]), (Floats{1, 3, 3, 7}));
  EXPECT_EQ(values(run_node(14, "CumSum", {x, last}, {is("exclusive")})[0]), (Floats{0, 1, 0, 3}));
  EXPECT_EQ(values(run_node(14, "CumSum", {x, last}, {is("exclusive"), is("reverse")})[0]),
            (Floats{2, 0, 4, 0}));
  const Tensor wide = ints({INT64_MAX, 1}, {2});
  EXPECT_EQ(run_node(14, "CumSum", {wide, ints({0}, {})})[0].to_vector<int64_t>(),
            (Ints{INT64_MAX, INT64_MIN}));
}

TEST(OnnxOps, WideUnsignedIntegersAreComparedAndShiftedAsUnsigned) {
  const uint64_t numbers[] = {1, UINT64_MAX};
  const Tensor x = from_host(numbers, {2}, BP_U64, test_device());
  const Tensor one = from_host(numbers, {1}, BP_U64, test_device());
  EXPECT_EQ(run_node(13, "Max", {x, one})[0].to_vector<uint64_t>(),
            (std::vector<uint64_t>{1, UINT64_MAX}));
  EXPECT_EQ(run_node(13, "BitShift", {x, one}, {attribute("direction", "RIGHT")})[0]
                .to_vector<uint64_t>(),
            (std::vector<uint64_t>{0, UINT64_MAX / 2}));
  EXPECT_THROW(run_node(13, "Mod", {x, one}), Error);
}

TEST(OnnxOps, IntegerDivisionRoundsTowardsZero) {
  EXPECT_EQ(
      run_node(14, "Div", {ints({-7, 7, -7}, {3}), ints({2, -2, -2}, {3})})[0].to_vector<int64_t>(),
      (Ints{-3, -3, 3}));
}

TEST(OnnxOps, IntegerPowersAreExactAndBroadcast) {
  EXPECT_EQ(
      run_node(15, "Pow", {ints({3, -2}, {2, 1}), ints({0, 1, 31}, {3})})[0].to_vector<int64_t>(),
      (Ints{1, 3, 617673396283947, 1, -2, -2147483648}));
}

TEST(OnnxOps, SplitMakesALastPartThatIsSmaller) {
  const auto parts = run_node(18, "Split", {floats({1, 2, 3, 4, 5}, {5})},
                              {attribute("num_outputs", int64_t{3})}, 3);
  EXPECT_EQ(values(parts[0]), (Floats{1, 2}));
  EXPECT_EQ(values(parts[2]), Floats{5});
  EXPECT_THROW(run_node(13, "Split", {floats({1, 2, 3}, {3})}, {}, 2), Error);
}

TEST(OnnxOps, ScatterCombinesInTheOrderOfItsIndices) {
  const Tensor x = floats({1, 2, 3}, {3});
  const Tensor places = ints({0, 0, 2}, {3});
  const Tensor updates = floats({5, 7, -1}, {3});
  const auto scattered = [&](const char* reduction) {
    return values(run_node(18, "ScatterElements", {x, places, updates},
                           {attribute("reduction", reduction)})[0]);
  };
  EXPECT_EQ(scattered("mul"), (Floats{35, 2, -3}));
  EXPECT_EQ(scattered("max"), (Floats{7, 2, 3}));
  EXPECT_EQ(scattered("min"), (Floats{1, 2, -1}));
  EXPECT_EQ(scattered("add"), (Floats{13, 2, 2}));
}

TEST(OnnxOps, PadTakesAxesAndWrapsAround) {
  const Tensor x = floats({1, 2, 3, 4}, {2, 2});
  EXPECT_EQ(values(run_node(19, "Pad", {x, ints({1, 0}, {2}), Tensor(), ints({1}, {1})},
                            {attribute("mode", "wrap")})[0]),
            (Floats{2, 1, 2, 4, 3, 4}));
  EXPECT_EQ(values(run_node(13, "Pad", {x, ints({-1, 0, 0, 1}, {4})})[0]), (Floats{3, 4, 0}));
}

TEST(OnnxOps, EinsumKnowsEllipsesDiagonalsAndImplicitResults) {
  const Tensor a = floats({1, 2, 3, 4}, {1, 2, 2});
  const Tensor b = floats({1, 0, 0, 2}, {2, 2});
  const auto result = [&](const char* equation, const std::vector<Tensor>& inputs) {
    return run_node(12, "Einsum", inputs, {attribute("equation", equation)})[0];
  };
  EXPECT_EQ(values(result("...ij,jk->...ik", {a, b})), (Floats{1, 4, 3, 8}));
  EXPECT_EQ(values(result("ii->i", {b})), (Floats{1, 2}));
  EXPECT_EQ(values(result("ba", {floats({1, 2, 3, 4}, {2, 2})})), (Floats{1, 3, 2, 4}));
  EXPECT_EQ(values(result("ij,jk,kl->", {b, b, b})), Floats{9});
  EXPECT_THROW(result("ij,jk->iz", {b, b}), Error);
  EXPECT_THROW(result("ij", {b, b}), Error);
}

TEST(OnnxOps, PoolsOfWholeWindowsAndOfPartsOfThem) {
  const Tensor x = floats({1, 2, 3, 4, 5}, {1, 1, 5});
  const Attributes ceiled = {attribute("kernel_shape", Ints{2}), attribute("strides", Ints{2}),
                             attribute("ceil_mode", int64_t{1}), attribute("pads", Ints{1, 0}),
                             attribute("count_include_pad", int64_t{1})};
  EXPECT_EQ(values(run_node(19, "AveragePool", {x}, ceiled)[0]), (Floats{0.5, 2.5, 4.5}));
  EXPECT_EQ(values(run_node(12, "MaxPool", {x},
                            {attribute("kernel_shape", Ints{2}), attribute("strides", Ints{2}),
                             attribute("ceil_mode", int64_t{1})})[0]),
            (Floats{2, 4, 5}));
  expect_near(run_node(18, "LpPool", {x}, {attribute("kernel_shape", Ints{2})})[0],
              {std::sqrt(5.0F), std::sqrt(13.0F), 5, std::sqrt(41.0F)});
}

TEST(OnnxOps, GroupNormalizationScalesGroupsAndLaterChannels) {
  const Tensor x = floats({-1, 1, -3, 3}, {1, 4, 1});
  const Attributes two = {attribute("num_groups", int64_t{2}), attribute("epsilon", 0.0F)};
  expect_near(
      run_node(18, "GroupNormalization", {x, floats({1, 2}, {2}), floats({0, 1}, {2})}, two)[0],
      {-1, 1, -1, 3});
  expect_near(run_node(21, "GroupNormalization",
                       {x, floats({1, 2, 3, 4}, {4}), floats({0, 0, 0, 1}, {4})}, two)[0],
              {-1, 2, -3, 5});
}

TEST(OnnxOps, DequantizesByChannelAndByBlock) {
  const int8_t codes[] = {1, 2, 3, 4};
  const Tensor x = from_host(codes, {2, 2}, BP_I8, test_device());
  EXPECT_EQ(values(run_node(13, "DequantizeLinear", {x, floats({1, 10}, {2})},
                            {attribute("axis", int64_t{0})})[0]),
            (Floats{1, 2, 30, 40}));
  EXPECT_EQ(
      values(run_node(21, "DequantizeLinear", {x, floats({1, 2, 3, 4}, {2, 2})},
                      {attribute("axis", int64_t{1}), attribute("block_size", int64_t{1})})[0]),
      (Floats{1, 4, 9, 16}));
}

TEST(OnnxOps, RecurrentCellsRunInBothDirections) {
  const Tensor x = floats({1, 2}, {2, 1, 1});
  const Tensor weight = floats({1, 1}, {2, 1, 1});
  const auto results =
      run_node(14, "RNN", {x, weight, weight},
               {attribute("hidden_size", int64_t{1}), attribute("direction", "bidirectional")}, 2);
  const float first = std::tanh(1.0F), last = std::tanh(2.0F);
  expect_near(results[0], {first, std::tanh(1 + last), std::tanh(2 + first), last});
  expect_near(results[1], {std::tanh(2 + first), std::tanh(1 + last)});
}

TEST(OnnxOps, SlicesBackwardsAndBeyondTheEnds) {
  const Tensor x = floats({0, 1, 2, 3, 4}, {5});
  const auto sliced = [&](int64_t start, int64_t end, int64_t step) {
    return values(
        run_node(13, "Slice",
                 {x, ints({start}, {1}), ints({end}, {1}), ints({0}, {1}), ints({step}, {1})})[0]);
  };
  EXPECT_EQ(sliced(-1, INT64_MIN, -2), (Floats{4, 2, 0}));
  EXPECT_EQ(sliced(1, INT64_MAX, INT64_MAX), Floats{1});
  EXPECT_EQ(sliced(3, 1, 1), Floats{});
  EXPECT_EQ(sliced(INT64_MIN, 2, 1), (Floats{0, 1}));
  EXPECT_THROW(sliced(0, 1, 0), Error);
}

TEST(OnnxOps, AnIndexOutOfRangeIsAFailureOfTheRun) {
  {
    const Stream stream(test_device());  // It stays failed.
    const StreamGuard guard(stream);
    const Tensor x = floats({1, 2}, {2});
    EXPECT_THROW(run_node(13, "Gather", {x, ints({5}, {1})})[0].to_vector<float>(), Error);
  }
  EXPECT_EQ(values(run_node(13, "Gather", {floats({1, 2}, {2}), ints({-1}, {1})})[0]), Floats{2});
}

TEST(OnnxOps, GeluHasTwoFormulas) {
  const Tensor x = floats({1}, {1});
  expect_near(run_node(20, "Gelu", {x})[0], {0.841345F});
  expect_near(run_node(20, "Gelu", {x}, {attribute("approximate", "tanh")})[0], {0.841192F});
  EXPECT_THROW(run_node(20, "Gelu", {x}, {attribute("approximate", "sigmoid")}), Error);
}

TEST(OnnxOps, ResizeKeepsTheProportionsOfChosenAxes) {
  const Tensor x = floats({1, 2, 3, 4}, {1, 1, 2, 2});
  const Tensor y = run_node(
      18, "Resize", {x, Tensor(), Tensor(), ints({4, 6}, {2})},
      {attribute("axes", Ints{2, 3}), attribute("keep_aspect_ratio_policy", "not_larger")})[0];
  EXPECT_EQ(y.shape(), IntList({1, 1, 4, 4}));
  EXPECT_EQ(values(y), (Floats{1, 1, 2, 2, 1, 1, 2, 2, 3, 3, 4, 4, 3, 3, 4, 4}));
}

TEST(OnnxOps, ResizeReachesFurtherWhereItIsAntialiased) {
  const Tensor x = floats({0, 1, 2, 3, 4, 5, 6, 13}, {1, 1, 8});
  const auto resized = [&](const char* mode) {
    return run_node(18, "Resize", {x, Tensor(), floats({1, 1, 0.5}, {3})},
                    {attribute("mode", mode), attribute("antialias", int64_t{1})})[0];
  };
  // The weights of the four neighbours are 1, 3, 3 and 1 eighths; the ends are repeated.
  expect_near(resized("linear"), {0.625, 2.5, 4.5, (5 + 18 + 39 + 13) / 8.0F});
  EXPECT_THROW(resized("nearest"), Error);
  EXPECT_THROW(run_node(18, "Resize", {x, Tensor(), floats({1, 1, 1e-30F}, {3})},
                        {attribute("mode", "linear"), attribute("antialias", int64_t{1})}),
               Error);
}

TEST(OnnxOps, RunningProductsAreExclusiveAndReversed) {
  const Tensor x = floats({1, 2, 3, 4}, {4}), axis = ints({0}, {});
  const auto is = [](const char* name) { return attribute(name, int64_t{1}); };
  EXPECT_EQ(values(run_node(26, "CumProd", {x, axis})[0]), (Floats{1, 2, 6, 24}));
  EXPECT_EQ(values(run_node(26, "CumProd", {x, axis}, {is("exclusive"), is("reverse")})[0]),
            (Floats{24, 12, 4, 1}));
}

TEST(OnnxOps, CentersAreCutOutAndFilledUp) {
  const Tensor x = floats({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(values(run_node(18, "CenterCropPad", {x, ints({3, 2}, {2})})[0]),
            (Floats{1, 2, 4, 5, 0, 0}));
  EXPECT_EQ(
      values(run_node(18, "CenterCropPad", {x, ints({6}, {1})}, {attribute("axes", Ints{-1})})[0]),
      (Floats{0, 1, 2, 3, 0, 0, 0, 4, 5, 6, 0, 0}));
  EXPECT_THROW(run_node(18, "CenterCropPad", {x, ints({6}, {1})}), Error);
}

TEST(OnnxOps, PoolsMayHaveGapsInTheirWindows) {
  const Tensor x = floats({1, 2, 3, 4, 5, 10, 20, 30, 40, 50}, {1, 2, 5});
  const auto pooled = [&](const char* op, Attributes more) {
    more.push_back(attribute("kernel_shape", Ints{2}));
    more.push_back(attribute("dilations", Ints{2}));
    return values(run_node(19, op, {x}, more)[0]);
  };
  EXPECT_EQ(pooled("AveragePool", {}), (Floats{2, 3, 4, 20, 30, 40}));
  const auto pads = attribute("pads", Ints{1, 0}), ceil = attribute("ceil_mode", int64_t{1}),
             strides = attribute("strides", Ints{2});
  EXPECT_EQ(pooled("AveragePool", {pads}), (Floats{2, 2, 3, 4, 20, 20, 30, 40}));
  EXPECT_EQ(pooled("AveragePool", {pads, attribute("count_include_pad", int64_t{1})}),
            (Floats{1, 2, 3, 4, 10, 20, 30, 40}));
  EXPECT_EQ(pooled("AveragePool", {strides, ceil, pads}), (Floats{2, 3, 4, 20, 30, 40}));
  const Floats norms = pooled("LpPool", {attribute("p", int64_t{1})});
  EXPECT_EQ(norms, (Floats{4, 6, 8, 40, 60, 80}));
}

TEST(OnnxOps, BlocksBecomeChannelsInTwoOrders) {
  const Tensor x = floats({1, 2, 3, 4, 5, 6, 7, 8}, {1, 2, 2, 2});
  const auto moved = [&](const char* mode) {
    return values(run_node(28, "SpaceToDepth", {x},
                           {attribute("blocksize", int64_t{2}), attribute("mode", mode)})[0]);
  };
  EXPECT_EQ(moved("DCR"), (Floats{1, 5, 2, 6, 3, 7, 4, 8}));
  EXPECT_EQ(moved("CRD"), (Floats{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_THROW(moved("RDC"), Error);
}

TEST(OnnxOps, TheLastBlockOfAScaleMayBeShorter) {
  const Tensor x = floats({2, 4, 30}, {1, 3}), scale = floats({2, 10}, {1, 2});
  const auto quantized = [&](int64_t dtype) {
    return run_node(23, "QuantizeLinear", {x, scale},
                    {attribute("axis", int64_t{1}), attribute("block_size", int64_t{2}),
                     attribute("output_dtype", dtype)})[0];
  };
  EXPECT_EQ(values(quantized(3)), (Floats{1, 2, 3}));  // i8
  EXPECT_EQ(values(quantized(5)), (Floats{1, 2, 3}));  // i16, for which there is no op
  const Tensor back =
      run_node(23, "DequantizeLinear", {quantized(3), scale},
               {attribute("axis", int64_t{1}), attribute("block_size", int64_t{2})})[0];
  EXPECT_EQ(values(back), (Floats{2, 4, 30}));
  EXPECT_THROW(run_node(23, "QuantizeLinear", {x, floats({2, 10, 5}, {1, 3})},
                        {attribute("axis", int64_t{1}), attribute("block_size", int64_t{2}),
                         attribute("output_dtype", int64_t{5})}),
               Error);
}

TEST(OnnxOps, MultinomialDrawsMostOftenWhatIsLikely) {
  const Tensor x = floats({0, 100, -100, 50, -50, -100}, {2, 3});
  const Tensor y = run_node(22, "Multinomial", {x}, {attribute("sample_size", int64_t{3})})[0];
  EXPECT_EQ(y.dtype(), BP_I32);
  EXPECT_EQ(values(y), (Floats{1, 1, 1, 0, 0, 0}));
}

TEST(OnnxOps, RegionsGiveTheirLargestWeightedElement) {
  const Tensor x = floats({1, 2, 3, 4}, {1, 1, 2, 2}), box = floats({0, 0, 1, 1}, {1, 4});
  const Tensor y = run_node(16, "RoiAlign", {x, box, ints({0}, {1})},
                            {attribute("mode", "max"), attribute("sampling_ratio", int64_t{1}),
                             attribute("coordinate_transformation_mode", "output_half_pixel")})[0];
  EXPECT_EQ(values(y), Floats{1});  // Each of the four elements has the weight 1 / 4.
}

}  // namespace
}  // namespace bp::onnx
