// One save of a checkpoint: the plan, the files of the ranks, the index, and what is removed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backplane/runtime/distributed/checkpoint.hpp"
#include "runtime/distributed/checkpoint_plan.hpp"

namespace bp::distributed {

// The steps of a save, in their order. Rank 0 alone takes kIndexed and kCleaned.
enum class SaveStep { kPlanned, kWritten, kAgreed, kIndexed, kCleaned };

struct CheckpointIndex;

struct SaveSettings {
  std::string folder;  // That of the job.
  int64_t step = 0;
  uint32_t keep = 0;
  Metadata metadata;
  std::string progress;                      // The label of a progress bar; "": none.
  std::function<void(SaveStep)> after_step;  // Called behind each step. May be empty.
};

class CheckpointSave {
 public:
  // Makes the plan with the other ranks. `problem` is one that this rank already has, or "".
  CheckpointSave(const ProcessGroup& group, SaveSettings settings, const std::vector<Piece>& pieces,
                 const std::string& problem = "");

  // Copies what this rank writes to host memory, so that the tensors may change. A failure is that
  // of run().
  void copy_to_host();

  // Does the rest. Throws on all ranks, with one sentence, if a rank fails. Another thread may call
  // it, if no other one uses the group meanwhile.
  void run();

 private:
  struct Own {
    PlannedPiece plan;
    Tensor tensor;  // Empty once `bytes` has the elements.
    std::vector<char> bytes;
  };
  struct Written {
    std::string problem;
    uint64_t file_bytes = 0;
    std::vector<uint64_t> begins;
    std::vector<std::vector<uint32_t>> checksums;
  };

  std::string checkpoint_folder() const;
  std::string file_name(uint32_t rank) const;
  Written write();
  void write_pieces(const std::string& path, Written& written);
  std::vector<Written> exchange(const Written& own) const;
  void check_files(const CheckpointIndex& index) const;
  std::string complete(const CheckpointIndex& index) const;
  CheckpointIndex make_index(const std::vector<Written>& all) const;
  void note(SaveStep step) const;

  const ProcessGroup group_;
  const SaveSettings settings_;
  std::string problem_;
  Plan plan_;
  std::vector<Own> own_;
};

// Makes the folder, and those above it, if there is none. Its name is then on disk. Throws Error.
void make_folder(const std::string& path);
void sync_folder(const std::string& path);

// The name of a checkpoint in the folder of a job.
std::string step_folder(const std::string& folder, int64_t step);  // "FOLDER/step_12".

// Returns the steps of the checkpoints in the folder, in rising order: those that are whole, or
// those that are not.
std::vector<int64_t> steps_in(const std::string& folder, bool is_whole);

// Removes checkpoints that are not whole, files of an earlier checkpoint of `step`, and checkpoints
// that are too many. Files that no save has written stay. Returns why something cannot be removed,
// or "".
std::string remove_old(const std::string& folder, int64_t step, const CheckpointIndex& index,
                       uint32_t keep);

}  // namespace bp::distributed
