// Tests two backends side by side: one in this process whose sums can be wrong, and one from a
// file.
#include <gtest/gtest.h>

#include <cmath>

#include "registry/layers/elements.hpp"
#include "registry/tests/comma_locale.hpp"
#include "registry/tests/fake_backend.hpp"

namespace bp::core {
namespace {

TEST(Elements, FindsTheFirstThatDiffersBeyondTheBound) {
  const int64_t shape[] = {2, 2}, strides[] = {3, 1};
  const bp_tensor t{
      .byte_offset = 8, .shape = shape, .strides = strides, .ndim = 2, .dtype = BP_F32};
  const float a[] = {1, 2, 99, 3, NAN}, b[] = {1, 2, 11, 3.0001f, NAN};
  const auto compare = [&](const layers::Tolerance& tolerance) {
    return layers::first_difference({&t, reinterpret_cast<const unsigned char*>(a), 8},
                                    {&t, reinterpret_cast<const unsigned char*>(b), 8}, tolerance);
  };
  EXPECT_EQ(compare({}),
            "element [1, 0]: 3 and 3.0000999 are 9.99e-05 apart, allowed are 0; 1 of 4 elements "
            "differ");
  EXPECT_EQ(compare({.relative = 1e-5}),
            "element [1, 0]: 3 and 3.0000999 are 9.99e-05 apart, allowed are 3e-05; 1 of 4 "
            "elements differ");
  EXPECT_EQ(compare({.relative = 1e-4}), "") << "what lies between the rows is no element";
  EXPECT_EQ(compare({.relative = 1e-5, .scale = 10}), "");
  const float sums[] = {0, 0, 0, 10, 0};
  EXPECT_EQ(compare({.relative = 1e-5, .sums = reinterpret_cast<const unsigned char*>(sums)}), "")
      << "each element has the sum of its terms";
}

TEST(Elements, CompareTheBitsOfPackedElements) {
  const int64_t shape[] = {3}, strides[] = {-1};
  const bp_tensor t{
      .byte_offset = 3, .shape = shape, .strides = strides, .ndim = 1, .dtype = BP_F6E2M3};
  // The elements are bits 0 to 5 of byte 3 and the 12 bits before them.
  const unsigned char a[] = {0x00, 0xF0, 0xFF, 0x3F}, b[] = {0xFF, 0xA7, 0xFF, 0xFF};
  EXPECT_EQ(layers::first_difference({&t, a, 0}, {&t, b, 0}, {}),
            "element [2]: 0x3f and 0x3a; 1 of 3 elements differ");
}

TEST(Elements, ReadsHalves) {
  const bp_tensor t{.dtype = BP_F16};
  const uint16_t one = 0x3C00, more = 0x3C01;
  const auto text =
      layers::first_difference({&t, reinterpret_cast<const unsigned char*>(&one), 0},
                               {&t, reinterpret_cast<const unsigned char*>(&more), 0}, {});
  EXPECT_EQ(text,
            "element []: 1 and 1.00097656 are 0.000977 apart, allowed are 0; 1 of 1 elements "
            "differ");
}

TEST(Elements, LoseTheirSigns) {
  const int64_t shape[] = {2}, strides[] = {2};
  const bp_tensor t{.shape = shape, .strides = strides, .ndim = 1, .dtype = BP_F32};
  float values[] = {-1, -2, -3};
  auto* const bytes = reinterpret_cast<unsigned char*>(values);
  EXPECT_EQ(layers::largest_magnitude({&t, bytes, 0}), 3);
  EXPECT_TRUE(layers::make_absolute(t, bytes, 0));
  EXPECT_EQ(std::vector<float>(values, values + 3), (std::vector<float>{1, -2, 3}));
}

class DiffTest : public testing::Test {
 protected:
  // A kernel of add for f32 in memory of the host. Element 5 is wrong by `error`.
  static bp_status add(const bp_kernel* self, const bp_launch*, const void* frame) {
    const auto& args = *static_cast<const bp_add_args*>(frame);
    const auto values = [](const bp_tensor* t) {
      return reinterpret_cast<float*>(reinterpret_cast<unsigned char*>(t->buffer) + t->byte_offset);
    };
    for (int64_t i = 0; i < args.y->shape[0]; ++i) {
      const float sum = values(args.a)[i] + values(args.b)[i];
      values(args.y)[i] = i == 5 ? sum + *static_cast<const float*>(self->state) : sum;
    }
    return BP_OK;
  }

