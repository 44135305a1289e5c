// Pipeline parallelism: each rank has some stages of a model, and micro-batches of one batch run
// through the stages one behind the other.
//
//   bd::PipelineParallel pipeline(
//       {first_half_or_second_half}, loss, group,
//       {.schedule = bd::make_1f1b_schedule(group.size(), 8), .activation_shape = {length,
//       width}});
//   bp::AdamW optimizer(first_half_or_second_half->parameters());
//   const bp::Tensor mean_loss = pipeline.forward_backward(x, targets);
//   optimizer.step();
//
// A stage is a module that maps one tensor to one tensor. The first one takes the input of the
// model, and each other one what the stage before gives. The schedule (pipeline_schedule.hpp) says
// which rank has which stages, and what it does in which order. Gradients are those of the mean
// loss of the batch: they are added up over the micro-batches, each of which counts as much.
//
// Activations travel on the stream of the group, and gradients on that of a second group of the
// same ranks, beside the computing of both ranks. Transfers of one kind between two actions of a
// rank are submitted together. All ranks submit transfers in one order, which follows from the
// schedule, so no schedule can deadlock.
//
// Backwards of schedules with halves (kBackwardInput, kBackwardWeight) run each op of a stage for
// the gradients of its input first, and for those of its weights later. An op that computes both in
// one kernel, such as a norm, runs twice. Activations live until the second half.
//
// Rules for everything here, unless it says otherwise:
//   Threads    One thread at a time uses a pipeline and its stages.
//   Blocking   The constructor waits for the other ranks. So do forward_backward() and forward()
//              when they begin, until all ranks have called them. PipelineLayout waits too.
//   Errors     Throws bp::Error. If ranks disagree, all of them throw the same sentence. What fails
//              on one rank in the middle of a step aborts the group, so that the steps of the
//              others end with a failure that names this rank. The group cannot be used then.
//   Ownership  It shares the stages and the group, and has a group of its own for gradients.
//   Order      All ranks make the same calls in the same order.
//   Bits       With one schedule the result is the same in every run. Gradients of micro-batches
//              are added in the order of the schedule, and those of one process that runs the same
//              micro-batches in this order equal them in every bit.
//   Weights    A parameter belongs to one rank. Two stages of one rank may share it. Of a weight
//              that stages of several ranks share ("tied"), such as that of an embedding and of the
//              head, each of these ranks has a copy: see PipelineOptions::shared_weights.
//   Random     Each rank draws from the generator of its own device, so the dropout of a model
//              differs from that of the same model on one device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backplane/runtime/distributed/pieces.hpp"
#include "backplane/runtime/distributed/pipeline_schedule.hpp"
#include "backplane/runtime/distributed/process_group.hpp"
#include "backplane/runtime/nn.hpp"

namespace bp::distributed {

struct PipelineOptions {
  PipelineSchedule schedule;  // All ranks give the same one. It has as many ranks as the group.
  // What travels between stages has the shape (rows, activation_shape...), with the rows of a
  // micro-batch. The result of each stage but the last is checked for it.
  std::vector<int64_t> activation_shape;
  bp_dtype activation_dtype = BP_F32;  // A float, which has gradients.
  // Parameters of stages of this rank of which other ranks have copies, by names that these ranks
  // give alike. All copies start equal. forward_backward() gives each of them the sum of the
  // gradients of all, so that equal optimizers keep them equal. Other ranks do not name them.
  std::vector<std::pair<std::string, Tensor>> shared_weights = {};
};

class PipelineParallel {
 public:
  // Maps the result of the last stage for a micro-batch, and its targets, to the mean loss of the
  // micro-batch: a float tensor of one element.
  using Loss = std::function<Tensor(const Tensor& output, const Tensor& targets)>;

  // `stages` are the stages of this rank, in the order of the model. Every rank of the group calls
  // it. Throws on all ranks if the schedule has a problem, if a rank gives another number of stages
  // than the schedule has for it, if ranks give different options, or if copies of a shared weight
  // differ.
  PipelineParallel(std::vector<std::shared_ptr<nn::Module>> stages, Loss loss,
                   const ProcessGroup& group, PipelineOptions options);
  ~PipelineParallel();
  PipelineParallel(const PipelineParallel&) = delete;
  PipelineParallel& operator=(const PipelineParallel&) = delete;

  // Runs all micro-batches forward and backward, adds the gradients to grad() of the parameters of
  // this rank, and returns the mean loss of the batch on every rank, as f32 without axes. `x` and
  // `targets` are cut along axis 0 into equal micro-batches, so both extents are positive
  // multiples of their number. The rank of the first stage reads x, and the rank of the last one
  // targets. The other ranks use the extents alone.
  Tensor forward_backward(const Tensor& x, const Tensor& targets);

  // Does the same without gradients, as for a validation.
  Tensor forward(const Tensor& x, const Tensor& targets);

  const ProcessGroup& group() const;
  const PipelineSchedule& schedule() const;

  // Returns whether `parameter` is a shared weight of which a rank before this one has a copy, so
  // that a sum over all ranks, such as that of a norm, should leave it out here.
  bool is_copy(const Tensor& parameter) const;

 private:
  class Step;
  struct State;
  Tensor run(const Tensor& x, const Tensor& targets, bool has_backward);

  std::unique_ptr<State> state_;
};

// Makes whole states of the states of ranks that have different parameters of one model, and parts
// of whole states, so that any number of ranks can load them.
class PipelineLayout {
 public:
  // `names` are those of the parameters of the whole model, in the order of its parameters(), and
  // the same on all ranks. The parameters of `module` are some of them, under the same names. Each
  // name is that of a parameter of exactly one rank; otherwise all ranks throw. With `may_share`,
  // several ranks may have it, with the same values, such as shared weights, or the layers beside
  // experts (expert_parallel.hpp). Every rank calls it. The constructor copies what it needs.
  PipelineLayout(const nn::Module& module, std::vector<std::string> names,
                 const ProcessGroup& group, bool may_share = false);

  // Takes the state of the module of this rank or of an optimizer of its parameters, and returns
  // the state of the whole model on `root`, on the device of the group, and an empty map elsewhere.
  // In the state of an optimizer, names that end in ".N" are those of parameter N, and a tensor
  // with one axis and an element for each parameter is joined too. Other tensors are those of
  // `root`. Every rank calls it.
  TensorMap whole(const TensorMap& state, uint32_t root = 0) const;

  // Returns what this rank has of a whole state.
  TensorMap part(const TensorMap& whole) const;

  // Gives pieces of states of this rank the names and places that they have in the whole states.
  // It waits for nobody.
  std::vector<Piece> place(const std::vector<Piece>& pieces) const;

 private:
  TensorMap renamed(const TensorMap& state) const;
  Tensor own_elements(const Tensor& all) const;
  void take(const TensorMap& received, uint32_t rank, uint32_t root, TensorMap& whole) const;

  ProcessGroup group_;
  std::vector<std::string> names_;            // Of the whole model.
  std::vector<std::vector<size_t>> numbers_;  // Of the parameters of each rank, in the whole model.
};

}  // namespace bp::distributed
