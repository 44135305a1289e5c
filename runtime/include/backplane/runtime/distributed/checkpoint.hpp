// Checkpoints of models whose tensors lie on several ranks. Each rank writes its own pieces to a
// file of its own, and no rank needs memory for the whole model. A checkpoint loads with any other
// number of ranks and with any other way to cut the tensors.
//
//   bd::CheckpointFolder folder("run1", group, {.keep = 2});
//   bp::TensorMap state = optimizer.state_dict();
//   std::vector<bd::Piece> pieces;
//   bd::append_pieces(pieces, "model.", fsdp.pieces());
//   bd::append_pieces(pieces, "optimizer.", fsdp.optimizer_pieces(state));
//   if (folder.latest()) {
//     const bd::CheckpointReader reader = folder.open_latest();
//     folder.load(reader, pieces);         // Fills the tensors of the pieces.
//     optimizer.load_state_dict(state);
//   }
//   folder.save(step, pieces, {{"seed", "1"}});
//
// Files:
//
//   run1/lock                              locked by the job that uses the folder
//   run1/step_12/index.json                shape and dtype of each tensor, and where its pieces are
//   run1/step_12/rank_0.ID.safetensors     the pieces that rank 0 has written
//   run1/step_12/rank_1.ID.safetensors
//
// A checkpoint is whole when it has an index.json, which rank 0 writes last, behind a barrier. So a
// crash at any moment leaves the checkpoints as they were. Files and folders are on disk, and
// survive a loss of power, before a checkpoint counts as whole. The index has a CRC-32C (RFC 3720,
// appendix B.4) of each MiB of each piece, and one of itself. Reading verifies all bytes that it
// uses.
//
// Rules for everything here, unless it says otherwise:
//   Threads    One thread at a time uses a CheckpointFolder. A CheckpointReader is safe from any.
//   Blocking   Every rank makes the calls of a CheckpointFolder, and waits for the others, but no
//              longer than the timeout of the group. So ranks may take so much longer than others
//              to write their files. A CheckpointReader waits for nobody.
//              While an asynchronous save is under way, every call but is_saving() and path()
//              waits for it first, and throws its failure.
//   Errors     Throws bp::Error. What fails on one rank is an error of a CheckpointFolder on all
//              ranks, with one sentence.
//   Ownership  A CheckpointFolder has a group of its own, which it makes by split() of the given
//              one. Only short texts pass through it, so its device need not be that of the pieces.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backplane/runtime/distributed/pieces.hpp"
#include "backplane/runtime/distributed/process_group.hpp"

namespace bp::distributed {

struct CheckpointIndex;

struct ReadOptions {
  // Allows tensors in the checkpoint that no piece asks for, as when a program loads the model
  // without the state of the optimizer.
  bool allows_others = false;
  // The label of a progress bar on stderr; "": none.
  std::string progress;
};

// One whole checkpoint.
class CheckpointReader {
 public:
  // Reads and checks the index of the checkpoint in `folder`, such as "run1/step_12". Throws
  // BP_NOT_FOUND if there is none, and BP_INVALID_ARGUMENT if it is damaged.
  explicit CheckpointReader(const std::string& folder);

  const std::string& folder() const { return folder_; }
  int64_t step() const;
  const Metadata& metadata() const;  // What save() was given.

  struct Entry {
    bp_dtype dtype;
    std::vector<int64_t> shape;
  };
  std::map<std::string, Entry> tensors() const;  // By name.

  // Writes the elements of each piece to its tensor. It reads only the parts of files that hold
  // them, in blocks of 1 MiB. Names, shapes and dtypes are compared before anything is written: the
  // error names the first tensor that differs. If a file is missing, shorter than it was, or
  // damaged, the error names the file, and tensors of pieces may have been written.
  void read(const std::vector<Piece>& pieces, const ReadOptions& options = {}) const;

 private:
  std::string folder_;
  std::shared_ptr<const CheckpointIndex> index_;
};

struct CheckpointOptions {
  // How many checkpoints stay: those with the highest steps. 0: all. The disk needs room for one
  // more, since old ones are removed when the new one is whole.
  uint32_t keep = 0;
  // Whether save() returns when the pieces that this rank writes were copied to host memory, which
  // must have room for them. A thread writes the files, and makes calls of the group while the
  // model makes calls of other groups. If the device of the model runs calls of several groups one
  // after the other, ranks that run them in different orders wait for each other. So give a group
  // whose device is one of the host, such as Device("cpu").
  bool is_asynchronous = false;
  // Rank 0 shows a progress bar on stderr for loads, and for saves that are not asynchronous, of at
  // least so many bytes on this rank.
  uint64_t progress_bytes = uint64_t{256} << 20;
};

// A folder with the checkpoints of one job, one for each step that was saved. It lies on a disk
// that all ranks share.
class CheckpointFolder {
 public:
  // Makes the folder if there is none. Throws on all ranks if another job has it: rank 0 locks it,
  // and the lock ends with this object or with the process.
  CheckpointFolder(std::string path, const ProcessGroup& group,
                   const CheckpointOptions& options = {});
  // Waits for a save that is under way. Nobody learns of its failure, so call wait() first.
  ~CheckpointFolder();
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  // Saves the pieces of all ranks, which together are whole tensors. A box that several ranks have
  // is written once; such boxes are spread over the ranks by size. A checkpoint of the same step is
  // replaced. Then checkpoints that are too many are removed, and what crashed saves left. Steps
  // count from 0, and are the same on all ranks. The metadata are those of rank 0.
  //
  // The tensors may change as soon as save() returns.
  void save(int64_t step, const std::vector<Piece>& pieces, const Metadata& metadata = {});

  // Returns whether the thread of an asynchronous save still runs on this rank. Waits for nobody.
  bool is_saving() const;

  // Waits for an asynchronous save, and throws its failure once. Other ranks need not call it.
  void wait();

  // Returns the highest step that has a whole checkpoint, as rank 0 finds it.
  std::optional<int64_t> latest();

  // Opens the checkpoint of latest(). If there is none, the error lists what was not completed.
  CheckpointReader open_latest();

  // Calls reader.read() on each rank. Without options.allows_others, each tensor of the checkpoint
  // must be asked for by a rank.
  void load(const CheckpointReader& reader, const std::vector<Piece>& pieces,
            const ReadOptions& options = {});

  const std::string& path() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace bp::distributed
