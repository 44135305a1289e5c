// Tests calls by strides of kernels that take layouts alone: what the host converts, what the
// kernel sees, and what the explanations say. A layout here is a copy of the rows, and each
// conversion adds 100 to the elements, so that results show how often they were converted.
#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include "backplane/registry.hpp"
#include "registry/tests/fake_backend.hpp"

namespace bp::core {
namespace {

constexpr int64_t kBlock[2] = {4, 4};

// What the table of layouts and the kernel have seen.
struct Seen {
  std::deque<bp_layout> layouts;
  std::deque<bp_layout_desc> descs;
  int references = 0, conversions = 0, strides = 0, questions = 0;
  bp_status status_of_desc = BP_OK;
  int64_t block[2] = {};
};
Seen* seen;

float* elements(const bp_tensor& tensor) {
  return reinterpret_cast<float*>(reinterpret_cast<unsigned char*>(tensor.buffer) +
                                  tensor.byte_offset);
}

bp_status from_desc(void*, bp_device*, const bp_layout_desc* desc, const bp_layout** out) {
  if (seen->status_of_desc != BP_OK) return seen->status_of_desc;
  std::copy_n(desc->block_shape, desc->ndim, seen->block);
  seen->descs.push_back(*desc);
  seen->descs.back().block_shape = kBlock;
  seen->layouts.push_back({.struct_size = sizeof(bp_layout),
                           .struct_type = BP_STRUCT_LAYOUT,
                           .name = "rows",
                           .physical_size_bytes = 24,
                           .alignment_bytes = 4096,
                           .kind = BP_LAYOUT_KIND_TILED,
                           .dtype = desc->dtype,
                           .desc = &seen->descs.back()});
  ++seen->references;
  *out = &seen->layouts.back();
  return BP_OK;
}

bp_status convert(void*, bp_stream*, const bp_tensor* dst, const bp_tensor* src) {
  EXPECT_NE(dst->layout == nullptr, src->layout == nullptr);
  const bp_tensor& laid = dst->layout == nullptr ? *src : *dst;
  EXPECT_EQ(laid.byte_offset % laid.layout->alignment_bytes, 0u);
  for (int i = 0; i < 6; ++i) elements(*dst)[i] = elements(*src)[i] + 100;
  ++seen->conversions;
  return BP_OK;
}

bp_layout_ops make_table() {
  bp_layout_ops table{.struct_size = sizeof(table), .struct_type = BP_STRUCT_LAYOUT_OPS};
  table.from_desc = from_desc;
  table.convert = convert;
  table.retain = [](void*, const bp_layout*) -> bp_status {
    ++seen->references;
    return BP_OK;
  };
  table.release = [](void*, const bp_layout* layout) -> bp_status {
    if (layout != nullptr) --seen->references;
    return BP_OK;
  };
  return table;
}

void look_at(const void* args) {
  const auto& frame = *static_cast<const bp_add_args*>(args);
  for (const bp_tensor* tensor : {frame.a, frame.b, frame.y}) {
    seen->strides += tensor != nullptr && tensor->layout == nullptr;
  }
}

class LayingOut : public testing::Test {
 protected:
  LayingOut() {
    seen = &seen_;
    tiled_.layout_claims = claims_;
    tiled_.layout_claim_count = 1;
    tiled_.layouts = BP_LAYOUT_CONTIGUOUS;
    tiled_.launch = [](const bp_kernel*, const bp_launch*, const void* args) -> bp_status {
      look_at(args);
      const auto& frame = *static_cast<const bp_add_args*>(args);
      for (int i = 0; i < 6; ++i) {
        elements(*frame.y)[i] = elements(*frame.a)[i] + (frame.b ? elements(*frame.b)[i] : 7);
      }
      return BP_OK;
    };
    tiled_.supports = [](const bp_kernel*, bp_device*, bp_launch_flags,
                         const void* args) -> bp_reason {
      ++seen->questions;
      look_at(args);
      return nullptr;
    };
    fake_.kernels = {&tiled_};
    fake_.layouts = &table_;
    fake_.buffer_size_bytes = 1 << 16;
    for (int i = 0; i < 6; ++i) {
      call_.memory[0][i] = static_cast<float>(i);
      call_.memory[1][i] = 10;
    }
  }
  ~LayingOut() override { EXPECT_EQ(seen_.references, 0); }

