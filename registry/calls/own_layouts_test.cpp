// Tests tensors in a layout of the backend's own: which kernels take them, and what the refusals
// say.
#include <gtest/gtest.h>

#include "backplane/registry.hpp"
#include "registry/calls/claims.hpp"
#include "registry/tests/fake_backend.hpp"

namespace bp::core {
namespace {

bp_layout make_layout(const char* name, bp_layout_kind kind = BP_LAYOUT_KIND_VENDOR,
                      const bp_layout_desc* desc = nullptr) {
  return {.struct_size = sizeof(bp_layout),
          .struct_type = BP_STRUCT_LAYOUT,
          .name = name,
          .kind = kind,
          .desc = desc};
}

bp_layout_desc make_desc(bp_layout_kind kind, const int64_t (&block)[2], const char* format) {
  return {.struct_size = sizeof(bp_layout_desc),
          .struct_type = BP_STRUCT_LAYOUT_DESC,
          .block_shape = block,
          .ndim = 2,
          .kind = kind,
          .dtype = BP_F32,
          .scale_dtype = format == nullptr ? bp_dtype{0} : bp_dtype{BP_F16},
          .format_name = format};
}

constexpr int64_t kSquare[2] = {16, 16}, kWide[2] = {8, 32}, kLine[2] = {1, 32};
const bp_layout_desc square_desc = make_desc(BP_LAYOUT_KIND_TILED, kSquare, nullptr),
                     wide_desc = make_desc(BP_LAYOUT_KIND_TILED, kWide, nullptr),
                     line_desc = make_desc(BP_LAYOUT_KIND_QUANTIZED, kLine, "ggml.q4_0"),
                     other_line_desc = make_desc(BP_LAYOUT_KIND_QUANTIZED, kLine, "ggml.q8_0");
bp_layout tiles = make_layout("tiles", BP_LAYOUT_KIND_TILED, &square_desc),
          wide_tiles = make_layout("wide", BP_LAYOUT_KIND_TILED, &wide_desc),
          blocks = make_layout("blocks"),
          lines = make_layout("lines", BP_LAYOUT_KIND_QUANTIZED, &line_desc),
          other_lines = make_layout("other", BP_LAYOUT_KIND_QUANTIZED, &other_line_desc);
int references;  // How many references the table gave and did not get back.

// Makes a table that must not be asked what a kernel prefers.
bp_layout_ops tile_table() {
  bp_layout_ops table{.struct_size = sizeof(table), .struct_type = BP_STRUCT_LAYOUT_OPS};
  table.preferred = [](void*, bp_device*, const bp_kernel*, uint32_t, const void*,
                       const bp_layout**) -> bp_status {
    ADD_FAILURE() << "a choice or a launch asks for a preference";
    return BP_INTERNAL;
  };
  table.retain = [](void*, const bp_layout*) -> bp_status {
    ++references;
    return BP_OK;
  };
  table.release = [](void*, const bp_layout*) -> bp_status {
    --references;
    return BP_OK;
  };
  return table;
}

bp_layout_claim make_claim(bp_layout_kind kind, uint64_t arguments) {
  return {.struct_size = sizeof(bp_layout_claim),
          .struct_type = BP_STRUCT_LAYOUT_CLAIM,
          .arguments = arguments,
          .kind = kind};
}

struct Loaded {
  bp_layout_ops table = tile_table();
  bp_kernel plain = make_kernel("plain"), tiled = make_kernel("tiled");
  bp_layout_claim claim = make_claim(BP_LAYOUT_KIND_TILED, 1);  // The kernel "tiled" has it.
  const bp_layout_claim* const claims[1] = {&claim};
  FakeBackend fake;  // It outlives the registry.
  TestRegistry r;
  const bp_target* target = nullptr;
  AddCall call;

