// Checkpoints of one model with any number of ranks and in every layout.
#include "backplane/runtime/distributed/checkpoint.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "runtime/distributed/test_messages.hpp"
#include "runtime/distributed/test_processes.hpp"
#include "runtime/distributed/test_trainee.hpp"

namespace bp::distributed {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

// Saves a model that one rank has trained, and returns its loss.
double save_trained(const std::string& path) {
  double loss = 0;
  run_ranks(1, [&](ProcessGroup& world) {
    Trainee trainee(world, {});
    set_values(trainee.model(), 5);
    for (uint32_t step = 0; step < 3; ++step) trainee.step(step);
    CheckpointFolder folder(path, world);
    trainee.save(folder, 3);
    loss = trainee.loss();
  });
  return loss;
}

TEST(Checkpoint, IsTheSameFromEveryLayoutAndNumberOfRanks) {
  const ScratchFolder scratch;
  const std::string from = scratch.file("from");
  const double loss = save_trained(from);
  const Content want = content_of(from + "/step_3");
  EXPECT_EQ(want.size(), 13u) << "4 parameters, 8 moments, the counts of steps";
  const auto goes_through = [&](const Way& way, uint32_t ranks) {
    SCOPED_TRACE(text_of(way, ranks));
    const std::string to = scratch.file("to");
    run_ranks(ranks, [&](ProcessGroup& world) {
      Trainee trainee(world, way);
      trainee.step(world.rank());  // Values that the checkpoint has to replace.
      {
        CheckpointFolder folder(from, world);
        trainee.load(folder);
      }
      EXPECT_NEAR(trainee.loss(), loss, 1e-6);
      CheckpointFolder folder(to, world);
      trainee.save(folder, 4);
    });
    EXPECT_EQ(content_of(to + "/step_4"), want);
    fs::remove_all(to);
  };
  for (const uint32_t ranks : {1u, 2u, 3u, 4u}) {
    for (const int stage : {0, 1, 2, 3}) goes_through({.stage = stage}, ranks);
    goes_through({.tensor_ranks = ranks}, ranks);
  }
  for (const int stage : {1, 3}) {
    goes_through({.stage = stage, .tensor_ranks = 2}, 4);
    goes_through({.stage = stage, .has_replicas = true}, 4);
    goes_through({.stage = stage, .is_offloaded = true}, 2);
  }
}

TEST(Checkpoint, WritesWhatSeveralRanksHaveOnce) {
  const ScratchFolder scratch;
  save_trained(scratch.file("one"));
  const auto bytes_in = [](const std::string& folder) {
    std::vector<uintmax_t> sizes;
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".safetensors") sizes.push_back(entry.file_size());
    }
    return sizes;
  };
  const std::vector<uintmax_t> whole = bytes_in(scratch.file("one/step_3"));
  ASSERT_EQ(whole.size(), 1u);
  run_ranks(4, [&](ProcessGroup& world) {
    Trainee trainee(world, {});
    CheckpointFolder folder(scratch.file("four"), world);
    trainee.save(folder, 3);
  });
  const std::vector<uintmax_t> parts = bytes_in(scratch.file("four/step_3"));
  ASSERT_EQ(parts.size(), 4u);
  // The headers of four files take more than that of one; the elements are there once.
  uintmax_t sum = 0;
  for (const uintmax_t size : parts) {
    sum += size;
    EXPECT_LT(size, whole[0] / 2);
  }
  EXPECT_LT(sum, whole[0] + 4 * 64);
}

TEST(Checkpoint, HoldsFilesThatAnyReaderOfSafetensorsReads) {
  const ScratchFolder scratch;
  save_trained(scratch.file("run"));
  const Content want = content_of(scratch.file("run/step_3"));
  for (const std::string& name : names_in(scratch.file("run/step_3"))) {
    if (!name.ends_with(".safetensors")) continue;
    const LoadedTensors loaded =
        load_safetensors(scratch.file("run/step_3/" + name), test_devices()[0]);
    EXPECT_EQ(loaded.tensors.size(), want.size());
    const Tensor weight = loaded.tensors.at("model.0.weight");
    std::vector<char> bytes(weight.size_bytes());
    weight.copy_to_host(bytes.data(), bytes.size());
    EXPECT_EQ(bytes, want.at("model.0.weight"));
  }
}

std::vector<Piece> row_of(const ProcessGroup& world, float value) {
  const Tensor row = full({1, 4}, value, BP_F32);
  return {{"w", {world.size(), 4}, {world.rank(), 0}, row}};
}

