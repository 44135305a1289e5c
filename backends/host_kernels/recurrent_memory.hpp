// The workspace of recurrent sequences, and the products of many steps that lie there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/host_kernels/recurrent.hpp"

namespace bp::kernels {

// ---- Forward -----------------------------------------------------------------------------------

// Where the buffers of a sequence lie in the workspace.
struct ForwardMemory {
  int64_t units, rows;  // What the buffers of states have room for.
  uint64_t lengths, panels, bias, state_bias, sums, packed[2], packed_kept, h, c, z, kept, x;
  uint64_t product, end = 0;

  ForwardMemory(const SequenceForward& s, int thread_count);
};

// Makes the sums of a range of steps: the product of x with all weights, plus the bias.
void multiply_inputs(const SequenceForward& s, const ForwardMemory& memory, const Steps& steps,
                     std::byte* workspace, int thread_count);

// ---- Gradients ---------------------------------------------------------------------------------

// Returns how many gates the product of a step has that gives the gradient of h.
inline int64_t carried_gates(Cell cell) {
  return cell == Cell::kResetBefore ? 2 : gate_count(cell);
}

// Where the buffers of a gradient lie in the workspace.
struct BackwardMemory {
  int64_t units, rows;  // What the buffers of states have room for.
  uint64_t lengths, panels, last_panels, d, d_last, packed[2], packed_last, dh, dc, r, x, before;
  uint64_t kept, weight, recurrent, bias, product, end = 0;

  BackwardMemory(const SequenceBackward& s, int thread_count);
};

// Adds the products of a range of steps to the gradients of weights and biases, and makes the
// gradient of its x. The lengths are in the workspace. The first range begins the sums.
void add_range(const SequenceBackward& s, const BackwardMemory& memory, const Steps& steps,
               bool is_first, std::byte* workspace, int thread_count);

}  // namespace bp::kernels
