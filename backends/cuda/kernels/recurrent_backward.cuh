// Gradients of recurrent sequences: the buffers and products that the steps share with the sums
// over all steps. The workspace has
//
//   parts         of the sums of biases (reduce.cuh)
//   of_x          the gradients of the sums in the gates, (steps, rows, gates * hidden)
//   of_h          the same of what the state is multiplied by, if that differs: the last gate of a
//                 GRU that resets the state after the product
//   before        the h that each step takes, (steps, rows, hidden)
//   kept          r * h, (steps, rows, hidden), if a GRU resets the state before the product
//   rest, dc      the gradients of the state, (rows, hidden), without what needs a product
//   product       what a step gives the h before it, (rows, hidden)
//   candidates    the product of the candidates' gradients, (rows, hidden)
//   inputs        x, and later its gradient, (steps, rows, inputs)
//   weight, recurrent, sums    for f16 and bf16: both weights, and the gradient of one, in f32
//
// Everything but the parts has the dtype of the sums.
#pragma once

#include "backends/cuda/kernels/recurrent.cuh"

namespace bp::cuda {

struct BackwardWork {
  BackwardWork(const SequenceBackward& s, const Env& env);

  // The products of a step, which is given by the addresses of its gradients.
  Product step_product(std::byte* base, std::byte* of_h) const;
  Product candidate_product(std::byte* base, std::byte* of_x) const;

  // The products of all steps. The gradient of `recurrent` has two parts if a GRU resets the state
  // before the product.
  Product x_product(std::byte* base) const;
  Product weight_product(std::byte* base) const;
  Product recurrent_product(std::byte* base) const;
  Product last_product(std::byte* base) const;

  // Returns a part of the workspace that begins at `base`, or NULL if `base` is NULL.
  static std::byte* at(std::byte* base, uint64_t offset) {
    return base == nullptr ? nullptr : base + offset;
  }
  // Return the weights in the dtype of the sums.
  ProductOperand weight_of(std::byte* base) const;
  ProductOperand recurrent_of(std::byte* base) const;
  // Returns where a gradient of weights is summed: in its tensor, if that has the dtype of sums.
  ProductOperand summed_in(const bp_tensor& gradient, std::byte* base) const;
  uint64_t of_h_or_x() const { return sequence.cell == Cell::kResetAfter ? of_h : of_x; }

  const SequenceBackward& sequence;
  RepeatedProduct step, candidate, x, whole_weight, whole_recurrent, last;
  uint64_t counts = 0, of_x = 0, of_h = 0, before = 0, kept = 0, rest = 0, dc = 0, product = 0;
  uint64_t candidates = 0, inputs = 0, weight = 0, recurrent = 0, sums = 0, library = 0;
  uint64_t size_bytes = 0;

 private:
  void place_buffers();
  ProductOperand all_steps(std::byte* base, uint64_t offset, int64_t cols) const;
};

// Submits the gradients of x, of the weights and of the biases, when all steps have run.
bp_status launch_sums(const BackwardWork& work, StepCounts counts, Launch& launch);

}  // namespace bp::cuda
