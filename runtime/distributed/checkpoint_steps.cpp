// The checkpoints in the folder of a job, and their removal.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <set>

#include "backplane/runtime/error.hpp"
#include "runtime/distributed/checkpoint_index.hpp"
#include "runtime/distributed/checkpoint_save.hpp"
#include "runtime/distributed/socket.hpp"

namespace bp::distributed {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step_";

// Returns whether a save writes files of such names.
bool is_ours(const std::string& name) {
  return name == kIndexName || (name.starts_with("rank_") && name.ends_with(".safetensors")) ||
         (name.starts_with("backplane.") && name.ends_with(".draft"));
}

// Removes the files of a checkpoint except `kept`. The index goes first, so that a checkpoint which
// is removed in part does not count as whole.
void remove_files(const fs::path& folder, const std::set<std::string>& kept) {
  if (!kept.contains(kIndexName)) fs::remove(folder / kIndexName);
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (is_ours(name) && !kept.contains(name)) files.push_back(entry.path());
  }
  for (const fs::path& file : files) fs::remove(file);
  if (kept.empty() && fs::is_empty(folder)) fs::remove(folder);
}

}  // namespace

void make_folder(const std::string& path) {
  std::error_code error;
  std::vector<fs::path> missing;
  for (fs::path folder = fs::absolute(path);
       !fs::exists(folder, error) && folder.has_relative_path(); folder = folder.parent_path()) {
    missing.push_back(folder);
  }
  fs::create_directories(path, error);
  if (!error && !fs::is_directory(path)) error = std::make_error_code(std::errc::not_a_directory);
  if (error) throw Error(BP_INVALID_ARGUMENT, path + ": cannot be made: " + error.message());
  for (const fs::path& folder : missing) sync_folder(folder.parent_path());
}

// Some file systems cannot synchronise folders, and return EINVAL.
void sync_folder(const std::string& path) {
  const Socket handle(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (handle && (::fsync(handle.get()) == 0 || errno == EINVAL)) return;
  throw Error(BP_INVALID_ARGUMENT, path + ": cannot be synchronised: " + std::strerror(errno));
}

std::string step_folder(const std::string& folder, int64_t step) {
  return folder + "/" + std::string(kPrefix) + std::to_string(step);
}

std::vector<int64_t> steps_in(const std::string& folder, bool is_whole) {
  std::vector<int64_t> steps;
  if (!fs::exists(folder)) return steps;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    int64_t step = 0;
    const char* const end = name.data() + name.size();
    if (!name.starts_with(kPrefix) || !entry.is_directory()) continue;
    const auto [rest, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
    if (error != std::errc() || rest != end || step < 0) continue;
    if (fs::exists(entry.path() / kIndexName) == is_whole) steps.push_back(step);
  }
  std::ranges::sort(steps);
  return steps;
}

std::string remove_old(const std::string& folder, int64_t step, const CheckpointIndex& index,
                       uint32_t keep) {
  try {
    std::set<std::string> kept{kIndexName};
    for (const StoredFile& file : index.files) kept.insert(file.name);
    remove_files(step_folder(folder, step), kept);
    for (const int64_t other : steps_in(folder, false))
      remove_files(step_folder(folder, other), {});
    std::vector<int64_t> whole = steps_in(folder, true);
    std::erase(whole, step);
    const size_t others = keep == 0 ? whole.size() : keep - 1;
    for (size_t i = 0; i + others < whole.size(); ++i) {
      remove_files(step_folder(folder, whole[i]), {});
    }
  } catch (const fs::filesystem_error& e) {
    return std::string("it was saved, but what is old cannot be removed: ") + e.what();
  }
  return "";
}

}  // namespace bp::distributed
