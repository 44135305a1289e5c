#include "runtime/distributed/checkpoint_index.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "runtime/distributed/test_messages.hpp"

namespace bp::distributed {
namespace {

// A tensor of 1 MiB and 16 bytes in two files, and one without elements.
CheckpointIndex example() {
  CheckpointIndex index{.step = 12, .metadata = {{"seed", "1"}}};
  index.files = {{"rank_0.id.safetensors", 2'000'000}, {"rank_1.id.safetensors", 100}};
  index.tensors["weight"] = {BP_F32,
                             {65537, 4},
                             {{0, 104, {{0, 0}, {65537, 3}}, {7}},
                              {1, 76, {{0, 3}, {5, 1}}, {8}},
                              {0, 900'000, {{5, 3}, {65532, 1}}, {9}}}};
  index.tensors["none"] = {BP_I64, {0, 3}, {}};
  return index;
}

std::string refusal(const std::function<void(CheckpointIndex&)>& change) {
  CheckpointIndex index = example();
  change(index);
  return message_of(BP_INVALID_ARGUMENT, [&] { read_index("i.json", write_index(index)); });
}

TEST(CheckpointIndex, GivesBackWhatWasWritten) {
  const CheckpointIndex read = read_index("i.json", write_index(example()));
  EXPECT_EQ(read.step, 12);
  EXPECT_EQ(read.metadata, (Metadata{{"seed", "1"}}));
  ASSERT_EQ(read.files.size(), 2u);
  EXPECT_EQ(read.files[1].name, "rank_1.id.safetensors");
  EXPECT_EQ(read.files[1].bytes, 100u);
  ASSERT_EQ(read.tensors.size(), 2u);
  const StoredTensor& weight = read.tensors.at("weight");
  EXPECT_EQ(weight.dtype, bp_dtype{BP_F32});
  EXPECT_EQ(weight.shape, (std::vector<int64_t>{65537, 4}));
  ASSERT_EQ(weight.pieces.size(), 3u);
  EXPECT_EQ(weight.pieces[2].begin, 900'000u);
  EXPECT_EQ(weight.pieces[2].box, (Box{{5, 3}, {65532, 1}}));
  EXPECT_EQ(weight.pieces[2].checksums, (std::vector<uint32_t>{9}));
  EXPECT_EQ(read.tensors.at("none").shape, (std::vector<int64_t>{0, 3}));
}

TEST(CheckpointIndex, NamesWhatIsWrongWithItsPieces) {
  const auto expect = [](const std::function<void(StoredTensor&)>& change, const char* what) {
    EXPECT_EQ(refusal([&](CheckpointIndex& index) { change(index.tensors.at("weight")); }),
              "i.json: 'weight'" + std::string(what));
  };
  expect([](StoredTensor& w) { w.pieces.pop_back(); },
         ": the pieces have 196616 of its 262148 elements");
  expect([](StoredTensor& w) { w.pieces[1].box.extents[0] = 6; },
         ": the pieces [0:6, 3:4] and [5:65537, 3:4] overlap");
  expect([](StoredTensor& w) { w.pieces[1].box.offsets[1] = 4; },
         ": the piece [0:5, 4:5] is not within it");
  expect([](StoredTensor& w) { w.pieces[1].file = 2; }, ": the piece [0:5, 3:4] is in no file");
  expect([](StoredTensor& w) { w.pieces[1].begin = 81; },
         ": the piece [0:5, 3:4] ends behind its file");
  expect([](StoredTensor& w) { w.pieces[1].begin = UINT64_MAX; },
         ": the piece [0:5, 3:4] ends behind its file");
  expect([](StoredTensor& w) { w.pieces[1].checksums.clear(); },
         ": the piece [0:5, 3:4] has 0 checksums");
}

TEST(CheckpointIndex, NamesWrongFields) {
  EXPECT_EQ(refusal([](CheckpointIndex& index) { index.files[0].name = "../other"; }),
            "i.json: a file has the name '../other'; allowed: names without a folder");
  EXPECT_EQ(refusal([](CheckpointIndex& index) { index.block_bytes = 0; }),
            "i.json: block_bytes is 0; allowed: 1 to 2^30");
  expect_part(refusal([](CheckpointIndex& index) {
                index.tensors["weight"].shape = {int64_t{1} << 40, int64_t{1} << 40};
              }),
              "i.json: 'weight'.shape: ");
  EXPECT_EQ(refusal([](CheckpointIndex& index) { index.tensors["weight"].dtype = BP_F4E2M1; }),
            "i.json: 'weight' has the dtype 'F4', which checkpoints have not");
}

TEST(CheckpointIndex, RefusesWhatIsNoIndex) {
  const auto refused = [](const std::string& text) {
    return message_of(BP_INVALID_ARGUMENT, [&] { read_index("i.json", text); });
  };
  for (const char* text : {"", "[]", "{}", R"({"content": {}})", R"({"content": 1})"}) {
    expect_part(refused(text), "i.json: it is not the index of a checkpoint, or it is damaged: ");
  }
  EXPECT_EQ(refused(R"({"content": {"format": "other"}})"),
            "i.json: it is not the index of a checkpoint");
  EXPECT_EQ(refused(R"({"checksum": 1, "content": {"format": "backplane.checkpoint"}})"),
            "i.json: its content does not have its checksum: the file is damaged");
  std::string newer = write_index(example());
  newer.replace(newer.find("\"version\": 1"), 12, "\"version\": 2");
  expect_part(refused(newer), "its content does not have its checksum");
  expect_part(refused(std::string(1000, '[')), "i.json: ");
}

}  // namespace
}  // namespace bp::distributed
