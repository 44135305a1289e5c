// Context parallelism: attention over sequences that are cut over the ranks of a group, for
// sequences whose activations one device cannot hold.
//
//   const bd::ProcessGroup& ranks = mesh.group("context");
//   bp::Tensor x = bd::cut_sequence(tokens, 1, ranks);               // (batch, length / n).
//   bp::Tensor places = bd::cut_sequence(bp::arange(length, BP_I64), 0, ranks);
//   y = bd::ring_attention(q, k, v, scale, bp::Causal::kTopLeft, ranks);
//
// Layout: a sequence is cut into 2 n equal chunks for n ranks, and rank i has the chunks i and
// 2 n - 1 - i, one behind the other. With a causal mask all ranks then have equal work (Brandon et
// al. 2023, "Striped Attention", balance the work in another order; Llama Team 2024, section 3.3.2,
// has this one). For 8 positions and 2 ranks:
//
//   whole   0 1 2 3 4 5 6 7
//   rank 0  0 1 . . . . 6 7
//   rank 1  . . 2 3 4 5 . .
//
// Everything here has this layout, so both kinds of attention can serve one model. What is done
// position by position, such as linear layers and norms, needs no change. The parameters are whole
// on all ranks. With the mean loss of its own positions on each rank, the average of their
// gradients over the group is the gradient of the mean loss of all positions, as
// DistributedDataParallel computes it.
//
// Rules for everything here:
//   Threads    As for groups: one thread at a time on each rank.
//   Blocking   Nothing waits for other ranks on the host.
//   Errors     Throws bp::Error, which names the call, what was given and what is allowed.
//   Ownership  A layer shares the group, and so does a graph until backward() has used it.
//   Order      All ranks make the same calls with the same shapes in the same order, forward and
//              backward.
//   Gradients  Of the first order only.
#pragma once

#include <memory>

#include "backplane/runtime/distributed/process_group.hpp"
#include "backplane/runtime/nn.hpp"

namespace bp::distributed {

// Returns the part of this rank of x, which is equal on all ranks. The extent along `axis`, which
// counts from 0, is a multiple of 2 n. The gradient of x is that of its part, and 0 elsewhere.
Tensor cut_sequence(const Tensor& x, int64_t axis, const ProcessGroup& group);

// Returns the whole sequence on all ranks, of the parts that cut_sequence() makes. The result is
// not recorded, and has no gradient.
Tensor join_sequence(const Tensor& x, int64_t axis, const ProcessGroup& group);

// Return this rank's part of sdpa(q, k, v, scale) over the whole sequence: q is (batch, heads,
// length / n, width), k (batch, key heads, length / n, width) and v (batch, key heads, length / n,
// value width), where heads is a multiple of key heads. kTopLeft and kBottomRight mean the same,
// since there are as many queries as keys. The results are those of one device, but for the order
// of sums.

// Blocks of k and v travel round a ring of the ranks, while each rank computes with the block that
// it has. Partial results are merged by the logarithms of their sums of exponentials in f32, or in
// the dtype of q if that is wider (Liu, Zaharia, Abbeel 2023, "Ring Attention"; Dao et al. 2022 for
// the merge). A rank sends (n - 1) parts of k and v forward, and as much backward with n parts of
// their gradients. Any number of heads is allowed.
Tensor ring_attention(const Tensor& q, const Tensor& k, const Tensor& v, double scale,
                      Causal causal, const ProcessGroup& group);

// Each rank gets all positions of some heads, and computes as one device would (Jacobs et al. 2023,
// "DeepSpeed Ulysses"). A rank sends (n - 1) / n of its q, k, v and y, and as much backward. The
// numbers of heads and of key heads are multiples of n.
Tensor all_to_all_attention(const Tensor& q, const Tensor& k, const Tensor& v, double scale,
                            Causal causal, const ProcessGroup& group);

enum class ContextKind { kRing, kAllToAll };

// A TransformerBlock for the part of a sequence, (batch, length / n, width). Parameters have the
// names, the first values and the shapes of the plain block. Dropout draws numbers on each rank, so
// the generators of the ranks should have different states.
class ContextParallelTransformerBlock : public nn::Module {
 public:
  ContextParallelTransformerBlock(int64_t width, int64_t head_count, const ProcessGroup& group,
                                  ContextKind kind,
                                  const nn::TransformerBlockOptions& options = {});
  Tensor forward(const Tensor& x) override;

 private:
  std::shared_ptr<nn::LayerNorm> attention_norm_, hidden_norm_;
  std::shared_ptr<nn::Module> attention_;
  std::shared_ptr<nn::Linear> up_, down_;
  std::shared_ptr<nn::Dropout> dropout_;
};

}  // namespace bp::distributed