TEST(Checkpoint, KeepsTheLastOnes) {
  const ScratchFolder scratch;
  run_ranks(2, [&](ProcessGroup& world) {
    CheckpointFolder folder(scratch.file("run/"), world, {.keep = 2});
    EXPECT_EQ(folder.latest(), std::nullopt);
    for (int64_t step = 8; step < 12; ++step) {
      folder.save(step, row_of(world, static_cast<float>(step)), {{"seed", "1"}});
    }
    EXPECT_EQ(folder.latest(), 11);
    const CheckpointReader reader = folder.open_latest();
    EXPECT_EQ(reader.step(), 11);
    EXPECT_EQ(reader.metadata(), (Metadata{{"seed", "1"}}));
    EXPECT_EQ(reader.folder(), scratch.file("run/step_11"));
  });
  EXPECT_EQ(names_in(scratch.file("run")),
            (std::vector<std::string>{"lock", "step_10", "step_11"}));
}

TEST(Checkpoint, ReplacesOneOfTheSameStepAndKeepsFilesOfOthers) {
  const ScratchFolder scratch;
  const std::string path = scratch.file("run");
  for (const float value : {1.0f, 2.0f}) {
    run_ranks(2, [&](ProcessGroup& world) {
      CheckpointFolder folder(path, world, {.keep = 1});
      folder.save(5, row_of(world, value));
    });
    std::ofstream(path + "/step_5/notes.txt") << "mine";
  }
  EXPECT_EQ(names_in(path + "/step_5").size(), 4u) << "the index, two files, and the notes";
  const std::vector<char> bytes = content_of(path + "/step_5").at("w");
  float last = 0;
  std::memcpy(&last, bytes.data() + bytes.size() - sizeof(last), sizeof(last));
  EXPECT_EQ(last, 2);
}

TEST(Checkpoint, IsWrittenWhileTrainingGoesOn) {
  const ScratchFolder scratch;
  const std::string path = scratch.file("run");
  run_ranks(2, [&](ProcessGroup& world) {
    CheckpointFolder folder(path, world, {.is_asynchronous = true});
    const std::vector<Piece> pieces = row_of(world, 1);
    folder.save(1, pieces);
    pieces[0].tensor.fill(2);
    folder.save(2, pieces);
    pieces[0].tensor.fill(3);
    folder.wait();
    EXPECT_FALSE(folder.is_saving());
    EXPECT_EQ(folder.latest(), 2);
    folder.save(3, pieces);
    pieces[0].tensor.fill(4);
    EXPECT_EQ(folder.latest(), 3) << "it waits for the save";
  });
  for (int step = 1; step <= 3; ++step) {
    const std::vector<char> bytes = content_of(path + "/step_" + std::to_string(step)).at("w");
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    EXPECT_EQ(values, std::vector<float>(8, static_cast<float>(step)));
  }
}

TEST(Checkpoint, TellsTheFailureOfAnAsynchronousSaveAtTheNextOne) {
  const ScratchFolder scratch;
  const std::string path = scratch.file("run");
  run_ranks(2, [&](ProcessGroup& world) {
    CheckpointFolder folder(path, world, {.is_asynchronous = true});
    if (world.rank() == 0) std::ofstream(path + "/step_1") << "in the way";
    world.barrier();
    folder.save(1, row_of(world, 1));
    const std::string text = thrown_by([&] { folder.save(2, row_of(world, 2)); });
    expect_part(text, "CheckpointFolder: the checkpoint of step 1: rank 0: " + path +
                          "/step_1: cannot be made: ");
    folder.save(3, row_of(world, 3));
    folder.wait();
    EXPECT_EQ(folder.latest(), 3);
  });
}

TEST(Checkpoint, ShowsProgressOnRankZero) {
  const ScratchFolder scratch;
  testing::internal::CaptureStderr();
  run_ranks(2, [&](ProcessGroup& world) {
    CheckpointFolder folder(scratch.file("run"), world, {.progress_bytes = 0});
    folder.save(7, row_of(world, 1));
    folder.load(folder.open_latest(), row_of(world, 2));
    CheckpointFolder silent(scratch.file("other"), world);
    silent.save(7, row_of(world, 1));
  });
  const std::string text = testing::internal::GetCapturedStderr();
  expect_part(text, "saving step 7 [========================] 1/1");
  expect_part(text, "loading step 7 [========================] 1/1");
  EXPECT_EQ(std::ranges::count(text, '\n'), 2) << text;
}

// ---- Pieces that do not fit --------------------------------------------------------------------

