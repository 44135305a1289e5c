#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "backplane/runtime/autograd.hpp"
#include "backplane/runtime/distributed/checkpoint.hpp"
#include "backplane/runtime/error.hpp"
#include "backplane/runtime/progress.hpp"
#include "registry/files/read_file.hpp"
#include "runtime/distributed/checkpoint_index.hpp"
#include "runtime/distributed/checkpoint_plan.hpp"
#include "runtime/distributed/checksum.hpp"
#include "runtime/distributed/socket.hpp"

namespace bp::distributed {
namespace {

constexpr uint64_t kMostIndexBytes = uint64_t{1} << 30;

[[noreturn]] void fail(const std::string& what) { throw Error(BP_INVALID_ARGUMENT, what); }

std::shared_ptr<const CheckpointIndex> open_index(const std::string& folder) {
  const std::string path = folder + "/" + kIndexName;
  if (::access(path.c_str(), F_OK) != 0) {
    throw Error(BP_NOT_FOUND, folder + ": it has no " + kIndexName +
                                  ", so it is not a checkpoint, or one that was not completed");
  }
  std::string text;
  const std::string defect = read_file(path, kMostIndexBytes, text);
  if (!defect.empty()) fail(path + ": " + defect);
  return std::make_shared<const CheckpointIndex>(read_index(path, text));
}

// The files of a checkpoint, each opened when it is first read.
class Files {
 public:
  Files(const std::string& folder, const CheckpointIndex& index)
      : folder_(folder), index_(index), handles_(index.files.size()) {}

  std::string path(size_t file) const { return folder_ + "/" + index_.files[file].name; }

  void read(size_t file, uint64_t begin, char* target, uint64_t size) {
    if (!handles_[file]) open(file);
    while (size > 0) {
      const ssize_t got = ::pread(handles_[file].get(), target, size, static_cast<off_t>(begin));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail(path(file) + ": cannot be read: " + std::strerror(errno));
      if (got == 0) fail(path(file) + ": the file became shorter while it was read");
      target += got;
      begin += static_cast<uint64_t>(got);
      size -= static_cast<uint64_t>(got);
    }
  }

 private:
  void open(size_t file) {
    const std::string defect = regular_file_defect(path(file));
    if (!defect.empty()) {
      fail(path(file) + ": " + defect + "; the index of the checkpoint names this file");
    }
    handles_[file] = Socket(::open(path(file).c_str(), O_RDONLY | O_CLOEXEC));
    struct stat found {};
    if (!handles_[file] || ::fstat(handles_[file].get(), &found) != 0) {
      fail(path(file) + ": cannot be read: " + std::strerror(errno));
    }
    const uint64_t bytes = index_.files[file].bytes;
    if (static_cast<uint64_t>(found.st_size) == bytes) return;
    fail(path(file) + ": the file has " + std::to_string(found.st_size) + " bytes, and had " +
         std::to_string(bytes) + " when the checkpoint was written");
  }

  const std::string folder_;
  const CheckpointIndex& index_;
  std::vector<Socket> handles_;
};

// Reads runs of one stored piece, whose places rise. It keeps the block that it has read last.
class Blocks {
 public:
  Blocks(Files& files, const CheckpointIndex& index, const std::string& name,
         const StoredTensor& tensor, const StoredPiece& piece)
      : files_(files),
        name_(name),
        piece_(piece),
        block_bytes_(index.block_bytes),
        bytes_(bytes_of(piece.box.count(), tensor.dtype)) {}

  void read(uint64_t begin, char* target, uint64_t size) {
    while (size > 0) {
      const uint64_t block = begin / block_bytes_, start = block * block_bytes_;
      if (block != block_) load(block);
      const uint64_t part = std::min(size, start + buffer_.size() - begin);
      std::memcpy(target, buffer_.data() + (begin - start), part);
      begin += part;
      target += part;
      size -= part;
    }
  }

 private:
  void load(uint64_t block) {
    const uint64_t start = block * block_bytes_;
    buffer_.resize(std::min(block_bytes_, bytes_ - start));
    files_.read(piece_.file, piece_.begin + start, buffer_.data(), buffer_.size());
    if (crc32c(buffer_.data(), buffer_.size()) != piece_.checksums[block]) {
      fail(files_.path(piece_.file) + ": bytes " + std::to_string(piece_.begin + start) + " to " +
           std::to_string(piece_.begin + start + buffer_.size()) + ", a part of '" + name_ +
           "', do not have their checksum: the file is damaged");
    }
    block_ = block;
  }

