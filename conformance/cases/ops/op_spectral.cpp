// Cases of the Fourier transforms. Cases of layouts follow by rule.
#include <array>
#include <cmath>

#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/reference/spectral.hpp"

namespace bp::conformance {
namespace {

using reference::Divisor;
using reference::Fourier;

// All normalizations have the same values in each of these ops.
constexpr int64_t kBackward = BP_FFT_NORMALIZATION_BACKWARD, kOrtho = BP_FFT_NORMALIZATION_ORTHO,
                  kForward = BP_FFT_NORMALIZATION_FORWARD;

// The shape is that of the numbers: complex ones have one more axis in a tensor.
struct Row {
  Shape numbers;
  int64_t axis;
  int64_t normalization = kBackward;
};

// Lengths are powers of 2, have several factors, or are prime. A transform of few factors takes
// another way than one with a large prime factor.
const std::vector<Row>& all_rows() {
  static const std::vector<Row> rows = {
      {{1}, 0},
      {{2}, 0},
      {{3}, 0},
      {{4}, 0},
      {{5}, 0},
      {{6}, 0},
      {{7}, 0},
      {{8}, 0},
      {{16}, 0},
      {{17}, 0},
      {{60}, 0},
      {{97}, 0},
      {{128}, 0},
      {{1000}, 0},
      {{7, 5}, 0},
      {{5, 7}, 1},
      {{33, 64}, 1},
      {{64, 33}, 0},
      {{101, 5}, 0},
      {{5, 101}, 1},
      {{2, 17, 3}, 1},
      {{3, 1, 5}, 1},
      {{2, 3, 4, 6}, 0},
      {{2, 3, 4, 6}, 1},
      {{2, 3, 4, 6}, 2},
      {{2, 3, 4, 6}, 3},
      {{2, 1, 2, 1, 9, 1, 2}, 4},
      {{0, 6}, 1},
      {{6, 0}, 0},
      {{12}, 0, kOrtho},
      {{12}, 0, kForward},
      {{5, 17}, 1, kOrtho},
      {{5, 17}, 1, kForward},
      {{30, 3}, 0, kOrtho},
      {{30, 3}, 0, kForward},
      {{202}, 0, kOrtho},
      {{202}, 0, kForward},
  };
  return rows;
}

// Lengths of real work; a prime one, and twice a prime.
const std::vector<Row>& long_rows() {
  static const std::vector<Row> rows = {
      {{2, 4096}, 1}, {{4096, 3}, 0, kOrtho}, {{3, 1009}, 1, kForward},
      {{2018}, 0},    {{1, 1155}, 1},         {{2, 2048, 2}, 1, kForward},
  };
  return rows;
}

bool has_real_x(uint32_t op) { return op == BP_OP_RFFT; }
bool has_real_y(uint32_t op) { return op == BP_OP_IRFFT; }

// ---- The oracle ------------------------------------------------------------------------------ //

Divisor divisor_of(bool is_inverse, int64_t normalization) {
  if (normalization == kOrtho) return Divisor::kRoot;
  return (normalization == kForward) != is_inverse ? Divisor::kLength : Divisor::kNone;
}

Fourier fourier_of(const CallData& data) {
  const uint32_t op = data.op();
  Fourier f{.axis = static_cast<size_t>(data.integer("axis"))};
  f.is_inverse = op == BP_OP_IFFT || op == BP_OP_IRFFT;
  f.has_real_x = has_real_x(op);
  f.has_real_y = has_real_y(op);
  f.length = f.has_real_y ? data.integer("length") : data.tensor("x").shape[f.axis];
  f.divisor = divisor_of(f.is_inverse, data.integer("normalization"));
  return f;
}

// The results of a line share the errors of its factors and of the sums on the way, so that these
// have one sign more often than independent errors would. Only where the result is narrow, its own
// rounding is larger.
bool shares_errors(bp_dtype dtype) { return dtype == BP_F32 || dtype == BP_F64; }

std::vector<Expected> expected_fourier(const CallData& data, const Numerics& numerics) {
  const HostTensor& y = data.tensor("y");
  return with_float(y.dtype, [&]<typename N>(N) {
    const Fourier f = fourier_of(data);
    const auto found = reference::fourier(data.array<N>("x"), y.shape, f);
    Known known{{exactly(found.y)}};
    known.sums = [&] {
      Sums sums{Bounds(1), {found.magnitudes}};
      for (size_t i = 0; i < found.magnitudes.size(); ++i) {
        const double bound = fourier_bound(found.magnitudes[i], f, numerics);
        sums.bounds[0].push_back(found.is_zero[i] ? 0 : bound);
      }
      return sums;
    };
    known.is_one_sided = shares_errors(y.dtype);
    // Any result is right in a line with NaN or infinity, and in one whose sums may overflow.
    known.outputs[0].also_right = [magnitudes = found.magnitudes, most = numerics.largest](
                                      int64_t element, DoubleDouble) {
      return !(magnitudes[static_cast<size_t>(element)] <= most);
    };
    return judged(data, std::move(known));
  });
}

// ---- Cases ----------------------------------------------------------------------------------- //

// Keeps one element of each line, near its end: each result then is a factor, and the bound is so
// small that a factor of a wrong angle exceeds it. The last bin of irfft may have no angle.
void keep_one(CallData& data) {
  HostTensor& x = data.tensor("x");
  const AxisView view(x.shape, static_cast<size_t>(data.integer("axis")));
  const int64_t kept = view.extent - (has_real_y(data.op()) ? 2 : 1);
  for_each_line(view, [&](int64_t outer, int64_t inner) {
    for (int64_t i = 0; i < view.extent; ++i) {
      if (i != kept) x.data[static_cast<size_t>(view.at(outer, i, inner))] = DoubleDouble(0);
    }
  });
}

// Puts NaN and infinities into every other line, of which there are several. Those between them
// keep their results.
void spoil_lines(CallData& data) {
  HostTensor& x = data.tensor("x");
  const AxisView view(x.shape, static_cast<size_t>(data.integer("axis")));
  const int64_t parts = has_real_x(data.op()) ? 1 : 2;
  for_each_line(view, [&](int64_t outer, int64_t inner) {
    const int64_t number = outer * (view.inner_size / parts) + inner / parts;
    if (number % 2 != 0) return;
    const double wrong = number % 4 == 0 ? std::nan("") : HUGE_VAL;
    x.data[static_cast<size_t>(view.at(outer, number % view.extent, inner))] = DoubleDouble(wrong);
  });
}

// f16 cannot hold the first sum, which is divided.
void overflow_on_the_way(CallData& data) {
  constexpr double kSize = 30'208;  // Every dtype of floats has this number.
  for (DoubleDouble& x : data.tensor("x").data) x = DoubleDouble(kSize);
}

class Rows {
 public:
  Rows(OpCases& cases, uint32_t op, bp_dtype dtype) : cases_(cases), op_(op), dtype_(dtype) {}

