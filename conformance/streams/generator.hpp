// Draws stream programs that have one meaning, and shortens programs that fail.
#pragma once

#include <cstdint>
#include <functional>

#include "conformance/streams/program.hpp"

namespace bp::conformance {

// Draws numbers from a seed, which are the same on each machine.
class Draw {
 public:
  explicit Draw(uint64_t seed) : seed_(seed) {}
  uint64_t bits();
  uint32_t below(uint32_t bound) { return static_cast<uint32_t>((bits() >> 32) % bound); }
  bool chance(uint32_t one_in) { return below(one_in) == 0; }

 private:
  uint64_t seed_;
  uint64_t drawn_ = 0;
};

struct ProgramShape {
  uint32_t stream_count = 2;
  uint32_t event_count = 3;
  uint32_t buffer_count = 3;
  uint32_t buffer_bytes = 256;
  uint32_t step_count = 60;
  uint32_t launch_alignment_bytes = 0;  // The alignment of the offsets of tensors; 0: the program
                                        // has no launches.
};

// Draws a program without races. Steps that would race get a record and a wait before them, or are
// drawn again.
Program draw_program(const ProgramShape& shape, uint64_t seed);

// Drops steps as long as the rest still has one meaning and `fails` returns true for it. It calls
// `fails` at most `budget` times.
Program shortened(Program program, int budget, const std::function<bool(const Program&)>& fails);

}  // namespace bp::conformance