TEST(Checkpoint, NamesPiecesThatDoNotFitOnAllRanks) {
  const ScratchFolder scratch;
  run_ranks(2, [&](ProcessGroup& world) {
    CheckpointFolder folder(scratch.file("run"), world);
    const int64_t rank = world.rank();
    const auto refusal = [&](const Piece& piece) {
      return thrown_by([&] { folder.save(1, {piece}); });
    };
    const Tensor row = full({1, 4}, 1, BP_F32);
    EXPECT_EQ(refusal({"w", {2, 4}, {0, 0}, row}),
              "CheckpointFolder: 'w' (2, 4): the pieces have 4 of its 8 elements");
    EXPECT_EQ(refusal({"w", {2, 4}, {rank, 0}, full({rank == 0 ? 2 : 1, 4}, 1, BP_F32)}),
              "CheckpointFolder: 'w' (2, 4): the pieces [0:2, 0:4] and [1:2, 0:4] overlap");
    EXPECT_EQ(refusal({"w", {2 + rank, 4}, {rank, 0}, row}),
              "CheckpointFolder: 'w' is f32 (3, 4) on rank 1 and f32 (2, 4) on rank 0");
    EXPECT_EQ(refusal({"w", {2, 4}, {rank * 2, 0}, row}),
              "CheckpointFolder: rank 1: the piece (2, 0) of the extents (1, 4) is not within 'w', "
              "which is (2, 4)");
    EXPECT_EQ(refusal({"w", {2, 4}, {rank, 0}, rank == 0 ? row : Tensor()}),
              "CheckpointFolder: rank 1: 'w' is an empty tensor");
    EXPECT_EQ(thrown_by([&] { folder.save(-1, row_of(world, 1)); }),
              "CheckpointFolder: rank 0: the step is -1; allowed: 0 and above");
    EXPECT_EQ(thrown_by([&] { folder.save(5 + rank, row_of(world, 1)); }),
              "CheckpointFolder: the step is 6 on rank 1 and 5 on rank 0");
    EXPECT_EQ(refusal({"w\xff", {2, 4}, {rank, 0}, row}),
              "CheckpointFolder: rank 0: the name of a tensor is no UTF-8");
    EXPECT_EQ(thrown_by([&] {
                folder.save(1, row_of(world, 1), {{"text", "\xff"}});
              }),
              "CheckpointFolder: the checkpoint of step 1: the metadata of the checkpoint are no "
              "UTF-8");
    folder.save(1, row_of(world, 1));  // The folder can still be used.
  });
}

TEST(Checkpoint, NeedsAFolderThatAllRanksShare) {
  const ScratchFolder scratch;
  run_ranks(2, [&](ProcessGroup& world) {
    const std::string own = scratch.file("disk" + std::to_string(world.rank()));
    CheckpointFolder folder(own, world);
    const std::string text = thrown_by([&] { folder.save(1, row_of(world, 1)); });
    EXPECT_EQ(text.find("CheckpointFolder: the checkpoint of step 1: " +
                        scratch.file("disk0/step_1/rank_1.")),
              0u)
        << text;
    expect_part(text, "and rank 0 does not see it; give all ranks the same folder");
    EXPECT_EQ(folder.latest(), std::nullopt);
  });
}

TEST(Checkpoint, NamesTheFirstTensorThatDiffers) {
  const ScratchFolder scratch;
  run_ranks(2, [&](ProcessGroup& world) {
    CheckpointFolder folder(scratch.file("run"), world);
    const Tensor a = zeros({2}, BP_F32), b = zeros({3}, BP_F32);
    folder.save(1, pieces_of({{"a", a}, {"b", b}}));
    const CheckpointReader reader = folder.open_latest();
    const auto refusal = [&](const TensorMap& tensors) {
      return thrown_by([&] { folder.load(reader, pieces_of(tensors)); });
    };
    const std::string begin = "rank 0: " + scratch.file("run/step_1") + ": ";
    const std::string end = "is it that of another model?";
    EXPECT_EQ(refusal({{"a", a}, {"aa", b}, {"b", b}}),
              begin + "the checkpoint has no 'aa'; " + end);
    EXPECT_EQ(refusal({{"a", a}}),
              begin + "the checkpoint has 'b', which is not asked for; " + end);
    EXPECT_EQ(refusal({{"a", a}, {"b", a}}),
              begin + "'b' is f32 (3,) in the checkpoint, and f32 (2,) here; " + end);
    EXPECT_EQ(refusal({{"a", zeros({2}, BP_I32)}, {"b", b}}),
              begin + "'a' is f32 (2,) in the checkpoint, and i32 (2,) here; " + end);
    folder.load(reader, pieces_of({{"a", a}}), {.allows_others = true});
    const bool is_second = world.rank() == 1;
    EXPECT_EQ(refusal({{"a", a}, {"b", is_second ? a : b}}),
              "rank 1: " + begin.substr(8) +
                  "'b' is f32 (3,) in the checkpoint, and f32 (2,) here; " + end)
        << "all ranks learn what one of them found";
    EXPECT_EQ(refusal(is_second ? TensorMap{{"a", a}} : TensorMap{{"b", b}}),
              "(nothing was thrown)")
        << "together they ask for all";
  });
}

}  // namespace
}  // namespace bp::distributed
