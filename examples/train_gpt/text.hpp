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

// Windows of the text on the host: (batch, context), and (batch * context) one character later.
struct Tokens {
  std::vector<int64_t> inputs, targets;
};

// The same on the current device.
struct Windows {
  bp::Tensor inputs, targets;
};
Windows to_device(const Tokens& tokens, int64_t context);

// Returns the windows that begin at `starts`.
Tokens cut(const std::vector<int64_t>& tokens, const std::vector<int64_t>& starts, int64_t context);

// Returns the windows that a step of training sees.
Tokens training_batch(const Text& text, const Options& options, int64_t step);
