// Attention. It is one call of the op sdpa, unless the node wants the scores, or a softmax in a
// dtype that sdpa does not compute in; then scores, softmax and the product with the values are
// calls of their own. All tensors are (batch, heads, length, width).
#include <algorithm>
#include <cmath>

#include "runtime/io/onnx/composed.hpp"
#include "runtime/io/onnx/op_table.hpp"

namespace bp::onnx {
namespace {

enum Input : size_t { kQ, kK, kV, kMask, kPastKey, kPastValue, kNonpadLengths };
enum ScoreMode : int64_t { kProducts, kCapped, kWithBias, kProbabilities };

struct Heads {
  Tensor q, k, v;      // k and v with the past.
  int64_t past = 0;    // How many keys come from the past.
  bool is_3d = false;  // The node has (batch, length, heads * width).

  int64_t queries() const { return q.shape(2); }
  int64_t keys() const { return k.shape(2); }
  int64_t group() const { return q.shape(1) / k.shape(1); }  // Heads of q for one of k.
};

// Splits the heads of an input of 3 axes.
Tensor split_heads(const Call& call, size_t i, const char* name) {
  const Tensor x = call.input(i);
  const int64_t count = call.required_integer(name);
  if (count < 1 || x.shape(2) % count != 0) {
    call.refuse("attribute '" + std::string(name) + "' is " + std::to_string(count) +
                ", which does not divide the last extent of input " + std::to_string(i) + ", " +
                bp::to_string(x.shape()));
  }
  return x.reshape({x.shape(0), x.shape(1), count, x.shape(2) / count}).transpose(1, 2);
}

void append_to_past(const Call& call, Heads& heads) {
  if (call.has(kPastKey) != call.has(kPastValue)) {
    call.refuse("inputs 4 and 5 (past_key and past_value) must be given together");
  }
  if (!call.has(kPastKey)) return;
  if (call.has(kNonpadLengths)) {
    call.refuse("input 6 (nonpad_kv_seqlen) is given together with past_key and past_value");
  }
  const Tensor key = call.input(kPastKey), value = call.input(kPastValue);
  if (key.ndim() != 4 || value.ndim() != 4 || key.shape(2) != value.shape(2)) {
    call.refuse("past_key is " + bp::to_string(key.shape()) + " and past_value " +
                bp::to_string(value.shape()) +
                "; allowed: (batch, heads, length, width) of one length");
  }
  heads.past = key.shape(2);
  heads.k = concat({key, heads.k}, 2);
  heads.v = concat({value, heads.v}, 2);
}

Heads read_heads(const Call& call) {
  Heads heads{call.input(kQ), call.input(kK), call.input(kV)};
  const int64_t ndim = heads.q.ndim();
  if ((ndim != 3 && ndim != 4) || heads.k.ndim() != ndim || heads.v.ndim() != ndim) {
    call.refuse("inputs 0 to 2 are " + bp::to_string(heads.q.shape()) + ", " +
                bp::to_string(heads.k.shape()) + " and " + bp::to_string(heads.v.shape()) +
                "; allowed: all of 3 or all of 4 axes");
  }
  heads.is_3d = ndim == 3;
  if (heads.is_3d) {
    heads.q = split_heads(call, kQ, "q_num_heads");
    heads.k = split_heads(call, kK, "kv_num_heads");
    heads.v = split_heads(call, kV, "kv_num_heads");
  }
  append_to_past(call, heads);
  if (heads.k.shape(1) < 1 || heads.q.shape(1) % heads.k.shape(1) != 0) {
    call.refuse("there are " + std::to_string(heads.q.shape(1)) + " heads of queries and " +
                std::to_string(heads.k.shape(1)) + " of keys, which do not divide them");
  }
  return heads;
}

// ---- What a query sees -------------------------------------------------------------------------

// A query at position p sees the keys p - left to p + right. A bound of -1 is none.
struct Band {
  int64_t left = -1, right = -1;

