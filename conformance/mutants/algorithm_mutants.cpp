// Mutants that compute in another way than kernels promise. Their results are right for plain data.
#include <vector>

#include "backplane/ops.h"
#include "conformance/mutants/values.hpp"

namespace bp::mutants {
namespace {

constexpr uint32_t kMatmul[] = {BP_OP_MATMUL};
constexpr uint32_t kSdpa[] = {BP_OP_SDPA};

// A matrix in f32 whose numbers of rows and columns are even.
struct Block {
  size_t rows, columns;
  std::vector<float> values;

  Block(size_t row_count, size_t column_count)
      : rows(row_count), columns(column_count), values(row_count * column_count) {}
  float& at(size_t row, size_t column) { return values[row * columns + column]; }
  float at(size_t row, size_t column) const { return values[row * columns + column]; }

  // Returns the quarter `down`, `right`.
  Block quarter(size_t down, size_t right) const {
    Block part(rows / 2, columns / 2);
    for (size_t i = 0; i < part.rows; ++i) {
      for (size_t k = 0; k < part.columns; ++k) {
        part.at(i, k) = at(down * part.rows + i, right * part.columns + k);
      }
    }
    return part;
  }
};

Block sum(Block a, const Block& b, float sign = 1) {
  for (size_t i = 0; i < a.values.size(); ++i) a.values[i] += sign * b.values[i];
  return a;
}
Block difference(Block a, const Block& b) { return sum(std::move(a), b, -1); }

Block product(const Block& a, const Block& b) {
  Block y(a.rows, b.columns);
  for (size_t i = 0; i < a.rows; ++i) {
    for (size_t k = 0; k < a.columns; ++k) {
      for (size_t j = 0; j < b.columns; ++j) y.at(i, j) += a.at(i, k) * b.at(k, j);
    }
  }
  return y;
}

// Multiplies by Strassen's seven products of quarters instead of eight.
Block strassen(const Block& a, const Block& b) {
  const Block a11 = a.quarter(0, 0), a12 = a.quarter(0, 1), a21 = a.quarter(1, 0),
              a22 = a.quarter(1, 1);
  const Block b11 = b.quarter(0, 0), b12 = b.quarter(0, 1), b21 = b.quarter(1, 0),
              b22 = b.quarter(1, 1);
  const Block m1 = product(sum(a11, a22), sum(b11, b22));
  const Block m2 = product(sum(a21, a22), b11);
  const Block m3 = product(a11, difference(b12, b22));
  const Block m4 = product(a22, difference(b21, b11));
  const Block m5 = product(sum(a11, a12), b22);
  const Block m6 = product(difference(a21, a11), sum(b11, b12));
  const Block m7 = product(difference(a12, a22), sum(b21, b22));
  const Block quarters[2][2] = {{sum(difference(sum(m1, m4), m5), m7), sum(m3, m5)},
                                {sum(m2, m4), sum(sum(difference(m1, m2), m3), m6)}};
  Block y(a.rows, b.columns);
  for (size_t i = 0; i < y.rows; ++i) {
    for (size_t j = 0; j < y.columns; ++j) {
      const Block& part = quarters[i / m1.rows][j / m1.columns];
      y.at(i, j) = part.at(i % m1.rows, j % m1.columns);
    }
  }
  return y;
}

// 43: multiplies f32 matrices by Strassen's algorithm, which no declaration allows.
bp_status multiply_fast(const Call& call, std::string_view, const void* args) {
  const auto& frame = *static_cast<const bp_matmul_args*>(args);
  const bool is_f32 =
      frame.a->dtype == BP_F32 && frame.b->dtype == BP_F32 && frame.y->dtype == BP_F32;
  if (!is_f32 || frame.a->ndim != 2 || frame.b->ndim != 2) return call.run(args);
  const Values a(call, *frame.a), b(call, *frame.b);
  Values y(call, *frame.y);
  const bp_status read = first_failure({&a, &b, &y});
  if (read != BP_OK) return read;
  const auto m = static_cast<size_t>(frame.a->shape[0]);
  const auto k = static_cast<size_t>(frame.a->shape[1]);
  const auto n = static_cast<size_t>(frame.b->shape[1]);
  const auto even = [](size_t extent) { return extent + extent % 2; };
  Block left(even(m), even(k)), right(even(k), even(n));  // The elements beyond the matrices are
                                                          // zero.
  for (size_t i = 0; i < m * k; ++i) left.at(i / k, i % k) = static_cast<float>(a[i]);
  for (size_t i = 0; i < k * n; ++i) right.at(i / n, i % n) = static_cast<float>(b[i]);
  const Block result = strassen(left, right);
  for (size_t i = 0; i < m * n; ++i) y.set(i, static_cast<double>(result.at(i / n, i % n)));
  return y.write();
}

// Returns the lse of attention without its sinks, by a first launch. The second one leaves it
// alone.
bp_status forget_sinks_of_lse(const Call& call, const bp_sdpa_args& args) {
  bp_sdpa_args frame = args;
  frame.sinks = nullptr;
  if (const bp_status status = call.run(&frame); status != BP_OK) return status;
  frame.sinks = args.sinks;
  frame.lse = nullptr;
  return call.run(&frame);
}

// 54: attention begins its diagonal at the first key. Sinks: lse has no sink. Window: a left window
// does not count the key on the diagonal. Offset: all dropout begins at one number.
bp_status attend_badly(const Call& call, std::string_view strength, const void* args) {
  bp_sdpa_args frame = *static_cast<const bp_sdpa_args*>(args);
  if (strength == "sinks") return forget_sinks_of_lse(call, frame);
  if (strength == "offset" && frame.offset == nullptr) frame.offset_scalar.bits = 0;
  if (strength == "window" && frame.window_left != 0 && frame.window_left != INT64_MAX) {
    ++frame.window_left;
  }
  if (strength.empty() && frame.causal == BP_SDPA_CAUSAL_BOTTOM_RIGHT) {
    frame.causal = BP_SDPA_CAUSAL_TOP_LEFT;
  }
  return call.run(&frame);
}

constexpr Mutant kTable[] = {
    {"43", kMatmul, multiply_fast},
    {"54", kSdpa, attend_badly},
};

}  // namespace

std::span<const Mutant> algorithm_mutants() { return kTable; }

}  // namespace bp::mutants
