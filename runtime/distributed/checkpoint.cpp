#include "backplane/runtime/distributed/checkpoint.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "backplane/runtime/error.hpp"
#include "runtime/distributed/agreement.hpp"
#include "runtime/distributed/checkpoint_index.hpp"
#include "runtime/distributed/checkpoint_save.hpp"
#include "runtime/distributed/socket.hpp"

namespace bp::distributed {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw Error(BP_INVALID_ARGUMENT, "CheckpointFolder: " + what);
}

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

ProcessGroup own_group(const ProcessGroup& group) {
  return *group.split(0, group.rank(), group.name() + ".checkpoint");
}

// Locks the folder for this job. The lock ends with the handle, also when the process is killed.
Socket lock_folder(const std::string& path) {
  make_folder(path);
  const std::string file = path + "/lock";
  Socket lock(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!lock) fail(file + ": cannot be opened: " + std::strerror(errno));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno != EWOULDBLOCK) fail(file + ": cannot be locked: " + std::strerror(errno));
  fail(path +
       ": another job uses the folder, since it has locked the file 'lock' in it; give each " +
       "job a folder of its own, or wait for the other job");
}

uint64_t bytes_of(const std::vector<Piece>& pieces) {
  uint64_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.tensor ? piece.tensor.size_bytes() : 0;
  return bytes;
}

// Returns the first tensor of the checkpoint that no rank asks for; "" if there is none. Ranks of a
// pipeline ask for different ones. Every rank calls it.
std::string first_unasked(const ProcessGroup& group, const CheckpointReader& reader,
                          const std::vector<Piece>& pieces) {
  std::set<std::string> asked;
  for (const Piece& piece : pieces) asked.insert(piece.name);
  std::string own;
  for (const auto& [name, entry] : reader.tensors()) {
    if (!asked.contains(name)) own += name + "\n";
  }
  std::map<std::string, size_t> counts;  // Of the ranks that do not ask for a tensor.
  for (const std::string& theirs : gather_texts(group, own)) {
    std::istringstream lines(theirs);
    std::string name;
    while (std::getline(lines, name)) ++counts[name];
  }
  for (const auto& [name, count] : counts) {
    if (count == group.size()) return name;
  }
  return "";
}

std::string list_of(const std::vector<int64_t>& steps) {
  std::string text;
  for (const int64_t step : steps) {
    text += (text.empty() ? "step_" : ", step_") + std::to_string(step);
  }
  return text;
}

}  // namespace

struct CheckpointFolder::State {
  State(std::string where, const ProcessGroup& parent, const CheckpointOptions& given)
      : path(std::move(where)), options(given), group(own_group(parent)) {}

  // Runs `call` on this rank, and throws on all ranks what the lowest rank threw.
  template <typename Call>
  void together(const Call& call) const {
    std::string problem;
    try {
      call();
    } catch (const std::exception& e) {
      problem = e.what();
      // The sentence that all ranks get says where it is from.
      if (group.size() > 1) problem = "rank " + std::to_string(group.rank()) + ": " + problem;
    }
    problem = first_problem(group, problem);
    if (!problem.empty()) throw Error(BP_INVALID_ARGUMENT, problem);
  }

  bool shows_progress(const std::vector<Piece>& pieces) const {
    return group.rank() == 0 && bytes_of(pieces) >= options.progress_bytes;
  }

  const std::string path;
  const CheckpointOptions options;
  const ProcessGroup group;
  Socket lock;                           // On rank 0.
  std::unique_ptr<CheckpointSave> save;  // The one that is under way.
  std::thread writer;
  std::atomic<bool> is_writing = false;
  std::exception_ptr failure;  // Of the writer. Read behind join().
};

CheckpointFolder::CheckpointFolder(std::string path, const ProcessGroup& group,
                                   const CheckpointOptions& options)
    : state_(std::make_unique<State>(without_slash(std::move(path)), group, options)) {
  state_->together([&] {
    if (state_->path.empty()) fail("the path is ''; allowed: that of a folder");
    if (state_->group.rank() == 0) state_->lock = lock_folder(state_->path);
  });
}

CheckpointFolder::~CheckpointFolder() {
  if (state_->writer.joinable()) state_->writer.join();
}

void CheckpointFolder::save(int64_t step, const std::vector<Piece>& pieces,
                            const Metadata& metadata) {
  wait();
  const std::string problem =
      step < 0 ? "the step is " + std::to_string(step) + "; allowed: 0 and above" : "";
  SaveSettings settings{
      .folder = state_->path, .step = step, .keep = state_->options.keep, .metadata = metadata};
  if (!state_->options.is_asynchronous && state_->shows_progress(pieces)) {
    settings.progress = "saving step " + std::to_string(step);
  }
  auto save = std::make_unique<CheckpointSave>(state_->group, std::move(settings), pieces, problem);
  if (!state_->options.is_asynchronous) return save->run();
  save->copy_to_host();
  state_->save = std::move(save);
  state_->is_writing = true;
  state_->writer = std::thread([state = state_.get()] {
    try {
      // A stream of its own, so that it does not wait for the work of the model.
      const Device device = state->group.device();
      const DeviceGuard here(device);
      const Stream stream(device);
      const StreamGuard behind(stream);
      state->save->run();
    } catch (...) {
      state->failure = std::current_exception();
    }
    state->is_writing = false;
  });
}

bool CheckpointFolder::is_saving() const { return state_->is_writing; }

void CheckpointFolder::wait() {
  if (!state_->writer.joinable()) return;
  state_->writer.join();
  state_->save.reset();
  if (const std::exception_ptr failure = std::exchange(state_->failure, nullptr)) {
    std::rethrow_exception(failure);
  }
}

std::optional<int64_t> CheckpointFolder::latest() {
  wait();
  std::string text;
  state_->together([&] {
    if (state_->group.rank() != 0) return;
    const std::vector<int64_t> steps = steps_in(state_->path, true);
    if (!steps.empty()) text = std::to_string(steps.back());
  });
  text = broadcast_text(state_->group, text, 0);
  if (text.empty()) return std::nullopt;
  return std::stoll(text);
}

CheckpointReader CheckpointFolder::open_latest() {
  const std::optional<int64_t> step = latest();
  std::optional<CheckpointReader> reader;
  state_->together([&] {
    if (!step) {
      const std::string others = list_of(steps_in(state_->path, false));
      fail(state_->path + ": the folder has no whole checkpoint" +
           (others.empty() ? "" : "; these were not completed: " + others));
    }
    reader.emplace(step_folder(state_->path, *step));
  });
  return *reader;
}

void CheckpointFolder::load(const CheckpointReader& reader, const std::vector<Piece>& pieces,
                            const ReadOptions& options) {
  wait();
  const std::string unasked =
      options.allows_others ? "" : first_unasked(state_->group, reader, pieces);
  state_->together([&] {
    if (!unasked.empty()) throw Error(BP_INVALID_ARGUMENT, unasked_text(reader.folder(), unasked));
    ReadOptions own = options;
    own.allows_others = true;  // Of this rank alone.
    if (own.progress.empty() && state_->shows_progress(pieces)) {
      own.progress = "loading step " + std::to_string(reader.step());
    }
    reader.read(pieces, own);
  });
}

const std::string& CheckpointFolder::path() const { return state_->path; }

}  // namespace bp::distributed