  void add_all() {
    for (const Row& row : all_rows()) add("random", row);
    for (const Row& row : {Row{{8}, 0}, Row{{5, 12}, 1}, Row{{35, 3}, 0}}) {
      add("exact_dense", row).tensors[0].fill = kExactDense;
    }
    for (const Row& row : {Row{{101}, 0}, Row{{3, 1000}, 1}, Row{{64, 3}, 0}}) {
      add("one_element", row).derive = keep_one;
    }
    for (const Row& row : {Row{{9, 12}, 1}, Row{{12, 9}, 0}, Row{{101, 6}, 0}, Row{{4, 37}, 1}}) {
      add("nan_lines", row).derive = spoil_lines;
    }
    const int64_t divided = op_ == BP_OP_IFFT || op_ == BP_OP_IRFFT ? kBackward : kForward;
    add("overflows", {{3, 64}, 1, divided}).derive = overflow_on_the_way;
    if (!is_smoke_dtype(dtype_)) return;
    for (const Row& row : long_rows()) add("random", row).is_smoke = false;
    add_one_element({{4096}, 0});
    if (dtype_ == BP_F64) return;  // The oracle of a prime length takes a second.
    add("random", {{4093}, 0, kOrtho}).is_smoke = false;
    add_one_element({{4093}, 0});
  }

 private:
  void add_one_element(const Row& row) {
    OpCase& made = add("one_element", row);
    made.derive = keep_one;
    made.is_smoke = false;
  }

  // Returns the shape of a tensor. If the numbers on the other side are real, half of the bins of a
  // line are enough.
  static Shape shape_of(const Row& row, bool is_real, bool is_half) {
    Shape shape = row.numbers;
    int64_t& extent = shape[static_cast<size_t>(row.axis)];
    if (is_half) extent = extent / 2 + 1;
    if (!is_real) shape.push_back(2);
    return shape;
  }

  OpCase& add(const std::string& fill, const Row& row) {
    static constexpr std::array<const char*, 4> kNames = {"", "", "_ortho", "_forward"};
    const std::string detail = shape_text(row.numbers) + "_axis" + std::to_string(row.axis) +
                               kNames[static_cast<size_t>(row.normalization)];
    OpCase made = make_case(op_, dtype_, fill, detail, "dense");
    made.input("x", dtype_, shape_of(row, has_real_x(op_), has_real_y(op_)), kRandom);
    made.output("y", dtype_, shape_of(row, has_real_y(op_), has_real_x(op_)));
    const int64_t length = row.numbers[static_cast<size_t>(row.axis)];
    if (has_real_y(op_)) made.set("length", length);
    made.set("axis", row.axis).set("normalization", row.normalization);
    made.reference = expected_fourier;
    made.varies = fill == "random" && length > 4;
    made.is_smoke = is_smoke_dtype(dtype_);
    cases_.push_back(std::move(made));
    return cases_.back();
  }

  OpCases& cases_;
  uint32_t op_;
  bp_dtype dtype_;
};

}  // namespace

void add_spectral(OpCases& cases) {
  for (const uint32_t op :
       {uint32_t{BP_OP_FFT}, uint32_t{BP_OP_IFFT}, uint32_t{BP_OP_RFFT}, uint32_t{BP_OP_IRFFT}}) {
    for (const bp_dtype dtype : kFloats) Rows(cases, op, dtype).add_all();
  }
}

}  // namespace bp::conformance
