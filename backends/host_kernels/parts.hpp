// Copies that fill the parts of one tensor, such as the tensors that cat puts behind each other.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/host_kernels/loop.hpp"

namespace bp::kernels {

// Short rows are joined row by row, so that the tensor is written from its beginning to its end;
// the elements of one part may lie far apart. Other parts are copied one after the other.
class PartCopies {
 public:
  // The elements have 1, 2, 4 or 8 bytes.
  explicit PartCopies(int64_t element_size_bytes) : size_bytes_(element_size_bytes) {}

  // Adds a loop over (to, from), or a fill, as for run_copy(). No two parts share an element.
  void add(const Loop& loop) {
    if (loop.count != 0) loops_.push_back(loop);
  }

  // Chooses the parts to join. No part is added afterwards.
  void join();

  void run(int threads) const;

 private:
  int64_t size_bytes_;
  std::vector<Loop> loops_;   // Parts that are copied by themselves.
  std::vector<Loop> joined_;  // Parts with rows of the same number and distance, in order.
};

}  // namespace bp::kernels
