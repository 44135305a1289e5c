// Random ops with the generator of their device: takes as many blocks of Philox words as elements
// need, rounded up, so that no two calls share a word.
#include "backplane/runtime/random.hpp"

#include "backplane/runtime/ops.hpp"
#include "runtime/tensor/tensor_impl.hpp"

namespace bp {
namespace {

// A block has four words; f64 takes two of them per element.
uint64_t blocks_for(int64_t count, bp_dtype dtype) {
  const uint64_t per_block = dtype == BP_F64 ? 2 : 4;
  return (static_cast<uint64_t>(count) + per_block - 1) / per_block;
}

Generator::Range take(Generator* generator, Device device, uint64_t block_count) {
  return (generator != nullptr ? *generator : device.generator()).take(block_count);
}

}  // namespace

Tensor uniform(IntList shape, bp_dtype dtype, Device device, Generator* generator) {
  const int64_t count = detail::count_elements(shape);
  const Generator::Range range = take(generator, device, blocks_for(count, dtype));
  return uniform(shape, dtype, device, range.seed, range.offset);
}

Tensor dropout(const Tensor& x, double p, Generator* generator) {
  // The mask is drawn in f32, whatever the dtype of x.
  const Generator::Range range = take(generator, x.device(), blocks_for(x.numel(), BP_F32));
  return dropout(x, range.seed, range.offset, p);
}

}  // namespace bp
