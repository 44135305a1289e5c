// Where a run on several ranks keeps its checkpoints: in one file, which rank 0 writes, or in a
// folder, to which each rank writes its own part.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "backplane/runtime/distributed/launch.hpp"
#include "backplane/runtime/runtime.hpp"
#include "train_gpt/options.hpp"
#include "train_gpt/strategy.hpp"
#include "train_gpt/text.hpp"

// Returns whether checkpoints at this path are folders: it ends in "/", or there is such a folder.
bool is_folder(const std::string& path);

struct SaveChoice {
  std::string keep;  // Checkpoints in a folder; "" stands for 2.
  bool is_asynchronous = false;
};

class Saves {
 public:
  // For saves that are asynchronous, the device of the group is one of the host.
  Saves(const SaveChoice& choice, const Options& options, const Text& text,
        const bp::distributed::ProcessGroup& group);

  // Loads the latest checkpoint if options.resume says so, or if the launcher has started the job
  // again and there is one. Returns the number of steps that were done. Every rank calls it, with
  // the optimizer of the strategy, which may be null.
  int64_t resume(const bp::distributed::Launch& launch, Strategy& strategy, bp::AdamW* optimizer);

  // Saves if there is a place for it. Every rank calls it.
  void save(Strategy& strategy, const bp::AdamW* optimizer, int64_t step);

  // Waits until the last checkpoint is whole.
  void finish();

 private:
  bool has_checkpoint();
  int64_t load_folder(Strategy& strategy, bp::AdamW* optimizer);

  const Options& options_;
  const Text& text_;
  const uint32_t rank_;
  std::optional<bp::distributed::CheckpointFolder> folder_;
};
