// MUL_MAT_ID and ADD_ID: each token has numbers of experts, and each expert a matrix or a row.
#include "lower.h"

namespace bpg {
namespace {

struct Sorted {
  View rows, offsets, places;
};

// The rows of the tokens, ordered by expert.
Sorted permute_rows(Emitter& e, const View& x, const View& experts, int64_t count) {
  const int64_t pairs = experts.count();
  const Sorted y{e.temporary(x.dtype, {pairs, x.shape[1]}), e.temporary(BP_I64, {count + 1}),
                 e.temporary(BP_I64, experts.dims())};
  bp_moe_permute_args args{};
  args.x = e.arg(x);
  args.experts = e.arg(experts);
  args.y = e.arg(y.rows);
  args.offsets = e.arg(y.offsets);
  args.places = e.arg(y.places);
  args.num_experts = count;
  e.launch(BP_OP_MOE_PERMUTE, args);
  return y;
}

View multiply_groups(Emitter& e, const Sorted& x, const View& weights) {
  const View y = e.temporary(x.rows.dtype, {x.rows.shape[0], weights.shape[1]});
  bp_grouped_matmul_args args{};
  args.a = e.arg(x.rows);
  args.b = e.arg(swap_last(weights));
  args.offsets = e.arg(x.offsets);
  args.y = e.arg(y);
  e.launch(BP_OP_GROUPED_MATMUL, args);
  return y;
}

View matrix(const View& x) { return squeeze(squeeze(x, 0), 0); }

}  // namespace

void lower_mul_mat_id(Emitter& e, const ggml_tensor* node) {
  const View weights = squeeze(e.cast(floats_of(e, node->src[0]), BP_F32), 0);
  const View x = squeeze(e.cast(e.tensor(node->src[1]), BP_F32), 0);
  View experts = matrix(e.tensor(node->src[2]));
  const View y = squeeze(e.tensor(node), 0);
  const int64_t tokens = y.shape[0], used = y.shape[1];
  View rows;
  if (x.shape[1] == 1) {
    rows = squeeze(x, 1);
  } else {
    // Each expert of a token has a row of its own.
    rows = e.reshape(repeated(e, x, {tokens, used, x.shape[2]}), {tokens * used, x.shape[2]});
    experts = e.reshape(experts, {tokens * used, 1});
  }
  const Sorted sorted = permute_rows(e, rows, experts, weights.shape[0]);
  const View products = multiply_groups(e, sorted, weights);
  bp_embedding_args args{};
  args.weight = e.arg(products);
  args.indices = e.arg(e.reshape(sorted.places, {tokens, used}));
  args.y = e.arg(y);
  e.launch(BP_OP_EMBEDDING, args);
}

void lower_add_id(Emitter& e, const ggml_tensor* node) {
  const View x = squeeze(e.tensor(node->src[0]), 0), y = squeeze(e.tensor(node), 0);
  const View rows = e.temporary(x.dtype, x.dims());
  bp_embedding_args args{};
  args.weight = e.arg(matrix(e.tensor(node->src[1])));
  args.indices = e.arg(matrix(e.tensor(node->src[2])));
  args.y = e.arg(rows);
  e.launch(BP_OP_EMBEDDING, args);
  e.binary(BP_OP_ADD, x, rows, y);
}

}  // namespace bpg
