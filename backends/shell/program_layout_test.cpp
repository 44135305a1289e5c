// Tests programs whose values have layouts. The device has one layout, tiles of 2, which has the
// elements in the reverse order behind each other, and then 16 bytes of padding.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backends/shell/test_compiler.hpp"

namespace bp {
namespace {

constexpr int64_t kBlock[] = {2};
constexpr int64_t kShape[] = {4};

class LaidOutProgramTest : public ProgramTest {
 protected:
  LaidOutProgramTest() {
    layouts = std::make_unique<Layouts>(
        LayoutBackend{.host = &device.host,
                      .identity = "reverse 1",
                      .facts_of = facts_of,
                      .described_form = form_of,
                      .described_layouts = [] { return std::string("tiles of 2"); }});
    device.layouts = layouts.get();
    layout_table.self = this;
    layout_table.convert = [](void* self, bp_stream*, const bp_tensor* dst, const bp_tensor* src) {
      FakeDevice& its = static_cast<LaidOutProgramTest*>(self)->device;
      for (int64_t i = 0; i < element_count(*dst); ++i) its.element(*dst, i) = its.element(*src, i);
      return bp_status{BP_OK};
    };
    copy = make_kernel<bp_copy_args>("copy", BP_OP_COPY, launch_copy);
    tiled_neg = make_kernel<bp_neg_args>("tiled neg", BP_OP_NEG, launch_neg);
    for (bp_kernel* kernel : {&copy, &tiled_neg}) {
      kernel->layout_claims = claims;
      kernel->layout_claim_count = 1;
    }
    offer({&add, &neg, &copy});
  }
  ~LaidOutProgramTest() override { compiler.reset(); }

  static LayoutFacts facts_of(const LayoutForm& form) {
    LayoutFacts facts{.name = "reverse"};
    facts.physical_size_bytes = static_cast<uint64_t>(form.shape[0]) * 4 + 16;
    facts.alignment_bytes = 16;
    facts.block_shape.fill(2);
    return facts;
  }
  static std::optional<LayoutForm> form_of(const bp_layout_desc& desc) {
    if (desc.kind != BP_LAYOUT_KIND_TILED || desc.ndim != 1 || desc.block_shape[0] != 2) {
      return std::nullopt;
    }
    LayoutForm form{.kind = BP_LAYOUT_KIND_TILED, .dtype = desc.dtype, .ndim = 1};
    form.shape[0] = desc.shape[0];
    return form;
  }
  static bp_status launch_copy(const bp_kernel* self, const bp_launch* launch, const void* args) {
    const auto& a = *static_cast<const bp_copy_args*>(args);
    ProgramTest& test = of(self);
    const bp_status status =
        static_cast<LaidOutProgramTest&>(test).enter(*self, *launch, {*a.x, *a.y});
    FakeDevice& its = static_cast<LaidOutProgramTest&>(test).device;
    for (int64_t i = 0; i < element_count(*a.y); ++i) its.element(*a.y, i) = its.element(*a.x, i);
    return status;
  }

  static bp_status launch_cat(const bp_kernel* self, const bp_launch* launch, const void* args) {
    const auto& a = *static_cast<const bp_cat_args*>(args);
    ProgramTest& test = of(self);
    return static_cast<LaidOutProgramTest&>(test).enter(*self, *launch, {*a.xs[0], *a.xs[1], *a.y});
  }

  void lay_out(ProgramMaker& maker, uint32_t value) { maker.values[value].layout = &desc; }

  std::vector<std::string> kernels() const {
    std::vector<std::string> names;
    for (const Launched& launch : launched) names.push_back(launch.kernel);
    return names;
  }

  // Returns the text with which compile() refuses the program.
  std::string refusal(ProgramMaker& maker, bp_status want) {
    bp_executable* executable = nullptr;
    EXPECT_EQ(ops.compile(ops.self, device.handle(), maker.desc(), &executable), want);
    return device.text;
  }

