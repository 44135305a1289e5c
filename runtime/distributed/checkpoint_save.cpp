// The order makes a save safe against a crash at any moment:
//   1  Each rank writes its file under a new name, synchronises it, and then its folder.
//   2  All ranks tell each other that they have, which is the barrier, and where the pieces lie.
//   3  Rank 0 writes index.json beside the old one, synchronises it, and renames it over the old
//      one. This is the moment at which the new checkpoint counts.
//   4  Rank 0 removes what nothing refers to any more.
#include "runtime/distributed/checkpoint_save.hpp"

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "backplane/runtime/autograd.hpp"
#include "backplane/runtime/error.hpp"
#include "backplane/runtime/progress.hpp"
#include "registry/files/whole_file.hpp"
#include "runtime/distributed/agreement.hpp"
#include "runtime/distributed/checkpoint_index.hpp"
#include "runtime/io/safetensors_header.hpp"

namespace bp::distributed {
namespace {

using Json = nlohmann::json;

// Returns what `call` throws, or "".
std::string problem_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

// Returns the name of a piece in the file of its rank: that of the tensor, if the piece is whole.
std::string name_in_file(const PlannedPiece& piece) {
  return piece.box.extents == piece.shape ? piece.name : piece.name + text_of(piece.box);
}

}  // namespace

CheckpointSave::CheckpointSave(const ProcessGroup& group, SaveSettings settings,
                               const std::vector<Piece>& pieces, const std::string& problem)
    : group_(group),
      settings_(std::move(settings)),
      plan_(make_plan(group, settings_.step, pieces, problem)) {
  std::map<std::pair<std::string, Box>, Tensor> tensors;
  for (const Piece& piece : pieces) {
    if (piece.tensor.numel() > 0)
      tensors.emplace(std::pair(piece.name, box_of(piece)), piece.tensor);
  }
  for (PlannedPiece& piece : plan_.of(group.rank())) {
    const auto found = tensors.find({piece.name, piece.box});
    own_.push_back({std::move(piece), found == tensors.end() ? Tensor() : found->second, {}});
  }
  note(SaveStep::kPlanned);
}

void CheckpointSave::copy_to_host() {
  problem_ = problem_of([&] {
    for (Own& own : own_) {
      own.bytes.resize(own.plan.bytes());
      if (own.tensor) own.tensor.detach().copy_to_host(own.bytes.data(), own.bytes.size());
      own.tensor = {};
    }
  });
}

void CheckpointSave::run() {
  const NoGradGuard no_grad;
  const Written own = write();
  note(SaveStep::kWritten);
  const std::vector<Written> all = exchange(own);
  note(SaveStep::kAgreed);
  std::string problem;
  for (size_t rank = 0; rank < all.size() && problem.empty(); ++rank) {
    if (all[rank].problem.empty()) continue;
    problem = "rank " + std::to_string(rank) + ": " + all[rank].problem;
  }
  if (!problem.empty() && own.file_bytes > 0) {
    std::error_code ignored;  // The next save removes the file as well.
    std::filesystem::remove(checkpoint_folder() + "/" + file_name(group_.rank()), ignored);
  }
  if (problem.empty() && group_.rank() == 0) problem = complete(make_index(all));
  problem = first_problem(group_, problem);
  if (problem.empty()) return;
  throw Error(BP_INVALID_ARGUMENT, "CheckpointFolder: the checkpoint of step " +
                                       std::to_string(settings_.step) + ": " + problem);
}

// Returns what all ranks have written.
std::vector<CheckpointSave::Written> CheckpointSave::exchange(const Written& own) const {
  const Json text = {{"problem", own.problem},
                     {"file_bytes", own.file_bytes},
                     {"begins", own.begins},
                     {"checksums", own.checksums}};
  // A problem may name a path that is no UTF-8.
  const std::string sent = text.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::vector<Written> all;
  for (const std::string& received : gather_texts(group_, sent)) {
    const Json json = Json::parse(received);
    all.push_back({json["problem"].get<std::string>(), json["file_bytes"].get<uint64_t>(),
                   json["begins"].get<std::vector<uint64_t>>(),
                   json["checksums"].get<std::vector<std::vector<uint32_t>>>()});
  }
  return all;
}

// Throws unless rank 0 sees the files of all ranks.
void CheckpointSave::check_files(const CheckpointIndex& index) const {
  for (const StoredFile& file : index.files) {
    const std::string path = checkpoint_folder() + "/" + file.name;
    std::error_code error;
    if (std::filesystem::file_size(path, error) == file.bytes && !error) continue;
    throw Error(BP_INVALID_ARGUMENT, path + ": a rank has written this file, and rank 0 does not " +
                                         "see it; give all ranks the same folder, on a disk that " +
                                         "they share");
  }
}

// Writes the index, and removes what is old. Returns why this fails, or "".
std::string CheckpointSave::complete(const CheckpointIndex& index) const {
  std::string problem = problem_of([&] {
    check_files(index);
    WholeFile file(checkpoint_folder() + "/" + kIndexName);
    file.write(write_index(index));
    const std::string defect = file.commit();
    if (!defect.empty()) throw Error(BP_INVALID_ARGUMENT, "rank 0: " + defect);
  });
  if (!problem.empty()) return problem;
  note(SaveStep::kIndexed);
  problem = remove_old(settings_.folder, settings_.step, index, settings_.keep);
  note(SaveStep::kCleaned);
  return problem;
}

std::string CheckpointSave::checkpoint_folder() const {
  return step_folder(settings_.folder, settings_.step);
}

std::string CheckpointSave::file_name(uint32_t rank) const {
  return "rank_" + std::to_string(rank) + "." + plan_.id + ".safetensors";
}

CheckpointSave::Written CheckpointSave::write() {
  Written written;
  written.problem = problem_.empty() ? problem_of([&] {
    if (group_.rank() == 0 || !own_.empty()) {
      make_folder(checkpoint_folder());
    }
    if (!own_.empty()) {
      write_pieces(checkpoint_folder() + "/" + file_name(group_.rank()), written);
    }
  })
                                     : problem_;
  return written;
}

void CheckpointSave::write_pieces(const std::string& path, Written& written) {
  safetensors::Header header;
  uint64_t end = 0;
  for (const Own& own : own_) {
    const uint64_t begin = end;
    end += own.plan.bytes();
    header.entries.push_back(
        {name_in_file(own.plan), own.plan.dtype, own.plan.box.extents, begin, end});
  }
  const std::string text = safetensors::write_header(header);
  const uint64_t length = text.size(), data = sizeof(length) + length;
  std::optional<ProgressBar> bar;
  if (!settings_.progress.empty()) bar.emplace(own_.size(), settings_.progress);
  WholeFile file(path);
  file.write(&length, sizeof(length));
  file.write(text);
  for (size_t i = 0; i < own_.size(); ++i) {
    Own& own = own_[i];
    if (own.tensor) {
      own.bytes.resize(own.plan.bytes());
      own.tensor.detach().copy_to_host(own.bytes.data(), own.bytes.size());
      own.tensor = {};
    }
    file.write(own.bytes.data(), own.bytes.size());
    written.begins.push_back(data + header.entries[i].begin);
    written.checksums.push_back(checksums_of(own.bytes.data(), own.bytes.size()));
    own.bytes = {};
    if (bar) bar->step();
  }
  const std::string problem = file.commit();
  if (!problem.empty()) throw Error(BP_INVALID_ARGUMENT, problem);
  if (bar) bar->finish();
  written.file_bytes = data + end;
}

CheckpointIndex CheckpointSave::make_index(const std::vector<Written>& all) const {
  CheckpointIndex index{.step = settings_.step, .metadata = settings_.metadata};
  std::vector<size_t> files(all.size()), next(all.size(), 0);
  for (uint32_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].file_bytes == 0) continue;
    files[rank] = index.files.size();
    index.files.push_back({file_name(rank), all[rank].file_bytes});
  }
  for (const PlannedPiece& piece : plan_.pieces) {
    const size_t i = next[piece.writer]++;
    StoredTensor& tensor =
        index.tensors.try_emplace(piece.name, StoredTensor{piece.dtype, piece.shape, {}})
            .first->second;
    tensor.pieces.push_back({files[piece.writer], all[piece.writer].begins[i], piece.box,
                             all[piece.writer].checksums[i]});
  }
  return index;
}

void CheckpointSave::note(SaveStep step) const {
  if (settings_.after_step) settings_.after_step(step);
}

}  // namespace bp::distributed
