// Data sets in host memory, and batches of them on a device.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "backplane/runtime/tensor.hpp"

namespace bp {

// Samples of one shape with a class each.
struct Dataset {
  std::vector<float> inputs;  // (count, *sample_shape), row-major.
  std::vector<int64_t> sample_shape;
  std::vector<int64_t> targets;  // (count); classes from 0 on.

  int64_t count() const { return static_cast<int64_t>(targets.size()); }
  int64_t sample_size() const;  // Elements of one sample.

  // The samples with these indices, in this order.
  Dataset subset(const std::vector<int64_t>& indices) const;
};

// Reads lines of numbers that are separated by commas: the elements of a sample, then its class.
// The first line is a header and is skipped. Throws Error with file and line.
Dataset read_csv(const std::string& path, std::vector<int64_t> sample_shape);

// Splits into (first, second), where `second` has `second_count` samples and every class has the
// same share in both, as far as whole samples allow. The same seed gives the same split everywhere.
std::pair<Dataset, Dataset> stratified_split(const Dataset& all, int64_t second_count,
                                             uint64_t seed);

struct Batch {
  Tensor inputs;   // f32 (n, *sample_shape)
  Tensor targets;  // i64 (n)
};

struct DataLoaderOptions {
  int64_t batch_size = 32;
  bool shuffles = false;    // Another order in each epoch, all of them fixed by `seed`.
  bool drops_last = false;  // Leaves out a last batch that is smaller.
  uint64_t seed = 0;
};

// Hands out a data set in batches:
//
//   for (int epoch = 0; epoch < 10; ++epoch) {
//     loader.begin(epoch);
//     for (Batch batch; loader.next(batch);) train(batch);
//   }
//
// Borrows the data set. Not thread-safe.
class DataLoader {
 public:
  DataLoader(const Dataset& dataset, Device device, const DataLoaderOptions& options = {});

  // Goes to the first batch of an epoch. The order depends on seed and epoch alone.
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
