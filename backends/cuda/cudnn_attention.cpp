// The graph of attention: two products with a softmax between them, which cuDNN's engines for
// attention know by its operations and their order. NVIDIA/cudnn-frontend shows the same order
// (include/cudnn_frontend/node: scaled_dot_product_flash_attention.h, diagonal_band_mask.h and
// softmax.h). installed_test.cpp asks the library whether it still knows it.
#include <array>

#include "backends/cuda/cudnn.hpp"
#include "backends/cuda/cudnn_graph.hpp"

namespace bp::cuda {
namespace {

using Handle = DnnGraph::Handle;
using Id = DnnAttentionTensor;
using Extents = std::array<int64_t, 4>;

class AttentionGraph {
 public:
  AttentionGraph(const Cudnn& library, const DnnAttention& problem) : p_(problem), graph_(library) {
    const Extents q{p_.batches, p_.heads, p_.queries, p_.width};
    const Extents k{p_.batches, p_.key_heads, p_.width, p_.keys};
    const Extents v{p_.batches, p_.key_heads, p_.keys, p_.width};
    const cudnnDataType_t type = dnn_type_of(p_.dtype);
    Handle scores = full(CUDNN_DATA_FLOAT);
    graph_.multiply(memory(Id::kQ, type, q, p_.q),
                    memory(Id::kK, type, k, {p_.k[0], p_.k[1], p_.k[3], p_.k[2]}), scores);
    scores = mapped(CUDNN_POINTWISE_MUL, scores, number(Id::kScale, CUDNN_DATA_FLOAT));
    if (p_.is_bound_right) scores = seen_before_the_end(scores);
    if (p_.is_bound_left) scores = seen_from_the_beginning(scores);
    const Handle weights = softmax(scores, type);
    graph_.multiply(weights, memory(Id::kV, type, v, p_.v), memory(Id::kY, type, q, p_.y));
  }

  std::vector<DnnDescriptor> finish(cudnnHandle_t handle) {
    return std::move(graph_).finish(handle);
  }

 private:
  Handle memory(Id id, cudnnDataType_t type, const Extents& shape, const Extents& strides) {
    return graph_.memory(
        {.id = static_cast<int64_t>(id), .type = type, .shape = shape, .strides = strides});
  }
  Handle number(Id id, cudnnDataType_t type) {
    return graph_.number(static_cast<int64_t>(id), type);
  }
  // A tensor with the shape of the scores, and one with an element for each of their rows.
  Handle full(cudnnDataType_t type) {
    return graph_.between(type, Extents{p_.batches, p_.heads, p_.queries, p_.keys});
  }
  Handle row() {
    return graph_.between(CUDNN_DATA_FLOAT, Extents{p_.batches, p_.heads, p_.queries, 1});
  }

  // Returns the result of an operation in f32 whose shape is that of the scores.
  Handle mapped(cudnnPointwiseMode_t mode, Handle left, Handle right = nullptr) {
    const Handle to = full(CUDNN_DATA_FLOAT);
    graph_.map(mode, CUDNN_DATA_FLOAT, left, right, to);
    return to;
  }
  // Returns left + number, or left - number.
  Handle shifted(cudnnPointwiseMode_t mode, cudnnDataType_t type, Handle left, Id by) {
    const Handle to = full(type);
    graph_.map(mode, type, left, number(by, type), to);
    return to;
  }
  Handle indices(int64_t axis, Handle like) {
    const Handle to = full(CUDNN_DATA_INT32);
    graph_.indices(axis, like, to);
    return to;
  }
  // Returns the scores where `mode` holds for left and right, and hidden scores elsewhere.
  Handle seen(cudnnPointwiseMode_t mode, Handle left, Handle right, Handle scores) {
    const Handle holds = full(CUDNN_DATA_BOOLEAN), to = full(CUDNN_DATA_FLOAT);
    graph_.map(mode, CUDNN_DATA_BOOLEAN, left, right, holds);
    graph_.select(holds, scores, number(Id::kHiddenScore, CUDNN_DATA_FLOAT), to);
    return to;
  }

  // Hides keys behind the diagonal, which ends at the last key if the band is bottom right.
  Handle seen_before_the_end(Handle scores) {
    Handle row = indices(2, scores);
    const Handle column = indices(3, scores);
    if (p_.is_bottom_right) {
      row = shifted(CUDNN_POINTWISE_ADD, CUDNN_DATA_INT32, row, Id::kKeys);
      row = shifted(CUDNN_POINTWISE_SUB, CUDNN_DATA_INT32, row, Id::kQueries);
    }
    if (p_.has_right_shift) {
      row = shifted(CUDNN_POINTWISE_ADD, CUDNN_DATA_INT32, row, Id::kRightShift);
    }
    return seen(CUDNN_POINTWISE_CMP_GE, row, column, scores);
  }
  Handle seen_from_the_beginning(Handle scores) {
    const Handle row = indices(2, scores), column = indices(3, scores);
    const Handle end = shifted(CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, column, Id::kLeftShift);
    return seen(CUDNN_POINTWISE_CMP_GT, end, row, scores);
  }

  Handle lse() {
    return memory(Id::kLse, CUDNN_DATA_FLOAT, {p_.batches, p_.heads, p_.queries, 1},
                  {p_.heads * p_.queries, p_.queries, 1, 1});
  }

  Handle softmax(Handle scores, cudnnDataType_t type) {
    const Handle peak = row(), total = row();
    graph_.reduce(CUDNN_REDUCE_TENSOR_MAX, scores, peak);
    const Handle powers = mapped(CUDNN_POINTWISE_EXP, mapped(CUDNN_POINTWISE_SUB, scores, peak));
    graph_.reduce(CUDNN_REDUCE_TENSOR_ADD, powers, total);
    const Handle logarithm = row();
    graph_.map(CUDNN_POINTWISE_LOG, CUDNN_DATA_FLOAT, total, nullptr, logarithm);
    graph_.map(CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, peak, logarithm, p_.has_lse ? lse() : row());
    const Handle weights = full(type);
    graph_.map(CUDNN_POINTWISE_DIV, CUDNN_DATA_FLOAT, powers, total, weights);
    return weights;
  }

  const DnnAttention& p_;
  DnnGraph graph_;
};

}  // namespace

std::vector<DnnDescriptor> make_dnn_graph(const Cudnn& library, cudnnHandle_t handle,
                                          const DnnAttention& problem) {
  return AttentionGraph(library, problem).finish(handle);
}

}  // namespace bp::cuda