  bp_layout_desc desc{.struct_size = sizeof(bp_layout_desc),
                      .struct_type = BP_STRUCT_LAYOUT_DESC,
                      .shape = kShape,
                      .block_shape = kBlock,
                      .ndim = 1,
                      .kind = BP_LAYOUT_KIND_TILED,
                      .dtype = BP_F32};
  bp_layout_claim claim{.struct_size = sizeof(bp_layout_claim),
                        .struct_type = BP_STRUCT_LAYOUT_CLAIM,
                        .arguments = 3,
                        .block_shape = kBlock,
                        .block_ndim = 1,
                        .kind = BP_LAYOUT_KIND_TILED};
  const bp_layout_claim* claims[1] = {&claim};
  bp_kernel copy{}, tiled_neg{};
};

// y = -x with both in the layout.
struct LaidOutNeg {
  explicit LaidOutNeg(const bp_layout_desc& desc) {
    maker.values[x].layout = maker.values[y].layout = &desc;
    maker.add_neg(x, y);
  }

  ProgramMaker maker;
  const uint32_t x = maker.add_value(BP_VALUE_INPUT), y = maker.add_value(BP_VALUE_OUTPUT);
};

TEST_F(LaidOutProgramTest, GivesTensorsToKernelsThatClaimTheirLayout) {
  offer({&neg, &tiled_neg, &copy});
  LaidOutNeg laid_out(desc);
  bp_executable* const executable = compile(laid_out.maker);
  EXPECT_EQ(run(executable, laid_out.maker, {{1, 2, 3, 4}})[1],
            (std::vector<float>{-1, -2, -3, -4}));
  EXPECT_EQ(kernels(), (std::vector<std::string>{"tiled neg"}));
}

TEST_F(LaidOutProgramTest, CopiesToAndFroWhereNoKernelClaimsIt) {
  LaidOutNeg laid_out(desc);
  bp_executable* const executable = compile(laid_out.maker);
  EXPECT_EQ(run(executable, laid_out.maker, {{1, 2, 3, 4}})[1],
            (std::vector<float>{-1, -2, -3, -4}));
  EXPECT_EQ(kernels(), (std::vector<std::string>{"copy", "neg", "copy"}));
  EXPECT_NE(launched[0].tensors[0].layout, nullptr);
  EXPECT_EQ(launched[1].tensors[0].layout, nullptr);
}

TEST_F(LaidOutProgramTest, CopiesOnlyWhatAKernelDoesNotClaim) {
  claim.arguments = 1;  // The input alone.
  bp_layout_claim both = claim;
  both.arguments = 3;
  const bp_layout_claim* const all[1] = {&both};
  copy.layout_claims = all;
  offer({&tiled_neg, &copy});
  LaidOutNeg laid_out(desc);
  bp_executable* const executable = compile(laid_out.maker);
  EXPECT_EQ(run(executable, laid_out.maker, {{1, 2, 3, 4}})[1],
            (std::vector<float>{-1, -2, -3, -4}));
  EXPECT_EQ(kernels(), (std::vector<std::string>{"tiled neg", "copy"}));
}

// A kernel that takes a layout alone is never asked about strides, so it may come first.
TEST_F(LaidOutProgramTest, GivesNoStridesToKernelsThatTakeALayoutAlone) {
  claim.flags = BP_LAYOUT_CLAIM_REQUIRED;
  bp_layout_claim free = claim;
  free.flags = 0;
  const bp_layout_claim* const any[1] = {&free};
  copy.layout_claims = any;
  tiled_neg.supports = [](const bp_kernel*, bp_device*, bp_launch_flags,
                          const void* args) -> bp_reason {
    EXPECT_NE(static_cast<const bp_neg_args*>(args)->x->layout, nullptr);
    return nullptr;
  };
  offer({&tiled_neg, &neg, &copy});
  const auto kernels_of = [&](bool x_laid, bool y_laid) {
    ProgramMaker maker;
    const uint32_t x = maker.add_value(BP_VALUE_INPUT), y = maker.add_value(BP_VALUE_OUTPUT);
    if (x_laid) lay_out(maker, x);
    if (y_laid) lay_out(maker, y);
    maker.add_neg(x, y);
    bp_executable* const executable = compile(maker);
    launched.clear();
    EXPECT_EQ(run(executable, maker, {{1, 2, 3, 4}})[1], (std::vector<float>{-1, -2, -3, -4}));
    return kernels();
  };
  EXPECT_EQ(kernels_of(true, true), (std::vector<std::string>{"tiled neg"}));
  EXPECT_EQ(kernels_of(false, false), (std::vector<std::string>{"neg"}));
  EXPECT_EQ(kernels_of(true, false), (std::vector<std::string>{"copy", "neg"}));
  EXPECT_EQ(kernels_of(false, true), (std::vector<std::string>{"neg", "copy"}));
  offer({&tiled_neg, &copy});
  ProgramMaker plain;
  plain.add_neg(plain.add_value(BP_VALUE_INPUT), plain.add_value(BP_VALUE_OUTPUT));
  EXPECT_EQ(refusal(plain, BP_UNSUPPORTED),
            "compile: node 0: neg: the kernel takes a layout alone, and no strides");
}

TEST_F(LaidOutProgramTest, ClaimsEachTensorOfAList) {
  bp_kernel cat = make_kernel<bp_cat_args>("cat", BP_OP_CAT, launch_cat);
  cat.layout_claims = claims;
  cat.layout_claim_count = 1;
  claim.arguments = 1;  // The list.
  offer({&cat});
  ProgramMaker maker;
  const uint32_t x = maker.add_value(BP_VALUE_INPUT), y = maker.add_value(BP_VALUE_OUTPUT, {8});
  lay_out(maker, x);
  const bp_tensor* const xs[] = {maker.whole(x), maker.whole(x)};
  maker.add_node(BP_OP_CAT, bp_cat_args{.xs_count = 2, .xs = xs, .y = maker.whole(y)}, {x, x, y});
  run(compile(maker), maker, {{1, 2, 3, 4}});
  EXPECT_EQ(kernels(), (std::vector<std::string>{"cat"}));
  EXPECT_NE(launched.at(0).tensors[1].layout, nullptr);
}

TEST_F(LaidOutProgramTest, CopiesTheResultOfANodeThatWorksInPlace) {
  ProgramMaker maker;
  const uint32_t x = maker.add_value(BP_VALUE_INPUT), y = maker.add_value(BP_VALUE_OUTPUT);
  lay_out(maker, y);
  maker.add_neg(x, y);
  maker.add_neg(y, y);
  bp_executable* const executable = compile(maker);
  EXPECT_EQ(run(executable, maker, {{1, 2, 3, 4}})[1], (std::vector<float>{1, 2, 3, 4}));
}

TEST_F(LaidOutProgramTest, GivesAReasonIfTheDeviceHasNoCopies) {
  offer({&neg});
  LaidOutNeg laid_out(desc);
  uint32_t partition = 0;
  bp_reason reason = nullptr;
  uint64_t count = 7;
  ASSERT_EQ(
      ops.query(ops.self, device.handle(), laid_out.maker.desc(), 1, &partition, &reason, &count),
      BP_OK);
  EXPECT_STREQ(reason, "a layout of the backend's own is not claimed");
  EXPECT_EQ(count, 0u);
  EXPECT_EQ(refusal(laid_out.maker, BP_UNSUPPORTED),
            "compile: node 0: neg: a layout of the backend's own is not claimed");
}

TEST_F(LaidOutProgramTest, GivesAReasonIfTheDeviceLacksTheLayout) {
  constexpr int64_t kOther[] = {3};
  desc.block_shape = kOther;
  LaidOutNeg laid_out(desc);
  uint32_t partition = 0;
  bp_reason reason = nullptr;
  uint64_t count = 7;
  ASSERT_EQ(
      ops.query(ops.self, device.handle(), laid_out.maker.desc(), 1, &partition, &reason, &count),
      BP_OK);
  EXPECT_STREQ(reason, "the device does not have the layout of a value of the node");
  EXPECT_EQ(refusal(laid_out.maker, BP_UNSUPPORTED),
            "compile: value 0: layout: the backend has no such layout; it has tiles of 2");
  layouts.reset();
  offer({&neg});
  EXPECT_EQ(refusal(laid_out.maker, BP_UNSUPPORTED),
            "compile: value 0: layout: the device has no layouts");
}

TEST_F(LaidOutProgramTest, WritesConstantsIntoTheirLayout) {
  const std::vector<float> k = {10, 20, 30, 40};
  for (const char* key : {static_cast<const char*>(nullptr), "k"}) {
    ProgramMaker maker;
    const uint32_t x = maker.add_value(BP_VALUE_INPUT), c = maker.add_constant(k),
                   y = maker.add_value(BP_VALUE_OUTPUT);
    lay_out(maker, c);
    maker.values[c].key = key;
    maker.add_add(x, c, y);
    bp_executable* const executable = compile(maker);
    EXPECT_EQ(run(executable, maker, {{1, 2, 3, 4}})[1], (std::vector<float>{11, 22, 33, 44}));
    EXPECT_EQ(info_of(executable).constant_bytes + info_of(executable).shared_constant_bytes,
              key == nullptr ? 256u : 32u);
  }
}

TEST_F(LaidOutProgramTest, RefusesOtherLayoutsInALaunch) {
  LaidOutNeg laid_out(desc);
  bp_executable* const executable = compile(laid_out.maker);
  ProgramCall call(device, kernel_of(executable), laid_out.maker, {{1, 2, 3, 4}});
  const bp_tensor good = call.tensors[1];
  constexpr int64_t kStrides[] = {1};
  call.tensors[1].layout = nullptr;
  call.tensors[1].strides = kStrides;
  EXPECT_EQ(call.run(), BP_INVALID_ARGUMENT);
  EXPECT_EQ(device.text,
            "program: tensor 1 has strides, and its value has the layout \"reverse\"; pass the "
            "layout that from_desc() gives for the value's description");
  bp_layout other = *good.layout;
  call.tensors[1].layout = &other;
  EXPECT_EQ(call.run(), BP_INVALID_ARGUMENT);
  call.tensors[1] = good;
  call.tensors[1].byte_offset = 8;
  EXPECT_EQ(call.run(), BP_INVALID_ARGUMENT);
  EXPECT_EQ(device.text,
            "program: tensor 1: byte_offset is 8; its layout asks for a multiple of 16");
  EXPECT_TRUE(launched.empty());
  call.tensors[1] = good;
  EXPECT_EQ(call.run(), BP_OK) << device.text;
  ProgramMaker plain;
  plain.add_neg(plain.add_value(BP_VALUE_INPUT), plain.add_value(BP_VALUE_OUTPUT));
  bp_executable* const by_strides = compile(plain);
  ProgramCall strided(device, kernel_of(by_strides), plain, {{1, 2, 3, 4}});
  strided.tensors[0].layout = good.layout;
  EXPECT_EQ(strided.run(), BP_INVALID_ARGUMENT);
}

TEST_F(LaidOutProgramTest, RefusesBrokenLayouts) {
  const auto text_of = [&](auto&& change, bp_status want) {
    LaidOutNeg laid_out(desc);
    change(laid_out);
    return refusal(laid_out.maker, want);
  };
  constexpr int64_t kStrides[] = {1}, kFive[] = {5}, kHalf[] = {2};
  EXPECT_EQ(
      text_of([&](LaidOutNeg& l) { l.maker.values[l.x].strides = kStrides; }, BP_INVALID_ARGUMENT),
      "program: value 0: it has strides and a layout; give one");
  bp_layout_desc lying = desc;
  lying.shape = kFive;
  const auto lies = [&](LaidOutNeg& l) { l.maker.values[l.x].layout = &lying; };
  EXPECT_EQ(text_of(lies, BP_INVALID_ARGUMENT),
            "program: value 0: layout: it describes shape [5] of dtype " + std::to_string(BP_F32) +
                ", and the value has [4] of dtype " + std::to_string(BP_F32));
  lying = desc;
  lying.dtype = BP_F16;
  EXPECT_NE(text_of(lies, BP_INVALID_ARGUMENT).find("it describes shape [4]"), std::string::npos);
  lying = desc;
  lying.block_shape = nullptr;
  EXPECT_NE(text_of(lies, BP_INVALID_ARGUMENT).find("block_shape is NULL"), std::string::npos);
  lying = desc;
  lying.struct_size = 8;
  EXPECT_NE(text_of(lies, BP_INCOMPATIBLE).find("program: value 0: layout"), std::string::npos);
  lying = desc;
  lying.struct_type = BP_STRUCT_PROGRAM;
  EXPECT_NE(text_of(lies, BP_INVALID_ARGUMENT).find("struct_type"), std::string::npos);
  EXPECT_EQ(text_of(
                [&](LaidOutNeg& l) {
                  const auto& args = *static_cast<const bp_neg_args*>(l.maker.nodes[0].args);
                  const_cast<bp_tensor*>(args.x)->shape = kHalf;
                },
                BP_UNSUPPORTED),
            "program: node 0: x: it is not the whole value 0, and a value with a layout has no "
            "other views");
  bp_layout layout{};
  EXPECT_EQ(text_of(
                [&](LaidOutNeg& l) {
                  const auto& args = *static_cast<const bp_neg_args*>(l.maker.nodes[0].args);
                  const_cast<bp_tensor*>(args.x)->layout = &layout;
                },
                BP_INVALID_ARGUMENT),
            "program: node 0: a tensor has a layout; give NULL, since it has the layout of its "
            "value");
}

TEST_F(LaidOutProgramTest, TakesNodesWithoutStrides) {
  LaidOutNeg laid_out(desc);
  const auto& args = *static_cast<const bp_neg_args*>(laid_out.maker.nodes[0].args);
  const_cast<bp_tensor*>(args.x)->strides = nullptr;
  bp_executable* const executable = compile(laid_out.maker);
  EXPECT_EQ(run(executable, laid_out.maker, {{1, 2, 3, 4}})[1],
            (std::vector<float>{-1, -2, -3, -4}));
}

TEST_F(LaidOutProgramTest, RefusesALayoutBesideExtents) {
  ProgramMaker maker;
  const int64_t n = maker.add_range(1, 4, 8);
  const uint32_t x = maker.add_value(BP_VALUE_INPUT, {n}),
                 y = maker.add_value(BP_VALUE_OUTPUT, {n});
  lay_out(maker, x);
  maker.add_neg(x, y);
  EXPECT_EQ(refusal(maker, BP_INVALID_ARGUMENT),
            "program: value 0: it has a layout, and its shape names an extent; give strides or "
            "numbers");
}

TEST_F(LaidOutProgramTest, KeepsLayoutsInBytesAndFingerprints) {
  LaidOutNeg laid_out(desc);
  bp_executable* executable = compile(laid_out.maker);
  uint64_t size = 0;
  ASSERT_EQ(ops.serialize(ops.self, executable, 0, nullptr, &size), BP_OK);
  std::vector<uint8_t> bytes(size);
  ASSERT_EQ(ops.serialize(ops.self, executable, size, bytes.data(), &size), BP_OK);
  ASSERT_EQ(ops.release(ops.self, executable), BP_OK);
  ASSERT_EQ(ops.deserialize(ops.self, device.handle(), bytes.data(), size, nullptr, &executable),
            BP_OK)
      << device.text;
  EXPECT_EQ(run(executable, laid_out.maker, {{1, 2, 3, 4}})[1],
            (std::vector<float>{-1, -2, -3, -4}));
  uint64_t with[2] = {}, without[2] = {};
  ASSERT_EQ(ops.fingerprint(ops.self, device.handle(), laid_out.maker.desc(), with), BP_OK);
  laid_out.maker.values[laid_out.x].layout = nullptr;
  ASSERT_EQ(ops.fingerprint(ops.self, device.handle(), laid_out.maker.desc(), without), BP_OK);
  EXPECT_NE(with[0], without[0]);
}

}  // namespace
}  // namespace bp
