#include "backplane/runtime/counted.hpp"

#include <gtest/gtest.h>

#include "backplane/runtime/autograd.hpp"
#include "backplane/runtime/ops.hpp"
#include "runtime/test_device.hpp"

namespace bp {
namespace {

using Floats = std::vector<float>;
using Ints = std::vector<int64_t>;

class Counted : public testing::Test {
 protected:
  Device device = test_device();
  DeviceGuard guard{device};
  Tensor x = from_host<float>({0, 1, 0, 3, 0, 5}, {2, 3}, device);
};

TEST_F(Counted, NonzeroHasARowForEachElement) {
  Tensor count;
  const Tensor rows = nonzero(x, &count);
  EXPECT_EQ(count.to_vector<int64_t>(), Ints{3});
  EXPECT_EQ(rows.to_vector<int64_t>(), (Ints{0, 1, 1, 0, 1, 2, -1, -1, -1, -1, -1, -1}));
}

TEST_F(Counted, ExactNonzeroHasTheUsedRowsAlone) {
  const Tensor rows = exact_nonzero(x);
  EXPECT_EQ(rows.to_vector<int64_t>(), (Ints{0, 1, 1, 0, 1, 2}));
  EXPECT_EQ(rows.shape(0), 3);
  EXPECT_EQ(exact_nonzero(zeros({2, 3}, BP_F32, device)).shape(0), 0);
  const Tensor of_number = exact_nonzero(from_host<float>({7}, {}, device));
  EXPECT_EQ(of_number.shape(0), 1);
  EXPECT_EQ(of_number.shape(1), 0);
}

TEST_F(Counted, ExactMaskedSelectCanBeDifferentiated) {
  x.set_requires_grad();
  const Tensor y = exact_masked_select(x, gt(x, 0));
  EXPECT_EQ(y.to_vector<float>(), (Floats{1, 3, 5}));
  sum(y * y).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{0, 2, 0, 6, 0, 10}));
}

}  // namespace
}  // namespace bp
