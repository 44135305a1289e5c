// Products whose weight lies in the blocks that oneDNN reads.
//
// The blocks depend on the extents of the weight and on the processor, and not on how many rows are
// multiplied with the weight: one converted weight serves any number of rows. On one processor with
// AVX2 a linear of
// 4096 by 4096 takes 4.2 instead of 9.6 ms for 2 rows, 7.6 instead of 11.7 ms for 8, 22 instead of
// 27 ms for 32; from some hundred rows on the two are equal, and a single row takes a tenth longer.
#pragma once

#include <cstdint>
#include <dnnl.hpp>
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <utility>

#include "backends/cpu/full_instance.hpp"
#include "backends/host_kernels/dnnl_program.hpp"
#include "backplane/tensor.h"

namespace bp::cpu {

// The layouts of weights of f32 in memory. The class is thread-safe.
class BlockedWeights {
 public:
  // Returns the blocks of a weight. Throws StatusError of BP_UNSUPPORTED if oneDNN has none for it.
  dnnl::memory::desc desc(int64_t cols, int64_t depth);

 private:
  std::shared_mutex mutex_;  // It guards `descs_`.
  std::map<std::pair<int64_t, int64_t>, dnnl::memory::desc> descs_;
};

// The op whose weight has a layout. The weight of linear is the transpose of that of matmul.
enum WeightVariant : uint32_t { kWeightOfLinear = 1, kWeightOfMatmul = 2 };

// blocked_form() returns the form of the weight `tensor`, and blocks_of() the blocks of a form.
// Both throw what desc() throws. blocks_of() also throws StatusError of BP_INCOMPATIBLE if this
// processor or this oneDNN would choose other blocks.
LayoutForm blocked_form(const FullInstance& i, const bp_tensor& tensor, WeightVariant variant);
dnnl::memory::desc blocks_of(const FullInstance& i, const LayoutForm& form);

// Returns the form that `kernel` prefers for its weight in this call, or none if the kernel prefers
// strides.
std::optional<LayoutForm> find_preferred_form(const FullInstance& i, const bp_kernel& kernel,
                                              const void* args);

// Replaces the functions of the linear and matmul kernels by functions that also take blocked
// weights.
void put_blocked_products(FullInstance& i);

}  // namespace bp::cpu
