// Cases that compare random_bits, uniform, normal and dropout with its gradient with Philox4x32-10.
#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/reference/random.hpp"

namespace bp::conformance {
namespace {

using enum Layout;
using reference::RandomState;

struct State {
  const char* name;
  uint64_t seed, offset;
};
// The states use both halves of the key and of the counter.
constexpr State kStates[] = {
    {"seed0", 0, 0},
    {"seed42", 42, 7},
    {"wide", 0x123456789abcdef0u, 0xfedcba9876543210u},
};

struct Row {
  Shape shape;
  Layout y = kDense;
};

const std::vector<Row>& all_rows() {
  static const std::vector<Row> rows = {
      {{}},
      {{1}},
      {{3}},
      {{4}},
      {{17}},
      {{67}},
      {{1031}},
      {{5, 7}},
      {{2, 3, 4, 5}},
      {{0}},
      {{5, 7}, kTransposed},
      {{5, 7}, kSliced},
      {{17}, kStepped},
      {{17}, kNegative},
      {{17}, kOffset},
  };
  return rows;
}

RandomState state_of(const CallData& data) {
  const auto word = [&](std::string_view name) {
    return static_cast<uint64_t>(to_int64(data.value(name)));
  };
  return {word("seed"), word("offset")};
}

void set_state(OpCase& made, const State& state) {
  made.set("seed", unsigned_scalar(state.seed)).set("offset", unsigned_scalar(state.offset));
}

std::vector<Expected> expected_bits(const CallData& data, const Numerics&) {
  const RandomState state = state_of(data);
  Expected expected;
  for (int64_t i = 0; i < element_count(data.tensor("y").shape); ++i) {
    expected.value.emplace_back(
        static_cast<double>(reference::random_bits(state, static_cast<uint64_t>(i))));
  }
  return judged_values(data, {expected});
}

std::vector<Expected> expected_uniform(const CallData& data, const Numerics&) {
  const RandomState state = state_of(data);
  const HostTensor& tensor = data.tensor("y");
  return judged_steps(data, tensor.dtype, [&]<typename N>(N) {
    Array<N> y(tensor.shape);
    for (int64_t i = 0; i < y.size(); ++i) {
      y[i] = N(reference::uniform(state, tensor.dtype, static_cast<uint64_t>(i)));
    }
    return std::vector{y};
  });
}

std::vector<Expected> expected_normal(const CallData& data, const Numerics&) {
  const RandomState state = state_of(data);
  const HostTensor& tensor = data.tensor("y");
  return judged_steps(data, tensor.dtype, [&]<typename N>(N) {
    Array<N> y(tensor.shape);
    for (int64_t i = 0; i < y.size(); ++i) {
      y[i] = reference::normal<N>(state, tensor.dtype, static_cast<uint64_t>(i),
                                  data.number("mean"), data.number("std"));
    }
    return std::vector{y};
  });
}

const Reference& reference_of(uint32_t op) {
  static const Reference bits = expected_bits, uniform = expected_uniform, normal = expected_normal;
  if (op == BP_OP_NORMAL) return normal;
  return op == BP_OP_UNIFORM ? uniform : bits;
}

std::vector<Expected> dropped(const CallData& data, std::string_view input) {
  const RandomState state = state_of(data);
  const double p = data.number("p");
  return judged_steps(data, data.tensor(input).dtype, [&]<typename N>(N) {
    Array<N> y = data.array<N>(input);
    for (int64_t i = 0; i < y.size(); ++i) {
      y[i] = reference::dropout(state, static_cast<uint64_t>(i), p, y[i]);
    }
    return std::vector{y};
  });
}

std::vector<Expected> expected_dropout(const CallData& data, const Numerics&) {
  return dropped(data, "x");
}

std::vector<Expected> expected_dropout_backward(const CallData& data, const Numerics&) {
  return dropped(data, "grad_y");
}

void add_generator(OpCases& cases, uint32_t op, bp_dtype dtype, bool is_smoke) {
  for (const State& state : kStates) {
    for (const Row& row : all_rows()) {
      OpCase made = make_case(op, dtype, state.name, shape_text(row.shape), layout_text(row.y));
      made.output("y", dtype, row.shape, row.y);
      set_state(made, state);
      if (op == BP_OP_NORMAL) made.set("mean", 0.0).set("std", 1.0);
      made.reference = reference_of(op);
      made.is_smoke = is_smoke;
      made.varies = element_count(row.shape) > 8;
      cases.push_back(std::move(made));
    }
  }
  // Seed and offset lie in memory of the device, as a replayed graph has them.
  OpCase made = make_case(op, dtype, "tensor", "17", "dense");
  made.output("y", dtype, {17}).input("seed", BP_U64, {}, index_fill(1 << 30));
  made.input("offset", BP_U64, {}, index_fill(1 << 30));
  if (op == BP_OP_NORMAL) made.set("mean", -2.5).set("std", 0.25);
  made.reference = reference_of(op);
  made.is_smoke = is_smoke;
  cases.push_back(std::move(made));
}

void add_moments(OpCases& cases, bp_dtype dtype) {
  struct Moments {
    const char* name;
    double mean, std;
  };
  constexpr Moments kMoments[] = {{"shifted", 3, 1}, {"scaled", 0, 0.02}, {"constant", 0.5, 0}};
  for (const Moments& moments : kMoments) {
    OpCase made = make_case(BP_OP_NORMAL, dtype, moments.name, "1031", "dense");
    made.output("y", dtype, {1031});
    set_state(made, kStates[1]);
    made.set("mean", moments.mean).set("std", moments.std).reference = expected_normal;
    made.is_smoke = is_smoke_dtype(dtype);
    made.varies = moments.std != 0;
    cases.push_back(std::move(made));
  }
}

void add_dropout(OpCases& cases, uint32_t op, bp_dtype dtype, bool is_smoke) {
  const bool is_forward = op == BP_OP_DROPOUT;
  const char* input = is_forward ? "x" : "grad_y";
  const auto add = [&](const State& state, double p, const Shape& shape, Layout x, Layout y,
                       std::string_view alias) {
    std::string layout =
        y == kDense ? layout_text(x) : std::string(layout_text(x)) + "_to_" + layout_text(y);
    if (!alias.empty()) layout = "inplace_" + layout;
    const std::string percent = std::to_string(static_cast<int>(p * 100));
    OpCase made = make_case(op, dtype, state.name, shape_text(shape) + "_p" + percent, layout);
    made.input(input, dtype, shape, kRandom, x);
    made.output(is_forward ? "y" : "grad_x", dtype, shape, y).tensors.back().alias = alias;
    made.set("p", p);
    set_state(made, state);
    made.reference = is_forward ? expected_dropout : expected_dropout_backward;
    made.is_smoke = is_smoke;
    made.varies = false;  // Elements that dropout drops are zero.
    if (x == kDense && state.seed == 42) cases.push_back(with_scalars_as_tensors(made));
    cases.push_back(std::move(made));
  };
  for (const double p : {0.0, 0.1, 0.25, 0.5, 1.0}) {
    for (const Shape& shape : std::vector<Shape>{{17}, {1031}, {5, 7}}) {
      add(kStates[1], p, shape, kDense, kDense, "");
    }
  }
  for (const Layout layout :
       {kTransposed, kSliced, kStepped, kNegative, kOffset, kBroadcastFirst}) {
    add(kStates[2], 0.5, {5, 7}, layout, kDense, "");
    if (!is_broadcast(layout)) add(kStates[2], 0.25, {5, 7}, kDense, layout, "");
  }
  add(kStates[0], 0.5, {0}, kDense, kDense, "");
  add(kStates[0], 0.5, {}, kDense, kDense, "");
  add(kStates[0], 0.5, {6, 11}, kDense, kDense, input);
}

}  // namespace

void add_random(OpCases& cases) {
  add_generator(cases, BP_OP_RANDOM_BITS, BP_I32, true);
  for (const bp_dtype dtype : {BP_F32, BP_F64, BP_F16, BP_BF16}) {
    const bool is_smoke = dtype == BP_F32 || dtype == BP_F64;
    add_generator(cases, BP_OP_UNIFORM, dtype, is_smoke);
    add_generator(cases, BP_OP_NORMAL, dtype, is_smoke);
    add_moments(cases, dtype);
    add_dropout(cases, BP_OP_DROPOUT, dtype, is_smoke);
    add_dropout(cases, BP_OP_DROPOUT_BACKWARD, dtype, is_smoke);
  }
}

}  // namespace bp::conformance
