// The options on the command line of the programs that train a transformer.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

struct Options {
  std::string program = "04_train_gpt";
  std::string device = "cpu", data = BACKPLANE_GPT_TEXT, checkpoint, log, prompt = "\n";
  bool resume = false, explain = false, capture = false;
  bool ties_weights = false;  // The head has the weight of the token embedding.
  int64_t seed = 1, steps = 2000, stop = 0, layers = 4, width = 256, heads = 4, context = 128;
  int64_t batch = 8, warmup = 100, eval_every = 250, eval_batches = 10, save_every = 500;
  int64_t sample = 500, top_k = 20;
  std::string variant;  // What the model is, if not the plain one, for checkpoints.
  double lr = 1e-3, weight_decay = 0.1, dropout = 0, clip = 0, temperature = 0.8;
};

// What a program has besides.
struct MoreOptions {
  std::string program, help;
  std::vector<std::pair<const char*, std::string*>> texts;  // The names and their targets.
  std::vector<std::pair<const char*, bool*>> flags;
};

// Parses the command line. Ends the program for --help, and with the exit code 2 for a wrong one.
// Throws if the help cannot be written.
Options parse(int argc, char** argv, const MoreOptions& more = {.program = "04_train_gpt"});
