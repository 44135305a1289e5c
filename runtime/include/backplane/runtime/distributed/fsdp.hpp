// Fully sharded data-parallel training: every rank has its own part of the batch, and only a part
// of the parameters, of the gradients, and of the state of the optimizer.
//
//   bd::FullyShardedDataParallel fsdp(model, model->blocks(), group);
//   bp::AdamW optimizer(fsdp.parameters());   // The parts of this rank.
//   loss_of(fsdp(x), y).backward();
//   optimizer.step();
//
// The model is cut into units: each layer that is given is one, with all its parameters, and the
// rest of the model is the root unit. The parameters of a unit are whole only while it computes:
// they are gathered from all ranks before its forward() and before its backward(), and given back
// behind each. Its gradients are averaged over the ranks, each rank keeping its part. Both run
// beside the computing of other units. The root unit stays whole from its forward() to the end of
// backward().
//
// Rules for everything here, unless it says otherwise:
//   Threads    One thread at a time uses a FullyShardedDataParallel and its model.
//   Blocking   The constructor, the first forward() and what copies whole states wait for the other
//              ranks. So do forward() and backward() with a shard_device. Nothing else does.
//   Errors     Throws bp::Error. Wrong arguments of one rank are an error on all ranks, which names
//              the rank. What fails in backward() fails there, and so does the group.
//   Ownership  It shares the model and the groups. While it lives and afterwards the parameters of
//              the model have no memory of their own; state() has their values. Graphs that the
//              model recorded must not run afterwards.
//   Order      All ranks run the same units in the same order, in every step. A forward() that
//              differs from the first one throws. backward() runs the units in reverse.
//   Bits       With f32 throughout and one group, gradients and parameters equal those of
//              DistributedDataParallel in every bit at every stage, if the backend's reductions add
//              ranks in their order.
//   Optimizer  It sees a flat tensor for each parameter, with the elements that lie on this rank,
//              which may be none. Sgd, AdamW and others that treat each element alone are exact.
//              Those that look at a whole parameter (its norm, rows, columns or rank, as LAMB,
//              Adafactor, Shampoo and Muon do) are not.
//   Gradients  They appear in grad() of the shards when backward() ends. A parameter that gets no
//              gradient counts as zeros. A backward() that throws adds nothing, and drops the sums
//              of no_sync(). Gradients of gradients (create_graph) are not supported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backplane/runtime/distributed/pieces.hpp"
#include "backplane/runtime/distributed/process_group.hpp"
#include "backplane/runtime/nn.hpp"

namespace bp::distributed {

struct FsdpOptions {
  // What is sharded (the stages of ZeRO): 1: the state of the optimizer. 2: gradients as well.
  // 3: parameters as well. Below 3 parameters are gathered once after each change of the shards.
  int stage = 3;
  // At stage 3, gives the parameters of a unit back behind its forward(). Without it a unit is
  // gathered once in a step, and the model is whole between forward() and backward().
  bool reshards_after_forward = true;
  // How many units are gathered ahead, in the order of the first step. 0: none.
  uint32_t forward_prefetch = 1;
  uint32_t backward_prefetch = 1;
  // Mixed precision. 0 stands for the dtype of the parameters, which is that of the shards always.
  // Parameters travel in `gather_dtype` (0: compute_dtype), and the model computes in
  // `compute_dtype`: floats that go into a unit are cast to it, and the result of the whole model
  // is cast back. Gradients are added up, on this rank and over ranks, in `reduce_dtype`.
  bp_dtype compute_dtype = 0;
  bp_dtype gather_dtype = 0;
  bp_dtype reduce_dtype = 0;
  // Where shards, their gradients and so the state of the optimizer lie, such as Device("cpu"). The
  // optimizer runs there. The copies to and from the device of the group block. Not given: on the
  // device of the group.
  std::optional<Device> shard_device;
  // Hybrid sharding: the ranks that hold the same part, one of each sharding group. Gradients are
  // averaged over them as well. Both groups are made by split() of one group.
  std::optional<ProcessGroup> replicas;
};

class Sharder;

class FullyShardedDataParallel {
 public:
  // Checks that all ranks have the same parameters, units and options, copies the values of rank 0
  // to the other ranks, and shards them over `group`. Every parameter belongs to the innermost unit
  // that has it. One that several units share belongs to the root. All parameters have one dtype.
  FullyShardedDataParallel(std::shared_ptr<nn::Module> module,
                           const std::vector<std::shared_ptr<nn::Module>>& units,
                           const ProcessGroup& group, const FsdpOptions& options = {});
  ~FullyShardedDataParallel();
  FullyShardedDataParallel(const FullyShardedDataParallel&) = delete;
  FullyShardedDataParallel& operator=(const FullyShardedDataParallel&) = delete;

