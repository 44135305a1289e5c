// Checkpoints that something happened to: processes that were killed, full disks, damaged files.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "backplane/runtime/distributed/checkpoint.hpp"
#include "runtime/distributed/test_messages.hpp"
#include "runtime/distributed/test_models.hpp"
#include "runtime/distributed/test_processes.hpp"
#include "runtime/distributed/test_ranks.hpp"

namespace bp::distributed {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kColumns = 4096;  // As in test_checkpoint.cpp.

// Runs test_checkpoint, and returns its exit code, or 128 plus the signal that ended it.
int save_in_a_process(const std::string& folder, int step, int ranks, const std::string& when,
                      const std::string& output = "/dev/null") {
  const std::string command = "exec " + std::string(BACKPLANE_TEST_CHECKPOINT) + " " + folder +
                              " " + std::to_string(step) + " " + std::to_string(ranks) + " " +
                              when + " >" + output;
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Returns the value that all elements of the latest checkpoint have, or -1 if they differ.
double value_of_latest(const std::string& path) {
  double value = -1;
  run_ranks(1, [&](ProcessGroup& world) {
    CheckpointFolder folder(path, world);
    const CheckpointReader reader = folder.open_latest();
    const TensorMap tensors{{"w", zeros(reader.tensors().at("w").shape, BP_F32)},
                            {"b", zeros({3}, BP_F32)}};
    folder.load(reader, pieces_of(tensors));
    value = tensors.at("b").to_vector<float>()[0];
    const auto all = static_cast<size_t>(tensors.at("w").numel());
    EXPECT_EQ(tensors.at("w").to_vector<float>(),
              std::vector<float>(all, static_cast<float>(value)));
  });
  return value;
}

std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void write_all(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// Returns the paths of the files with pieces, in the order of the ranks.
std::vector<std::string> files_of(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

TEST(CheckpointDamage, LeavesAWholeCheckpointWhereverAProcessIsKilled) {
  const ScratchFolder scratch;
  for (const std::string when : {"planned", "written", "agreed", "indexed", "cleaned"}) {
    SCOPED_TRACE(when);
    const std::string path = scratch.file(when);
    ASSERT_EQ(save_in_a_process(path, 1, 2, "never"), 0);
    EXPECT_EQ(save_in_a_process(path, 2, 3, when), 128 + SIGKILL);
    const bool is_complete = when == "indexed" || when == "cleaned";
    EXPECT_EQ(value_of_latest(path), is_complete ? 2 : 1);
    // The next save removes what the crash left.
    ASSERT_EQ(save_in_a_process(path, 3, 1, "never"), 0);
    EXPECT_EQ(value_of_latest(path), 3);
    const auto entries = std::distance(fs::directory_iterator(path), fs::directory_iterator());
    EXPECT_EQ(entries, 2) << "the lock, and the checkpoint of step 3";
  }
}

TEST(CheckpointDamage, LeavesTheOldOneOfTheSameStepToo) {
  const ScratchFolder scratch;
  const std::string path = scratch.file("run");
  ASSERT_EQ(save_in_a_process(path, 1, 2, "never"), 0);
  const std::string index = read_all(path + "/step_1/index.json");
  EXPECT_EQ(save_in_a_process(path, 1, 2, "agreed"), 128 + SIGKILL);
  EXPECT_EQ(read_all(path + "/step_1/index.json"), index);
  EXPECT_EQ(value_of_latest(path), 1);
}

TEST(CheckpointDamage, LeavesTheOldOneWhereTheDiskIsFull) {
  const ScratchFolder scratch;
  const std::string path = scratch.file("run");
  ASSERT_EQ(save_in_a_process(path, 1, 2, "never"), 0);
  ASSERT_EQ(save_in_a_process(path, 2, 2, "limit", scratch.file("out")), 0);
  const std::string out = read_all(scratch.file("out"));
  const std::string begin =
      "CheckpointFolder: the checkpoint of step 2: rank 0: " + path + "/step_2/rank_0.";
  EXPECT_EQ(out.find(begin), 0u) << out;
  expect_part(out, ".safetensors: cannot be written: File too large\n");
  EXPECT_EQ(out.substr(0, out.size() / 2), out.substr(out.size() / 2)) << "all ranks say the same";
  EXPECT_EQ(value_of_latest(path), 1);
  EXPECT_TRUE(fs::is_empty(path + "/step_2")) << "nothing is left of the files";
}

TEST(CheckpointDamage, IsRefusedWhileAnotherJobHasTheFolder) {
  const ScratchFolder scratch;
  const std::string path = scratch.file("run");
  run_ranks(2, [&](ProcessGroup& world) {
    const auto folder = std::make_unique<CheckpointFolder>(path, world);
    EXPECT_EQ(thrown_by([&] { CheckpointFolder other(path, world); }),
              "rank 0: CheckpointFolder: " + path +
                  ": another job uses the folder, since it has locked the file 'lock' in it; give "
                  "each job a folder of its own, or wait for the other job");
  });
  run_ranks(2, [&](ProcessGroup& world) { CheckpointFolder folder(path, world); });
}

// ---- Damaged files -----------------------------------------------------------------------------

// A checkpoint that two ranks have saved.
class DamagedCheckpoint : public testing::Test {
 protected:
  DamagedCheckpoint() : path_(scratch_.file("run")), folder_(path_ + "/step_1") {
    run_ranks(2, [&](ProcessGroup& world) {
      CheckpointFolder folder(path_, world);
      const Tensor row = full({1, kColumns}, 1, BP_F32);
      folder.save(1, {{"w", {2, kColumns}, {world.rank(), 0}, row}});
    });
  }

  // Returns what loading on two ranks says, which is the same on both.
  std::string failure() const {
    std::vector<std::string> texts(2);
    run_ranks(2, [&](ProcessGroup& world) {
      CheckpointFolder folder(path_, world);
      // This rank wants the row that the other one wrote.
      const Tensor row = zeros({1, kColumns}, BP_F32);
      texts[world.rank()] = thrown_by([&] {
        folder.load(folder.open_latest(),
                    {{"w", {2, kColumns}, {1 - int64_t{world.rank()}, 0}, row}});
      });
    });
    EXPECT_EQ(texts[0], texts[1]);
    return texts[0];
  }

  std::string file(size_t rank) const { return files_of(folder_)[rank]; }

  const ScratchFolder scratch_;
  const std::string path_, folder_;
};

TEST_F(DamagedCheckpoint, NamesAFileThatIsMissing) {
  const std::string missing = file(1);
  fs::remove(missing);
  EXPECT_EQ(failure(), "rank 0: " + missing +
                           ": No such file or directory; the index of the checkpoint names this "
                           "file");
}

TEST_F(DamagedCheckpoint, NamesAFileThatIsCutShort) {
  const uintmax_t size = fs::file_size(file(0));
  fs::resize_file(file(0), size - 1);
  EXPECT_EQ(failure(), "rank 1: " + file(0) + ": the file has " + std::to_string(size - 1) +
                           " bytes, and had " + std::to_string(size) +
                           " when the checkpoint was written");
}

TEST_F(DamagedCheckpoint, FindsEveryFlippedBitOfThePieces) {
  const std::string path = file(1), whole = read_all(path);
  const size_t data = whole.size() - kColumns * sizeof(float);
  for (size_t place = data; place < whole.size(); place += 1021) {
    std::string changed = whole;
    changed[place] = static_cast<char>(changed[place] ^ (1 << (place % 8)));
    write_all(path, changed);
    EXPECT_EQ(failure(), "rank 0: " + path + ": bytes " + std::to_string(data) + " to " +
                             std::to_string(whole.size()) +
                             ", a part of 'w', do not have their checksum: the file is damaged");
  }
}

TEST_F(DamagedCheckpoint, FindsEveryFlippedBitOfTheIndex) {
  const std::string path = folder_ + "/index.json", whole = read_all(path);
  size_t refused = 0;
  for (size_t place = 0; place < whole.size(); ++place) {
    std::string changed = whole;
    changed[place] = static_cast<char>(changed[place] ^ (1 << (place % 7)));
    write_all(path, changed);
    const std::string text = thrown_by([&] { CheckpointReader reader(folder_); });
    // A space between two tokens may become another one.
    if (text == "(nothing was thrown)") continue;
    ++refused;
    EXPECT_EQ(text.find(path + ": "), 0u) << text;
  }
  EXPECT_GT(refused, whole.size() / 2);
  write_all(path, whole);
  EXPECT_EQ(failure(), "(nothing was thrown)");
}

TEST_F(DamagedCheckpoint, NamesAnIndexThatIsCutShort) {
  const std::string path = folder_ + "/index.json", whole = read_all(path);
  for (size_t size = 0; size + 1 < whole.size(); size += 17) {
    write_all(path, whole.substr(0, size));
    EXPECT_EQ(thrown_by([&] { CheckpointReader reader(folder_); }).find(path + ": "), 0u) << size;
  }
  expect_part(failure(),
              "rank 0: " + path + ": it is not the index of a checkpoint, or it is damaged: ");
}

TEST_F(DamagedCheckpoint, SaysWhichOnesWereNotCompleted) {
  fs::remove(folder_ + "/index.json");
  EXPECT_EQ(failure(), "rank 0: CheckpointFolder: " + path_ +
                           ": the folder has no whole checkpoint; these were not completed: "
                           "step_1");
  EXPECT_EQ(thrown_by([&] { CheckpointReader reader(folder_); }),
            folder_ +
                ": it has no index.json, so it is not a checkpoint, or one that was not "
                "completed");
  fs::remove_all(folder_);
  EXPECT_EQ(failure(),
            "rank 0: CheckpointFolder: " + path_ + ": the folder has no whole checkpoint");
}

TEST_F(DamagedCheckpoint, SaysThatAFileIsNoFolder) {
  const std::string file = scratch_.file("file");
  write_all(file, "text");
  run_ranks(2, [&](ProcessGroup& world) {
    const std::string text = thrown_by([&] { CheckpointFolder folder(file, world); });
    EXPECT_EQ(text.find("rank 0: " + file + ": cannot be made: "), 0u) << text;
  });
}

TEST(CheckpointDamage, MattersOnlyToWhoReadsTheBlock) {
  const ScratchFolder scratch;
  const std::string folder = scratch.file("run/step_1");
  constexpr int64_t kRow = 1 << 18;  // Elements of f32: a row is a block of 1 MiB.
  run_ranks(1, [&](ProcessGroup& world) {
    CheckpointFolder(scratch.file("run"), world)
        .save(1, pieces_of({{"w", full({4, kRow}, 7, BP_F32)}}));
    const std::string path = files_of(folder)[0];
    std::fstream out(path, std::ios::binary | std::ios::in | std::ios::out);
    out.seekp(-4, std::ios::end);  // The last element.
    out.write("ruin", 4);
    out.close();
    const CheckpointReader reader(folder);
    const Tensor rows = zeros({3, kRow}, BP_F32);
    reader.read({{"w", {4, kRow}, {0, 0}, rows}});
    EXPECT_EQ(rows.to_vector<float>(), std::vector<float>(3 * kRow, 7));
    const Tensor columns = zeros({4, 2}, BP_F32);
    expect_part(thrown_by([&] {
                  reader.read({{"w", {4, kRow}, {0, 5}, columns}});
                }),
                "do not have their checksum");
  });
}

}  // namespace
}  // namespace bp::distributed
