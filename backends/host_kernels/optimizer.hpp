// The arguments that the optimizer steps pass to the code that is compiled for each processor
// (optimizer.cpp).
#pragma once

#include "backends/host_kernels/loop.hpp"
#include "backends/host_kernels/scalar.hpp"

namespace bp::kernels {

struct SgdSettings {
  double lr = 0, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false, has_buffers = false;
  bool is_first = false;  // It is step 1.
};

// Those of adam_step and adamw_step, which differ in what weight decay acts on.
struct AdamSettings {
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  double correction1 = 1, correction2 = 1;  // They are 1 - beta^step.
};

struct LionSettings {
  double lr = 0, beta1 = 0, beta2 = 0, weight_decay = 0;
};

}  // namespace bp::kernels
