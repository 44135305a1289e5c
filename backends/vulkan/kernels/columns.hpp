// The parts that a convolution and its gradients share: their shapes, and the columns of unfolded
// windows (convolution.comp).
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/vulkan/kernels/scratch.hpp"

namespace bp::vulkan {

// A convolution or a gradient of it; x and y may be gradients.
struct Convolution {
  const bp_tensor *x, *weight, *y, *bias;
  int64_t groups;
  const int64_t *stride, *padding, *dilation;

  uint32_t spatial() const { return x->ndim - 2; }
  int64_t images() const { return x->shape[0]; }
  int64_t channels() const { return x->shape[1]; }
  int64_t outputs() const { return y->shape[1]; }
  int64_t outputs_of_group() const { return outputs() / groups; }
  int64_t places() const { return product_of(*y); }
  int64_t taps() const { return product_of(*weight); }
  int64_t depth() const { return weight->shape[1] * taps(); }  // The depth of a product: (c, taps).
  bool is_empty() const { return images() * places() * outputs() * depth() == 0; }

  // Returns how many images are unfolded at a time, which 64 MiB of columns hold.
  int64_t chunk(int64_t item) const {
    constexpr int64_t kColumnBytes = int64_t{64} << 20;
    const int64_t bytes = std::max<int64_t>(1, channels() * taps() * places() * item);
    return std::clamp<int64_t>(kColumnBytes / bytes, 1, std::max<int64_t>(1, images()));
  }

 private:
  static int64_t product_of(const bp_tensor& t) {
    int64_t count = 1;
    for (uint32_t i = 2; i < t.ndim; ++i) count *= t.shape[i];
    return count;
  }
};

// A tensor as a product reads or writes it: the tensor itself, or a copy without gaps.
class Packed {
 public:
  // A copy is made if the axes from `first` on have gaps.
  Packed(const bp_tensor& tensor, uint32_t first, Scratch& scratch);
  Packed(const Packed&) = delete;

  const bp_tensor& get() const { return is_copy_ ? copy_.tensor() : tensor_; }

  // fetch() fills the copy, and the next function writes it back.
  bp_status fetch(Launch& launch) const;
  bp_status put(Launch& launch) const;

 private:
  const bp_tensor& tensor_;
  const bool is_copy_;
  ScratchTensor copy_;
};

// Some images of x, and their columns.
struct Chunk {
  int64_t first, images;
  const ScratchTensor& columns;
};

// Unfolds x to columns, or folds them to x.
bp_status submit_columns(Launch& launch, const Convolution& c, const Chunk& chunk, bool folds);

}  // namespace bp::vulkan