  // Runs the model. Calling the module itself is the same.
  Tensor forward(const Tensor& x);
  Tensor operator()(const Tensor& x) { return forward(x); }

  // Returns the shards for an optimizer, in the order of module().parameters(). A shard is flat.
  std::vector<Tensor> parameters() const;

  // Removes the gradients of the shards, and the sums of no_sync().
  void zero_grad();

  // While the object lives, backward() adds up gradients on this rank alone, whole at every stage.
  // The first backward() after that averages the sums.
  class NoSync {
   public:
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    friend class FullyShardedDataParallel;
    explicit NoSync(FullyShardedDataParallel& fsdp);
    FullyShardedDataParallel& fsdp_;
    const bool before_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

  // Averages the sums of no_sync() at once, for steps whose last backward() is not known, such as
  // those of a pipeline (pipeline.hpp). Every rank calls it, behind a forward() and outside of
  // backward(). A rank without sums counts as zeros.
  void average_gradients();

  // Scales all gradients by one factor, so that their norm over all ranks is at most `most`.
  // Returns the norm before, as clip_grad_norm_on_device() does. Every rank calls it.
  Tensor clip_grad_norm(double most) const;

  // state() returns the whole parameters by name, as module().state_dict() of a model that is not
  // sharded, on `where`. Every rank calls it. Ranks other than `root` get an empty map. A rank has
  // one whole unit at a time on the device of the group. load_state() takes this map, which every
  // rank gives. Any number of ranks may have saved it.
  TensorMap state(Device where, uint32_t root = 0) const;
  void load_state(const TensorMap& state);

  // Do the same for the state of an optimizer of parameters(), as its state_dict() returns it:
  // names that end in ".N", with the number of a parameter, are those of the elements of this
  // parameter. Other tensors, such as counts of steps, stay as they are. The whole state fits an
  // optimizer of the model that is not sharded.
  TensorMap whole_optimizer_state(const TensorMap& sharded, Device where, uint32_t root = 0) const;
  TensorMap sharded_optimizer_state(const TensorMap& whole) const;

  // Return what this rank has, for checkpoints by shard (checkpoint.hpp): the parameters under the
  // names of state(), and the state of an optimizer of parameters(), as its state_dict() returns
  // it. The pieces are views, and the model follows if they are written between steps. Both are
  // calls of this rank alone.
  std::vector<Piece> pieces() const;
  std::vector<Piece> optimizer_pieces(const TensorMap& sharded) const;

  nn::Module& module() const { return *module_; }
  const ProcessGroup& group() const;

  // Returns the names of the parameters of each unit. The root unit is the first one; the others
  // stand in the order in which they were given.
  std::vector<std::vector<std::string>> unit_names() const;

 private:
  struct Layout;

  std::map<size_t, Tensor> gather(const std::map<size_t, Tensor>& pieces, Device where,
                                  uint32_t root) const;
  std::vector<Piece> pieces_of_parameter(const std::string& name, size_t number,
                                         const Tensor& shard) const;

  std::shared_ptr<nn::Module> module_;
  std::unique_ptr<Layout> layout_;
  std::unique_ptr<Sharder> sharder_;
};

}  // namespace bp::distributed