  Files& files_;
  const std::string& name_;
  const StoredPiece& piece_;
  const uint64_t block_bytes_, bytes_;
  uint64_t block_ = UINT64_MAX;
  std::vector<char> buffer_;
};

void read_piece(Files& files, const CheckpointIndex& index, const Piece& piece,
                std::vector<char>& bytes) {
  const auto& [name, tensor] = *index.tensors.find(piece.name);
  const uint64_t element = bytes_of(1, tensor.dtype);
  const Box target = box_of(piece);
  bytes.resize(bytes_of(target.count(), tensor.dtype));
  for (const StoredPiece& stored : tensor.pieces) {
    const auto part = overlap_of(stored.box, target);
    if (!part) continue;
    Blocks blocks(files, index, name, tensor, stored);
    for_each_run(stored.box, target, *part, [&](int64_t from, int64_t to, int64_t count) {
      blocks.read(static_cast<uint64_t>(from) * element,
                  bytes.data() + static_cast<uint64_t>(to) * element,
                  static_cast<uint64_t>(count) * element);
    });
  }
  piece.tensor.detach().copy_from_host(bytes.data(), bytes.size());
}

// Throws unless the checkpoint has the tensor of the piece.
void compare(const std::string& folder, const CheckpointIndex& index, const Piece& piece) {
  const auto found = index.tensors.find(piece.name);
  if (found == index.tensors.end()) {
    fail(folder + ": the checkpoint has no '" + piece.name + "'; is it that of another model?");
  }
  const StoredTensor& tensor = found->second;
  if (tensor.shape != piece.shape || tensor.dtype != piece.tensor.dtype()) {
    fail(folder + ": '" + piece.name + "' is " + dtype_text(tensor.dtype) + " " +
         to_string(tensor.shape) + " in the checkpoint, and " + dtype_text(piece.tensor.dtype()) +
         " " + to_string(piece.shape) + " here; is it that of another model?");
  }
  if (piece.tensor.numel() > 0 && !is_within(box_of(piece), piece.shape)) {
    fail("the piece " + to_string(piece.offsets) + " of the extents " +
         to_string(piece.tensor.shape()) + " is not within '" + piece.name + "', which is " +
         to_string(piece.shape));
  }
}

}  // namespace

std::string unasked_text(const std::string& folder, const std::string& name) {
  return folder + ": the checkpoint has '" + name +
         "', which is not asked for; is it that of another model?";
}

CheckpointReader::CheckpointReader(const std::string& folder)
    : folder_(folder), index_(open_index(folder)) {}

int64_t CheckpointReader::step() const { return index_->step; }

const Metadata& CheckpointReader::metadata() const { return index_->metadata; }

std::map<std::string, CheckpointReader::Entry> CheckpointReader::tensors() const {
  std::map<std::string, Entry> entries;
  for (const auto& [name, tensor] : index_->tensors) entries[name] = {tensor.dtype, tensor.shape};
  return entries;
}

void CheckpointReader::read(const std::vector<Piece>& pieces, const ReadOptions& options) const {
  const NoGradGuard no_grad;
  std::vector<const Piece*> order;
  for (const Piece& piece : pieces) {
    if (!piece.tensor) fail("'" + piece.name + "' is an empty tensor");
    order.push_back(&piece);
  }
  std::ranges::stable_sort(order, {}, &Piece::name);
  std::set<std::string> names;
  for (const Piece* piece : order) {
    compare(folder_, *index_, *piece);
    names.insert(piece->name);
  }
  for (const auto& [name, tensor] : index_->tensors) {
    if (options.allows_others || names.contains(name)) continue;
    fail(unasked_text(folder_, name));
  }
  std::optional<ProgressBar> bar;
  if (!options.progress.empty()) bar.emplace(order.size(), options.progress);
  Files files(folder_, *index_);
  std::vector<char> bytes;
  for (const Piece* piece : order) {
    if (piece->tensor.numel() > 0) read_piece(files, *index_, *piece, bytes);
    if (bar) bar->step();
  }
  if (bar) bar->finish();
}

}  // namespace bp::distributed
