// Tensor parallelism: layers whose parameters are cut over the ranks of a group, which compute one
// result together from one input.
//
//   bd::DeviceMesh mesh(world, {{"data", 2}, {"tensor", 2}});
//   const bd::ProcessGroup& ranks = mesh.group("tensor");
//   auto up = std::make_shared<bd::ColumnParallelLinear>(width, hidden, ranks);
//   auto down = std::make_shared<bd::RowParallelLinear>(hidden, width, ranks);
//   y = (*down)(bp::gelu((*up)(x)));  // x and y are equal on all ranks, and whole.
//
// A layer draws its first values as its plain counterpart does, and keeps its part of them: if the
// generators of all ranks have one state, the model is that of a single device. The names of the
// parameters are those of the plain layers. With FullyShardedDataParallel over another axis of the
// mesh, each part is sharded further.
//
// Rules for everything here, unless it says otherwise:
//   Threads    As for modules and groups: one thread at a time on each rank.
//   Blocking   Nothing waits for other ranks, except for the copies of whole states.
//   Errors     Throws bp::Error, which names the layer, what was given and what is allowed.
//   Ownership  A layer shares the group.
//   Order      All ranks run the same layers in the same order, forward and backward.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "backplane/runtime/distributed/pieces.hpp"
#include "backplane/runtime/distributed/process_group.hpp"
#include "backplane/runtime/nn.hpp"

namespace bp::distributed {

// ---- Functions with gradients ------------------------------------------------------------------

// Returns x, which is equal on all ranks, for work of which each rank does a part. The gradients of
// all ranks are added up.
Tensor share_with_ranks(const Tensor& x, const ProcessGroup& group);

// Returns the sum of x over all ranks. Its gradient is the gradient of x on each rank.
Tensor sum_over_ranks(const Tensor& x, const ProcessGroup& group);

// Returns the mean of -log(softmax(logits)[targets]), as cross_entropy(). Each rank has the part of
// the classes (n, part) that part_of() gives it, and all targets (n). The targets are classes; the
// loss of another target is undefined.
Tensor parallel_cross_entropy(const Tensor& logits, const Tensor& targets, int64_t class_count,
                              const ProcessGroup& group);

// ---- Layers ------------------------------------------------------------------------------------

// What of an extent lies on a rank: [begin, end). Parts differ by at most 1, and lie in order.
struct Part {
  int64_t begin, end;
  int64_t count() const { return end - begin; }
};
Part part_of(int64_t extent, const ProcessGroup& group);

// A layer that has parts of some parameters.
class ParallelModule : public nn::Module {
 public:
  // Returns the axis along which each parameter of the layer itself is cut, by name.
  const std::map<std::string, int64_t>& cut_axes() const { return cut_axes_; }

 protected:
  // Makes the part of `whole` along `axis` that lies on this rank a parameter.
  Tensor add_part(const std::string& name, const Tensor& whole, int64_t axis,
                  const ProcessGroup& group);

 private:
  std::map<std::string, int64_t> cut_axes_;
};

struct ColumnParallelOptions {
  bool has_bias = true;
  Activation activation = Activation::kNone;
  // Whether x comes from share_with_ranks() already. Layers with one input share it once, so that
  // one sum of its gradient serves all of them.
  bool is_shared = false;
};

// A Linear of which each rank has a part of the outputs. x is whole, and y a part.
class ColumnParallelLinear : public ParallelModule {
 public:
  ColumnParallelLinear(int64_t in_features, int64_t out_features, const ProcessGroup& group,
                       const ColumnParallelOptions& options = {});
  Tensor forward(const Tensor& x) override;

 private:
  ProcessGroup group_;
  ColumnParallelOptions options_;
  Tensor weight_, bias_;
};

// A Linear of which each rank has a part of the inputs. x is a part, and y whole. The bias is whole
// on all ranks.
class RowParallelLinear : public ParallelModule {
 public:
  RowParallelLinear(int64_t in_features, int64_t out_features, const ProcessGroup& group,
                    bool has_bias = true);
  Tensor forward(const Tensor& x) override;

 private:
  ProcessGroup group_;
  Tensor weight_, bias_;
};

// An Embedding of which each rank has a part of the rows. Indices and result are whole. The row of
// an index out of range is zeros.
class VocabularyParallelEmbedding : public ParallelModule {
 public:
  VocabularyParallelEmbedding(int64_t num_embeddings, int64_t width, const ProcessGroup& group,
                              double deviation = 1);
  Tensor forward(const Tensor& indices) override;

 private:
  ProcessGroup group_;
  Part rows_;
  Tensor weight_;
};

// A TransformerBlock of which each rank has some heads, and a part of the hidden width. Both are
// multiples of the number of ranks. Dropout needs one state of the generators of all ranks.
class ParallelTransformerBlock : public nn::Module {
 public:
  ParallelTransformerBlock(int64_t width, int64_t head_count, const ProcessGroup& group,
                           const nn::TransformerBlockOptions& options = {});
  Tensor forward(const Tensor& x) override;

 private:
  std::shared_ptr<nn::LayerNorm> attention_norm_, hidden_norm_;
  std::shared_ptr<nn::Module> attention_;
  std::shared_ptr<ColumnParallelLinear> up_;
  std::shared_ptr<RowParallelLinear> down_;
  std::shared_ptr<nn::Dropout> dropout_;
};

// ---- Whole states ------------------------------------------------------------------------------

// How the parameters of a model are cut over a group, for states that any number of ranks can load.
// It is made before FullyShardedDataParallel takes the model, and copies what it needs.
class ParallelLayout {
 public:
  ParallelLayout(const nn::Module& module, const ProcessGroup& group);

  // Return whole tensors on the device of the group, and parts of them. `state` is the state of the
  // model, or that of an optimizer, where names end in ".N" with the number of a parameter. Every
  // rank calls whole(), and gets the whole state.
  TensorMap whole(const TensorMap& state) const;
  TensorMap part(const TensorMap& whole) const;

  // Returns the pieces with their places in the whole tensors, for checkpoints by shard
  // (checkpoint.hpp). The given pieces have their places in the parts of this rank: they come from
  // pieces_of() or from FullyShardedDataParallel, and have the names of `state` above.
  std::vector<Piece> place(std::vector<Piece> pieces) const;

  // Returns the sum of the squares of all gradients over the group, for scale_grads_to_norm(). A
  // parameter that is not cut counts once. `parameters` are those of the model in their order, or
  // shards of them. Every rank calls it.
  Tensor squared_grad_norm(const std::vector<Tensor>& parameters) const;

 private:
  struct Cut {
    int64_t axis;    // -1: the parameter is whole on all ranks.
    int64_t extent;  // Of the whole parameter along the axis.
  };
  Cut cut_of(const std::string& name) const;
  Tensor join(const Tensor& part, const Cut& cut) const;

  ProcessGroup group_;
  std::map<std::string, Cut> by_name_;
  std::vector<Cut> by_number_;
};

}  // namespace bp::distributed
