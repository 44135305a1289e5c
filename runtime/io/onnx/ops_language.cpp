// Operators of language models beside Attention: rotary positions, caches that are filled in place,
// and layers with a state that goes from one token to the next.
#include <algorithm>
#include <cmath>

#include "runtime/io/onnx/composed.hpp"
#include "runtime/io/onnx/op_table.hpp"

namespace bp::onnx {
namespace {

using Ints = std::vector<int64_t>;

// Returns (batch, length, heads, width) for (batch, length, heads * width).
Tensor split_heads(const Call& call, const Tensor& x, int64_t heads, const char* what) {
  if (x.ndim() == 3 && heads > 0 && x.shape(2) % heads == 0) {
    return x.reshape({x.shape(0), x.shape(1), heads, x.shape(2) / heads});
  }
  call.refuse(std::string(what) + " is " + bp::to_string(x.shape()) +
              "; allowed: 3 axes, of which the last one has equal parts for " +
              std::to_string(heads) + " heads");
}

// ---- Rotary positions --------------------------------------------------------------------------

// Returns the cosines or the sines of input `i` as (batch, length, angles).
Tensor angles_of(const Call& call, size_t i, int64_t count) {
  Tensor cache = call.input(i);
  if (call.has(3)) {
    const Tensor ids = call.input(3);
    if (cache.ndim() != 2 || ids.ndim() != 2) {
      call.refuse("input " + std::to_string(i) + " is " + bp::to_string(cache.shape()) +
                  " and input 3 (position_ids) " + bp::to_string(ids.shape()) +
                  "; allowed: two axes each");
    }
    cache = index_select(cache, ids.to(BP_I64).reshape({ids.numel()}), 0)
                .reshape({ids.shape(0), ids.shape(1), cache.shape(1)});
  }
  if (cache.ndim() == 3 && cache.shape(2) == count) return cache;
  call.refuse("input " + std::to_string(i) + " is " + bp::to_string(cache.shape()) +
              "; allowed: (batch, length, " + std::to_string(count) + ")");
}

Values rotary_embedding(const Call& call) {
  const Tensor given = call.input(0);
  const bool is_4d = given.ndim() == 4;
  const Tensor x = is_4d ? given.transpose(1, 2)
                         : split_heads(call, given, call.integer("num_heads", 0), "input 0");
  const int64_t turned = call.integer("rotary_embedding_dim", 0);
  const int64_t width = turned == 0 ? x.shape(3) : turned;
  if (width < 0 || width % 2 != 0 || width > x.shape(3)) {
    call.refuse("of heads of " + std::to_string(x.shape(3)) + " elements " + std::to_string(width) +
                " are turned; allowed: an even number up to that");
  }
  const bp_dtype wide = x.dtype() == BP_F64 ? bp_dtype{BP_F64} : bp_dtype{BP_F32};
  const Ints shape{x.shape(0), x.shape(1), x.shape(2), width / 2};
  const auto spread = [&](size_t i) {
    return angles_of(call, i, width / 2).to(wide).unsqueeze(2).expand(shape);
  };
  const Tensor y = rope(x, spread(1), spread(2), call.flag("interleaved", false));
  return {is_4d ? y.transpose(1, 2) : y.reshape(given.shape())};
}

// ---- Caches ------------------------------------------------------------------------------------

// Each batch writes its update at a place of its own.
Values tensor_scatter(const Call& call) {
  const Tensor cache = call.input(0), update = call.input(1);
  const int64_t axis = call.axis(call.integer("axis", -2), cache.ndim());
  if (axis == 0) call.refuse("attribute 'axis' is that of the batch");
  if (update.ndim() != cache.ndim() || update.shape(axis) > cache.shape(axis)) {
    call.refuse("the update " + bp::to_string(update.shape()) + " does not fit into the cache " +
                bp::to_string(cache.shape()));
  }
  Tensor places = align_axis(count_up(update.shape(axis), cache.device()), axis, cache.ndim());
  if (call.has(2)) places = places + align_axis(call.input(2).to(BP_I64), 0, cache.ndim());
  const std::string mode = call.text("mode", "linear");
  if (mode == "circular") {
    places = remainder(places, cache.shape(axis));
  } else if (mode != "linear") {
    call.refuse("attribute 'mode' is '" + mode + "'; allowed: linear and circular");
  }
  return {scatter(cache, places.expand(update.shape()).contiguous(), update, axis)};
}

// The state has the elements before the first one: one less than the kernel reaches.
Values causal_convolution(const Call& call) {
  const Tensor x = call.input(0), weight = call.input(1);
  if (x.ndim() != 3 || weight.ndim() != 3 || weight.shape(2) < 1) {
    call.refuse("input 0 is " + bp::to_string(x.shape()) + " and the weight " +
                bp::to_string(weight.shape()) +
                "; allowed: (batch, channels, length) and (channels, 1, kernel)");
  }
  const Ints state{x.shape(0), x.shape(1), weight.shape(2) - 1};
  const Tensor past = call.has(3) ? call.input(3) : zeros(state, x.dtype(), x.device());
  if (!(past.shape() == IntList(state))) {
    call.refuse("input 3 (past_state) is " + bp::to_string(past.shape()) +
                "; allowed: " + bp::to_string(IntList(state)));
  }
  const Tensor whole = concat({past, x}, 2);
  const Tensor y = convolution(whole, weight, call.optional(2), {1}, {0, 0}, {1}, x.shape(1));
  const Tensor present = whole.narrow(2, x.shape(2), state[2]);
  const std::string activation = call.text("activation", "none");
  if (activation == "none") return {y, present};
  if (activation == "silu" || activation == "swish") return {silu(y), present};
  call.refuse("attribute 'activation' is '" + activation + "'; allowed: none, silu and swish");
}

// ---- Linear attention --------------------------------------------------------------------------

// All tensors are (batch, length, heads, ...), in f32 or f64. Of the optional ones an empty tensor
// is not given.
struct Recurrence {
  Tensor q, k, v, decay, beta;
  Tensor state;  // (batch, heads of k, width, value width)
};

Recurrence read_recurrence(const Call& call, bp_dtype wide) {
  const std::string rule = call.text("update_rule", "gated_delta");
  const bool is_gated = rule == "gated" || rule == "gated_delta";
  const bool is_delta = rule == "delta" || rule == "gated_delta";
  if (!is_gated && !is_delta && rule != "linear") {
    call.refuse("attribute 'update_rule' is '" + rule +
                "'; allowed: linear, gated, delta and gated_delta");
  }
  if (call.has(4) != is_gated || call.has(5) != is_delta) {
    call.refuse("the update_rule '" + rule + "' needs input 4 (decay) if it is gated, and input " +
                "5 (beta) if it is a delta, and takes neither otherwise");
  }
  const int64_t heads = call.required_integer("kv_num_heads");
  const auto split = [&](size_t i, int64_t count) {
    return split_heads(call, call.input(i), count, ("input " + std::to_string(i)).c_str()).to(wide);
  };
  Recurrence r{split(0, call.required_integer("q_num_heads")), split(1, heads), split(2, heads)};
  if (is_gated) r.decay = split(4, heads);
  if (is_delta) r.beta = split(5, call.value(5).shape().back() == 1 ? 1 : heads);
  if (r.q.shape(2) % heads != 0) {
    call.refuse("there are " + std::to_string(r.q.shape(2)) + " heads of queries and " +
                std::to_string(heads) + " of keys, which do not divide them");
  }
  const Ints state{r.k.shape(0), heads, r.k.shape(3), r.v.shape(3)};
  r.state = call.has(3) ? call.input(3).to(wide) : zeros(state, wide, call.device());
  if (!(r.state.shape() == IntList(state))) {
    call.refuse("input 3 (past_state) is " + bp::to_string(r.state.shape()) +
                "; allowed: " + bp::to_string(IntList(state)));
  }
  return r;
}

// Takes the state from one token to the next, and returns what its queries read: (batch, heads of
// q, value width).
Tensor next_token(Recurrence& r, int64_t t, double scale) {
  const Tensor k = r.k.select(1, t), q = r.q.select(1, t);
  Tensor v = r.v.select(1, t).unsqueeze(2);  // (batch, heads, 1, value width)
  if (r.decay) r.state = r.state * exp(r.decay.select(1, t)).unsqueeze(3);
  if (r.beta) v = (v - matmul(k.unsqueeze(2), r.state)) * r.beta.select(1, t).unsqueeze(2);
  r.state = r.state + k.unsqueeze(3) * v;
  const int64_t heads = k.shape(1), group = q.shape(1) / heads;
  const Tensor read = matmul(q.reshape({q.shape(0), heads, group, q.shape(2)}), r.state);
  return read.reshape({q.shape(0), q.shape(1), v.shape(3)}) * scale;
}

Values linear_attention(const Call& call) {
  const bp_dtype dtype = call.value(0).dtype();
  const bp_dtype wide = dtype == BP_F64 ? bp_dtype{BP_F64} : bp_dtype{BP_F32};
  Recurrence r = read_recurrence(call, wide);
  double scale = call.number("scale", 0);
  if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(r.q.shape(3)));
  const Ints shape{r.q.shape(0), r.q.shape(1), r.q.shape(2) * r.v.shape(3)};
  std::vector<Tensor> tokens;
  for (int64_t t = 0; t < r.q.shape(1); ++t) {
    tokens.push_back(next_token(r, t, scale).unsqueeze(1));
  }
  const Tensor y = tokens.empty() ? zeros(shape, wide, call.device()) : concat(tokens, 1);
  const bp_dtype state_dtype = call.has(3) ? call.value(3).dtype() : dtype;
  return {y.reshape(shape).to(dtype), r.state.to(state_dtype)};
}

constexpr OpRow kRows[] = {
    {"CausalConvWithState", 27, causal_convolution, "activation"},
    {"LinearAttention", 27, linear_attention,
     "chunk_size kv_num_heads q_num_heads scale update_rule"},
    {"RotaryEmbedding", 23, rotary_embedding, "interleaved num_heads rotary_embedding_dim",
     OnnxRoute::kOp},
    {"TensorScatter", 24, tensor_scatter, "axis mode"},
};

}  // namespace

std::span<const OpRow> language_ops() { return kRows; }

}  // namespace bp::onnx
