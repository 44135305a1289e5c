// What a GPT-like model costs: parameters, operations, and memory of a rank.
//
// With L layers, width h, a heads, context s, vocabulary V, micro-batches of b sequences, elements
// of e bytes, and t tensor-parallel ranks:
//
//   Parameters   A layer has 12 h^2 + 13 h. Embeddings have V h + s h, the last norm 2 h, and the
//                head V h: it has weights of its own, as in examples/train_gpt.
//   Operations   A forward of a layer takes b s (24 h^2 + 4 s h), and of the head 2 b s h V; a
//                backward takes twice as many (Narayanan et al. 2021, "Efficient large-scale
//                language model training on GPU clusters using Megatron-LM", appendix).
//   Activations  A layer keeps s b h (16 e + 2) + a s^2 b (2 e + 1) bytes: 34 s b h + 5 a s^2 b
//   with
//                e = 2. Of these, 12 e s b h and the scores are divided by t, and with sequence
//                parallelism all of it. Selective recomputation, which is also what fused attention
//                does, keeps no scores. Full recomputation keeps e s b h, the input. The head keeps
//                s b (2 e h + 4 V / t). (Korthikanti et al. 2022, "Reducing activation
//                recomputation in large transformer models".)
//   States       Elements of 2 bytes: parameters 2, gradients 2, and 12 bytes for the optimizer's
//                f32 parameters and two moments. Of 4 bytes: 4, 4 and 8. Stage 1 divides the state
//                of the optimizer by the number N of data-parallel ranks, stage 2 gradients as
//                well, stage 3 parameters as well (Rajbhandari et al. 2020, "ZeRO").
//
// Times: products take their operations / (flops * efficiency). Everything else is bound by memory:
// it moves each activation that a layer keeps twice, / memory_bandwidth. A time is the sum of both.
// The optimizer reads and writes parameters and its state, and reads gradients.
#pragma once

#include <cstdint>
#include <string>

#include "simulation/network_file.hpp"

namespace bp::simulate {

struct Gpt {
  uint32_t layers = 12, width = 768, heads = 12, context = 1024, vocabulary = 50257;

  double layer_parameters() const;
  double embedding_parameters() const;
  double head_parameters() const;  // With the last norm.
  double parameters() const;
};

enum class Recompute { kNone, kSelective, kFull };

struct Job {
  Gpt model;
  SimulatedDevice device;
  uint32_t batch = 1;          // Sequences in a step, of all ranks.
  uint32_t element_bytes = 2;  // 2 or 4.
};

// How a job is divided over tensor * data * pipe ranks. Rank numbers count tensor ranks first, then
// data ranks, then pipeline ranks.
struct Layout {
  uint32_t tensor = 1, data = 1, pipe = 1;
  uint32_t micro_batch = 1;        // Sequences.
  std::string pipeline = "1f1b";   // See make_pipeline_schedule().
  uint32_t stages_per_rank = 1;    // Of "interleaved".
  int shard_stage = 0;             // 0: DDP. 1 to 3: the stages of FSDP.
  uint32_t prefetch = 1;           // Units that stage 3 gathers ahead.
  double bucket_bytes = 25 << 20;  // Of DDP.
  bool sequence_parallel = false;
  Recompute recompute = Recompute::kSelective;
  bool data_is_free = false;  // Data-parallel calls are left out, to see what they cost.

  uint32_t ranks() const { return tensor * data * pipe; }
};

// Throws bp::Error, which names the number that does not divide another one, is out of range, or
// makes too large a schedule.
void check(const Job& job, const Layout& layout);

// Returns how many micro-batches a data-parallel rank has in a step.
uint32_t micro_batches_of(const Job& job, const Layout& layout);

// One half of a layer on one tensor-parallel rank, for one micro-batch.
struct HalfLayer {
  double operations = 0;   // Of a forward.
  double kept_bytes = 0;   // Activations without scores.
  double score_bytes = 0;  // Scores, if they are kept.
};
HalfLayer attention_of(const Job& job, const Layout& layout);
HalfLayer mlp_of(const Job& job, const Layout& layout);

// Seconds of a forward on the device.
double seconds_of(const HalfLayer& half, const SimulatedDevice& device);
double head_seconds(const Job& job, const Layout& layout);
double embedding_seconds(const Job& job, const Layout& layout);
// What selective recomputation repeats in a backward: the scores.
double score_seconds(const Job& job, const Layout& layout);

// Bytes of a rank.
struct MemoryUse {
  double parameters = 0, gradients = 0, optimizer = 0;  // Between steps.
  double gathered = 0;     // Whole units of sharded parameters and gradients, during a step.
  double activations = 0;  // At most, during a step.
  double total() const { return parameters + gradients + optimizer + gathered + activations; }
};

// Returns the memory of a rank of pipeline rank `pipe`; `alive` is how many micro-batches it holds
// activations of at most, summed over its stages (largest_alive_counts()).
MemoryUse memory_of(const Job& job, const Layout& layout, uint32_t pipe, uint32_t alive);

// Returns the memory of the pipeline rank that needs most.
MemoryUse largest_memory(const Job& job, const Layout& layout);

// Parameters of a rank, before data-parallel sharding.
double parameters_of_rank(const Job& job, const Layout& layout, uint32_t pipe);

// Returns the seconds in which the optimizer of a rank steps.
double optimizer_seconds(const Job& job, const Layout& layout, uint32_t pipe);

}  // namespace bp::simulate