  void load() {
    ASSERT_EQ(fake_.load(r_.registry), BP_OK) << bp_error_text();
    target_ = r_.target();
  }
  bp_status launch() { return bp_op_launch(target_, nullptr, 0, BP_OP_ADD, &call_.args); }
  uint64_t laid_out_count() const {
    bp_dispatch_statistics statistics{.struct_size = sizeof(statistics),
                                      .struct_type = BP_STRUCT_DISPATCH_STATISTICS};
    EXPECT_EQ(bp_target_statistics(target_, BP_OP_ADD, &statistics), BP_OK);
    return statistics.laid_out_count;
  }
  std::string reasons() const { return bp::explain(*target_, 0, BP_OP_ADD, &call_.args); }

  Seen seen_;
  bp_layout_ops table_ = make_table();
  bp_kernel tiled_ = make_kernel("tiled");
  bp_layout_claim claim_{.struct_size = sizeof(bp_layout_claim),
                         .struct_type = BP_STRUCT_LAYOUT_CLAIM,
                         .arguments = 7,
                         .block_shape = kBlock,
                         .block_ndim = 2,
                         .kind = BP_LAYOUT_KIND_TILED,
                         .flags = BP_LAYOUT_CLAIM_REQUIRED};
  const bp_layout_claim* const claims_[1] = {&claim_};
  FakeBackend fake_;  // It outlives the registry.
  TestRegistry r_;
  const bp_target* target_ = nullptr;
  AddCall call_;
};

TEST_F(LayingOut, ConvertsWhatIsReadAndWhatIsWritten) {
  load();
  ASSERT_EQ(launch(), BP_OK) << bp_error_text();
  EXPECT_EQ(call_.memory[2][5], 5 + 100 + 10 + 100 + 100);
  EXPECT_EQ(seen_.conversions, 3);
  EXPECT_EQ(seen_.strides, 0) << "the kernel saw a tensor by strides";
  EXPECT_GT(seen_.questions, 0);
  EXPECT_EQ(seen_.block[0], 4);
  EXPECT_EQ(laid_out_count(), 1u);
  EXPECT_EQ(bp_kernel_launch(target_, nullptr, 0, &tiled_, &call_.args), BP_OK) << bp_error_text();
  EXPECT_EQ(laid_out_count(), 2u);
  EXPECT_EQ(seen_.strides, 0);
}

TEST_F(LayingOut, LeavesAloneWhatLiesInALayout) {
  load();
  const bp_layout_desc desc{.struct_size = sizeof(desc),
                            .struct_type = BP_STRUCT_LAYOUT_DESC,
                            .shape = call_.shape,
                            .block_shape = kBlock,
                            .ndim = 2,
                            .kind = BP_LAYOUT_KIND_TILED,
                            .dtype = BP_F32};
  const bp_layout* layout = nullptr;
  ASSERT_EQ(from_desc(nullptr, nullptr, &desc, &layout), BP_OK);
  call_.a.layout = layout;
  ASSERT_EQ(launch(), BP_OK) << bp_error_text();
  EXPECT_EQ(call_.memory[2][5], 5 + 10 + 100 + 100);
  EXPECT_EQ(seen_.conversions, 2);
  EXPECT_EQ(laid_out_count(), 1u);
  call_.b.layout = call_.y.layout = layout;
  ASSERT_EQ(launch(), BP_OK) << bp_error_text();
  EXPECT_EQ(call_.memory[2][5], 5 + 10);
  EXPECT_EQ(seen_.conversions, 2);
  EXPECT_EQ(laid_out_count(), 1u) << "nothing was converted";
  --seen_.references;
}

TEST_F(LayingOut, AlsoTakesStridesThatTheKernelDoesNotClaim) {
  load();
  call_.strides[0] = 1;
  call_.strides[1] = 2;
  EXPECT_EQ(launch(), BP_OK) << bp_error_text();
  EXPECT_EQ(laid_out_count(), 1u);
}

TEST_F(LayingOut, ComesAfterKernelsThatTakeTheTensorsAsTheyAre) {
  bp_kernel plain = make_kernel("plain");
  plain.priority = -5;
  fake_.kernels = {&tiled_, &plain};
  load();
  ASSERT_EQ(launch(), BP_OK) << bp_error_text();
  EXPECT_EQ(laid_out_count(), 0u);
  EXPECT_NE(reasons().find("/plain: taken\n"), std::string::npos) << reasons();
  EXPECT_NE(reasons().find("/tiled: not needed"), std::string::npos) << reasons();
}

TEST_F(LayingOut, IsExplainedAndHasAReason) {
  load();
  EXPECT_NE(reasons().find("/tiled: taken; a, b and y are converted to TILED of 4x4"),
            std::string::npos)
      << reasons();
  ASSERT_EQ(launch(), BP_OK) << bp_error_text();
  ASSERT_EQ(launch(), BP_OK) << bp_error_text();
  ASSERT_EQ(bp_target_reason_count(target_), 1u);
  bp_dispatch_reason reason{.struct_size = sizeof(reason),
                            .struct_type = BP_STRUCT_DISPATCH_REASON};
  ASSERT_EQ(bp_target_reason(target_, 0, &reason), BP_OK);
  EXPECT_EQ(reason.call_count, 2u);
  EXPECT_NE(std::string(reason.text).find("tiled takes a, b, y in TILED of 4x4 alone"),
            std::string::npos)
      << reason.text;
}

TEST_F(LayingOut, ServesPreparedCallsWithoutAPlan) {
  load();
  bp_prepared* prepared = nullptr;
  ASSERT_EQ(bp_op_prepare(target_, nullptr, 0, BP_OP_ADD, &call_.args, nullptr, 0, &prepared),
            BP_OK)
      << bp_error_text();
  EXPECT_EQ(bp_prepared_launch(prepared, nullptr, &call_.args), BP_OK) << bp_error_text();
  EXPECT_EQ(call_.memory[2][5], 5 + 100 + 10 + 100 + 100);
  EXPECT_EQ(laid_out_count(), 1u);
  EXPECT_EQ(bp_prepared_release(prepared), BP_OK);
}

TEST_F(LayingOut, IsRefusedWhereTheHostCannotMakeTheLayout) {
  claim_.kind = BP_LAYOUT_KIND_VENDOR;
  claim_.block_shape = nullptr;
  load();
  EXPECT_EQ(launch(), BP_UNSUPPORTED);
  EXPECT_NE(reasons().find("/tiled: a: strides are not taken, only those of its backend, a layout "
                           "that the host cannot make"),
            std::string::npos)
      << reasons();
  EXPECT_EQ(bp_kernel_launch(target_, nullptr, 0, &tiled_, &call_.args), BP_UNSUPPORTED);
  EXPECT_EQ(seen_.conversions, 0);
}

TEST_F(LayingOut, PassesOnWhatTheBackendSaysAboutADescription) {
  seen_.status_of_desc = BP_UNSUPPORTED;
  load();
  EXPECT_EQ(launch(), BP_UNSUPPORTED);
  seen_.status_of_desc = BP_DEVICE_LOST;
  EXPECT_EQ(bp_kernel_launch(target_, nullptr, 0, &tiled_, &call_.args), BP_DEVICE_LOST);
  EXPECT_EQ(seen_.conversions, 0);
}

// The tensor of a scalar is converted too. The kernel takes inline scalars as they are.
TEST_F(LayingOut, ConvertsTensorsThatAreMadeOfScalars) {
  call_.args.b = nullptr;
  call_.args.b_scalar.dtype = BP_F64;
  load();
  ASSERT_EQ(launch(), BP_OK) << bp_error_text();
  EXPECT_EQ(seen_.conversions, 2) << "an inline scalar stays as it is";
  tiled_.flags = BP_KERNEL_IN_PLACE;
  ASSERT_EQ(bp_kernel_launch(target_, nullptr, 0, &tiled_, &call_.args), BP_OK) << bp_error_text();
  EXPECT_EQ(seen_.conversions, 5);
  EXPECT_EQ(seen_.strides, 0);
}

TEST_F(LayingOut, ConvertsNothingOfTensorsWithoutElements) {
  call_.shape[0] = 0;
  call_.a.buffer = call_.b.buffer = call_.y.buffer = nullptr;
  tiled_.launch = [](const bp_kernel*, const bp_launch*, const void* args) -> bp_status {
    look_at(args);
    return BP_OK;
  };
  load();
  ASSERT_EQ(launch(), BP_OK) << bp_error_text();
  EXPECT_EQ(seen_.conversions, 0);
  EXPECT_EQ(seen_.strides, 0);
}

}  // namespace
}  // namespace bp::core
