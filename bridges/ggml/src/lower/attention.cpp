// FLASH_ATTN_EXT: attention of queries to keys, with a mask that is added to the scores.
#include <limits>

#include "lower.h"

namespace bpg {
namespace {

struct Attention {
  View q, k, v, y;
  const ggml_tensor* node;
};

// A query that sees no key gives 0, where a softmax gives NaN.
View zero_if_masked(Emitter& e, const View& weights, const View& scores) {
  Shape shape = scores.dims();
  shape[3] = 1;
  static constexpr int64_t kKeys = 3;
  const View largest = e.temporary(scores.dtype, shape);
  bp_amax_args args{};
  args.x = e.arg(scores);
  args.y = e.arg(largest);
  args.axes_count = 1;
  args.axes = &kKeys;
  args.keepdims = 1;
  e.launch(BP_OP_AMAX, args);
  const View zero = e.temporary(scores.dtype, {1, 1, 1, 1});
  e.fill(zero, 0);
  const View is_masked = e.compare(BP_OP_EQ, largest, -std::numeric_limits<double>::infinity());
  return e.where(expand_to(is_masked, weights.dims()), expand_to(zero, weights.dims()), weights);
}

// A batch of keys that serves several batches of queries.
View like_batch(const View& x, int64_t batch) {
  if (x.shape[0] == batch) return x;
  if (x.shape[0] != 1) throw Refusal("keys serve several batches, and not all");
  return expand(x, 0, batch);
}

bp_sdpa_args arguments(Emitter& e, const Attention& a, const View& bias) {
  const ggml_tensor* const sinks = a.node->src[4];
  bp_sdpa_args args{};
  args.q = e.arg(a.q);
  args.k = e.arg(a.k);
  args.v = e.arg(a.v);
  args.bias = a.node->src[3] != nullptr ? e.arg(bias) : nullptr;
  args.y = e.arg(a.y);
  args.scale = float_param(a.node, 0);
  args.causal = BP_SDPA_CAUSAL_NONE;
  if (sinks != nullptr) args.sinks = e.arg(squeeze(squeeze(squeeze(e.tensor(sinks), 0), 0), 0));
  args.softcap = float_param(a.node, 2);
  return args;
}

View bias_of(Emitter& e, const Attention& a, bp_dtype dtype) {
  const ggml_tensor* const mask = a.node->src[3];
  if (mask == nullptr) return {};
  const Shape scores{a.q.shape[0], a.q.shape[1], a.q.shape[2], a.k.shape[2]};
  return mask_of_heads(e, e.tensor(mask), scores, float_param(a.node, 1), dtype);
}

// One launch in `dtype`. Returns false if no kernel takes it.
bool attend(Emitter& e, Attention a, bp_dtype dtype) {
  const View out = a.y;
  a.q = e.cast(a.q, dtype);
  a.k = e.cast(a.k, dtype);
  a.v = e.cast(a.v, dtype);
  if (out.dtype != dtype) a.y = e.temporary(dtype, out.dims());
  const View bias = bias_of(e, a, dtype);
  bp_sdpa_args args = arguments(e, a, bias);
  if (!e.can_launch(BP_OP_SDPA, args)) return false;
  args = arguments(e, a, bias);
  e.launch(BP_OP_SDPA, args);
  if (out.dtype != dtype) e.copy(a.y, out);
  return true;
}

// The scores as a tensor: for devices whose kernel does not take these heads.
void attend_by_products(Emitter& e, Attention a) {
  const Shape shape{a.q.shape[0], a.q.shape[1], a.q.shape[2], a.k.shape[2]};
  View scores = e.temporary(BP_F32, shape);
  emit_product(e, e.cast(a.k, BP_F32), e.cast(a.q, BP_F32), scores);
  const float scale = float_param(a.node, 0), softcap = float_param(a.node, 2);
  if (softcap == 0) {
    scores = e.binary(BP_OP_MUL, scores, scale);
  } else {
    scores = e.unary(BP_OP_TANH, e.binary(BP_OP_MUL, scores, scale / softcap));
    scores = e.binary(BP_OP_MUL, scores, softcap);
  }
  if (a.node->src[3] != nullptr) {
    scores = e.binary(BP_OP_ADD, scores, bias_of(e, a, BP_F32));
  }
  const ggml_tensor* const sinks = a.node->src[4];
  View weights = emit_softmax(e, scores, sinks != nullptr ? e.tensor(sinks) : View());
  if (sinks == nullptr && a.node->src[3] != nullptr) weights = zero_if_masked(e, weights, scores);
  emit_product(e, swap_last(e.cast(a.v, BP_F32)), weights, a.y);
}

}  // namespace

void lower_attention(Emitter& e, const ggml_tensor* node) {
  Attention a{e.tensor(node->src[0]), floats_of(e, node->src[1]), floats_of(e, node->src[2]),
              permute(e.tensor(node), {0, 2, 1, 3}), node};
  a.k = like_batch(a.k, a.q.shape[0]);
  a.v = like_batch(a.v, a.q.shape[0]);
  if (a.k.shape[1] != a.v.shape[1]) throw Refusal("keys and values have different heads");
  // The keys stay as they are if there is a kernel for their dtype.
  if (a.k.dtype == a.v.dtype && a.k.dtype != BP_F32 && attend(e, a, a.k.dtype)) return;
  if (attend(e, a, BP_F32)) return;
  attend_by_products(e, a);
}

}  // namespace bpg
