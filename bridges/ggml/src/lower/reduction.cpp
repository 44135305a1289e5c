// Sums, and the places of elements in order.
#include "lower.h"

namespace bpg {
namespace {

View without_batches(const View& x) { return squeeze(squeeze(x, 0), 0); }

}  // namespace

void lower_sum(Emitter& e, const ggml_tensor* node) {
  const View x = e.tensor(node->src[0]), y = e.tensor(node);
  static constexpr int64_t kRow = 3;
  // ggml defines these sums for rows without gaps alone.
  if (x.strides[3] != 1) throw Refusal("the elements of a row have gaps");
  if (node->op == GGML_OP_SUM) return e.sum(x, {0, 1, 2, 3}, y, true);
  if (node->op == GGML_OP_SUM_ROWS) return e.sum(x, {3}, y, true);
  bp_mean_args args{};
  args.x = e.arg(x);
  args.y = e.arg(y);
  args.axes_count = 1;
  args.axes = &kRow;
  args.keepdims = 1;
  e.launch(BP_OP_MEAN, args);
}

void lower_cumsum(Emitter& e, const ggml_tensor* node) {
  bp_cumsum_args args{};
  args.x = e.arg(e.tensor(node->src[0]));
  args.y = e.arg(e.tensor(node));
  args.axis = 3;
  e.launch(BP_OP_CUMSUM, args);
}

void lower_argmax(Emitter& e, const ggml_tensor* node) {
  bp_argmax_args args{};
  args.x = e.arg(without_batches(e.tensor(node->src[0])));
  args.y = e.arg(squeeze(without_batches(e.tensor(node)), 0));
  args.axis = 1;
  e.launch(BP_OP_ARGMAX, args);
}

void lower_argsort(Emitter& e, const ggml_tensor* node) {
  const View x = e.tensor(node->src[0]);
  bp_sort_args args{};
  args.x = e.arg(x);
  args.y = e.arg(e.temporary(x.dtype, x.dims()));
  args.indices = e.arg(e.tensor(node));
  args.axis = 3;
  args.is_descending = int_param(node, 0) == GGML_SORT_ORDER_DESC;
  e.launch(BP_OP_SORT, args);
}

void lower_top_k(Emitter& e, const ggml_tensor* node) {
  const View x = e.tensor(node->src[0]), y = e.tensor(node);
  bp_topk_args args{};
  args.x = e.arg(x);
  args.y = e.arg(e.temporary(x.dtype, y.dims()));
  args.indices = e.arg(y);
  args.k = y.shape[3];
  args.axis = 3;
  args.is_largest = 1;
  e.launch(BP_OP_TOPK, args);
}

void lower_count_equal(Emitter& e, const ggml_tensor* node) {
  const View a = e.tensor(node->src[0]), b = e.tensor(node->src[1]);
  e.sum(e.compare(BP_OP_EQ, a, b), {0, 1, 2, 3}, e.tensor(node), true);
}

}  // namespace bpg
