// A peer of the comparison offers named cases, each ready to be timed.
//
// All peers fill their inputs with the same numbers, so that results can be compared. Element i of
// input s is ((7919 * i + 104729 * s) mod 2003 - 501) / 1001, in f32, and then in the dtype of the
// case. Indices are (7919 * i + 104729 * s) mod n.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace bp::bench {

// A case that has been set up.
struct Ready {
  std::function<void()> run;  // Runs one call of the op and returns when it has completed.
  // Returns the mean over the elements of the result, after run().
  std::function<double()> mean_abs;
};

struct Case {
  std::string name;
  double bytes = 0;  // The least that must be read and written.
  double flops = 0;  // Multiplications and additions.
  std::function<Ready()> prepare;
};

inline float input_value(int64_t i, int64_t s) {
  return static_cast<float>((7919 * i + 104729 * s) % 2003 - 501) / 1001.0F;
}
constexpr double kLargestInput = 1.5;  // No input is larger.
inline int64_t index_value(int64_t i, int64_t s, int64_t n) { return (7919 * i + 104729 * s) % n; }

// Return the cases of each engine. Cases that do the same work have the same name.
std::vector<Case> backplane_cases();
std::vector<Case> onednn_cases();
std::vector<Case> ggml_cases(bool is_repacked);

// The rows of the products with a quantised weight of 4096 by 4096.
constexpr int64_t kQuantizedRows[] = {1, 16, 512};

// Return the limits of this machine on `threads` threads. memory_bandwidth() is in bytes per
// second, read and written, of memory that no cache holds, and takes the best of reading, copying
// and adding. The other limit is in f32 multiplications and additions per second.
double memory_bandwidth(int threads);
double peak_flops(int threads);

}  // namespace bp::bench
