// What a long run shows: whether memory, threads or descriptors of the process or memory of the
// device grow, whether calls become slower, and how hot the device gets.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace bp::conformance {

// One look at the process that runs the cases, after each round of them.
struct SoakSample {
  double seconds = 0;  // Since the beginning.
  uint64_t resident_bytes = 0;
  uint64_t threads = 0;
  uint64_t descriptors = 0;
  double round_seconds = 0;
  std::optional<uint64_t> device_bytes;  // In use on the device, if the device tells it.
  std::optional<double> degrees;         // Celsius, if a file tells it.
};

// Reads the figures of a process. Returns nothing if it has ended.
std::optional<SoakSample> look_at_process(int pid);

// Reads a temperature in thousandths of a degree, as the files of Linux hold it. Throws UsageError
// if the file cannot be read or holds no number.
double read_degrees(const std::string& file);

// The samples of one process, thinned out so that days of them fit into memory.
class Soak {
 public:
  void add(const SoakSample& sample);

  // Returns a sentence for each figure that grows: the first quarter of the samples is the warm-up,
  // and a leak shows in each later quarter. Too few samples show nothing.
  std::vector<std::string> findings() const;

  // Returns whether there are enough samples for findings().
  bool is_enough() const { return samples_.size() >= kLeastSamples; }
  const std::vector<SoakSample>& samples() const { return samples_; }
  std::string text() const;
  nlohmann::json json() const;

 private:
  // Returns whether each sample has the memory in use on the device.
  bool tells_device_memory() const;

  static constexpr size_t kLeastSamples = 16, kMostSamples = 4096;

  std::vector<SoakSample> samples_;
  size_t step_ = 1;  // Each step-th sample is kept.
  size_t seen_ = 0;
};

}  // namespace bp::conformance