  Loaded() {
    references = 0;
    claim.block_shape = kSquare;
    claim.block_ndim = 2;
    tiled.layout_claims = claims;
    tiled.layout_claim_count = 1;
    fake.kernels = {&plain, &tiled};
    fake.layouts = &table;
    EXPECT_EQ(fake.load(r.registry), BP_OK) << bp_error_text();
    target = r.target();
  }
  ~Loaded() { EXPECT_EQ(references, 0); }

  bp_status launch() { return bp_op_launch(target, nullptr, 0, BP_OP_ADD, &call.args); }
  std::string reasons() const { return bp::explain(*target, 0, BP_OP_ADD, &call.args); }
};

TEST(OwnLayouts, ComeToTheKernelThatClaimsThem) {
  Loaded l;
  bp_kernel_choice choice{};
  l.call.a.layout = &tiles;
  for (int i = 0; i < 2; ++i) {  // The second time the choice is remembered.
    ASSERT_EQ(bp_kernel_find(l.target, 0, BP_KERNEL_NATIVE, BP_OP_ADD, &l.call.args, &choice),
              BP_OK)
        << bp_error_text();
    EXPECT_STREQ(choice.kernel->name, "tiled");
  }
  EXPECT_EQ(l.launch(), BP_OK) << bp_error_text();
  EXPECT_EQ(bp_kernel_launch(l.target, nullptr, 0, &l.tiled, &l.call.args), BP_OK)
      << bp_error_text();
  EXPECT_NE(l.reasons().find("plain: a: layout \"tiles\" is not taken, only strides"),
            std::string::npos)
      << l.reasons();
}

TEST(OwnLayouts, LiveAsLongAsAPreparedOpThatComparesThemByAddress) {
  Loaded l;
  l.call.a.layout = &tiles;
  bp_prepared* prepared = nullptr;
  ASSERT_EQ(bp_op_prepare(l.target, nullptr, 0, BP_OP_ADD, &l.call.args, nullptr, 0, &prepared),
            BP_OK)
      << bp_error_text();
  EXPECT_EQ(references, 1);
  EXPECT_EQ(bp_prepared_launch(prepared, nullptr, &l.call.args), BP_OK) << bp_error_text();
  EXPECT_EQ(references, 1);
  EXPECT_EQ(bp_prepared_release(prepared), BP_OK);
  EXPECT_EQ(references, 0);
}

TEST(OwnLayouts, OfOthersAreRefusedByNameAndArgument) {
  Loaded l;
  l.call.a.layout = &blocks;
  EXPECT_EQ(l.launch(), BP_UNSUPPORTED);
  EXPECT_NE(
      l.reasons().find("tiled: a: layout \"blocks\" is not taken, only strides, TILED of 16x16"),
      std::string::npos)
      << l.reasons();
  l.call.a.layout = nullptr;
  l.call.y.layout = &tiles;
  EXPECT_EQ(bp_kernel_launch(l.target, nullptr, 0, &l.tiled, &l.call.args), BP_UNSUPPORTED);
  EXPECT_STREQ(bp_error_text(),
               "add by tiled: argument y: layout \"tiles\" is not taken, only strides");
}

TEST(OwnLayouts, ForgeNoLineByTheirName) {
  Loaded l;
  const bp_layout forged = make_layout("\x1b[2J\nverdict: PERFECT");
  l.call.a.layout = &forged;
  EXPECT_NE(l.reasons().find("layout \"\\x1b[2J\\nverdict: PERFECT\" is not taken"),
            std::string::npos)
      << l.reasons();
  EXPECT_EQ(l.reasons().find("\nverdict"), std::string::npos);
}

TEST(OwnLayouts, AreNotOfferedToDecompositionsAndFallbacks) {
  Loaded l;
  l.call.a.layout = &blocks;
  EXPECT_NE(l.reasons().find("host fallback: it takes tensors by strides alone"), std::string::npos)
      << l.reasons();
}

// The claim of the kernel "tiled" is `claim` in these tests.
class LayoutClaims : public testing::Test {
 protected:
  bool takes(const bp_layout& layout) {
    l_.call.a.layout = &layout;
    return l_.launch() == BP_OK;
  }