  void load(const std::string& options) {
    kernel_.launch = add;
    kernel_.state = &error_;
    fake_.kernels = {&kernel_};
    const std::string all = "diff.backend=" BACKPLANE_TEST_PLUGIN + options;
    registry_ = std::make_unique<TestRegistry>(0, "diff", all.c_str());
    ASSERT_EQ(fake_.load(registry_->registry, &plugin_), BP_OK) << bp_error_text();
  }

  // Launches y = a + b, or a += b.
  void launch(bool in_place = false) {
    std::vector<float> values(600);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    const int64_t shape[] = {10}, strides[] = {1};
    bp_tensor a{.buffer = reinterpret_cast<bp_buffer*>(values.data()),
                .shape = shape,
                .strides = strides,
                .ndim = 1,
                .dtype = BP_F32};
    bp_tensor b = a, y = a;
    b.byte_offset = 80;
    y.byte_offset = in_place ? 0 : 1200;
    const bp_add_args args{.struct_size = sizeof(args), .a = &a, .b = &b, .y = &y};
    ASSERT_EQ(bp_op_launch(registry_->target(), nullptr, 0, BP_OP_ADD, &args), BP_OK)
        << bp_error_text();
    EXPECT_EQ(values[y.byte_offset / 4 + 1], 22) << "the first backend has written its result";
  }

  uint64_t reports() const {
    uint64_t count = 0;
    EXPECT_EQ(bp_plugin_layer_reports(plugin_, "diff", &count), BP_OK);
    return count;
  }

