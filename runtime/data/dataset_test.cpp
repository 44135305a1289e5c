#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>

#include "backplane/runtime/data.hpp"

namespace bp {
namespace {

// `count` samples of two numbers: (i, -i), with the class i % classes.
Dataset numbered(int64_t count, int64_t classes) {
  Dataset dataset{{}, {2}, {}};
  for (int64_t i = 0; i < count; ++i) {
    dataset.inputs.push_back(static_cast<float>(i));
    dataset.inputs.push_back(static_cast<float>(-i));
    dataset.targets.push_back(i % classes);
  }
  return dataset;
}

std::map<int64_t, int64_t> class_counts(const Dataset& dataset) {
  std::map<int64_t, int64_t> counts;
  for (const int64_t target : dataset.targets) ++counts[target];
  return counts;
}

TEST(StratifiedSplit, GivesEachClassItsShareAndLosesNothing) {
  const auto [first, second] = stratified_split(numbered(103, 4), 21, 7);
  EXPECT_EQ(first.count(), 82);
  EXPECT_EQ(second.count(), 21);
  for (const auto& [target, count] : class_counts(second)) {
    EXPECT_GE(count, 5) << target;
    EXPECT_LE(count, 6) << target;
  }
  std::vector<float> all = first.inputs;
  all.insert(all.end(), second.inputs.begin(), second.inputs.end());
  std::vector<float> expected = numbered(103, 4).inputs;
  std::ranges::sort(all);
  std::ranges::sort(expected);
  EXPECT_EQ(all, expected);
}

TEST(StratifiedSplit, DependsOnTheSeedAlone) {
  const Dataset all = numbered(100, 5);
  EXPECT_EQ(stratified_split(all, 20, 1).second.inputs, stratified_split(all, 20, 1).second.inputs);
  EXPECT_NE(stratified_split(all, 20, 1).second.inputs, stratified_split(all, 20, 2).second.inputs);
  EXPECT_THROW(stratified_split(all, 101, 1), Error);
}

TEST(ReadCsv, NamesFileAndLineOfWhatIsWrong) {
  const std::string path =
      std::filesystem::temp_directory_path() / ("data_test." + std::to_string(getpid()));
  const auto failure = [&](const char* text) {
    std::ofstream(path) << text;
    try {
      read_csv(path, {2});
    } catch (const Error& e) {
      return std::string(e.what()).substr(path.size());
    }
    return std::string();
  };
  EXPECT_EQ(failure("a,b,class\n1,2,0\n3,4.5,1\n"), "");
  EXPECT_EQ(failure("a,b,class\n1,2,0\n1,x,0\n"), ":3: column 2 is not a number");
  EXPECT_EQ(failure("a,b,class\n1,2\n"), ":2: 2 columns; expected 3");
  EXPECT_NE(failure("a,b,class\n1,2,0.5\n").find(":2: the class"), std::string::npos);
  EXPECT_NE(failure("a,b,class\n").find("no samples"), std::string::npos);
  std::filesystem::remove(path);
  EXPECT_THROW(read_csv("/nonexistent.csv", {2}), Error);
}

TEST(DataLoader, HandsOutEachSampleOncePerEpochInAnOrderOfItsOwn) {
  const Device device("cpu");
  const Dataset dataset = numbered(10, 3);
  DataLoader loader(dataset, device, {.batch_size = 4, .shuffles = true, .seed = 5});
  EXPECT_EQ(loader.batch_count(), 3);
  std::vector<std::vector<float>> epochs;
  for (int64_t epoch : {0, 1, 0}) {
    loader.begin(epoch);
    std::vector<float>& seen = epochs.emplace_back();
    for (Batch batch; loader.next(batch);) {
      EXPECT_EQ(batch.inputs.shape(1), 2);
      for (const float value : batch.inputs.select(1, 0).to_vector<float>()) seen.push_back(value);
    }
  }
  EXPECT_EQ(epochs[0], epochs[2]);
  EXPECT_NE(epochs[0], epochs[1]);
  std::ranges::sort(epochs[0]);
  EXPECT_EQ(epochs[0], (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(DataLoader, CanLeaveOutASmallerLastBatch) {
  const Dataset dataset = numbered(10, 3);
  DataLoader loader(dataset, Device("cpu"), {.batch_size = 4, .drops_last = true});
  int64_t batches = 0;
  for (Batch batch; loader.next(batch); ++batches) EXPECT_EQ(batch.targets.numel(), 4);
  EXPECT_EQ(batches, 2);
  EXPECT_THROW(DataLoader(dataset, Device("cpu"), {.batch_size = 0}), Error);
}

}  // namespace
}  // namespace bp
