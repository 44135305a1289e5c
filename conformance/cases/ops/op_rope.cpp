// Cases of rope and its gradient. Cases of layouts follow by rule.
#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/reference/attention.hpp"

namespace bp::conformance {
namespace {

struct Row {
  Shape x;
  int64_t pairs;
};

const std::vector<Row>& all_rows() {
  static const std::vector<Row> rows = {
      {{2}, 1},
      {{8}, 4},
      {{17}, 8},
      {{33}, 5},
      {{64}, 32},
      {{5, 2}, 1},
      {{5, 16}, 8},
      {{5, 34}, 17},
      {{3, 1030}, 515},
      {{5, 9}, 0},  // No pair is turned.
      {{5, 20}, 3},
      {{3, 4, 6}, 3},
      {{2, 3, 4, 16}, 8},
      {{2, 3, 4, 20}, 8},
      {{2, 1, 2, 1, 2, 1, 2, 6}, 2},
      {{0, 8}, 4},
      {{3, 0, 8}, 4},
      {{5, 0}, 0},
  };
  return rows;
}

// The oracle is a plain function of the call, so that it can also judge calls of other shapes.
template <bool kTurnsBack>
std::vector<Expected> expected_rope(const CallData& data, const Numerics&) {
  const char* const input = kTurnsBack ? "grad_y" : "x";
  return judged_steps(data, data.tensor(input).dtype, [&]<typename N>(N) {
    return std::vector{reference::rope(data.array<N>(input), data.array<N>("cos"),
                                       data.array<N>("sin"), data.integer("is_interleaved") != 0,
                                       kTurnsBack)};
  });
}

OpCase make_row(const Row& row, bp_dtype dtype, bool is_backward, bool is_interleaved,
                bool is_exact) {
  const uint32_t op = is_backward ? uint32_t{BP_OP_ROPE_BACKWARD} : uint32_t{BP_OP_ROPE};
  const char* input = is_backward ? "grad_y" : "x";
  const std::string detail = shape_text(row.x) + "_r" + std::to_string(row.pairs) +
                             (is_interleaved ? "_interleaved" : "_halves");
  OpCase made = make_case(op, dtype, is_exact ? "exact_dense" : "random", detail, "dense");
  Shape angles = row.x;
  angles.back() = row.pairs;
  made.input(input, dtype, row.x, is_exact ? kExactDense : kRandom);
  for (const char* name : {"cos", "sin"}) {
    made.input(name, accumulator_of(dtype), angles, is_exact ? kExactNarrow : kRandom);
  }
  made.output(is_backward ? "grad_x" : "y", dtype, row.x);
  made.set("is_interleaved", int64_t{is_interleaved});
  made.reference = is_backward ? expected_rope<true> : expected_rope<false>;
  made.is_exact = is_exact;
  made.is_smoke = is_smoke_dtype(dtype);
  made.varies = element_count(row.x) > 64 && !is_exact;
  return made;
}

}  // namespace

void add_rope(OpCases& cases) {
  for (const bp_dtype dtype : kFloats) {
    for (const Row& row : all_rows()) {
      for (const bool is_backward : {false, true}) {
        for (const bool is_interleaved : {false, true}) {
          cases.push_back(make_row(row, dtype, is_backward, is_interleaved, true));
          OpCase made = make_row(row, dtype, is_backward, is_interleaved, false);
          cases.push_back(made);
          if (row.x.size() != 2) continue;
          made.layout = "inplace_dense";
          made.tensors.back().alias = made.tensors.front().name;
          cases.push_back(std::move(made));
        }
      }
    }
  }
}

}  // namespace bp::conformance
