// Tests tensors in a layout of the backend's own: which kernels take them, and what the refusals
// say.
#include <gtest/gtest.h>

#include "backplane/registry.hpp"
#include "registry/tests/fake_backend.hpp"

namespace bp::core {
namespace {

bp_layout make_layout(const char* name) {
  return {.struct_size = sizeof(bp_layout), .struct_type = BP_STRUCT_LAYOUT, .name = name};
}
bp_layout tiles = make_layout("tiles"), blocks = make_layout("blocks");
int references;  // How many references the table gave and did not get back.

// Makes a table in which the kernel "tiled" prefers tiles for `a`, and strides for all other
// tensors.
bp_layout_ops tile_table() {
  bp_layout_ops table{.struct_size = sizeof(table), .struct_type = BP_STRUCT_LAYOUT_OPS};
  table.preferred = [](void*, bp_device*, const bp_kernel* kernel, uint32_t argument, const void*,
                       const bp_layout** out) -> bp_status {
    const bool is_tiled = std::string_view(kernel->name) == "tiled" && argument == 0;
    *out = is_tiled ? &tiles : nullptr;
    references += is_tiled ? 1 : 0;
    return BP_OK;
  };
  table.equal = [](void*, const bp_layout* a, const bp_layout* b, uint32_t* out) -> bp_status {
    *out = a == b ? 1 : 0;
    return BP_OK;
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

struct Loaded {
  bp_layout_ops table = tile_table();
  bp_kernel plain = make_kernel("plain"), tiled = make_kernel("tiled");
  FakeBackend fake;  // It outlives the registry.
  TestRegistry r;
  const bp_target* target = nullptr;
  AddCall call;

  explicit Loaded(bool has_table = true) {
    references = 0;
    fake.kernels = {&plain, &tiled};
    if (has_table) fake.layouts = &table;
    EXPECT_EQ(fake.load(r.registry), BP_OK) << bp_error_text();
    target = r.target();
  }
  ~Loaded() { EXPECT_EQ(references, 0); }

  bp_status launch() { return bp_op_launch(target, nullptr, 0, BP_OP_ADD, &call.args); }
  std::string reasons() const { return bp::explain(*target, 0, BP_OP_ADD, &call.args); }
};

TEST(OwnLayouts, ComeToTheKernelThatPrefersThem) {
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
  EXPECT_NE(l.reasons().find("tiled: a: layout \"blocks\" is not taken, only layout \"tiles\""),
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

TEST(OwnLayouts, AreRefusedWhereTheDeviceHasNone) {
  Loaded l(false);
  l.call.a.layout = &tiles;
  EXPECT_EQ(l.launch(), BP_UNSUPPORTED);
  EXPECT_NE(l.reasons().find("a: layout \"tiles\" is not taken: layout.preferred is not offered"),
            std::string::npos)
      << l.reasons();
}

}  // namespace
}  // namespace bp::core
