#include "conformance/cases/ops/op_long_sums.hpp"

#include <algorithm>
#include <iterator>

#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/reference/reductions.hpp"

namespace bp::conformance {
namespace {

constexpr Fill constant_fill(double value) { return {FillKind::kUniform, value, value}; }
constexpr Fill kHundredth = constant_fill(0.01);
constexpr Fill kNone = constant_fill(0);
constexpr Fill kOnes = constant_fill(1);
constexpr Fill kFar = constant_fill(-2.3);  // The exponential of this is about 0.1.

// The number of terms. With one term less, the terms would fill blocks of every usual size.
struct Length {
  int64_t terms;
  Tier tier;
};
// At this length, a sum that is made term by term exceeds its bound three times, and slow devices
// still end in seconds.
constexpr Length kSmoke{(1 << 15) + 1, Tier::kSmoke};
constexpr Length kQuick{(1 << 20) + 3, Tier::kQuick};
constexpr Length kFull{(1 << 24) + 1, Tier::kFull};

// Makes the rows of an op: it has the op's oracle, and the inputs that follow from others.
class Builder {
 public:
  Builder(const OpCase& model, const Length& length, std::vector<LongSum>& sums)
      : model_(model), length_(length), sums_(sums) {}

  bp_dtype dtype() const { return dtype_from_text(model_.dtype); }
  int64_t terms() const { return length_.terms; }

  OpCase start(const std::string& what) const {
    OpCase made =
        make_case(model_.op, dtype(), "long", what + std::to_string(length_.terms), "dense");
    made.reference = model_.reference;
    made.derive = model_.derive;
    made.varies = false;
    return made;
  }
  void add(OpCase made) const { sums_.push_back({std::move(made), length_.tier}); }

  const OpCase& model() const { return model_; }

 private:
  static bp_dtype dtype_from_text(std::string_view text) {
    const auto found = std::ranges::find(kFloats, text, dtype_text);
    return *found;
  }

