// Data sets in host memory, and batches of them on a device.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "backplane/runtime/tensor.hpp"

namespace bp {

// Samples of one shape, each with the class that it belongs to.
struct Dataset {
  std::vector<float> inputs;  // (count, *sample_shape), row-major.
  std::vector<int64_t> sample_shape;
  std::vector<int64_t> targets;  // (count); classes count from 0.

  int64_t count() const { return static_cast<int64_t>(targets.size()); }
  int64_t sample_size() const;  // The number of elements of one sample.

  // Returns the samples with these indices, in this order.
  Dataset subset(const std::vector<int64_t>& indices) const;
};

// Reads a file with a line of numbers, separated by commas, for each sample: the elements of the
// sample, then its class. The first line of the file is a header and is skipped. An Error names
// file and line.
Dataset read_csv(const std::string& path, std::vector<int64_t> sample_shape);

// Splits `all` into (first, second). `second` has `second_count` samples, and every class has the
// same share in both parts, as far as whole samples allow. A seed gives the same split on every
// machine.
std::pair<Dataset, Dataset> stratified_split(const Dataset& all, int64_t second_count,
                                             uint64_t seed);

struct Batch {
  Tensor inputs;   // f32 (n, *sample_shape)
  Tensor targets;  // i64 (n)
};

struct DataLoaderOptions {
  int64_t batch_size = 32;
  // Each epoch has another order; `seed` fixes all of them.
  bool shuffles = false;
  bool drops_last = false;  // Leaves out the last batch if it is smaller.
  uint64_t seed = 0;
};

// Hands out a data set in batches:
//
//   for (int epoch = 0; epoch < 10; ++epoch) {
//     loader.begin(epoch);
//     for (Batch batch; loader.next(batch);) train(batch);
//   }
//
// A DataLoader borrows the data set and is not thread-safe.
class DataLoader {
 public:
  DataLoader(const Dataset& dataset, Device device, const DataLoaderOptions& options = {});

  // Goes to the first batch of an epoch. The order of the samples depends only on seed and epoch.
  void begin(int64_t epoch);

  // Fills `batch`, or returns false at the end of the epoch.
  bool next(Batch& batch);

  int64_t batch_count() const;

 private:
  const Dataset& dataset_;
  Device device_;
  DataLoaderOptions options_;
  std::vector<int64_t> order_;
  int64_t position_ = 0;
};

}  // namespace bp
