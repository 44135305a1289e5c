// Runs convolutions on tensors that a method does not take as they are. Such an input is copied to
// the workspace first, and such a result is copied from there at the end. f16 goes through f32, and
// so does bf16 unless its subnormals may count as 0, with as many images at once as a cache holds.
// A gradient of weight is summed from the gradients of parts of the outputs, because oneDNN adds
// all outputs one after the other, and a long sum loses digits.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "backends/host_kernels/convolution.hpp"
#include "backends/host_kernels/dnnl_convolution.hpp"

namespace bp::kernels {

// A convolution whose tensors the method all takes as they are, and the copies that this needed.
struct Copied {
  Convolution c;
  DenseCopy x, weight, y, bias;
};

Copied make_copied(const Convolution& c);

// Gives the copies their places behind `size_bytes` of workspace, and returns the whole size.
uint64_t place_copies(Copied& copied, uint64_t size_bytes);

// Copies inputs to the workspace, runs compute(c), and copies the result from the workspace.
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

// A part of the outputs. It writes its own gradient of weight, in f32, to the workspace.
struct Slice {
  Copied copied;
  std::shared_ptr<const Program> program;
};

// A convolution with sums in f32 that runs in parts of its batch. All parts but the last have equal
// extents.
struct Parts {
  Convolution c;
  int64_t images;
  Copied copied, last_copied;
  std::shared_ptr<const Program> program, last_program;
  std::vector<Slice> slices;  // Replace the parts above for a gradient of weight.
  View sum;                   // The sum of the slices.
  uint64_t sum_offset = 0, size_bytes = 0;
};

// Where oneDNN has no fast convolution of bf16, the parts go through f32 though c.takes_bf16 is
// set.
Parts make_parts(const Convolution& c, const Env& env);

// Runs the parts. `packed` is the weight that make_packed_parts() packs, or NULL.
void run_parts(const Parts& parts, std::byte* packed, std::byte* workspace, int thread_count);

// A forward convolution whose weight was packed before.
struct PackedParts {
  Parts parts;
  PackedConvolution packing;
  DenseCopy weight;  // The packer's input; has no address.
};

// Throws StatusError of BP_UNSUPPORTED if packing the weight has no use.
PackedParts make_packed_parts(const Convolution& c, const Env& env);

}  // namespace bp::kernels
