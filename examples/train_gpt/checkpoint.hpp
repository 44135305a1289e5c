// Checkpoints of a run: the weights, the state of the optimizer, and what the run is.
#pragma once

#include "backplane/runtime/runtime.hpp"
#include "train_gpt/model.hpp"
#include "train_gpt/options.hpp"
#include "train_gpt/text.hpp"

// Writes options.checkpoint.
void save(const Options& options, const Text& text, const Gpt& model, const bp::AdamW& optimizer,
          int64_t step);

// Loads the checkpoint, and returns the number of steps that were done. Throws if the checkpoint is
// that of another run.
int64_t resume(const Options& options, const Text& text, Gpt& model, bp::AdamW& optimizer);
