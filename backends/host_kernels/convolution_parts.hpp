// How convolutions are run on tensors that a method does not take as they are: what needs it is
// copied to the workspace first, and a result from there at the end. f16 and bf16 go through f32,
// so many images at once as a cache holds. A gradient of weight is the sum of those of parts of the
// outputs, since oneDNN adds up all outputs one after the other, and a long sum loses digits.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "backends/host_kernels/convolution.hpp"
#include "backends/host_kernels/dnnl_convolution.hpp"

namespace bp::kernels {

// A convolution all of whose tensors are taken as they are, and the copies that this needed.
struct Copied {
  Convolution c;
  DenseCopy x, weight, y, bias;
};

Copied make_copied(const Convolution& c);

// Gives the copies their places behind `size_bytes` of workspace, and returns the whole size.
uint64_t place_copies(Copied& copied, uint64_t size_bytes);

// Runs compute(c) between the copies to the workspace and the one from there.
template <typename Compute>
void run_copied(Copied& copied, std::byte* workspace, int thread_count, Compute&& compute) {
  Convolution& c = copied.c;
  const DenseCopy* result = nullptr;
  for (auto [view, copy] : {std::pair(&c.x, &copied.x), std::pair(&c.weight, &copied.weight),
                            std::pair(&c.y, &copied.y), std::pair(&c.bias, &copied.bias)}) {
    if (!copy->is_needed) continue;
    view->address = copy->dense.address = workspace + copy->offset;
    if (view == &c.result()) {
      result = copy;
    } else {
      copy->fetch(thread_count);
    }
  }
  compute(c);
  if (result != nullptr) result->store(thread_count);
}

// A part of the outputs, which leaves a gradient of weight of its own in the workspace, in f32.
struct Slice {
  Copied copied;
  std::shared_ptr<const Program> program;
};

// An f32 convolution, part by part of its batch. The parts have equal extents but for the last one.
struct Parts {
  Convolution c;
  int64_t images;
  Copied copied, last_copied;
  std::shared_ptr<const Program> program, last_program;
  std::vector<Slice> slices;  // Of a gradient of weight, in place of the parts above.
  View sum;                   // Of those.
  uint64_t sum_offset = 0, size_bytes = 0;
};

Parts make_parts(const Convolution& c, const Env& env);

// `packed` is the weight of make_packed_parts(), or NULL.
void run_parts(const Parts& parts, std::byte* packed, std::byte* workspace, int thread_count);

// A forward convolution whose weight was packed before.
struct PackedParts {
  Parts parts;
  PackedConvolution packing;
  DenseCopy weight;  // For the packer; without an address.
};

// Throws StatusError of BP_UNSUPPORTED where packing is of no use.
PackedParts make_packed_parts(const Convolution& c, const Env& env);

}  // namespace bp::kernels
