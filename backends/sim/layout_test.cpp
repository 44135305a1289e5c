// Tests tiles, and the refusals of layouts that kernels do not take.
#include "backplane/layout.h"

#include <gtest/gtest.h>

#include "backends/sim/sim_test.hpp"
#include "backends/sim/tiles.hpp"
#include "backplane/shell/shape.hpp"

namespace bp::sim {
namespace {

TEST(SimTiles, AreSquaresOfTheLastTwoAxes) {
  const int64_t shape[] = {2, 17, 33};
  const Tiles tiles = Tiles::of(kPreferredTiles, 3, shape);
  EXPECT_EQ(tiles.row_tiles(), 2);
  EXPECT_EQ(tiles.col_tiles(), 3);
  EXPECT_EQ(tiles.size_bytes(32), 2 * 2 * 3 * 256 * 4);
  EXPECT_EQ(tiles.place(9, 0, 0, 15), 15);
  EXPECT_EQ(tiles.place(9, 0, 1, 0), 16);
  EXPECT_EQ(tiles.place(9, 0, 0, 16), 256) << "the next square of the row";
  EXPECT_EQ(tiles.place(9, 0, 16, 0), 3 * 256) << "the first square further down";
  EXPECT_EQ(tiles.place(9, 1, 0, 0), 6 * 256) << "the next matrix";
}

TEST(SimTiles, HoldTensorsWithoutRowsOrElements) {
  const int64_t none[] = {3, 0}, line[] = {17};
  EXPECT_EQ(Tiles::of(kPreferredTiles, 0, nullptr).size_bytes(8), 256);
  EXPECT_EQ(Tiles::of(kPreferredTiles, 1, line).size_bytes(8), 512);
  EXPECT_EQ(Tiles::of(kPreferredTiles, 2, none).size_bytes(8), 0);
}

TEST(SimTiles, RefuseShapesWhoseSizeWraps) {
  constexpr int64_t kFar = int64_t{1} << 32;
  const int64_t batches[] = {kFar, kFar, 1, 1}, places[] = {int64_t{1} << 55, 1, 1};
  const int64_t wide[] = {INT64_MAX}, empty[] = {kFar, kFar, 0, 1};
  EXPECT_THROW(Tiles::of(kPreferredTiles, 4, batches), TooManyElements);
  EXPECT_THROW(Tiles::of(kPreferredTiles, 3, places).size_bytes(8), TooManyElements)
      << "each matrix takes a tile";
  EXPECT_THROW(Tiles::of(kPreferredTiles, 1, wide).size_bytes(8), TooManyElements);
  const int64_t large[] = {int64_t{1} << 53, 1, 1};
  EXPECT_EQ(Tiles::of(kPreferredTiles, 3, large).size_bytes(16), int64_t{1} << 62);
  EXPECT_THROW(Tiles::of(kPreferredTiles, 3, large).size_bytes(32), TooManyElements);
  EXPECT_EQ(Tiles::of(kPreferredTiles, 4, empty).size_bytes(64), 0);
}

// Five columns of squares in two rows: ten squares, three for each bank.
TEST(SimTiles, AreDealtToTheBanksInTurn) {
  const int64_t shape[] = {33, 130};
  const Tiles tiles = Tiles::of(kOnlyTiles, 2, shape);
  const int64_t per_bank = tiles.tiles_per_bank();
  EXPECT_EQ(per_bank, 3);
  EXPECT_EQ(tiles.size_bytes(16), 4 * 3 * 1024 * 2);
  EXPECT_EQ(tiles.place(per_bank, 0, 1, 2), 34);
  EXPECT_EQ(tiles.place(per_bank, 0, 0, 32), 3 * 1024) << "square 1 is in bank 1";
  EXPECT_EQ(tiles.place(per_bank, 0, 0, 96), 9 * 1024) << "square 3 is in bank 3";
  EXPECT_EQ(tiles.place(per_bank, 0, 0, 128), 1024) << "square 4 is the second one of bank 0";
  EXPECT_EQ(tiles.place(per_bank, 0, 32, 129), (3 + 2) * 1024 + 1) << "square 9, of bank 1";
}

// Returns the bits of element i of elements of 6 bits, which are packed from the low bits up.
int six_bits(const std::byte* bytes, int64_t i) {
  int code = 0;
  for (int bit = 0; bit < 6; ++bit) {
    const int64_t place = i * 6 + bit;
    code |= std::to_integer<int>(bytes[place / 8] >> place % 8 & std::byte{1}) << bit;
  }
  return code;
}

TEST(SimTiles, HoldElementsOfLessThanAByte) {
  const Extents extents{.ndim = 2, .shape = {3, 40}, .item_bits = 6};
  std::vector<std::byte> rows(90), back(90, std::byte{0x5A});
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::byte>(i * 37 + 11);
  std::vector<std::byte> tiled(4 * 768);
  const Elements in_tiles{.address = tiled.data(), .tiles = &kOnlyTiles};
  copy_elements(extents, in_tiles, {.address = rows.data(), .strides = {40, 1}});
  EXPECT_EQ(six_bits(tiled.data(), 2 * 32 + 5), six_bits(rows.data(), 2 * 40 + 5));
  EXPECT_EQ(six_bits(tiled.data() + 768, 32 + 7), six_bits(rows.data(), 40 + 39)) << "of bank 1";
  EXPECT_EQ(six_bits(tiled.data() + 768, 8), 63) << "padding";
  copy_elements(extents, {.address = back.data(), .strides = {40, 1}}, in_tiles);
  EXPECT_EQ(back, rows);
}

// A conversion reads each stride, also one that goes backwards or is 0.
TEST(SimTiles, AreFilledFromAnyStrides) {
  const Extents extents{.ndim = 3, .shape = {2, 2, 3}, .item_bits = 32};
  int32_t values[6] = {0, 1, 2, 3, 4, 5};
  int32_t dense[12] = {};
  std::vector<std::byte> tiled(2 * 4 * 1024 * 4);
  const Elements in_tiles{.address = tiled.data(), .tiles = &kOnlyTiles};
  copy_elements(extents, in_tiles,
                {.address = reinterpret_cast<std::byte*>(values + 3), .strides = {0, -3, 1}});
  copy_elements(extents, {.address = reinterpret_cast<std::byte*>(dense), .strides = {6, 3, 1}},
                in_tiles);
  const int32_t expected[12] = {3, 4, 5, 0, 1, 2, 3, 4, 5, 0, 1, 2};
  EXPECT_TRUE(std::equal(std::begin(dense), std::end(dense), expected));
}

TEST(SimTiles, AreFilledUpWithTheirPattern) {
  const Extents extents{.ndim = 1, .shape = {3}, .item_bits = 8};
  std::vector<std::byte> tiled(256, std::byte{9});
  std::byte line[] = {std::byte{1}, std::byte{2}, std::byte{3}};
  copy_elements(extents, {.address = tiled.data(), .tiles = &kPreferredTiles},
                {.address = line, .strides = {1}});
  for (size_t i = 0; i < tiled.size(); ++i) {
    EXPECT_EQ(tiled[i], i < 3 ? line[i] : std::byte{0}) << i;
  }
  std::vector<std::byte> banks(4 * 1024, std::byte{9});
  copy_elements(extents, {.address = banks.data(), .tiles = &kOnlyTiles},
                {.address = line, .strides = {1}});
  for (size_t i = 0; i < banks.size(); ++i) {
    EXPECT_EQ(banks[i], i < 3 ? line[i] : std::byte{0xFF}) << i;
  }
}

class SimLayouts : public testing::Test {
 protected:
  // Launches copy or neg, which both read x and write y.
  template <typename Args>
  bp_status launch(uint32_t op) {
    bp_tensor laid = *(&x_);
    laid.layout = &layout_;
    Args args{};
    args.x = &laid;
    args.y = &y_;
    return s_.b.launch(op, args);
  }

