// Tests the oracles of recurrent sequences against the cells, and their gradients against
// directional derivatives of the sequences: <v, J u> = <J^T v, u>.
#include "conformance/reference/recurrent_sequence.hpp"

#include <gtest/gtest.h>

#include "conformance/numerics/dual.hpp"
#include "conformance/numerics/philox.hpp"
#include "conformance/reference/recurrent_backward.hpp"

namespace bp::conformance::reference {
namespace {

using D = Dual<double>;

constexpr int64_t kSteps = 4, kRows = 3, kInputs = 2, kHidden = 3;

Array<double> random(Shape shape, uint32_t which) {
  Array<double> result(std::move(shape));
  for (int64_t i = 0; i < result.size(); ++i) {
    const auto bits = element_bits(29, which, static_cast<uint64_t>(i));
    result[i] = static_cast<double>(bits >> 11) * 0x1p-52 - 1;
  }
  return result;
}

// The inputs of a sequence with `gates` gates. Others with another `seed`.
struct Inputs {
  Array<double> x, h, c, weight, recurrent, bias, recurrent_bias;

  Inputs(int64_t gates, uint32_t seed)
      : x(random({kSteps, kRows, kInputs}, seed)),
        h(random({kRows, kHidden}, seed + 1)),
        c(random({kRows, kHidden}, seed + 2)),
        weight(random({gates * kHidden, kInputs}, seed + 3)),
        recurrent(random({gates * kHidden, kHidden}, seed + 4)),
        bias(random({gates * kHidden}, seed + 5)),
        recurrent_bias(random({gates * kHidden}, seed + 6)) {}
};

enum class Kind { kLstm, kGruAfter, kGruBefore, kTanh, kRelu };

int64_t gates_of(Kind kind) {
  return kind == Kind::kLstm ? 4 : kind == Kind::kTanh || kind == Kind::kRelu ? 1 : 3;
}

struct Order {
  std::vector<int64_t> lengths;
  bool is_reverse = false;
};

template <typename N, typename Make>
Sequence<N> sequence(const Order& order, Make make) {
  Sequence<N> s;
  s.x = make(&Inputs::x);
  s.cell = {Array<N>({kRows, kInputs}), make(&Inputs::h),    make(&Inputs::weight),
            make(&Inputs::recurrent),   make(&Inputs::bias), make(&Inputs::recurrent_bias)};
  if (!order.lengths.empty()) s.lengths = Array<int64_t>({kRows});
  s.lengths.data = order.lengths;
  s.is_reverse = order.is_reverse;
  return s;
}

Sequence<double> plain(const Inputs& of, const Order& order) {
  return sequence<double>(order, [&](auto member) { return of.*member; });
}

template <typename N>
SequenceResults<N> run(Kind kind, const Sequence<N>& s, const Array<N>& c) {
  if (kind == Kind::kLstm) return lstm(s, c);
  if (kind == Kind::kTanh || kind == Kind::kRelu) return rnn(s, kind == Kind::kRelu);
  return gru(s, kind == Kind::kGruAfter);
}

SequenceGradients<double> run_backward(Kind kind, const SequenceGradient<double>& g) {
  if (kind == Kind::kLstm) return lstm_backward(g);
  if (kind == Kind::kTanh || kind == Kind::kRelu) return rnn_backward(g, kind == Kind::kRelu);
  return gru_backward(g, kind == Kind::kGruAfter);
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

void expect_adjoint(Kind kind, const Order& order) {
  const Inputs at(gates_of(kind), 10), along(gates_of(kind), 20);
  const auto dual = [&](auto member) {
    const Array<double>&value = at.*member, &slope = along.*member;
    Array<D> result(value.shape);
    for (int64_t i = 0; i < value.size(); ++i) result[i] = D(value[i], slope[i]);
    return result;
  };
  const SequenceResults<D> moved = run(kind, sequence<D>(order, dual), dual(&Inputs::c));
  const SequenceResults<double> y = run(kind, plain(at, order), at.c);
  SequenceGradient<double> g{plain(at, order),           random(y.y.shape, 30),     y.y, y.gates,
                             random(y.h_next.shape, 31), random(y.h_next.shape, 32)};
  const SequenceGradients<double> out = run_backward(kind, g);
  double left = dot_slopes(g.grad_y, moved.y) + dot_slopes(g.grad_h_next, moved.h_next);
  double right = dot(out.h, along.h) + dot(out.x, along.x) + dot(out.weight, along.weight) +
                 dot(out.recurrent, along.recurrent) + dot(out.bias, along.bias) +
                 dot(out.recurrent_bias, along.recurrent_bias);
  if (kind == Kind::kLstm) {
    left += dot_slopes(g.grad_c_next, moved.c_next);
    right += dot(out.c, along.c);
  }
  EXPECT_NEAR(left, right, 1e-12 * (1 + std::fabs(left)));
}

constexpr Kind kKinds[] = {Kind::kLstm, Kind::kGruAfter, Kind::kGruBefore, Kind::kTanh,
                           Kind::kRelu};

TEST(RecurrentGradients, AreThoseOfTheSequences) {
  for (const Kind kind : kKinds) {
    for (const bool is_reverse : {false, true}) {
      for (const std::vector<int64_t>& lengths :
           {std::vector<int64_t>{}, std::vector<int64_t>{2, 4, 0}}) {
        SCOPED_TRACE(static_cast<int>(kind));
        expect_adjoint(kind, {lengths, is_reverse});
      }
    }
  }
}

TEST(RecurrentSequence, IsACellForEachStep) {
  const Inputs in(4, 10);
  const Sequence<double> s = plain(in, {});
  Cell<double> cell = s.cell;
  Array<double> c = in.c;
  const SequenceResults<double> results = lstm(s, in.c);
  for (int64_t t = 0; t < kSteps; ++t) {
    cell.x = s.x_at(t);
    const CellStep<double> step = lstm_step(cell, c);
    EXPECT_EQ(Sequence<double>::part(results.y, t).data, step.y.data);
    EXPECT_EQ(Sequence<double>::part(results.gates, t).data, step.gates.data);
    cell.h = step.y;
    c = step.c;
  }
  EXPECT_EQ(results.h_next.data, cell.h.data);
  EXPECT_EQ(results.c_next.data, c.data);
}

// A row runs backwards as another row forwards, whose steps are in the other order.
TEST(RecurrentSequence, BeginsEachRowAtItsOwnEnd) {
  const Inputs in(3, 10);
  const Order order{{2, 4, 0}, true};
  Sequence<double> s = plain(in, order), turned = s;
  turned.is_reverse = false;
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t t = 0; t < s.lengths[row]; ++t) {
      const int64_t from = (s.lengths[row] - 1 - t) * kRows + row;
      for (int64_t i = 0; i < kInputs; ++i) {
        turned.x[(t * kRows + row) * kInputs + i] = s.x[from * kInputs + i];
      }
    }
  }
  const SequenceResults<double> results = gru(s, true), others = gru(turned, true);
  EXPECT_EQ(results.h_next.data, others.h_next.data);
  EXPECT_EQ(results.y[(1 * kRows + 0) * kHidden], others.y[(0 * kRows + 0) * kHidden]);
  EXPECT_EQ(results.y[(2 * kRows + 0) * kHidden], 0);
  for (int64_t unit = 0; unit < kHidden; ++unit) {
    EXPECT_EQ(results.h_next[2 * kHidden + unit], in.h[2 * kHidden + unit]);
  }
}

TEST(RecurrentSequence, BoundsTheRoundingOfStates) {
  using B = Bounded<24>;
  Sequence<B> s;
  s.state_dtype = BP_BF16;
  EXPECT_EQ(s.stored(B(1, 0)).error, 0x1p-8 + float_format(BP_BF16)->smallest_subnormal() / 2);
  s.state_dtype = 0;
  EXPECT_EQ(s.stored(B(1, 0)).error, 0);
}

}  // namespace
}  // namespace bp::conformance::reference
