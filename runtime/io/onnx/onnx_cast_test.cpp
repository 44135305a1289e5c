// Casts to and from dtypes of few bits, which ONNX's tests give in part only.
#include "runtime/io/onnx/run_node.hpp"

namespace bp::onnx {
namespace {

// Numbers of TensorProto.DataType.
enum : int64_t {
  kF32 = 1,
  kU8 = 2,
  kI8 = 3,
  kI32 = 6,
  kBool = 9,
  kE4M3 = 17,
  kE4M3Uz = 18,
  kE5M2 = 19,
  kU4 = 21,
  kI4 = 22,
  kF4 = 23,
  kE8M0 = 24,
  kU2 = 25,
  kI2 = 26
};

Tensor cast(const Tensor& x, int64_t to, bool saturates = true) {
  return run_node(25, "Cast", {x},
                  {attribute("to", to), attribute("saturate", int64_t{saturates})})[0];
}

// Casts there and back.
Floats through(const Floats& given, int64_t to, bool saturates = true) {
  const Tensor x = floats(given, {static_cast<int64_t>(given.size())});
  return cast(cast(x, to, saturates), kF32).to_vector<float>();
}

TEST(OnnxCast, NarrowFloatsRoundAndSaturate) {
  EXPECT_EQ(through({1.05F, -0.3F, 1e9F, -HUGE_VALF}, kE4M3), (Floats{1, -0.3125, 448, -448}));
  EXPECT_EQ(through({1.1F, 1e9F, -HUGE_VALF}, kE5M2), (Floats{1, 57344, -57344}));
  EXPECT_EQ(through({0.3F, -2.4F, 100}, kF4), (Floats{0.5, -2, 6}));
}

TEST(OnnxCast, WithoutSaturationOverflowIsNoNumber) {
  const Floats e4m3 = through({464, -465, HUGE_VALF, 1}, kE4M3, false);
  EXPECT_EQ(e4m3[0], 448);
  EXPECT_TRUE(std::isnan(e4m3[1]));
  EXPECT_TRUE(std::isnan(e4m3[2]));
  EXPECT_EQ(e4m3[3], 1);
  EXPECT_EQ(through({61439, 61440, -HUGE_VALF}, kE5M2, false),
            (Floats{57344, HUGE_VALF, -HUGE_VALF}));
}

TEST(OnnxCast, PackedIntegersDropFractionsAndHighBits) {
  EXPECT_EQ(through({-1.9F, 7.9F, 8, -9, 3}, kI4), (Floats{-1, 7, -8, 7, 3}));
  EXPECT_EQ(through({-1, 15.9F, 16, 3, 2}, kU4), (Floats{15, 15, 0, 3, 2}));
  EXPECT_EQ(through({-2.5F, 1.5F, 2, 0, 1}, kI2), (Floats{-2, 1, -2, 0, 1}));
  EXPECT_EQ(through({-1, 3, 4, 0, 1}, kU2), (Floats{3, 3, 0, 0, 1}));
  EXPECT_EQ(cast(cast(ints({300, -3, 7}, {3}), kI4), kI32).to_vector<int32_t>(),
            (std::vector<int32_t>{-4, -3, 7}));
}

TEST(OnnxCast, DtypesWithoutOpsAreNamed) {
  for (const int64_t to : {kE4M3Uz, kE8M0}) {
    try {
      cast(floats({1}, {1}), to);
      ADD_FAILURE() << "a cast to the data type " << to << " is not refused";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), BP_UNSUPPORTED);
      EXPECT_NE(std::string(e.what()).find("no op reads or writes elements of f8e"),
                std::string::npos)
          << e.what();
    }
  }
}

TEST(OnnxCast, BitsStayWhereTheDtypeChanges) {
  const auto viewed = [](const Tensor& x, int64_t to) {
    return run_node(26, "BitCast", {x}, {attribute("to", to)})[0];
  };
  const Tensor x = floats({1, -2, 3, 4}, {2, 2}).transpose(0, 1);
  EXPECT_EQ(viewed(x, kI32).to_vector<int32_t>(),
            (std::vector<int32_t>{0x3F800000, 0x40400000, -0x40000000, 0x40800000}));
  EXPECT_EQ(viewed(viewed(x, kI32), kF32).to_vector<float>(), x.to_vector<float>());
  const uint8_t bytes[] = {0, 1, 2};
  EXPECT_EQ(
      viewed(from_host(bytes, {3}, BP_U8, test_device()), kBool).to(BP_I64).to_vector<int64_t>(),
      (Ints{0, 1, 1}));
  EXPECT_THROW(viewed(x, kU8), Error);
  EXPECT_THROW(run_node(26, "BitCast", {x}), Error);
}

TEST(OnnxCast, ConstantsOfFewBitsLieTwoOrFourInANumber) {
  TestModel model(25);
  const auto add = [&](const char* name, int64_t count, int32_t type, const Ints& codes) {
    auto* const proto = model.graph().start(name, {count}, type);
    for (const int64_t code : codes) proto->add_int32_data(static_cast<int32_t>(code));
    model.graph().node("Cast", {name}, {std::string(name) + "_f"}, {attribute("to", kF32)});
    model.graph().output(std::string(name) + "_f");
  };
  add("four", 3, kI4, {0x71, 0x0F});
  add("two", 5, kU2, {0xE4, 0x02});
  const TensorMap outputs = model.parse(test_device()).run({});
  EXPECT_EQ(values(outputs.at("four_f")), (Floats{1, 7, -1}));
  EXPECT_EQ(values(outputs.at("two_f")), (Floats{0, 1, 2, 3, 2}));
  add("short", 3, kI4, {0x71});
  EXPECT_THROW(model.parse(test_device()), Error);
}

}  // namespace
}  // namespace bp::onnx
