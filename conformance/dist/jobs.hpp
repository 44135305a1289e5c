// The jobs of the process of a rank.
#pragma once

#include "conformance/dist/backend.hpp"
#include "conformance/dist/folder_store.hpp"
#include "conformance/dist/speaker.hpp"
#include "conformance/dist/task.hpp"

namespace bp::conformance::dist {

// What every job has.
struct RankJob {
  const RankTask& task;
  const Backend& backend;
  FolderStore& store;
  Speaker& speaker;
};

// Each function says what it finds, and throws RankError if it cannot go on.
void run_values(const RankJob& job);
void run_fault(const RankJob& job);
void run_bandwidth(const RankJob& job);

// Runs the process of a rank: `--rank TASK`, or `--rank FOLDER` if a launcher has started it.
// Returns the exit code.
int run_rank(const std::string& task_or_folder);

}  // namespace bp::conformance::dist
