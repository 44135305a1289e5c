// MUL_MAT_ID and ADD_ID: each token has numbers of experts, and each expert a matrix or a row.
#include <map>

#include "log.h"
#include "lower.h"

namespace bpg {
namespace {

View matrix(const View& x) { return squeeze(squeeze(x, 0), 0); }

// A row of the input, and the row of the result that it gives with the matrix of an expert.
struct Rows {
  std::vector<int32_t> from, to;
};

using Groups = std::map<int32_t, Rows>;

// The host reads the numbers, so it knows how many rows each expert has. Where nothing is computed,
// one expert with all rows and one with a single row stand for every choice.
Groups group_rows(Emitter& e, const ggml_tensor* node) {
  const View experts = e.contiguous(matrix(e.tensor(node->src[2])));
  const auto used = static_cast<int32_t>(experts.shape[1]);
  const auto inputs = static_cast<int32_t>(node->src[1]->ne[1]);
  const std::vector<int64_t> numbers = e.read(experts);
  Groups groups;
  for (int32_t i = 0; i < static_cast<int32_t>(experts.count()); ++i) {
    const auto expert = static_cast<int32_t>(numbers.empty() ? 0 : numbers[i]);
    if (expert < 0 || expert >= node->src[0]->ne[2]) {
      throw Failure(BP_DATA_FAILURE, "the number of an expert is " + std::to_string(expert) +
                                         ", and there are " + std::to_string(node->src[0]->ne[2]) +
                                         " experts");
    }
    groups[expert].from.push_back(i / used * inputs + i % used % inputs);
    groups[expert].to.push_back(i);
  }
  if (numbers.empty()) groups[1] = {{0}, {0}};
  return groups;
}

void multiply_rows(Emitter& e, const ggml_tensor* node, int32_t expert, const Rows& rows,
                   const View& x, const View& y) {
  if (rows.from.size() == 1) {
    emit_matrix_product(e, node->src[0], expert, slice(x, 0, rows.from[0], rows.from[0] + 1),
                        slice(y, 0, rows.to[0], rows.to[0] + 1));
    return;
  }
  const auto count = static_cast<int64_t>(rows.from.size());
  const View chosen = e.temporary(x.dtype, {count, x.shape[1]});
  const View products = e.temporary(y.dtype, {count, y.shape[1]});
  emit_get_rows(e, x, e.upload(rows.from), chosen);
  emit_matrix_product(e, node->src[0], expert, chosen, products);
  emit_set_rows(e, y, products, rows.to);
}

}  // namespace

void lower_mul_mat_id(Emitter& e, const ggml_tensor* node) {
  const View source = e.tensor(node->src[1]), result = e.tensor(node);
  View x, y;
  if (!reshape_view(source, {source.shape[1] * source.shape[2], source.shape[3]}, x)) {
    x = e.reshape(source, {source.shape[1] * source.shape[2], source.shape[3]});
  }
  if (!reshape_view(result, {result.shape[1] * result.shape[2], result.shape[3]}, y)) {
    throw Refusal("the rows of the result have gaps");
  }
  for (const auto& [expert, rows] : group_rows(e, node)) {
    multiply_rows(e, node, expert, rows, x, y);
  }
}

void lower_add_id(Emitter& e, const ggml_tensor* node) {
  const View x = squeeze(e.tensor(node->src[0]), 0), y = squeeze(e.tensor(node), 0);
  const View rows = e.temporary(x.dtype, x.dims());
  emit_get_rows(e, matrix(e.tensor(node->src[1])), matrix(e.tensor(node->src[2])), rows);
  e.binary(BP_OP_ADD, x, rows, y);
}

}  // namespace bpg
