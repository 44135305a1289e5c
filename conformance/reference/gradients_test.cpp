// Tests the oracles of gradients against directional derivatives of the forward oracles, which Dual
// numbers give: <v, J u> = <J^T v, u>.
#include <gtest/gtest.h>

#include "conformance/numerics/dual.hpp"
#include "conformance/numerics/philox.hpp"
#include "conformance/reference/convolution.hpp"
#include "conformance/reference/elementwise.hpp"
#include "conformance/reference/embedding.hpp"
#include "conformance/reference/loss.hpp"
#include "conformance/reference/matrix.hpp"
#include "conformance/reference/normalization.hpp"
#include "conformance/reference/pooling.hpp"
#include "conformance/reference/random.hpp"

namespace bp::conformance::reference {
namespace {

using D = Dual<double>;

Array<double> random(Shape shape, uint32_t which) {
  Array<double> result(std::move(shape));
  for (int64_t i = 0; i < result.size(); ++i) {
    const auto bits = element_bits(17, which, static_cast<uint64_t>(i));
    result[i] = static_cast<double>(bits >> 11) * 0x1p-52 - 1;
  }
  return result;
}

Array<D> along(const Array<double>& x, const Array<double>& u) {
  Array<D> result(x.shape);
  for (int64_t i = 0; i < x.size(); ++i) result[i] = D(x[i], u[i]);
  return result;
}

double dot(const Array<double>& a, const Array<double>& b) {
  double total = 0;
  for (int64_t i = 0; i < a.size(); ++i) total += a[i] * b[i];
  return total;
}
double dot_slopes(const Array<double>& v, const Array<D>& y) {
  double total = 0;
  for (int64_t i = 0; i < v.size(); ++i) total += v[i] * y[i].slope;
  return total;
}

TEST(Gradients, ReluPassesWhatWasPositive) {
  const Array<double> x = random({67}, 1), u = random({67}, 2), v = random({67}, 3);
  Array<D> y = along(x, u);
  Array<double> grad(x.shape);
  for (int64_t i = 0; i < x.size(); ++i) {
    y[i] = elementwise::relu(y[i]);
    grad[i] = elementwise::relu_backward(v[i], y[i].value);
  }
  EXPECT_NEAR(dot_slopes(v, y), dot(grad, u), 1e-12);
}

TEST(Gradients, EmbeddingAddsTheRowsOfEqualIndices) {
  const Array<double> weight = random({5, 3}, 1), u = random({5, 3}, 2), v = random({7, 3}, 3);
  Array<int64_t> indices({7});
  indices.data = {0, 4, 4, 2, 0, 4, 1};
  const Array<D> y = embedding(along(weight, u), indices);
  EXPECT_NEAR(dot_slopes(v, y), dot(embedding_backward(v, indices, 5), u), 1e-12);
}

TEST(Gradients, MaxPoolGivesToTheLargest) {
  const Window window{{3, 2}, {2, 1}, {1, 0, 0, 1}, {1, 2}};
  const Array<double> x = random({2, 3, 8, 7}, 1), u = random({2, 3, 8, 7}, 2);
  const auto pooled = max_pool(along(x, u), window);
  const Array<double> v = random(pooled.values.shape, 3);
  const Array<double> grad = max_pool_backward(v, pooled.indices, Shape{8, 7});
  EXPECT_NEAR(dot_slopes(v, pooled.values), dot(grad, u), 1e-12);
}

TEST(Gradients, CrossEntropyInEachReduction) {
  Array<int64_t> target({5});
  target.data = {0, 3, -100, 2, 3};
  const Array<double> x = random({5, 4}, 1), u = random({5, 4}, 2);
  for (const Reduction reduction : {Reduction::kNone, Reduction::kMean, Reduction::kSum}) {
    for (const double smoothing : {0.0, 0.2}) {
      const CrossEntropySettings settings{-100, smoothing, reduction};
      const auto losses = cross_entropy(along(x, u), target, settings);
      const auto plain = cross_entropy(x, target, settings);
      const Array<double> v = random(losses.y.shape, 3);
      const Array<double> grad = cross_entropy_backward(v, x, target, plain.lse, settings);
      EXPECT_NEAR(dot_slopes(v, losses.y), dot(grad, u), 1e-12);
    }
  }
}

TEST(Gradients, DropoutRepeatsItsMask) {
  const RandomState state{42, 7};
  const Array<double> x = random({129}, 1), u = random({129}, 2), v = random({129}, 3);
  Array<D> y = along(x, u);
  Array<double> grad = v;
  for (int64_t i = 0; i < x.size(); ++i) {
    y[i] = dropout(state, static_cast<uint64_t>(i), 0.25, y[i]);
    grad[i] = dropout(state, static_cast<uint64_t>(i), 0.25, grad[i]);
  }
  EXPECT_NEAR(dot_slopes(v, y), dot(grad, u), 1e-12);
}

}  // namespace
}  // namespace bp::conformance::reference