  bool is_open() const { return left < 0 && right < 0; }
};

// A causal query sees no key behind its own position.
Band read_band(const Call& call) {
  Band band{call.integer("left_window_size", -1), call.integer("right_window_size", -1)};
  if (band.left < -1 || band.right < -1) {
    call.refuse("the windows are " + std::to_string(band.left) + " and " +
                std::to_string(band.right) + "; allowed: -1 and above");
  }
  if (call.flag("is_causal", false)) band.right = 0;
  return band;
}

// What sdpa is told. An empty tensor hides nothing, or adds nothing.
struct Visible {
  Tensor mask, bias;  // (batch, heads, queries, keys)
  Causal causal = Causal::kNone;
  int64_t window_left = 0, window_right = 0;

  void hide(const Tensor& more) { mask = mask ? logical_and(mask, more) : more; }
};

// Reads input 3. A last axis that is too short ends with keys that nobody sees.
void read_mask(const Call& call, const Heads& heads, Visible& visible) {
  if (!call.has(kMask)) return;
  Tensor given = call.input(kMask);
  const bool is_mask = given.dtype() == BP_BOOL;
  if (given.ndim() < 1 || given.ndim() > 4 || given.shape(-1) > heads.keys()) {
    call.refuse("input 3 (attn_mask) is " + bp::to_string(given.shape()) + " for " +
                std::to_string(heads.keys()) + " keys");
  }
  if (!is_mask) given = converted(given, heads.q.dtype());
  const Tensor hidden = is_mask ? zeros({}, BP_BOOL, given.device())
                                : bp::scalar(-HUGE_VAL, given.dtype(), given.device());
  const int64_t missing = heads.keys() - given.shape(-1);
  if (missing > 0) given = pad_axis(given, given.ndim() - 1, 0, missing, hidden);
  (is_mask ? visible.mask : visible.bias) = given;
}

// Says as a mask which keys the band lets each query see. `offset` is the position of query 0.
void hide_by_mask(const Heads& heads, const Band& band, const Operand& offset, Visible& visible) {
  const Device device = heads.q.device();
  const Tensor positions = add(count_up(heads.queries(), device).unsqueeze(1), offset);
  const Tensor distance = sub(positions, count_up(heads.keys(), device));
  if (band.left >= 0) visible.hide(le(distance, band.left));
  if (band.right >= 0) visible.hide(ge(distance, -band.right));
}

// sdpa counts from the last key, or in the causal order from the first one too. It counts the key
// at the position of the query as part of each window.
void hide_by_band(const Heads& heads, const Band& band, Visible& visible) {
  const bool is_at_end = heads.past == heads.keys() - heads.queries();
  if (band.is_open()) return;
  if (!is_at_end && (heads.past != 0 || band.right != 0)) {
    hide_by_mask(heads, band, heads.past, visible);
    return;
  }
  const int64_t most = heads.keys() + heads.queries();
  if (band.right == 0) visible.causal = is_at_end ? Causal::kBottomRight : Causal::kTopLeft;
  if (band.right > 0) visible.window_right = std::min(band.right, most) + 1;
  if (band.left >= 0) visible.window_left = std::min(band.left, most) + 1;
}

// The keys of each batch end at its length, and its last query is at the last of them.
void hide_padding(const Call& call, const Heads& heads, const Band& band, Visible& visible) {
  const Tensor given = call.input(kNonpadLengths);
  if (given.ndim() != 1 || given.shape(0) != heads.q.shape(0)) {
    call.refuse("input 6 (nonpad_kv_seqlen) is " + bp::to_string(given.shape()) +
                "; allowed: one number for each of " + std::to_string(heads.q.shape(0)) +
                " batches");
  }
  const Tensor lengths = given.to(BP_I64).reshape({given.shape(0), 1, 1, 1});
  visible.hide(lt(count_up(heads.keys(), heads.q.device()), lengths));
  hide_by_mask(heads, band, sub(lengths, heads.queries()), visible);
}

Visible read_visible(const Call& call, const Heads& heads) {
  Visible visible;
  read_mask(call, heads, visible);
  const Band band = read_band(call);
  if (call.has(kNonpadLengths)) {
    hide_padding(call, heads, band, visible);
  } else {
    hide_by_band(heads, band, visible);
  }
  const std::vector<int64_t> shape{heads.q.shape(0), heads.q.shape(1), heads.queries(),
                                   heads.keys()};
  if (visible.mask) visible.mask = visible.mask.expand(shape);
  if (visible.bias) visible.bias = visible.bias.expand(shape);
  return visible;
}

// ---- Step by step ------------------------------------------------------------------------------

bp_dtype wide_of(bp_dtype dtype) { return dtype == BP_F64 ? bp_dtype{BP_F64} : bp_dtype{BP_F32}; }

// Multiplies each head of queries with its head of keys or values.
Tensor product_of_heads(const Heads& heads, const Tensor& a, const Tensor& b) {
  const Tensor rows = a.reshape({a.shape(0), b.shape(1), heads.group() * a.shape(2), a.shape(3)});
  return matmul(rows, b).reshape({a.shape(0), a.shape(1), a.shape(2), b.shape(3)});
}

// Makes of the order and the windows a mask as well.
void mask_band(const Call& call, const Heads& heads, Visible& visible) {
  if (call.has(kNonpadLengths)) return;
  Visible band;
  hide_by_mask(heads, read_band(call), heads.past, band);
  if (band.mask) visible.hide(band.mask);
}

// A query that sees no key has probabilities of 0.
Tensor probabilities(const Tensor& scores, const Visible& visible, bp_dtype precision) {
  Tensor seen = visible.mask;
  if (visible.bias) {
    const Tensor is_finite = gt(visible.bias, -HUGE_VAL);
    seen = seen ? logical_and(seen, is_finite) : is_finite;
  }
  const Tensor p = softmax(scores.to(precision), 3);
  return seen ? keep_where(any(seen, {-1}, true).expand(p.shape()), p) : p;
}

struct Attended {
  Tensor y, scores;
};

Attended attend_in_steps(const Call& call, const Heads& heads, Visible visible, double scale,
                         double softcap) {
  const bp_dtype dtype = heads.q.dtype(), wide = wide_of(dtype);
  const int64_t mode = call.integer("qk_matmul_output_mode", kProducts);
  if (mode < kProducts || mode > kProbabilities) {
    call.refuse("attribute 'qk_matmul_output_mode' is " + std::to_string(mode) +
                "; allowed: 0 to 3");
  }
  mask_band(call, heads, visible);
  std::vector<Tensor> stages(kProbabilities + 1);
  stages[kProducts] =
      product_of_heads(heads, heads.q.to(wide), heads.k.to(wide).transpose(2, 3)) * scale;
  stages[kCapped] = softcap == 0 ? stages[kProducts] : tanh(stages[kProducts] / softcap) * softcap;
  Tensor biased = stages[kCapped];
  if (visible.bias) biased = biased + visible.bias.to(wide);
  if (visible.mask) biased = where(visible.mask.expand(biased.shape()), biased, -HUGE_VAL);
  stages[kWithBias] = biased;
  stages[kProbabilities] = probabilities(biased, visible, call.dtype("softmax_precision", wide));
  const Tensor weights = stages[kProbabilities].to(dtype);
  return {product_of_heads(heads, weights, heads.v), stages[static_cast<size_t>(mode)].to(dtype)};
}

// sdpa computes in f32, or in f64 for f64, which is no less than the dtype of the inputs.
bool is_precision_of_sdpa(const Call& call, bp_dtype dtype) {
  const bp_dtype asked = call.dtype("softmax_precision", dtype);
  return asked == dtype || asked == wide_of(dtype);
}

Values attention(const Call& call) {
  const Heads heads = read_heads(call);
  const Visible visible = read_visible(call, heads);
  const auto width = static_cast<double>(heads.q.shape(3));
  const double scale = call.has("scale") ? call.number("scale", 0) : 1 / std::sqrt(width);
  const double softcap = call.number("softcap", 0);
  if (softcap < 0) call.refuse("attribute 'softcap' is less than 0");
  Attended out;
  if (call.wants(3) || !is_precision_of_sdpa(call, heads.q.dtype())) {
    out = attend_in_steps(call, heads, visible, scale, softcap);
  } else {
    out.y = sdpa(heads.q, heads.k, heads.v, scale, visible.mask, visible.bias, visible.causal,
                 nullptr, Tensor(), visible.window_left, visible.window_right, softcap);
  }
  if (heads.is_3d) {
    out.y = out.y.transpose(1, 2).reshape(
        {heads.q.shape(0), heads.queries(), heads.q.shape(1) * heads.v.shape(3)});
  }
  return {out.y, heads.k, heads.v, out.scores ? Value(out.scores) : Value()};
}

// ---- With functions of the model ---------------------------------------------------------------

// Returns what the graph of the attribute makes of `x`, or `x` if there is none.
Tensor modified(const Call& call, const char* name, const Tensor& x) {
  if (!call.has(name)) return x;
  const Graph& body = call.graph(name);
  if (body.inputs.size() != 1 || body.outputs.size() != 1) {
    call.refuse("attribute '" + std::string(name) + "' is a graph of " +
                std::to_string(body.inputs.size()) + " inputs and " +
                std::to_string(body.outputs.size()) + " outputs; allowed: one of each");
  }
  const Values results =
      run_graph(body, {{body.inputs[0].name, Value(x)}}, call.device(), &call.scope());
  Tensor y = results[0].on(call.device());
  if (y.shape() == x.shape() && y.dtype() == x.dtype()) return y;
  call.refuse("attribute '" + std::string(name) + "' makes " + dtype_text(y.dtype()) + " " +
              bp::to_string(y.shape()) + " of " + dtype_text(x.dtype()) + " " +
              bp::to_string(x.shape()) + "; allowed: the same dtype and shape");
}

Values flex_attention(const Call& call) {
  const Heads heads = read_heads(call);
  if (heads.is_3d) call.refuse("inputs 0 to 2 have 3 axes; allowed: 4");
  const bp_dtype wide = wide_of(heads.q.dtype());
  const bp_dtype precision = call.dtype("softmax_precision", wide);
  const auto width = static_cast<double>(heads.q.shape(3));
  const double scale = call.has("scale") ? call.number("scale", 0) : 1 / std::sqrt(width);
  const Tensor products =
      product_of_heads(heads, heads.q.to(wide), heads.k.to(wide).transpose(2, 3)) * scale;
  const Tensor scores = modified(call, "score_mod", products.to(precision));
  const Tensor weights = modified(call, "prob_mod", softmax(scores, 3));
  return {product_of_heads(heads, weights, heads.v.to(precision)).to(heads.q.dtype())};
}

constexpr const char* kAttributes =
    "is_causal kv_num_heads q_num_heads qk_matmul_output_mode scale softcap softmax_precision";
constexpr const char* kWithWindows =
    "is_causal kv_num_heads left_window_size q_num_heads qk_matmul_output_mode right_window_size "
    "scale softcap softmax_precision";

constexpr OpRow kRows[] = {
    {"Attention", 23, attention, kAttributes, OnnxRoute::kOp},
    {"Attention", 25, attention, kWithWindows, OnnxRoute::kOp},
    {"FlexAttention", 1, flex_attention, "prob_mod scale score_mod softmax_precision",
     OnnxRoute::kComposed, "ai.onnx.preview"},
};

}  // namespace

std::span<const OpRow> attention_ops() { return kRows; }

}  // namespace bp::onnx
