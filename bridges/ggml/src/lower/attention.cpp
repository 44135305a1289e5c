// FLASH_ATTN_EXT: attention of queries to keys, with a mask that is added to the scores.
#include "lower.h"

namespace bpg {
namespace {

struct Attention {
  View q, k, v, y;
  const ggml_tensor* node;
};

// A batch of keys that serves several batches of queries.
View like_batch(const View& x, int64_t batch) {
  if (x.shape[0] != batch && x.shape[0] != 1) {
    throw Refusal("keys serve several batches, and not all");
  }
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

// The call in `dtype`, or false if no kernel takes it.
bool attend(Emitter& e, Attention a, bp_dtype dtype, bool must) {
  const View out = a.y;
  a.q = e.cast(a.q, dtype);
  a.k = e.cast(a.k, dtype);
  a.v = e.cast(a.v, dtype);
  if (out.dtype != dtype) a.y = e.temporary(dtype, out.dims());
  View bias;
  const ggml_tensor* const mask = a.node->src[3];
  if (mask != nullptr) {
    const Shape scores{a.q.shape[0], a.q.shape[1], a.q.shape[2], a.k.shape[2]};
    bias = mask_of_heads(e, e.tensor(mask), scores, float_param(a.node, 1), dtype);
  }
  bp_sdpa_args args = arguments(e, a, bias);
  if (!must && !e.can_launch(BP_OP_SDPA, args)) return false;
  args = arguments(e, a, bias);
  e.launch(BP_OP_SDPA, args);
  if (out.dtype != dtype) e.copy(a.y, out);
  return true;
}

}  // namespace

void lower_attention(Emitter& e, const ggml_tensor* node) {
  Attention a{e.tensor(node->src[0]), floats_of(e, node->src[1]), floats_of(e, node->src[2]),
              permute(e.tensor(node), {0, 2, 1, 3}), node};
  a.k = like_batch(a.k, a.q.shape[0]);
  a.v = like_batch(a.v, a.q.shape[0]);
  if (a.k.shape[1] != a.v.shape[1]) throw Refusal("keys and values have different heads");
  // The keys stay as they are if there is a kernel for their dtype.
  if (a.k.dtype == a.v.dtype && a.k.dtype != BP_F32 && attend(e, a, a.k.dtype, false)) return;
  attend(e, a, BP_F32, true);
}

}  // namespace bpg