  const OpCase& model_;
  const Length& length_;
  std::vector<LongSum>& sums_;
};

// Sets the first element of each line along the axis to 0, which is far above the others.
void raise_first(CallData& data) {
  HostTensor& x = data.tensor("x");
  const bool has_list = data.has_attribute("axes");
  const int64_t axis = has_list ? data.list("axes").front() : data.integer("axis");
  const AxisView view(x.shape, static_cast<size_t>(axis));
  for_each_line(view, [&](int64_t outer, int64_t inner) {
    x.data[static_cast<size_t>(view.at(outer, 0, inner))] = DoubleDouble(0);
  });
}

void add_reduced(const Builder& b, const Fill& fill, void (*derive)(CallData&)) {
  for (const Shape& x : {Shape{b.terms()}, Shape{b.terms(), 3}}) {
    OpCase made = b.start(x.size() == 1 ? "row" : "columns");
    made.input("x", b.dtype(), x, fill);
    made.output("y", b.dtype(), Shape(x.begin() + 1, x.end()));
    made.set("axes", Shape{0}).set("keepdims", int64_t{0}).derive = derive;
    b.add(std::move(made));
  }
}
void add_reductions(const Builder& b) { add_reduced(b, kHundredth, nullptr); }
// The difference between an element and the shift decides the result.
void add_shifted_reductions(const Builder& b) { add_reduced(b, kFar, raise_first); }

void add_softmax(const Builder& b) {
  for (const int64_t axis : {1, 0}) {
    const Shape shape = axis == 1 ? Shape{1, b.terms()} : Shape{b.terms(), 3};
    OpCase made = b.start(axis == 1 ? "row" : "columns");
    made.input("x", b.dtype(), shape, kFar).output("y", b.dtype(), shape).set("axis", axis);
    made.derive = raise_first;
    b.add(std::move(made));
  }
}

void add_softmax_backward(const Builder& b) {
  for (const int64_t axis : {1, 0}) {
    const Shape shape = axis == 1 ? Shape{1, b.terms()} : Shape{b.terms(), 3};
    OpCase made = b.start(axis == 1 ? "row" : "columns");
    made.input("grad_y", b.dtype(), shape, kHundredth).input("y", b.dtype(), shape, kNone);
    made.output("grad_x", b.dtype(), shape).set("axis", axis);
    b.add(std::move(made));
  }
}

void add_cross_entropy(const Builder& b) {
  for (const bool is_row : {true, false}) {
    const Shape shape = is_row ? Shape{1, b.terms()} : Shape{b.terms(), 2};
    OpCase made = b.start(is_row ? "classes" : "rows");
    made.input("x", b.dtype(), shape, kFar).input("target", BP_I64, {shape[0]}, index_fill(1));
    made.output("y", b.dtype(), {}).set("ignore_index", int64_t{-100});
    made.set("label_smoothing", 0.0);
    made.set("reduction", int64_t{BP_CROSS_ENTROPY_REDUCTION_MEAN});
    made.derive = [](CallData& data) { data.tensor("x").data[0] = DoubleDouble(0); };
    b.add(std::move(made));
  }
}

bool has_mean(const Builder& b) {
  return b.model().op == BP_OP_LAYER_NORM || b.model().op == BP_OP_LAYER_NORM_BACKWARD;
}

void add_norm(const Builder& b) {
  OpCase made = b.start("row");
  const bp_dtype wide = b.dtype() == BP_F64 ? bp_dtype{BP_F64} : bp_dtype{BP_F32};
  made.input("x", b.dtype(), {1, b.terms()}, kHundredth).output("y", b.dtype(), {1, b.terms()});
  if (has_mean(b)) made.output("mean", wide, {1});
  made.output("rstd", wide, {1}).set("normalized_ndim", int64_t{1}).set("eps", 1e-5);
  b.add(std::move(made));
}

void add_norm_backward(const Builder& b) {
  const bp_dtype wide = b.dtype() == BP_F64 ? bp_dtype{BP_F64} : bp_dtype{BP_F32};
  for (const bool is_row : {true, false}) {
    const Shape x = is_row ? Shape{1, b.terms()} : Shape{b.terms(), 3};
    OpCase made = b.start(is_row ? "row" : "columns");
    made.input("grad_y", b.dtype(), x, kHundredth).input("x", b.dtype(), x, kHundredth);
    if (has_mean(b)) made.input("mean", wide, {x[0]}, {});
    made.input("rstd", wide, {x[0]}, {}).output("grad_x", b.dtype(), x);
    made.output("grad_gamma", b.dtype(), {x[1]});
    if (has_mean(b)) made.output("grad_beta", b.dtype(), {x[1]});
    made.set("normalized_ndim", int64_t{1}).set("eps", 1e-5);
    b.add(std::move(made));
  }
}

void add_embedding_backward(const Builder& b) {
  OpCase made = b.start("one_row");
  made.input("grad_y", b.dtype(), {b.terms(), 2}, kHundredth);
  made.input("indices", BP_I64, {b.terms()}, index_fill(1))
      .output("grad_weight", b.dtype(), {3, 2});
  made.set("num_embeddings", int64_t{3});
  b.add(std::move(made));
}

void add_scatter_reduce(const Builder& b) {
  OpCase made = b.start("one_element");
  made.input("x", b.dtype(), {3}, kHundredth).input("indices", BP_I64, {b.terms()}, index_fill(1));
  made.input("src", b.dtype(), {b.terms()}, kHundredth).output("y", b.dtype(), {3});
  made.set("axis", int64_t{0}).set("reduction", int64_t{BP_SCATTER_REDUCE_REDUCTION_SUM});
  b.add(std::move(made));
}

void add_max_pool_backward(const Builder& b) {
  OpCase made = b.start("one_element");
  made.input("grad_y", b.dtype(), {1, 1, b.terms()}, kHundredth);
  made.input("indices", BP_I64, {1, 1, b.terms()}, index_fill(1))
      .output("grad_x", b.dtype(), {1, 1, 3});
  made.set("input_size", Shape{3}).derive = nullptr;
  b.add(std::move(made));
}

void add_avg_pool(const Builder& b) {
  const int64_t n = b.terms();
  for (const Shape& spatial : {Shape{n}, Shape{n, 1}}) {
    Shape x = {1, 1}, y = {1, 1};
    x.insert(x.end(), spatial.begin(), spatial.end());
    y.insert(y.end(), spatial.size(), 1);
    OpCase made = b.start(spatial.size() == 1 ? "row" : "column");
    made.input("x", b.dtype(), x, kHundredth).output("y", b.dtype(), y);
    made.set("kernel_size", spatial).set("stride", Shape(spatial.size(), 1));
    made.set("padding", Shape(2 * spatial.size(), 0)).set("counts_padding", int64_t{1});
    b.add(std::move(made));
  }
}

void add_adaptive_avg_pool(const Builder& b) {
  for (const Shape& spatial : {Shape{b.terms()}, Shape{b.terms(), 1}}) {
    Shape x = {1, 1}, y = {1, 1};
    x.insert(x.end(), spatial.begin(), spatial.end());
    y.insert(y.end(), spatial.size(), 1);
    OpCase made = b.start(spatial.size() == 1 ? "row" : "column");
    made.input("x", b.dtype(), x, kHundredth).output("y", b.dtype(), y);
    made.set("output_size", Shape(spatial.size(), 1));
    b.add(std::move(made));
  }
}

void add_matmul(const Builder& b) {
  const int64_t n = b.terms();
  struct Size {
    const char* name;
    int64_t rows, cols;
  };
  for (const Size& size : {Size{"vectors", 1, 1}, Size{"row", 1, 3}, Size{"rows", 3, 2}}) {
    OpCase made = b.start(size.name);
    made.input("a", b.dtype(), {size.rows, n}, kHundredth);
    made.input("b", b.dtype(), {n, size.cols}, kOnes);
    made.output("y", b.dtype(), {size.rows, size.cols});
    b.add(std::move(made));
  }
}

void add_linear(const Builder& b) {
  OpCase made = b.start("rows");
  made.input("x", b.dtype(), {3, b.terms()}, kHundredth);
  made.input("weight", b.dtype(), {2, b.terms()}, kOnes).output("y", b.dtype(), {3, 2});
  made.set("activation", int64_t{BP_LINEAR_ACTIVATION_NONE});
  b.add(std::move(made));
}

void add_convolution_backward_weight(const Builder& b) {
  const Shape x = {1, 1, b.terms()};
  OpCase made = b.start("image");
  made.input("grad_y", b.dtype(), x, kHundredth).input("x", b.dtype(), x, kOnes);
  made.output("grad_weight", b.dtype(), {1, 1, 1}).set("kernel_size", Shape{1});
  made.set("stride", Shape{1}).set("padding", Shape{0, 0}).set("dilation", Shape{1});
  made.set("groups", int64_t{1});
  b.add(std::move(made));
}

void add_convolution_backward_bias(const Builder& b) {
  OpCase made = b.start("image");
  made.input("grad_y", b.dtype(), {1, 2, b.terms()}, kHundredth);
  made.output("grad_bias", b.dtype(), {2});
  b.add(std::move(made));
}

// Adds one query and many keys, of which the first one has most weight.
void add_sdpa(const Builder& b) {
  const int64_t n = b.terms();
  OpCase made = b.start("keys");
  made.input("q", b.dtype(), {1, 1, 1, 1}, kOnes).input("k", b.dtype(), {1, 1, n, 1}, kFar);
  made.input("v", b.dtype(), {1, 1, n, 1}, kHundredth).output("y", b.dtype(), {1, 1, 1, 1});
  made.output("lse", b.dtype() == BP_F64 ? BP_F64 : BP_F32, {1, 1, 1});
  made.set("scale", 1.0).set("causal", int64_t{0});
  made.derive = [](CallData& data) { data.tensor("k").data[0] = DoubleDouble(0); };
  b.add(std::move(made));
}

// Gives keys the values 1 and 0 in turn. With `are_signed` the sign of a key follows its value.
void alternate_keys(CallData& data, bool are_signed) {
  HostTensor &k = data.tensor("k"), &v = data.tensor("v");
  for (size_t i = 0; i < v.data.size(); ++i) {
    const bool is_even = i % 2 == 0;
    v.data[i] = DoubleDouble(is_even ? 1 : 0);
    if (are_signed) k.data[i] = DoubleDouble(is_even ? 1 : -1);
  }
}

// The scores are 0. Keys alternate between values 1 and 0, and their own sign follows. All terms of
// grad_q, and of each row of grad_k and grad_v, then have one sign.
void add_sdpa_backward(const Builder& b) {
  for (const bool is_keys : {true, false}) {
    const int64_t keys = is_keys ? b.terms() : 2, queries = is_keys ? 1 : b.terms();
    OpCase made = b.start(is_keys ? "keys" : "queries");
    made.input("grad_y", b.dtype(), {1, 1, queries, 1}, kHundredth);
    made.input("q", b.dtype(), {1, 1, queries, 1}, is_keys ? kNone : kHundredth);
    made.input("k", b.dtype(), {1, 1, keys, 1}, kNone);
    made.input("v", b.dtype(), {1, 1, keys, 1}, kNone);
    made.input("y", b.dtype(), {1, 1, queries, 1}, {});
    made.input("lse", b.dtype() == BP_F64 ? BP_F64 : BP_F32, {1, 1, queries}, {});
    made.output("grad_q", b.dtype(), {1, 1, queries, 1});
    made.output("grad_k", b.dtype(), {1, 1, keys, 1}).output("grad_v", b.dtype(), {1, 1, keys, 1});
    made.set("scale", 1.0).set("causal", int64_t{0});
    made.derive = [derive = made.derive, is_keys](CallData& data) {
      alternate_keys(data, is_keys);
      derive(data);
    };
    b.add(std::move(made));
  }
}

struct LongOp {
  uint32_t op;
  void (*add)(const Builder&);
  bool is_heavy = false;  // The oracle takes about a microsecond for each term.
};

constexpr LongOp kOps[] = {
    {BP_OP_SOFTMAX, add_softmax},
    {BP_OP_LOG_SOFTMAX, add_softmax},
    {BP_OP_SOFTMAX_BACKWARD, add_softmax_backward},
    {BP_OP_LOG_SOFTMAX_BACKWARD, add_softmax_backward},
    {BP_OP_CROSS_ENTROPY, add_cross_entropy},
    {BP_OP_LAYER_NORM, add_norm},
    {BP_OP_RMS_NORM, add_norm},
    {BP_OP_LAYER_NORM_BACKWARD, add_norm_backward},
    {BP_OP_RMS_NORM_BACKWARD, add_norm_backward},
    {BP_OP_EMBEDDING_BACKWARD, add_embedding_backward},
    {BP_OP_SCATTER_REDUCE, add_scatter_reduce},
    {BP_OP_MAX_POOL_BACKWARD, add_max_pool_backward},
    {BP_OP_AVG_POOL, add_avg_pool, true},
    {BP_OP_ADAPTIVE_AVG_POOL, add_adaptive_avg_pool, true},
    {BP_OP_MATMUL, add_matmul},
    {BP_OP_LINEAR, add_linear},
    {BP_OP_CONVOLUTION_BACKWARD_WEIGHT, add_convolution_backward_weight, true},
    {BP_OP_CONVOLUTION_BACKWARD_BIAS, add_convolution_backward_bias, true},
    {BP_OP_SDPA, add_sdpa, true},
    {BP_OP_SDPA_BACKWARD, add_sdpa_backward, true},
};

// Returns the reductions whose formula adds, and the other ops with long sums.
std::vector<LongOp> long_ops() {
  std::vector<LongOp> ops;
  for (const reductions::Row& row : reductions::kRows) {
    if (!row.adds) continue;
    ops.push_back({row.op, row.has_shift ? add_shifted_reductions : add_reductions});
  }
  ops.insert(ops.end(), std::begin(kOps), std::end(kOps));
  return ops;
}

// Returns a row without optional inputs whose derived inputs need nothing that a long sum lacks.
const OpCase* model_of(const OpCases& rows, uint32_t op, bp_dtype dtype) {
  for (const OpCase& row : rows) {
    if (row.op == op && row.dtype == dtype_text(dtype) && row.layout == "dense" &&
        row.fill != "out_of_range") {
      return &row;
    }
  }
  return nullptr;
}

}  // namespace

std::vector<LongSum> long_sums(const OpCases& rows) {
  std::vector<LongSum> sums;
  for (const LongOp& op : long_ops()) {
    for (const bp_dtype dtype : kFloats) {
      const OpCase* const model = model_of(rows, op.op, dtype);
      if (model == nullptr || dtype == BP_F64) continue;
      const bool is_f32 = dtype == BP_F32;
      for (const Length& length : {kSmoke, kQuick, kFull}) {
        const bool is_quick = length.tier == Tier::kQuick;
        if (!is_quick && (!is_f32 || op.is_heavy)) continue;
        op.add(Builder(*model, length, sums));
      }
    }
  }
  return sums;
}

}  // namespace bp::conformance
