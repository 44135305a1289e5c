// Checkpoints of a run: the weights, the state of the optimizer, and what the run is.
#pragma once

#include "backplane/runtime/runtime.hpp"
#include "train_gpt/model.hpp"
#include "train_gpt/options.hpp"
#include "train_gpt/text.hpp"

// What a checkpoint holds of a model and its optimizer: whole tensors, however many ranks train it.
struct Checkpoint {
  bp::TensorMap weights, state;
  int64_t step = 0;  // The number of steps that were done.
};

// Returns what a run that continues must have in common with the interrupted run.
bp::Metadata description(const Options& options, const Text& text);

// Throws if the metadata of the checkpoint `path` are those of another run.
void check_run(const std::string& path, const bp::Metadata& metadata, const Options& options,
               const Text& text);

// Writes options.checkpoint.
void save(const Options& options, const Text& text, const Checkpoint& checkpoint);

// Reads options.checkpoint. Throws if it is that of another run.
Checkpoint load(const Options& options, const Text& text);

// Do the same for a model and an optimizer on one device. resume() returns the number of steps that
// were done.
void save(const Options& options, const Text& text, const Gpt& model, const bp::AdamW& optimizer,
          int64_t step);
int64_t resume(const Options& options, const Text& text, Gpt& model, bp::AdamW& optimizer);
