// What a peer of the comparison offers: named cases, each ready to be timed.
//
// All peers fill their inputs with the same numbers, so that what they give can be compared:
// element i of input s is ((7919 * i + 104729 * s) mod 2003 - 501) / 1001, in f32, and then in the
// dtype of the case. Indices are (7919 * i + 104729 * s) mod n.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace bp::bench {

// A case that has been set up.
struct Ready {
  std::function<void()> run;         // One call of the op, completed when it returns.
  std::function<double()> mean_abs;  // Of the elements of the result, after run().
};

struct Case {
  std::string name;
  double bytes = 0;  // That have to be read and written at least.
  double flops = 0;  // Multiplications and additions.
  std::function<Ready()> prepare;
};

inline float input_value(int64_t i, int64_t s) {
  return static_cast<float>((7919 * i + 104729 * s) % 2003 - 501) / 1001.0F;
}
inline int64_t index_value(int64_t i, int64_t s, int64_t n) { return (7919 * i + 104729 * s) % n; }

// The cases of each engine. The names are the same where the work is.
std::vector<Case> backplane_cases();
std::vector<Case> onednn_cases();

// Those of Backplane whose weight is constant, and was prepared.
void add_prepared_cases(std::vector<Case>& cases);

// Bytes per second of memory that no cache holds, the most of reading, copying and adding, where
// the bytes read and written count; and multiplications and additions of f32 per second: the limits
// of this machine on `threads` threads.
double memory_bandwidth(int threads);
double peak_flops(int threads);

}  // namespace bp::bench
