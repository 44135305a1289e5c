// Two backends side by side: one in this process whose sums can be wrong, and one from a file.
#include <gtest/gtest.h>

#include <cmath>

#include "registry/layers/elements.hpp"
#include "registry/tests/fake_backend.hpp"

namespace bp::core {
namespace {

TEST(Elements, FindsTheFirstThatDiffersBeyondTheBound) {
  const int64_t shape[] = {2, 2}, strides[] = {3, 1};
  const bp_tensor t{
      .byte_offset = 8, .shape = shape, .strides = strides, .ndim = 2, .dtype = BP_F32};
  const float a[] = {1, 2, 99, 3, NAN}, b[] = {1, 2, 11, 3.0001f, NAN};
  const auto compare = [&](double bound) {
    return layers::first_difference({&t, reinterpret_cast<const unsigned char*>(a), 8},
                                    {&t, reinterpret_cast<const unsigned char*>(b), 8}, bound);
  };
  EXPECT_EQ(compare(-1), "element [1, 0]: 3 and 3.0000999, 1 of 4 elements differ");
  EXPECT_EQ(compare(1e-5), "element [1, 0]: 3 and 3.0000999, 1 of 4 elements differ");
  EXPECT_EQ(compare(1e-4), "") << "what lies between the rows is no element";
}

TEST(Elements, ReadsHalves) {
  const bp_tensor t{.dtype = BP_F16};
  const uint16_t one = 0x3C00, more = 0x3C01;
  const auto text =
      layers::first_difference({&t, reinterpret_cast<const unsigned char*>(&one), 0},
                               {&t, reinterpret_cast<const unsigned char*>(&more), 0}, 1e-6);
  EXPECT_EQ(text, "element []: 1 and 1.00097656, 1 of 1 elements differ");
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

  // y = a + b, or a += b.
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
  EXPECT_EQ(bp_registry_unload(registry_->registry, plugin_), BP_OK);
  EXPECT_NE(registry_->log.find("2 launches were compared, 0 differ, 0 were not compared"),
            std::string::npos)
      << registry_->log;
}

TEST_F(DiffTest, NamesTheFirstElementOfTheFirstLaunchThatDiffers) {
  load("");
  launch();
  error_ = 0.5f;
  launch();
  launch(true);
  EXPECT_EQ(reports(), 2);
  const std::string words = "acme.npu/diff: add: y of kernel add.fake is not what ";
  const size_t place = registry_->log.find(words);
  ASSERT_NE(place, std::string::npos) << registry_->log;
  EXPECT_NE(registry_->log.find("element [5]: 30.5 and 30, 1 of 10 elements differ (a f32[10] at"),
            std::string::npos)
      << registry_->log;
  EXPECT_EQ(registry_->log.find(words, place + 1), std::string::npos) << "one line for each op";
}

TEST_F(DiffTest, TakesABound) {
  load(",diff.bound=0.1");
  error_ = 0.5f;
  launch();
  EXPECT_EQ(reports(), 0) << registry_->log;
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
