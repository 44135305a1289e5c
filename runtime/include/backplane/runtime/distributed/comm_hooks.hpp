// Hooks for DdpOptions::comm_hook that send less than the gradients, for networks that are slower
// than the devices.
//
//   bp::distributed::DistributedDataParallel ddp(
//       model, group, {.comm_hook = bp::distributed::power_sgd_hook({.rank = 2})});
//
// Both hooks send an approximation. What a rank has left out is kept, and added to its gradient in
// the next step (error feedback), so over many steps all of a gradient arrives. The errors take as
// much memory as the gradients, on each rank. They are no part of a checkpoint: a run that goes on
// begins without them.
//
// Rules for both:
//   Threads    A hook serves one DistributedDataParallel, and copies of it share their state.
//   Blocking   Does not block.
//   Errors     The functions throw Error of BP_INVALID_ARGUMENT for options that are out of range.
//   Bits       All ranks get the same bits, if the all-reduce gives them the same bits.
#pragma once

#include <cstdint>

#include "backplane/runtime/distributed/ddp.hpp"

namespace bp::distributed {

struct PowerSgdOptions {
  int64_t rank = 1;  // Of the approximation; at least 1. More is closer, and sends more.
  // For so many steps the gradients are averaged exactly, because early gradients change quickly.
  // At least 0.
  int64_t exact_steps = 1000;
  // A gradient is compressed if it shrinks at least by this factor; at least 1.
  double least_ratio = 2;
  bool keeps_errors = true;  // Error feedback.
  uint64_t seed = 0;         // Of the first approximation. All ranks give the same.
};

// PowerSGD: a gradient, taken as a matrix M of shape[0] rows, is sent as two factors of `rank`
// columns. P = M Q is averaged and made orthonormal; Q = M' P is averaged, and begins the next
// step; the average of the gradients is approximated by P Q'. Exact if the average has at most
// `rank` independent rows. Gradients with less than two axes are averaged as they are. The second
// average follows the end of backward(). (Vogels, Karimireddy, Jaggi: PowerSGD, NeurIPS 2019.)
CommHook power_sgd_hook(const PowerSgdOptions& options = {});

struct TopKOptions {
  double ratio = 0.01;  // The share of the elements of a bucket that a rank sends; above 0, to 1.
  int64_t exact_steps = 0;   // As for PowerSGD.
  bool keeps_errors = true;  // Error feedback.
};

// Each rank sends the elements of a bucket with the largest magnitudes, with their places, and adds
// up what all ranks have sent, in the order of the ranks. A bucket costs 12 bytes for each element
// that a rank sends. (Stich, Cordonnier, Jaggi: Sparsified SGD with Memory, NeurIPS 2018.)
CommHook top_k_hook(const TopKOptions& options = {});

}  // namespace bp::distributed
