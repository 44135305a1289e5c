#include "conformance/dist/holdings.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "conformance/cases/fixtures/resources.hpp"
#include "conformance/process/hygiene.hpp"

namespace bp::conformance::dist {
namespace {

constexpr const char* kSharedMemory = "/dev/shm/";
constexpr auto kPause = std::chrono::milliseconds(20);
constexpr int kPausesToSettle = 100, kPausesToGo = 150;

// Returns "x" of "/dev/shm/x", and "" of other paths and of files that have no name any more.
std::string shared_name(const std::string& path) {
  const std::string prefix = kSharedMemory;
  const bool is_named = path.starts_with(prefix) && !path.ends_with(" (deleted)");
  return is_named ? path.substr(prefix.size()) : "";
}

}  // namespace

Holdings Holdings::now() {
  Holdings held;
  held.descriptors_ = open_descriptors();
  held.threads_ = resources_in_use().threads;
  return held;
}

Holdings Holdings::settled() {
  Holdings before = now();
  int quiet = 0;
  for (int i = 0; i < kPausesToSettle && quiet < 5; ++i) {
    std::this_thread::sleep_for(kPause);
    Holdings after = now();
    const bool is_same =
        after.threads_ == before.threads_ && after.descriptors_ == before.descriptors_;
    quiet = is_same ? quiet + 1 : 0;
    before = std::move(after);
  }
  return before;
}

std::vector<std::string> Holdings::more_than(const Holdings& before, int64_t spare_threads) const {
  std::vector<std::string> lines;
  if (threads_ > before.threads_ + spare_threads) {
    lines.push_back("threads: " + std::to_string(threads_ - before.threads_) + " more");
  }
  if (descriptors_.size() > before.descriptors_.size()) {
    std::string names;
    for (const auto& [number, descriptor] : descriptors_) {
      if (before.descriptors_.contains(number)) continue;
      names += (names.empty() ? "" : ", ") + descriptor.target;
    }
    lines.push_back(
        "descriptors: " + std::to_string(descriptors_.size() - before.descriptors_.size()) +
        " more, " + names);
  }
  return lines;
}

Holdings Holdings::awaited(int64_t spare_threads) const {
  Holdings held = now();
  for (int i = 0; i < kPausesToGo && !held.more_than(*this, spare_threads).empty(); ++i) {
    std::this_thread::sleep_for(kPause);
    held = now();
  }
  return held;
}

std::vector<std::string> steady_growth(const std::vector<Holdings>& rounds) {
  std::vector<std::string> steady;
  for (size_t i = 1; i < rounds.size(); ++i) {
    const std::vector<std::string> more = rounds[i].more_than(rounds[i - 1], 0);
    const auto kind_of = [](const std::string& line) { return line.substr(0, line.find(':')); };
    if (i == 1) steady = more;
    std::erase_if(steady, [&](const std::string& line) {
      return std::ranges::none_of(
          more, [&](const std::string& other) { return kind_of(other) == kind_of(line); });
    });
  }
  return steady;
}

std::set<std::string> shared_memory_in_use() {
  std::set<std::string> names;
  for (const auto& [number, descriptor] : open_descriptors()) {
    names.insert(shared_name(descriptor.target));
  }
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t path = line.find(kSharedMemory);
    if (path != std::string::npos) names.insert(shared_name(line.substr(path)));
  }
  names.erase("");
  return names;
}

std::set<std::string> shared_memory_files() {
  std::set<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(kSharedMemory, error)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

}  // namespace bp::conformance::dist
