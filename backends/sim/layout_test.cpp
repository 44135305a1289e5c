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
  const Tiles tiles = Tiles::of(3, shape);
  EXPECT_EQ(tiles.row_tiles(), 2);
  EXPECT_EQ(tiles.col_tiles(), 3);
  EXPECT_EQ(tiles.size_bytes(4), 2 * 2 * 3 * 256 * 4);
  EXPECT_EQ(tiles.place(0, 0, 15), 15);
  EXPECT_EQ(tiles.place(0, 1, 0), 16);
  EXPECT_EQ(tiles.place(0, 0, 16), 256) << "the next square of the row";
  EXPECT_EQ(tiles.place(0, 16, 0), 3 * 256) << "the first square further down";
  EXPECT_EQ(tiles.place(1, 0, 0), 6 * 256) << "the next matrix";
}

TEST(SimTiles, HoldTensorsWithoutRowsOrElements) {
  const int64_t none[] = {3, 0}, line[] = {17};
  EXPECT_EQ(Tiles::of(0, nullptr).size_bytes(1), 256);
  EXPECT_EQ(Tiles::of(1, line).size_bytes(1), 512);
  EXPECT_EQ(Tiles::of(2, none).size_bytes(1), 0);
}

TEST(SimTiles, RefuseShapesWhoseSizeWraps) {
  constexpr int64_t kFar = int64_t{1} << 32;
  const int64_t batches[] = {kFar, kFar, 1, 1}, places[] = {int64_t{1} << 55, 1, 1};
  const int64_t wide[] = {INT64_MAX}, empty[] = {kFar, kFar, 0, 1};
  EXPECT_THROW(Tiles::of(4, batches), TooManyElements);
  EXPECT_THROW(Tiles::of(3, places).size_bytes(1), TooManyElements) << "each matrix takes a tile";
  EXPECT_THROW(Tiles::of(1, wide).size_bytes(1), TooManyElements);
  const int64_t large[] = {int64_t{1} << 53, 1, 1};
  EXPECT_EQ(Tiles::of(3, large).size_bytes(2), int64_t{1} << 62);
  EXPECT_THROW(Tiles::of(3, large).size_bytes(4), TooManyElements);
  EXPECT_EQ(Tiles::of(4, empty).size_bytes(8), 0);
}

TEST(SimTiles, AreFilledUpWithZeros) {
  const Extents extents{.ndim = 1, .shape = {3}, .item_bytes = 1};
  std::vector<std::byte> tiled(256, std::byte{9});
  std::byte line[] = {std::byte{1}, std::byte{2}, std::byte{3}};
  copy_elements(extents, {.address = tiled.data(), .is_tiled = true},
                {.address = line, .strides = {1}});
  for (size_t i = 0; i < tiled.size(); ++i) {
    EXPECT_EQ(tiled[i], i < 3 ? line[i] : std::byte{0}) << i;
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

}  // namespace
}  // namespace bp::sim
