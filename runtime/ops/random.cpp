// Random ops use the generator of their device. Each call takes as many blocks of Philox words as
// its elements need, rounded up, so that no two calls share a word.
#include "backplane/runtime/random.hpp"

#include "backplane/runtime/ops.hpp"
#include "runtime/tensor/tensor_impl.hpp"

namespace bp {
namespace {

// Returns the number of blocks for `count` elements. A block has four words, and an f64 takes two
// of them.
uint64_t blocks_for(int64_t count, bp_dtype dtype) {
  const uint64_t per_block = dtype == BP_F64 ? 2 : 4;
  return (static_cast<uint64_t>(count) + per_block - 1) / per_block;
}

// Returns the seed of a range as ops take it: a number, or the tensor that holds it.
Operand seed_of(const Generator::Range& range) {
  if (range.seed_tensor != nullptr) return *range.seed_tensor;
  return range.seed;
}

// Returns the result of `op` with a range that no other call gets. If `op` throws, the generator
// gets the range back, unless another thread has taken a later one.
template <typename Op>
Tensor with_range(Generator* given, Device device, uint64_t block_count, Op&& op) {
  Generator& generator = given != nullptr ? *given : device.generator();
  const Generator::Range range = generator.take(block_count);
  try {
    return op(range);
  } catch (...) {
    generator.give_back(range, block_count);
    throw;
  }
}

}  // namespace

Tensor uniform(IntList shape, bp_dtype dtype, Device device, Generator* generator) {
  const int64_t count = detail::count_elements(shape);
  return with_range(generator, device, blocks_for(count, dtype),
                    [&](const Generator::Range& range) {
                      return uniform(shape, dtype, device, seed_of(range), range.offset);
                    });
}

Tensor dropout(const Tensor& x, double p, Generator* generator) {
  // The mask is drawn in f32, whatever the dtype of x.
  const uint64_t blocks = blocks_for(x.numel(), BP_F32);
  return with_range(generator, x.device(), blocks, [&](const Generator::Range& range) {
    return dropout(x, seed_of(range), range.offset, p);
  });
}

}  // namespace bp