  Loaded l_;
};

TEST_F(LayoutClaims, TakeWhatTheyName) {
  EXPECT_TRUE(takes(tiles));
  EXPECT_FALSE(takes(wide_tiles)) << "other tiles";
  EXPECT_FALSE(takes(lines)) << "another kind";
  l_.claim.block_shape = nullptr;
  EXPECT_TRUE(takes(wide_tiles)) << "all tiles";
  l_.claim = make_claim(BP_LAYOUT_KIND_QUANTIZED, 1);
  EXPECT_TRUE(takes(lines) && takes(other_lines)) << "every format";
  l_.claim.format_name = "ggml.q4_0";
  EXPECT_TRUE(takes(lines));
  EXPECT_FALSE(takes(other_lines)) << "another format";
  EXPECT_NE(l_.reasons().find("layout \"other\" is not taken, only strides, ggml.q4_0"),
            std::string::npos)
      << l_.reasons();
  l_.claim.scale_dtype = BP_F32;
  EXPECT_FALSE(takes(lines)) << "other scales";
}

TEST_F(LayoutClaims, OfKindVendorTakeWhatHasNoDescription) {
  EXPECT_FALSE(takes(blocks));
  l_.claim = make_claim(BP_LAYOUT_KIND_VENDOR, 1);
  EXPECT_TRUE(takes(blocks));
  EXPECT_TRUE(takes(make_layout("unknown", 77))) << "an unknown kind counts as VENDOR";
  EXPECT_FALSE(takes(tiles));
  l_.claim.arguments = 2;
  EXPECT_FALSE(takes(blocks)) << "for another argument";
}

TEST_F(LayoutClaims, OfABlockTakeTensorsOfALowerRank) {
  const int64_t line[1] = {16};
  bp_layout_desc desc = square_desc;
  desc.ndim = 1;
  desc.block_shape = line;
  EXPECT_TRUE(takes(make_layout("one axis", BP_LAYOUT_KIND_TILED, &desc)));
  const int64_t deep[3] = {2, 16, 16};
  desc.ndim = 3;
  desc.block_shape = deep;
  EXPECT_FALSE(takes(make_layout("cubes", BP_LAYOUT_KIND_TILED, &desc)));
}

TEST(OwnLayouts, AreAskedAboutPerCall) {
  Loaded l;
  l.tiled.supports = [](const bp_kernel*, bp_device*, bp_launch_flags,
                        const void* args) -> bp_reason {
    return static_cast<const bp_add_args*>(args)->a->layout == nullptr ? nullptr : "wrong shape";
  };
  l.tiled.supports_ignores =
      BP_SUPPORTS_IGNORES_SHAPE | BP_SUPPORTS_IGNORES_ATTRIBUTES | BP_SUPPORTS_IGNORES_ALIGNMENT;
  l.call.a.layout = &tiles;
  EXPECT_EQ(l.launch(), BP_UNSUPPORTED);
  EXPECT_NE(l.reasons().find("tiled: wrong shape"), std::string::npos) << l.reasons();
}

TEST(OwnLayouts, AreNotClaimedInAnUnreadableWay) {
  bp_kernel kernel = make_kernel("tiled");
  kernel.layout_claim_count = 1;
  EXPECT_EQ(kernel_defect(kernel), "layout_claims is NULL, and layout_claim_count is 1");
  const bp_layout_claim* claims[1] = {nullptr};
  kernel.layout_claims = claims;
  EXPECT_EQ(kernel_defect(kernel), "layout_claims[0] is NULL");
  bp_layout_claim claim = make_claim(BP_LAYOUT_KIND_TILED, 1);
  claims[0] = &claim;
  EXPECT_EQ(kernel_defect(kernel), "");
  claim.block_ndim = 9;
  EXPECT_EQ(kernel_defect(kernel), "layout_claims[0]: block_ndim is 9; at most 8 is allowed");
  claim.struct_type = BP_STRUCT_KERNEL;
  EXPECT_NE(kernel_defect(kernel), "");
}

}  // namespace
}  // namespace bp::core