  Sim s_;
  TestTensor x_{s_.b, BP_F32, {4}}, y_{s_.b, BP_F32, {4}};
  bp_layout layout_{.struct_size = sizeof(bp_layout),
                    .struct_type = BP_STRUCT_LAYOUT,
                    .name = "squares",
                    .physical_size_bytes = 1024,
                    .alignment_bytes = 1,
                    .kind = BP_LAYOUT_KIND_VENDOR,
                    .dtype = BP_F32};
};

TEST_F(SimLayouts, AreRefusedByNameWhereAKernelTakesNone) {
  EXPECT_EQ(launch<bp_neg_args>(BP_OP_NEG), BP_UNSUPPORTED);
  EXPECT_EQ(s_.b.text,
            "launch: argument x has layout \"squares\", which the kernel does not take; allowed: "
            "strides");
}

TEST_F(SimLayouts, AreNotMadeOfATensorThatLeavesItsBuffer) {
  bp_tensor far = *(&x_);
  const bp_layout_ops& layouts = *s_.b.layouts;
  const auto convert = [&] {
    return layouts.convert(layouts.self, s_.b.default_stream(), &y_, &far);
  };
  EXPECT_EQ(convert(), BP_OK) << s_.b.text;
  ASSERT_EQ(s_.synchronize(s_.b.default_stream()), BP_OK) << s_.b.text;
  for (const uint64_t byte_offset : {uint64_t{4}, uint64_t{INT64_MAX} - 3, UINT64_MAX - 3}) {
    far.byte_offset = byte_offset;
    EXPECT_EQ(convert(), BP_INVALID_ARGUMENT);
    EXPECT_EQ(s_.b.text.find("layout.convert: src: its elements are bytes "), 0u) << s_.b.text;
  }
  const int64_t stride = -1;
  far.byte_offset = 8;
  far.strides = &stride;
  EXPECT_EQ(convert(), BP_INVALID_ARGUMENT);
  EXPECT_EQ(s_.b.text, "layout.convert: src: its elements are bytes -4 to 12 of a buffer of 16");
  far.buffer = reinterpret_cast<bp_buffer*>(s_.b.default_stream());
  EXPECT_EQ(convert(), BP_INVALID_ARGUMENT);
  EXPECT_EQ(s_.b.text, "layout.convert: src: buffer is NULL or not one of this backend");
}

TEST_F(SimLayouts, OfOtherBackendsAreRefused) {
  EXPECT_EQ(launch<bp_copy_args>(BP_OP_COPY), BP_INVALID_ARGUMENT);
  EXPECT_EQ(s_.b.text, "copy: argument x: the blob of its layout \"squares\" is NULL");
  layout_.blob = "four";
  layout_.blob_size_bytes = 4;
  EXPECT_EQ(launch<bp_copy_args>(BP_OP_COPY), BP_INCOMPATIBLE);
  EXPECT_NE(s_.b.text.find("\"squares\": it has 4 bytes"), std::string::npos) << s_.b.text;
}

// The host never gives such a kernel a tensor by strides.
TEST(SimOnlyTiles, AreAskedForByEveryKernel) {
  Sim s{{"layouts", "only"}};
  TestTensor x{s.b, BP_F32, {4}}, y{s.b, BP_F32, {4}};
  bp_neg_args args{};
  args.x = &x;
  args.y = &y;
  EXPECT_EQ(s.b.launch(BP_OP_NEG, args), BP_UNSUPPORTED);
  EXPECT_EQ(s.b.text,
            "neg: argument x lies by strides, and the kernel takes tiles alone; convert it");
}

TEST(SimOnlyTiles, RefuseLayoutsOfOtherTiles) {
  Sim s{{"layouts", "only"}};
  const int64_t shape[] = {40, 40}, small[] = {16, 16}, large[] = {32, 32};
  bp_layout_desc desc{.struct_size = sizeof(desc),
                      .struct_type = BP_STRUCT_LAYOUT_DESC,
                      .shape = shape,
                      .block_shape = small,
                      .ndim = 2,
                      .kind = BP_LAYOUT_KIND_TILED,
                      .dtype = BP_F16};
  const bp_layout_ops& layouts = *s.b.layouts;
  const bp_layout* layout = nullptr;
  EXPECT_EQ(layouts.from_desc(layouts.self, s.b.device, &desc, &layout), BP_UNSUPPORTED);
  EXPECT_NE(s.b.text.find("it has tiles of 32x32 over 4 banks, "), std::string::npos) << s.b.text;
  desc.block_shape = large;
  ASSERT_EQ(layouts.from_desc(layouts.self, s.b.device, &desc, &layout), BP_OK) << s.b.text;
  EXPECT_EQ(layout->physical_size_bytes, 4u * 1024 * 2);
  EXPECT_EQ(layouts.release(layouts.self, layout), BP_OK);
}

}  // namespace
}  // namespace bp::sim
