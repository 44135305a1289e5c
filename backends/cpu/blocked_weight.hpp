// Products whose weight lies in the blocks that oneDNN reads.
//
// The blocks depend on the extents of the weight and on the processor, and not on how many rows are
// multiplied with it: one converted weight serves them all. On one processor with AVX2 a linear of
// 4096 by 4096 takes 4.2 instead of 9.6 ms for 2 rows, 7.6 instead of 11.7 ms for 8, 22 instead of
// 27 ms for 32; from some hundred rows on the two are equal, and a single row takes a tenth longer.
#pragma once

#include <cstdint>
#include <dnnl.hpp>
#include <map>
#include <memory>
#include <shared_mutex>
#include <utility>

#include "backends/cpu/full_instance.hpp"
#include "backends/host_kernels/dnnl_program.hpp"
#include "backplane/tensor.h"

namespace bp::cpu {

// How a weight of f32 lies. Thread-safe.
class BlockedWeights {
 public:
  // Throws StatusError of BP_UNSUPPORTED where oneDNN has no blocks for it.
  dnnl::memory::desc desc(int64_t cols, int64_t depth);

 private:
  std::shared_mutex mutex_;  // Guards `descs_`.
  std::map<std::pair<int64_t, int64_t>, dnnl::memory::desc> descs_;
};

// Which op's argument a layout is of: both are matrices, and only one is transposed.
enum WeightVariant : uint32_t { kWeightOfLinear = 1, kWeightOfMatmul = 2 };

// The form of the weight `tensor`, and the blocks of a form. Both throw as desc() does, the second
// with BP_INCOMPATIBLE for a form that this processor or library would make otherwise.
LayoutForm blocked_form(FullInstance& i, const bp_tensor& tensor, WeightVariant variant);
dnnl::memory::desc blocks_of(FullInstance& i, const LayoutForm& form);

// The form that `kernel` wants for its weight in this call; false for strides.
bool find_preferred_form(FullInstance& i, const bp_kernel& kernel, const void* args,
                         LayoutForm& form);

// Puts the functions that take blocked weights in front of those of linear and matmul.
void put_blocked_products(FullInstance& i);

}  // namespace bp::cpu
