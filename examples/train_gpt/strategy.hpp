// How the ranks of a job share the training of one model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backplane/runtime/runtime.hpp"
#include "train_gpt/checkpoint.hpp"
#include "train_gpt/text.hpp"

struct StrategyChoice {
  std::string name = "ddp";
  std::string shard_stage;      // For fsdp and 2d, where "" stands for 3, and for 3d: none.
  std::string tensor_ranks;     // For 2d and 3d; "" stands for 2.
  std::string pipeline_ranks;   // For 3d; "" stands for 2.
  std::string schedule;         // For pp and 3d; "" stands for 1f1b.
  std::string micro_batches;    // For pp and 3d; "" stands for the number of ranks in a pipeline.
  std::string context_kind;     // For cp; "" stands for ring.
  std::string experts;          // For ep; "" stands for 8.
  std::string top_k_experts;    // For ep; "" stands for 2.
  std::string expert_exchange;  // For ep; "" stands for padded.
  std::string servers;          // For ps; "" stands for 1.
  std::string staleness;        // For ps; "" stands for 0.
};

// Returns the number in `text`, which is at least `least`, or `otherwise` for "". Throws for other
// texts.
uint32_t number_of(const char* option, const std::string& text, uint32_t otherwise,
                   uint32_t least = 1);

// Return what ep has: all experts of a block, and how many of them each token chooses.
uint32_t experts_of(const StrategyChoice& choice);
uint32_t top_k_experts_of(const StrategyChoice& choice);

// Returns what the model of the strategy is, where it is not the plain one, else "".
std::string variant_of(const StrategyChoice& choice);

class Strategy {
 public:
  virtual ~Strategy() = default;

  virtual bp::nn::Module& model() = 0;
  // Returns the tensors of this rank that get gradients.
  virtual std::vector<bp::Tensor> parameters() = 0;
  // Returns the optimizer of this rank, or null if other ranks change its parameters.
  virtual std::shared_ptr<bp::AdamW> make_optimizer(const bp::AdamWOptions& options);
  // Returns whether this rank takes steps. Otherwise meet() is all that it does between two saves.
  virtual bool computes() const { return true; }
  // Runs before the first step, when `done` steps were taken earlier.
  virtual void begin(const bp::CosineSchedule& schedule, int64_t done);
  virtual bp::Tensor loss(const Windows& windows) = 0;
  // Adds the gradients of the loss of all ranks, and returns the loss of this rank's windows.
  virtual bp::Tensor loss_and_gradients(const Windows& windows);
  virtual void clip(double most) = 0;
  // Changes the parameters by their gradients. `optimizer` is that of make_optimizer().
  virtual void update(bp::AdamW* optimizer, double lr);
  // Returns whether all ranks take each step together. Otherwise the log has the losses of rank 0.
  virtual bool steps_together() const { return true; }
  // Runs before all ranks save together, and behind the last step.
  virtual void meet() {}

  // Returns whether loss() needs all ranks, also for a validation.
  virtual bool runs_together() const = 0;

  // Batches are cut over these ranks. Others see the same windows.
  virtual uint32_t data_rank() const = 0;
  virtual uint32_t data_size() const = 0;

  // Returns the whole states on rank 0. All ranks call it.
  virtual Checkpoint checkpoint(const bp::AdamW& optimizer, int64_t step) = 0;
  // Takes the whole states, which each rank has read.
  virtual void load(const Checkpoint& checkpoint, bp::AdamW& optimizer) = 0;

  // Returns what this rank has of the model and of the state of the optimizer, for checkpoints by
  // shard. The names are those in files of checkpoint.hpp.
  virtual std::vector<bp::distributed::Piece> pieces(const bp::TensorMap& optimizer_state) = 0;
};

// Puts both into one list, under the names that they have in files.
std::vector<bp::distributed::Piece> with_prefixes(std::vector<bp::distributed::Piece> weights,
                                                  std::vector<bp::distributed::Piece> state);

// Makes the model and what exchanges its parts. Throws for a choice that there is not.
std::unique_ptr<Strategy> make_strategy(const StrategyChoice& choice, int64_t vocabulary,
                                        const Options& options,
                                        const bp::distributed::ProcessGroup& group);
