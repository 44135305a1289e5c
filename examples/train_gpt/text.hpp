// The text that 04_train_gpt learns, as tokens, and windows of it.
#pragma once

#include <string>
#include <vector>

#include "backplane/runtime/tensor.hpp"
#include "train_gpt/options.hpp"

// Returns number `index` of a fixed sequence of 64-bit numbers for each seed (SplitMix64).
uint64_t hashed(uint64_t seed, uint64_t index);

struct Text {
  std::string vocabulary;  // The bytes that occur, sorted. A token is a place in it.
  std::vector<int64_t> training, validation;

  std::vector<int64_t> encode(const std::string& text) const;
};

// Reads the text. The first nine tenths of the file are for training.
Text read_text(const Options& options);

struct Windows {
  bp::Tensor inputs, targets;  // (batch, context), and (batch * context) one character later.
};

// Returns the windows that begin at `starts`.
Windows cut(const std::vector<int64_t>& tokens, const std::vector<int64_t>& starts,
            int64_t context);

// Returns the windows that a step of training sees.
Windows training_batch(const Text& text, const Options& options, int64_t step);
