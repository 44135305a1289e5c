#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>

#include "backplane/runtime/data.hpp"
#include "runtime/test_device.hpp"

namespace bp {
namespace {

// Makes `count` samples of two numbers: (i, -i), with the class i % classes.
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

TEST(Dataset, GivesOnlySamplesThatItHas) {
  const Dataset all = numbered(3, 2);
  const Dataset part = all.subset({2, 0, 2});
  EXPECT_EQ(part.inputs, (std::vector<float>{2, -2, 0, 0, 2, -2}));
  EXPECT_EQ(part.targets, (std::vector<int64_t>{0, 0, 0}));
  EXPECT_EQ(all.subset({}).count(), 0);
  EXPECT_EQ(message_of([&] {
              all.subset({0, 3});
            }),
            "Dataset: there is no sample 3; allowed: 0 to 2");
  EXPECT_EQ(message_of([&] { all.subset({-1}); }),
            "Dataset: there is no sample -1; allowed: 0 to 2");
  Dataset torn = all;
  torn.inputs.pop_back();
  EXPECT_EQ(message_of([&] { torn.subset({0}); }),
            "Dataset: there are 5 inputs; allowed: 2 for each of 3 targets");
}

TEST(StratifiedSplit, MayGiveEverythingOrNothing) {
  const Dataset all = numbered(7, 3);
  for (const int64_t count : {0, 7}) {
    const auto [first, second] = stratified_split(all, count, 3);
    EXPECT_EQ(second.count(), count);
    EXPECT_EQ((count == 0 ? first : second).inputs, all.inputs) << "in the order that it had";
  }
  EXPECT_EQ(stratified_split(numbered(0, 1), 0, 3).first.count(), 0);
  EXPECT_THROW(stratified_split(all, -1, 3), Error);
}

TEST(StratifiedSplit, GivesAClassOfOneSampleToOneSide) {
  Dataset all = numbered(9, 1);
  all.targets[4] = 5;
  const auto [first, second] = stratified_split(all, 3, 1);
  EXPECT_EQ(class_counts(first)[5] + class_counts(second)[5], 1);
  EXPECT_EQ(second.count(), 3);
}

class CsvFile : public testing::Test {
 protected:
  CsvFile()
      : path_(std::filesystem::temp_directory_path() /
              ("dataset_test.csv." + std::to_string(getpid()))) {}
  ~CsvFile() override { std::filesystem::remove(path_); }

  Dataset read(const std::string& text) const {
    std::ofstream(path_, std::ios::binary) << text;
    return read_csv(path_, {2});
  }
  // Returns the message without the path at its beginning.
  std::string failure(const std::string& text) const {
    const std::string message = message_of([&] { read(text); });
    EXPECT_EQ(message.find(path_.string()), 0u) << message;
    return message.substr(std::min(message.size(), path_.string().size()));
  }

 private:
  std::filesystem::path path_;
};

TEST_F(CsvFile, IsReadWithTheLineEndsOfEverySystem) {
  const Dataset dataset = read("a,b,c\r\n1,-2.5e1,3\r\n\r\n\n0.5,4,0");
  EXPECT_EQ(dataset.inputs, (std::vector<float>{1, -25, 0.5, 4}));
  EXPECT_EQ(dataset.targets, (std::vector<int64_t>{3, 0}));
  EXPECT_EQ(dataset.sample_shape, (std::vector<int64_t>{2}));
}

TEST_F(CsvFile, HasOnlyClassesThatAreWholeNumbers) {
  for (const char* wrong : {"nan", "inf", "-inf", "1e30", "-1", "0.5"}) {
    EXPECT_EQ(failure(std::string("a,b,c\n1,2,") + wrong + "\n"),
              ":2: the class, in the last column, is not a whole number from 0 on")
        << wrong;
  }
}

TEST_F(CsvFile, IsRefusedWhereAColumnIsMissingOrEmpty) {
  EXPECT_EQ(failure("a,b,c\n1,,0\n"), ":2: column 2 is not a number");
  EXPECT_EQ(failure("a,b,c\n1,2,0,\n"), ":2: column 4 is not a number");
  EXPECT_EQ(failure("a,b,c\n1,2,0,4\n"), ":2: 4 columns; expected 3");
  EXPECT_EQ(failure("a,b,c\n1,2 3,0\n"), ":2: column 2 is not a number");
  EXPECT_EQ(failure("a,b,c\n1,1e99,0\n"), ":2: column 2 is not a number");
  EXPECT_EQ(failure(""), ":1: there are no samples behind the header");
}

TEST(ReadCsv, SaysWhatIsNoRegularFile) {
  std::string folder = (std::filesystem::temp_directory_path() / "dataset_test_XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string fifo = folder + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  for (const auto& [path, kind] :
       {std::pair(fifo, "FIFO"), {folder, "folder"}, {"/dev/zero", "device"}}) {
    EXPECT_EQ(message_of([&, name = path] { read_csv(name, {2}); }),
              path + ": it is a " + kind + ", not a regular file");
  }
  std::filesystem::remove_all(folder);
}

TEST(DataLoader, TakesBatchesLargerThanTheDataSet) {
  const Dataset dataset = numbered(5, 2);
  for (const int64_t size : {int64_t{5}, int64_t{6}, INT64_MAX}) {
    DataLoader loader(dataset, Device("cpu"), {.batch_size = size});
    EXPECT_EQ(loader.batch_count(), 1);
    Batch batch;
    ASSERT_TRUE(loader.next(batch));
    EXPECT_EQ(batch.inputs.shape(), IntList({5, 2}));
    EXPECT_EQ(batch.targets.to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 0, 1, 0}));
    EXPECT_FALSE(loader.next(batch));
    DataLoader strict(dataset, Device("cpu"), {.batch_size = size, .drops_last = true});
    EXPECT_EQ(strict.batch_count(), size == 5 ? 1 : 0);
    EXPECT_EQ(strict.next(batch), size == 5);
  }
}

TEST(DataLoader, HasNothingToGiveOfNoSamples) {
  const Dataset none = numbered(0, 1);
  DataLoader loader(none, Device("cpu"), {.shuffles = true});
  Batch batch;
  EXPECT_EQ(loader.batch_count(), 0);
  EXPECT_FALSE(loader.next(batch));
  loader.begin(1);
  EXPECT_FALSE(loader.next(batch));
}

TEST(DataLoader, BeginsAnEpochAnewInTheMiddleOfOne) {
  const Dataset dataset = numbered(6, 2);
  DataLoader loader(dataset, Device("cpu"), {.batch_size = 4});
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  loader.begin(7);
  ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(batch.inputs.select(1, 0).to_vector<float>(), (std::vector<float>{0, 1, 2, 3}));
  ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(batch.inputs.select(1, 0).to_vector<float>(), (std::vector<float>{4, 5}));
}

}  // namespace
}  // namespace bp