  float error_ = 0;
  bp_kernel kernel_ = make_kernel("add.fake");
  FakeBackend fake_;
  std::unique_ptr<TestRegistry> registry_;
  const bp_plugin* plugin_ = nullptr;
};

TEST_F(DiffTest, SaysNothingWhereBothAgree) {
  load("");
  launch();
  launch(true);
  EXPECT_EQ(reports(), 0) << registry_->log;
  EXPECT_EQ(bp_registry_unload(registry_->registry, plugin_, UINT64_MAX), BP_OK);
  EXPECT_NE(registry_->log.find("2 launches were compared with "), std::string::npos)
      << registry_->log;
  EXPECT_NE(registry_->log.find(", 0 differ, 0 were not compared"), std::string::npos)
      << registry_->log;
}

TEST_F(DiffTest, NamesTheFirstElementOfTheFirstLaunchThatDiffers) {
  load("");
  launch();
  error_ = 0.5f;
  launch();
  launch(true);
  EXPECT_EQ(reports(), 2);
  const std::string words = "acme.npu/diff: launch 2, add: y of kernel add.fake is not what ";
  const size_t place = registry_->log.find(words);
  ASSERT_NE(place, std::string::npos) << registry_->log;
  EXPECT_NE(registry_->log.find("element [5]: 30.5 and 30 are 0.5 apart, allowed are 0.000465; "
                                "1 of 10 elements differ (a f32[10], b f32[10], y f32[10])"),
            std::string::npos)
      << registry_->log;
  EXPECT_EQ(registry_->log.find("launch 3, add"), std::string::npos) << "one line for each op";
  EXPECT_EQ(bp_registry_unload(registry_->registry, plugin_, UINT64_MAX), BP_OK);
  EXPECT_NE(registry_->log.find("; the first that differs is launch 2, add"), std::string::npos)
      << registry_->log;
}

TEST_F(DiffTest, FailsALaunchThatDiffersWhereItIsToldSo) {
  load(",diff.fail=1");
  launch();
  error_ = 0.5f;
  float values[32] = {};
  const int64_t shape[] = {10}, strides[] = {1};
  bp_tensor a{.buffer = reinterpret_cast<bp_buffer*>(values),
              .shape = shape,
              .strides = strides,
              .ndim = 1,
              .dtype = BP_F32};
  const bp_add_args args{.struct_size = sizeof(args), .a = &a, .b = &a, .y = &a};
  EXPECT_EQ(bp_op_launch(registry_->target(), nullptr, 0, BP_OP_ADD, &args), BP_INTERNAL);
  EXPECT_NE(std::string(bp_error_text()).find("layer diff: launch 2, add: y of kernel"),
            std::string::npos)
      << bp_error_text();
}

TEST_F(DiffTest, TakesABound) {
  load(",diff.bound=0.1");
  error_ = 0.5f;
  launch();
  EXPECT_EQ(reports(), 0) << registry_->log;
}

TEST_F(DiffTest, ReadsAndWritesPointsInALocaleWithADecimalComma) {
  const CommaLocale locale;
  if (!locale.is_set()) GTEST_SKIP() << CommaLocale::kNone;
  load(",diff.bound=0.001");
  error_ = 0.5f;
  launch();
  ASSERT_EQ(reports(), 1) << registry_->log;
  EXPECT_NE(registry_->log.find("0.5"), std::string::npos) << registry_->log;
}

TEST_F(DiffTest, ComparesBitsWithABoundOfZero) {
  load(",diff.bound=0");
  error_ = 2e-6f;
  launch();
  EXPECT_EQ(reports(), 1) << registry_->log;
}

// In 1000 - 1000 + 0.5 the result is small, and its rounding errors are not.
TEST_F(DiffTest, MeasuresSumsByTheMagnitudesOfTheirTerms) {
  kernel_ = make_kernel("sum.fake");
  kernel_.op = BP_OP_SUM;
  kernel_.args_size_bytes = BP_SUM_ARGS_SIZE_R3;
  kernel_.launch = [](const bp_kernel* self, const bp_launch*, const void* frame) {
    const auto& args = *static_cast<const bp_sum_args*>(frame);
    auto* values = reinterpret_cast<float*>(args.y->buffer);
    values[args.y->byte_offset / 4] = 0.5f + *static_cast<const float*>(self->state);
    return bp_status{BP_OK};
  };
  kernel_.state = &error_;
  fake_.kernels = {&kernel_};
  registry_ = std::make_unique<TestRegistry>(0, "diff", "diff.backend=" BACKPLANE_TEST_PLUGIN);
  ASSERT_EQ(fake_.load(registry_->registry, &plugin_), BP_OK) << bp_error_text();

  float values[] = {1000, -1000, 0.5f, 0};
  const int64_t shape[] = {3}, strides[] = {1}, axes[] = {0};
  const bp_tensor x{.buffer = reinterpret_cast<bp_buffer*>(values),
                    .shape = shape,
                    .strides = strides,
                    .ndim = 1,
                    .dtype = BP_F32};
  const bp_tensor y{.buffer = x.buffer, .byte_offset = 12, .dtype = BP_F32};
  const bp_sum_args args{
      .struct_size = sizeof(args), .x = &x, .y = &y, .axes_count = 1, .axes = axes};
  for (const auto& [error, reported] : {std::pair(0.01f, 0), {0.1f, 1}}) {
    error_ = error;
    ASSERT_EQ(bp_op_launch(registry_->target(), nullptr, 0, BP_OP_SUM, &args), BP_OK)
        << bp_error_text();
    EXPECT_EQ(reports(), reported) << registry_->log;
  }
}

TEST(DiffLayer, SaysWhatItNeeds) {
  TestRegistry r(0, "diff");
  FakeBackend fake;
  EXPECT_EQ(fake.load(r.registry), BP_INVALID_ARGUMENT);
  EXPECT_EQ(std::string(bp_error_text()).substr(0, 45),
            "layer diff: option diff.backend is missing; g");
  TestRegistry missing(0, "diff", "diff.backend=./no_such.so");
  EXPECT_EQ(fake.load(missing.registry), BP_NOT_FOUND);
  EXPECT_EQ(fake.shutdowns, 1);
}

}  // namespace
}  // namespace bp::core
